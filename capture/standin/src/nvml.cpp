// NVML: what a monitor sees of the stand-in machine.
//
// The problem: PyTorch and gmemtop ask NVML which processes hold a device's memory, and compare that with
// their own books. So the one thing that must be right is memory: NVML reports what is on the board
// (board.cpp), in the watched process and in any other with the same STANDIN_BOARD. With T = total, R =
// reserved by the driver, P = what each process holds, its context included:
//
//   T = card's memory + R      used = ΣP      free = T − R − used      (in the older call used counts R)
//
// Imaginary processes (STANDIN_OTHERS) have pids that Linux never gives (above 2^22), like processes of
// another container.
//
// Clocks, power, temperature and utilisation are constants of the card that depend only on whether a process
// has a context: nothing is measured here, and no test may take them for measurements. Traffic counters do
// not move. MIG is off. Missing functions are missing as in an old driver: a caller that looks them up finds
// nothing.
//
// A lost device returns NVML_ERROR_GPU_IS_LOST in the process that lost it. STANDIN_ECC=1 reports two
// uncorrected errors, and a row that needs a reset before it is remapped.
//
// Sources: NVIDIA's NVML reference (functions, structures, error codes); go-nvml's Go declarations.
#include <fcntl.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "standin.h"

namespace standin {
namespace {

// nvmlReturn_t.
enum Status : int {
  kOk = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kUnsupported = 3,
  kMissing = 6,
  kTooSmall = 7,
  kLost = 15,
  kVersionMismatch = 25,
  kUnknownError = 999,
};

constexpr int kFirstImaginary = (1 << 22) + 1;  // Linux gives pids below 2^22

std::atomic<int> initialized{0};

// A device's handle is the address of its element.
char handles[kMaxDevices];

int index_of(const void *handle) {
  const char *p = static_cast<const char *>(handle);
  return p >= handles && p < handles + devices() ? int(p - handles) : -1;
}

// begin begins a function of the library; begin_device one of a device, and gives the device's index.
int begin(const char *function) {
  if (int e = query(function)) return e > 40 ? int(kUnknownError) : e;
  return initialized ? kOk : kUninitialized;
}

int begin_device(const char *function, const void *handle, int *device) {
  if (int e = begin(function)) return e;
  if ((*device = index_of(handle)) < 0) return kInvalidArgument;
  return lost() ? kLost : kOk;
}

#define NVML_BEGIN()                             \
  do {                                           \
    if (int r_ = begin(__func__)) return r_;     \
  } while (0)
#define NVML_DEVICE(handle)                                    \
  int d = 0;                                                   \
  do {                                                         \
    if (int r_ = begin_device(__func__, handle, &d)) return r_; \
  } while (0)

int put(char *out, unsigned size, const char *text) {
  if (!out) return kInvalidArgument;
  if (strlen(text) >= size) return kTooSmall;
  memcpy(out, text, strlen(text) + 1);
  return kOk;
}

int put(unsigned *out, unsigned value) {
  if (!out) return kInvalidArgument;
  *out = value;
  return kOk;
}

bool busy(int device) { return !processes(device).empty(); }

void bus_text(int device, char *out, size_t size, bool wide) {
  snprintf(out, size, wide ? "%08X:%02X:00.0" : "%04X:%02X:00.0", 0u, unsigned(pci_bus(device)));
}

void uuid_text(int device, char *out, size_t size) {
  unsigned char u[16];
  uuid(device, u);
  snprintf(out, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4], u[5],
           u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

struct Memory {
  uint64_t total, free, used;
};
struct Memory2 {
  uint32_t version;
  uint64_t total, reserved, free, used;
};
struct Bar {
  uint64_t total, free, used;
};
struct OnDevice {  // nvmlProcessInfo_v2_t and nvmlProcessInfo_t of version 3
  uint32_t pid;
  uint64_t used;
  uint32_t gpu_instance, compute_instance;
};
struct OnDevice1 {
  uint32_t pid;
  uint64_t used;
};
struct Pci {
  char legacy[16];
  uint32_t domain, bus, device, id, subsystem;
  char text[32];
};
struct Field {
  uint32_t id, scope;
  int64_t timestamp, latency;
  uint32_t type, status;
  uint64_t value;
};
struct Sample {
  uint32_t pid;
  uint64_t timestamp;
  uint32_t sm, memory, encoder, decoder;
};
struct Fabric {  // the beginning of all versions of nvmlGpuFabricInfoV_t
  uint32_t version;
  unsigned char cluster[16];
  uint32_t status, clique;
  unsigned char state;
};

// The processes of a device; imaginary ones get made-up pids.
std::vector<Process> listed(int device) {
  auto all = processes(device);
  int imaginary = kFirstImaginary + device;
  for (auto &p : all)
    if (!p.pid) p.pid = imaginary, imaginary += kMaxDevices;
  return all;
}

template <typename T>
T on_device(const Process &p) {
  T t{};
  t.pid = uint32_t(p.pid), t.used = p.bytes;
  if constexpr (std::is_same_v<T, OnDevice>) t.gpu_instance = t.compute_instance = ~0u;  // no MIG
  return t;
}

template <typename T>
int list(const char *function, const void *handle, unsigned *count, T *out) {
  int d;
  if (int e = begin_device(function, handle, &d)) return e;
  if (!count) return kInvalidArgument;
  auto all = listed(d);
  unsigned room = out ? *count : 0;
  *count = unsigned(all.size());
  if (all.size() > room) return kTooSmall;
  for (size_t i = 0; i < all.size(); i++) out[i] = on_device<T>(all[i]);
  return kOk;
}

int no_processes(const char *function, const void *handle, unsigned *count) {
  int d;
  if (int e = begin_device(function, handle, &d)) return e;
  return put(count, 0);
}

int link_exists(int device, unsigned link) {
  if (link >= 18) return kInvalidArgument;
  return int(link) < card(device).nvlinks ? kOk : kUnsupported;
}

}  // namespace
}  // namespace standin

using namespace standin;

// ---- The library ----

STANDIN_API int nvmlInitWithFlags(unsigned) {
  if (int e = query(__func__)) return e > 40 ? int(kUnknownError) : e;
  initialized++;
  return kOk;
}
STANDIN_API int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
STANDIN_API int nvmlInit(void) { return nvmlInitWithFlags(0); }
STANDIN_API int nvmlShutdown(void) {
  NVML_BEGIN();
  initialized--;
  return kOk;
}

STANDIN_API const char *nvmlErrorString(int status) {
  switch (status) {
    case kOk: return "Success";
    case kUninitialized: return "Uninitialized";
    case kInvalidArgument: return "Invalid Argument";
    case kUnsupported: return "Not Supported";
    case kMissing: return "Not Found";
    case kTooSmall: return "Insufficient Size";
    case kLost: return "GPU is lost";
    case kVersionMismatch: return "Argument version mismatch";
  }
  return "Unknown Error";
}

STANDIN_API int nvmlSystemGetDriverVersion(char *out, unsigned size) {
  NVML_BEGIN();
  return put(out, size, driver_version() >= 13000 ? "580.00.00" : "570.00.00");
}
STANDIN_API int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
  NVML_BEGIN();
  return put(out, size, driver_version() >= 13000 ? "13.580.00.00" : "12.570.00.00");
}
STANDIN_API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  NVML_BEGIN();
  if (!version) return kInvalidArgument;
  *version = driver_version();
  return kOk;
}
STANDIN_API int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

STANDIN_API int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
  NVML_BEGIN();
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return kMissing;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return kMissing;
  text[n] = 0;  // arguments end in zero bytes, so only the first one is returned
  return put(out, size, text);
}

// ---- Devices ----

STANDIN_API int nvmlDeviceGetCount_v2(unsigned *count) {
  NVML_BEGIN();
  return put(count, unsigned(devices()));
}
STANDIN_API int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

STANDIN_API int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle) {
  NVML_BEGIN();
  if (!handle || i >= unsigned(devices())) return kInvalidArgument;
  *handle = &handles[i];
  return kOk;
}
STANDIN_API int nvmlDeviceGetHandleByIndex(unsigned i, void **handle) { return nvmlDeviceGetHandleByIndex_v2(i, handle); }

STANDIN_API int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **handle) {
  NVML_BEGIN();
  unsigned domain, bus;
  if (!address || !handle || sscanf(address, "%x:%x:", &domain, &bus) != 2) return kInvalidArgument;
  for (int d = 0; d < devices(); d++)
    if (unsigned(pci_bus(d)) == bus && domain == 0) {
      *handle = &handles[d];
      return kOk;
    }
  return kMissing;
}
STANDIN_API int nvmlDeviceGetHandleByPciBusId(const char *address, void **handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(address, handle);
}

STANDIN_API int nvmlDeviceGetHandleByUUID(const char *wanted, void **handle) {
  NVML_BEGIN();
  if (!wanted || !handle) return kInvalidArgument;
  for (int d = 0; d < devices(); d++) {
    char text[96];
    uuid_text(d, text, sizeof text);
    if (!strcasecmp(text, wanted)) {
      *handle = &handles[d];
      return kOk;
    }
  }
  return kMissing;
}

STANDIN_API int nvmlDeviceGetIndex(void *h, unsigned *i) {
  NVML_DEVICE(h);
  return put(i, unsigned(d));
}
STANDIN_API int nvmlDeviceGetMinorNumber(void *h, unsigned *i) {
  NVML_DEVICE(h);
  return put(i, unsigned(d));
}
STANDIN_API int nvmlDeviceGetName(void *h, char *out, unsigned size) {
  NVML_DEVICE(h);
  return put(out, size, card(d).name);
}
STANDIN_API int nvmlDeviceGetUUID(void *h, char *out, unsigned size) {
  NVML_DEVICE(h);
  char text[96];
  uuid_text(d, text, sizeof text);
  return put(out, size, text);
}
STANDIN_API int nvmlDeviceGetPciInfo_v3(void *h, Pci *out) {
  NVML_DEVICE(h);
  if (!out) return kInvalidArgument;
  memset(out, 0, sizeof *out);
  out->bus = unsigned(pci_bus(d));
  bus_text(d, out->legacy, sizeof out->legacy, false);
  bus_text(d, out->text, sizeof out->text, true);
  return kOk;
}
STANDIN_API int nvmlDeviceGetPciInfo_v2(void *h, Pci *out) { return nvmlDeviceGetPciInfo_v3(h, out); }
STANDIN_API int nvmlDeviceGetPciInfo(void *h, Pci *out) { return nvmlDeviceGetPciInfo_v3(h, out); }
STANDIN_API int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
  NVML_DEVICE(h);
  if (!major || !minor) return kInvalidArgument;
  *major = card(d).major, *minor = card(d).minor;
  return kOk;
}
STANDIN_API int nvmlDeviceGetMemoryBusWidth(void *h, unsigned *bits) {
  NVML_DEVICE(h);
  return put(bits, unsigned(card(d).bus_width));
}
STANDIN_API int nvmlDeviceGetMigMode(void *h, unsigned *current, unsigned *pending) {
  NVML_DEVICE(h);
  put(pending, 0);
  return put(current, 0);
}

// ---- Memory and processes ----

STANDIN_API int nvmlDeviceGetMemoryInfo(void *h, Memory *m) {
  NVML_DEVICE(h);
  if (!m) return kInvalidArgument;
  uint64_t reserved = card(d).reserved;
  m->total = memory_total(d) + reserved, m->used = memory_used(d) + reserved, m->free = m->total - m->used;
  return kOk;
}

STANDIN_API int nvmlDeviceGetMemoryInfo_v2(void *h, Memory2 *m) {
  NVML_DEVICE(h);
  if (!m) return kInvalidArgument;
  if (m->version != (sizeof *m | 2u << 24)) return kVersionMismatch;
  m->reserved = card(d).reserved, m->total = memory_total(d) + m->reserved, m->used = memory_used(d);
  m->free = m->total - m->reserved - m->used;
  return kOk;
}

STANDIN_API int nvmlDeviceGetBAR1MemoryInfo(void *h, Bar *b) {
  NVML_DEVICE(h);
  if (!b) return kInvalidArgument;
  b->total = 1;
  while (b->total < memory_total(d)) b->total *= 2;  // data centre cards map all of their memory
  b->used = 2 * kMiB, b->free = b->total - b->used;
  return kOk;
}

STANDIN_API int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, OnDevice *out) { return list(__func__, h, n, out); }
STANDIN_API int nvmlDeviceGetComputeRunningProcesses_v2(void *h, unsigned *n, OnDevice *out) { return list(__func__, h, n, out); }
STANDIN_API int nvmlDeviceGetComputeRunningProcesses(void *h, unsigned *n, OnDevice1 *out) { return list(__func__, h, n, out); }
STANDIN_API int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *n, void *) { return no_processes(__func__, h, n); }
STANDIN_API int nvmlDeviceGetGraphicsRunningProcesses_v2(void *h, unsigned *n, void *) { return no_processes(__func__, h, n); }
STANDIN_API int nvmlDeviceGetGraphicsRunningProcesses(void *h, unsigned *n, void *) { return no_processes(__func__, h, n); }
STANDIN_API int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *h, unsigned *n, void *) { return no_processes(__func__, h, n); }
STANDIN_API int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *h, unsigned *n, void *) { return no_processes(__func__, h, n); }
STANDIN_API int nvmlDeviceGetMPSComputeRunningProcesses(void *h, unsigned *n, void *) { return no_processes(__func__, h, n); }

STANDIN_API int nvmlDeviceGetProcessUtilization(void *h, Sample *out, unsigned *n, unsigned long long) {
  NVML_DEVICE(h);
  if (!n) return kInvalidArgument;
  auto all = listed(d);
  unsigned room = out ? *n : 0;
  *n = unsigned(all.size());
  if (all.empty()) return kMissing;
  if (all.size() > room) return kTooSmall;
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  for (size_t i = 0; i < all.size(); i++)
    out[i] = {uint32_t(all[i].pid), uint64_t(t.tv_sec) * 1000000 + uint64_t(t.tv_nsec) / 1000, uint32_t(50 / all.size()), uint32_t(20 / all.size()), 0, 0};
  return kOk;
}

// ---- Load: constants ----

STANDIN_API int nvmlDeviceGetUtilizationRates(void *h, unsigned out[2]) {
  NVML_DEVICE(h);
  if (!out) return kInvalidArgument;
  out[0] = busy(d) ? 50 : 0, out[1] = busy(d) ? 20 : 0;
  return kOk;
}
STANDIN_API int nvmlDeviceGetMaxClockInfo(void *h, int kind, unsigned *mhz) {
  NVML_DEVICE(h);
  if (kind < 0 || kind > 3) return kInvalidArgument;
  return put(mhz, unsigned(kind == 2 ? card(d).memory_clock : card(d).clock) / 1000);
}
STANDIN_API int nvmlDeviceGetClockInfo(void *h, int kind, unsigned *mhz) { return nvmlDeviceGetMaxClockInfo(h, kind, mhz); }
STANDIN_API int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *celsius) {
  NVML_DEVICE(h);
  return sensor ? int(kInvalidArgument) : put(celsius, busy(d) ? 55 : 30);
}
STANDIN_API int nvmlDeviceGetPowerUsage(void *h, unsigned *milliwatts) {
  NVML_DEVICE(h);
  return put(milliwatts, unsigned(card(d).power_watts) * (busy(d) ? 500 : 100));
}
STANDIN_API int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *milliwatts) {
  NVML_DEVICE(h);
  return put(milliwatts, unsigned(card(d).power_watts) * 1000);
}
STANDIN_API int nvmlDeviceGetPowerManagementLimit(void *h, unsigned *milliwatts) { return nvmlDeviceGetEnforcedPowerLimit(h, milliwatts); }
STANDIN_API int nvmlDeviceGetPerformanceState(void *h, unsigned *state) {
  NVML_DEVICE(h);
  return put(state, 0);
}
STANDIN_API int nvmlDeviceGetCurrentClocksEventReasons(void *h, unsigned long long *reasons) {
  NVML_DEVICE(h);
  if (!reasons) return kInvalidArgument;
  *reasons = busy(d) ? 0 : 1;  // idle
  return kOk;
}
STANDIN_API int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *reasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(h, reasons);
}

// ---- Links ----

STANDIN_API int nvmlDeviceGetMaxPcieLinkGeneration(void *h, unsigned *v) {
  NVML_DEVICE(h);
  return put(v, unsigned(card(d).pcie_generation));
}
STANDIN_API int nvmlDeviceGetCurrPcieLinkGeneration(void *h, unsigned *v) { return nvmlDeviceGetMaxPcieLinkGeneration(h, v); }
STANDIN_API int nvmlDeviceGetMaxPcieLinkWidth(void *h, unsigned *v) {
  NVML_DEVICE(h);
  return put(v, unsigned(card(d).pcie_width));
}
STANDIN_API int nvmlDeviceGetCurrPcieLinkWidth(void *h, unsigned *v) { return nvmlDeviceGetMaxPcieLinkWidth(h, v); }
STANDIN_API int nvmlDeviceGetPcieThroughput(void *h, int counter, unsigned *rate) {
  NVML_DEVICE(h);
  return counter < 0 || counter > 1 ? int(kInvalidArgument) : put(rate, 0);
}
STANDIN_API int nvmlDeviceGetNvLinkState(void *h, unsigned link, unsigned *active) {
  NVML_DEVICE(h);
  int e = link_exists(d, link);
  return e ? e : put(active, 1);
}
STANDIN_API int nvmlDeviceGetNvLinkRemoteDeviceType(void *h, unsigned link, unsigned *type) {
  NVML_DEVICE(h);
  int e = link_exists(d, link);
  return e ? e : put(type, 2);  // a switch
}
STANDIN_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *h, unsigned link, Pci *out) {
  NVML_DEVICE(h);
  if (int e = link_exists(d, link)) return e;
  if (!out) return kInvalidArgument;
  memset(out, 0, sizeof *out);
  out->bus = 0xc0;  // the switch
  snprintf(out->legacy, sizeof out->legacy, "0000:C0:00.0");
  snprintf(out->text, sizeof out->text, "00000000:C0:00.0");
  return kOk;
}
// Only the payload counters of NVLink are known (fields 138 and 139).
STANDIN_API int nvmlDeviceGetFieldValues(void *h, int n, Field *fields) {
  NVML_DEVICE(h);
  if (n < 0 || (n && !fields)) return kInvalidArgument;
  for (int i = 0; i < n; i++) {
    bool known = (fields[i].id == 138 || fields[i].id == 139) && card(d).nvlinks;
    fields[i].status = known ? kOk : kUnsupported;
    fields[i].type = 3, fields[i].value = 0;  // unsigned long long
  }
  return kOk;
}
STANDIN_API int nvmlDeviceGetP2PStatus(void *h, void *other, int, unsigned *status) {
  NVML_DEVICE(h);
  return index_of(other) < 0 ? int(kInvalidArgument) : put(status, 0);
}
STANDIN_API int nvmlDeviceGetTopologyCommonAncestor(void *h, void *other, unsigned *level) {
  NVML_DEVICE(h);
  if (index_of(other) < 0) return kInvalidArgument;
  return put(level, index_of(other) == d ? 0 : 30);  // the same device, or the same host bridge
}
STANDIN_API int nvmlDeviceGetGpuFabricInfoV(void *h, Fabric *f) {
  NVML_DEVICE(h);
  if (!f) return kInvalidArgument;
  memset(f->cluster, 0, sizeof f->cluster);
  f->status = 0, f->clique = 0, f->state = 0;  // not part of a fabric
  return kOk;
}

// ---- Errors of the memory ----

STANDIN_API int nvmlDeviceGetEccMode(void *h, unsigned *current, unsigned *pending) {
  NVML_DEVICE(h);
  put(pending, 1);
  return put(current, 1);
}
STANDIN_API int nvmlDeviceGetTotalEccErrors(void *h, int kind, int, unsigned long long *count) {
  NVML_DEVICE(h);
  if (!count || kind < 0 || kind > 1) return kInvalidArgument;
  *count = kind == 1 && ecc_errors() ? 2 : 0;
  return kOk;
}
STANDIN_API int nvmlDeviceGetRemappedRows(void *h, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
  NVML_DEVICE(h);
  put(corrected, 0), put(failed, 0);
  put(uncorrected, ecc_errors() ? 1 : 0);
  return put(pending, ecc_errors() ? 1 : 0);
}
