// Mutexes of PyTorch's allocators, which are held while a thread waits for a stream's work.
//
// The problem. Work is Python, and when the caching allocator runs out of memory, it waits for work while it
// holds its mutex. If another thread holds Python's interpreter lock and frees memory, it waits for that
// mutex, and the work waits for the interpreter lock: a deadlock. On a device nothing waits for Python.
//
// The solution. A thread that would wait for a mutex in PyTorch's CUDA libraries first releases the
// interpreter lock. This library is preloaded, so their calls of pthread_mutex_lock come here. Other
// libraries' mutexes are left alone: Python itself locks some in order to release the interpreter lock.
//
// Rejected: doing the work later, as for an event that is only queried. What the allocator waited for then
// counts as free memory, and new work in that memory would overtake the old.
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
