// Faults: how every call begins. It counts the call, makes it fail if a test asked for that, and returns the
// error of a lost device.
//
// STANDIN_FAIL=cudaMalloc:3=2,cuLaunchKernel:900=719 makes the third cudaMalloc return 2 (out of memory), and
// so on. The function "*" stands for every call except those that only describe the machine. After an error
// that is fatal on a real device (214, an uncorrectable memory error, and all from 700 on), every later call
// returns it too: as the CUDA documentation of these errors says, the device is lost until its context is
// destroyed.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core.h"

namespace standin {

namespace {

struct Injection {
  std::string function;
  long left;
  Result answer;
};

struct Faults {
  std::mutex mutex;
  std::map<std::string, uint64_t> calls;
  uint64_t all = 0;  // all calls except queries
  std::vector<Injection> injections;
  bool parsed = false;
  std::atomic<int> lost{0};
};

Faults &faults() {
  static auto *f = new Faults;
  return *f;
}

thread_local const void *caller_address = nullptr;

void parse(Faults &f, const char *text) {
  std::string all = text ? text : "";
  for (size_t at = 0; at < all.size();) {
    size_t comma = std::min(all.find(',', at), all.size());
    std::string one = all.substr(at, comma - at);
    char function[128];
    long n;
    int answer;
    if (sscanf(one.c_str(), "%127[^:]:%ld=%d", function, &n, &answer) == 3)
      f.injections.push_back({function, n, answer});
    else if (!one.empty())
      fprintf(stderr, "stand-in GPU: STANDIN_FAIL has %s; write FUNCTION:N=ANSWER\n", one.c_str());
    at = comma + 1;
  }
  f.parsed = true;
}

bool fatal(Result answer) {
  return answer == kUncorrectableEcc ||
         (answer >= 700 && answer < 800 && answer != kPeerAccessAlreadyEnabled &&
          answer != kPeerAccessNotEnabled && answer != kHostMemoryAlreadyRegistered &&
          answer != kHostMemoryNotRegistered) ||
         answer == kUnknown;
}

Result injected(Faults &f, const char *function, bool query) {
  for (auto &i : f.injections) {
    if (i.left <= 0 || !(i.function == function || (!query && i.function == "*"))) continue;
    if (--i.left) continue;
    if (fatal(i.answer)) lose(i.answer);
    return i.answer;
  }
  return kSuccess;
}

}  // namespace

Result enter(const char *function, const void *caller) {
  if (caller) caller_address = caller;
  if (inside_host_function()) violate("a host function calls %s, but may not call CUDA", function);
  Faults &f = faults();
  std::lock_guard<std::mutex> hold(f.mutex);
  if (!f.parsed) parse(f, setting("STANDIN_FAIL"));
  f.calls[function]++;
  f.all++;
  if (Result r = injected(f, function, false)) return r;
  return f.lost;
}

Result query(const char *function) {
  Faults &f = faults();
  std::lock_guard<std::mutex> hold(f.mutex);
  if (!f.parsed) parse(f, setting("STANDIN_FAIL"));
  f.calls[function]++;
  return injected(f, function, true);
}

// Names are cached by address, since dladdr waits while another thread loads a library.
const char *caller_library() {
  static auto *names = new std::map<const void *, std::string>;
  static auto *mutex = new std::mutex;
  std::lock_guard<std::mutex> hold(*mutex);
  auto found = names->find(caller_address);
  if (found != names->end()) return found->second.c_str();
  Dl_info info;
  std::string name;
  if (caller_address && dladdr(caller_address, &info) && info.dli_fname) {
    const char *slash = strrchr(info.dli_fname, '/');
    name = slash ? slash + 1 : info.dli_fname;
  }
  return names->emplace(caller_address, name).first->second.c_str();
}

std::string owner_of_call() { return caller_library(); }

void lose(Result why) {
  int none = 0;
  faults().lost.compare_exchange_strong(none, why);
}

Result lost() { return faults().lost; }

// Destroying a context clears the error.
void recover() { faults().lost = 0; }

void faults_reset() {
  Faults &f = faults();
  std::lock_guard<std::mutex> hold(f.mutex);
  f.calls.clear();
  f.all = 0;
  f.injections.clear();
  f.parsed = true;  // the environment's faults are only for the process as it began
  f.lost = 0;
}

void inject(const char *function, long n, Result answer) {
  Faults &f = faults();
  std::lock_guard<std::mutex> hold(f.mutex);
  f.parsed = true;
  f.injections.assign(1, {function, n, answer});
}

uint64_t calls_of(const char *function) {
  Faults &f = faults();
  std::lock_guard<std::mutex> hold(f.mutex);
  if (!strcmp(function, "*")) return f.all;
  auto found = f.calls.find(function);
  return found == f.calls.end() ? 0 : found->second;
}

std::map<std::string, uint64_t> all_calls() {
  Faults &f = faults();
  std::lock_guard<std::mutex> hold(f.mutex);
  return f.calls;
}

}  // namespace standin
