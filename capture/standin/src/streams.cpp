// Streams: queues of work, and the order in which it is done.
//
// The problem. If work is done as soon as it is given, as a simple stand-in would do it, a program that
// forgets to wait for something is right by luck. On a real GPU the same program goes wrong now and then.
//
// The solution. A stream is a queue. Work is put at its end, with what it has to wait for, and is done by the
// program's own threads, inside the calls that wait. There are three orders:
//   - once: every item is done as it is given;
//   - late: an item is done only if something waits for it, and then only what is needed for that is done.
//   Nothing that the program forgot to wait for happens by luck;
//   - drawn from a seed: when something is waited for, items of all streams that can go on are drawn and
//   done, one at a time, until it is done. For a while some streams are drawn often and others rarely: if all
//   went at the same pace, work done too early in one would seldom meet work done too late in another.
// Each access is checked when its item is done, against what is allocated, mapped and pinned at that moment.
// So memory that is freed while queued work still needs it is found whenever the order exposes that.
//
// Running one item costs a look at what it waits for; a drawn order looks at each stream for each item. The
// alternative, a thread for each stream, would be closer to a device but show a race only sometimes: orders
// that can be repeated are worth more.
//
// The legacy default stream waits for all blocking streams of its context and they for it, as the CUDA
// documentation says under "Stream synchronization behavior". Here the per-thread default stream is the
// legacy one.
//
// Items are timed on two clocks: the machine's, and the virtual one, which says when an item would end on a
// device (clock.cpp).
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "core.h"

namespace standin {

std::atomic<uint64_t> launches{0}, copies{0}, copied_bytes{0}, allocations{0}, waits{0};

namespace {

struct Streams {
  std::map<void *, StreamPtr> all;
  std::map<Context *, StreamPtr> legacy;
  std::vector<StreamPtr> order;  // all of them, the oldest first
  uint64_t next_id = 1;
  uint64_t dice = 0;
  std::condition_variable changed;
};

Streams &streams() {
  static auto *s = new Streams;
  return *s;
}

thread_local int running_depth = 0;  // above 0 inside a stream's work: calls made there are done at once
thread_local int suppressed_depth = 0;
thread_local bool in_host_function = false;

uint64_t roll(uint64_t n) {
  uint64_t &d = streams().dice;
  d ^= d << 13, d ^= d >> 7, d ^= d << 17;
  return d % n;
}

void seed_dice() {
  streams().dice = ((settings().order + 0x632be59bd9b4e019ull) * 0x9e3779b97f4a7c15ull) | 1;
}

bool over(const Ticket &t) { return !t.stream || t.stream->done >= t.sequence; }

bool may_go_on(const StreamPtr &s) {
  if (s->busy || s->queue.empty()) return false;
  for (auto &t : s->queue.front().waits)
    if (t.stream != s && !over(t)) return false;
  return true;
}

// Does the first item of a stream; it must have nothing left to wait for. The lock is free while its work
// runs.
void perform(const StreamPtr &s, Lock &lock) {
  s->busy = true;
  Item item = std::move(s->queue.front());
  s->queue.pop_front();
  bool good = item.touches.empty() || lost() || untouched_by_faults(item.touches, item.what);
  if (item.run && (item.book_keeping || (good && !lost()))) {
    lock.unlock();
    running_depth++;
    bool host = std::exchange(in_host_function, item.host_function);
    item.run();
    in_host_function = host;
    running_depth--;
    item.run = nullptr;  // frees what it holds before the lock is taken
    lock.lock();
  }
  if (item.moment) item.moment->done = true, item.moment->at_real = real_nanoseconds();
  s->done++;
  s->busy = false;
  streams().changed.notify_all();
}

// Draws a stream and does one of its items.
bool draw(Lock &lock) {
  auto &all = streams().order;
  if (roll(24) == 0)
    for (auto &s : all) s->pace = 1ull << 2 * roll(7);
  uint64_t n = 0;
  for (auto &s : all) n += may_go_on(s) ? s->pace + 1 : 0;
  if (!n) return false;
  n = roll(n);
  for (auto &s : all) {
    if (!may_go_on(s)) continue;
    if (n <= s->pace) {
      StreamPtr keep = s;
      perform(keep, lock);
      return true;
    }
    n -= s->pace + 1;
  }
  return false;
}

bool drawn() { return settings().order > 1 || settings().order < 0; }

void run_lazily(const Ticket &t, Lock &lock) {
  while (!over(t)) {
    if (t.stream->busy) {
      streams().changed.wait(lock);
      continue;
    }
    const StreamPtr &s = t.stream;
    // What the first item waits for runs first. Look again afterwards: another thread may have taken the
    // item.
    Ticket before;
    for (auto &w : s->queue.front().waits)
      if (w.stream != s && !over(w)) before = w;
    if (before.stream)
      run_lazily(before, lock);
    else
      perform(s, lock);
  }
}

StreamPtr make(Context *context, unsigned flags, int priority, Lock &) {
  auto s = std::make_shared<Stream>();
  s->context = context;
  s->device = context->device;
  s->flags = flags;
  s->priority = priority;
  s->id = streams().next_id++;
  s->owner = owner_of_call();
  if (streams().order.empty()) seed_dice();
  streams().order.push_back(s);
  return s;
}

StreamPtr legacy_of(Context *c, Lock &lock) {
  StreamPtr &s = streams().legacy[c];
  if (!s) {
    s = make(c, 0, 0, lock);
    s->legacy = true;
    s->owner = "";
  }
  return s;
}

void forget(const StreamPtr &s) {
  auto &o = streams().order;
  o.erase(std::remove(o.begin(), o.end(), s), o.end());
}

// Adds what an item waits for because of the default stream's rules. after gets work that is already done,
// too, since it may not have ended on the virtual clock.
void add_implicit_waits(const StreamPtr &s, Item *item, std::vector<TimedPtr> *after) {
  auto add = [&](const StreamPtr &other) {
    after->push_back(other->last);
    if (other->done < other->pushed) item->waits.push_back({other, other->pushed});
  };
  if (s->legacy) {
    for (auto &o : streams().all)
      if (o.second->context == s->context && !(o.second->flags & 1) && !o.second->capture) add(o.second);
  } else if (!(s->flags & 1)) {
    auto found = streams().legacy.find(s->context);
    if (found != streams().legacy.end()) add(found->second);
  }
}

}  // namespace

std::mutex &core() {
  static auto *m = new std::mutex;
  return *m;
}

uint64_t real_nanoseconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

bool suppressed() { return suppressed_depth > 0; }
void suppress(int on) { suppressed_depth += on ? 1 : -1; }
bool running() { return running_depth > 0; }
bool inside_host_function() { return in_host_function; }

StreamPtr stream_of(void *handle, Lock &lock) {
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {
    Context *c = current_or_primary(lock);
    return c ? legacy_of(c, lock) : nullptr;
  }
  auto found = streams().all.find(handle);
  return found == streams().all.end() ? nullptr : found->second;
}

Ticket last_of(const StreamPtr &s) { return {s, s->pushed, s->last}; }

Result give_item(const StreamPtr &s, Item item, Lock &lock, Ticket *ticket) {
  if (!s) {
    violate("work is given to a stream that does not exist, or was destroyed");
    return kInvalidHandle;
  }
  if (running()) {  // called from a stream's work: done at once, in the caller's place
    bool good = item.touches.empty() || untouched_by_faults(item.touches, item.what);
    if (item.moment) *item.moment = {true, give_timed(s->device, Engine::kNone, 0, {}), real_nanoseconds()};
    if (item.run && good) {
      lock.unlock();
      item.run();
      lock.lock();
    }
    if (ticket) *ticket = {};
    return kSuccess;
  }
  if (s->capture) {
    capture_item(s, std::move(item), lock);
    if (ticket) *ticket = {};
    return kSuccess;
  }
  if (s->legacy)
    if (Result r = legacy_forbidden(s->context, lock)) return r;
  host_spends(item.host);
  std::vector<TimedPtr> after{s->last};
  for (auto &w : item.waits) after.push_back(w.timed);
  add_implicit_waits(s, &item, &after);
  TimedPtr timed = give_timed(s->device, item.engine, item.cost, after);
  s->last = timed;
  if (item.moment) item.moment->timed = timed;
  s->queue.push_back(std::move(item));
  Ticket t{s, ++s->pushed, timed};
  if (ticket) *ticket = t;
  if (settings().order == 1) {
    lock.unlock();
    {
      WithoutInterpreterLock unlocked;
      lock.lock();
      run_until(t, lock);
      lock.unlock();
    }
    lock.lock();
  }
  return kSuccess;
}

void run_until(const Ticket &t, Lock &lock) {
  if (!drawn()) return run_lazily(t, lock);
  while (!over(t))
    if (!draw(lock)) {
      if (over(t)) break;
      streams().changed.wait(lock);  // what is left runs on other threads
    }
}

// A waiting host must not hold Python's lock, and cannot take it back while it holds ours.
void wait_for(const Ticket &t, Lock &lock) {
  waits++;
  if (running()) return;
  if (!over(t)) {
    lock.unlock();
    {
      WithoutInterpreterLock unlocked;
      lock.lock();
      run_until(t, lock);
      lock.unlock();
    }
    lock.lock();
  }
  host_waits_for(t.timed);
  trim_pools_after_wait(lock);
}

void wait_for_stream(const StreamPtr &s, Lock &lock) { wait_for(last_of(s), lock); }

static void wait_for_all(const std::vector<StreamPtr> &which, Lock &lock) {
  if (drawn() && !running()) {
    lock.unlock();
    {
      WithoutInterpreterLock unlocked;
      lock.lock();
      while (draw(lock)) {
      }
      lock.unlock();
    }
    lock.lock();
  }
  for (auto &s : which) wait_for_stream(s, lock);
}

void wait_for_device(int device, Lock &lock) {
  std::vector<StreamPtr> which;
  for (auto &s : streams().order)
    if (s->device == device && !s->capture) which.push_back(s);
  wait_for_all(which, lock);
}

void wait_for_context(Context *c, Lock &lock) {
  std::vector<StreamPtr> which;
  for (auto &s : streams().order)
    if (s->context == c && !s->capture) which.push_back(s);
  wait_for_all(which, lock);
}

bool device_busy(int device, Lock &) {
  for (auto &s : streams().order)
    if (s->device == device && s->done < s->pushed) return true;
  return false;
}

void draw_some(Lock &lock) {
  if (drawn() && !running()) draw(lock);
}

bool range_is_awaited(const RangePtr &r, Lock &) {
  for (auto &s : streams().order)
    for (auto &i : s->queue)
      for (auto &t : i.touches)
        if (t.range == r) return true;
  return false;
}

Ticket enqueue(void *stream, std::function<void()> work, const char *what, uint64_t cost,
               const Ticket &after) {
  if (suppressed()) return {};
  Lock lock(core());
  Item item;
  if (after.stream) item.waits.push_back(after);
  item.what = what;
  item.run = std::move(work);
  item.cost = cost;
  item.host = cost ? HostCost::kLaunch : HostCost::kNone;  // an op that the Python side computes has its kernels
  Ticket t;
  give_item(stream_of(stream, lock), std::move(item), lock, &t);
  return t;
}

void launch(void *stream, const char *what) {
  launches++;
  note_launch();
  // The kernels of an op that the Python side computes take their time all the same.
  if (running() || (suppressed() && !settings().timed_ops)) return;
  Lock lock(core());
  StreamPtr s = stream_of(stream, lock);
  if (!s) violate("%s is launched into a stream that does not exist, or was destroyed", what);
  // A kernel that does nothing need not be queued, except where it counts: in a capture and on the virtual
  // clock.
  if (!s || (!s->capture && !settings().virtual_clock)) return;
  Item item;
  item.what = what;
  item.cost = kernel_time(0);
  give_item(s, std::move(item), lock);
}

void finish(const Ticket &t) {
  if (running()) return;
  WithoutInterpreterLock unlocked;
  Lock lock(core());
  run_lazily(t, lock);
}

bool finished(const Ticket &t) {
  Lock lock(core());
  return over(t);
}

bool progress() {
  Lock lock(core());
  for (auto &s : streams().order)
    if (may_go_on(s)) {
      StreamPtr keep = s;
      perform(keep, lock);
      return true;
    }
  return false;
}

bool is_stream(void *handle) {
  Lock lock(core());
  return reinterpret_cast<uintptr_t>(handle) <= 2 || streams().all.count(handle);
}

bool capturing(void *handle) {
  Lock lock(core());
  StreamPtr s = stream_of(handle, lock);
  return s && s->capture;
}

bool interpreter_locked() {
  static auto check = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  static auto initialized = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  return check && initialized && initialized() && check();
}

WithoutInterpreterLock::WithoutInterpreterLock() : state_(nullptr) {
  static auto save = reinterpret_cast<void *(*)()>(dlsym(RTLD_DEFAULT, "PyEval_SaveThread"));
  if (save && interpreter_locked()) state_ = save();
}

WithoutInterpreterLock::~WithoutInterpreterLock() {
  static auto restore = reinterpret_cast<void (*)(void *)>(dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"));
  if (state_) restore(state_);
}

void stream_leaks(Context *c, Leaks *leaks, Lock &) {
  for (auto &s : streams().all)
    if (!c || s.second->context == c) add_leak(leaks, "stream", s.second->owner, 0);
}

void streams_drop(Context *c, Lock &) {
  for (auto i = streams().all.begin(); i != streams().all.end();)
    if (i->second->context == c) {
      i->second->alive = false;
      i->second->done = i->second->pushed;
      i->second->queue.clear();
      forget(i->second);
      i = streams().all.erase(i);
    } else
      ++i;
  auto l = streams().legacy.find(c);
  if (l != streams().legacy.end()) {
    l->second->done = l->second->pushed;
    l->second->queue.clear();
    forget(l->second);
    streams().legacy.erase(l);
  }
}

void streams_reset(Lock &) {
  auto &s = streams();
  for (auto &o : s.order) o->queue.clear(), o->done = o->pushed;
  s.all.clear();
  s.legacy.clear();
  s.order.clear();
  seed_dice();
}

void *add_stream(Context *context, unsigned flags, int priority, Lock &lock) {
  void *handle = new char[64]();  // an address of its own, never used twice while the process lives
  streams().all[handle] = make(context, flags, priority, lock);
  return handle;
}

void remove_stream(void *handle, Lock &) {
  auto found = streams().all.find(handle);
  if (found == streams().all.end()) return;
  found->second->alive = false;
  forget(found->second);
  streams().all.erase(found);
}

std::vector<StreamPtr> blocking_streams(Context *context, Lock &) {
  std::vector<StreamPtr> which;
  for (auto &s : streams().all)
    if (s.second->context == context && !(s.second->flags & 1)) which.push_back(s.second);
  return which;
}

}  // namespace standin
