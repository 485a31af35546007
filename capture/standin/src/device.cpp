// Devices: properties, attributes and versions.
//
// cudaDeviceProp follows the list of its fields in the CUDA Runtime API's public documentation, in that
// order. CUDA 12 has some that CUDA 13 dropped and lacks some that CUDA 13 added. The sizes are what
// PyTorch's binaries pass: 1032 bytes for CUDA 12 (under the name cudaGetDeviceProperties_v2), 1008 for CUDA
// 13. A test checks that torch prints the right values with both.
#include <cstdio>
#include <cstring>

#include "core.h"

namespace standin {

namespace {

// The fields that both versions have, in the same order.
#define STANDIN_BEGINNING                   \
  char name[256];                           \
  char uuid[16];                            \
  char luid[8];                             \
  unsigned luidDeviceNodeMask;              \
  size_t totalGlobalMem, sharedMemPerBlock; \
  int regsPerBlock, warpSize;               \
  size_t memPitch;                          \
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
#define STANDIN_TEXTURES_AFTER_LINEAR                                                                        \
  int maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], \
      maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3],                 \
      maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2],   \
      maxSurface2DLayered[3], maxSurfaceCubemap, maxSurfaceCubemapLayered[2];                                \
  size_t surfaceAlignment;                                                                                   \
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount,        \
      unifiedAddressing;
#define STANDIN_CACHES                                                                    \
  int memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, \
      streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;           \
  size_t sharedMemPerMultiprocessor;                                                      \
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
#define STANDIN_PAGEABLE                                                         \
  int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, \
      canUseHostPointerForRegisteredMem, cooperativeLaunch;
#define STANDIN_END                                                                                       \
  size_t sharedMemPerBlockOptin;                                                                          \
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor, \
      accessPolicyMaxWindowSize;                                                                          \
  size_t reservedSharedMemPerBlock;                                                                       \
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported,                     \
      timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;                    \
  unsigned gpuDirectRDMAFlushWritesOptions;                                                               \
  int gpuDirectRDMAWritesOrdering;                                                                        \
  unsigned memoryPoolSupportedHandleTypes;                                                                \
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;

struct Properties12 {
  STANDIN_BEGINNING
  int clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
  int maxTexture1D, maxTexture1DMipmap, maxTexture1DLinear;
  STANDIN_TEXTURES_AFTER_LINEAR
  int memoryClockRate;
  STANDIN_CACHES
  int singleToDoublePrecisionPerfRatio;
  STANDIN_PAGEABLE
  int cooperativeMultiDeviceLaunch;
  STANDIN_END
};

struct Properties13 {
  STANDIN_BEGINNING
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int multiProcessorCount, integrated, canMapHostMemory;
  int maxTexture1D, maxTexture1DMipmap;
  STANDIN_TEXTURES_AFTER_LINEAR
  STANDIN_CACHES
  STANDIN_PAGEABLE
  STANDIN_END
  int deviceNumaConfig, deviceNumaId, mpsEnabled, hostNumaId;
  unsigned gpuPciDeviceID, gpuPciSubsystemID;
  int hostNumaMultinodeIpcSupported;
};

constexpr size_t kSize12 = 1032, kSize13 = 1008;
static_assert(sizeof(Properties12) <= kSize12 && sizeof(Properties13) <= kSize13,
              "the structs end with reserved words");

template <typename P>
void fill(P *p, int d) {
  const Card &c = card(d);
  snprintf(p->name, sizeof p->name, "%s", c.name);
  uuid(d, reinterpret_cast<unsigned char *>(p->uuid));
  p->totalGlobalMem = memory_total(d);
  p->sharedMemPerBlock = 48 * kKiB;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 64 * kKiB;
  p->major = c.major;
  p->minor = c.minor;
  p->textureAlignment = p->surfaceAlignment = 512;
  p->texturePitchAlignment = 32;
  p->multiProcessorCount = c.processors;
  p->canMapHostMemory = p->concurrentKernels = p->ECCEnabled = p->unifiedAddressing = 1;
  p->pciBusID = pci_bus(d);
  p->asyncEngineCount = 3;
  p->memoryBusWidth = c.bus_width;
  p->l2CacheSize = static_cast<int>(c.l2);
  p->maxThreadsPerMultiProcessor = c.threads_per_processor;
  p->streamPrioritiesSupported = p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->sharedMemPerMultiprocessor = c.shared_per_processor;
  p->managedMemory = p->concurrentManagedAccess = p->computePreemptionSupported = 1;
  p->canUseHostPointerForRegisteredMem = p->cooperativeLaunch = 1;
  p->sharedMemPerBlockOptin = c.shared_per_block_optin;
  p->maxBlocksPerMultiProcessor = c.blocks_per_processor;
  p->reservedSharedMemPerBlock = c.major >= 8 ? 1024 : 0;
  p->hostRegisterSupported = p->memoryPoolsSupported = p->ipcEventSupported = 1;
  p->memoryPoolSupportedHandleTypes = 1;  // POSIX file descriptors
  p->clusterLaunch = c.major >= 9;
}

template <typename P>
Result properties(void *out, int d, size_t size) {
  if (!out) return kInvalidValue;
  if (d < 0 || d >= devices()) return kInvalidDevice;
  P p;
  memset(static_cast<void *>(&p), 0, sizeof p);
  fill(&p, d);
  memset(out, 0, size);
  memcpy(out, &p, sizeof p);
  return kSuccess;
}

// The numbers are those of cudaDeviceAttr and CUdevice_attribute, which agree.
Result attribute(int *out, int a, int d) {
  if (!out) return kInvalidValue;
  if (d < 0 || d >= devices()) return kInvalidDevice;
  const Card &c = card(d);
  switch (a) {
    case 1:
    case 2:
    case 3: *out = 1024; break;        // threads of a block, x, y
    case 4: *out = 64; break;          // z
    case 5: *out = 2147483647; break;  // grid x
    case 6:
    case 7: *out = 65535; break;        // grid y, z
    case 8: *out = 48 * kKiB; break;    // shared memory of a block
    case 9: *out = 64 * kKiB; break;    // constant memory
    case 10: *out = 32; break;          // warp
    case 11: *out = 2147483647; break;  // pitch
    case 12:
    case 82: *out = 65536; break;  // registers of a block, of a multiprocessor
    case 13: *out = c.clock; break;
    case 14:
    case 30: *out = 512; break;  // alignment of textures, surfaces
    case 16: *out = c.processors; break;
    case 15:
    case 19:
    case 31:
    case 32:
    case 41:
    case 78:
    case 79:
    case 80:
    case 83:
    case 89:
    case 90:
    case 91:
    case 95: *out = 1; break;
    case 20: *out = settings().compute_mode; break;
    case 33: *out = pci_bus(d); break;
    case 36: *out = c.memory_clock; break;
    case 37: *out = c.bus_width; break;
    case 38: *out = static_cast<int>(c.l2); break;
    case 39: *out = c.threads_per_processor; break;
    case 40: *out = 3; break;   // copy engines
    case 51: *out = 32; break;  // pitch of textures
    case 75: *out = c.major; break;
    case 76: *out = c.minor; break;
    case 81: *out = static_cast<int>(c.shared_per_processor); break;
    case 97: *out = static_cast<int>(c.shared_per_block_optin); break;
    case 99: *out = 1; break;  // host memory can be registered
    case 102:
    case 103: *out = 1; break;  // virtual memory, shared by file descriptors
    case 106: *out = c.blocks_per_processor; break;
    case 111: *out = c.major >= 8 ? 1024 : 0; break;  // reserved shared memory
    case 115:
    case 119: *out = 1; break;             // pools, shared by file descriptors
    case 120: *out = c.major >= 9; break;  // clusters
    case 125: *out = 1; break;             // IPC of events
    default: *out = 0;
  }
  return kSuccess;
}

Result name(char *out, int size, int d) {
  if (!out || size <= 0) return kInvalidValue;
  if (d < 0 || d >= devices()) return kInvalidDevice;
  snprintf(out, size, "%s", card(d).name);
  return kSuccess;
}

Result get_uuid(unsigned char *out, int d) {
  if (!out) return kInvalidValue;
  if (d < 0 || d >= devices()) return kInvalidDevice;
  uuid(d, out);
  return kSuccess;
}

Result pci(char *out, int size, int d) {
  if (!out || size <= 0) return kInvalidValue;
  if (d < 0 || d >= devices()) return kInvalidDevice;
  snprintf(out, size, "0000:%02X:00.0", pci_bus(d));
  return kSuccess;
}

Result by_pci(int *d, const char *text) {
  unsigned domain, bus;
  if (!d || !text || sscanf(text, "%x:%x", &domain, &bus) != 2) return kInvalidValue;
  for (int i = 0; i < devices(); i++)
    if (pci_bus(i) == static_cast<int>(bus)) return *d = i, kSuccess;
  return kInvalidDevice;
}

}  // namespace

}  // namespace standin

using namespace standin;

STANDIN_API int cudaGetDeviceCount(int *n) {
  STANDIN_QUERY();
  *n = devices();
  return keep_error(devices() ? kSuccess : kNoDevice);
}
STANDIN_API int cudaGetDeviceProperties(void *p, int d) {
  STANDIN_QUERY();
  return keep_error(properties<Properties13>(p, d, kSize13));
}
STANDIN_API int cudaGetDeviceProperties_v2(void *p, int d) {
  STANDIN_QUERY();
  return keep_error(properties<Properties12>(p, d, kSize12));
}
STANDIN_API int cudaDeviceGetAttribute(int *v, int a, int d) {
  STANDIN_QUERY();
  return keep_error(attribute(v, a, d));
}
STANDIN_API int cudaDeviceGetPCIBusId(char *s, int n, int d) {
  STANDIN_QUERY();
  return keep_error(pci(s, n, d));
}
STANDIN_API int cudaDeviceGetByPCIBusId(int *d, const char *s) {
  STANDIN_QUERY();
  return keep_error(by_pci(d, s));
}
STANDIN_API int cudaDriverGetVersion(int *v) {
  STANDIN_QUERY();
  *v = driver_version();
  return kSuccess;
}
STANDIN_API int cudaRuntimeGetVersion(int *v) {
  STANDIN_QUERY();
  *v = standin_cuda_version();
  return kSuccess;
}
STANDIN_API int cudaProfilerStart() {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}
STANDIN_API int cudaProfilerStop() {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}

STANDIN_API int cuInit(unsigned) {
  STANDIN_QUERY();
  return devices() ? kSuccess : kNoDevice;
}
STANDIN_API int cuDriverGetVersion(int *v) {
  STANDIN_QUERY();
  *v = driver_version();
  return kSuccess;
}
STANDIN_API int cuDeviceGetCount(int *n) {
  STANDIN_QUERY();
  *n = devices();
  return kSuccess;
}
STANDIN_API int cuDeviceGet(int *d, int i) {
  STANDIN_QUERY();
  if (i < 0 || i >= devices()) return kInvalidDevice;
  *d = i;
  return kSuccess;
}
STANDIN_API int cuDeviceGetName(char *s, int n, int d) {
  STANDIN_QUERY();
  return name(s, n, d);
}
STANDIN_API int cuDeviceGetUuid(unsigned char *u, int d) {
  STANDIN_QUERY();
  return get_uuid(u, d);
}
STANDIN_API int cuDeviceGetUuid_v2(unsigned char *u, int d) {
  STANDIN_QUERY();
  return get_uuid(u, d);
}
STANDIN_API int cuDeviceTotalMem_v2(size_t *n, int d) {
  STANDIN_QUERY();
  if (d < 0 || d >= devices()) return kInvalidDevice;
  *n = memory_total(d);
  return kSuccess;
}
STANDIN_API int cuDeviceGetAttribute(int *v, int a, int d) {
  STANDIN_QUERY();
  return attribute(v, a, d);
}
STANDIN_API int cuDeviceGetPCIBusId(char *s, int n, int d) {
  STANDIN_QUERY();
  return pci(s, n, d);
}
STANDIN_API int cuDeviceGetByPCIBusId(int *d, const char *s) {
  STANDIN_QUERY();
  return by_pci(d, s);
}
