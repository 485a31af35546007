// cuDNN's graph interface (cudnnBackend*): descriptors with attributes, from operations to a plan that can be executed.
//
// A program describes tensors and operations, joins them into a graph, asks a heuristic which engines could
// run it, makes a plan for one of them, and executes the plan on pointers. PyTorch does so for convolutions
// and for cuDNN's attention.
//
// A descriptor here is a bag of attributes: what was set can be read back. The stand-in uses few of them: the
// dimensions of a convolution's tensors (for its workspace), and the chain from plan to engine configuration
// to engine to graph. Each graph has one engine, with index 0, no knobs and no notes (it is deterministic and
// uses no tensor cores, so that no filter of the caller drops it). So new kinds of operations need nothing
// new here.
//
// A descriptor that is put into another one is shared, not copied: cuDNN requires that it is finalized first,
// and after that it does not change. It lives on when its owner destroys it.
//
// Sources: the cuDNN backend API in NVIDIA's documentation. Attributes have that API's numbers; PyTorch's
// own calls, in the order of its operations, confirm those that we use.
#include <cstring>
#include <map>
#include <memory>

#include "cudnn.h"

namespace standin {
namespace cudnn {
namespace {

enum Kind : int {
  kEngine = 2,
  kEngineConfiguration = 3,
  kHeuristic = 4,
  kPlan = 5,
  kConvolutionForward = 10,
  kConvolutionFilter = 11,
  kConvolutionData = 12,
  kGraph = 15,
  kVariantPack = 16,
};

enum Attribute : int {
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigurationEngine = 300,
  kConfigurationKnobs = 302,
  kConfigurationWorkspace = 303,
  kConfigurationSharedMemory = 304,
  kPlanConfiguration = 401,
  kPlanWorkspace = 402,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kDataW = 709,
  kDataX = 710,
  kDataY = 711,
  kFilterW = 715,
  kFilterX = 716,
  kFilterY = 717,
  kGraphOperations = 801,
  kGraphEngines = 802,
  kTensorDimensions = 902,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineKnobs = 1302,
  kEngineNumericalNotes = 1303,
  kEngineLayouts = 1304,
  kEngineBehaviorNotes = 1305,
};

constexpr int kTypeInt64 = 3, kTypeDescriptor = 15;

// The bytes of an element of a cudnnBackendAttributeType_t: enumerations have four.
size_t attribute_size(int type) {
  switch (type) {
    case 0: case 3: case 5: case 6: case kTypeDescriptor: return 8;  // handle, int64, double, pointer, descriptor
    case 2: case 24: return 1;                                       // boolean, char
    case 26: return 16;                                              // fraction
  }
  return type > 0 && type < 64 ? 4 : 0;
}

struct State;
using Ref = std::shared_ptr<State>;

struct Value {
  int type = 0;
  int64_t count = 0;
  std::vector<char> bytes;
  std::vector<Ref> references;  // for descriptors
};

struct State {
  int kind = 0;
  bool finalized = false;
  std::map<int, Value> values;

  const Value *find(int name) const {
    auto i = values.find(name);
    return i == values.end() ? nullptr : &i->second;
  }
  Ref reference(int name) const {
    const Value *v = find(name);
    return v && !v->references.empty() ? v->references[0] : nullptr;
  }
  Dims dims() const {
    const Value *v = find(kTensorDimensions);
    Dims d(v ? size_t(v->count) : 0);
    if (v && v->bytes.size() >= d.size() * 8) memcpy(d.data(), v->bytes.data(), d.size() * 8);
    return d;
  }
  template <typename T>
  T first(int name) const {
    T t{};
    const Value *v = find(name);
    if (v && v->bytes.size() >= sizeof t) memcpy(&t, v->bytes.data(), sizeof t);
    return t;
  }
  void set_number(int name, int64_t n) {
    Value v;
    v.type = kTypeInt64, v.count = 1;
    v.bytes.assign(reinterpret_cast<char *>(&n), reinterpret_cast<char *>(&n) + 8);
    values[name] = v;
  }
  void set_reference(int name, const Ref &r) {
    Value v;
    v.type = kTypeDescriptor, v.count = 1;
    v.references = {r};
    values[name] = v;
  }
};

// What cudnnBackendDescriptor_t points to.
struct Descriptor {
  Ref state;
};

Dims dims_of(const Ref &operation, int name) {
  Ref t = operation->reference(name);
  return t ? t->dims() : Dims();
}

// The operations in an engine's graph.
std::vector<Ref> operations(const Ref &engine) {
  Ref graph = engine ? engine->reference(kEngineGraph) : nullptr;
  const Value *v = graph ? graph->find(kGraphOperations) : nullptr;
  return v ? v->references : std::vector<Ref>();
}

bool is_convolution(const Ref &o) { return o->kind >= kConvolutionForward && o->kind <= kConvolutionData; }

uint64_t workspace(const Ref &engine) {
  uint64_t sum = 0;
  for (const Ref &o : operations(engine)) {
    switch (o->kind) {
      case kConvolutionForward:
        sum += convolution_workspace(Pass::kForward, dims_of(o, kForwardX), dims_of(o, kForwardW), dims_of(o, kForwardY));
        break;
      case kConvolutionData:
        sum += convolution_workspace(Pass::kData, dims_of(o, kDataX), dims_of(o, kDataW), dims_of(o, kDataY));
        break;
      case kConvolutionFilter:
        sum += convolution_workspace(Pass::kFilter, dims_of(o, kFilterX), dims_of(o, kFilterW), dims_of(o, kFilterY));
        break;
      default: note_inferred("cuDNN graph workspace");
    }
  }
  return sum;
}

// finalize fills in the attributes that the library itself sets.
int finalize(State &s) {
  switch (s.kind) {
    case kGraph: s.set_number(kGraphEngines, 1); break;
    case kHeuristic: {
      Ref graph = s.reference(kHeuristicGraph);
      if (!graph) return kBadParameter;
      auto engine = std::make_shared<State>(), configuration = std::make_shared<State>();
      engine->kind = kEngine, engine->finalized = true;
      engine->set_reference(kEngineGraph, graph);
      engine->set_number(kEngineIndex, 0);
      configuration->kind = kEngineConfiguration, configuration->finalized = true;
      configuration->set_reference(kConfigurationEngine, engine);
      s.set_reference(kHeuristicResults, configuration);
      break;
    }
    case kEngine:
      if (!s.reference(kEngineGraph)) return kBadParameter;
      if (s.first<int64_t>(kEngineIndex) != 0) return kUnsupported;
      break;
    case kEngineConfiguration:
      if (!s.reference(kConfigurationEngine)) return kBadParameter;
      break;
    case kPlan: {
      Ref configuration = s.reference(kPlanConfiguration);
      if (!configuration) return kBadParameter;
      s.set_number(kPlanWorkspace, int64_t(workspace(configuration->reference(kConfigurationEngine))));
      break;
    }
    default: break;
  }
  s.finalized = true;
  return kOk;
}

// Attributes set by the library that may have no elements.
bool is_empty_list(int name) {
  switch (name) {
    case kConfigurationKnobs: case kEngineKnobs: case kEngineNumericalNotes: case kEngineLayouts: case kEngineBehaviorNotes: return true;
  }
  return false;
}

}  // namespace
}  // namespace cudnn
}  // namespace standin

using namespace standin;
using namespace standin::cudnn;

STANDIN_API int cudnnBackendCreateDescriptor(int kind, Descriptor **out) {
  CUDNN_ENTER();
  if (!out) return kBadParameter;
  *out = new Descriptor{std::make_shared<State>()};
  (*out)->state->kind = kind;
  return kOk;
}

STANDIN_API int cudnnBackendDestroyDescriptor(Descriptor *d) {
  CUDNN_ENTER();
  delete d;
  return kOk;
}

STANDIN_API int cudnnBackendSetAttribute(Descriptor *d, int name, int type, int64_t count, const void *elements) {
  CUDNN_ENTER();
  size_t size = attribute_size(type);
  if (!d || count < 0 || count > 1 << 20 || (count && !elements) || !size || d->state->finalized) return kBadParameter;
  Value v;
  v.type = type, v.count = count;
  if (type == kTypeDescriptor) {
    for (int64_t i = 0; i < count; i++) {
      const Descriptor *other = static_cast<Descriptor *const *>(elements)[i];
      if (!other) return kBadParameter;
      v.references.push_back(other->state);
    }
  } else if (count) {
    const char *p = static_cast<const char *>(elements);
    v.bytes.assign(p, p + size_t(count) * size);
  }
  d->state->values[name] = std::move(v);
  return kOk;
}

STANDIN_API int cudnnBackendFinalize(Descriptor *d) {
  CUDNN_ENTER();
  return d ? finalize(*d->state) : int(kBadParameter);
}

// For descriptors, the caller passes ones it has made, and we fill them in.
STANDIN_API int cudnnBackendGetAttribute(const Descriptor *d, int name, int type, int64_t wanted, int64_t *count, void *elements) {
  CUDNN_ENTER();
  if (!d) return kBadParameter;
  const State &s = *d->state;
  if (s.kind == kEngineConfiguration && (name == kConfigurationWorkspace || name == kConfigurationSharedMemory)) {
    int64_t n = name == kConfigurationWorkspace ? int64_t(workspace(s.reference(kConfigurationEngine))) : 0;
    if (count) *count = 1;
    if (elements && wanted > 0) memcpy(elements, &n, attribute_size(type) == 4 ? 4 : 8);
    return kOk;
  }
  const Value *v = s.find(name);
  if (!v) {
    if (count) *count = 0;
    return is_empty_list(name) ? kOk : kUnsupported;
  }
  if (v->type != type) return kBadParameter;
  int64_t n = v->count < wanted ? v->count : wanted;
  if (count) *count = wanted ? n : v->count;
  if (!elements || n <= 0) return kOk;
  if (type == kTypeDescriptor) {
    for (int64_t i = 0; i < n; i++) {
      Descriptor *out = static_cast<Descriptor **>(elements)[i];
      if (!out) return kBadParameter;
      out->state = v->references[size_t(i)];
    }
  } else {
    memcpy(elements, v->bytes.data(), size_t(n) * attribute_size(type));
  }
  return kOk;
}

STANDIN_API int cudnnBackendExecute(void *handle, const Descriptor *plan, const Descriptor *pack) {
  CUDNN_ENTER();
  if (!handle || !plan || !pack || plan->state->kind != kPlan || pack->state->kind != kVariantPack || !plan->state->finalized)
    return kBadParameter;
  Ref configuration = plan->state->reference(kPlanConfiguration);
  bool convolves = false;
  for (const Ref &o : operations(configuration->reference(kConfigurationEngine))) convolves |= is_convolution(o);
  const char *what = convolves ? "cuDNN convolution" : "cuDNN graph";
  uint64_t size = uint64_t(plan->state->first<int64_t>(kPlanWorkspace));
  void *workspace = pack->state->first<void *>(kPackWorkspace);
  if (size && !is_device_memory(workspace, size)) {
    violate("%s: its workspace is not %llu bytes of device memory", what, static_cast<unsigned long long>(size));
    return kBadParameter;
  }
  const Value *pointers = pack->state->find(kPackPointers);
  for (int64_t i = 0; convolves && pointers && i < pointers->count; i++) {
    void *p;
    memcpy(&p, pointers->bytes.data() + size_t(i) * 8, 8);
    if (p && !is_device_memory(p, 1)) {
      violate("%s: tensor %lld of its pack is not in device memory", what, static_cast<long long>(i));
      return kBadParameter;
    }
  }
  count(convolves ? "cudnn_convolutions" : "cudnn_graphs");
  return work(handle, what);
}
