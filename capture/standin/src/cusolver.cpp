// cuSOLVER and cuSPARSE: handles only.
//
// PyTorch makes a handle before it knows whether a library can do what it wants, so handles have to work. The
// generated stubs answer everything else with the library's own code for "not supported", and the report
// names them.
#include "standin.h"

namespace standin {
namespace {

// cusolverStatus_t and cusparseStatus_t agree on these two.
enum Status : int { kOk = 0, kInvalid = 3 };

struct Library {
  void *stream = nullptr;
};

int create(Library **out, const char *function, const void *caller) {
  if (int e = enter(function, caller)) return e;
  if (!out) return kInvalid;
  *out = new Library;
  return kOk;
}

int destroy(Library *handle, const char *function, const void *caller) {
  if (int e = enter(function, caller)) return e;
  delete handle;
  return kOk;
}

int set_stream(Library *handle, void *stream, const char *function, const void *caller) {
  if (int e = enter(function, caller)) return e;
  if (!handle || !is_stream(stream)) return kInvalid;
  handle->stream = stream;
  return kOk;
}

}  // namespace
}  // namespace standin

using namespace standin;

#define CALLER __func__, __builtin_return_address(0)

STANDIN_API int cusolverDnCreate(Library **handle) { return create(handle, CALLER); }
STANDIN_API int cusolverDnDestroy(Library *handle) { return destroy(handle, CALLER); }
STANDIN_API int cusolverDnSetStream(Library *handle, void *stream) { return set_stream(handle, stream, CALLER); }

STANDIN_API int cusparseCreate(Library **handle) { return create(handle, CALLER); }
STANDIN_API int cusparseDestroy(Library *handle) { return destroy(handle, CALLER); }
STANDIN_API int cusparseSetStream(Library *handle, void *stream) { return set_stream(handle, stream, CALLER); }
STANDIN_API int cusparseSetPointerMode(Library *handle, int) {
  if (int e = enter(CALLER)) return e;
  return handle ? kOk : kInvalid;
}
STANDIN_API const char *cusparseGetErrorString(int status) {
  return status == kOk ? "success" : "the stand-in GPU has no cuSPARSE";
}
