// Mutexes of PyTorch's allocators, which are locked while a thread waits for work of a stream.
//
// The problem. Work is Python, and the caching allocator waits for work while it holds its mutex, when it runs
// out of memory. Another thread that holds Python's interpreter lock and frees memory meanwhile waits for that
// mutex, and the work for the interpreter lock: for ever. On a device nobody waits for Python.
//
// The way chosen. A thread that would wait for a mutex in PyTorch's CUDA libraries lets go of the interpreter
// lock first. The library is preloaded, so their calls of pthread_mutex_lock come here. Not for the mutexes of
// others: Python itself locks some, to let go of the interpreter lock.
//
// Rejected: to do the work later, as for an event that is only asked for. What the allocator waited for is free
// memory afterwards, and whoever takes it would overtake the work.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include <atomic>
#include <cstring>

#include "standin.h"

namespace {

using Function = int (*)(pthread_mutex_t *);

Function next(std::atomic<Function> &kept, const char *name) {
  Function f = kept;
  if (!f) kept = f = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  return f;
}

std::atomic<Function> lock_it, try_it;

bool in_torch(const void *caller) {
  Dl_info info;
  return dladdr(caller, &info) && info.dli_fname &&
         (strstr(info.dli_fname, "libc10_cuda") || strstr(info.dli_fname, "libtorch_cuda"));
}

}  // namespace

STANDIN_API int pthread_mutex_lock(pthread_mutex_t *m) noexcept {
  int r = next(try_it, "pthread_mutex_trylock")(m);
  if (r != EBUSY) return r;
  Function lock = next(lock_it, "pthread_mutex_lock");
  if (!standin::interpreter_locked() || !in_torch(__builtin_return_address(0))) return lock(m);
  standin::WithoutInterpreterLock unlocked;
  return lock(m);
}
