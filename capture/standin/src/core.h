// Shared by the files of the runtime and the driver: contexts, ranges of memory, streams, events.
//
// One mutex, core(), guards all of it. It is never held while a stream's work runs or while one thread waits
// for another. A function that must be called with it held takes a Lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "standin.h"

namespace standin {

using Lock = std::unique_lock<std::mutex>;
std::mutex &core();

// ---- Settings (settings.cpp) ----

struct Settings {
  std::string model;
  int devices = 1;
  uint64_t memory = 0;                // 0: as much as the card has
  uint64_t context = 500 * kMiB;      // what a context costs
  uint64_t granule = 2 * kMiB;        // device memory is counted in multiples of this
  uint64_t others[kMaxDevices] = {};  // what imaginary processes hold
  int order = 0;                      // 0 late, 1 once, others are seeds
  int polls = 64;  // how many queries of an event say "not ready" before its work runs; 0 for all
  bool virtual_clock = false;
  bool timed_ops = false;        // ops take time too, and queries answer by the virtual clock
  bool refuse_pageable = false;  // asynchronous copies of host memory that is not pinned are violations
  uint64_t hollow = 0;  // copies, fills and collectives larger than this move no bytes; 0: all move theirs
  bool ecc = false;
  int compute_mode = 0;
  int driver_version = 0;
  std::string board;   // a file; "private" for a board that no other process sees
  std::string report;  // a folder; "" for none
};
const Settings &settings();
// Whether work on this many bytes moves none of them. It is still checked, ordered and timed.
bool hollow(uint64_t size);
void read_settings();  // reads them again: the environment, and what configure set
void configure(const char *name, const char *value);

// ---- The board (board.cpp) ----

bool take(int device, uint64_t bytes);  // false if there is no room
void give(int device, uint64_t bytes);
void board_reset();
uint64_t board_mine(int device);  // what this process holds, contexts included

// ---- Contexts (contexts.cpp) ----

struct Context {
  int device = 0;
  bool primary = false;
  bool alive = true;
  uint64_t cost = 0;  // bytes taken from the board
  std::set<int> peers;
  std::string owner;
};
Context *current(Lock &);  // nullptr for none
Context *current_or_primary(
    Lock &);  // makes a primary context if there is none, as the runtime does; nullptr if that fails
Result set_device(int device);  // as cudaSetDevice does
void contexts_reset(Lock &);
int contexts_left(Lock &);  // how many the program made and did not destroy
Context *primary_context(int device, Lock &);

// ---- Memory (memory.cpp) ----

enum class Kind { kDevice, kPooled, kMapped, kManaged, kHost, kRegistered };

struct Range {
  uintptr_t at = 0;
  uint64_t size = 0;
  Kind kind = Kind::kDevice;
  int device = 0;
  Context *context = nullptr;
  bool alive = true;   // whether work may touch it now. A pooled range is alive once its stream has reached
                       // the allocation
  uint64_t taken = 0;  // bytes taken from the board
  std::string owner;   // the library that made it
  uint64_t handle = 0;  // the physical memory behind a mapped range
  struct Pool *pool = nullptr;
  bool ipc = false;  // opened from another process
};
using RangePtr = std::shared_ptr<Range>;

// Memory that an item of work touches. A null range is pageable host memory.
struct Touch {
  RangePtr range;
  uintptr_t at = 0;
  uint64_t size = 0;
};

RangePtr range_of(const void *p, Lock &);  // the range that p points into
void add_range(RangePtr, Lock &);
void drop_range(const RangePtr &, Lock &);
// touched appends the ranges that the size bytes at p belong to. It fails if p is a device address and not
// all of the bytes are allocated.
bool touched(const void *p, uint64_t size, std::vector<Touch> *, Lock &);
bool untouched_by_faults(const std::vector<Touch> &,
                         const char *what);  // checks what work is about to touch; a fault loses the device
void memory_reset(Lock &);
Result device_allocate(void **out, uint64_t size, Kind kind, Lock &);
Result release_range(const RangePtr &, Lock &);
std::string owner_of_call();
uint64_t held(), held_peak();
void add_held(int64_t bytes);

// ---- Addresses (addresses.cpp) ----

// Device memory and reservations are placed first fit, upwards from a base.
uintptr_t place_device(int device, uint64_t size);
void unplace_device(int device, uintptr_t at, uint64_t size);
uintptr_t place_reserved(uint64_t size, uint64_t alignment);
void unplace_reserved(uintptr_t at, uint64_t size);
bool is_device_address(uintptr_t at);
void addresses_reset();

// ---- The virtual clock (clock.cpp). Times are nanoseconds ----

enum class Engine { kNone, kCompute, kOut, kIn };          // the engine that a piece of work occupies
enum class HostCost { kNone, kLaunch, kEvent, kDriver };   // the kinds of host time that a call takes
using TimedPtr = std::shared_ptr<struct Timed>;            // a piece of work on the clock
uint64_t kernel_time(uint64_t bytes);
uint64_t copy_time(uint64_t bytes, Engine);
void host_spends(HostCost);
void host_asks();                       // asks whether something is over
TimedPtr give_timed(int device, Engine, uint64_t cost, const std::vector<TimedPtr> &after);
void host_waits_for(const TimedPtr &);
bool over_by_now(const TimedPtr &);   // on the host's clock
uint64_t end_of(const TimedPtr &);    // when it ends; waits for it
void note_launch();
void clock_reset(Lock &);

// ---- Streams and events (streams.cpp, events.cpp) ----

// When a stream reaches an event: on the virtual clock, and on the real one in nanoseconds.
struct Moment {
  bool done = false;
  TimedPtr timed;
  uint64_t at_real = 0;
};

struct Item {
  const char *what = "work";
  std::function<void()> run;
  std::vector<Touch> touches;
  std::vector<Ticket> waits;
  std::shared_ptr<Moment> moment;  // set when the item records an event
  uint64_t cost = 0;  // this and the next two are for the virtual clock
  Engine engine = Engine::kCompute;
  HostCost host = HostCost::kLaunch;
  bool host_function = false;
  bool book_keeping = false;  // done even after the device is lost
};

struct Capture;

struct Stream {
  Context *context = nullptr;
  int device = 0, priority = 0;
  unsigned flags = 0;
  bool legacy = false;
  uint64_t id = 0;
  bool alive = true;
  std::string owner;
  std::deque<Item> queue;
  uint64_t pushed = 0, done = 0;
  bool busy = false;
  int polls = 0;
  TimedPtr last;         // its newest work on the virtual clock
  uint64_t pace = 0;     // how many extra chances a drawn order gives it
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;  // while captured: the nodes that the next one comes after
};
using StreamPtr = std::shared_ptr<Stream>;

struct Event {
  uint32_t magic = 0;
  Context *context = nullptr;
  int device = 0;
  unsigned flags = 0;
  bool recorded = false;
  Ticket at;
  std::shared_ptr<Moment> moment;
  int polls = 0;
  std::string owner;
  std::weak_ptr<Capture> capture;  // the capture it was recorded in, and after which nodes
  std::vector<size_t> frontier;
};

void *add_stream(Context *, unsigned flags, int priority, Lock &);
void remove_stream(void *handle, Lock &);
std::vector<StreamPtr> blocking_streams(Context *, Lock &);
StreamPtr stream_of(void *handle, Lock &);  // null if the handle is not a stream
// give_item puts an item at the end of a stream, or of its capture if it has one, and runs it at once if the
// order says so. A null stream and a stream of another context are violations.
Result give_item(const StreamPtr &, Item, Lock &, Ticket *ticket = nullptr);
void run_until(const Ticket &, Lock &);  // releases the lock while it runs work
void wait_for(const Ticket &, Lock &);   // run_until for a host that waits: also moves the host's clock
void wait_for_stream(const StreamPtr &, Lock &);
void wait_for_device(int device, Lock &);
void wait_for_context(Context *, Lock &);
bool device_busy(int device, Lock &);
void draw_some(Lock &);  // in a drawn order: runs one item
void streams_reset(Lock &);
void events_reset(Lock &);
void modules_reset(Lock &);
void graphs_reset(Lock &);
void pools_reset(Lock &);
void virtual_reset(Lock &);
bool range_is_awaited(const RangePtr &, Lock &);  // whether an item that has not run touches it
bool suppressed();
void suppress(int on);
uint64_t real_nanoseconds();
// While a capture is under way, calls that could wait for the device are forbidden. Returns the answer that
// such a call must give.
Result forbidden_by_capture(const char *function, Lock &);
// The answer that a context's legacy stream must give during a capture.
Result legacy_forbidden(Context *, Lock &);
void trim_pools_after_wait(Lock &);
bool inside_host_function();
Ticket last_of(const StreamPtr &);

// ---- Captures (graphs.cpp) ----

struct Node {
  Item item;
  std::vector<size_t> after;
};

struct Graph {
  std::vector<Node> nodes;
};

struct Capture {
  std::shared_ptr<Graph> graph;
  StreamPtr origin;
  std::vector<StreamPtr> joined;
  int mode = 0;  // 0 global, 1 thread, 2 relaxed
  uint64_t id = 0;
  uint64_t thread = 0;
  bool invalid = false;
};
void capture_item(const StreamPtr &, Item, Lock &);

// ---- Copies (copies.cpp) ----

Result copy_memory(void *to, const void *from, uint64_t size, void *stream, bool wait, bool driver);
Result fill_memory(void *at, uint64_t value, int width, uint64_t count, void *stream, bool wait);

// ---- Leaks (books.cpp) ----

struct Leak {
  std::string kind, owner;
  uint64_t count = 0, bytes = 0;
  bool by_design = false;
};
using Leaks = std::map<std::pair<std::string, std::string>, Leak>;
void memory_leaks(Context *, Leaks *, Lock &);  // nullptr for all contexts
void stream_leaks(Context *, Leaks *, Lock &);
void event_leaks(Context *, Leaks *, Lock &);
void module_leaks(Context *, Leaks *, Lock &);
void pool_leaks(Context *, Leaks *, Lock &);
void virtual_leaks(Context *, Leaks *, Lock &);
void graph_leaks(Leaks *, Lock &);
void add_leak(Leaks *, const char *kind, const std::string &owner, uint64_t bytes);
void note_context_leaks(const Leaks &);  // of a context that was destroyed
void report_now(Lock &);                 // writes the report in its present state
// Destroying a context destroys everything in it.
void drop_context_things(Context *, Lock &);
void memory_drop(Context *, Lock &), streams_drop(Context *, Lock &), events_drop(Context *, Lock &),
    modules_drop(Context *, Lock &), pools_drop(Context *, Lock &), virtual_drop(Context *, Lock &);

extern std::atomic<uint64_t> launches, copies, copied_bytes, allocations, waits;

// ---- Errors (errors.cpp) ----

Result keep_error(Result);  // remembers it as the runtime's last error of this thread, and returns it
const char *error_name(Result, bool driver);
const char *error_text(Result);

void faults_reset();
void inject(const char *function, long n, Result answer);
uint64_t calls_of(const char *function);
std::map<std::string, uint64_t> all_calls();
uint64_t board_peak(int device);
void books_reset();
void ipc_forget(uintptr_t at);
void recover();  // clears the device's error, as destroying a context does

}  // namespace standin

// Begins a function of the runtime, whose errors cudaGetLastError returns.
#define STANDIN_ENTER_RUNTIME()                                                         \
  do {                                                                                  \
    if (::standin::Result r_ = ::standin::enter(__func__, __builtin_return_address(0))) \
      return ::standin::keep_error(r_);                                                 \
  } while (0)
#define STANDIN_QUERY()                                               \
  do {                                                                \
    if (::standin::Result r_ = ::standin::query(__func__)) return r_; \
  } while (0)
