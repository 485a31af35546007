// Virtual memory: addresses, physical memory and mappings, separate as in the driver API
// (cuMemAddressReserve, cuMemCreate, cuMemMap, cuMemSetAccess and their inverses).
//
// Physical memory is a stretch of one memfd, so that a handle can be mapped at several addresses and all of
// them show the same bytes. Stretches are placed first fit, and a freed stretch is punched out of the file. A
// handle that is shared with another process (cuMemExportToShareableHandle) moves into a file of its own,
// whose descriptor is shared.
//
// cuMemUnmap does not wait for work that touches the mapping: PyTorch waits itself, and a program that does
// not is at fault.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "core.h"

namespace standin {

namespace {

// CUmemAllocationProp.
struct Properties {
  int type, handle_types;
  int location_type, location;
  void *windows;
  unsigned char compression, rdma;
  unsigned short usage;
  unsigned char reserved[4];
};

struct Physical {
  uint64_t size = 0;
  int device = 0;
  Context *context = nullptr;
  int file = -1;  // its own, or -1 for the common one
  uint64_t offset = 0;
  int mappings = 0;
  int references = 1;  // held by the program
  bool imported = false;
  std::string owner;
  Properties properties{};
};

struct Reservation {
  uint64_t size = 0;
  Context *context = nullptr;
  std::string owner;
};

struct Virtual {
  std::map<uint64_t, Physical> physical;
  std::map<uintptr_t, Reservation> reservations;
  std::map<uint64_t, uint64_t> stretches;  // of the common file: size by offset
  std::map<uintptr_t, RangePtr> mappings;
  int file = -1;
  uint64_t next = 0x1000;
};

Virtual &state() {
  static auto *v = new Virtual;
  return *v;
}

uint64_t granule() { return 2 * kMiB; }

int file_of(const Physical &p) { return p.file >= 0 ? p.file : state().file; }

bool stretch(uint64_t size, uint64_t *offset) {
  auto &v = state();
  if (v.file < 0) v.file = memfd_create("device memory", MFD_CLOEXEC);
  if (v.file < 0) return false;
  uint64_t at = 0;
  for (auto &s : v.stretches) {
    if (s.first >= at + size) break;
    at = s.first + s.second;
  }
  struct stat info;
  if (fstat(v.file, &info)) return false;
  if (static_cast<uint64_t>(info.st_size) < at + size && ftruncate(v.file, at + size)) return false;
  v.stretches[at] = size;
  *offset = at;
  return true;
}

// Frees a handle once it is released and mapped nowhere.
void reclaim(uint64_t handle) {
  auto &v = state();
  auto i = v.physical.find(handle);
  if (i == v.physical.end() || i->second.references > 0 || i->second.mappings > 0) return;
  Physical &p = i->second;
  if (p.file >= 0) {
    close(p.file);
  } else {
    fallocate(v.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p.offset, p.size);
    v.stretches.erase(p.offset);
  }
  if (!p.imported) {
    give(p.device, p.size);
    add_held(-static_cast<int64_t>(p.size));
  }
  v.physical.erase(i);
}

Result create(uint64_t *handle, uint64_t size, const Properties *props, Lock &lock) {
  if (!handle || !props || !size || size % granule()) return kInvalidValue;
  if (props->location_type != 1) return kNotSupported;  // memory of the host's NUMA nodes
  if (props->location < 0 || props->location >= devices()) return kInvalidDevice;
  if (props->handle_types & ~1) return kNotPermitted;  // only POSIX file descriptors are shared
  allocations++;
  if (!take(props->location, size)) return kOutOfMemory;
  Physical p;
  p.size = size;
  p.device = props->location;
  p.context = current(lock);
  p.owner = owner_of_call();
  p.properties = *props;
  if (!stretch(size, &p.offset)) {
    give(p.device, size);
    return kOutOfMemory;
  }
  add_held(size);
  *handle = state().next++;
  state().physical[*handle] = p;
  return kSuccess;
}

Reservation *reservation_around(uintptr_t at, uint64_t size) {
  auto &all = state().reservations;
  auto i = all.upper_bound(at);
  if (i == all.begin()) return nullptr;
  --i;
  return at + size <= i->first + i->second.size ? &i->second : nullptr;
}

bool map_file(uintptr_t at, uint64_t size, int file, uint64_t offset, int protection) {
  return mmap(reinterpret_cast<void *>(at), size, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
              offset) != MAP_FAILED;
}

Result map(uintptr_t at, uint64_t size, uint64_t offset, uint64_t handle, Lock &lock) {
  auto &v = state();
  auto i = v.physical.find(handle);
  if (i == v.physical.end() || i->second.references <= 0) {
    violate("cuMemMap: handle %llu does not exist, or was released", static_cast<unsigned long long>(handle));
    return kInvalidValue;
  }
  if (offset || size != i->second.size || at % granule() || !reservation_around(at, size)) {
    violate("cuMemMap: %llu bytes at %#llx: not reserved, not aligned, or not the whole of the handle",
            static_cast<unsigned long long>(size), static_cast<unsigned long long>(at));
    return kInvalidValue;
  }
  auto next = v.mappings.lower_bound(at);
  bool before =
      next != v.mappings.begin() && std::prev(next)->second->at + std::prev(next)->second->size > at;
  if (before || (next != v.mappings.end() && next->first < at + size)) {
    violate("cuMemMap: something is mapped at %#llx already", static_cast<unsigned long long>(at));
    return kAlreadyMapped;
  }
  if (!map_file(at, size, file_of(i->second), i->second.offset, PROT_NONE)) return kMapFailed;
  i->second.mappings++;
  auto r = std::make_shared<Range>();
  r->at = at;
  r->size = size;
  r->kind = Kind::kMapped;
  r->device = i->second.device;
  r->context = i->second.context;
  r->alive = false;  // until cuMemSetAccess
  r->handle = handle;
  r->owner = owner_of_call();
  v.mappings[at] = r;
  add_range(r, lock);
  return kSuccess;
}

// The mappings that exactly fill a range, or none.
std::vector<RangePtr> filling(uintptr_t at, uint64_t size) {
  std::vector<RangePtr> all;
  auto &m = state().mappings;
  for (uintptr_t p = at; p < at + size;) {
    auto i = m.find(p);
    if (i == m.end() || p + i->second->size > at + size) return {};
    all.push_back(i->second);
    p += i->second->size;
  }
  return all;
}

Result unmap(uintptr_t at, uint64_t size, Lock &lock) {
  auto all = filling(at, size);
  if (all.empty()) {
    violate("cuMemUnmap: %llu bytes at %#llx are not what is mapped there",
            static_cast<unsigned long long>(size), static_cast<unsigned long long>(at));
    return kInvalidValue;
  }
  for (auto &r : all) {
    mmap(reinterpret_cast<void *>(r->at), r->size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    r->alive = false;
    state().mappings.erase(r->at);
    drop_range(r, lock);
    state().physical[r->handle].mappings--;
    reclaim(r->handle);
  }
  return kSuccess;
}

// CUmemAccessDesc: where from, and how (0 not at all, 1 reading, 3 reading and writing).
struct Access {
  int location_type, location, flags;
};

Result set_access(uintptr_t at, uint64_t size, const Access *access, size_t n) {
  auto all = filling(at, size);
  if (all.empty() || !access || !n) return kInvalidValue;
  for (size_t i = 0; i < n; i++)
    if (access[i].flags != 0 && access[i].flags != 1 && access[i].flags != 3) return kInvalidValue;
  for (auto &r : all)
    for (size_t i = 0; i < n; i++) {
      bool own = access[i].location == r->device;
      int protection = access[i].flags == 3   ? PROT_READ | PROT_WRITE
                       : access[i].flags == 1 ? PROT_READ
                                              : PROT_NONE;
      if (!own && access[i].flags == 0) continue;  // takes another device's access away, not this one's
      if (mprotect(reinterpret_cast<void *>(r->at), r->size, protection)) return kUnknown;
      r->alive = protection != PROT_NONE;
    }
  return kSuccess;
}

// Moves a handle's bytes into a file of its own, after queued work on it is done.
Result share(Physical *p, Lock &lock, uint64_t handle) {
  if (p->file >= 0) return kSuccess;
  for (int d = 0; d < devices(); d++) wait_for_device(d, lock);
  auto &v = state();
  int file = memfd_create("shared device memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, p->size)) {
    if (file >= 0) close(file);
    return kOperatingSystem;
  }
  void *from = mmap(nullptr, p->size, PROT_READ, MAP_SHARED, v.file, p->offset),
       *to = mmap(nullptr, p->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (from != MAP_FAILED && to != MAP_FAILED) memcpy(to, from, p->size);
  if (from != MAP_FAILED) munmap(from, p->size);
  if (to != MAP_FAILED) munmap(to, p->size);
  fallocate(v.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p->offset, p->size);
  v.stretches.erase(p->offset);
  p->file = file;
  p->offset = 0;
  for (auto &m : v.mappings)
    if (m.second->handle == handle)
      map_file(m.first, p->size, file, 0, m.second->alive ? PROT_READ | PROT_WRITE : PROT_NONE);
  return kSuccess;
}

}  // namespace

void virtual_leaks(Context *c, Leaks *leaks, Lock &) {
  auto &v = state();
  for (auto &p : v.physical)
    if ((!c || p.second.context == c) && p.second.references > 0)
      add_leak(leaks, "handle of physical memory", p.second.owner, p.second.size);
  for (auto &r : v.reservations)
    if (!c || r.second.context == c)
      add_leak(leaks, "reservation of addresses", r.second.owner, r.second.size);
  for (auto &m : v.mappings)
    if (!c || m.second->context == c) add_leak(leaks, "mapping", m.second->owner, m.second->size);
}

void virtual_drop(Context *c, Lock &lock) {
  auto &v = state();
  std::vector<RangePtr> mappings;
  for (auto &m : v.mappings)
    if (m.second->context == c) mappings.push_back(m.second);
  for (auto &m : mappings) unmap(m->at, m->size, lock);
  std::vector<uint64_t> handles;
  for (auto &p : v.physical)
    if (p.second.context == c) handles.push_back(p.first);
  for (uint64_t h : handles) {
    v.physical[h].references = 0;
    reclaim(h);
  }
  for (auto i = v.reservations.begin(); i != v.reservations.end();)
    if (i->second.context == c) {
      unplace_reserved(i->first, i->second.size);
      i = v.reservations.erase(i);
    } else
      ++i;
}

void virtual_reset(Lock &lock) {
  auto &v = state();
  while (!v.mappings.empty()) {
    RangePtr r = v.mappings.begin()->second;
    unmap(r->at, r->size, lock);
  }
  while (!v.physical.empty()) {
    v.physical.begin()->second.references = 0;
    reclaim(v.physical.begin()->first);
  }
  for (auto &r : v.reservations) unplace_reserved(r.first, r.second.size);
  v.reservations.clear();
  if (v.file >= 0) close(v.file);
  v.file = -1;
}

}  // namespace standin

using namespace standin;

STANDIN_API int cuMemGetAllocationGranularity(size_t *g, const void *, int) {
  STANDIN_ENTER();
  *g = granule();
  return kSuccess;
}
STANDIN_API int cuMemAddressReserve(uintptr_t *p, size_t n, size_t alignment, uintptr_t, unsigned long long) {
  STANDIN_ENTER();
  if (!p || !n || n % granule()) return kInvalidValue;
  Lock lock(core());
  uintptr_t at = place_reserved(n, alignment);
  if (!at) return kOutOfMemory;
  state().reservations[at] = {n, current(lock), owner_of_call()};
  *p = at;
  return kSuccess;
}
STANDIN_API int cuMemAddressFree(uintptr_t p, size_t n) {
  STANDIN_ENTER();
  Lock lock(core());
  auto &v = state();
  auto i = v.reservations.find(p);
  if (i == v.reservations.end() || i->second.size != n) {
    violate("cuMemAddressFree: %llu bytes at %#llx are not what was reserved",
            static_cast<unsigned long long>(n), static_cast<unsigned long long>(p));
    return kInvalidValue;
  }
  auto m = v.mappings.lower_bound(p);
  if (m != v.mappings.end() && m->first < p + n) {
    violate("cuMemAddressFree: memory is still mapped at %#llx", static_cast<unsigned long long>(m->first));
    return kInvalidValue;
  }
  unplace_reserved(p, n);
  v.reservations.erase(i);
  return kSuccess;
}
STANDIN_API int cuMemCreate(uint64_t *h, size_t n, const Properties *p, unsigned long long) {
  STANDIN_ENTER();
  Lock lock(core());
  return create(h, n, p, lock);
}
STANDIN_API int cuMemRelease(uint64_t h) {
  STANDIN_ENTER();
  Lock lock(core());
  auto i = state().physical.find(h);
  if (i == state().physical.end() || i->second.references <= 0) {
    violate("cuMemRelease: handle %llu does not exist, or was released before",
            static_cast<unsigned long long>(h));
    return kInvalidValue;
  }
  i->second.references--;
  reclaim(h);
  return kSuccess;
}
STANDIN_API int cuMemMap(uintptr_t p, size_t n, size_t offset, uint64_t h, unsigned long long) {
  STANDIN_ENTER();
  Lock lock(core());
  return map(p, n, offset, h, lock);
}
STANDIN_API int cuMemSetAccess(uintptr_t p, size_t n, const Access *a, size_t count) {
  STANDIN_ENTER();
  Lock lock(core());
  return set_access(p, n, a, count);
}
STANDIN_API int cuMemGetAccess(unsigned long long *flags, const Access *a, uintptr_t p) {
  STANDIN_ENTER();
  Lock lock(core());
  RangePtr r = range_of(reinterpret_cast<void *>(p), lock);
  if (!r || !flags || !a) return kInvalidValue;
  *flags = r->alive ? 3 : 0;
  return kSuccess;
}
STANDIN_API int cuMemUnmap(uintptr_t p, size_t n) {
  STANDIN_ENTER();
  Lock lock(core());
  return unmap(p, n, lock);
}
STANDIN_API int cuMemRetainAllocationHandle(uint64_t *h, void *p) {
  STANDIN_ENTER();
  Lock lock(core());
  RangePtr r = range_of(p, lock);
  if (!r || r->kind != Kind::kMapped || !h) return kInvalidValue;
  state().physical[r->handle].references++;
  *h = r->handle;
  return kSuccess;
}
STANDIN_API int cuMemGetAllocationPropertiesFromHandle(Properties *p, uint64_t h) {
  STANDIN_ENTER();
  Lock lock(core());
  auto i = state().physical.find(h);
  if (i == state().physical.end() || !p) return kInvalidValue;
  *p = i->second.properties;
  return kSuccess;
}
STANDIN_API int cuMemExportToShareableHandle(void *out, uint64_t h, int type, unsigned long long) {
  STANDIN_ENTER();
  if (type != 1) return kNotSupported;
  Lock lock(core());
  auto i = state().physical.find(h);
  if (i == state().physical.end() || !out) return kInvalidValue;
  if (Result r = share(&i->second, lock, h)) return r;
  int file = fcntl(i->second.file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return kOperatingSystem;
  *static_cast<int *>(out) = file;
  return kSuccess;
}
STANDIN_API int cuMemImportFromShareableHandle(uint64_t *h, void *shared, int type) {
  STANDIN_ENTER();
  if (type != 1) return kNotSupported;
  if (!h) return kInvalidValue;
  Lock lock(core());
  int file = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shared)), F_DUPFD_CLOEXEC, 0);
  struct stat info;
  if (file < 0 || fstat(file, &info) || info.st_size <= 0 || info.st_size % granule()) {
    if (file >= 0) close(file);
    return kInvalidValue;
  }
  Physical p;
  p.size = info.st_size;
  p.context = current(lock);
  p.device = p.context ? p.context->device : 0;
  p.file = file;
  p.imported = true;
  p.owner = owner_of_call();
  p.properties.type = 1;
  p.properties.location_type = 1;
  p.properties.location = p.device;
  *h = state().next++;
  state().physical[*h] = p;
  return kSuccess;
}
