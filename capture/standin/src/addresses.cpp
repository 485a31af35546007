// Addresses: where device memory and reservations are placed.
//
// Device memory is host memory at the same address, so that work can touch it. Each device has one terabyte
// of addresses, reserved but not backed. Memory is placed first fit, upwards from the base, since recordings
// of real GPUs show ascending addresses, and PyTorch's allocator (up to 2.12) breaks ties by address.
// Reservations of the virtual memory API have a space of their own, with the same rule. A map of what is
// taken is searched from the bottom, which is linear in the number of allocations below the hole; PyTorch
// makes hundreds.
//
// On x86-64 and on arm64 with 47 bits, Linux places no program, heap or library near the bases.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "core.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace standin {

namespace {

constexpr uintptr_t kDeviceBase = 0x400000000000, kDeviceSpace = 1ull << 40;
constexpr uintptr_t kReservedBase = 0x600000000000, kReservedEnd = 0x700000000000;
constexpr uint64_t kPage = 4096;

struct Space {
  std::map<uintptr_t, uint64_t> taken;
  bool mapped = false;
};

Space device_space[kMaxDevices], reserved_space;

uint64_t up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// The lowest hole that is large enough.
uintptr_t first_fit(const Space &s, uintptr_t base, uintptr_t end, uint64_t size, uint64_t alignment) {
  uintptr_t at = up(base, alignment);
  for (auto &t : s.taken) {
    if (t.first >= at + size) break;
    if (t.first + t.second > at) at = up(t.first + t.second, alignment);
  }
  return at + size <= end ? at : 0;
}

// Whether another allocation lies on the page at an address.
bool shares_page(const Space &s, uintptr_t page) {
  auto next = s.taken.lower_bound(page);
  if (next != s.taken.end() && next->first < page + kPage) return true;
  return next != s.taken.begin() && std::prev(next)->first + std::prev(next)->second > page;
}

}  // namespace

uintptr_t place_device(int device, uint64_t size) {
  Space &s = device_space[device];
  uintptr_t base = kDeviceBase + device * kDeviceSpace;
  if (!s.mapped) {
    void *p = mmap(reinterpret_cast<void *>(base), kDeviceSpace, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (p != reinterpret_cast<void *>(base)) {
      if (p != MAP_FAILED) munmap(p, kDeviceSpace);
      return 0;
    }
    madvise(p, kDeviceSpace, MADV_DONTDUMP);
    s.mapped = true;
  }
  uint64_t granule = settings().granule;
  uintptr_t at = first_fit(s, base, base + kDeviceSpace, size, size >= 2 * kMiB ? 2 * kMiB : granule);
  if (!at) return 0;
  uintptr_t from = at / kPage * kPage, to = up(at + size, kPage);
  if (mprotect(reinterpret_cast<void *>(from), to - from, PROT_READ | PROT_WRITE)) return 0;
  s.taken[at] = size;
  return at;
}

void unplace_device(int device, uintptr_t at, uint64_t size) {
  Space &s = device_space[device];
  s.taken.erase(at);
  uintptr_t from = at / kPage * kPage, to = up(at + size, kPage);
  if (shares_page(s, from)) from += kPage;
  if (to > from && shares_page(s, to - kPage)) to -= kPage;
  if (to <= from) return;
  // A fresh mapping drops what was there, including shared memory put there by IPC; touching it is a fault.
  mmap(reinterpret_cast<void *>(from), to - from, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

uintptr_t place_reserved(uint64_t size, uint64_t alignment) {
  uintptr_t at =
      first_fit(reserved_space, kReservedBase, kReservedEnd, size, std::max<uint64_t>(alignment, 2 * kMiB));
  if (!at) return 0;
  void *p = mmap(reinterpret_cast<void *>(at), size, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (p != reinterpret_cast<void *>(at)) {
    if (p != MAP_FAILED) munmap(p, size);
    return 0;
  }
  reserved_space.taken[at] = size;
  return at;
}

void unplace_reserved(uintptr_t at, uint64_t size) {
  munmap(reinterpret_cast<void *>(at), size);
  reserved_space.taken.erase(at);
}

bool is_device_address(uintptr_t at) {
  return (at >= kDeviceBase && at < kDeviceBase + kMaxDevices * kDeviceSpace) ||
         (at >= kReservedBase && at < kReservedEnd);
}

void addresses_reset() {
  for (int d = 0; d < kMaxDevices; d++)
    if (device_space[d].mapped) {
      munmap(reinterpret_cast<void *>(kDeviceBase + d * kDeviceSpace), kDeviceSpace);
      device_space[d] = Space();
    }
  for (auto &t : reserved_space.taken) munmap(reinterpret_cast<void *>(t.first), t.second);
  reserved_space = Space();
}

}  // namespace standin
