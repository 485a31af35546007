// cuBLAS and cuBLASLt: handles and matrix descriptions work; products are queued on a stream and do nothing.
//
// The numbers come from the Python side, which computes whole ATen ops. What matters here is memory, and
// PyTorch asks for that: before any call it gives each handle and stream a workspace of its own choice, so
// that cuBLAS never allocates.
//
//   figure                         value                               known from
//   workspace of a cuBLAS handle   32 MiB at capability 9.0 and up     PyTorch's sources (CublasHandlePool.cpp); cuBLAS's documentation
//                                                                      of cublasSetWorkspace recommends 32 MiB for Hopper
//                                  8,519,680 bytes on other cards      PyTorch's sources: ":4096:2:16:8" (2×4 MiB + 8×16 KiB);
//                                                                      public memory snapshots of A100, RTX and B200 class cards
//                                  CUBLAS_WORKSPACE_CONFIG             PyTorch reads it itself, and so does cuBLAS
//   workspace of cuBLASLt          PyTorch's choice: the above, or     PyTorch's sources (CUDABlas.cpp): 32 MiB at 9.0 and up,
//                                  CUBLASLT_WORKSPACE_SIZE             4 MiB on 8.x with 24 GiB or more, else 1 MiB, in older releases
//   what an algorithm needs of it  0 here                              not public. No figure depends on it: PyTorch has allocated before
//                                                                      it asks, and the answer only has to fit
//
// So a workspace is right if the card's capability and PyTorch's release are. The 32 MiB have not been
// compared with a recording of a Hopper card.
//
// Sources: NVIDIA's cuBLAS documentation (functions, statuses), PyTorch's sources (what it calls and allocates).
#include <dlfcn.h>

#include <cstring>
#include <mutex>

#include "standin.h"

namespace standin {
namespace {

// cublasStatus_t.
enum Status : int { kOk = 0, kInvalid = 7, kFailed = 13, kUnsupported = 15 };

struct Library {
  void *stream = nullptr;
  int pointer_mode = 0;
  int math_mode = 0;
};

int enter_call(const char *function, const void *caller) {
  int e = enter(function, caller);
  return e > 16 ? int(kFailed) : e;  // an injected cublasStatus_t is returned unchanged
}

#define CUBLAS_ENTER()                                                       \
  do {                                                                       \
    if (int r_ = enter_call(__func__, __builtin_return_address(0))) return r_; \
  } while (0)

// check_workspace reports a workspace that breaks the rules in the documentation of cublasSetWorkspace.
int check_workspace(const char *function, const void *p, size_t size) {
  if (!size) return kOk;
  if (reinterpret_cast<uintptr_t>(p) % 256) {
    violate("%s: the workspace %p is not aligned to 256 bytes", function, p);
    return kInvalid;
  }
  if (!is_device_memory(p, size)) {
    violate("%s: the workspace is not %zu bytes of device memory", function, size);
    return kInvalid;
  }
  return kOk;
}

int work(const Library *handle, const char *function) {
  if (!handle) return kInvalid;
  count("cublas_calls");
  return launch_computed(handle->stream, function) ? int(kUnsupported) : int(kOk);
}

// The version of the real cuBLASLt that the stand-in replaces.
size_t hidden_version() {
  static size_t version = [] {
    size_t v = 0;
    for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
      void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
      if (!library) continue;
      if (auto f = reinterpret_cast<size_t (*)()>(dlsym(library, "cublasLtGetVersion"))) v = f();
      dlclose(library);
    }
    return v ? v : size_t(driver_version()) * 10;
  }();
  return version;
}

// What cublasLtMatmulAlgoGetHeuristic fills, with the fields of cublasLtMatmulHeuristicResult_t in cuBLAS's documentation.
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

}  // namespace
}  // namespace standin

using namespace standin;

// ---- cuBLAS ----

STANDIN_API int cublasCreate_v2(Library **handle) {
  CUBLAS_ENTER();
  if (!handle) return kInvalid;
  *handle = new Library;
  return kOk;
}

STANDIN_API int cublasDestroy_v2(Library *handle) {
  CUBLAS_ENTER();
  delete handle;
  return kOk;
}

STANDIN_API int cublasSetStream_v2(Library *handle, void *stream) {
  CUBLAS_ENTER();
  if (!handle) return kInvalid;
  if (!is_stream(stream)) {
    violate("cublasSetStream: %p is not a stream", stream);
    return kInvalid;
  }
  handle->stream = stream;
  return kOk;
}

STANDIN_API int cublasSetWorkspace_v2(Library *handle, void *p, size_t size) {
  CUBLAS_ENTER();
  return handle ? check_workspace("cublasSetWorkspace", p, size) : int(kInvalid);
}

STANDIN_API int cublasSetPointerMode_v2(Library *handle, int mode) {
  CUBLAS_ENTER();
  if (!handle) return kInvalid;
  handle->pointer_mode = mode;
  return kOk;
}

STANDIN_API int cublasGetPointerMode_v2(const Library *handle, int *mode) {
  CUBLAS_ENTER();
  if (!handle || !mode) return kInvalid;
  *mode = handle->pointer_mode;
  return kOk;
}

STANDIN_API int cublasSetMathMode(Library *handle, int mode) {
  CUBLAS_ENTER();
  if (!handle) return kInvalid;
  handle->math_mode = mode;
  return kOk;
}

STANDIN_API int cublasGetMathMode(const Library *handle, int *mode) {
  CUBLAS_ENTER();
  if (!handle || !mode) return kInvalid;
  *mode = handle->math_mode;
  return kOk;
}

STANDIN_API int cublasSetSmCountTarget(Library *handle, int) {
  CUBLAS_ENTER();
  return handle ? int(kOk) : int(kInvalid);
}

// All functions that compute, of those that PyTorch's CUDA libraries and its linear algebra call. The handle
// is always the first argument, and nothing else matters here.
#define W(name)                                          \
  STANDIN_API int cublas##name(const Library *handle) { \
    CUBLAS_ENTER();                                      \
    return work(handle, __func__);                       \
  }
W(Caxpy_v2) W(Ccopy_v2) W(Cdotc_v2) W(Cdotu_v2) W(CgelsBatched) W(CgemmBatched) W(CgemmStridedBatched)
W(Cgemm_v2) W(Cgemv_v2) W(CgeqrfBatched) W(Cgerc_v2) W(Cgeru_v2) W(CgetrfBatched) W(CgetrsBatched)
W(Chemm_v2) W(Chemv_v2) W(Cher2_v2) W(Cher2k_v2) W(Cher_v2) W(Cherk_v2) W(Crot_v2) W(Crotg_v2) W(Cscal_v2)
W(Csrot_v2) W(Csscal_v2) W(Cswap_v2) W(Csymm_v2) W(Csymv_v2) W(Csyr2_v2) W(Csyr2k_v2) W(Csyr_v2) W(Csyrk_v2)
W(Ctrmm_v2) W(Ctrmv_v2) W(CtrsmBatched) W(Ctrsm_v2) W(Ctrsv_v2) W(Dasum_v2) W(Daxpy_v2) W(Dcopy_v2)
W(Ddot_v2) W(DgelsBatched) W(DgemmBatched) W(DgemmStridedBatched) W(Dgemm_v2) W(Dgemv_v2) W(DgeqrfBatched)
W(Dger_v2) W(DgetrfBatched) W(DgetrsBatched) W(Dnrm2_v2) W(DotEx) W(Drot_v2) W(Drotg_v2) W(Drotm_v2)
W(Drotmg_v2) W(Dscal_v2) W(Dswap_v2) W(Dsymm_v2) W(Dsymv_v2) W(Dsyr2_v2) W(Dsyr2k_v2) W(Dsyr_v2) W(Dsyrk_v2)
W(Dtrmm_v2) W(Dtrmv_v2) W(DtrsmBatched) W(Dtrsm_v2) W(Dtrsv_v2) W(Dzasum_v2) W(Dznrm2_v2) W(GemmEx)
W(GemmStridedBatchedEx) W(Icamax_v2) W(Icamin_v2) W(Idamax_v2) W(Idamin_v2) W(Isamax_v2) W(Isamin_v2)
W(Izamax_v2) W(Izamin_v2) W(Sasum_v2) W(Saxpy_v2) W(Scasum_v2) W(Scnrm2_v2) W(Scopy_v2) W(Sdot_v2)
W(SgelsBatched) W(SgemmBatched) W(SgemmEx) W(SgemmStridedBatched) W(Sgemm_v2) W(Sgemv_v2) W(SgeqrfBatched)
W(Sger_v2) W(SgetrfBatched) W(SgetrsBatched) W(Snrm2_v2) W(Srot_v2) W(Srotg_v2) W(Srotm_v2) W(Srotmg_v2)
W(Sscal_v2) W(Sswap_v2) W(Ssymm_v2) W(Ssymv_v2) W(Ssyr2_v2) W(Ssyr2k_v2) W(Ssyr_v2) W(Ssyrk_v2) W(Strmm_v2)
W(Strmv_v2) W(StrsmBatched) W(Strsm_v2) W(Strsv_v2) W(Zaxpy_v2) W(Zcopy_v2) W(Zdotc_v2) W(Zdotu_v2)
W(Zdrot_v2) W(Zdscal_v2) W(ZgelsBatched) W(ZgemmBatched) W(ZgemmStridedBatched) W(Zgemm_v2) W(Zgemv_v2)
W(ZgeqrfBatched) W(Zgerc_v2) W(Zgeru_v2) W(ZgetrfBatched) W(ZgetrsBatched) W(Zhemm_v2) W(Zhemv_v2)
W(Zher2_v2) W(Zher2k_v2) W(Zher_v2) W(Zherk_v2) W(Zrot_v2) W(Zrotg_v2) W(Zscal_v2) W(Zswap_v2) W(Zsymm_v2)
W(Zsymv_v2) W(Zsyr2_v2) W(Zsyr2k_v2) W(Zsyr_v2) W(Zsyrk_v2) W(Ztrmm_v2) W(Ztrmv_v2) W(ZtrsmBatched)
W(Ztrsm_v2) W(Ztrsv_v2)
#undef W

// ---- cuBLASLt ----

STANDIN_API size_t cublasLtGetVersion(void) { return hidden_version(); }

STANDIN_API int cublasLtCreate(Library **handle) { return cublasCreate_v2(handle); }
STANDIN_API int cublasLtDestroy(Library *handle) { return cublasDestroy_v2(handle); }

// The stand-in does not use the attributes of matrices and products, so their descriptions are empty.
#define DESCRIPTION(Name)                              \
  STANDIN_API int cublasLt##Name##Create(void **out) { \
    CUBLAS_ENTER();                                    \
    if (!out) return kInvalid;                         \
    *out = new char;                                   \
    return kOk;                                        \
  }                                                    \
  STANDIN_API int cublasLt##Name##Destroy(void *p) {   \
    CUBLAS_ENTER();                                    \
    delete static_cast<char *>(p);                     \
    return kOk;                                        \
  }                                                    \
  STANDIN_API int cublasLt##Name##SetAttribute(void *p) { \
    CUBLAS_ENTER();                                    \
    return p ? int(kOk) : int(kInvalid);               \
  }
DESCRIPTION(MatmulDesc)
DESCRIPTION(MatmulPreference)
DESCRIPTION(MatrixLayout)
#undef DESCRIPTION

// (handle, product, a, b, c, d, preference, wanted, results, count)
STANDIN_API int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *, void *, void *, int wanted, Heuristic *results,
                                               int *found) {
  CUBLAS_ENTER();
  if (wanted < 1 || !results || !found) return kInvalid;
  memset(results, 0, sizeof *results);
  results->waves = 1;
  *found = 1;
  return kOk;
}

// (handle, product, alpha, a, its layout, b, its layout, beta, c, its layout, d, its layout, algorithm, workspace, size, stream)
STANDIN_API int cublasLtMatmul(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *,
                               void *, void *, void *, const void *, void *workspace, size_t size, void *stream) {
  CUBLAS_ENTER();
  if (int e = check_workspace("cublasLtMatmul", workspace, size)) return e;
  count("cublas_calls");
  return launch_computed(stream, __func__) ? int(kUnsupported) : int(kOk);
}
