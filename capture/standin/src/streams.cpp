// Streams: queues of work, and the order in which it is done.
//
// The problem. A program that forgets to wait for something is right by luck where work is done as soon as it
// is given, which is what a stand-in would do by itself. On a real GPU the same program goes wrong now and
// then.
//
// The way chosen. A stream is a queue. Work is put at its end, with what it has to wait for, and is done by
// the threads of the program itself, inside of the calls that wait:
//   - once: every item is done when it is given;
//   - late: an item is done only if something waits for it, and then no more is done than that needs. Nothing
//   that the program
//     forgot to ask for has happened by luck;
//   - drawn by a seed: when something is waited for, items of any stream that may go on are done, drawn one
//   at a time, until that
//     is done. For a while some streams are drawn often and some hardly ever: where all go at one pace, what
//     one of them does too early hardly meets what another does too late.
// Every access of an item is checked at the moment at which it is done against what is allocated, mapped and
// pinned then, so that freeing what queued work still needs is found wherever the order brings it to light.
//
// To run one item costs a look at what it waits for; a drawn order looks at each stream for each item. The
// alternative, a thread for each stream, would be closer to a device and would show a race only sometimes:
// orders that can be repeated are worth more.
//
// The legacy default stream waits for all blocking streams of its context and they for it, as the CUDA
// documentation says under "Stream synchronization behavior". The per-thread default stream is the legacy one
// here.
//
// Two clocks run along: the machine's, and the virtual one, which says when an item would be over on a device
// (clock.cpp).
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

thread_local int running_depth = 0;  // inside of a stream's work: what is called there is done at once
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

// Does the first item of a stream, whose waits are over. The lock is free while the item's work runs.
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
    item.run = nullptr;  // what it holds goes before the lock is taken
    lock.lock();
  }
  if (item.moment) item.moment->done = true, item.moment->at_real = real_nanoseconds();
  s->done++;
  s->busy = false;
  streams().changed.notify_all();
}

// Does one item of a stream that is drawn.
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
    // What the first item waits for runs first. Another thread may take the item meanwhile: look again
    // afterwards.
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

// What an item waits for because of the default stream's rules.
// What is done may not be over on the virtual clock: that gets all of them.
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
  if (running()) {  // work of a stream calls: it is done at once, in the place of its caller
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

// A host that waits must not hold Python's lock, and cannot take it back while it holds ours.
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
  // A kernel that does nothing need not be queued but where something looks: in a capture, on the virtual
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
