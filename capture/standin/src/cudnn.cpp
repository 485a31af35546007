// cuDNN: handles, descriptors and the calls of its older interface. cudnn_backend.cpp has the graph
// interface, through which PyTorch runs convolutions; cudnn_rnn.cpp has recurrent networks.
//
// The problem: on a GPU, PyTorch runs convolutions, batch norms and recurrent networks through cuDNN, which
// has its own path in ATen: other ops, other saved tensors, workspaces. cuDNN itself cannot run on the
// stand-in: its statically linked CUDA runtime asks the driver for cuGetExportTable, tables of undocumented
// functions.
//
// The solution: everything that describes (descriptors, plans, sizes) works; everything that computes is
// queued on the handle's stream and does nothing, like kernels. The numbers come from the Python side, which
// computes whole ATen ops.
//
// What a closed library does inside can only be inferred, and the report says so ("inferred"):
//
//   figure                          rule here                                    source
//   convolution workspace           4 bytes × inner dimension of its GEMM        cuDNN API documentation: IMPLICIT_PRECOMP_GEMM (and
//     forward: C/g·R·S, data: K/g·R·S, filter: N·P·Q                             backward algorithm 1) keep "precomputed indices"; how
//                                                                                many is not said; we assume one for each step of the GEMM
//   the same, STANDIN_CUDNN=gemm    inner dimension × N·P·Q × element of 4 B     same page: GEMM stores the whole matrix; upper end
//   the same, STANDIN_CUDNN=none    0                                            same page: IMPLICIT_GEMM needs none; lower end
//   the same, STANDIN_CUDNN=64MiB   that size                                    for example, one seen on a card
//   batch norm workspace, reserve   0                                            not documented
//   dropout state                   16 bytes × threads of the card               one random state for each thread; size not documented
//   RNN work and reserve space      see cudnn_rnn.cpp                            not documented
//   CTC loss workspace              8 bytes × T·B·(2L+1): alphas and betas       Graves et al. 2006, the algorithm's tables
//
// On real cards fast kernels (tensor cores on NCHW, Winograd, split-K) often ask for more, tens of MiB. No public table says when.
#include "cudnn.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

namespace standin {
namespace cudnn {

struct Library {
  void *stream = nullptr;
};

void *stream_of(const void *handle) { return handle ? static_cast<const Library *>(handle)->stream : nullptr; }

int enter_call(const char *function, const void *caller) {
  int e = enter(function, caller);
  if (!e) return kOk;
  return e >= 1000 ? e : kExecutionFailed;  // an injected cudnnStatus_t is returned unchanged
}

int work(const void *handle, const char *what) { return launch_computed(stream_of(handle), what) ? int(kUnsupported) : int(kOk); }

size_t type_size(int type) {
  // float, double, half, int8, int32, then packed int8, uint8, packed uint8, packed int8, bfloat16, int64, boolean, two fp8, fast float
  static const size_t sizes[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8, 1, 1, 1, 4};
  return type >= 0 && size_t(type) < sizeof sizes / sizeof sizes[0] ? sizes[type] : 0;
}

int64_t product(const Dims &d, size_t from) {
  int64_t p = 1;
  for (size_t i = from; i < d.size(); i++) p *= d[i];
  return p;
}

uint64_t convolution_workspace(Pass pass, const Dims &x, const Dims &w, const Dims &y) {
  note_inferred("cuDNN convolution workspace");
  if (x.size() < 3 || w.size() < 3 || y.size() < 3 || w[1] <= 0) return 0;
  int64_t groups = x[1] / w[1] > 0 ? x[1] / w[1] : 1, positions = y[0] * product(y, 2), inner = 0;
  switch (pass) {
    case Pass::kForward: inner = product(w, 1); break;
    case Pass::kData: inner = w[0] / groups * product(w, 2); break;
    case Pass::kFilter: inner = positions; break;
  }
  const char *rule = setting("STANDIN_CUDNN");
  if (!rule || !*rule || !strcmp(rule, "precomp")) return uint64_t(inner) * 4;
  if (!strcmp(rule, "none")) return 0;
  if (!strcmp(rule, "gemm")) return uint64_t(product(w, 1)) * uint64_t(positions) * 4;
  return setting_size("STANDIN_CUDNN", 0);
}

namespace {

// The version of the real library that the stand-in replaces.
size_t hidden_version() {
  static size_t version = [] {
    size_t v = 0;
    if (void *library = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_NOLOAD)) {
      if (auto f = reinterpret_cast<size_t (*)()>(dlsym(library, "cudnnGetVersion"))) v = f();
      dlclose(library);
    }
    return v ? v : size_t(90501);
  }();
  return version;
}

// What tensor, filter and convolution descriptors hold.
struct Described {
  int type = 0;
  int format = 0;
  Dims dims, strides;
  int groups = 1;
};

template <typename T>
int create(T **out) {
  if (!out) return kBadParameter;
  *out = new T;
  return kOk;
}
template <typename T>
int destroy(T *p) {
  delete p;
  return kOk;
}

// What cudnnGetConvolution*Algorithm_v7 and cudnnFindConvolution*AlgorithmEx return, for each of the three
// passes. The fields are those of cudnnConvolutionFwdAlgoPerf_t in cuDNN's documentation.
struct Performance {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math_type, reserved[3];
};

constexpr int kAlgorithm = 1;  // implicit precomputed GEMM, and the deterministic algorithms of the other passes

int answer(Pass pass, const Described *x, const Described *w, const Described *y, int wanted, int *count, Performance *out) {
  if (!x || !w || !y || !count || (wanted > 0 && !out)) return kBadParameter;
  *count = wanted > 0 ? 1 : 0;
  if (wanted > 0) *out = {kAlgorithm, 0, 1.0f, size_t(convolution_workspace(pass, x->dims, w->dims, y->dims)), 1, 0, {0, 0, 0}};
  return kOk;
}

int workspace(Pass pass, const Described *x, const Described *w, const Described *y, size_t *size) {
  if (!x || !w || !y || !size) return kBadParameter;
  *size = size_t(convolution_workspace(pass, x->dims, w->dims, y->dims));
  return kOk;
}

int zero(size_t *size, const char *what) {
  note_inferred(what);
  if (!size) return kBadParameter;
  *size = 0;
  return kOk;
}

}  // namespace
}  // namespace cudnn
}  // namespace standin

using namespace standin;
using namespace standin::cudnn;

// ---- The library ----

STANDIN_API size_t cudnnGetVersion(void) { return hidden_version(); }
STANDIN_API size_t cudnnGetCudartVersion(void) { return size_t(driver_version()); }

STANDIN_API int cudnnGetProperty(int property, int *value) {
  int v = int(hidden_version());
  if (!value || property < 0 || property > 2) return kBadParameter;
  *value = property == 0 ? v / 10000 : property == 1 ? v % 10000 / 100 : v % 100;
  return kOk;
}

STANDIN_API const char *cudnnGetErrorString(int status) {
  switch (status) {
    case kOk: return "CUDNN_STATUS_SUCCESS";
    case kBadParameter: return "CUDNN_STATUS_BAD_PARAM";
    case kUnsupported: return "CUDNN_STATUS_NOT_SUPPORTED";
    case kExecutionFailed: return "CUDNN_STATUS_EXECUTION_FAILED";
  }
  return "CUDNN_STATUS_INTERNAL_ERROR";
}

STANDIN_API void cudnnGetLastErrorString(char *text, size_t size) {
  if (text && size) snprintf(text, size, "the stand-in keeps no message");
}

STANDIN_API int cudnnCreate(Library **handle) {
  CUDNN_ENTER();
  return create(handle);
}
STANDIN_API int cudnnDestroy(Library *handle) {
  CUDNN_ENTER();
  return destroy(handle);
}
STANDIN_API int cudnnSetStream(Library *handle, void *stream) {
  CUDNN_ENTER();
  if (!handle) return kBadParameter;
  if (!is_stream(stream)) {
    violate("cudnnSetStream: %p is not a stream", stream);
    return kBadParameter;
  }
  handle->stream = stream;
  return kOk;
}
STANDIN_API int cudnnGetStream(Library *handle, void **stream) {
  CUDNN_ENTER();
  if (!handle || !stream) return kBadParameter;
  *stream = handle->stream;
  return kOk;
}

// ---- Descriptors ----

#define DESCRIPTOR(Name)                                         \
  STANDIN_API int cudnnCreate##Name##Descriptor(Described **d) { \
    CUDNN_ENTER();                                               \
    return create(d);                                            \
  }                                                              \
  STANDIN_API int cudnnDestroy##Name##Descriptor(Described *d) { \
    CUDNN_ENTER();                                               \
    return destroy(d);                                           \
  }
DESCRIPTOR(Tensor)
DESCRIPTOR(Filter)
DESCRIPTOR(Convolution)
DESCRIPTOR(Activation)
DESCRIPTOR(CTCLoss)
DESCRIPTOR(Dropout)
DESCRIPTOR(SpatialTransformer)

STANDIN_API int cudnnSetTensorNdDescriptor(Described *d, int type, int n, const int *dims, const int *strides) {
  CUDNN_ENTER();
  if (!d || n < 1 || n > 8 || !dims || !strides || !cudnn::type_size(type)) return kBadParameter;
  d->type = type;
  d->dims.assign(dims, dims + n);
  d->strides.assign(strides, strides + n);
  return kOk;
}

STANDIN_API int cudnnGetTensorNdDescriptor(const Described *d, int wanted, int *type, int *n, int *dims, int *strides) {
  CUDNN_ENTER();
  if (!d || !type || !n) return kBadParameter;
  *type = d->type;
  *n = int(d->dims.size());
  for (int i = 0; i < wanted && i < *n; i++) dims[i] = int(d->dims[size_t(i)]), strides[i] = int(d->strides[size_t(i)]);
  return kOk;
}

STANDIN_API int cudnnSetFilterNdDescriptor(Described *d, int type, int format, int n, const int *dims) {
  CUDNN_ENTER();
  if (!d || n < 1 || n > 8 || !dims || !cudnn::type_size(type)) return kBadParameter;
  d->type = type, d->format = format;
  d->dims.assign(dims, dims + n);
  return kOk;
}

STANDIN_API int cudnnGetFilterNdDescriptor(const Described *d, int wanted, int *type, int *format, int *n, int *dims) {
  CUDNN_ENTER();
  if (!d || !type || !format || !n) return kBadParameter;
  *type = d->type, *format = d->format, *n = int(d->dims.size());
  for (int i = 0; i < wanted && i < *n; i++) dims[i] = int(d->dims[size_t(i)]);
  return kOk;
}

STANDIN_API int cudnnSetConvolutionGroupCount(Described *d, int groups) {
  CUDNN_ENTER();
  if (!d || groups < 1) return kBadParameter;
  d->groups = groups;
  return kOk;
}

// Settings that change no figure of the stand-in.
#define ACCEPT(name)              \
  STANDIN_API int name(void *d) { \
    CUDNN_ENTER();                \
    return d ? kOk : kBadParameter; \
  }
ACCEPT(cudnnSetConvolutionNdDescriptor)
ACCEPT(cudnnSetConvolutionMathType)
ACCEPT(cudnnSetActivationDescriptor)
ACCEPT(cudnnSetSpatialTransformerNdDescriptor)
ACCEPT(cudnnSetCTCLossDescriptorEx)
ACCEPT(cudnnSetCTCLossDescriptor_v9)

// ---- Convolutions through the older interface ----

STANDIN_API int cudnnGetConvolutionForwardAlgorithm_v7(void *, const Described *x, const Described *w, const void *, const Described *y,
                                                       int wanted, int *count, Performance *out) {
  CUDNN_ENTER();
  return answer(Pass::kForward, x, w, y, wanted, count, out);
}
STANDIN_API int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *, const Described *w, const Described *y, const void *,
                                                            const Described *x, int wanted, int *count, Performance *out) {
  CUDNN_ENTER();
  return answer(Pass::kData, x, w, y, wanted, count, out);
}
STANDIN_API int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *, const Described *x, const Described *y, const void *,
                                                              const Described *w, int wanted, int *count, Performance *out) {
  CUDNN_ENTER();
  return answer(Pass::kFilter, x, w, y, wanted, count, out);
}
STANDIN_API int cudnnFindConvolutionForwardAlgorithmEx(void *handle, const Described *x, const void *, const Described *w, const void *,
                                                       const void *, const Described *y, void *, int wanted, int *count,
                                                       Performance *out, void *, size_t) {
  CUDNN_ENTER();
  work(handle, __func__);
  return answer(Pass::kForward, x, w, y, wanted, count, out);
}
STANDIN_API int cudnnFindConvolutionBackwardDataAlgorithmEx(void *handle, const Described *w, const void *, const Described *y,
                                                            const void *, const void *, const Described *x, void *, int wanted,
                                                            int *count, Performance *out, void *, size_t) {
  CUDNN_ENTER();
  work(handle, __func__);
  return answer(Pass::kData, x, w, y, wanted, count, out);
}
STANDIN_API int cudnnFindConvolutionBackwardFilterAlgorithmEx(void *handle, const Described *x, const void *, const Described *y,
                                                              const void *, const void *, const Described *w, void *, int wanted,
                                                              int *count, Performance *out, void *, size_t) {
  CUDNN_ENTER();
  work(handle, __func__);
  return answer(Pass::kFilter, x, w, y, wanted, count, out);
}
STANDIN_API int cudnnGetConvolutionForwardWorkspaceSize(void *, const Described *x, const Described *w, const void *,
                                                        const Described *y, int, size_t *size) {
  CUDNN_ENTER();
  return workspace(Pass::kForward, x, w, y, size);
}
STANDIN_API int cudnnGetConvolutionBackwardDataWorkspaceSize(void *, const Described *w, const Described *y, const void *,
                                                             const Described *x, int, size_t *size) {
  CUDNN_ENTER();
  return workspace(Pass::kData, x, w, y, size);
}
STANDIN_API int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *, const Described *x, const Described *y, const void *,
                                                               const Described *w, int, size_t *size) {
  CUDNN_ENTER();
  return workspace(Pass::kFilter, x, w, y, size);
}

#define CONVOLUTION(name)              \
  STANDIN_API int name(void *handle) { \
    CUDNN_ENTER();                     \
    count("cudnn_convolutions");       \
    return work(handle, __func__);     \
  }
CONVOLUTION(cudnnConvolutionForward)
CONVOLUTION(cudnnConvolutionBackwardData)
CONVOLUTION(cudnnConvolutionBackwardFilter)
CONVOLUTION(cudnnConvolutionBiasActivationForward)

// ---- Batch norm, dropout, CTC loss, spatial transformer ----

#define WORK(name)                     \
  STANDIN_API int name(void *handle) { \
    CUDNN_ENTER();                     \
    return work(handle, __func__);     \
  }
WORK(cudnnSpatialTfGridGeneratorForward)
WORK(cudnnSpatialTfGridGeneratorBackward)
WORK(cudnnSpatialTfSamplerForward)
WORK(cudnnSpatialTfSamplerBackward)
WORK(cudnnCTCLoss)
WORK(cudnnCTCLoss_v8)

#define BATCH_NORM(name)               \
  STANDIN_API int name(void *handle) { \
    CUDNN_ENTER();                     \
    count("cudnn_batch_norms");        \
    return work(handle, __func__);     \
  }
BATCH_NORM(cudnnBatchNormalizationForwardInference)
BATCH_NORM(cudnnBatchNormalizationForwardTrainingEx)
BATCH_NORM(cudnnBatchNormalizationBackwardEx)

// (handle, mode, ops, x, z, y, scale, activation, size)
STANDIN_API int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *, int, int, const void *, const void *, const void *,
                                                                         const void *, const void *, size_t *size) {
  CUDNN_ENTER();
  return zero(size, "cuDNN batch norm workspace");
}
// (handle, mode, ops, x, y, dy, dz, dx, scale, activation, size)
STANDIN_API int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *, int, int, const void *, const void *, const void *,
                                                                  const void *, const void *, const void *, const void *,
                                                                  size_t *size) {
  CUDNN_ENTER();
  return zero(size, "cuDNN batch norm workspace");
}
// (handle, mode, ops, activation, x, size)
STANDIN_API int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *, int, int, const void *, const void *, size_t *size) {
  CUDNN_ENTER();
  return zero(size, "cuDNN batch norm reserve space");
}

STANDIN_API int cudnnDropoutGetStatesSize(void *, size_t *size) {
  CUDNN_ENTER();
  if (!size) return kBadParameter;
  note_inferred("cuDNN dropout state");
  const Card &c = card(device());
  *size = size_t(c.processors) * size_t(c.threads_per_processor) * 16;
  return kOk;
}
STANDIN_API int cudnnSetDropoutDescriptor(Described *d, void *handle, float, void *states, size_t size, unsigned long long) {
  CUDNN_ENTER();
  if (!d) return kBadParameter;
  if (!states) return kOk;  // no dropout
  if (!is_device_memory(states, size)) {
    violate("cudnnSetDropoutDescriptor: its state is not %zu bytes of device memory", size);
    return kBadParameter;
  }
  launch(stream_of(handle), __func__);  // fills the state, which nobody reads
  return kOk;
}
ACCEPT(cudnnRestoreDropoutDescriptor)

// Computes the size from the probabilities [T, B, classes] and the length of the longest label.
static int ctc_workspace(const Described *probabilities, const int *lengths, size_t *size) {
  if (!probabilities || probabilities->dims.size() < 3 || !size) return kBadParameter;
  note_inferred("cuDNN CTC loss workspace");
  int64_t t = probabilities->dims[0], b = probabilities->dims[1], longest = lengths ? 0 : t;
  for (int64_t i = 0; lengths && i < b; i++)
    if (lengths[i] > longest) longest = lengths[i];
  *size = size_t(8 * t * b * (2 * longest + 1));
  return kOk;
}
// (handle, probabilities, gradients, labels, label lengths, input lengths, algorithm, descriptor, size)
STANDIN_API int cudnnGetCTCLossWorkspaceSize(void *, const Described *p, const void *, const int *, const int *lengths, const int *,
                                             int, const void *, size_t *size) {
  CUDNN_ENTER();
  return ctc_workspace(p, lengths, size);
}
// (handle, algorithm, descriptor, probabilities, gradients, size)
STANDIN_API int cudnnGetCTCLossWorkspaceSize_v8(void *, int, const void *, const Described *p, const void *, size_t *size) {
  CUDNN_ENTER();
  return ctc_workspace(p, nullptr, size);
}
