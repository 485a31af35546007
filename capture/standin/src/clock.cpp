// The virtual clock: when work would end on a device with the card's rates.
//
// The problem. The stand-in does work when it is given, or when something waits for it; how long that takes
// says nothing about a device. To check predicted step times we need times from a source other than the
// predictor, worked out from what PyTorch really gives to each stream, and when.
//
// The solution. Each piece of work becomes a Timed: how long it takes alone, on which engine, and after which
// others. The host has a clock of its own, which advances by a fixed cost for each call that gives work, and
// to the end of whatever it waits for. Work given later cannot begin before the host's clock, so everything
// up to that moment is settled: run_to_host advances from one end of work to the next.
//   - Kernels: those that run at the same time share the device equally, each at 1/n of its speed. A kernel
//   takes at least Rates::kernel. An op's arithmetic and memory traffic come on top of its kernels' least
//   times, as the longer of FLOPs / rate and bytes / rate; or a table of measured times gives its time.
//   - Copies over the link: one engine each way. An engine does one copy at a time, in the order in which
//   they could begin. While both engines copy, each runs at Rates::together of its speed.
//   - Events take no device time.
// The times do not depend on STANDIN_ORDER, which decides when work is really done.
//
// Giving a piece of work costs O(running) for each end that the host's clock passes; few run at a time.
// Rejected: working times out when an item is really done (the order of two copies on one engine would depend
// on which is waited for first); a stream's end as one number (a shared engine would be occupied backwards).
//
// Not modelled: caches, clocks that drop, copies that take memory bandwidth from kernels, kernels too small
// to fill the device (two of them would not slow each other down), the host's work between calls, and ranks:
// each process has its own clock.
//
// The rates are assumptions, made independently of the plan simulator: this file does not use it.
#include <strings.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core.h"

namespace standin {

struct Timed {
  int device = 0;
  Engine engine = Engine::kNone;
  double left = 0;  // nanoseconds at full speed
  uint64_t end = 0;
  size_t awaits = 0;  // how many of the pieces it comes after have not ended
  bool over = false;
  std::vector<TimedPtr> then;
};

namespace {

// Peak arithmetic in FLOPs per nanosecond, dense, from data sheets: float32, TF32 (float32 on cards without
// it), float16. "plain" computes one FLOP a nanosecond.
struct Peak {
  const char *model;
  double flops[3];
};
const Peak peaks[] = {
    {"h100", {66.9e3, 494.7e3, 989.4e3}},   {"h200", {66.9e3, 494.7e3, 989.4e3}},
    {"b200", {75e3, 1100e3, 2250e3}},       {"a100", {19.5e3, 156e3, 312e3}},
    {"a100-40", {19.5e3, 156e3, 312e3}},    {"v100", {15.7e3, 15.7e3, 125e3}},
    {"v100-16", {15.7e3, 15.7e3, 125e3}},   {"a10g", {35e3, 35e3, 70e3}},
    {"l4", {30.3e3, 60e3, 121e3}},          {"t4", {8.1e3, 8.1e3, 65e3}},
    {"rtx6000", {16.3e3, 16.3e3, 130.5e3}}, {"rtx3090", {35.6e3, 35.6e3, 71e3}},
    {"rtx4090", {82.6e3, 82.6e3, 165.2e3}}, {"l40s", {91.6e3, 183e3, 362e3}},
    {"a6000", {38.7e3, 77.4e3, 154.8e3}},   {"rtx3060", {12.7e3, 12.7e3, 25.6e3}},
    {"rtx5090", {104.8e3, 104.8e3, 209.5e3}}, {"plain", {1, 1, 1}},
};

struct Rates {
  double launch = 500, event = 500;  // host time to give work, and to record, wait for or query an event
  double kernel = 1000, copy = 1000;  // the least time of a kernel, the fixed cost of a copy
  double driver = 0;                  // host time of cudaMalloc and cudaFree
  double out = 0, in = 0, memory = 0;  // bytes per nanosecond; 0: the card's
  double together = 1;
  double arithmetic = 1, bandwidth = 1;  // the shares of the peaks that kernels reach
  double flops[3] = {1, 1, 1};
};

struct Device {
  std::vector<TimedPtr> computing;
  std::deque<TimedPtr> queue[2];  // one for each copy engine; the first in it is running
};

struct Clock {
  uint64_t host = 0;
  double at = 0;  // everything before this is settled
  Device devices[kMaxDevices];
  bool read = false;
  Rates rates;
  std::map<std::string, uint64_t> table;
};

Clock &the() {
  static auto *c = new Clock;
  return *c;
}

void read_rates(Clock &c) {
  Rates r;
  const char *model = card(0).model;
  for (auto &p : peaks)
    if (!strcmp(p.model, model)) std::copy(p.flops, p.flops + 3, r.flops);
  const std::pair<const char *, double *> names[] = {
      {"launch", &r.launch}, {"event", &r.event},   {"kernel", &r.kernel},
      {"copy", &r.copy},     {"driver", &r.driver}, {"out", &r.out},
      {"in", &r.in},         {"memory", &r.memory}, {"together", &r.together},
      {"arithmetic", &r.arithmetic}, {"bandwidth", &r.bandwidth}};
  const char *text = setting("STANDIN_RATES");
  std::stringstream all(text ? text : "");
  for (std::string one; std::getline(all, one, ',');) {
    size_t equals = one.find('=');
    bool known = false;
    if (equals != std::string::npos) {
      char *end = nullptr;
      double value = strtod(one.c_str() + equals + 1, &end);
      for (auto &n : names)
        if (one.substr(0, equals) == n.first && !*end && value >= 0 && std::isfinite(value))
          *n.second = value, known = true;
    }
    if (!known || r.together <= 0 || r.together > 1 || r.arithmetic <= 0 || r.bandwidth <= 0) {
      fprintf(stderr, "stand-in GPU: STANDIN_RATES: %s is not a rate; write them as launch=5000,out=25\n",
              one.c_str());
      exit(2);
    }
  }
  if (!r.out) r.out = card(0).link_rate;
  if (!r.in) r.in = card(0).link_rate;
  if (!r.memory) r.memory = card(0).memory_rate;
  c.rates = r;
  c.table.clear();
  if (const char *path = setting("STANDIN_TIMES")) {
    std::ifstream file(path);
    std::string line;
    for (int n = 1; *path && std::getline(file, line); n++) {
      std::stringstream words(line);
      uint64_t ns;
      std::string op, shapes;
      if (line.empty() || line[0] == '#') continue;
      if (!(words >> ns >> op)) {
        fprintf(stderr, "stand-in GPU: %s:%d: write NANOSECONDS OP SHAPES\n", path, n);
        exit(2);
      }
      words >> shapes;
      c.table[op + " " + shapes] = ns;
    }
  }
  c.read = true;
}

const Rates &rates() {
  Clock &c = the();
  if (!c.read) read_rates(c);
  return c.rates;
}

// Begins a piece of work, or ends one that has nothing left, along with all that this lets begin or end.
void begin(TimedPtr first) {
  Clock &c = the();
  std::vector<TimedPtr> ready{std::move(first)};
  while (!ready.empty()) {
    TimedPtr w = std::move(ready.back());
    ready.pop_back();
    if (w->left > 0 && w->engine != Engine::kNone) {
      Device &d = c.devices[w->device];
      if (w->engine == Engine::kCompute)
        d.computing.push_back(w);
      else
        d.queue[w->engine == Engine::kIn].push_back(w);
      continue;
    }
    w->over = true;
    w->end = static_cast<uint64_t>(std::llround(c.at));
    std::vector<TimedPtr> then = std::move(w->then);
    for (size_t i = then.size(); i-- > 0;)
      if (!--then[i]->awaits) ready.push_back(then[i]);
  }
}

// Calls f with each running piece of work and its speed.
template <typename F>
void each_running(F f) {
  for (Device &d : the().devices) {
    for (auto &w : d.computing) f(w, 1.0 / d.computing.size());
    bool both = !d.queue[0].empty() && !d.queue[1].empty();
    for (auto &q : d.queue)
      if (!q.empty()) f(q.front(), both ? rates().together : 1.0);
  }
}

// Advances to the next end of work, or to `to` if that is earlier. It reports whether something ended.
bool advance(double to) {
  Clock &c = the();
  double next = INFINITY;
  each_running([&](const TimedPtr &w, double speed) { next = std::min(next, c.at + w->left / speed); });
  bool ends = next <= to;
  if (!ends) next = to;
  if (next == INFINITY) return false;
  double step = std::max(0.0, next - c.at);
  std::vector<TimedPtr> over;
  each_running([&](const TimedPtr &w, double speed) {
    // What ends now has nothing left, even if the difference is too small for a double.
    bool last = ends && c.at + w->left / speed <= next;
    w->left -= step * speed;
    if (last || w->left < 1e-6) over.push_back(w);
  });
  c.at = std::max(c.at, next);
  for (auto &w : over) {
    Device &d = c.devices[w->device];
    w->left = 0;
    auto &run = d.computing;
    if (w->engine == Engine::kCompute)
      run.erase(std::find(run.begin(), run.end(), w));
    else
      d.queue[w->engine == Engine::kIn].pop_front();
  }
  for (auto &w : over) begin(w);
  return ends;
}

void run_to_host() {
  while (advance(static_cast<double>(the().host))) {
  }
}

// An op whose host code is running on this thread.
struct Op {
  uint64_t launches = 0;
};
thread_local std::vector<Op> ops;

// Whether this thread has given work. One that has not runs beside those that do, as gmemtop's own thread
// does while it reads the times of a described step: what it asks takes none of their time.
thread_local bool gives_work = false;

}  // namespace

uint64_t kernel_time(uint64_t bytes) {
  return static_cast<uint64_t>(rates().kernel + bytes / (rates().memory * rates().bandwidth));
}

uint64_t copy_time(uint64_t bytes, Engine e) {
  double rate = e == Engine::kOut  ? rates().out
                : e == Engine::kIn ? rates().in
                                   : rates().memory * rates().bandwidth;
  return static_cast<uint64_t>(rates().copy + bytes / rate);
}

void host_spends(HostCost what) {
  const Rates &r = rates();
  gives_work |= what == HostCost::kLaunch || what == HostCost::kEvent;
  the().host += static_cast<uint64_t>(what == HostCost::kLaunch   ? r.launch
                                      : what == HostCost::kEvent  ? r.event
                                      : what == HostCost::kDriver ? r.driver
                                                                  : 0);
}

void host_asks() {
  if (gives_work) host_spends(HostCost::kEvent);
}

TimedPtr give_timed(int device, Engine engine, uint64_t cost, const std::vector<TimedPtr> &after) {
  run_to_host();
  auto w = std::make_shared<Timed>();
  w->device = device;
  w->engine = cost ? engine : Engine::kNone;
  w->left = static_cast<double>(cost);
  for (auto &a : after)
    if (a && !a->over) {
      a->then.push_back(w);
      w->awaits++;
    }
  if (!w->awaits) begin(w);
  return w;
}

void host_waits_for(const TimedPtr &w) {
  if (!w) return;
  run_to_host();
  while (!w->over)
    if (!advance(INFINITY)) {
      violate("the virtual clock waits for work that nothing ends");
      return;
    }
  the().host = std::max(the().host, w->end);
  run_to_host();
}

bool over_by_now(const TimedPtr &w) {
  run_to_host();
  if (!w || w->over) return true;
  the().host++;  // so that polling ends, even if a query costs nothing
  return false;
}

uint64_t end_of(const TimedPtr &w) {
  host_waits_for(w);
  return w ? w->end : 0;
}

void note_launch() {
  if (!ops.empty()) ops.back().launches++;
}

void clock_reset(Lock &) { the() = Clock{}; }

}  // namespace standin

using namespace standin;

// The host's clock, in nanoseconds. Reading it takes some time, so that a program that waits for a certain
// time gets there.
STANDIN_API uint64_t standin_now(void) {
  Lock lock(core());
  return the().host += 25;
}

// An op of the program begins on this thread; ops may nest. Kernels that are launched before its end belong
// to it.
STANDIN_API void standin_op_begin(void) { ops.push_back({}); }

// The op ends. If it launched kernels, the time it takes beyond their least times is given to the stream and
// returned; it comes from the table of measured times, or from the op's FLOPs and bytes. precision is 0 for
// float32, 1 for TF32, 2 for float16 and the like.
STANDIN_API uint64_t standin_op_end(void *stream, const char *name, const char *shapes, double flops,
                                    double bytes, int precision) {
  if (ops.empty()) return 0;
  Op op = ops.back();
  ops.pop_back();
  if (!op.launches || precision < 0 || precision > 2) return 0;
  Lock lock(core());
  const Rates &r = rates();
  double ns = std::max(flops / (r.flops[precision] * r.arithmetic), bytes / (r.memory * r.bandwidth));
  auto &table = the().table;
  if (!table.empty()) {
    auto found = table.find(std::string(name) + " " + shapes);
    if (found == table.end()) found = table.find(std::string(name) + " ");
    if (found != table.end()) ns = std::max(0.0, found->second - op.launches * r.kernel);
  }
  Item item;
  item.what = "an op";
  item.cost = static_cast<uint64_t>(std::llround(ns));
  item.host = HostCost::kNone;
  if (StreamPtr s = stream_of(stream, lock))
    if (item.cost) give_item(s, std::move(item), lock);
  return static_cast<uint64_t>(std::llround(ns));
}
