// Kernels: registration, modules and launches.
//
// Kernels of libraries are counted and do nothing. With STANDIN_COMPUTE the Python side computes what an op's
// kernels would; a kernel that nothing computes (one that triton or nvrtc compiled, launched outside an op)
// is then refused, since wrong numbers would follow.
//
// gmemtop's own three kernels (replay/cuda/kernels.ptx) are written out here and really run, by name: they
// fill memory with a pattern, check it, and touch it for a while.
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "core.h"

namespace standin {

namespace {

struct Dimensions {
  unsigned x, y, z;
};

enum class What { kUnknown, kFill, kCheck, kWork };

struct Function {
  What what = What::kUnknown;
  std::string name;
};

struct Module {
  Context *context = nullptr;
  std::string owner;
  bool text = false;
  std::string ptx;
  std::vector<std::unique_ptr<Function>> functions;
};

struct Kernels {
  std::map<void *, std::unique_ptr<Module>> modules;
  std::set<void *> functions;
  std::map<const void *, std::vector<char> *> symbols;
  std::unordered_map<const void *, const char *> names;  // kernels of programs, by the address of their stub
};

Kernels &kernels() {
  static auto *k = new Kernels;
  return *k;
}

// Sizes of programs' device variables, by their address on the host.
std::map<const void *, size_t> &variables() {
  static auto *v = new std::map<const void *, size_t>;
  return *v;
}

std::mutex &variables_mutex() {
  static auto *m = new std::mutex;
  return *m;
}

bool computing() {
  const char *c = setting("STANDIN_COMPUTE");
  return c && *c && strcmp(c, "0");
}

// Word g of a pattern, least byte first; the same as in kernels.ptx.
[[gnu::always_inline]] inline uint64_t pattern(uint64_t seed, uint64_t g) {
  uint64_t x = seed + g * 0x9e3779b97f4a7c15ull;
  x ^= x >> 29, x *= 0xbf58476d1ce4e5b9ull;
  return x ^ x >> 32;
}

// Whole words first: a plan has gigabytes, and a call for each word would take most of the time of a check.
void fill(unsigned char *p, uint64_t size, uint64_t seed) {
  uint64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t x = pattern(seed, i >> 3);
    memcpy(p + i, &x, 8);
  }
  uint64_t x = pattern(seed, i >> 3);
  memcpy(p + i, &x, size - i);
}

uint64_t differing(const unsigned char *p, uint64_t size, uint64_t seed) {
  uint64_t wrong = 0, i = 0;
  auto bytes = [&](uint64_t n) {
    for (uint64_t k = 0; k < n; k++)
      wrong += p[i + k] != static_cast<unsigned char>(pattern(seed, i >> 3) >> 8 * k);
  };
  for (; i + 8 <= size; i += 8) {
    uint64_t x;
    memcpy(&x, p + i, 8);
    if (x != pattern(seed, i >> 3)) bytes(8);
  }
  bytes(size - i);
  return wrong;
}

// Launches one of our own kernels, with its arguments as they are now.
Result launch_own(const Function &f, void *stream, void **params) {
  uint64_t a[8] = {};
  int n = f.what == What::kFill ? 3 : f.what == What::kCheck ? 5 : 7;
  for (int i = 0; i < n; i++) a[i] = *static_cast<uint64_t *>(params[i]);
  Lock lock(core());
  Item item;
  auto touch = [&](uint64_t at, uint64_t size) {
    bool there = touched(reinterpret_cast<void *>(at), size, &item.touches, lock) && is_device_address(at);
    if (!there) {
      violate("%s touches %llu bytes at %#llx, which are not device memory that is allocated", f.name.c_str(),
              static_cast<unsigned long long>(size), static_cast<unsigned long long>(at));
      lose(kIllegalAddress);
    }
    return there;
  };
  auto bytes = [](uint64_t at) { return reinterpret_cast<unsigned char *>(at); };
  switch (f.what) {
    case What::kFill:
      if (!touch(a[0], a[1])) return kIllegalAddress;
      item.what = "a fill";
      item.cost = kernel_time(a[1]);
      item.run = [=] { fill(bytes(a[0]), a[1], a[2]); };
      break;
    case What::kCheck:
      if (!touch(a[0], a[1]) || !touch(a[3], 16)) return kIllegalAddress;
      item.what = "a check";
      item.cost = kernel_time(a[1]);
      item.run = [=] {
        auto *result = reinterpret_cast<uint64_t *>(a[3]);
        uint64_t wrong = differing(bytes(a[0]), a[1], a[2]);
        result[0] += wrong;
        if (wrong && a[4] < result[1]) result[1] = a[4];
      };
      break;
    default:
      if ((a[1] && !touch(a[0], a[1])) || (a[3] && !touch(a[2], a[3]))) return kIllegalAddress;
      item.what = "work";
      item.cost = kernel_time((a[4] + a[5]) * 8) + a[6];
  }
  launches++;
  return give_item(stream_of(stream, lock), std::move(item), lock);
}

Result launch_function(void *function, Dimensions grid, Dimensions block, void *stream, void **params,
                       const char *call) {
  if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z ||
      uint64_t(block.x) * block.y * block.z > 1024)
    return kInvalidValue;
  Function f;
  {
    Lock lock(core());
    if (!kernels().functions.count(function)) {
      violate("%s with a function that does not exist, or whose module was unloaded", call);
      return kInvalidHandle;
    }
    f = *static_cast<Function *>(function);
  }
  if (f.what != What::kUnknown) return params ? launch_own(f, stream, params) : kInvalidValue;
  if (computing() && !suppressed()) {
    note_uncomputed("kernel " + f.name,
                    "compiled kernels do not run on the stand-in GPU: ops compute, code that triton or nvrtc "
                    "compiled does not");
    return kNotSupported;
  }
  launch(stream, "a kernel");
  return kSuccess;
}

// Launches a kernel of a library. The Python side suppresses the kernels of ops that it computes; any other
// would leave its numbers unwritten. torch.cuda._sleep's kernel writes none.
Result launch_library(const void *host, void *stream) {
  if (computing() && !suppressed()) {
    std::string name;
    {
      Lock lock(core());
      auto i = kernels().names.find(host);
      name = i == kernels().names.end() ? "?" : i->second;
    }
    if (name.find("spin_kernel") == std::string::npos) {
      note_uncomputed("kernel " + name, "it was launched outside of an op that the stand-in GPU computes");
      return keep_error(kNotSupported);
    }
  }
  launch(stream, "a kernel");
  return kSuccess;
}

bool binary(const void *image) {
  uint32_t magic;
  memcpy(&magic, image, 4);
  return magic == 0x464c457f || magic == 0xba55ed50 || magic == 0x466243b1;  // ELF, a fat binary, its wrapper
}

Result load(void **out, const void *image) {
  if (!out || !image) return kInvalidValue;
  auto m = std::make_unique<Module>();
  if (!binary(image)) {
    m->text = true;
    m->ptx = static_cast<const char *>(image);
    if (m->ptx.find(".version") == std::string::npos || m->ptx.find(".target") == std::string::npos)
      return kInvalidPtx;
  }
  Lock lock(core());
  m->context = current_or_primary(lock);
  m->owner = owner_of_call();
  *out = m.get();
  kernels().modules[*out] = std::move(m);
  return kSuccess;
}

void forget(Module *m) {
  for (auto &f : m->functions) kernels().functions.erase(f.get());
}

Result get_function(void **out, void *module, const char *name) {
  if (!out || !name) return kInvalidValue;
  Lock lock(core());
  auto i = kernels().modules.find(module);
  if (i == kernels().modules.end()) return kInvalidHandle;
  Module &m = *i->second;
  if (m.text && m.ptx.find(".entry " + std::string(name) + "(") == std::string::npos) return kNotFound;
  auto f = std::make_unique<Function>();
  f->name = name;
  if (m.text)
    f->what = !strcmp(name, "gmemtop_fill")    ? What::kFill
              : !strcmp(name, "gmemtop_check") ? What::kCheck
              : !strcmp(name, "gmemtop_work")  ? What::kWork
                                               : What::kUnknown;
  *out = f.get();
  kernels().functions.insert(f.get());
  m.functions.push_back(std::move(f));
  return kSuccess;
}

std::vector<char> *symbol(const void *host) {
  auto &k = kernels();
  auto &s = k.symbols[host];
  if (!s) {
    std::lock_guard<std::mutex> hold(variables_mutex());
    auto v = variables().find(host);
    s = new std::vector<char>(v == variables().end() ? 1 << 16 : v->second);
  }
  return s;
}

struct FunctionAttributes {
  size_t shared, constant, local;
  int max_threads, registers, ptx, binary, cache, max_dynamic, carveout, rest[12];
};

// Which of a kernel's binaries a card runs. PyTorch's wheels hold kernels for capabilities 5.0, 6.0, 7.0,
// 7.5, 8.0, 8.6, 9.0, 10.0 and 12.0 (TORCH_CUDA_ARCH_LIST in its release scripts), so a card of 8.9 runs
// those for 8.6. CUB looks up its tuning by this number and refuses one that it was not compiled for.
int binary_version(const Card &c) {
  if (c.major == 7) return c.minor < 5 ? 70 : 75;
  if (c.major == 8) return c.minor < 6 ? 80 : 86;
  return c.major * 10;
}

Result attributes(FunctionAttributes *out) {
  if (!out) return kInvalidValue;
  const Card &c = card(0);
  out->shared = out->constant = out->local = 0;
  out->max_threads = 1024;
  out->registers = 32;
  out->ptx = out->binary = binary_version(c);
  out->cache = 0;
  out->max_dynamic = static_cast<int>(c.shared_per_block_optin);
  return kSuccess;
}

// What a call with <<<>>> keeps for the launch that follows on the same thread.
struct Configuration {
  Dimensions grid, block;
  size_t shared;
  void *stream;
};
thread_local std::vector<Configuration> configurations;

}  // namespace

Result launch_computed(void *stream, const char *what) {
  if (computing() && !suppressed() && !running()) {
    note_uncomputed(what, "it was called outside of an op that the stand-in GPU computes");
    return kNotSupported;
  }
  launch(stream, what);
  return kSuccess;
}

void module_leaks(Context *c, Leaks *leaks, Lock &) {
  for (auto &m : kernels().modules)
    if (!c || m.second->context == c) add_leak(leaks, "module", m.second->owner, 0);
}

void modules_drop(Context *c, Lock &) {
  auto &all = kernels().modules;
  for (auto i = all.begin(); i != all.end();)
    if (i->second->context == c) {
      forget(i->second.get());
      i = all.erase(i);
    } else
      ++i;
}

void modules_reset(Lock &) {
  kernels().modules.clear();
  kernels().functions.clear();
}

}  // namespace standin

using namespace standin;

STANDIN_API void **__cudaRegisterFatBinary(void *) { return static_cast<void **>(calloc(1, sizeof(void *))); }
STANDIN_API void __cudaRegisterFatBinaryEnd(void **) {}
STANDIN_API void __cudaUnregisterFatBinary(void **handle) { free(handle); }
STANDIN_API void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, void *,
                                        void *, void *, void *, int *) {
  Lock lock(core());
  kernels().names[host] = name ? name : "?";
}
// Called while a library is loaded, under the loader's lock, so it must not wait for core().
STANDIN_API void __cudaRegisterVar(void **, char *host, char *, const char *, int, size_t size, int, int) {
  std::lock_guard<std::mutex> hold(variables_mutex());
  variables()[host] = size;
}
STANDIN_API unsigned __cudaPushCallConfiguration(Dimensions grid, Dimensions block, size_t shared,
                                                 void *stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
STANDIN_API int __cudaPopCallConfiguration(Dimensions *grid, Dimensions *block, size_t *shared,
                                           void *stream) {
  if (configurations.empty()) return kUnknown;
  Configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *static_cast<void **>(stream) = c.stream;
  return kSuccess;
}
STANDIN_API int __cudaGetKernel(const void **kernel, const void *function) {
  *kernel = function;
  return kSuccess;
}
STANDIN_API int __cudaLaunchKernel(const void *f, Dimensions, Dimensions, void **, size_t, void *s) {
  STANDIN_ENTER_RUNTIME();
  return launch_library(f, s);
}
STANDIN_API int cudaLaunchKernel(const void *f, Dimensions, Dimensions, void **, size_t, void *s) {
  STANDIN_ENTER_RUNTIME();
  return launch_library(f, s);
}
STANDIN_API int cudaLaunchCooperativeKernel(const void *f, Dimensions, Dimensions, void **, size_t, void *s) {
  STANDIN_ENTER_RUNTIME();
  return launch_library(f, s);
}

namespace {
// The beginning of cudaLaunchConfig_t.
struct LaunchConfiguration {
  Dimensions grid, block;
  size_t shared;
  void *stream;
};
}  // namespace
STANDIN_API int cudaLaunchKernelExC(const LaunchConfiguration *c, const void *f, void **) {
  STANDIN_ENTER_RUNTIME();
  return launch_library(f, c->stream);
}
STANDIN_API int cudaFuncSetAttribute(const void *, int, int) {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}
STANDIN_API int cudaFuncSetCacheConfig(const void *, int) {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}
STANDIN_API int cudaFuncGetAttributes(FunctionAttributes *a, const void *) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(attributes(a));
}
STANDIN_API int cudaKernelSetAttributeForDevice(void *, int, int, int) {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}
STANDIN_API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int, size_t) {
  STANDIN_ENTER_RUNTIME();
  *n = 2;
  return kSuccess;
}
STANDIN_API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *, int, size_t,
                                                                       unsigned) {
  STANDIN_ENTER_RUNTIME();
  *n = 2;
  return kSuccess;
}
STANDIN_API int cudaOccupancyAvailableDynamicSMemPerBlock(size_t *n, const void *, int, int) {
  STANDIN_ENTER_RUNTIME();
  *n = 48 * kKiB;
  return kSuccess;
}
STANDIN_API int cudaGetSymbolAddress(void **p, const void *host) {
  STANDIN_ENTER_RUNTIME();
  Lock lock(core());
  *p = symbol(host)->data();
  return kSuccess;
}
STANDIN_API int cudaMemcpyToSymbol(const void *host, const void *from, size_t size, size_t offset, int) {
  STANDIN_ENTER_RUNTIME();
  Lock lock(core());
  auto *s = symbol(host);
  if (offset > s->size() || size > s->size() - offset) return keep_error(kInvalidValue);
  memcpy(s->data() + offset, from, size);
  return kSuccess;
}

STANDIN_API int cuModuleLoadData(void **m, const void *image) {
  STANDIN_ENTER();
  return load(m, image);
}
STANDIN_API int cuModuleLoadDataEx(void **m, const void *image, unsigned, int *, void **) {
  STANDIN_ENTER();
  return load(m, image);
}
STANDIN_API int cuModuleLoadFatBinary(void **m, const void *image) {
  STANDIN_ENTER();
  return load(m, image);
}
STANDIN_API int cuModuleUnload(void *m) {
  STANDIN_ENTER();
  Lock lock(core());
  auto i = kernels().modules.find(m);
  if (i == kernels().modules.end()) {
    violate("a module that does not exist, or was unloaded before, is unloaded");
    return kInvalidHandle;
  }
  forget(i->second.get());
  kernels().modules.erase(i);
  return kSuccess;
}
STANDIN_API int cuModuleGetFunction(void **f, void *m, const char *name) {
  STANDIN_ENTER();
  return get_function(f, m, name);
}
STANDIN_API int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned, void *s, void **params, void **) {
  STANDIN_ENTER();
  return launch_function(f, {gx, gy, gz}, {bx, by, bz}, s, params, __func__);
}
STANDIN_API int cuLaunchCooperativeKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                          unsigned by, unsigned bz, unsigned, void *s, void **params) {
  STANDIN_ENTER();
  return launch_function(f, {gx, gy, gz}, {bx, by, bz}, s, params, __func__);
}
namespace {
// The beginning of CUlaunchConfig.
struct DriverLaunchConfiguration {
  Dimensions grid, block;
  unsigned shared;
  void *stream;
};
}  // namespace
STANDIN_API int cuLaunchKernelEx(const DriverLaunchConfiguration *c, void *f, void **params, void **) {
  STANDIN_ENTER();
  return launch_function(f, c->grid, c->block, c->stream, params, __func__);
}
// The numbers are those of CUfunction_attribute.
STANDIN_API int cuFuncGetAttribute(int *v, int attribute, void *) {
  STANDIN_ENTER();
  const Card &c = card(0);
  switch (attribute) {
    case 0: *v = 1024; break;
    case 4: *v = 32; break;
    case 5:
    case 6: *v = c.major * 10 + c.minor; break;
    case 8: *v = static_cast<int>(c.shared_per_block_optin); break;
    default: *v = 0;
  }
  return kSuccess;
}
STANDIN_API int cuFuncSetAttribute(void *, int, int) {
  STANDIN_ENTER();
  return kSuccess;
}
STANDIN_API int cuFuncSetCacheConfig(void *, int) {
  STANDIN_ENTER();
  return kSuccess;
}
STANDIN_API int cuFuncSetSharedMemConfig(void *, int) {
  STANDIN_ENTER();
  return kSuccess;
}
STANDIN_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *, int, size_t) {
  STANDIN_ENTER();
  *n = 2;
  return kSuccess;
}
STANDIN_API int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, void *, int, size_t, unsigned) {
  STANDIN_ENTER();
  *n = 2;
  return kSuccess;
}
