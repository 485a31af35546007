// Shared by the files of the cuDNN stand-in. cudnn.cpp says how the parts fit together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "standin.h"

namespace standin {
namespace cudnn {

// cudnnStatus_t of cuDNN 9.
enum Status : int {
  kOk = 0,
  kBadParameter = 2000,
  kUnsupported = 3000,
  kExecutionFailed = 5000,
};

struct Library;                     // what cudnnCreate makes
void *stream_of(const void *handle);

// enter_call counts a call. If it returns anything but kOk, the call must return that.
int enter_call(const char *function, const void *caller);

// work launches a kernel that writes numbers.
int work(const void *handle, const char *what);

#define CUDNN_ENTER()                                                                        \
  do {                                                                                       \
    if (int r_ = ::standin::cudnn::enter_call(__func__, __builtin_return_address(0))) return r_; \
  } while (0)

// The size of an element of a cudnnDataType_t in bytes, 0 for a type that the stand-in does not know.
size_t type_size(int type);

using Dims = std::vector<int64_t>;
int64_t product(const Dims &d, size_t from = 0);

enum class Pass { kForward, kData, kFilter };
// The workspace that the stand-in asks for, in bytes: see the table in cudnn.cpp. x, w and y are input, filter and output.
uint64_t convolution_workspace(Pass pass, const Dims &x, const Dims &w, const Dims &y);

}  // namespace cudnn
}  // namespace standin
