// The stand-in GPU: what its parts use from each other.
//
// libstandin.so replaces NVIDIA's runtime, driver and libraries in a process that has no GPU. Device memory
// is host memory, copies and events are real, streams are queues of work, and kernels do nothing. Everything
// here runs on the program's own threads. Only NCCL starts threads: see nccl.cpp.
//
// Library files (cudnn.cpp, cublas.cpp, nccl.cpp, nvml.cpp) need this header only. The runtime and the driver
// also use core.h.
//
// Every exported function begins with STANDIN_ENTER or a call of enter(), which counts the call, makes it
// fail if a test asked for that, and returns the error of a lost device. Functions that only describe the
// machine begin with query() instead: they keep working when the device is lost, as on a real one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#define STANDIN_API extern "C" __attribute__((visibility("default")))

namespace standin {

// A cudaError_t or a CUresult. Where the two number an error differently, it is never returned here.
using Result = int;
enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeviceUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kMapFailed = 205,
  kAlreadyMapped = 208,
  kUncorrectableEcc = 214,
  kInvalidPtx = 218,
  kFileNotFound = 301,
  kOperatingSystem = 304,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kPeerAccessAlreadyEnabled = 704,
  kPeerAccessNotEnabled = 705,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kLaunchFailure = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
  kUnknown = 999,
};

constexpr uint64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;
constexpr int kMaxDevices = 16;

// ---- The machine (settings.cpp, cards.cpp) ----

// A card: what a program can ask about it. Sizes are bytes, clocks kHz, rates bytes per nanosecond (which is GB/s).
struct Card {
  const char *model;       // the name in STANDIN_MODEL
  const char *name;        // the name that the driver reports
  uint64_t memory;         // total memory, as cudaMemGetInfo reports it
  uint64_t reserved;       // what the driver reserves on top of that, as NVML reports it
  int major, minor;        // compute capability
  int processors;          // streaming multiprocessors
  int threads_per_processor;
  int blocks_per_processor;
  uint64_t shared_per_block_optin, shared_per_processor;
  uint64_t l2;
  int bus_width;           // bits
  int clock, memory_clock; // kHz
  double link_rate;        // copies between host and device
  double memory_rate;      // device memory
  int pcie_generation, pcie_width;
  int nvlinks;
  int power_watts;
};

int devices();                        // the number of devices
const Card &card(int device);         // all devices of a process are the same model
uint64_t memory_total(int device);    // STANDIN_MEMORY, or the card's
int driver_version();                 // such as 13020 for CUDA 13.2
bool ecc_errors();                    // STANDIN_ECC
void uuid(int device, unsigned char out[16]);
int pci_bus(int device);              // PCI addresses are 0000:BB:00.0
// A setting by its name, from the environment or set by a test in this process; nullptr if it is not set.
const char *setting(const char *name);
// A setting that is a size, such as 80GiB, in bytes.
uint64_t setting_size(const char *name, uint64_t otherwise);

// ---- How every call begins (faults.cpp) ----

// enter counts a call. If it returns an error, the call must return that and do nothing: an injected failure,
// or the error of a lost device. caller is the return address of the exported function; it tells which
// library owns what the call makes.
Result enter(const char *function, const void *caller = nullptr);
// query is enter for functions that only describe the machine: they fail if a test names them, but not
// because the device is lost.
Result query(const char *function);
// The library that made the call this thread is in, such as "libc10_cuda.so"; "" if unknown.
const char *caller_library();
// lose loses the device: from now on every call returns why.
void lose(Result why);
Result lost();

#define STANDIN_ENTER()                                                                      \
  do {                                                                                       \
    if (::standin::Result r_ = ::standin::enter(__func__, __builtin_return_address(0))) return r_; \
  } while (0)

// ---- The books (books.cpp) ----

// violate prints that the program did something forbidden, and adds it to the report, which keeps the first
// hundred.
void violate(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Notes a call of a function that the stand-in lacks. Stubs call it.
void note_missing(const char *function);
// Notes an op whose numbers are not computed, and why.
void note_uncomputed(const std::string &op, const std::string &why);
// Notes a figure that is a documented guess, such as the workspace of a closed library.
void note_inferred(const std::string &what);
// Adds to a library file's own counter in the report, such as "cudnn_convolutions".
void count(const char *what, uint64_t by = 1);

// ---- Devices, and how much of them processes hold (board.cpp) ----

int device();                            // the current device of this thread
struct Process {
  int pid;                               // 0 for an imaginary one (STANDIN_OTHERS)
  uint64_t bytes;                        // what it holds of the device, its context included
};
std::vector<Process> processes(int device);
uint64_t memory_used(int device);        // the sum over processes

// ---- Streams (streams.cpp) ----

// Names an item of a stream, to wait for it.
struct Ticket {
  std::shared_ptr<struct Stream> stream;
  uint64_t sequence = 0;
  std::shared_ptr<struct Timed> timed = nullptr;  // the same on the virtual clock
};

// enqueue gives work to a stream of the current device (nullptr is the legacy default stream). STANDIN_ORDER
// decides whether it runs at once or later; on a capturing stream it becomes a node of the graph; while this
// thread is suppressed it is dropped. cost is how long it takes on the virtual clock, in nanoseconds. If
// after is a ticket of another stream, the work begins when that is done.
Ticket enqueue(void *stream, std::function<void()> work, const char *what = "work", uint64_t cost = 0, const Ticket &after = {});
// launch counts a kernel that does nothing and takes a little virtual time.
void launch(void *stream, const char *what);
// launch_computed is launch for a kernel that writes numbers, which the Python side has to compute. With
// STANDIN_COMPUTE it fails if nothing computes them, and the report says so.
Result launch_computed(void *stream, const char *what);
// finish runs what a ticket waits for and the ticket's own work, and nothing else, whatever the order: drawn
// work might wait for another rank. It may be called from any thread.
void finish(const Ticket &ticket);
bool finished(const Ticket &ticket);
// progress runs one item of any stream that can go on, and reports whether there was one. Work that waits for
// something outside this process (another rank) calls it in a loop, so that the process's other streams go
// on.
bool progress();
// Whether this thread is running a stream's work.
bool running();
// Whether this is an existing stream (or a default stream).
bool is_stream(void *stream);
bool capturing(void *stream);

// Whether this thread holds Python's interpreter lock.
bool interpreter_locked();
// While one of these is alive, this thread does not hold Python's interpreter lock, even if it held it
// before. Make one to wait for another thread, since that thread's work may be Python.
class WithoutInterpreterLock {
 public:
  WithoutInterpreterLock();
  ~WithoutInterpreterLock();
  WithoutInterpreterLock(const WithoutInterpreterLock &) = delete;

 private:
  void *state_;
};

// Whether the size bytes at p are device memory that this process has allocated now.
bool is_device_memory(const void *p, size_t size);

}  // namespace standin

// ---- For Python and for tests in the process (control.cpp) ----

STANDIN_API int standin_enqueue(void *stream, void (*fn)(void *), void *arg);
STANDIN_API void standin_suppress(int on);   // calls nest; what this thread enqueues in between is dropped
STANDIN_API int standin_running(void);
STANDIN_API int standin_order(void);         // 0 late, 1 once, others are seeds
STANDIN_API void standin_note_uncomputed(const char *op, const char *why);
STANDIN_API const char *standin_violation(void);             // the first one, "" for none
STANDIN_API void standin_violate(const char *what);
STANDIN_API void standin_missing(const char *function);      // for the stubs
// Such as 13020; defined in the library of stubs.
extern "C" __attribute__((visibility("default"))) int standin_cuda_version(void);
STANDIN_API void standin_counts(uint64_t out[5]);            // launches, copies, bytes copied, allocations, waits
STANDIN_API int standin_is_device_memory(const void *p, size_t size);
