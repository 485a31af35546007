// Entry points: functions of the driver that a program asks for by name (cudaGetDriverEntryPoint,
// cuGetProcAddress).
//
// The driver's own answer depends on the CUDA version that the caller names, since some functions have
// several forms. The stand-in has one form of each, found under the plain name.
#include <dlfcn.h>

#include <cstring>

#include "core.h"

namespace standin {

namespace {

void *self() {
  static void *handle = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void *>(&read_settings), &info) && info.dli_fname
               ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
               : nullptr;
  }();
  return handle;
}

// A symbol of this library or its stubs; not one of a real driver further down the search order.
void *own(const std::string &name) {
  void *f = self() ? dlsym(self(), name.c_str()) : nullptr;
  Dl_info ours, theirs, stubs;
  if (!f || !dladdr(f, &theirs) || !dladdr(reinterpret_cast<void *>(&read_settings), &ours) ||
      !dladdr(reinterpret_cast<void *>(&standin_cuda_version), &stubs)) return nullptr;
  return theirs.dli_fbase == ours.dli_fbase || theirs.dli_fbase == stubs.dli_fbase ? f : nullptr;
}

void *find(const char *name) {
  std::string n = name;
  if (void *f = own(n + "_v2")) return f;
  return own(n);
}

Result entry(const char *name, void **out, int *status) {
  if (!name || !out) return kInvalidValue;
  *out = find(name);
  if (status) *status = *out ? 0 : 1;  // 0 found, 1 not found
  if (!*out) note_missing(name);
  return kSuccess;
}

}  // namespace

}  // namespace standin

using namespace standin;

STANDIN_API int cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned, unsigned long long,
                                                 int *status) {
  STANDIN_QUERY();
  return keep_error(entry(name, f, status));
}
STANDIN_API int cudaGetDriverEntryPoint(const char *name, void **f, unsigned long long, int *status) {
  STANDIN_QUERY();
  return keep_error(entry(name, f, status));
}
STANDIN_API int cuGetProcAddress_v2(const char *name, void **f, int, unsigned long long, int *status) {
  STANDIN_QUERY();
  Result r = entry(name, f, status);
  return r ? r : *f ? kSuccess : kNotFound;
}
STANDIN_API int cuGetProcAddress(const char *name, void **f, int, unsigned long long) {
  STANDIN_QUERY();
  Result r = entry(name, f, nullptr);
  return r ? r : *f ? kSuccess : kNotFound;
}
