// Graphs: work of streams that is captured instead of run, and then run again and again.
//
// While a stream is captured, its items become nodes. Each comes after the node of the stream's last item and
// the nodes of the events that the stream waited for. A second stream joins the capture by waiting for one of
// its events, and must be joined back before the capture ends, as the CUDA programming guide says. A launch
// runs the nodes as work of one stream: in the orders "once" and "late" as captured, and in a drawn order in
// any order that the dependencies allow, so that a missing dependency shows.
//
// A capture forbids what CUDA forbids: waiting for a captured stream or event, calls that might touch the
// device behind the capture's back (allocating and freeing, unless the thread asked for the relaxed mode),
// and the legacy stream beside blocking streams. Breaking a rule invalidates the capture. Graphs are made by
// capture only; nodes that a program adds itself, including conditional ones, are refused. Capturing or
// launching a node takes constant time; ending a capture is linear in nodes and dependencies.
#include <unistd.h>
#include <sys/syscall.h>

#include <algorithm>

#include "core.h"

namespace standin {

namespace {

constexpr Result kIllegalState = 401;

struct Object {
  void *p;
  void (*destroy)(void *);
  ~Object() {
    if (destroy) destroy(p);
  }
};

struct Handle {  // a graph or an instantiated graph
  std::shared_ptr<Graph> graph;
  std::vector<std::shared_ptr<Object>> objects;
  std::string owner;
  bool executable = false;
};

struct Graphs {
  std::vector<std::shared_ptr<Capture>> captures;
  std::set<Handle *> handles;
  std::map<void *, std::pair<std::shared_ptr<Object>, unsigned>> objects;
  uint64_t next_id = 1;
  uint64_t dice = 1;
};

Graphs &graphs() {
  static auto *g = new Graphs;
  return *g;
}

thread_local int thread_mode = 0;  // 0 global, 1 thread, 2 relaxed

uint64_t thread_id() { return static_cast<uint64_t>(syscall(SYS_gettid)); }

Handle *known(void *h, bool executable) {
  auto *g = static_cast<Handle *>(h);
  return graphs().handles.count(g) && g->executable == executable ? g : nullptr;
}

Result begin(void *stream, int mode) {
  Lock lock(core());
  StreamPtr s = stream_of(stream, lock);
  if (!s) return kInvalidHandle;
  if (s->legacy) return kCaptureUnsupported;
  if (s->capture) return kIllegalState;
  auto c = std::make_shared<Capture>();
  c->graph = std::make_shared<Graph>();
  c->origin = s;
  c->mode = mode;
  c->id = graphs().next_id++;
  c->thread = thread_id();
  c->joined.push_back(s);
  s->capture = c;
  s->frontier.clear();
  graphs().captures.push_back(c);
  return kSuccess;
}

// Whether all nodes lead to the last ones of the stream in which the capture began.
bool joined(const Capture &c) {
  auto &nodes = c.graph->nodes;
  std::vector<bool> seen(nodes.size());
  std::vector<size_t> look = c.origin->frontier;
  while (!look.empty()) {
    size_t n = look.back();
    look.pop_back();
    if (seen[n]) continue;
    seen[n] = true;
    look.insert(look.end(), nodes[n].after.begin(), nodes[n].after.end());
  }
  return std::find(seen.begin(), seen.end(), false) == seen.end();
}

Result end(void *stream, void **out) {
  Lock lock(core());
  StreamPtr s = stream_of(stream, lock);
  if (!s || !out) return kInvalidHandle;
  *out = nullptr;
  auto c = s->capture;
  if (!c) return kIllegalState;
  if (c->mode != 2 && c->thread != thread_id()) return kCaptureWrongThread;
  Result r = kSuccess;
  if (s != c->origin)
    r = kCaptureUnmatched;
  else if (c->invalid)
    r = kCaptureInvalidated;
  else if (!joined(*c))
    r = kCaptureUnjoined;
  for (auto &x : c->joined) {
    x->capture = nullptr;
    x->frontier.clear();
  }
  auto &all = graphs().captures;
  all.erase(std::remove(all.begin(), all.end(), c), all.end());
  if (r) return r;
  auto *g = new Handle;
  g->graph = c->graph;
  g->owner = owner_of_call();
  graphs().handles.insert(g);
  *out = g;
  return kSuccess;
}

Result info(void *stream, int *status, unsigned long long *id, void **graph, const void ***dependencies,
            const void **edges, size_t *n) {
  Lock lock(core());
  StreamPtr s = stream_of(stream, lock);
  if (!s || !status) return kInvalidHandle;
  *status = !s->capture ? 0 : s->capture->invalid ? 2 : 1;
  if (id) *id = s->capture ? s->capture->id : 0;
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (n) *n = 0;
  return kSuccess;
}

Result instantiate(void **out, void *graph) {
  if (!out) return kInvalidValue;
  Lock lock(core());
  Handle *g = known(graph, false);
  if (!g) {
    violate("a graph that does not exist, or was destroyed, is instantiated");
    return kInvalidValue;
  }
  auto *e = new Handle(*g);
  e->graph = std::make_shared<Graph>(*g->graph);
  e->executable = true;
  e->owner = owner_of_call();
  graphs().handles.insert(e);
  *out = e;
  return kSuccess;
}

// An order of the nodes that the dependencies allow: the order of capture, or a drawn one.
std::vector<size_t> order(const Graph &g) {
  size_t n = g.nodes.size();
  std::vector<size_t> result(n);
  for (size_t i = 0; i < n; i++) result[i] = i;
  if (settings().order == 0 || settings().order == 1) return result;
  std::vector<size_t> waits_for(n), ready;
  std::vector<std::vector<size_t>> then(n);
  for (size_t i = 0; i < n; i++) {
    waits_for[i] = g.nodes[i].after.size();
    for (size_t a : g.nodes[i].after) then[a].push_back(i);
    if (!waits_for[i]) ready.push_back(i);
  }
  result.clear();
  auto &d = graphs().dice;
  if (d == 1) d = settings().order * 0x9e3779b97f4a7c15ull | 1;
  while (!ready.empty()) {
    d ^= d << 13, d ^= d >> 7, d ^= d << 17;
    size_t pick = d % ready.size(), i = ready[pick];
    ready[pick] = ready.back();
    ready.pop_back();
    result.push_back(i);
    for (size_t t : then[i])
      if (!--waits_for[t]) ready.push_back(t);
  }
  return result;
}

Result launch_graph(void *exec, void *stream) {
  Lock lock(core());
  Handle *e = known(exec, true);
  StreamPtr s = stream_of(stream, lock);
  if (!e || !s) {
    violate("a graph that does not exist is launched, or a graph into a stream that does not exist");
    return kInvalidHandle;
  }
  std::shared_ptr<Graph> g = e->graph;
  host_spends(HostCost::kLaunch);
  for (size_t i : order(*g)) {
    Item item = g->nodes[i].item;
    item.host = HostCost::kNone;
    if (Result r = give_item(s, std::move(item), lock)) return r;
  }
  return kSuccess;
}

Result destroy(void *h, bool executable) {
  std::vector<std::shared_ptr<Object>> objects;  // their destructors may call us
  {
    Lock lock(core());
    Handle *g = known(h, executable);
    if (!g) {
      violate("a graph that does not exist, or was destroyed before, is destroyed");
      return kInvalidValue;
    }
    objects = std::move(g->objects);
    graphs().handles.erase(g);
    delete g;
  }
  return kSuccess;
}

Result release_object(void *object, unsigned count) {
  std::shared_ptr<Object> last;
  Lock lock(core());
  auto i = graphs().objects.find(object);
  if (i == graphs().objects.end() || i->second.second < count) return kInvalidValue;
  i->second.second -= count;
  if (!i->second.second) {
    last = i->second.first;
    graphs().objects.erase(i);
  }
  lock.unlock();
  return kSuccess;
}

}  // namespace

void capture_item(const StreamPtr &s, Item item, Lock &) {
  auto &nodes = s->capture->graph->nodes;
  Node n;
  n.item = std::move(item);
  n.after = s->frontier;
  nodes.push_back(std::move(n));
  s->frontier.assign(1, nodes.size() - 1);
}

Result forbidden_by_capture(const char *, Lock &) {
  if (thread_mode == 2 || running()) return kSuccess;
  for (auto &c : graphs().captures) {
    bool own = c->thread == thread_id();
    bool forbids = own ? c->mode != 2 : c->mode == 0 && thread_mode == 0;
    if (!forbids) continue;
    c->invalid = true;
    return kCaptureUnsupported;
  }
  return kSuccess;
}

// The legacy stream waits for all blocking streams, so it cannot be used while one of them is captured.
Result legacy_forbidden(Context *context, Lock &) {
  for (auto &c : graphs().captures)
    for (auto &s : c->joined)
      if (s->context == context && !(s->flags & 1)) {
        c->invalid = true;
        return kCaptureImplicit;
      }
  return kSuccess;
}

void graph_leaks(Leaks *leaks, Lock &) {
  for (auto *h : graphs().handles)
    add_leak(leaks, h->executable ? "instantiated graph" : "graph", h->owner, 0);
}

void graphs_reset(Lock &) {
  auto &g = graphs();
  for (auto &c : g.captures)
    for (auto &s : c->joined) s->capture = nullptr;
  g.captures.clear();
  for (auto *h : g.handles) delete h;
  g.handles.clear();
  g.objects.clear();
  g.dice = 1;
}

}  // namespace standin

using namespace standin;

STANDIN_API int cudaThreadExchangeStreamCaptureMode(int *mode) {
  STANDIN_QUERY();
  if (!mode || *mode < 0 || *mode > 2) return keep_error(kInvalidValue);
  std::swap(*mode, thread_mode);
  return kSuccess;
}
STANDIN_API int cuThreadExchangeStreamCaptureMode(int *mode) {
  return cudaThreadExchangeStreamCaptureMode(mode);
}
STANDIN_API int cudaStreamBeginCapture(void *s, int mode) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(begin(s, mode));
}
STANDIN_API int cudaStreamEndCapture(void *s, void **g) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(end(s, g));
}
STANDIN_API int cudaStreamIsCapturing(void *s, int *status) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(info(s, status, nullptr, nullptr, nullptr, nullptr, nullptr));
}
// Before CUDA 13 callers pass only the first three arguments; the others are garbage.
STANDIN_API int cudaStreamGetCaptureInfo(void *s, int *status, unsigned long long *id, void **g,
                                         const void ***d, const void **e, size_t *n) {
  STANDIN_ENTER_RUNTIME();
  if (standin_cuda_version() < 13000) return keep_error(info(s, status, id, nullptr, nullptr, nullptr, nullptr));
  return keep_error(info(s, status, id, g, d, e, n));
}
STANDIN_API int cudaStreamGetCaptureInfo_v2(void *s, int *status, unsigned long long *id, void **g,
                                            const void ***d, size_t *n) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(info(s, status, id, g, d, nullptr, n));
}
STANDIN_API int cudaStreamGetCaptureInfo_v3(void *s, int *status, unsigned long long *id, void **g,
                                            const void ***d, const void **e, size_t *n) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(info(s, status, id, g, d, e, n));
}
STANDIN_API int cudaGraphInstantiate(void **e, void *g, unsigned long long) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(instantiate(e, g));
}
STANDIN_API int cudaGraphInstantiateWithFlags(void **e, void *g, unsigned long long) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(instantiate(e, g));
}
STANDIN_API int cudaGraphUpload(void *, void *) {
  STANDIN_ENTER_RUNTIME();
  return kSuccess;
}
STANDIN_API int cudaGraphLaunch(void *e, void *s) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(launch_graph(e, s));
}
STANDIN_API int cudaGraphDestroy(void *g) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(destroy(g, false));
}
STANDIN_API int cudaGraphExecDestroy(void *e) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(destroy(e, true));
}
STANDIN_API int cudaGraphGetNodes(void *graph, void **nodes, size_t *n) {
  STANDIN_ENTER_RUNTIME();
  Lock lock(core());
  Handle *g = known(graph, false);
  if (!g || !n) return keep_error(kInvalidValue);
  size_t all = g->graph->nodes.size();
  for (size_t i = 0; nodes && i < *n; i++) nodes[i] = i < all ? &g->graph->nodes[i] : nullptr;
  if (!nodes || *n > all) *n = all;
  return kSuccess;
}
STANDIN_API int cudaUserObjectCreate(void **out, void *p, void (*destroy)(void *), unsigned count, unsigned) {
  STANDIN_ENTER_RUNTIME();
  if (!out || !count) return keep_error(kInvalidValue);
  auto o = std::make_shared<Object>(Object{p, nullptr});
  o->destroy = destroy;
  Lock lock(core());
  graphs().objects[o.get()] = {o, count};
  *out = o.get();
  return kSuccess;
}
STANDIN_API int cudaUserObjectRelease(void *o, unsigned count) {
  STANDIN_ENTER_RUNTIME();
  return keep_error(release_object(o, count));
}
STANDIN_API int cudaGraphRetainUserObject(void *graph, void *object, unsigned count, unsigned flags) {
  STANDIN_ENTER_RUNTIME();
  {
    Lock lock(core());
    Handle *g = known(graph, false);
    auto i = graphs().objects.find(object);
    if (!g || i == graphs().objects.end()) return keep_error(kInvalidValue);
    g->objects.push_back(i->second.first);
  }
  return flags & 1 ? keep_error(release_object(object, count)) : kSuccess;  // 1 moves the caller's references
}
