// What the files of the NCCL stand-in share. nccl.cpp has the API and says how the parts fit together.
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

// ncclResult_t, numbered as NCCL's documentation numbers it.
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

// The bytes of an element of an ncclDataType_t, 0 for a type that does not exist.
size_t type_size(int type);
const char *type_name(int type);

// How elements are put together: ncclRedOp_t, and what ncclRedOpCreatePreMulSum adds.
enum Operation : int { kSum = 0, kProduct = 1, kMaximum = 2, kMinimum = 3, kAverage = 4, kScaledSum = 5 };

// reduce puts the i-th elements of all inputs together, in the order of the inputs, for i below count. factors has one factor for
// each input, for kScaledSum. out may be one of the inputs.
void reduce(int type, Operation operation, const std::vector<const void *> &inputs, const std::vector<double> &factors,
            void *out, size_t count);
double load(int type, const void *element);

// ---- Where the ranks of a communicator meet (nccl_team.cpp) ----

// Which of a rank's two threads of control is meant: its stream's work, or its program's calls.
enum Lane : int { kStream = 0, kCall = 1, kLanes = 2 };

// What a rank is about to do. Every rank of a communicator has to do the same.
struct Deed {
  char function[24];
  int32_t type = -1;
  int32_t operation = -1;
  int32_t root = -1;
  uint64_t count = 0;
  double factor = 1;  // differs between ranks
};

// A ticket to a team that anybody may draw and hand to others, by whatever means. 128 bytes, as ncclUniqueId.
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

  // meet shows this rank's deed and payload to the others and waits until all ranks have shown theirs for the same round. What
  // peer and payload return for a rank is valid until this rank's next call of meet in that lane.
  Status meet(Lane lane);
  Deed &deed(Lane lane);              // to be filled before meet
  char *payload(Lane lane);           // likewise, payload_bytes() at most
  const Deed &deed_of(Lane lane, int rank) const;
  const char *payload_of(Lane lane, int rank) const;
  size_t payload_bytes(Lane lane) const;

  // A pipe carries messages from one rank to another. put and take move what fits now, and return how much that was.
  size_t put(int to, const void *bytes, size_t size);
  size_t take(int from, void *bytes, size_t size);
  // pause waits a while for any of the other ranks to do something, peer above all. tick is what clock() returned before the caller
  // looked; since is 0 at first, and then when nobody had done anything for the first time. It fails when peer cannot come any more, or
  // patience is at its end.
  uint32_t clock() const;
  Status pause(uint32_t tick, int peer, double *since);

  // leave says that this rank does nothing any more. abandon ends its waiting at once.
  void leave();
  void abandon();
  bool abandoned() const;
  // plea waits until another rank has waited for a while, or for a second, and reports whether one has.
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

// Who shows data to the others, and how many parts of count elements it has.
struct Shape {
  bool only_root_sends, only_root_receives;
  bool part_for_each_rank;  // the data sent has a part for each rank
  bool part_of_each_rank;   // the data received has
  bool reduces;
};

Shape shape(Kind k);

// A reduction with a factor of its own: ncclRedOpCreatePreMulSum.
struct Scaled {
  int type;
  double factor;
  const void *pointer;  // in device memory, read when the work is done; nullptr for a factor that is known
  bool used;
};

struct Communicator {
  std::shared_ptr<Team> team;  // none until it is joined
  int device = 0;
  void *buffers = nullptr;     // device memory that NCCL takes for itself
  std::atomic<int> status{kOk};
  std::mutex issuing;  // of the next; held while a call is given to its stream
  Ticket last;         // of the newest call
  std::mutex mutex;    // of what follows
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
// run does the calls of one group on one stream, as work of that stream. It returns when they are done or the communicator failed.
void run(const Handle &communicator, const std::vector<Call> &calls);

// ---- Communicators (nccl_communicators.cpp) ----

// complain keeps the text for ncclGetLastError and returns status. Misuse is a violation as well.
int complain(Status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
void set_last_error(const std::string &text);
// enter_call returns what a call has to answer at once: an injected failure as it is, a lost device as NCCL says it; or kOk.
int enter_call(const char *function, const void *caller);
// find returns the communicator behind a pointer, or none after a complaint.
Handle find(void *handle, const char *function);

#define NCCL_ENTER()                                                                       \
  do {                                                                                     \
    if (int r_ = ::standin::nccl::enter_call(__func__, __builtin_return_address(0))) return r_; \
  } while (0)

// ---- Groups (nccl.cpp) ----

bool in_group();
void start_group();
int end_group();  // does what the group holds if it is the outermost
// join_with_group has a rank join its communicator when the group ends, at the same time as the others of the group.
void join_with_group(std::function<int()> join);

// on_device runs f with another current device.
template <typename F>
void on_device(int wanted, F f) {
  int before = device();
  if (before != wanted) cudaSetDevice(wanted);
  f();
  if (before != wanted) cudaSetDevice(before);
}

}  // namespace nccl
}  // namespace standin
