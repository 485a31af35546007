// NCCL: communicators whose ranks are processes on this machine, or devices of one process.
//
// The problem: torch.distributed has to work on the stand-in as it does on GPUs. So collectives compute, as work of the stream that
// they are given, whenever that stream gets to them; every rank may run its work at another moment; misuse and death end in an
// error, and nothing hangs.
//
// The way chosen: ranks meet in shared memory (nccl_team.cpp), and each collective is a number of rounds. In a round every rank shows
// what it is about to do and up to 2 MiB of its data. Everybody compares, and computes its own result from what all have shown, in
// the order of the ranks (nccl_reduce.cpp). With n ranks and b bytes an all-reduce copies b bytes and reads n·b on each rank. A ring
// would read 2b, but rounds are simple, and a test has few ranks. Sends and receives go through pipes and need no meeting.
//
// Late streams: a rank that reaches its collective early waits for ranks whose host thread may be anywhere, perhaps waiting for
// something that only the first rank can give. A GPU would just go on. So each communicator that has work outstanding keeps a thread,
// which sleeps until another rank has waited for 100 ms and then finishes this rank's oldest call. Waiting ranks do not run other
// work of their process meanwhile (a collective of another communicator would then be on top of this one on the stack, and two
// ranks that nest two communicators in different order never end); that thread, one for each communicator, does.
//
// Several communicators of one process in one group (a process that drives several devices) are run by a thread each.
//
// What the documentation says of an error code is kept: misuse is ncclInvalidUsage or ncclInvalidArgument, a rank that is gone is
// ncclRemoteError, found by ncclCommGetAsyncError; the work that could not be done leaves its output as it was, and the
// communicator answers every later call with its error.
//
// Sources: NVIDIA's NCCL user guide (API, types, error codes, group semantics).
#include "nccl.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "standin.h"

extern "C" int cudaSetDevice(int device);
extern "C" int cudaMalloc(void **p, size_t size);
extern "C" int cudaFree(void *p);

namespace standin {
namespace nccl {
namespace {

std::mutex communicators_mutex;
std::map<void *, Handle> &communicators() {
  static auto *m = new std::map<void *, Handle>;  // outlives everything, as threads may ask until the end
  return *m;
}

thread_local int group_depth = 0;
thread_local std::vector<Call> group;
thread_local std::vector<std::function<int()>> group_joins;
thread_local std::string last_error;

int complain(Status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int complain(Status status, const char *format, ...) {
  char text[512];
  va_list a;
  va_start(a, format);
  vsnprintf(text, sizeof text, format, a);
  va_end(a);
  last_error = text;
  if (status == kInvalidUsage || status == kInvalidArgument) violate("%s", text);
  return status;
}

// What a call has to answer at once: an injected failure as it is, a lost device as NCCL says it.
int enter_call(const char *function, const void *caller) {
  int e = enter(function, caller);
  if (!e) return kOk;
  last_error = std::string(function) + ": CUDA error " + std::to_string(e);
  return e > 7 ? kCudaError : e;
}

#define NCCL_ENTER()                                                                       \
  do {                                                                                     \
    if (int r_ = ::standin::nccl::enter_call(__func__, __builtin_return_address(0))) return r_; \
  } while (0)

Handle find(void *handle, const char *function) {
  std::lock_guard<std::mutex> l(communicators_mutex);
  auto i = communicators().find(handle);
  if (i != communicators().end()) return i->second;
  complain(kInvalidArgument, "%s: %p is no communicator, or one that was destroyed", function, handle);
  return nullptr;
}

void *add(const Handle &c) {
  std::lock_guard<std::mutex> l(communicators_mutex);
  communicators()[c.get()] = c;
  return c.get();
}

void remove(void *handle) {
  std::lock_guard<std::mutex> l(communicators_mutex);
  communicators().erase(handle);
}

// ---- Calls become work ----

// pump finishes a communicator's oldest call whenever another rank waits for it, until nothing is outstanding.
void pump(Handle comm) {
  for (;;) {
    bool asked = comm->team->plea();
    Ticket oldest;
    {
      std::lock_guard<std::mutex> l(comm->mutex);
      while (!comm->outstanding.empty() && finished(comm->outstanding.front())) comm->outstanding.pop_front();
      if (comm->outstanding.empty() || comm->ended) {
        comm->pumped = false;
        return;
      }
      oldest = comm->outstanding.front();
    }
    if (asked) finish(oldest);
  }
}

void issue(const Handle &comm, void *stream, std::vector<Call> calls) {
  size_t bytes = 0;
  const char *what = calls.front().function;
  for (const Call &c : calls) bytes += c.count * type_size(c.type);
  const Card &model = card(comm->device);
  double rate = model.nvlinks ? 25.0 * model.nvlinks : model.link_rate;  // NVLink: 25 GB/s a link and direction
  count("nccl_bytes", bytes);
  // A program may use several streams. The calls of a communicator are done in the order in which they were made.
  std::lock_guard<std::mutex> one_at_a_time(comm->issuing);
  auto work = [comm, calls = std::move(calls)] { run(comm, calls); };
  Ticket t = enqueue(stream, std::move(work), what, uint64_t(double(bytes) / rate), comm->last);
  comm->last = t;
  if (!t.stream || finished(t)) return;
  std::lock_guard<std::mutex> l(comm->mutex);
  comm->outstanding.push_back(t);
  if (comm->pumped) return;
  comm->pumped = true;
  std::thread(pump, comm).detach();
}

// on_device runs f with another current device.
template <typename F>
void on_device(int wanted, F f) {
  int before = device();
  if (before != wanted) cudaSetDevice(wanted);
  f();
  if (before != wanted) cudaSetDevice(before);
}

// each runs the functions at the same time, one of them here.
void each(std::vector<std::function<void()>> functions) {
  WithoutInterpreterLock unlocked;
  std::vector<std::thread> threads;
  for (size_t i = 1; i < functions.size(); i++) threads.emplace_back(functions[i]);
  if (!functions.empty()) functions[0]();
  for (auto &t : threads) t.join();
}

int end_group() {
  std::vector<Call> calls = std::move(group);
  std::vector<std::function<int()>> joins = std::move(group_joins);
  group.clear(), group_joins.clear();
  std::atomic<int> status{kOk};
  std::vector<std::function<void()>> work;
  for (auto &j : joins)
    work.push_back([&] {
      if (int e = j()) status = e;
    });
  each(std::move(work));
  if (status) return status;
  // All calls of a communicator on one stream are one piece of work: a send must not wait for a receive of the same group.
  std::vector<std::pair<Handle, std::map<void *, std::vector<Call>>>> by_communicator;
  for (Call &c : calls) {
    size_t i = 0;
    while (i < by_communicator.size() && by_communicator[i].first != c.communicator) i++;
    if (i == by_communicator.size()) by_communicator.push_back({c.communicator, {}});
    by_communicator[i].second[c.stream].push_back(c);
  }
  std::vector<std::function<void()>> issues;
  for (auto &entry : by_communicator)
    issues.push_back([&entry] {
      on_device(entry.first->device, [&] {
        for (auto &s : entry.second) issue(entry.first, s.first, std::move(s.second));
      });
    });
  each(std::move(issues));
  return kOk;
}

int submit(Call c, void *handle) {
  c.communicator = find(handle, c.function);
  if (!c.communicator) return kInvalidArgument;
  Communicator &comm = *c.communicator;
  if (int e = comm.status) {
    std::lock_guard<std::mutex> l(comm.mutex);
    last_error = comm.error;
    return e;
  }
  Team &team = *comm.team;
  if (!type_size(c.type)) return complain(kInvalidArgument, "%s: data type %d does not exist", c.function, c.type);
  if (c.root >= team.ranks() || c.root < -1)
    return complain(kInvalidArgument, "%s: rank %d of %d", c.function, c.root, team.ranks());
  if (!is_stream(c.stream)) return complain(kInvalidArgument, "%s: %p is no stream", c.function, c.stream);
  if (shape(c.kind).reduces && c.operation > kAverage) {
    std::lock_guard<std::mutex> l(comm.mutex);
    size_t i = size_t(c.operation) - kScaledSum;
    if (i >= comm.scaled.size() || !comm.scaled[i].used)
      return complain(kInvalidArgument, "%s: reduction %d does not exist", c.function, c.operation);
    if (comm.scaled[i].type != c.type)
      return complain(kInvalidArgument, "%s: the reduction was made for %s, not for %s", c.function, type_name(comm.scaled[i].type),
                      type_name(c.type));
    c.scaled = comm.scaled[i];
    c.operation = kScaledSum;
  }
  if (shape(c.kind).reduces && c.operation < 0) return complain(kInvalidArgument, "%s: reduction %d", c.function, c.operation);
  if (const char *which = missing_buffer(c, team); *which)
    return complain(kInvalidArgument, "%s: its %s buffer is not %zu × %s of device memory", c.function, which, c.count, type_name(c.type));
  group.push_back(std::move(c));
  return group_depth ? int(kOk) : end_group();
}

Call call(Kind kind, const char *function, const void *send, void *receive, size_t count, int type, void *stream) {
  Call c{};
  c.kind = kind, c.function = function, c.send = send, c.receive = receive, c.count = count, c.type = type, c.stream = stream;
  c.operation = c.root = -1;
  return c;
}

// join makes a communicator, at once or when the group ends.
int join(void **out, int ranks, const Invitation &id, int rank, int device) {
  auto comm = std::make_shared<Communicator>();
  comm->device = device;
  auto meet = [comm, ranks, id, rank]() -> int {
    std::string error;
    Status s = Team::join(id, rank, ranks, &comm->team, &error);
    if (s) {
      last_error = error;
      set_error(*comm, s, error);
    }
    return s;
  };
  if (group_depth) {
    *out = add(comm);
    group_joins.push_back(meet);
    return kOk;
  }
  WithoutInterpreterLock unlocked;
  int s = meet();
  *out = s ? nullptr : add(comm);
  return s;
}

// The version of the library that the stand-in hides.
int hidden_version() {
  static int version = [] {
    int v = 0;
    if (void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD)) {
      if (auto f = reinterpret_cast<int (*)(int *)>(dlsym(library, "ncclGetVersion"))) f(&v);
      dlclose(library);
    }
    return v ? v : 22707;
  }();
  return version;
}

// drain waits until nothing of a communicator is outstanding.
void drain(const Handle &comm) {
  WithoutInterpreterLock unlocked;
  std::deque<Ticket> outstanding;
  {
    std::lock_guard<std::mutex> l(comm->mutex);
    outstanding = comm->outstanding;
  }
  for (auto &t : outstanding) finish(t);
}

}  // namespace
}  // namespace nccl
}  // namespace standin

using namespace standin;
using namespace standin::nccl;

// ---- Communicators ----

STANDIN_API int ncclGetVersion(int *version) {
  if (!version) return kInvalidArgument;
  *version = hidden_version();
  return kOk;
}

STANDIN_API int ncclGetUniqueId(Invitation *id) {
  NCCL_ENTER();
  return Team::invite(id, &last_error);
}

STANDIN_API int ncclCommInitRank(void **comm, int ranks, Invitation id, int rank) {
  NCCL_ENTER();
  return join(comm, ranks, id, rank, device());
}

STANDIN_API int ncclCommInitRankConfig(void **comm, int ranks, Invitation id, int rank, void *) {
  NCCL_ENTER();
  return join(comm, ranks, id, rank, device());
}

STANDIN_API int ncclCommInitRankScalable(void **comm, int ranks, int rank, int, Invitation *ids, void *) {
  NCCL_ENTER();
  return join(comm, ranks, ids[0], rank, device());
}

STANDIN_API int ncclCommInitAll(void **comms, int n, const int *list) {
  NCCL_ENTER();
  if (!comms || n < 1 || n > devices()) return complain(kInvalidArgument, "ncclCommInitAll: %d of %d devices", n, devices());
  Invitation id;
  if (Status s = Team::invite(&id, &last_error)) return s;
  group_depth++;
  for (int i = 0; i < n; i++) join(&comms[i], n, id, i, list ? list[i] : i);
  return --group_depth ? int(kOk) : end_group();
}

// Ranks of one color become a communicator, in the order of their keys and, for equal keys, of their ranks.
STANDIN_API int ncclCommSplit(void *handle, int color, int key, void **out, void *) {
  NCCL_ENTER();
  Handle comm = find(handle, __func__);
  if (!comm || !out) return kInvalidArgument;
  if (int e = comm->status) return e;
  WithoutInterpreterLock unlocked;
  Team &team = *comm->team;
  struct Choice {
    int color, key;
    Invitation id;
  };
  auto show = [&](const Choice &c) {
    memcpy(team.payload(kCall), &c, sizeof c);
    return team.meet(kCall);
  };
  auto shown = [&](int r) { return reinterpret_cast<const Choice *>(team.payload_of(kCall, r)); };
  Choice mine{color, key, {}};
  if (Status s = show(mine)) return set_error(*comm, s, team.error()), s;
  std::vector<std::pair<int, int>> members;
  for (int r = 0; r < team.ranks(); r++)
    if (shown(r)->color == color) members.push_back({shown(r)->key, r});
  std::sort(members.begin(), members.end());
  int leader = members[0].second, rank = 0;
  while (members[size_t(rank)].second != team.rank()) rank++;
  if (color >= 0 && leader == team.rank())
    if (Status s = Team::invite(&mine.id, &last_error)) return s;
  if (Status s = show(mine)) return set_error(*comm, s, team.error()), s;
  *out = nullptr;
  if (color < 0) return kOk;  // NCCL_SPLIT_NOCOLOR
  Invitation id = shown(leader)->id;
  return join(out, int(members.size()), id, rank, comm->device);
}

STANDIN_API int ncclCommFinalize(void *handle) {
  NCCL_ENTER();
  Handle comm = find(handle, __func__);
  if (!comm) return kInvalidArgument;
  drain(comm);
  return kOk;
}

STANDIN_API int ncclCommDestroy(void *handle) {
  NCCL_ENTER();
  Handle comm = find(handle, __func__);
  if (!comm) return kInvalidArgument;
  drain(comm);
  remove(handle);
  std::lock_guard<std::mutex> l(comm->mutex);
  comm->ended = true;
  if (comm->team) comm->team->leave();
  return kOk;
}

STANDIN_API int ncclCommAbort(void *handle) {
  query(__func__);  // a lost device must not keep a program from ending
  Handle comm = find(handle, __func__);
  if (!comm) return kInvalidArgument;
  set_error(*comm, kRemoteError, "the communicator was aborted");
  if (comm->team) comm->team->abandon();
  remove(handle);
  std::lock_guard<std::mutex> l(comm->mutex);
  comm->ended = true;
  return kOk;
}

STANDIN_API int ncclCommGetAsyncError(void *handle, int *status) {
  Handle comm = find(handle, __func__);
  if (!comm || !status) return kInvalidArgument;
  *status = comm->status;
  if (*status == kOk && lost()) *status = kCudaError;
  return kOk;
}

STANDIN_API int ncclCommCount(void *handle, int *count) {
  Handle comm = find(handle, __func__);
  if (!comm || !count || !comm->team) return kInvalidArgument;
  *count = comm->team->ranks();
  return kOk;
}

STANDIN_API int ncclCommUserRank(void *handle, int *rank) {
  Handle comm = find(handle, __func__);
  if (!comm || !rank || !comm->team) return kInvalidArgument;
  *rank = comm->team->rank();
  return kOk;
}

STANDIN_API int ncclCommCuDevice(void *handle, int *device) {
  Handle comm = find(handle, __func__);
  if (!comm || !device) return kInvalidArgument;
  *device = comm->device;
  return kOk;
}

STANDIN_API const char *ncclGetErrorString(int status) {
  static const char *const texts[] = {"no error",       "unhandled cuda error", "unhandled system error",
                                      "internal error", "invalid argument",     "invalid usage",
                                      "remote process exited or there was a network error", "NCCL operation in progress"};
  return status >= 0 && status < 8 ? texts[status] : "unknown result code";
}

STANDIN_API const char *ncclGetLastError(void *handle) {
  static thread_local std::string text;
  text = last_error;
  std::lock_guard<std::mutex> l(communicators_mutex);
  auto i = communicators().find(handle);
  if (i != communicators().end() && i->second->status) {
    std::lock_guard<std::mutex> m(i->second->mutex);
    text = i->second->error;
  }
  return text.c_str();
}

// ---- Groups ----

STANDIN_API int ncclGroupStart(void) {
  NCCL_ENTER();
  group_depth++;
  return kOk;
}

STANDIN_API int ncclGroupEnd(void) {
  NCCL_ENTER();
  if (!group_depth) return complain(kInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return --group_depth ? int(kOk) : end_group();
}

// ---- Collectives ----

STANDIN_API int ncclAllReduce(const void *send, void *receive, size_t n, int type, int op, void *comm, void *stream) {
  NCCL_ENTER();
  Call c = call(Kind::kAllReduce, __func__, send, receive, n, type, stream);
  c.operation = op;
  return submit(c, comm);
}

STANDIN_API int ncclReduce(const void *send, void *receive, size_t n, int type, int op, int root, void *comm, void *stream) {
  NCCL_ENTER();
  Call c = call(Kind::kReduce, __func__, send, receive, n, type, stream);
  c.operation = op, c.root = root;
  return submit(c, comm);
}

STANDIN_API int ncclReduceScatter(const void *send, void *receive, size_t n, int type, int op, void *comm, void *stream) {
  NCCL_ENTER();
  Call c = call(Kind::kReduceScatter, __func__, send, receive, n, type, stream);
  c.operation = op;
  return submit(c, comm);
}

STANDIN_API int ncclBroadcast(const void *send, void *receive, size_t n, int type, int root, void *comm, void *stream) {
  NCCL_ENTER();
  Call c = call(Kind::kBroadcast, __func__, send, receive, n, type, stream);
  c.root = root;
  return submit(c, comm);
}

STANDIN_API int ncclBcast(void *buffer, size_t n, int type, int root, void *comm, void *stream) {
  NCCL_ENTER();
  Call c = call(Kind::kBroadcast, "ncclBroadcast", buffer, buffer, n, type, stream);
  c.root = root;
  return submit(c, comm);
}

STANDIN_API int ncclAllGather(const void *send, void *receive, size_t n, int type, void *comm, void *stream) {
  NCCL_ENTER();
  return submit(call(Kind::kAllGather, __func__, send, receive, n, type, stream), comm);
}

STANDIN_API int ncclAlltoAll(const void *send, void *receive, size_t n, int type, void *comm, void *stream) {
  NCCL_ENTER();
  return submit(call(Kind::kAllToAll, __func__, send, receive, n, type, stream), comm);
}

STANDIN_API int ncclGather(const void *send, void *receive, size_t n, int type, int root, void *comm, void *stream) {
  NCCL_ENTER();
  Call c = call(Kind::kGather, __func__, send, receive, n, type, stream);
  c.root = root;
  return submit(c, comm);
}

STANDIN_API int ncclScatter(const void *send, void *receive, size_t n, int type, int root, void *comm, void *stream) {
  NCCL_ENTER();
  Call c = call(Kind::kScatter, __func__, send, receive, n, type, stream);
  c.root = root;
  return submit(c, comm);
}

STANDIN_API int ncclSend(const void *send, size_t n, int type, int peer, void *comm, void *stream) {
  NCCL_ENTER();
  Call c = call(Kind::kSend, __func__, send, nullptr, n, type, stream);
  c.root = peer;
  return submit(c, comm);
}

STANDIN_API int ncclRecv(void *receive, size_t n, int type, int peer, void *comm, void *stream) {
  NCCL_ENTER();
  Call c = call(Kind::kReceive, __func__, nullptr, receive, n, type, stream);
  c.root = peer;
  return submit(c, comm);
}

// ---- Reductions with a factor ----

STANDIN_API int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, void *handle) {
  NCCL_ENTER();
  Handle comm = find(handle, __func__);
  if (!comm || !op || !scalar || !type_size(type)) return kInvalidArgument;
  Scaled s{type, 1, nullptr, true};
  if (residence == 0) {  // ncclScalarDevice
    s.pointer = scalar;
  } else {
    s.factor = load(type, scalar);
  }
  std::lock_guard<std::mutex> l(comm->mutex);
  size_t i = 0;
  while (i < comm->scaled.size() && comm->scaled[i].used) i++;
  if (i == comm->scaled.size()) comm->scaled.push_back(s);
  comm->scaled[i] = s;
  *op = int(kScaledSum + i);
  return kOk;
}

STANDIN_API int ncclRedOpDestroy(int op, void *handle) {
  NCCL_ENTER();
  Handle comm = find(handle, __func__);
  if (!comm) return kInvalidArgument;
  std::lock_guard<std::mutex> l(comm->mutex);
  if (op < kScaledSum || size_t(op - kScaledSum) >= comm->scaled.size())
    return complain(kInvalidArgument, "ncclRedOpDestroy: reduction %d does not exist", op);
  comm->scaled[size_t(op - kScaledSum)].used = false;
  return kOk;
}

// ---- Memory: plain device memory, and registrations that change nothing ----

STANDIN_API int ncclMemAlloc(void **p, size_t size) {
  NCCL_ENTER();
  return cudaMalloc(p, size) ? int(kCudaError) : int(kOk);
}

STANDIN_API int ncclMemFree(void *p) {
  NCCL_ENTER();
  return cudaFree(p) ? int(kCudaError) : int(kOk);
}

STANDIN_API int ncclCommRegister(void *comm, void *buffer, size_t, void **handle) {
  NCCL_ENTER();
  if (!find(comm, __func__) || !handle) return kInvalidArgument;
  *handle = buffer;
  return kOk;
}

STANDIN_API int ncclCommDeregister(void *comm, void *) {
  NCCL_ENTER();
  return find(comm, __func__) ? int(kOk) : int(kInvalidArgument);
}
