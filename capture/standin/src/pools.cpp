// Pools: memory that is allocated and freed in a stream's order (cudaMallocAsync, cuMemAllocFromPoolAsync).
//
// A pool takes memory from the device in chunks and cuts blocks from them, from the smallest free block that
// fits. A freed block may be used again by the rules of the programming guide's chapter on the stream-ordered
// allocator:
//   - at once in the stream that freed it;
//   - in another stream if the free has happened (attribute 2), which includes that an event made the stream
//   wait for it;
//   - in another stream in any case if the device has no more memory (attribute 3): the pool then makes that
//   stream wait.
// After a wait, unused memory goes back to the device down to the release threshold (attribute 4), which is 0
// for the default pool.
//
// A block may be touched from when its stream reaches the allocation until it reaches the free. Work of
// another stream that is not ordered after the first and before the second is reported as it runs.
//
// How much a real driver takes at once is not documented. We take 32 MiB, and the report says that this
// figure is a guess. An allocation searches all blocks of its pool: linear in their number.
#include "core.h"

namespace standin {

struct Pool {
  bool is_default = false;
  int device = 0;
  Context *context = nullptr;
  std::string owner;
  uint64_t threshold = 0, used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  int reuse[4] = {0, 1, 1, 1};
  struct Block {
    uint64_t size = 0;
    uintptr_t chunk = 0;
    RangePtr range;    // while it is allocated
    StreamPtr stream;  // where it was freed; freed says when
    Ticket freed;
  };
  std::map<uintptr_t, Block> blocks;
  std::map<uintptr_t, uint64_t> chunks;
};

namespace {

std::set<Pool *> &pools() {
  static auto *p = new std::set<Pool *>;
  return *p;
}

Pool *default_pools[kMaxDevices];

Pool *make(int device, Context *context, bool is_default) {
  auto *p = new Pool;
  p->device = device;
  p->context = context;
  p->is_default = is_default;
  p->owner = owner_of_call();
  pools().insert(p);
  return p;
}

Pool *default_of(int device, Lock &) {
  Pool *&p = default_pools[device];
  if (!p) p = make(device, nullptr, true);
  return p;
}

Pool *known(void *handle) {
  auto *p = static_cast<Pool *>(handle);
  return pools().count(p) ? p : nullptr;
}

bool is_over(const Ticket &t) { return !t.stream || t.stream->done >= t.sequence; }

uint64_t up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// Joins neighbouring blocks of a chunk that are free and whose frees have happened.
void coalesce(Pool *p) {
  for (auto i = p->blocks.begin(); i != p->blocks.end();) {
    auto next = std::next(i);
    if (next == p->blocks.end()) break;
    auto &a = i->second, &b = next->second;
    bool both = !a.range && !b.range && a.chunk == b.chunk && is_over(a.freed) && is_over(b.freed);
    if (!both) {
      i = next;
      continue;
    }
    a.size += b.size;
    a.stream = nullptr;
    a.freed = {};
    p->blocks.erase(next);
  }
}

// Gives whole free chunks back until no more than keep bytes are reserved.
void trim(Pool *p, uint64_t keep) {
  if (p->reserved <= keep) return;
  coalesce(p);
  for (auto i = p->chunks.begin(); i != p->chunks.end() && p->reserved > keep;) {
    auto b = p->blocks.find(i->first);
    if (b == p->blocks.end() || b->second.range || b->second.size != i->second || !is_over(b->second.freed)) {
      ++i;
      continue;
    }
    unplace_device(p->device, i->first, i->second);
    give(p->device, i->second);
    add_held(-static_cast<int64_t>(i->second));
    p->reserved -= i->second;
    p->blocks.erase(b);
    i = p->chunks.erase(i);
  }
}

bool grow(Pool *p, uint64_t size) {
  uint64_t granule = settings().granule, least = up(size, granule),
           chunk = granule < 2 * kMiB ? least : up(size, 32 * kMiB);
  if (!take(p->device, chunk)) {
    chunk = least;
    if (!take(p->device, chunk)) return false;
  }
  if (granule >= 2 * kMiB) note_inferred("how much the driver's own memory pools reserve");
  uintptr_t at = place_device(p->device, chunk);
  if (!at) {
    give(p->device, chunk);
    return false;
  }
  add_held(chunk);
  p->reserved += chunk;
  p->reserved_high = std::max(p->reserved_high, p->reserved);
  p->chunks[at] = chunk;
  Pool::Block b;
  b.size = chunk;
  b.chunk = at;
  p->blocks[at] = b;
  return true;
}

enum class Reuse { kOrdered, kAny };

std::map<uintptr_t, Pool::Block>::iterator best(Pool *p, uint64_t size, const StreamPtr &s, Reuse how) {
  auto found = p->blocks.end();
  for (auto i = p->blocks.begin(); i != p->blocks.end(); ++i) {
    auto &b = i->second;
    if (b.range || b.size < size) continue;
    bool may = !b.freed.stream || b.stream == s || (p->reuse[2] && is_over(b.freed)) || how == Reuse::kAny;
    if (may && (found == p->blocks.end() || b.size < found->second.size)) found = i;
  }
  return found;
}

Result allocate(void **out, uint64_t size, void *pool, void *stream, const char *function) {
  allocations++;
  if (!out || (!size && pool)) return kInvalidValue;
  *out = nullptr;
  if (!size) return kSuccess;
  Lock lock(core());
  StreamPtr s = stream_of(stream, lock);
  if (!s) {
    violate("%s with a stream that does not exist", function);
    return kInvalidHandle;
  }
  if (s->capture) return kNotSupported;  // graphs have no memory nodes here
  Pool *p = pool ? known(pool) : default_of(s->device, lock);
  if (!p) {
    violate("%s from a pool that does not exist, or was destroyed", function);
    return kInvalidValue;
  }
  uint64_t rounded = up(size, 512);
  if (rounded < size) return kOutOfMemory;
  auto i = best(p, rounded, s, Reuse::kOrdered);
  if (i == p->blocks.end()) {
    coalesce(p);
    i = best(p, rounded, s, Reuse::kOrdered);
  }
  if (i == p->blocks.end() && grow(p, rounded)) i = best(p, rounded, s, Reuse::kOrdered);
  if (i == p->blocks.end()) {
    trim(p, p->used);  // giving free chunks back may make room for one that is large enough
    if (grow(p, rounded)) i = best(p, rounded, s, Reuse::kOrdered);
  }
  if (i == p->blocks.end() && p->reuse[3]) i = best(p, rounded, s, Reuse::kAny);
  if (i == p->blocks.end()) return kOutOfMemory;
  uintptr_t at = i->first;
  Ticket before = i->second.freed;
  if (i->second.size > rounded) {
    Pool::Block rest = i->second;
    rest.size -= rounded;
    p->blocks[at + rounded] = rest;
    i->second.size = rounded;
  }
  auto r = std::make_shared<Range>();
  r->at = at;
  r->size = rounded;
  r->kind = Kind::kPooled;
  r->device = p->device;
  r->context = s->context;
  r->alive = false;
  r->pool = p;
  r->owner = owner_of_call();
  i->second.range = r;
  i->second.stream = nullptr;
  i->second.freed = {};
  add_range(r, lock);
  p->used += rounded;
  p->used_high = std::max(p->used_high, p->used);
  *out = reinterpret_cast<void *>(at);
  Item item;
  item.what = "an allocation from a pool";
  item.book_keeping = true;
  item.run = [r] { r->alive = true; };
  if (before.stream && before.stream != s && !is_over(before)) item.waits.push_back(before);
  return give_item(s, std::move(item), lock);
}

Result free_async(void *at, void *stream, const char *function) {
  if (!at) return kSuccess;
  Lock lock(core());
  StreamPtr s = stream_of(stream, lock);
  RangePtr r = range_of(at, lock);
  bool whole =
      r && r->at == reinterpret_cast<uintptr_t>(at) && (r->kind == Kind::kPooled || r->kind == Kind::kDevice);
  if (!s || !whole) {
    violate("%s: %p was not allocated from a pool, or is free already", function, at);
    return kInvalidValue;
  }
  if (s->capture) return kNotSupported;
  Item item;
  item.what = "a free into a pool";
  item.book_keeping = true;
  if (r->kind == Kind::kDevice) {  // from cudaMalloc: freed when the stream gets there
    item.run = [r] {
      Lock inner(core());
      release_range(r, inner);
    };
    return give_item(s, std::move(item), lock);
  }
  Pool *p = r->pool;
  drop_range(r, lock);
  auto &b = p->blocks[r->at];
  b.range = nullptr;
  b.stream = s;
  p->used -= r->size;
  item.run = [r] { r->alive = false; };
  Ticket t;
  b.freed = {s, s->pushed + 1};
  Result answer = give_item(s, std::move(item), lock, &t);
  auto found = p->blocks.find(r->at);
  if (found != p->blocks.end() && !found->second.range && found->second.stream == s) found->second.freed = t;
  return answer;
}

void drop(Pool *p, Lock &lock) {
  for (auto &b : p->blocks)
    if (b.second.range) {
      b.second.range->alive = false;
      drop_range(b.second.range, lock);
    }
  for (auto &c : p->chunks) {
    unplace_device(p->device, c.first, c.second);
    give(p->device, c.second);
    add_held(-static_cast<int64_t>(c.second));
  }
  pools().erase(p);
  if (p->is_default) default_pools[p->device] = nullptr;
  delete p;
}

// The numbers are those of cudaMemPoolAttr and CUmemPool_attribute.
Result get_attribute(void *handle, int attribute, void *out) {
  Lock lock(core());
  Pool *p = known(handle);
  if (!p || !out) return kInvalidValue;
  auto *number = static_cast<uint64_t *>(out);
  switch (attribute) {
    case 1:
    case 2:
    case 3: *static_cast<int *>(out) = p->reuse[attribute]; break;
    case 4: *number = p->threshold; break;
    case 5: *number = p->reserved; break;
    case 6: *number = p->reserved_high; break;
    case 7: *number = p->used; break;
    case 8: *number = p->used_high; break;
    default: return kInvalidValue;
  }
  return kSuccess;
}

Result set_attribute(void *handle, int attribute, const void *in) {
  Lock lock(core());
  Pool *p = known(handle);
  if (!p || !in) return kInvalidValue;
  uint64_t number = attribute > 3 ? *static_cast<const uint64_t *>(in) : 0;
  switch (attribute) {
    case 1:
    case 2:
    case 3: p->reuse[attribute] = *static_cast<const int *>(in); break;
    case 4: p->threshold = number; break;
    case 6:
      if (number) return kInvalidValue;  // it can only be reset to what is reserved now
      p->reserved_high = p->reserved;
      break;
    case 8:
      if (number) return kInvalidValue;
      p->used_high = p->used;
      break;
    default: return kInvalidValue;
  }
  return kSuccess;
}

// The beginning of cudaMemPoolProps and CUmemPoolProps.
struct PoolProperties {
  int allocation_type, handle_types, location_type, location;
};

Result create(void **out, const PoolProperties *props) {
  if (!out || !props || props->allocation_type != 1 || props->location_type != 1) return kInvalidValue;
  if (props->location < 0 || props->location >= devices()) return kInvalidDevice;
  Lock lock(core());
  *out = make(props->location, current(lock), false);
  return kSuccess;
}

Result destroy(void *handle, const char *function) {
  Lock lock(core());
  Pool *p = known(handle);
  if (!p || p->is_default) {
    violate("%s of a pool that does not exist, was destroyed before, or is the default one", function);
    return kInvalidValue;
  }
  // Memory that is still allocated from the pool lives on until it is freed; if it never is, that is a leak.
  bool in_use = false;
  for (auto &b : p->blocks) in_use = in_use || b.second.range;
  if (in_use) {
    violate("%s of a pool from which memory is still allocated", function);
    return kSuccess;
  }
  for (auto &b : p->blocks)
    if (b.second.freed.stream) wait_for(b.second.freed, lock);
  drop(p, lock);
  return kSuccess;
}

Result trim_to(void *handle, uint64_t keep) {
  Lock lock(core());
  Pool *p = known(handle);
  if (!p) return kInvalidValue;
  trim(p, keep);
  return kSuccess;
}

Result find_default(void **out, int device) {
  if (!out) return kInvalidValue;
  if (device < 0 || device >= devices()) return kInvalidDevice;
  Lock lock(core());
  *out = default_of(device, lock);
  return kSuccess;
}

}  // namespace

void trim_pools_after_wait(Lock &) {
  for (Pool *p : pools())
    if (p->reserved > p->threshold) trim(p, p->threshold);
}

void pool_leaks(Context *c, Leaks *leaks, Lock &) {
  for (Pool *p : pools()) {
    if (!p->is_default && (!c || p->context == c)) add_leak(leaks, "pool", p->owner, 0);
    for (auto &b : p->blocks)
      if (b.second.range && (!c || b.second.range->context == c))
        add_leak(leaks, "memory of a pool", b.second.range->owner, b.second.size);
  }
}

void pools_drop(Context *c, Lock &lock) {
  std::vector<Pool *> gone;
  for (Pool *p : pools())
    if (p->context == c || (p->is_default && p->device == c->device && c->primary)) gone.push_back(p);
  for (Pool *p : gone) drop(p, lock);
  for (Pool *p : pools())
    for (auto &b : p->blocks)
      if (b.second.stream && b.second.stream->context == c) b.second.stream = nullptr, b.second.freed = {};
}

void pools_reset(Lock &lock) {
  while (!pools().empty()) drop(*pools().begin(), lock);
}

}  // namespace standin

using namespace standin;

STANDIN_API int cudaMallocAsync(void **p, size_t n, void *s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(allocate(p, n, nullptr, s, __func__));
}
STANDIN_API int cudaMallocFromPoolAsync(void **p, size_t n, void *pool, void *s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(allocate(p, n, pool, s, __func__));
}
STANDIN_API int cudaFreeAsync(void *p, void *s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(free_async(p, s, __func__));
}
STANDIN_API int cudaMemPoolCreate(void **p, const PoolProperties *props) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(create(p, props));
}
STANDIN_API int cudaMemPoolDestroy(void *p) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(destroy(p, __func__));
}
STANDIN_API int cudaMemPoolTrimTo(void *p, size_t keep) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(trim_to(p, keep));
}
STANDIN_API int cudaMemPoolGetAttribute(void *p, int a, void *v) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(get_attribute(p, a, v));
}
STANDIN_API int cudaMemPoolSetAttribute(void *p, int a, void *v) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(set_attribute(p, a, v));
}
STANDIN_API int cudaMemPoolSetAccess(void *, const void *, size_t) {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}
STANDIN_API int cudaDeviceGetDefaultMemPool(void **p, int d) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(find_default(p, d));
}
STANDIN_API int cudaDeviceGetMemPool(void **p, int d) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(find_default(p, d));
}
STANDIN_API int cudaDeviceGetGraphMemAttribute(int, int, void *v) {
  STANDIN_ENTER_RUNTIME();
  *static_cast<uint64_t *>(v) = 0;
  return kSuccess;
}
STANDIN_API int cudaDeviceSetGraphMemAttribute(int, int, void *) {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}

STANDIN_API int cuMemAllocAsync(void **p, size_t n, void *s) {
  STANDIN_ENTER();
  return allocate(p, n, nullptr, s, __func__);
}
STANDIN_API int cuMemAllocFromPoolAsync(void **p, size_t n, void *pool, void *s) {
  STANDIN_ENTER();
  return pool ? allocate(p, n, pool, s, __func__) : kInvalidValue;
}
STANDIN_API int cuMemFreeAsync(void *p, void *s) {
  STANDIN_ENTER();
  return free_async(p, s, __func__);
}
STANDIN_API int cuMemPoolCreate(void **p, const PoolProperties *props) {
  STANDIN_ENTER();
  return create(p, props);
}
STANDIN_API int cuMemPoolDestroy(void *p) {
  STANDIN_ENTER();
  return destroy(p, __func__);
}
STANDIN_API int cuMemPoolTrimTo(void *p, size_t keep) {
  STANDIN_ENTER();
  return trim_to(p, keep);
}
STANDIN_API int cuMemPoolGetAttribute(void *p, int a, void *v) {
  STANDIN_ENTER();
  return get_attribute(p, a, v);
}
STANDIN_API int cuMemPoolSetAttribute(void *p, int a, void *v) {
  STANDIN_ENTER();
  return set_attribute(p, a, v);
}
STANDIN_API int cuDeviceGetDefaultMemPool(void **p, int d) {
  STANDIN_ENTER();
  return find_default(p, d);
}
STANDIN_API int cuDeviceGetMemPool(void **p, int d) {
  STANDIN_ENTER();
  return find_default(p, d);
}
