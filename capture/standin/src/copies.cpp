// Copies and fills. We know which memory they touch, so they are checked byte for byte.
//
// Pageable host memory follows the CUDA documentation of "API synchronization behavior": a copy from it is
// staged before the call returns, so that the program may change it at once; a copy to it returns when it is
// complete. Copies of pinned memory are as late as other work.
//
// STANDIN_HOLLOW is for programs whose values do not matter: copies and fills larger than it leave memory
// untouched, so that a device of 80 GB costs the host next to nothing.
#include <cstring>

#include "core.h"

namespace standin {

bool hollow(uint64_t size) { return settings().hollow && size > settings().hollow; }

namespace {

bool on_device(const std::vector<Touch> &touches) {
  return !touches.empty() && touches[0].range->kind != Kind::kHost &&
         touches[0].range->kind != Kind::kRegistered;
}

// A rectangle: rows of width bytes, pitch bytes apart.
struct Rectangle {
  char *to;
  size_t to_pitch;
  const char *from;
  size_t from_pitch, width, height;
};

void move(const Rectangle &r) {
  if (r.height == 1)
    memmove(r.to, r.from, r.width);
  else
    for (size_t i = 0; i < r.height; i++) memmove(r.to + i * r.to_pitch, r.from + i * r.from_pitch, r.width);
}

Result copy_rectangle(Rectangle r, void *stream, bool wait, bool driver) {
  uint64_t size = static_cast<uint64_t>(r.width) * r.height;
  if (!size) return kSuccess;
  if (!r.to || !r.from) return kInvalidValue;
  copies++;
  copied_bytes += size;
  Lock lock(core());
  StreamPtr s = stream_of(stream, lock);
  std::vector<Touch> to, from;
  uint64_t to_span = (r.height - 1) * r.to_pitch + r.width,
           from_span = (r.height - 1) * r.from_pitch + r.width;
  if (!touched(r.to, to_span, &to, lock) || !touched(r.from, from_span, &from, lock)) {
    violate("a copy of %llu bytes from %p to %p: device memory that is not allocated",
            static_cast<unsigned long long>(size), static_cast<const void *>(r.from),
            static_cast<void *>(r.to));
    return kInvalidValue;
  }
  bool to_device = on_device(to), from_device = on_device(from), to_pageable = to.empty(),
       from_pageable = from.empty();
  if (suppressed() && to_device && from_device) return kSuccess;
  bool captured = s && s->capture && !running();
  if (wait && s && s->legacy)
    if (Result why = forbidden_by_capture("a copy that waits", lock)) return why;
  if (driver && !wait && settings().refuse_pageable && (to_pageable || from_pageable)) {
    violate("an asynchronous copy %s host memory that is not pinned", to_pageable ? "to" : "from");
    return kInvalidValue;
  }
  Item item;
  item.what = "a copy";
  item.engine = to_device && from_device ? Engine::kCompute : to_device ? Engine::kIn : Engine::kOut;
  item.cost = copy_time(size, item.engine);
  item.touches = to;
  item.touches.insert(item.touches.end(), from.begin(), from.end());
  if (hollow(size)) {
    item.run = [] {};
  } else if (from_pageable && !captured && !running()) {
    auto staged = std::make_shared<std::vector<char>>(size);
    move({staged->data(), r.width, r.from, r.from_pitch, r.width, r.height});
    item.run = [r, staged] { move({r.to, r.to_pitch, staged->data(), r.width, r.width, r.height}); };
  } else {
    item.run = [r] { move(r); };
  }
  if (Result why = give_item(s, std::move(item), lock)) return why;
  bool must_wait = to_pageable || (wait && !(to_device && from_device));
  if (must_wait && !captured) wait_for_stream(s, lock);
  return must_wait ? lost() : kSuccess;
}

Result fill_rectangle(char *at, size_t pitch, uint64_t value, int width, uint64_t count, size_t height,
                      void *stream, bool wait) {
  if (!count || !height) return kSuccess;
  if (!at) return kInvalidValue;
  Lock lock(core());
  StreamPtr s = stream_of(stream, lock);
  Item item;
  uint64_t span = (height - 1) * pitch + count * width;
  if (!touched(at, span, &item.touches, lock)) {
    violate("a fill of %llu bytes at %p: device memory that is not allocated",
            static_cast<unsigned long long>(span), static_cast<void *>(at));
    return kInvalidValue;
  }
  if (suppressed()) return kSuccess;
  if (wait && s && s->legacy)
    if (Result why = forbidden_by_capture("a fill that waits", lock)) return why;
  item.what = "a fill";
  item.cost = kernel_time(count * width * height);
  bool skip = hollow(count * width * height);
  item.run = [=] {
    if (skip) return;
    for (size_t row = 0; row < height; row++) {
      char *p = at + row * pitch;
      if (width == 1)
        memset(p, static_cast<int>(value), count);
      else
        for (uint64_t i = 0; i < count; i++) memcpy(p + i * width, &value, width);
    }
  };
  return give_item(s, std::move(item), lock);
}

// The fields of a CUDA_MEMCPY2D, without arrays.
struct Copy2D {
  size_t src_x, src_y;
  unsigned src_type;
  const void *src_host;
  uintptr_t src_device;
  void *src_array;
  size_t src_pitch, dst_x, dst_y;
  unsigned dst_type;
  void *dst_host;
  uintptr_t dst_device;
  void *dst_array;
  size_t dst_pitch, width, height;
};

Result copy_2d(const Copy2D *c, void *stream, bool wait) {
  if (!c || c->src_type == 3 || c->dst_type == 3) return kNotSupported;
  auto from = c->src_type == 1 ? static_cast<const char *>(c->src_host)
                               : reinterpret_cast<const char *>(c->src_device);
  auto to = c->dst_type == 1 ? static_cast<char *>(c->dst_host) : reinterpret_cast<char *>(c->dst_device);
  size_t from_pitch = c->src_pitch ? c->src_pitch : c->width,
         to_pitch = c->dst_pitch ? c->dst_pitch : c->width;
  return copy_rectangle({to + c->dst_y * to_pitch + c->dst_x, to_pitch,
                         from + c->src_y * from_pitch + c->src_x, from_pitch, c->width, c->height},
                        stream, wait, true);
}

char *address(uintptr_t p) { return reinterpret_cast<char *>(p); }

}  // namespace

Result copy_memory(void *to, const void *from, uint64_t size, void *stream, bool wait, bool driver) {
  return copy_rectangle({static_cast<char *>(to), size, static_cast<const char *>(from), size, size, 1},
                        stream, wait, driver);
}

Result fill_memory(void *at, uint64_t value, int width, uint64_t count, void *stream, bool wait) {
  return fill_rectangle(static_cast<char *>(at), 0, value, width, count, 1, stream, wait);
}

}  // namespace standin

using namespace standin;

STANDIN_API int cudaMemcpy(void *d, const void *s, size_t n, int) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(copy_memory(d, s, n, nullptr, true, false));
}
STANDIN_API int cudaMemcpyAsync(void *d, const void *s, size_t n, int, void *st) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(copy_memory(d, s, n, st, false, false));
}
STANDIN_API int cudaMemcpyPeer(void *d, int, const void *s, int, size_t n) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(copy_memory(d, s, n, nullptr, false, false));
}
STANDIN_API int cudaMemcpyPeerAsync(void *d, int, const void *s, int, size_t n, void *st) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(copy_memory(d, s, n, st, false, false));
}
STANDIN_API int cudaMemcpy2D(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, int) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(copy_rectangle({static_cast<char *>(d), dp, static_cast<const char *>(s), sp, w, h},
                                   nullptr, true, false));
}
STANDIN_API int cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, int,
                                  void *st) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(
      copy_rectangle({static_cast<char *>(d), dp, static_cast<const char *>(s), sp, w, h}, st, false, false));
}
STANDIN_API int cudaMemset(void *p, int v, size_t n) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(fill_memory(p, v, 1, n, nullptr, true));
}
STANDIN_API int cudaMemsetAsync(void *p, int v, size_t n, void *s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(fill_memory(p, v, 1, n, s, false));
}
STANDIN_API int cudaMemset2DAsync(void *p, size_t pitch, int v, size_t w, size_t h, void *s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(fill_rectangle(static_cast<char *>(p), pitch, v, 1, w, h, s, false));
}

STANDIN_API int cuMemcpy(uintptr_t d, uintptr_t s, size_t n) {
  STANDIN_ENTER();
  return copy_memory(address(d), address(s), n, nullptr, true, true);
}
STANDIN_API int cuMemcpyAsync(uintptr_t d, uintptr_t s, size_t n, void *st) {
  STANDIN_ENTER();
  return copy_memory(address(d), address(s), n, st, false, true);
}
STANDIN_API int cuMemcpyDtoH_v2(void *d, uintptr_t s, size_t n) {
  STANDIN_ENTER();
  return copy_memory(d, address(s), n, nullptr, true, true);
}
STANDIN_API int cuMemcpyDtoHAsync_v2(void *d, uintptr_t s, size_t n, void *st) {
  STANDIN_ENTER();
  return copy_memory(d, address(s), n, st, false, true);
}
STANDIN_API int cuMemcpyHtoD_v2(uintptr_t d, const void *s, size_t n) {
  STANDIN_ENTER();
  return copy_memory(address(d), s, n, nullptr, true, true);
}
STANDIN_API int cuMemcpyHtoDAsync_v2(uintptr_t d, const void *s, size_t n, void *st) {
  STANDIN_ENTER();
  return copy_memory(address(d), s, n, st, false, true);
}
STANDIN_API int cuMemcpyDtoD_v2(uintptr_t d, uintptr_t s, size_t n) {
  STANDIN_ENTER();
  return copy_memory(address(d), address(s), n, nullptr, true, true);
}
STANDIN_API int cuMemcpyDtoDAsync_v2(uintptr_t d, uintptr_t s, size_t n, void *st) {
  STANDIN_ENTER();
  return copy_memory(address(d), address(s), n, st, false, true);
}
STANDIN_API int cuMemcpyPeer(uintptr_t d, void *, uintptr_t s, void *, size_t n) {
  STANDIN_ENTER();
  return copy_memory(address(d), address(s), n, nullptr, false, true);
}
STANDIN_API int cuMemcpyPeerAsync(uintptr_t d, void *, uintptr_t s, void *, size_t n, void *st) {
  STANDIN_ENTER();
  return copy_memory(address(d), address(s), n, st, false, true);
}
STANDIN_API int cuMemcpy2D_v2(const Copy2D *c) {
  STANDIN_ENTER();
  return copy_2d(c, nullptr, true);
}
STANDIN_API int cuMemcpy2DUnaligned_v2(const Copy2D *c) {
  STANDIN_ENTER();
  return copy_2d(c, nullptr, true);
}
STANDIN_API int cuMemcpy2DAsync_v2(const Copy2D *c, void *s) {
  STANDIN_ENTER();
  return copy_2d(c, s, false);
}
STANDIN_API int cuMemsetD8_v2(uintptr_t p, unsigned char v, size_t n) {
  STANDIN_ENTER();
  return fill_memory(address(p), v, 1, n, nullptr, true);
}
STANDIN_API int cuMemsetD16_v2(uintptr_t p, unsigned short v, size_t n) {
  STANDIN_ENTER();
  return fill_memory(address(p), v, 2, n, nullptr, true);
}
STANDIN_API int cuMemsetD32_v2(uintptr_t p, unsigned v, size_t n) {
  STANDIN_ENTER();
  return fill_memory(address(p), v, 4, n, nullptr, true);
}
STANDIN_API int cuMemsetD8Async(uintptr_t p, unsigned char v, size_t n, void *s) {
  STANDIN_ENTER();
  return fill_memory(address(p), v, 1, n, s, false);
}
STANDIN_API int cuMemsetD16Async(uintptr_t p, unsigned short v, size_t n, void *s) {
  STANDIN_ENTER();
  return fill_memory(address(p), v, 2, n, s, false);
}
STANDIN_API int cuMemsetD32Async(uintptr_t p, unsigned v, size_t n, void *s) {
  STANDIN_ENTER();
  return fill_memory(address(p), v, 4, n, s, false);
}
STANDIN_API int cuMemsetD2D8_v2(uintptr_t p, size_t pitch, unsigned char v, size_t w, size_t h) {
  STANDIN_ENTER();
  return fill_rectangle(address(p), pitch, v, 1, w, h, nullptr, true);
}
STANDIN_API int cuMemsetD2D16_v2(uintptr_t p, size_t pitch, unsigned short v, size_t w, size_t h) {
  STANDIN_ENTER();
  return fill_rectangle(address(p), pitch, v, 2, w, h, nullptr, true);
}
STANDIN_API int cuMemsetD2D32_v2(uintptr_t p, size_t pitch, unsigned v, size_t w, size_t h) {
  STANDIN_ENTER();
  return fill_rectangle(address(p), pitch, v, 4, w, h, nullptr, true);
}
STANDIN_API int cuMemsetD2D8Async(uintptr_t p, size_t pitch, unsigned char v, size_t w, size_t h, void *s) {
  STANDIN_ENTER();
  return fill_rectangle(address(p), pitch, v, 1, w, h, s, false);
}
STANDIN_API int cuMemsetD2D16Async(uintptr_t p, size_t pitch, unsigned short v, size_t w, size_t h, void *s) {
  STANDIN_ENTER();
  return fill_rectangle(address(p), pitch, v, 2, w, h, s, false);
}
STANDIN_API int cuMemsetD2D32Async(uintptr_t p, size_t pitch, unsigned v, size_t w, size_t h, void *s) {
  STANDIN_ENTER();
  return fill_rectangle(address(p), pitch, v, 4, w, h, s, false);
}
STANDIN_API int cuMemPrefetchAsync(uintptr_t, size_t, int, void *) {
  STANDIN_ENTER();
  return kSuccess;
}
STANDIN_API int cuMemAdvise(uintptr_t, size_t, int, int) {
  STANDIN_ENTER();
  return kSuccess;
}
