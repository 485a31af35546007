// NCCL's communicators: how ranks join, split and leave, and their errors.
//
// A communicator is a rank's seat in a team (nccl_team.cpp), a device, and the outstanding calls. A program
// holds a pointer to it; here it is shared by the map of all communicators, the queued work and the thread
// that waits for that. So it lives until the last of them is done, whatever the program destroys, and a
// pointer to a destroyed communicator is noticed.
#include <dlfcn.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>

#include "nccl.h"

extern "C" int cudaMalloc(void **p, size_t size);
extern "C" int cudaFree(void *p);

namespace standin {
namespace nccl {
namespace {

std::mutex communicators_mutex;
std::map<void *, Handle> &communicators() {
  static auto *m = new std::map<void *, Handle>;  // never destroyed, since threads may use it until the end
  return *m;
}

thread_local std::string last_error;

void *add(const Handle &c) {
  std::lock_guard<std::mutex> l(communicators_mutex);
  communicators()[c.get()] = c;
  return c.get();
}

void remove(void *handle) {
  std::lock_guard<std::mutex> l(communicators_mutex);
  communicators().erase(handle);
}

}  // namespace

int complain(Status status, const char *format, ...) {
  char text[512];
  va_list a;
  va_start(a, format);
  vsnprintf(text, sizeof text, format, a);
  va_end(a);
  last_error = text;
  if (status == kInvalidUsage || status == kInvalidArgument) violate("%s", text);
  return status;
}

// What a call must return at once: an injected failure unchanged, a lost device as NCCL's error for it.
int enter_call(const char *function, const void *caller) {
  int e = enter(function, caller);
  if (!e) return kOk;
  last_error = std::string(function) + ": CUDA error " + std::to_string(e);
  return e > 7 ? kCudaError : e;
}

Handle find(void *handle, const char *function) {
  std::lock_guard<std::mutex> l(communicators_mutex);
  auto i = communicators().find(handle);
  if (i != communicators().end()) return i->second;
  complain(kInvalidArgument, "%s: %p is not a communicator, or was destroyed", function, handle);
  return nullptr;
}

void set_last_error(const std::string &text) { last_error = text; }

namespace {

// join makes a communicator, at once or when the group ends.
int join(void **out, int ranks, const Invitation &id, int rank, int device) {
  auto comm = std::make_shared<Communicator>();
  comm->device = device;
  // How much memory a communicator takes depends on topology, channels and protocols, and is not documented.
  note_inferred("NCCL buffers");
  if (uint64_t size = setting_size("STANDIN_NCCL", 0)) {
    int failed = 0;
    on_device(device, [&] { failed = cudaMalloc(&comm->buffers, size); });
    if (failed) return last_error = "no device memory for NCCL's buffers", int(kCudaError);
  }
  auto meet = [comm, ranks, id, rank]() -> int {
    std::string error;
    Status s = Team::join(id, rank, ranks, &comm->team, &error);
    if (s) {
      last_error = error;
      set_error(*comm, s, error);
    }
    return s;
  };
  if (in_group()) {
    *out = add(comm);
    join_with_group(meet);
    return kOk;
  }
  WithoutInterpreterLock unlocked;
  int s = meet();
  *out = s ? nullptr : add(comm);
  return s;
}

// The version of the real library that the stand-in replaces.
int hidden_version() {
  static int version = [] {
    int v = 0;
    if (void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD)) {
      if (auto f = reinterpret_cast<int (*)(int *)>(dlsym(library, "ncclGetVersion"))) f(&v);
      dlclose(library);
    }
    return v ? v : 22707;
  }();
  return version;
}

void release(const Handle &comm) {
  if (comm->buffers) cudaFree(comm->buffers);
  comm->buffers = nullptr;
}

// drain waits until a communicator has no outstanding calls.
void drain(const Handle &comm) {
  WithoutInterpreterLock unlocked;
  std::deque<Ticket> outstanding;
  {
    std::lock_guard<std::mutex> l(comm->mutex);
    outstanding = comm->outstanding;
  }
  for (auto &t : outstanding) finish(t);
}

}  // namespace
}  // namespace nccl
}  // namespace standin

using namespace standin;
using namespace standin::nccl;

STANDIN_API int ncclGetVersion(int *version) {
  if (!version) return kInvalidArgument;
  *version = hidden_version();
  return kOk;
}

STANDIN_API int ncclGetUniqueId(Invitation *id) {
  NCCL_ENTER();
  return Team::invite(id, &last_error);
}

STANDIN_API int ncclCommInitRank(void **comm, int ranks, Invitation id, int rank) {
  NCCL_ENTER();
  return join(comm, ranks, id, rank, device());
}

STANDIN_API int ncclCommInitRankConfig(void **comm, int ranks, Invitation id, int rank, void *) {
  NCCL_ENTER();
  return join(comm, ranks, id, rank, device());
}

STANDIN_API int ncclCommInitRankScalable(void **comm, int ranks, int rank, int, Invitation *ids, void *) {
  NCCL_ENTER();
  return join(comm, ranks, ids[0], rank, device());
}

STANDIN_API int ncclCommInitAll(void **comms, int n, const int *list) {
  NCCL_ENTER();
  if (!comms || n < 1 || n > devices()) return complain(kInvalidArgument, "ncclCommInitAll: %d of %d devices", n, devices());
  Invitation id;
  if (Status s = Team::invite(&id, &last_error)) return s;
  start_group();
  for (int i = 0; i < n; i++) join(&comms[i], n, id, i, list ? list[i] : i);
  return end_group();
}

// Ranks of the same color become a communicator, ordered by key and, for equal keys, by rank.
STANDIN_API int ncclCommSplit(void *handle, int color, int key, void **out, void *) {
  NCCL_ENTER();
  Handle comm = find(handle, __func__);
  if (!comm || !out || !comm->team) return kInvalidArgument;
  if (int e = comm->status) return e;
  WithoutInterpreterLock unlocked;
  Team &team = *comm->team;
  struct Choice {
    int color, key;
    Invitation id;
  };
  auto show = [&](const Choice &c) {
    memcpy(team.payload(kCall), &c, sizeof c);
    return team.meet(kCall);
  };
  auto shown = [&](int r) { return reinterpret_cast<const Choice *>(team.payload_of(kCall, r)); };
  Choice mine{color, key, {}};
  if (Status s = show(mine)) return set_error(*comm, s, team.error()), s;
  std::vector<std::pair<int, int>> members;
  for (int r = 0; r < team.ranks(); r++)
    if (shown(r)->color == color) members.push_back({shown(r)->key, r});
  std::sort(members.begin(), members.end());
  int leader = members[0].second, rank = 0;
  while (members[size_t(rank)].second != team.rank()) rank++;
  if (color >= 0 && leader == team.rank())
    if (Status s = Team::invite(&mine.id, &last_error)) return s;
  if (Status s = show(mine)) return set_error(*comm, s, team.error()), s;
  *out = nullptr;
  if (color < 0) return kOk;  // NCCL_SPLIT_NOCOLOR
  Invitation id = shown(leader)->id;
  return join(out, int(members.size()), id, rank, comm->device);
}

STANDIN_API int ncclCommFinalize(void *handle) {
  NCCL_ENTER();
  Handle comm = find(handle, __func__);
  if (!comm) return kInvalidArgument;
  drain(comm);
  return kOk;
}

STANDIN_API int ncclCommDestroy(void *handle) {
  NCCL_ENTER();
  Handle comm = find(handle, __func__);
  if (!comm) return kInvalidArgument;
  drain(comm);
  release(comm);
  remove(handle);
  std::lock_guard<std::mutex> l(comm->mutex);
  comm->ended = true;
  if (comm->team) comm->team->leave();
  return kOk;
}

STANDIN_API int ncclCommAbort(void *handle) {
  query(__func__);  // a lost device must not keep a program from ending
  Handle comm = find(handle, __func__);
  if (!comm) return kInvalidArgument;
  set_error(*comm, kRemoteError, "the communicator was aborted");
  if (comm->team) comm->team->abandon();
  release(comm);
  remove(handle);
  std::lock_guard<std::mutex> l(comm->mutex);
  comm->ended = true;
  return kOk;
}

STANDIN_API int ncclCommGetAsyncError(void *handle, int *status) {
  Handle comm = find(handle, __func__);
  if (!comm || !status) return kInvalidArgument;
  *status = comm->status;
  if (*status == kOk && lost()) *status = kCudaError;
  return kOk;
}

STANDIN_API int ncclCommCount(void *handle, int *count) {
  Handle comm = find(handle, __func__);
  if (!comm || !count || !comm->team) return kInvalidArgument;
  *count = comm->team->ranks();
  return kOk;
}

STANDIN_API int ncclCommUserRank(void *handle, int *rank) {
  Handle comm = find(handle, __func__);
  if (!comm || !rank || !comm->team) return kInvalidArgument;
  *rank = comm->team->rank();
  return kOk;
}

STANDIN_API int ncclCommCuDevice(void *handle, int *device) {
  Handle comm = find(handle, __func__);
  if (!comm || !device) return kInvalidArgument;
  *device = comm->device;
  return kOk;
}

STANDIN_API const char *ncclGetErrorString(int status) {
  static const char *const texts[] = {"no error",       "unhandled cuda error", "unhandled system error",
                                      "internal error", "invalid argument",     "invalid usage",
                                      "remote process exited or there was a network error", "NCCL operation in progress"};
  return status >= 0 && status < 8 ? texts[status] : "unknown result code";
}

STANDIN_API const char *ncclGetLastError(void *handle) {
  static thread_local std::string text;
  text = last_error;
  std::lock_guard<std::mutex> l(communicators_mutex);
  auto i = communicators().find(handle);
  if (i != communicators().end() && i->second->status) {
    std::lock_guard<std::mutex> m(i->second->mutex);
    text = i->second->error;
  }
  return text.c_str();
}

// ---- Memory: plain device memory, and registrations that change nothing ----

STANDIN_API int ncclMemAlloc(void **p, size_t size) {
  NCCL_ENTER();
  return cudaMalloc(p, size) ? int(kCudaError) : int(kOk);
}

STANDIN_API int ncclMemFree(void *p) {
  NCCL_ENTER();
  return cudaFree(p) ? int(kCudaError) : int(kOk);
}

STANDIN_API int ncclCommRegister(void *comm, void *buffer, size_t, void **handle) {
  NCCL_ENTER();
  if (!find(comm, __func__) || !handle) return kInvalidArgument;
  *handle = buffer;
  return kOk;
}

STANDIN_API int ncclCommDeregister(void *comm, void *) {
  NCCL_ENTER();
  return find(comm, __func__) ? int(kOk) : int(kInvalidArgument);
}
