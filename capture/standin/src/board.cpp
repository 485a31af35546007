// The board: how much of each device every process holds.
//
// Processes on one stand-in machine share a file (STANDIN_BOARD) with one slot each. To take memory, a
// process locks the file, adds up what living processes hold, and checks that there is room. A killed process
// leaves its slot behind; the next process to look notices that its pid is gone or belongs to a process that
// started at another time. Taking memory costs one lock and a look at each used slot.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core.h"

namespace standin {

namespace {

struct Slot {
  int pid;
  uint64_t began;
  uint64_t used[kMaxDevices];
};

constexpr int kSlots = 256;
constexpr uint64_t kMagic = 0x3144524f424e4153;  // changes with the layout

struct Shared {
  uint64_t magic;
  Slot slots[kSlots];
};

struct Board {
  std::mutex mutex;
  int pid = 0;  // the process that opened it; a forked child opens the board again
  int file = -1;
  Shared *shared = nullptr;
  Slot *mine = nullptr;
  uint64_t peak[kMaxDevices] = {};
};

Board &board() {
  static auto *b = new Board;
  return *b;
}

// When a process started, in clock ticks since boot: field 22 of /proc/PID/stat.
uint64_t began(int pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char *p = strrchr(text, ')');
  for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
  return p ? strtoull(p + 1, nullptr, 10) : 0;
}

bool alive(const Slot &s) {
  if (!s.pid) return false;
  if (s.pid == getpid()) return true;
  if (kill(s.pid, 0) && errno == ESRCH) return false;
  uint64_t when = began(s.pid);
  return !when || when == s.began;
}

void open_board(Board &b) {
  if (b.shared && b.pid == getpid()) return;
  b.pid = getpid();
  b.mine = nullptr;
  std::string path = settings().board;
  if (path.empty()) path = "/dev/shm/standin-" + std::to_string(getuid());
  b.file = path == "private" ? -1 : open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (b.file >= 0 && ftruncate(b.file, sizeof(Shared)) == 0) {
    void *p = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, b.file, 0);
    b.shared = p == MAP_FAILED ? nullptr : static_cast<Shared *>(p);
  } else {
    if (path != "private")
      fprintf(stderr, "stand-in GPU: no board at %s (%s): other processes are not seen\n", path.c_str(),
              strerror(errno));
    b.shared = nullptr;
  }
  if (!b.shared) b.shared = new Shared();
  if (b.shared->magic != kMagic) {
    memset(static_cast<void *>(b.shared), 0, sizeof *b.shared);
    b.shared->magic = kMagic;
  }
}

// Holds the board's lock against other threads and processes.
class Held {
 public:
  explicit Held(Board &b) : board_(b), hold_(b.mutex) {
    open_board(b);
    if (b.file >= 0) flock(b.file, LOCK_EX);
  }
  ~Held() {
    if (board_.file >= 0) flock(board_.file, LOCK_UN);
  }

 private:
  Board &board_;
  std::lock_guard<std::mutex> hold_;
};

Slot *my_slot(Board &b) {
  if (b.mine) return b.mine;
  for (auto &s : b.shared->slots)
    if (!alive(s) || s.pid == getpid()) {
      memset(&s, 0, sizeof s);
      s.pid = getpid();
      s.began = began(s.pid);
      return b.mine = &s;
    }
  fprintf(stderr, "stand-in GPU: %d processes use the board: give each test its own with STANDIN_BOARD\n",
          kSlots);
  abort();
}

uint64_t sum(Board &b, int device) {
  uint64_t all = settings().others[device];
  for (auto &s : b.shared->slots)
    if (s.pid && s.used[device] && alive(s)) all += s.used[device];
  return all;
}

}  // namespace

bool take(int device, uint64_t bytes) {
  Board &b = board();
  Held hold(b);
  Slot *s = my_slot(b);
  uint64_t used = sum(b, device), total = memory_total(device);
  if (used > total || bytes > total - used) return false;
  s->used[device] += bytes;
  b.peak[device] = std::max(b.peak[device], s->used[device]);
  return true;
}

void give(int device, uint64_t bytes) {
  Board &b = board();
  Held hold(b);
  Slot *s = my_slot(b);
  s->used[device] -= std::min(bytes, s->used[device]);
}

uint64_t board_mine(int device) {
  Board &b = board();
  Held hold(b);
  return b.mine ? b.mine->used[device] : 0;
}

uint64_t board_peak(int device) {
  Board &b = board();
  Held hold(b);
  return b.peak[device];
}

uint64_t memory_used(int device) {
  Board &b = board();
  Held hold(b);
  return sum(b, device);
}

std::vector<Process> processes(int device) {
  Board &b = board();
  Held hold(b);
  std::vector<Process> all;
  for (auto &s : b.shared->slots)
    if (s.pid && s.used[device] && alive(s)) all.push_back({s.pid, s.used[device]});
  if (settings().others[device]) all.push_back({0, settings().others[device]});
  return all;
}

// Gives up this process's slot and closes the board, so that a test can go on with another.
void board_reset() {
  Board &b = board();
  std::lock_guard<std::mutex> hold(b.mutex);
  if (b.shared && b.pid == getpid() && b.mine) {
    if (b.file >= 0) flock(b.file, LOCK_EX);
    memset(b.mine, 0, sizeof *b.mine);
    if (b.file >= 0) flock(b.file, LOCK_UN);
  }
  b.mine = nullptr;
  if (b.shared && b.file >= 0)
    munmap(b.shared, sizeof(Shared));
  else
    delete b.shared;
  if (b.file >= 0) close(b.file);
  b.shared = nullptr;
  b.file = -1;
  memset(b.peak, 0, sizeof b.peak);
}

}  // namespace standin
