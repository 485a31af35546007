// NCCL: communicators whose ranks are processes on this machine, or devices of one process.
//
// The problem: torch.distributed has to work on the stand-in as it does on GPUs. So collectives really
// compute. They are work of the stream that they are given to and run when that stream reaches them, at a
// different moment on each rank. Misuse and dead ranks end in an error, and nothing hangs.
//
// The solution: ranks meet in shared memory (nccl_team.cpp), and each collective is a number of rounds. In a
// round every rank shows what it is about to do and up to 2 MiB of its data. Each rank compares, and computes
// its own result from what all have shown, in the order of the ranks (nccl_reduce.cpp). With n ranks and b
// bytes an all-reduce copies b bytes and reads n·b on each rank. A ring would read 2b, but rounds are simple,
// and a test has few ranks. Sends and receives go through pipes and need no meeting.
//
// Late streams: a rank that reaches its collective early waits for ranks whose host threads may be anywhere,
// perhaps waiting for something that only the first rank can give. A GPU would just go on. So each
// communicator with outstanding work keeps a thread, which sleeps until another rank has waited for 100 ms
// and then finishes this rank's oldest call. A waiting rank does not run its process's other work itself: a
// collective of another communicator would then sit on top of this one on the stack, and two ranks that nest
// two communicators in different orders would wait for ever. The threads, one for each communicator, run it.
//
// The calls of a communicator are done in the order in which they were made, whatever their streams: FSDP2
// gathers on one stream and reduces on another, and ranks may reach the two in different orders.
//
// If a group has several communicators of one process (which drives several devices), each runs in a thread.
//
// Device memory: a communicator takes STANDIN_NCCL of its device, nothing unless set. The report calls it
// inferred.
//
// Error codes follow the documentation: misuse is ncclInvalidUsage or ncclInvalidArgument; a rank that is
// gone is ncclRemoteError, found by ncclCommGetAsyncError. Work that could not be done leaves its output
// unchanged, and the communicator answers every later call with its error.
//
// Sources: NVIDIA's NCCL user guide (API, types, error codes, group semantics).
#include "nccl.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "standin.h"

namespace standin {
namespace nccl {
namespace {

thread_local int group_depth = 0;
thread_local std::vector<Call> group;
thread_local std::vector<std::function<int()>> group_joins;

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

// each runs the functions at the same time, one of them on this thread.
void each(std::vector<std::function<void()>> functions) {
  WithoutInterpreterLock unlocked;
  std::vector<std::thread> threads;
  for (size_t i = 1; i < functions.size(); i++) threads.emplace_back(functions[i]);
  if (!functions.empty()) functions[0]();
  for (auto &t : threads) t.join();
}

int do_group() {
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
    set_last_error(comm.error);
    return e;
  }
  if (!comm.team) return complain(kInvalidUsage, "%s: the group that makes the communicator has not ended", c.function);
  Team &team = *comm.team;
  if (!type_size(c.type)) return complain(kInvalidArgument, "%s: data type %d does not exist", c.function, c.type);
  if (c.root >= team.ranks() || c.root < -1)
    return complain(kInvalidArgument, "%s: rank %d of %d", c.function, c.root, team.ranks());
  if (!is_stream(c.stream)) return complain(kInvalidArgument, "%s: %p is not a stream", c.function, c.stream);
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
  return group_depth ? int(kOk) : do_group();
}

Call call(Kind kind, const char *function, const void *send, void *receive, size_t count, int type, void *stream) {
  Call c{};
  c.kind = kind, c.function = function, c.send = send, c.receive = receive, c.count = count, c.type = type, c.stream = stream;
  c.operation = c.root = -1;
  return c;
}

}  // namespace

bool in_group() { return group_depth > 0; }
void join_with_group(std::function<int()> join) { group_joins.push_back(std::move(join)); }
void start_group() { group_depth++; }
int end_group() { return --group_depth ? int(kOk) : do_group(); }

}  // namespace nccl
}  // namespace standin

using namespace standin;
using namespace standin::nccl;

// ---- Groups ----

STANDIN_API int ncclGroupStart(void) {
  NCCL_ENTER();
  start_group();
  return kOk;
}

STANDIN_API int ncclGroupEnd(void) {
  NCCL_ENTER();
  if (!group_depth) return complain(kInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return end_group();
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
