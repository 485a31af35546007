// Shared by the files of the NCCL stand-in. nccl.cpp has the API and says how the parts fit together.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "standin.h"

extern "C" int cudaSetDevice(int device);

namespace standin {
namespace nccl {

// ncclResult_t, with the numbers of NCCL's documentation.
enum Status : int {
  kOk = 0,
  kCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

// ---- Numbers (nccl_reduce.cpp) ----

// The size of an element of an ncclDataType_t in bytes, 0 for a type that does not exist.
size_t type_size(int type);
const char *type_name(int type);

// How elements are combined: ncclRedOp_t, and what ncclRedOpCreatePreMulSum adds.
enum Operation : int { kSum = 0, kProduct = 1, kMaximum = 2, kMinimum = 3, kAverage = 4, kScaledSum = 5 };

// reduce combines the i-th elements of all inputs, in the order of the inputs, for i below count. For
// kScaledSum, factors has one factor for each input. out may be one of the inputs.
void reduce(int type, Operation operation, const std::vector<const void *> &inputs, const std::vector<double> &factors,
            void *out, size_t count);
double load(int type, const void *element);

// ---- Where the ranks of a communicator meet (nccl_team.cpp) ----

// A rank's two threads of control: its stream's work, and its program's calls.
enum Lane : int { kStream = 0, kCall = 1, kLanes = 2 };

// What a rank is about to do. All ranks of a communicator must do the same.
struct Deed {
  char function[24];
  int32_t type = -1;
  int32_t operation = -1;
  int32_t root = -1;
  uint64_t count = 0;
  double factor = 1;  // may differ between ranks
};

// An invitation to a team, which a program may pass to others by any means. 128 bytes, like ncclUniqueId.
struct Invitation {
  char internal[128];
};

// One rank's place in a team of processes (or threads) that share memory.
class Team {
 public:
  // invite makes a new team without members.
  static Status invite(Invitation *invitation, std::string *error);
  // join takes a seat and waits until all seats are taken.
  static Status join(const Invitation &invitation, int rank, int ranks, std::shared_ptr<Team> *team, std::string *error);
  ~Team();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // meet shows this rank's deed and payload to the others and waits until all ranks have shown theirs for the
  // same round. What deed_of and payload_of return for a rank is valid until this rank's next call of meet in
  // that lane.
  Status meet(Lane lane);
  Deed &deed(Lane lane);              // fill this before meet
  char *payload(Lane lane);           // this too, with payload_bytes() at most
  const Deed &deed_of(Lane lane, int rank) const;
  const char *payload_of(Lane lane, int rank) const;
  size_t payload_bytes(Lane lane) const;

  // A pipe carries messages from one rank to another. put and take move what fits now and return how much.
  size_t put(int to, const void *bytes, size_t size);
  size_t take(int from, void *bytes, size_t size);
  // pause waits a while for another rank, mainly peer, to do something. tick is what clock() returned before
  // the caller looked. since is 0 at first; pause sets it to the time at which nothing had happened for the
  // first time. It fails when peer cannot come any more or patience runs out.
  uint32_t clock() const;
  Status pause(uint32_t tick, int peer, double *since);

  // leave tells the others that this rank will do nothing more. abandon ends its own waiting at once.
  void leave();
  void abandon();
  bool abandoned() const;
  // plea waits until another rank has waited too long, but at most a second, and reports whether one has.
  bool plea();

  // Why the last meet or pause failed.
  std::string error() const;

 private:
  struct Hall;
  Team() = default;
  Status fail(Status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
  bool gone(int rank) const;

  Hall *hall_ = nullptr;
  size_t size_ = 0;
  int rank_ = 0, ranks_ = 0;
  uint64_t round_[kLanes] = {1, 1};
  std::string error_;
};

// ---- Calls (nccl_work.cpp) ----

enum class Kind { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll, kGather, kScatter, kSend, kReceive };

// Which ranks show data, which get a result, and how many parts of count elements those have.
struct Shape {
  bool only_root_sends, only_root_receives;
  bool part_for_each_rank;  // the data sent has a part for each rank
  bool part_of_each_rank;   // the data received has
  bool reduces;
};

Shape shape(Kind k);

// A reduction with its own factor: ncclRedOpCreatePreMulSum.
struct Scaled {
  int type;
  double factor;
  const void *pointer;  // to the factor in device memory, read when the work is done; nullptr if it is known
  bool used;
};

struct Communicator {
  std::shared_ptr<Team> team;  // null until the rank has joined
  int device = 0;
  void *buffers = nullptr;     // device memory for NCCL itself
  std::atomic<int> status{kOk};
  std::mutex issuing;  // guards last; held while a call is given to its stream
  Ticket last;         // the newest call
  std::mutex mutex;    // guards the rest
  std::string error;
  std::vector<Scaled> scaled;
  std::deque<Ticket> outstanding;
  bool pumped = false;
  bool ended = false;
};
using Handle = std::shared_ptr<Communicator>;

struct Call {
  Kind kind;
  const char *function;
  const void *send;
  void *receive;
  size_t count;
  int type;
  int operation;
  int root;  // or the peer of a send or receive
  Handle communicator;
  void *stream;
  Scaled scaled;  // for kScaledSum
};

// set_error keeps a communicator's first error.
void set_error(Communicator &c, Status status, const std::string &text);
// The buffer of a call that is not device memory ("send" or "receive"), "" if both are.
const char *missing_buffer(const Call &c, const Team &team);
// run does the calls of one group on one stream, as work of that stream. It returns when they are done or the
// communicator has failed.
void run(const Handle &communicator, const std::vector<Call> &calls);

// ---- Communicators (nccl_communicators.cpp) ----

// complain keeps the text for ncclGetLastError and returns status. Misuse is also a violation.
int complain(Status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
void set_last_error(const std::string &text);
// enter_call counts a call. If it returns anything but kOk, the call must return that: an injected failure
// unchanged, or NCCL's error for a lost device.
int enter_call(const char *function, const void *caller);
// find returns the communicator that a pointer points to, or complains and returns null.
Handle find(void *handle, const char *function);

#define NCCL_ENTER()                                                                       \
  do {                                                                                     \
    if (int r_ = ::standin::nccl::enter_call(__func__, __builtin_return_address(0))) return r_; \
  } while (0)

// ---- Groups (nccl.cpp) ----

bool in_group();
void start_group();
int end_group();  // runs the group's calls if it is the outermost group
// join_with_group makes a rank join its communicator when the group ends, at the same time as the group's
// others.
void join_with_group(std::function<int()> join);

// on_device runs f with this device as the current one.
template <typename F>
void on_device(int wanted, F f) {
  int before = device();
  if (before != wanted) cudaSetDevice(wanted);
  f();
  if (before != wanted) cudaSetDevice(before);
}

}  // namespace nccl
}  // namespace standin
