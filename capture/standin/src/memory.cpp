// Memory: what is allocated on devices and pinned on the host, and when work may touch it.
//
// Every allocation is a Range, found by any address inside it in logarithmic time. Queued work keeps the
// ranges that it touches, not their addresses: if a range was freed since, the work is at fault, even if
// something else is there now.
//
// cudaFree and cudaFreeHost wait for the device, as the runtime's do. cuMemFree does not: the driver's
// documentation promises no wait, and a program that relies on one gets a violation when the queued work
// runs.
#include <sys/mman.h>

#include <cstring>

#include "core.h"

namespace standin {

namespace {

struct Memory {
  std::map<uintptr_t, RangePtr> ranges;
  std::atomic<int64_t> held{0}, peak{0};
};

Memory &memory() {
  static auto *m = new Memory;
  return *m;
}

uint64_t up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

const char *kind_name(Kind k) {
  switch (k) {
    case Kind::kDevice: return "device memory";
    case Kind::kPooled: return "memory of a pool";
    case Kind::kMapped: return "mapping";
    case Kind::kManaged: return "managed memory";
    case Kind::kHost: return "pinned host memory";
    case Kind::kRegistered: return "host memory registered";
  }
  return "memory";
}

bool on_host(Kind k) { return k == Kind::kHost || k == Kind::kRegistered; }

Result allocate_host(void **out, uint64_t size) {
  if (!out) return kInvalidValue;
  *out = nullptr;
  if (!size) return kSuccess;
  uint64_t rounded = up(size, 4096);
  void *p = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return kOutOfMemory;
  Lock lock(core());
  auto r = std::make_shared<Range>();
  r->at = reinterpret_cast<uintptr_t>(p);
  r->size = rounded;
  r->kind = Kind::kHost;
  r->context = current_or_primary(lock);
  r->device = r->context ? r->context->device : 0;
  r->owner = owner_of_call();
  add_range(r, lock);
  *out = p;
  return kSuccess;
}

Result free_host(void *p, const char *function) {
  if (!p) return kSuccess;
  Lock lock(core());
  if (Result r = forbidden_by_capture(function, lock)) return r;
  for (int d = 0; d < devices(); d++) wait_for_device(d, lock);
  RangePtr r = range_of(p, lock);
  if (!r || r->at != reinterpret_cast<uintptr_t>(p) || r->kind != Kind::kHost) {
    violate("%s: %p was not allocated as pinned host memory, or is free already", function, p);
    return kInvalidValue;
  }
  return release_range(r, lock);
}

Result pin(void *p, uint64_t size, unsigned flags, bool driver) {
  if (!p || !size || (driver && flags & ~15u)) return kInvalidValue;
  Lock lock(core());
  auto &ranges = memory().ranges;
  uintptr_t at = reinterpret_cast<uintptr_t>(p);
  auto next = ranges.lower_bound(at);
  if ((next != ranges.end() && next->first < at + size) || range_of(p, lock))
    return kHostMemoryAlreadyRegistered;
  auto r = std::make_shared<Range>();
  r->at = at;
  r->size = size;
  r->kind = Kind::kRegistered;
  r->context = current_or_primary(lock);
  r->device = r->context ? r->context->device : 0;
  r->owner = owner_of_call();
  add_range(r, lock);
  return kSuccess;
}

Result unpin(void *p, const char *function) {
  Lock lock(core());
  RangePtr r = range_of(p, lock);
  if (!r || r->at != reinterpret_cast<uintptr_t>(p) || r->kind != Kind::kRegistered) {
    violate("%s: %p is not registered", function, p);
    return kHostMemoryNotRegistered;
  }
  return release_range(r, lock);
}

Result free_device(void *p, bool waits_for_work, const char *function) {
  Lock lock(core());
  if (!p) return current_or_primary(lock) ? kSuccess : kInvalidContext;
  if (Result r = forbidden_by_capture(function, lock)) return r;
  RangePtr r = range_of(p, lock);
  bool whole = r && r->at == reinterpret_cast<uintptr_t>(p) && !on_host(r->kind) &&
               r->kind != Kind::kMapped && !r->ipc;
  if (!whole) {
    violate("%s: %p was not allocated, or is free already", function, p);
    return kInvalidValue;
  }
  if (waits_for_work) wait_for_device(r->device, lock);
  host_spends(HostCost::kDriver);
  if (memory().ranges.count(r->at) && memory().ranges[r->at] == r) return release_range(r, lock);
  violate("%s: two threads free %p at once", function, p);
  return kInvalidValue;
}

Result get_info(size_t *free, size_t *total) {
  int d;
  {
    Lock lock(core());
    Context *c = current_or_primary(lock);
    if (!c) return kInvalidContext;
    d = c->device;
  }
  uint64_t used = memory_used(d), all = memory_total(d);
  if (free) *free = used > all ? 0 : all - used;
  if (total) *total = all;
  return kSuccess;
}

Result allocate(void **out, uint64_t size, Kind kind, bool zero_is_fine, const char *function) {
  allocations++;
  if (!out) return kInvalidValue;
  *out = nullptr;
  if (!size) return zero_is_fine ? kSuccess : kInvalidValue;
  Lock lock(core());
  if (Result r = forbidden_by_capture(function, lock)) return r;
  return device_allocate(out, size, kind, lock);
}

}  // namespace

uint64_t held() { return memory().held; }
uint64_t held_peak() { return memory().peak; }
void add_held(int64_t bytes) {
  int64_t now = memory().held += bytes;
  if (now > memory().peak) memory().peak = now;
}

RangePtr range_of(const void *p, Lock &) {
  auto &ranges = memory().ranges;
  uintptr_t at = reinterpret_cast<uintptr_t>(p);
  auto i = ranges.upper_bound(at);
  if (i == ranges.begin()) return nullptr;
  --i;
  return at < i->first + i->second->size ? i->second : nullptr;
}

void add_range(RangePtr r, Lock &) { memory().ranges[r->at] = r; }
void drop_range(const RangePtr &r, Lock &) { memory().ranges.erase(r->at); }

bool touched(const void *p, uint64_t size, std::vector<Touch> *out, Lock &lock) {
  uintptr_t at = reinterpret_cast<uintptr_t>(p), end = at + size;
  while (at < end) {
    RangePtr r = range_of(reinterpret_cast<void *>(at), lock);
    if (!r) return !is_device_address(at);  // pageable host memory, as far as is known
    uint64_t here = std::min<uint64_t>(end, r->at + r->size) - at;
    out->push_back({r, at, here});
    at += here;
  }
  return true;
}

bool untouched_by_faults(const std::vector<Touch> &touches, const char *what) {
  for (auto &t : touches) {
    if (t.range->alive) continue;
    violate(
        "%s touches %llu bytes at %#llx of %s that are not allocated when it runs: not allocated yet, or "
        "freed while it was queued",
        what, static_cast<unsigned long long>(t.size), static_cast<unsigned long long>(t.at),
        kind_name(t.range->kind));
    lose(kIllegalAddress);
    return false;
  }
  return true;
}

Result device_allocate(void **out, uint64_t size, Kind kind, Lock &lock) {
  Context *c = current_or_primary(lock);
  if (!c) return kOutOfMemory;
  uint64_t rounded = up(size, settings().granule);
  if (rounded < size) return kOutOfMemory;
  host_spends(HostCost::kDriver);
  if (!take(c->device, rounded)) return kOutOfMemory;
  uintptr_t at = place_device(c->device, rounded);
  if (!at) {
    give(c->device, rounded);
    return kOutOfMemory;
  }
  auto r = std::make_shared<Range>();
  r->at = at;
  r->size = settings().granule < 2 * kMiB ? size : rounded;
  r->kind = kind;
  r->device = c->device;
  r->context = c;
  r->taken = rounded;
  r->owner = owner_of_call();
  add_range(r, lock);
  add_held(rounded);
  *out = reinterpret_cast<void *>(at);
  return kSuccess;
}

Result release_range(const RangePtr &r, Lock &lock) {
  r->alive = false;
  drop_range(r, lock);
  switch (r->kind) {
    case Kind::kHost: munmap(reinterpret_cast<void *>(r->at), r->size); break;
    case Kind::kDevice:
    case Kind::kManaged:
      ipc_forget(r->at);
      unplace_device(r->device, r->at, r->taken);
      if (r->ipc) break;
      give(r->device, r->taken);
      add_held(-static_cast<int64_t>(r->taken));
      break;
    default: break;
  }
  return kSuccess;
}

bool is_device_memory(const void *p, size_t size) {
  Lock lock(core());
  std::vector<Touch> touches;
  if (!is_device_address(reinterpret_cast<uintptr_t>(p)) || !touched(p, size, &touches, lock)) return false;
  for (auto &t : touches)
    if (!t.range->alive) return false;
  return true;
}

void memory_leaks(Context *c, Leaks *leaks, Lock &) {
  for (auto &r : memory().ranges)
    if ((!c || r.second->context == c) && r.second->kind != Kind::kPooled && r.second->kind != Kind::kMapped)
      add_leak(leaks, r.second->ipc ? "memory of another process" : kind_name(r.second->kind),
               r.second->owner, r.second->size);
}

void memory_drop(Context *c, Lock &lock) {
  std::vector<RangePtr> gone;
  for (auto &r : memory().ranges)
    if (r.second->context == c) gone.push_back(r.second);
  for (auto &r : gone) release_range(r, lock);
}

void memory_reset(Lock &lock) {
  std::vector<RangePtr> gone;
  for (auto &r : memory().ranges) gone.push_back(r.second);
  for (auto &r : gone) release_range(r, lock);
  memory().held = memory().peak = 0;
}

}  // namespace standin

using namespace standin;

STANDIN_API int cudaMalloc(void **p, size_t n) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(allocate(p, n, Kind::kDevice, true, __func__));
}
STANDIN_API int cudaMallocManaged(void **p, size_t n, unsigned) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(allocate(p, n, Kind::kManaged, false, __func__));
}
// Hints where managed memory should be, as optimizers with paged states give them. The arguments after the
// size differ between CUDA 12 and 13, and are not needed.
static Result hint(const void *p, size_t n) {
  Lock lock(core());
  RangePtr r = range_of(p, lock);
  return n && r && r->kind == Kind::kManaged ? kSuccess : kInvalidValue;
}
STANDIN_API int cudaMemPrefetchAsync(const void *p, size_t n, uint64_t, uint64_t, void *) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(hint(p, n));
}
STANDIN_API int cudaMemAdvise(const void *p, size_t n, int, uint64_t) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(hint(p, n));
}
STANDIN_API int cudaFree(void *p) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(free_device(p, true, __func__));
}
STANDIN_API int cudaMemGetInfo(size_t *f, size_t *t) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(get_info(f, t));
}
STANDIN_API int cudaHostAlloc(void **p, size_t n, unsigned) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(allocate_host(p, n));
}
STANDIN_API int cudaMallocHost(void **p, size_t n) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(allocate_host(p, n));
}
STANDIN_API int cudaFreeHost(void *p) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(free_host(p, __func__));
}
STANDIN_API int cudaHostRegister(void *p, size_t n, unsigned flags) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(pin(p, n, flags, false));
}
STANDIN_API int cudaHostUnregister(void *p) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(unpin(p, __func__));
}
STANDIN_API int cudaHostGetDevicePointer(void **d, void *h, unsigned) {
  STANDIN_ENTER_RUNTIME();
  Lock lock(core());
  RangePtr r = range_of(h, lock);
  if (!r || !d) return keep_error(kInvalidValue);
  *d = h;
  return kSuccess;
}
STANDIN_API int cudaHostGetFlags(unsigned *f, void *h) {
  STANDIN_ENTER_RUNTIME();
  Lock lock(core());
  if (!range_of(h, lock) || !f) return keep_error(kInvalidValue);
  *f = 0;
  return kSuccess;
}

namespace {
// cudaPointerAttributes: the type (0 unregistered, 1 host, 2 device, 3 managed), the device, and the two
// addresses.
struct PointerAttributes {
  int type, device;
  void *device_pointer, *host_pointer;
};
}  // namespace

STANDIN_API int cudaPointerGetAttributes(PointerAttributes *a, const void *p) {
  STANDIN_ENTER_RUNTIME();
  if (!a) return keep_error(kInvalidValue);
  Lock lock(core());
  RangePtr r = range_of(p, lock);
  void *q = const_cast<void *>(p);
  if (!r)
    *a = {0, -2, nullptr, q};
  else if (on_host(r->kind))
    *a = {1, r->device, q, q};
  else if (r->kind == Kind::kManaged)
    *a = {3, r->device, q, q};
  else
    *a = {2, r->device, q, nullptr};
  return kSuccess;
}

STANDIN_API int cuMemAlloc_v2(void **p, size_t n) {
  STANDIN_ENTER();
  return allocate(p, n, Kind::kDevice, false, __func__);
}
STANDIN_API int cuMemAllocManaged(void **p, size_t n, unsigned) {
  STANDIN_ENTER();
  return allocate(p, n, Kind::kManaged, false, __func__);
}
STANDIN_API int cuMemAllocPitch_v2(void **p, size_t *pitch, size_t width, size_t height, unsigned) {
  STANDIN_ENTER();
  if (!pitch) return kInvalidValue;
  *pitch = (width + 511) / 512 * 512;
  return allocate(p, *pitch * height, Kind::kDevice, false, __func__);
}
STANDIN_API int cuMemFree_v2(void *p) {
  STANDIN_ENTER();
  return p ? free_device(p, false, __func__) : kSuccess;
}
STANDIN_API int cuMemGetInfo_v2(size_t *f, size_t *t) {
  STANDIN_ENTER();
  return get_info(f, t);
}
STANDIN_API int cuMemAllocHost_v2(void **p, size_t n) {
  STANDIN_ENTER();
  return n ? allocate_host(p, n) : kInvalidValue;
}
STANDIN_API int cuMemHostAlloc(void **p, size_t n, unsigned) {
  STANDIN_ENTER();
  return n ? allocate_host(p, n) : kInvalidValue;
}
STANDIN_API int cuMemFreeHost(void *p) {
  STANDIN_ENTER();
  return p ? free_host(p, __func__) : kInvalidValue;
}
STANDIN_API int cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
  STANDIN_ENTER();
  return pin(p, n, flags, true);
}
STANDIN_API int cuMemHostUnregister(void *p) {
  STANDIN_ENTER();
  return unpin(p, __func__);
}
STANDIN_API int cuMemHostGetDevicePointer_v2(void **d, void *h, unsigned) {
  STANDIN_ENTER();
  Lock lock(core());
  if (!range_of(h, lock) || !d) return kInvalidValue;
  *d = h;
  return kSuccess;
}
STANDIN_API int cuMemGetAddressRange_v2(uintptr_t *base, size_t *size, uintptr_t p) {
  STANDIN_ENTER();
  Lock lock(core());
  RangePtr r = range_of(reinterpret_cast<void *>(p), lock);
  if (!r || on_host(r->kind)) return kNotFound;
  if (base) *base = r->at;
  if (size) *size = r->size;
  return kSuccess;
}
STANDIN_API int cuMemGetAddressRange(uintptr_t *base, size_t *size, uintptr_t p) {
  return cuMemGetAddressRange_v2(base, size, p);
}

// The numbers are those of CUpointer_attribute.
STANDIN_API int cuPointerGetAttribute(void *out, int attribute, uintptr_t p) {
  STANDIN_ENTER();
  if (!out) return kInvalidValue;
  Lock lock(core());
  RangePtr r = range_of(reinterpret_cast<void *>(p), lock);
  if (!r) return kInvalidValue;
  bool host = on_host(r->kind);
  switch (attribute) {
    case 1: *static_cast<void **>(out) = r->context; break;       // context
    case 2: *static_cast<unsigned *>(out) = host ? 1 : 2; break;  // memory type
    case 3: *static_cast<uintptr_t *>(out) = p; break;            // device pointer
    case 4:                                                       // host pointer
      if (!host && r->kind != Kind::kManaged) return kInvalidValue;
      *static_cast<uintptr_t *>(out) = p;
      break;
    case 6: *static_cast<int *>(out) = 0; break;                     // synchronous memory operations
    case 7: *static_cast<unsigned long long *>(out) = r->at; break;  // buffer id
    case 8: *static_cast<int *>(out) = r->kind == Kind::kManaged; break;
    case 9: *static_cast<int *>(out) = r->device; break;                  // device ordinal
    case 10: *static_cast<int *>(out) = r->kind == Kind::kDevice; break;  // may be shared by IPC
    case 11: *static_cast<uintptr_t *>(out) = r->at; break;               // range start
    case 12: *static_cast<size_t *>(out) = r->size; break;                // range size
    case 13: *static_cast<int *>(out) = 1; break;                         // mapped
    default: return kNotSupported;
  }
  return kSuccess;
}
STANDIN_API int cuPointerSetAttribute(const void *, int, uintptr_t) {
  STANDIN_ENTER();
  return kSuccess;
}
