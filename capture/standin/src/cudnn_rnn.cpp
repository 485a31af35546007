// cuDNN's recurrent networks: where the weights of each gate are, and how much memory a pass asks for.
//
// PyTorch keeps the weights of an RNN in one buffer and asks cuDNN where in it each gate's matrix and bias
// are. It requires that the gates of a matrix follow one another. The order here: for each layer and
// direction the input matrices of all gates, then their recurrent matrices, then a projection; after all
// matrices the biases in the same order. cuDNN's documentation does not fix the order; only sums of sizes can
// be compared with a GPU, and those are the parameters'.
//
// Work and reserve space are not documented, and the report calls them inferred. The rule: for each step,
// layer and direction, the reserve keeps the gates and the state (and a cell for LSTM), which the backward
// pass needs; the work space holds the gates of one layer for all steps. With T steps, B sequences, H hidden
// and G gates, that is T·B·H·(G+1 or G+2) and T·B·H·G elements.
#include "cudnn.h"

// Defined in cudnn.cpp.
extern "C" int cudnnSetTensorNdDescriptor(void *descriptor, int type, int n, const int *dims, const int *strides);

namespace standin {
namespace cudnn {
namespace {

struct Network {
  int mode = 0;  // relu, tanh, LSTM, GRU, as in cudnnRNNMode_t
  bool bias = true, bidirectional = false;
  int type = 0;
  int64_t input = 0, hidden = 0, projection = 0, layers = 0;

  int64_t gates() const { return mode == 2 ? 4 : mode == 3 ? 3 : 1; }
  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t output() const { return projection && projection != hidden ? projection : hidden; }
  bool projects() const { return output() != hidden; }
  // The columns of a pseudo-layer's input matrices.
  int64_t columns(int64_t pseudo) const { return pseudo < directions() ? input : output() * directions(); }
  int64_t matrix_elements(int64_t pseudo) const {
    return gates() * hidden * (columns(pseudo) + output()) + (projects() ? hidden * output() : 0);
  }
  int64_t pseudo_layers() const { return layers * directions(); }
};

struct Sequences {
  int type = 0;
  int64_t steps = 0, batch = 0, width = 0;
};

}  // namespace
}  // namespace cudnn
}  // namespace standin

using namespace standin;
using namespace standin::cudnn;

STANDIN_API int cudnnCreateRNNDescriptor(Network **d) {
  CUDNN_ENTER();
  *d = new Network;
  return kOk;
}
STANDIN_API int cudnnDestroyRNNDescriptor(Network *d) {
  CUDNN_ENTER();
  delete d;
  return kOk;
}
STANDIN_API int cudnnCreateRNNDataDescriptor(Sequences **d) {
  CUDNN_ENTER();
  *d = new Sequences;
  return kOk;
}
STANDIN_API int cudnnDestroyRNNDataDescriptor(Sequences *d) {
  CUDNN_ENTER();
  delete d;
  return kOk;
}

// (descriptor, algorithm, cell, bias, direction, input mode, data type, precision, math type, sizes..., dropout, flags)
STANDIN_API int cudnnSetRNNDescriptor_v8(Network *d, int, int mode, int bias, int direction, int, int type, int, int, int input,
                                         int hidden, int projection, int layers, void *, unsigned) {
  CUDNN_ENTER();
  if (!d || mode < 0 || mode > 3 || input < 1 || hidden < 1 || layers < 1 || !cudnn::type_size(type)) return kBadParameter;
  d->mode = mode, d->bias = bias != 0, d->bidirectional = direction != 0, d->type = type;
  d->input = input, d->hidden = hidden, d->projection = projection, d->layers = layers;
  return kOk;
}

STANDIN_API int cudnnSetRNNDataDescriptor(Sequences *d, int type, int, int steps, int batch, int width, const int *, void *) {
  CUDNN_ENTER();
  if (!d || steps < 1 || batch < 1 || width < 1) return kBadParameter;
  d->type = type, d->steps = steps, d->batch = batch, d->width = width;
  return kOk;
}

static int64_t matrices(const Network &n, int64_t before) {
  int64_t sum = 0;
  for (int64_t p = 0; p < before; p++) sum += n.matrix_elements(p);
  return sum;
}

STANDIN_API int cudnnGetRNNWeightSpaceSize(void *, const Network *n, size_t *size) {
  CUDNN_ENTER();
  if (!n || !size) return kBadParameter;
  int64_t biases = n->bias ? n->pseudo_layers() * 2 * n->gates() * n->hidden : 0;
  *size = size_t(matrices(*n, n->pseudo_layers()) + biases) * cudnn::type_size(n->type);
  return kOk;
}

// The linear layers are the gates: first the input matrices, then the recurrent ones, last a projection.
STANDIN_API int cudnnGetRNNWeightParams(void *, const Network *n, int pseudo, size_t, void *weights, int linear, void *matrix_type,
                                        void **matrix, void *bias_type, void **bias) {
  CUDNN_ENTER();
  if (!n || pseudo < 0 || pseudo >= n->pseudo_layers() || linear < 0) return kBadParameter;
  void *unwanted;
  if (!matrix) matrix = &unwanted;
  if (!bias) bias = &unwanted;
  int64_t g = n->gates(), h = n->hidden, columns = n->columns(pseudo), rows = h, at = matrices(*n, pseudo);
  size_t element = cudnn::type_size(n->type);
  if (linear < g) {
    at += linear * h * columns;
  } else if (linear < 2 * g) {
    at += g * h * columns + (linear - g) * h * n->output();
    columns = n->output();
  } else if (linear == 2 * g && n->projects()) {
    at += g * h * (columns + n->output());
    rows = n->output(), columns = h;
  } else if (linear == 2 * g) {  // asks for a projection, but the network has none
    *matrix = *bias = nullptr;
    return kOk;
  } else {
    return kBadParameter;
  }
  int dims[3] = {1, int(rows), int(columns)}, strides[3] = {int(rows * columns), int(columns), 1};
  *matrix = static_cast<char *>(weights) + size_t(at) * element;
  if (matrix_type) cudnnSetTensorNdDescriptor(matrix_type, n->type, 3, dims, strides);
  *bias = nullptr;
  if (!n->bias || linear >= 2 * g) return kOk;
  int64_t bias_at = matrices(*n, n->pseudo_layers()) + (int64_t(pseudo) * 2 * g + linear) * h;
  int bias_dims[3] = {1, int(h), 1}, bias_strides[3] = {int(h), 1, 1};
  *bias = static_cast<char *>(weights) + size_t(bias_at) * element;
  if (bias_type) cudnnSetTensorNdDescriptor(bias_type, n->type, 3, bias_dims, bias_strides);
  return kOk;
}

STANDIN_API int cudnnGetRNNTempSpaceSizes(void *, const Network *n, int training, const Sequences *x, size_t *work, size_t *reserve) {
  CUDNN_ENTER();
  if (!n || !x) return kBadParameter;
  note_inferred("cuDNN RNN work and reserve space");
  int64_t state = x->steps * x->batch * n->hidden * n->directions(), g = n->gates();
  size_t element = cudnn::type_size(n->type);
  if (work) *work = size_t(state * g) * element;
  if (reserve) *reserve = training ? size_t(state * n->layers * (g + (n->mode == 2 ? 2 : 1))) * element : 0;
  return kOk;
}

#define NETWORK(name)                  \
  STANDIN_API int name(void *handle) { \
    CUDNN_ENTER();                     \
    count("cudnn_rnns");               \
    return work(handle, __func__);     \
  }
NETWORK(cudnnRNNForward)
NETWORK(cudnnRNNBackwardData_v8)
NETWORK(cudnnRNNBackwardWeights_v8)
