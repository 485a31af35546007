// Events: marks in a stream's queue.
//
// Recording an event puts an item at the end of the stream; waiting for the event means waiting for that
// item. In the late order, an event that is only queried (cudaEventQuery) stays "not ready" until it has been
// queried STANDIN_POLLS times: a program may wait by polling, and a real device would get there some time.
//
// PyTorch's caching allocator queries its events while it holds its own lock. If such a query ran work, which
// is Python and now and then releases the interpreter lock, another thread could take that lock, free a
// tensor and wait for the allocator's lock: a deadlock. So the allocator's queries run nothing. On a device
// they would not wait either.
//
// An event from another process (IPC) has always passed: the process that hands it out does the work first. A
// real device could have been that quick, and every order that a program may rely on still holds.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "core.h"

namespace standin {

namespace {

constexpr uint32_t kAlive = 0x4556454e, kDead = 0xdeadbeef;
constexpr unsigned kDisableTiming = 2, kInterprocess = 4;

std::set<Event *> &events() {
  static auto *e = new std::set<Event *>;
  return *e;
}

Event *event_of(void *handle, const char *function) {
  auto *e = static_cast<Event *>(handle);
  if (events().count(e)) return e;
  violate("%s of an event that does not exist, or was destroyed", function);
  return nullptr;
}

Result create(void **out, unsigned flags) {
  if (!out) return kInvalidValue;
  Lock lock(core());
  Context *c = current_or_primary(lock);
  if (!c) return kInvalidContext;
  auto *e = new Event;
  e->magic = kAlive;
  e->context = c;
  e->device = c->device;
  e->flags = flags;
  e->owner = owner_of_call();
  events().insert(e);
  *out = e;
  return kSuccess;
}

Result destroy(void *handle, const char *function) {
  Lock lock(core());
  Event *e = event_of(handle, function);
  if (!e) return kInvalidHandle;
  events().erase(e);
  e->magic = kDead;
  delete e;
  return kSuccess;
}

Result record(void *handle, void *stream, const char *function) {
  Lock lock(core());
  Event *e = event_of(handle, function);
  StreamPtr s = stream_of(stream, lock);
  if (!e) return kInvalidHandle;
  if (!s) {
    violate("%s with a stream that does not exist", function);
    return kInvalidHandle;
  }
  if (s->context != e->context) {
    violate("%s: the event is on device %d and the stream on device %d", function, e->device, s->device);
    return kInvalidHandle;
  }
  e->recorded = true;
  e->polls = 0;
  e->moment = std::make_shared<Moment>();
  if (s->capture && !running()) {
    e->capture = s->capture;
    e->frontier = s->frontier;
    e->at = {};
    return kSuccess;
  }
  e->capture.reset();
  Item item;
  item.what = "the record of an event";
  item.moment = e->moment;
  item.host = HostCost::kEvent;
  item.book_keeping = true;
  // The event must point at its item before the item can run, and may be gone when give_item returns.
  Ticket t;
  e->at = {s, s->pushed + 1};
  Result r = give_item(s, std::move(item), lock, &t);
  if (events().count(e)) e->at = t;
  return r;
}

Result wait(void *stream, void *handle, const char *function) {
  Lock lock(core());
  Event *e = event_of(handle, function);
  StreamPtr s = stream_of(stream, lock);
  if (!e) return kInvalidHandle;
  if (!s) {
    violate("%s: the stream does not exist", function);
    return kInvalidHandle;
  }
  if (auto capture =
          e->capture
              .lock()) {  // the stream joins the capture, or its next nodes come after the event's
    if (s->capture && s->capture != capture) {
      s->capture->invalid = capture->invalid = true;
      return kCaptureMerge;
    }
    if (!s->capture) {
      s->capture = capture;
      s->frontier.clear();
      capture->joined.push_back(s);
    }
    for (size_t n : e->frontier)
      if (std::find(s->frontier.begin(), s->frontier.end(), n) == s->frontier.end()) s->frontier.push_back(n);
    return kSuccess;
  }
  if (s->capture && e->recorded && e->at.stream) {
    s->capture->invalid = true;
    return kCaptureIsolation;
  }
  if (!e->recorded || running()) return kSuccess;
  Item item;
  item.what = "a wait for an event";
  item.book_keeping = true;
  item.host = HostCost::kEvent;
  if (e->at.stream && e->at.stream != s) item.waits.push_back(e->at);
  return give_item(s, std::move(item), lock);
}

Result synchronize(void *handle, const char *function) {
  Lock lock(core());
  Event *e = event_of(handle, function);
  if (!e) return kInvalidHandle;
  if (auto capture = e->capture.lock()) {
    capture->invalid = true;
    return kCapturedEvent;
  }
  if (e->recorded) {
    Ticket t = e->at;
    wait_for(t, lock);
  }
  return lost();
}

// in_allocator reports whether a function was called by PyTorch's caching allocator. `caller` is its return
// address.
bool in_allocator(void *caller) {
  Dl_info info;
  return caller && dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libc10_cuda");
}

Result ask(void *handle, const char *function, void *caller = nullptr) {
  Lock lock(core());
  Event *e = event_of(handle, function);
  if (!e) return kInvalidHandle;
  if (auto capture = e->capture.lock()) {
    capture->invalid = true;
    return kCapturedEvent;
  }
  if (settings().timed_ops) {
    host_asks();
    if (!over_by_now(e->moment ? e->moment->timed : nullptr)) return kNotReady;
  }
  if (!e->recorded || !e->at.stream || e->moment->done) return kSuccess;
  if (in_allocator(caller)) return kNotReady;
  auto moment = e->moment;
  Ticket t = e->at;
  bool enough = settings().timed_ops || (settings().polls && ++e->polls >= settings().polls);
  draw_some(lock);
  if (moment->done) return kSuccess;
  if (!enough) return kNotReady;
  wait_for(t, lock);
  return lost();
}

Result elapsed(float *ms, void *from, void *to, const char *function) {
  Lock lock(core());
  Event *a = event_of(from, function), *b = event_of(to, function);
  if (!a || !b || !ms) return kInvalidHandle;
  if (!a->recorded || !b->recorded || (a->flags & kDisableTiming) || (b->flags & kDisableTiming))
    return kInvalidHandle;
  if (!a->moment->done || !b->moment->done) return kNotReady;
  if (settings().timed_ops && !(over_by_now(a->moment->timed) && over_by_now(b->moment->timed)))
    return kNotReady;
  double ns = settings().virtual_clock
                  ? static_cast<double>(end_of(b->moment->timed)) - static_cast<double>(end_of(a->moment->timed))
                  : static_cast<double>(b->moment->at_real) - static_cast<double>(a->moment->at_real);
  *ms = static_cast<float>(ns / 1e6);
  return kSuccess;
}

// cudaIpcEventHandle_t: nothing but a mark, since an event has passed before it is handed out.
struct EventHandle {
  uint64_t mark;
  char rest[56];
};
constexpr uint64_t kMark = 0x746e657665;

Result hand_out(EventHandle *out, void *handle, const char *function) {
  Lock lock(core());
  Event *e = event_of(handle, function);
  if (!e || !out) return kInvalidHandle;
  if (!(e->flags & kInterprocess)) return kInvalidHandle;
  if (e->recorded) {
    Ticket t = e->at;
    wait_for(t, lock);
  }
  *out = {kMark, {}};
  return kSuccess;
}

}  // namespace

void event_leaks(Context *c, Leaks *leaks, Lock &) {
  for (Event *e : events())
    if (!c || e->context == c) add_leak(leaks, "event", e->owner, 0);
}

void events_drop(Context *c, Lock &) {
  for (auto i = events().begin(); i != events().end();)
    if ((*i)->context == c) {
      delete *i;
      i = events().erase(i);
    } else
      ++i;
}

void events_reset(Lock &) {
  for (Event *e : events()) delete e;
  events().clear();
}

}  // namespace standin

using namespace standin;

STANDIN_API int cudaEventCreate(void **e) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(create(e, 0));
}
STANDIN_API int cudaEventCreateWithFlags(void **e, unsigned flags) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(create(e, flags));
}
STANDIN_API int cudaEventDestroy(void *e) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(destroy(e, __func__));
}
STANDIN_API int cudaEventRecord(void *e, void *s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(record(e, s, __func__));
}
STANDIN_API int cudaEventRecordWithFlags(void *e, void *s, unsigned) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(record(e, s, __func__));
}
STANDIN_API int cudaStreamWaitEvent(void *s, void *e, unsigned) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(wait(s, e, __func__));
}
STANDIN_API int cudaEventSynchronize(void *e) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(synchronize(e, __func__));
}
STANDIN_API int cudaEventQuery(void *e) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(ask(e, __func__, __builtin_return_address(0)));
}
STANDIN_API int cudaEventElapsedTime(float *ms, void *a, void *b) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(elapsed(ms, a, b, __func__));
}
STANDIN_API int cudaEventElapsedTime_v2(float *ms, void *a, void *b) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(elapsed(ms, a, b, __func__));
}

STANDIN_API int cuEventCreate(void **e, unsigned flags) {
  STANDIN_ENTER();
  return create(e, flags);
}
STANDIN_API int cuEventDestroy_v2(void *e) {
  STANDIN_ENTER();
  return destroy(e, __func__);
}
STANDIN_API int cuEventRecord(void *e, void *s) {
  STANDIN_ENTER();
  return record(e, s, __func__);
}
STANDIN_API int cuEventRecordWithFlags(void *e, void *s, unsigned) {
  STANDIN_ENTER();
  return record(e, s, __func__);
}
STANDIN_API int cuStreamWaitEvent(void *s, void *e, unsigned) {
  STANDIN_ENTER();
  return wait(s, e, __func__);
}
STANDIN_API int cuEventSynchronize(void *e) {
  STANDIN_ENTER();
  return synchronize(e, __func__);
}
STANDIN_API int cuEventQuery(void *e) {
  STANDIN_ENTER();
  return ask(e, __func__);
}
STANDIN_API int cuEventElapsedTime(float *ms, void *a, void *b) {
  STANDIN_ENTER();
  return elapsed(ms, a, b, __func__);
}
STANDIN_API int cuEventElapsedTime_v2(float *ms, void *a, void *b) {
  STANDIN_ENTER();
  return elapsed(ms, a, b, __func__);
}

STANDIN_API int cudaIpcGetEventHandle(EventHandle *h, void *e) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(hand_out(h, e, __func__));
}
STANDIN_API int cudaIpcOpenEventHandle(void **e, EventHandle h) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(h.mark == kMark ? create(e, kDisableTiming | kInterprocess) : kInvalidHandle);
}
STANDIN_API int cuIpcGetEventHandle(EventHandle *h, void *e) {
  STANDIN_ENTER();
  return hand_out(h, e, __func__);
}
STANDIN_API int cuIpcOpenEventHandle(void **e, EventHandle h) {
  STANDIN_ENTER();
  return h.mark == kMark ? create(e, kDisableTiming | kInterprocess) : kInvalidHandle;
}
