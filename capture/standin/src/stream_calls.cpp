// The runtime's and the driver's calls for streams. streams.cpp queues and does their work.
#include "core.h"

namespace standin {

namespace {

Result new_stream(void **out, unsigned flags, int priority) {
  if (!out || flags > 1) return kInvalidValue;
  Lock lock(core());
  Context *c = current_or_primary(lock);
  if (!c) return kInvalidContext;
  *out = add_stream(c, flags, priority, lock);
  return kSuccess;
}

Result destroy_stream(void *handle) {
  Lock lock(core());
  StreamPtr s = stream_of(handle, lock);
  if (!s || s->legacy) {
    violate("a stream that does not exist, or was destroyed before, is destroyed");
    return kInvalidHandle;
  }
  if (!s->capture) wait_for({s, s->pushed}, lock);  // a driver finishes queued work first
  remove_stream(handle, lock);
  return kSuccess;
}

Result synchronize_stream(void *handle, const char *function) {
  Lock lock(core());
  StreamPtr s = stream_of(handle, lock);
  if (!s) {
    violate("%s with a stream that does not exist", function);
    return kInvalidHandle;
  }
  if (s->capture) {
    s->capture->invalid = true;
    return kCaptureUnsupported;
  }
  if (s->legacy) {
    if (Result r = legacy_forbidden(s->context, lock)) return r;
    wait_for_stream(s, lock);
    for (auto &o : blocking_streams(s->context, lock))
      if (!o->capture) wait_for_stream(o, lock);
  } else {
    wait_for_stream(s, lock);
  }
  return lost();
}

Result query_stream(void *handle) {
  Lock lock(core());
  StreamPtr s = stream_of(handle, lock);
  if (!s) {
    violate("a stream that does not exist is queried");
    return kInvalidHandle;
  }
  if (s->capture) {
    s->capture->invalid = true;
    return kCaptureUnsupported;
  }
  if (settings().timed_ops) {
    host_asks();
    if (!over_by_now(s->last)) return kNotReady;
  }
  if (s->done == s->pushed) return kSuccess;
  draw_some(lock);
  if (s->done == s->pushed) return kSuccess;
  if (!settings().timed_ops && (!settings().polls || ++s->polls < settings().polls)) return kNotReady;
  s->polls = 0;
  wait_for_stream(s, lock);
  return lost();
}

Result synchronize_context(const char *function) {
  Lock lock(core());
  if (Result r = forbidden_by_capture(function, lock)) return r;
  Context *c = current_or_primary(lock);
  if (!c) return kInvalidContext;
  wait_for_context(c, lock);
  return lost();
}

template <typename T>
Result stream_property(void *handle, T *out, T (*get)(const Stream &)) {
  Lock lock(core());
  StreamPtr s = stream_of(handle, lock);
  if (!s || !out) return kInvalidHandle;
  *out = get(*s);
  return kSuccess;
}

}  // namespace

}  // namespace standin

using namespace standin;

STANDIN_API int cudaStreamCreate(void **s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(new_stream(s, 0, 0));
}
STANDIN_API int cudaStreamCreateWithFlags(void **s, unsigned flags) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(new_stream(s, flags, 0));
}
STANDIN_API int cudaStreamCreateWithPriority(void **s, unsigned flags, int priority) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(new_stream(s, flags, priority));
}
STANDIN_API int cudaStreamDestroy(void *s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(destroy_stream(s));
}
STANDIN_API int cudaStreamSynchronize(void *s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(synchronize_stream(s, __func__));
}
STANDIN_API int cudaStreamQuery(void *s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(query_stream(s));
}
STANDIN_API int cudaDeviceSynchronize() {
  STANDIN_ENTER_RUNTIME();
  return keep_error(synchronize_context(__func__));
}
STANDIN_API int cudaStreamGetPriority(void *s, int *p) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(stream_property<int>(s, p, [](const Stream &x) { return x.priority; }));
}
STANDIN_API int cudaStreamGetFlags(void *s, unsigned *f) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(stream_property<unsigned>(s, f, [](const Stream &x) { return x.flags; }));
}
STANDIN_API int cudaStreamGetId(void *s, unsigned long long *id) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(stream_property<unsigned long long>(
      s, id, [](const Stream &x) { return static_cast<unsigned long long>(x.id); }));
}
STANDIN_API int cudaStreamGetDevice(void *s, int *d) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(stream_property<int>(s, d, [](const Stream &x) { return x.device; }));
}
STANDIN_API int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  STANDIN_QUERY();
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return kSuccess;
}
STANDIN_API int cudaStreamAttachMemAsync(void *, void *, size_t, unsigned) {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}

static Result host_function(void *stream, std::function<void()> call) {
  Lock lock(core());
  Item item;
  item.what = "a host function";
  item.run = std::move(call);
  item.host_function = true;
  return give_item(stream_of(stream, lock), std::move(item), lock);
}

STANDIN_API int cudaLaunchHostFunc(void *s, void (*fn)(void *), void *arg) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(host_function(s, [=] { fn(arg); }));
}
STANDIN_API int cudaStreamAddCallback(void *s, void (*fn)(void *, int, void *), void *arg, unsigned) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(host_function(s, [=] { fn(s, lost(), arg); }));
}

STANDIN_API int cuStreamCreate(void **s, unsigned flags) {
  STANDIN_ENTER();
  return new_stream(s, flags, 0);
}
STANDIN_API int cuStreamCreateWithPriority(void **s, unsigned flags, int priority) {
  STANDIN_ENTER();
  return new_stream(s, flags, priority);
}
STANDIN_API int cuStreamDestroy_v2(void *s) {
  STANDIN_ENTER();
  return destroy_stream(s);
}
STANDIN_API int cuStreamSynchronize(void *s) {
  STANDIN_ENTER();
  return synchronize_stream(s, __func__);
}
STANDIN_API int cuStreamQuery(void *s) {
  STANDIN_ENTER();
  return query_stream(s);
}
STANDIN_API int cuCtxSynchronize() {
  STANDIN_ENTER();
  return synchronize_context(__func__);
}
STANDIN_API int cuStreamGetFlags(void *s, unsigned *f) {
  STANDIN_ENTER();
  return stream_property<unsigned>(s, f, [](const Stream &x) { return x.flags; });
}
STANDIN_API int cuStreamGetPriority(void *s, int *p) {
  STANDIN_ENTER();
  return stream_property<int>(s, p, [](const Stream &x) { return x.priority; });
}
STANDIN_API int cuStreamGetId(void *s, unsigned long long *id) {
  STANDIN_ENTER();
  return stream_property<unsigned long long>(
      s, id, [](const Stream &x) { return static_cast<unsigned long long>(x.id); });
}
STANDIN_API int cuStreamGetCtx(void *s, void **c) {
  STANDIN_ENTER();
  return stream_property<void *>(s, c, [](const Stream &x) { return static_cast<void *>(x.context); });
}
STANDIN_API int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  STANDIN_QUERY();
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return kSuccess;
}
STANDIN_API int cuLaunchHostFunc(void *s, void (*fn)(void *), void *arg) {
  STANDIN_ENTER();
  return host_function(s, [=] { fn(arg); });
}
STANDIN_API int cuStreamAddCallback(void *s, void (*fn)(void *, int, void *), void *arg, unsigned) {
  STANDIN_ENTER();
  return host_function(s, [=] { fn(s, lost(), arg); });
}
