// IPC: using the memory and events of one process in another.
//
// cudaMalloc's memory is private to its process until it is handed out. Then its bytes move into a memfd that
// is mapped at the same addresses, and the handle names the process, the file's descriptor and the size.
// Another process of the same user opens it through /proc/PID/fd and sees the same bytes. A handle's 64 bytes
// hold a mark, so that handles of other origin are refused.
//
// An event has passed before it is handed out: the work before it is done first (events.cpp says why that is
// a legal order).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "core.h"

namespace standin {

namespace {

constexpr uint64_t kMark = 0x63706920736920;

struct MemoryHandle {
  uint64_t mark;
  int pid, file;
  uint64_t size, at;
  char rest[64 - 32];
};
static_assert(sizeof(MemoryHandle) == 64, "cudaIpcMemHandle_t has 64 bytes");

std::map<uintptr_t, int> &files() {  // the files of memory that was handed out, by address
  static auto *f = new std::map<uintptr_t, int>;
  return *f;
}

Result hand_out(MemoryHandle *out, void *p) {
  if (!out) return kInvalidValue;
  Lock lock(core());
  RangePtr r = range_of(p, lock);
  if (!r || r->kind != Kind::kDevice || r->ipc) return kInvalidValue;
  auto &file = files()[r->at];
  if (!file) {
    wait_for_device(r->device, lock);
    int f = memfd_create("device memory of another process", MFD_CLOEXEC);
    if (f < 0 || ftruncate(f, r->taken)) {
      if (f >= 0) close(f);
      files().erase(r->at);
      return kOutOfMemory;
    }
    void *copy = mmap(nullptr, r->taken, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    if (copy == MAP_FAILED) {
      close(f);
      files().erase(r->at);
      return kOutOfMemory;
    }
    memcpy(copy, reinterpret_cast<void *>(r->at), r->size);
    munmap(copy, r->taken);
    mmap(reinterpret_cast<void *>(r->at), r->taken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f, 0);
    file = f;
  }
  memset(out, 0, sizeof *out);
  *out = {kMark, getpid(), file, r->taken, r->at, {}};
  return kSuccess;
}

Result open_handle(void **out, const MemoryHandle &h) {
  if (!out || h.mark != kMark || !h.size) return kInvalidValue;
  if (h.pid == getpid())
    return kInvalidValue;  // the documentation forbids this in the process that handed it out
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.file);
  int f = open(path, O_RDWR | O_CLOEXEC);
  if (f < 0) return kMapFailed;
  Lock lock(core());
  Context *c = current_or_primary(lock);
  uintptr_t at = c ? place_device(c->device, h.size) : 0;
  bool good = at && mmap(reinterpret_cast<void *>(at), h.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                         f, 0) != MAP_FAILED;
  close(f);
  if (!good) {
    if (at) unplace_device(c->device, at, h.size);
    return kMapFailed;
  }
  auto r = std::make_shared<Range>();
  r->at = at;
  r->size = h.size;
  r->taken = h.size;
  r->device = c->device;
  r->context = c;
  r->ipc = true;
  r->owner = owner_of_call();
  add_range(r, lock);
  *out = reinterpret_cast<void *>(at);
  return kSuccess;
}

Result close_handle(void *p) {
  Lock lock(core());
  RangePtr r = range_of(p, lock);
  if (!r || !r->ipc || r->at != reinterpret_cast<uintptr_t>(p)) {
    violate("memory of another process that was not opened, or was closed before, is closed");
    return kInvalidValue;
  }
  wait_for_device(r->device, lock);
  r->alive = false;
  drop_range(r, lock);
  unplace_device(r->device, r->at, r->taken);
  return kSuccess;
}

}  // namespace

// Closes the file of a range that is freed. Processes that have it open keep the bytes.
void ipc_forget(uintptr_t at) {
  auto i = files().find(at);
  if (i == files().end()) return;
  close(i->second);
  files().erase(i);
}

}  // namespace standin

using namespace standin;

STANDIN_API int cudaIpcGetMemHandle(MemoryHandle *h, void *p) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(hand_out(h, p));
}
STANDIN_API int cudaIpcOpenMemHandle(void **p, MemoryHandle h, unsigned) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(open_handle(p, h));
}
STANDIN_API int cudaIpcCloseMemHandle(void *p) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(close_handle(p));
}
STANDIN_API int cuIpcGetMemHandle(MemoryHandle *h, void *p) {
  STANDIN_ENTER();
  return hand_out(h, p);
}
STANDIN_API int cuIpcOpenMemHandle_v2(void **p, MemoryHandle h, unsigned) {
  STANDIN_ENTER();
  return open_handle(p, h);
}
STANDIN_API int cuIpcCloseMemHandle(void *p) {
  STANDIN_ENTER();
  return close_handle(p);
}
