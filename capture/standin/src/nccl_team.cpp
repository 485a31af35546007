// Where the ranks of a communicator meet: memory that their processes share.
//
// The problem: ranks in separate processes exchange data and wait for each other. None may hang when another
// dies, and nothing may be left behind, however they end.
//
// The memory is a file without a name (memfd). The process that makes the invitation makes it; the others
// open it through /proc/PID/fd, which the same user may do as long as that process lives. So the kernel frees
// it with its last user, even after a kill. A file in /dev/shm would stay behind; a socket that passes
// descriptors also needs a name, and a server.
//
// Ranks go in rounds. In each, a rank writes its deed and up to half of its slot of payload, publishes which
// round it has reached, and waits until all have reached it. Rounds use the two halves of a slot in turn. So
// writing for round k+2 overwrites what the rank wrote for round k, which nobody needs any more: all have
// reached round k+1. One wait a round is enough. Between pairs of ranks there are pipes (rings of bytes with
// one writer and one reader), so that a send need not wait for its receive.
//
// A waiting rank sleeps on a futex. It wakes up now and then to check that the ranks it waits for are alive:
// a process that has ended, is a zombie, or has a different start time from the one that took the seat will
// never come. A rank gives up after STANDIN_PATIENCE seconds (300) without progress on any rank.
#include "nccl.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "standin.h"

namespace standin {
namespace nccl {
namespace {

constexpr int kMaxRanks = 64;
constexpr uint64_t kMagic = 0x31304e4c4343u;  // of an invitation
constexpr size_t kSlot[kLanes] = {4 << 20, 64 << 10};
constexpr size_t kPipe = 1 << 20;
constexpr int kLookMs = 50;   // how often a waiting rank checks that the others are alive
constexpr int kPleaMs = 100;  // how long it waits before it asks them to hurry

// What an invitation holds.
struct Letter {
  uint64_t magic, nonce, start;
  int32_t pid, fd;
};

// When a process started, in clock ticks since boot; 0 if it does not exist or is a zombie.
uint64_t start_of(int pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char *p = strrchr(text, ')');  // the name before it may contain anything
  if (!p || p[1] == 0 || p[2] == 'Z' || p[2] == 'X') return 0;
  p += 2;
  for (int field = 3; field < 22; field++) {
    if (!(p = strchr(p, ' '))) return 0;
    p++;
  }
  return strtoull(p, nullptr, 10);
}

double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) / 1e9;
}

void sleep_on(std::atomic<uint32_t> *word, uint32_t value, int ms) {
  timespec t = {ms / 1000, (ms % 1000) * 1000000L};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &t, nullptr, 0);
}

void wake(std::atomic<uint32_t> *word) { syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0); }

double patience() {
  const char *s = setting("STANDIN_PATIENCE");
  double v = s && *s ? strtod(s, nullptr) : 0;
  return v > 0 ? v : 300;
}

size_t page(size_t n) { return (n + 4095) / 4096 * 4096; }

}  // namespace

// Seats, slots and pipes, in this order in one mapping. Pages that nobody has touched take no memory.
struct Team::Hall {
  enum State : uint32_t { kEmpty = 0, kSeated = 1, kLeft = 2 };
  struct Seat {
    std::atomic<uint32_t> state;
    std::atomic<int32_t> pid;  // 0 until start is known
    std::atomic<uint64_t> start;
    std::atomic<uint64_t> round[kLanes];
    std::atomic<uint32_t> abandoned;
    Deed deed[kLanes][2];
  };
  struct Pipe {
    std::atomic<uint64_t> written, read;
    char data[kPipe];
  };

  std::atomic<uint32_t> ranks;  // 0 until the first one joins
  std::atomic<uint32_t> tick;   // grows whenever a rank does something
  std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> pleas;
  Seat seats[kMaxRanks];

  static size_t slots_at() { return page(sizeof(Hall)); }
  static size_t pipes_at(int n) { return slots_at() + size_t(n) * (kSlot[kStream] + kSlot[kCall]); }
  static size_t bytes(int n) { return pipes_at(n) + size_t(n) * n * page(sizeof(Pipe)); }
  char *at(size_t offset) { return reinterpret_cast<char *>(this) + offset; }
  char *slot(int rank, Lane lane) {
    return at(slots_at() + size_t(rank) * (kSlot[kStream] + kSlot[kCall]) + (lane == kCall ? kSlot[kStream] : 0));
  }
  Pipe *pipe(int from, int to, int n) {
    return reinterpret_cast<Pipe *>(at(pipes_at(n) + (size_t(from) * n + to) * page(sizeof(Pipe))));
  }
  void stir() {
    tick.fetch_add(1);
    if (sleepers.load()) wake(&tick);
  }
};

Status Team::invite(Invitation *invitation, std::string *error) {
  memset(invitation, 0, sizeof *invitation);
  Letter t = {kMagic, 0, start_of(getpid()), getpid(), memfd_create("standin-nccl", MFD_CLOEXEC)};
  if (t.fd < 0 || getrandom(&t.nonce, sizeof t.nonce, 0) != sizeof t.nonce) {
    *error = std::string("cannot make the memory that ranks share: ") + strerror(errno);
    return kSystemError;
  }
  memcpy(invitation->internal, &t, sizeof t);
  return kOk;
}

Status Team::join(const Invitation &invitation, int rank, int ranks, std::shared_ptr<Team> *out, std::string *error) {
  Letter t;
  memcpy(&t, invitation.internal, sizeof t);
  char text[256];
  if (t.magic != kMagic) {
    *error = "this unique ID does not come from ncclGetUniqueId";
    return kInvalidArgument;
  }
  if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks) {
    snprintf(text, sizeof text, "rank %d of %d: the stand-in has ranks 0 to %d", rank, ranks, kMaxRanks - 1);
    *error = text;
    return kInvalidArgument;
  }
  snprintf(text, sizeof text, "/proc/%d/fd/%d", t.pid, t.fd);
  int fd = open(text, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    *error = std::string("cannot open the memory of rank 0: ") + strerror(errno) +
             "; its process has ended or belongs to another user";
    return kRemoteError;
  }
  size_t size = Hall::bytes(ranks);
  struct stat st;
  if (fstat(fd, &st) || (size_t(st.st_size) < size && ftruncate(fd, off_t(size)))) {
    *error = std::string("cannot size the memory that ranks share: ") + strerror(errno);
    close(fd);
    return kSystemError;
  }
  void *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  close(fd);
  if (p == MAP_FAILED) {
    *error = std::string("cannot map the memory that ranks share: ") + strerror(errno);
    return kSystemError;
  }
  std::shared_ptr<Team> team(new Team);
  team->hall_ = static_cast<Hall *>(p);
  team->size_ = size;
  team->rank_ = rank;
  team->ranks_ = ranks;
  uint32_t none = 0;
  if (!team->hall_->ranks.compare_exchange_strong(none, uint32_t(ranks)) && none != uint32_t(ranks)) {
    snprintf(text, sizeof text, "rank %d says that there are %d ranks, but another one said %u", rank, ranks, none);
    *error = text;
    violate("ncclCommInitRank: %s", text);
    return kInvalidUsage;
  }
  Hall::Seat &seat = team->hall_->seats[rank];
  uint32_t empty = Hall::kEmpty;
  if (!seat.state.compare_exchange_strong(empty, Hall::kSeated)) {
    snprintf(text, sizeof text, "two processes say that they are rank %d", rank);
    *error = text;
    violate("ncclCommInitRank: %s", text);
    return kInvalidUsage;
  }
  seat.start = start_of(getpid());
  seat.pid = getpid();
  Status s = team->meet(kCall);
  if (t.pid == getpid() && rank == 0) close(t.fd);  // by now all have opened it, or never will
  if (s != kOk) {
    *error = team->error();
    return s;
  }
  *out = team;
  return kOk;
}

Team::~Team() {
  if (!hall_) return;
  leave();
  munmap(hall_, size_);
}

Status Team::fail(Status status, const char *format, ...) {
  char text[512];
  va_list a;
  va_start(a, format);
  vsnprintf(text, sizeof text, format, a);
  va_end(a);
  error_ = text;
  return status;
}

std::string Team::error() const { return error_; }

bool Team::gone(int rank) const {
  const Hall::Seat &s = hall_->seats[rank];
  switch (s.state.load()) {
    case Hall::kEmpty: return false;  // not here yet: patience decides
    case Hall::kLeft: return true;
  }
  int pid = s.pid;
  return pid && start_of(pid) != s.start;
}

Deed &Team::deed(Lane lane) { return hall_->seats[rank_].deed[lane][round_[lane] & 1]; }
char *Team::payload(Lane lane) { return hall_->slot(rank_, lane) + (round_[lane] & 1) * kSlot[lane] / 2; }
size_t Team::payload_bytes(Lane lane) const { return kSlot[lane] / 2; }
// After meet, round_ is this rank's next round; the ranks have shown the one before.
const Deed &Team::deed_of(Lane lane, int rank) const { return hall_->seats[rank].deed[lane][(round_[lane] - 1) & 1]; }
const char *Team::payload_of(Lane lane, int rank) const {
  return hall_->slot(rank, lane) + ((round_[lane] - 1) & 1) * kSlot[lane] / 2;
}

Status Team::meet(Lane lane) {
  uint64_t k = round_[lane]++;
  hall_->seats[rank_].round[lane].store(k);
  hall_->stir();
  for (double since = 0;;) {
    uint32_t tick = clock();
    int missing = -1;
    for (int r = 0; r < ranks_ && missing < 0; r++)
      if (hall_->seats[r].round[lane].load() < k) missing = r;
    if (missing < 0) return kOk;
    if (Status s = pause(tick, missing, &since)) return s;
  }
}

uint32_t Team::clock() const { return hall_->tick.load(); }

Status Team::pause(uint32_t tick, int peer, double *since) {
  if (!*since) *since = seconds();
  if (abandoned()) return fail(kRemoteError, "the communicator of rank %d was aborted", rank_);
  hall_->sleepers.fetch_add(1);
  double until = seconds() + kPleaMs / 1e3;
  while (hall_->tick.load() == tick && seconds() < until && !abandoned()) sleep_on(&hall_->tick, tick, kLookMs);
  hall_->sleepers.fetch_sub(1);
  if (hall_->tick.load() != tick) {
    *since = 0;
    return kOk;
  }
  hall_->pleas.fetch_add(1);
  wake(&hall_->pleas);
  // A rank may have shown its last deed and left; it is missing only if nothing new has happened.
  if (gone(peer) && hall_->tick.load() == tick)
    return fail(kRemoteError, "rank %d waits for rank %d, which has ended or left the communicator", rank_, peer);
  if (seconds() - *since > patience())
    return fail(kSystemError, "rank %d has waited for rank %d for %.0f s (STANDIN_PATIENCE)", rank_, peer, patience());
  return kOk;
}

size_t Team::put(int to, const void *bytes, size_t size) {
  Hall::Pipe *p = hall_->pipe(rank_, to, ranks_);
  uint64_t w = p->written.load(), room = kPipe - (w - p->read.load());
  size_t n = size < room ? size : size_t(room), at = w % kPipe, first = n < kPipe - at ? n : kPipe - at;
  memcpy(p->data + at, bytes, first);
  memcpy(p->data, static_cast<const char *>(bytes) + first, n - first);
  if (n) p->written.store(w + n), hall_->stir();
  return n;
}

size_t Team::take(int from, void *bytes, size_t size) {
  Hall::Pipe *p = hall_->pipe(from, rank_, ranks_);
  uint64_t r = p->read.load(), there = p->written.load() - r;
  size_t n = size < there ? size : size_t(there), at = r % kPipe, first = n < kPipe - at ? n : kPipe - at;
  memcpy(bytes, p->data + at, first);
  memcpy(static_cast<char *>(bytes) + first, p->data, n - first);
  if (n) p->read.store(r + n), hall_->stir();
  return n;
}

void Team::leave() {
  Hall::Seat &s = hall_->seats[rank_];
  if (s.pid == getpid()) s.state.store(Hall::kLeft), hall_->stir();
}

void Team::abandon() {
  hall_->seats[rank_].abandoned.store(1);
  leave();
}

bool Team::abandoned() const { return hall_->seats[rank_].abandoned.load() != 0; }

bool Team::plea() {
  uint32_t before = hall_->pleas.load();
  sleep_on(&hall_->pleas, before, 1000);
  return hall_->pleas.load() != before;
}

}  // namespace nccl
}  // namespace standin
