// Contexts: what a program has on a device, and which context each thread works in.
//
// The runtime makes one primary context for each device that a process uses, on first use; the driver API
// makes others. A context takes STANDIN_CONTEXT bytes of its device. Destroying one destroys everything that
// was made in it; whatever was still there is reported as leaked.
#include <algorithm>

#include "core.h"

namespace standin {

namespace {

struct Contexts {
  std::vector<Context *> all;  // never deleted before a reset, so that handles can be compared
  Context *primary[kMaxDevices] = {};
  int retained[kMaxDevices] = {};
  unsigned flags[kMaxDevices] = {};
  uint64_t epoch = 0;  // counts resets: what threads remember from before one is void
};

Contexts &contexts() {
  static auto *c = new Contexts;
  return *c;
}

struct Thread {
  uint64_t epoch = 0;
  int device = 0;
  Context *context = nullptr;
  std::vector<Context *> below;  // the stack of cuCtxPushCurrent
};

thread_local Thread thread_state;

Thread &here() {
  if (thread_state.epoch != contexts().epoch) {
    thread_state = Thread();
    thread_state.epoch = contexts().epoch;
  }
  return thread_state;
}

Context *make(int device, bool primary) {
  uint64_t cost = settings().context;
  if (cost && !take(device, cost)) return nullptr;
  auto *c = new Context;
  c->device = device;
  c->primary = primary;
  c->cost = cost;
  c->owner = owner_of_call();
  contexts().all.push_back(c);
  return c;
}

Context *known(void *handle) {
  auto &all = contexts().all;
  auto found = std::find(all.begin(), all.end(), handle);
  return found != all.end() && (*found)->alive ? *found : nullptr;
}

// Destroys a context with all that is in it, and notes what was left.
void destroy(Context *c, bool note, Lock &lock) {
  if (note) {
    Leaks leaks;
    memory_leaks(c, &leaks, lock);
    pool_leaks(c, &leaks, lock);
    virtual_leaks(c, &leaks, lock);
    stream_leaks(c, &leaks, lock);
    event_leaks(c, &leaks, lock);
    module_leaks(c, &leaks, lock);
    note_context_leaks(leaks);
  }
  streams_drop(c, lock);
  events_drop(c, lock);
  modules_drop(c, lock);
  pools_drop(c, lock);
  virtual_drop(c, lock);
  memory_drop(c, lock);
  give(c->device, c->cost);
  c->alive = false;
  recover();
}

}  // namespace

Context *current(Lock &) {
  Context *c = here().context;
  return c && c->alive ? c : nullptr;
}

Context *primary_context(int device, Lock &) {
  Context *&p = contexts().primary[device];
  if (!p || !p->alive) p = make(device, true);
  return p;
}

Context *current_or_primary(Lock &lock) {
  if (Context *c = current(lock)) return c;
  Thread &t = here();
  if (t.device >= devices()) return nullptr;
  return t.context = primary_context(t.device, lock);
}

int device() {
  Lock lock(core());
  Context *c = current(lock);
  return c ? c->device : here().device;
}

Result set_device(int device) {
  if (device < 0 || device >= devices()) return kInvalidDevice;
  Lock lock(core());
  Thread &t = here();
  t.device = device;
  t.context = primary_context(device, lock);
  return t.context ? kSuccess : kOutOfMemory;
}

int contexts_left(Lock &) {
  int n = 0;
  for (Context *c : contexts().all) n += c->alive && !c->primary;
  return n;
}

void contexts_reset(Lock &) {
  auto &c = contexts();
  for (Context *x : c.all) x->alive = false;
  c.all.clear();
  std::fill(c.primary, c.primary + kMaxDevices, nullptr);
  std::fill(c.retained, c.retained + kMaxDevices, 0);
  c.epoch++;
}

}  // namespace standin

using namespace standin;

STANDIN_API int cudaSetDevice(int d) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(set_device(d));
}
STANDIN_API int cudaInitDevice(int d, unsigned, unsigned) {
  STANDIN_ENTER_RUNTIME();
  if (d < 0 || d >= devices()) return keep_error(kInvalidDevice);
  Lock lock(core());
  return keep_error(primary_context(d, lock) ? kSuccess : kOutOfMemory);
}
STANDIN_API int cudaGetDevice(int *d) {
  STANDIN_QUERY();
  *d = device();
  return kSuccess;
}
STANDIN_API int cudaSetDeviceFlags(unsigned) {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}
STANDIN_API int cudaGetDeviceFlags(unsigned *f) {
  STANDIN_ENTER_RUNTIME();
  *f = 8;
  return kSuccess;
}
STANDIN_API int cudaDeviceReset() {
  if (Result r = query(__func__)) return keep_error(r);  // a lost device can be reset
  Lock lock(core());
  if (Context *c = current(lock)) {
    wait_for_context(c, lock);
    destroy(c, true, lock);
  }
  return kSuccess;
}

STANDIN_API int cuCtxCreate_v2(void **out, unsigned, int d) {
  STANDIN_ENTER();
  if (!out) return kInvalidValue;
  if (d < 0 || d >= devices()) return kInvalidDevice;
  if (settings().compute_mode == 3 || settings().compute_mode == 2) return kDeviceUnavailable;
  Lock lock(core());
  Context *c = make(d, false);
  if (!c) return kOutOfMemory;
  Thread &t = here();
  if (t.context) t.below.push_back(t.context);
  t.context = c;
  *out = c;
  return kSuccess;
}

// Notes the context's leaks and destroys it, even if the device is lost.
STANDIN_API int cuCtxDestroy_v2(void *handle) {
  Result answer = enter(__func__, __builtin_return_address(0));
  Lock lock(core());
  Context *c = known(handle);
  if (!c) {
    violate("a context that does not exist, or was destroyed before, is destroyed");
    return kInvalidContext;
  }
  if (!answer) wait_for_context(c, lock);
  destroy(c, true, lock);
  Thread &t = here();
  if (t.context == c) {
    t.context = nullptr;
    while (!t.below.empty() && !t.context) {
      if (t.below.back()->alive) t.context = t.below.back();
      t.below.pop_back();
    }
  }
  report_now(lock);
  return answer;
}

STANDIN_API int cuCtxGetCurrent(void **out) {
  STANDIN_QUERY();
  Lock lock(core());
  *out = current(lock);
  return kSuccess;
}
STANDIN_API int cuCtxSetCurrent(void *handle) {
  STANDIN_QUERY();
  Lock lock(core());
  Context *c = known(handle);
  if (handle && !c) {
    violate("a context that does not exist, or was destroyed, is made current");
    return kInvalidContext;
  }
  here().context = c;
  if (c) here().device = c->device;
  return kSuccess;
}
STANDIN_API int cuCtxPushCurrent_v2(void *handle) {
  STANDIN_QUERY();
  Lock lock(core());
  Context *c = known(handle);
  if (!c) return kInvalidContext;
  Thread &t = here();
  if (t.context) t.below.push_back(t.context);
  t.context = c;
  t.device = c->device;
  return kSuccess;
}
STANDIN_API int cuCtxPopCurrent_v2(void **out) {
  STANDIN_QUERY();
  Lock lock(core());
  Thread &t = here();
  if (!t.context) return kInvalidContext;
  if (out) *out = t.context;
  t.context = nullptr;
  if (!t.below.empty()) {
    t.context = t.below.back();
    t.below.pop_back();
    t.device = t.context->device;
  }
  return kSuccess;
}
STANDIN_API int cuCtxPushCurrent(void *c) { return cuCtxPushCurrent_v2(c); }
STANDIN_API int cuCtxPopCurrent(void **c) { return cuCtxPopCurrent_v2(c); }
STANDIN_API int cuCtxGetDevice(int *d) {
  STANDIN_QUERY();
  Lock lock(core());
  Context *c = current(lock);
  if (!c) return kInvalidContext;
  *d = c->device;
  return kSuccess;
}
STANDIN_API int cuCtxGetFlags(unsigned *f) {
  STANDIN_QUERY();
  *f = 0;
  return kSuccess;
}
STANDIN_API int cuCtxGetApiVersion(void *, unsigned *v) {
  STANDIN_QUERY();
  *v = driver_version();
  return kSuccess;
}
STANDIN_API int cuCtxGetLimit(size_t *v, int limit) {
  STANDIN_QUERY();
  *v = limit == 0 ? 1024 : limit == 1 ? 1 << 20 : 8 << 20;
  return kSuccess;
}
STANDIN_API int cuCtxSetLimit(int, size_t) {
  STANDIN_ENTER();
  return kSuccess;
}
STANDIN_API int cudaDeviceGetLimit(size_t *v, int limit) {
  STANDIN_QUERY();
  *v = limit == 0 ? 1024 : limit == 1 ? 1 << 20 : 8 << 20;
  return kSuccess;
}
STANDIN_API int cudaDeviceSetLimit(int, size_t) {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}
STANDIN_API int cuCtxGetCacheConfig(int *v) {
  STANDIN_QUERY();
  *v = 0;
  return kSuccess;
}
STANDIN_API int cuCtxSetCacheConfig(int) {
  STANDIN_ENTER();
  return kSuccess;
}
STANDIN_API int cuCtxGetSharedMemConfig(int *v) {
  STANDIN_QUERY();
  *v = 1;
  return kSuccess;
}
STANDIN_API int cuCtxSetSharedMemConfig(int) {
  STANDIN_ENTER();
  return kSuccess;
}
STANDIN_API int cuCtxResetPersistingL2Cache() {
  STANDIN_ENTER();
  return kSuccess;
}
STANDIN_API int cudaCtxResetPersistingL2Cache() {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}

STANDIN_API int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active) {
  STANDIN_QUERY();
  if (d < 0 || d >= devices()) return kInvalidDevice;
  Lock lock(core());
  Context *c = contexts().primary[d];
  if (flags) *flags = contexts().flags[d];
  if (active) *active = c && c->alive;
  return kSuccess;
}
STANDIN_API int cuDevicePrimaryCtxRetain(void **out, int d) {
  STANDIN_ENTER();
  if (d < 0 || d >= devices()) return kInvalidDevice;
  Lock lock(core());
  Context *c = primary_context(d, lock);
  if (!c) return kOutOfMemory;
  contexts().retained[d]++;
  *out = c;
  return kSuccess;
}
STANDIN_API int cuDevicePrimaryCtxRelease_v2(int d) {
  STANDIN_ENTER();
  if (d < 0 || d >= devices()) return kInvalidDevice;
  Lock lock(core());
  if (!contexts().retained[d]) {
    violate("the primary context of device %d is released more often than it was retained", d);
    return kInvalidContext;
  }
  contexts().retained[d]--;  // the runtime keeps the context until the process ends
  return kSuccess;
}
STANDIN_API int cuDevicePrimaryCtxReset_v2(int d) {
  STANDIN_ENTER();
  if (d < 0 || d >= devices()) return kInvalidDevice;
  Lock lock(core());
  Context *c = contexts().primary[d];
  if (c && c->alive) {
    wait_for_context(c, lock);
    destroy(c, true, lock);
  }
  return kSuccess;
}
STANDIN_API int cuDevicePrimaryCtxSetFlags_v2(int d, unsigned flags) {
  STANDIN_ENTER();
  if (d < 0 || d >= devices()) return kInvalidDevice;
  contexts().flags[d] = flags;
  return kSuccess;
}
