package frames

import (
	"path"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// Kind is what one frame says about the allocations below it, as a bit set. Kinds are found once for each
// frame of a trace, from its function and file alone, so a stack costs one OR per frame.
type Kind uint64

// The kinds.
const (
	KindPython Kind = 1 << iota
	KindLibrary
	KindTorch
	KindNoise   // means nothing to a person: see noiseNames
	KindWrapper // only passes a call on: collapsed in icicles
	KindModule  // torch.profiler's "nn.Module: Linear_0"
	KindForward
	KindModuleCall
	KindBackward // the Python call that starts the backward pass
	KindEngine   // the C++ autograd engine
	KindAccumulate
	KindOptimizer
	KindZeroGrad
	KindCheckpoint // recomputation inside the backward pass
	KindLoader
	KindCopy       // .to, .cuda, pin_memory
	KindModuleInit // a constructor of PyTorch's modules, or the initialisation of their weights
	KindUserInit   // the user's innermost frame is a constructor
	KindModuleMove // nn.Module.to, .cuda: _apply
	KindLoad       // load_state_dict, torch.load
	KindConstructor
	KindOptimizerFile
	KindOp       // a C++ frame that names a node of the autograd graph
	KindPackage  // in a folder of installed packages
	KindPlumbing // the allocator and the tensor library below an operator
	KindMain     // the stack begins where those of the forward or the optimizer do: see Kinds.begin
	KindStep     // inside an optimizer's step, not just anywhere in torch/optim
	KindFunctional
	KindBackwardNode // an op named after a node of the backward pass
	KindLoss         // a cross entropy, a softmax over classes, or the backward of one
	KindForeach      // an optimizer that works on all parameters at once
	KindAutocast     // mixed precision
	KindCache        // the user's innermost frame makes a key-value cache
)

// KindModel shows that a model runs, KindBackwardPass that its backward pass does.
const (
	KindModel        = KindForward | KindModuleCall
	KindBackwardPass = KindBackward | KindEngine | KindAccumulate | KindBackwardNode
)

// Has reports whether k has any of the kinds in u.
func (k Kind) Has(u Kind) bool { return k&u != 0 }

// noiseNames and noiseFiles are the frames that PyTorch's own flame graphs drop (torch/cuda/_memory_viz.py,
// _frame_filter), and the frames of the C and Python runtimes that later versions record.
var (
	noiseNames = []string{
		"unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp", "_start", "__libc_start_main",
		"__libc_start_call_main",
		"PyEval_", "PyObject_", "PyFunction_", "_PyStack_", "PyMethod_New", "PyRun_", "Py_RunMain",
		"Py_BytesMain", "__Pyx_", "__pyx_",
		"slot_tp_", "method_vectorcall", "_PyFunction_Vectorcall", "PyVectorcall_", "PyCMethod_", "PyType_",
		"cfunction_", "_PyEval",
		"__libc_init_first", "THPVariable_", "start_thread", "__clone", "clone3", "pthread_",
		"execute_native_thread_routine", "std::error_code", "std::_Function_handler",
		"c10::impl::wrap_kernel_functor", "callUnboxedKernelFunction", "c10::Dispatcher::", "::redispatch(",
	}
	noiseFiles = []string{
		"core/boxing", "/Register", "/Redispatch", "pythonrun.c", "Modules/main.c", "Objects/call.c",
		"Objects/methodobject.c",
		"pycore_ceval.h", "ceval.c", "cpython/abstract.h", "Objects/typeobject.c", "Objects/classobject.c",
	}
	wrapperNames = []string{
		"_call_impl", "_wrapped_call_impl", "decorate_context", "_fn", "decorate_autocast", "wrapper",
		"inner", "_inner", "_run_code",
		"_run_module_as_main",
	}
	torchParts = []string{
		"/torch/nn/", "/torch/optim/", "/torch/autograd/", "/torch/utils/", "/torch/cuda/",
		"/torch/distributed/", "/torch/jit/",
		"/torch/fx/", "/torch/amp/", "/torch/func/", "/torch/_", "/torch/functional.py",
		"/torch/serialization.py", "/torch/overrides.py",
		"/torch/random.py", "/torch/storage.py", "/torch/export/", "/torch/compiler/", "/torch/profiler/",
		"/torch/nested/",
		"/site-packages/torch/", "/dist-packages/torch/",
	}
	// notAStep are the functions of torch/optim that allocate outside a step.
	notAStep = []string{
		"__init__", "add_param_group", "load_state_dict", "state_dict", "zero_grad", "__setstate__",
		"_process_value_according_to_param_policy",
	}
	// makes begin the names of functions that make what the rest of the name says.
	makes     = []string{"alloc", "init", "create", "make", "build", "setup", "set_up"}
	lossNames = []string{
		"cross_entropy", "crossentropy", "log_softmax", "nll_loss", "logsumexp",
		"LogSoftmaxBackward", "NllLoss", "CrossEntropy",
	}
	// plumbing allocates for every caller and says nothing about why.
	plumbing = []string{
		"c10::", "at::detail::", "at::native::empty", "at::TensorIterator", "at::_ops::empty", "::wrapper_",
		"::create_out(",
		"::set_output_raw_strided(", "new_empty", "empty_like", "_to_copy",
	}
	// infrastructure packages run a user's code and are never what a user wants to see as the place of an
	// allocation.
	infrastructure = []string{
		"/accelerate/", "/lightning/", "/pytorch_lightning/", "/deepspeed/", "/functorch/", "/triton/",
		"/numpy/", "/ipykernel/",
		"/IPython/", "/traitlets/", "/tornado/", "/click/", "/absl/", "/hydra/",
	}
)

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// Own reports whether a Python file is a job's own or an installed package's that computes. PyTorch, the
// standard library and frameworks that only run the job's code are not.
func Own(file string) bool {
	return fileKind("/"+strings.TrimPrefix(strings.ReplaceAll(file, `\`, "/"), "/"))&KindLibrary == 0
}

// fileKind classifies a file path, which begins with a slash and has no other separators.
func fileKind(f string) Kind {
	var k Kind
	if strings.HasSuffix(f, ".py") || strings.HasPrefix(f, "/<") || strings.HasSuffix(f, ".ipynb") {
		k |= KindPython
	}
	if containsAny(f, torchParts) {
		k |= KindTorch | KindLibrary
	}
	if strings.HasPrefix(f, "/gmemtop") && !strings.ContainsAny(f[1:], "/.") { // our own code in the process
		k |= KindPython | KindLibrary
	}
	if strings.Contains(f, "-packages/") {
		k |= KindPackage
	}
	standard := strings.Contains(f, "/lib/python") && !strings.Contains(f, "-packages/") ||
		strings.HasPrefix(f, "/<frozen")
	if standard || containsAny(f, infrastructure) {
		k |= KindLibrary
	}
	if containsAny(f, noiseFiles) {
		k |= KindNoise
	}
	if strings.Contains(f, "/torch/optim/") {
		k |= KindOptimizer
	}
	if strings.Contains(strings.ToLower(path.Base(f)), "optim") {
		k |= KindOptimizerFile
	}
	if strings.HasSuffix(f, "/transformers/core_model_loading.py") { // in threads, without from_pretrained
		k |= KindLoad
	}
	return k | torchFileKind(f)
}

// cacheKind says whether a Python function makes a key-value cache: functions such as vLLM's
// _allocate_kv_cache_tensors, constructors in a file named after such caches, and in transformers all of the
// file with its classes of them.
func cacheKind(fn, file string) Kind {
	named := func(s string) bool { return strings.Contains(s, "kv_cache") || strings.Contains(s, "kvcache") }
	name := strings.ToLower(strings.TrimLeft(fn, "_"))
	begins := func(verb string) bool { return strings.HasPrefix(name, verb) }
	switch {
	case strings.HasSuffix(file, "/transformers/cache_utils.py"),
		fn == "__init__" && named(strings.ToLower(path.Base(file))),
		named(name) && slices.ContainsFunc(makes, begins):
		return KindCache
	}
	return 0
}

func torchFileKind(f string) Kind {
	switch {
	case strings.HasSuffix(f, "/torch/nn/init.py"):
		return KindModuleInit
	case strings.Contains(f, "/torch/utils/checkpoint.py"):
		return KindCheckpoint
	case strings.Contains(f, "/torch/utils/data/"):
		return KindLoader
	case strings.HasSuffix(f, "/torch/serialization.py"), strings.Contains(f, "/safetensors/"):
		return KindLoad
	case strings.HasSuffix(f, "/torch/nn/functional.py"):
		return KindFunctional
	case strings.Contains(f, "/torch/amp/"), strings.HasSuffix(f, "autocast_mode.py"):
		return KindAutocast
	}
	return 0
}

// funcKind classifies a function in a file of a known kind.
func funcKind(fn string, file Kind, path string) Kind {
	var k Kind
	if strings.HasPrefix(fn, ModulePrefix) {
		return KindModule | KindForward | KindPython | lossKind(fn)
	}
	if file&KindPython == 0 {
		return cppKind(fn)
	}
	k |= stepKind(fn, path) | lossKind(fn) | cacheKind(fn, path)
	switch fn {
	case "forward", "training_step", "_forward_impl":
		if !strings.Contains(path, "torch/distributed/tensor/") { // DTensor's autograd functions are no model
			k |= KindForward
		}
	case "_call_impl", "_wrapped_call_impl":
		if file&KindTorch != 0 {
			k |= KindModuleCall
		}
	case "backward", "_engine_run_backward", "run_backward":
		k |= KindBackward
	case "grad", "_make_grads": // torch.autograd.grad; backward has a frame of its own
		if strings.HasSuffix(path, "torch/autograd/__init__.py") {
			k |= KindBackward
		}
	case "unpack_hook":
		if file&KindCheckpoint != 0 { // a forward rerun in the backward pass
			k |= KindBackward
		}
	case "zero_grad":
		k |= KindZeroGrad
	case "_init_group", "_multi_tensor_adamw", "_single_tensor_adamw":
		k |= KindOptimizer
	case "__init__":
		k |= constructorKind(path)
	case "reset_parameters":
		k |= KindModuleInit
	case "_apply":
		if strings.HasSuffix(path, "torch/nn/modules/module.py") {
			k |= KindModuleMove
		}
	case "to", "cuda", "pin_memory":
		k |= KindCopy
	case "load_state_dict", "_load_from_state_dict", "from_pretrained", "load_checkpoint":
		k |= KindLoad
	case "step", "optimizer_step":
		if strings.Contains(strings.ToLower(path), "optim") ||
			strings.Contains(strings.ToLower(path), "adam") {
			k |= KindOptimizer
		}
	}
	if strings.Contains(fn, "init_weight") || strings.Contains(fn, "load_weight") {
		k |= KindLoad
	}
	if file&KindLibrary != 0 && isOneOf(fn, wrapperNames) {
		k |= KindWrapper
	}
	if strings.HasSuffix(path, "torch/_ops.py") || strings.HasSuffix(path, "torch/utils/_contextlib.py") {
		k |= KindWrapper
	}
	return k
}

// stepKind says whether a Python function runs within an optimizer's step, and whether on all parameters at
// once.
func stepKind(fn, file string) Kind {
	var k Kind
	base := path.Base(file)
	switch {
	case strings.Contains(file, "/torch/optim/"):
		if base != "lr_scheduler.py" && !isOneOf(fn, notAStep) {
			k |= KindStep
		}
		if strings.HasPrefix(fn, "_multi_tensor_") || strings.Contains(fn, "_foreach_") {
			k |= KindForeach
		}
	case strings.Contains(base, "optim") && (fn == "step" || strings.HasPrefix(fn, "_step")):
		k |= KindStep
	}
	return k
}

// lossKind says whether a function's name is that of a loss over classes, in PyTorch's spelling or a common
// hand-written one.
func lossKind(fn string) Kind {
	if containsAny(fn, lossNames) {
		return KindLoss
	}
	return 0
}

// constructorKind classifies a constructor by its file: PyTorch's own modules make weights; others may,
// depending on which frame is innermost (see madeBy). Buffers and caches are made in constructors too.
func constructorKind(file string) Kind {
	if strings.Contains(file, "/torch/nn/modules/") {
		return KindModuleInit
	}
	if containsAny(strings.ToLower(path.Base(file)), []string{"grad", "cache", "optim", "buffer", "adam"}) {
		return 0
	}
	return KindConstructor
}

// madeBy says what the user's innermost frame in a stack makes. The allocations of a constructor are weights.
func (f *Kinds) madeBy(frames []traces.FrameID) Kind {
	for _, id := range frames {
		k := f.Frames[id]
		if k&KindPython == 0 || k&(KindLibrary|KindWrapper) != 0 {
			continue
		}
		if k&KindCache != 0 {
			return KindCache
		}
		if k&KindConstructor != 0 {
			return KindUserInit
		}
		return 0
	}
	return 0
}

func cppKind(fn string) Kind {
	var k Kind
	if containsAny(fn, noiseNames) {
		k |= KindNoise
	}
	node := strings.Contains(fn, "Backward") && strings.Contains(fn, "::apply(")
	if node || strings.HasPrefix(fn, "torch::autograd::AccumulateGrad::apply(") {
		k |= KindOp
	}
	if containsAny(fn, plumbing) {
		k |= KindPlumbing
	}
	if strings.Contains(fn, "autograd::Engine::") || strings.Contains(fn, "PythonEngine::") {
		k |= KindEngine
	}
	if strings.Contains(fn, "AccumulateGrad") {
		k |= KindAccumulate
	}
	if strings.Contains(fn, "Backward0") || strings.Contains(fn, "Backward1") {
		k |= KindBackwardNode
	}
	if strings.Contains(fn, "_foreach_") {
		k |= KindForeach
	}
	if strings.Contains(fn, "at::autocast::") {
		k |= KindAutocast
	}
	return k | lossKind(fn)
}

func isOneOf(s string, list []string) bool { return slices.Contains(list, s) }

// Kinds are the kinds of a trace's frames and stacks.
type Kinds struct {
	Frames []Kind // by FrameID
	Stacks []Kind // by StackID: the kinds of its frames, see join
}

// KindsOf finds the kinds of a trace's frames and stacks.
func KindsOf(tr *traces.Trace) *Kinds {
	files := make(map[string]Kind)
	f := &Kinds{Frames: make([]Kind, len(tr.Frames)), Stacks: make([]Kind, tr.Stacks.Len())}
	for i := range tr.Frames {
		fn, file, _ := tr.FrameText(traces.FrameID(i))
		name := strings.ReplaceAll(file, "\\", "/")
		if !strings.HasPrefix(name, "/") {
			name = "/" + name // profilers cut paths off before the package's name
		}
		k, ok := files[name]
		if !ok {
			k = fileKind(name)
			files[name] = k
		}
		f.Frames[i] = k | funcKind(fn, k, name)
	}
	for i := range f.Stacks {
		f.Stacks[i] = f.join(tr.Stacks.At(traces.StackID(i)))
		if f.Stacks[i]&(KindConstructor|KindCache) != 0 {
			f.Stacks[i] = f.Stacks[i]&^KindCache | f.madeBy(tr.Stacks.At(traces.StackID(i)))
		}
		if dispatched(tr, traces.StackID(i)) {
			f.Stacks[i] |= KindEngine
		}
	}
	f.begin(tr)
	return f
}

// dispatched reports whether all frames of a stack are of torch/_native, PyTorch's dispatcher of operators
// written in Python. Only in a thread of the autograd engine does a Python stack begin there: elsewhere,
// Python code has called the operator.
func dispatched(tr *traces.Trace, s traces.StackID) bool {
	at := tr.Stacks.At(s)
	return len(at) > 0 && !slices.ContainsFunc(at, func(id traces.FrameID) bool {
		_, file, _ := tr.FrameText(id)
		return !strings.Contains(file, "torch/_native/")
	})
}

// begin marks the stacks that share their outermost Python function with a stack of the forward or the
// optimizer. The thread that runs these waits while the backward pass runs on threads of its own, whose
// stacks begin elsewhere: with a hook, or with no frame at all.
func (f *Kinds) begin(tr *traces.Trace) {
	type function struct{ name, file traces.StringID }
	outermost := func(i int) (function, bool) {
		for _, id := range slices.Backward(tr.Stacks.At(traces.StackID(i))) {
			if f.Frames[id]&KindPython != 0 {
				return function{tr.Frames[id].Func, tr.Frames[id].File}, true
			}
		}
		return function{}, false
	}
	main := make(map[function]bool)
	for i, k := range f.Stacks {
		if k&(KindModel|KindOptimizer) != 0 && k&(KindBackward|KindEngine|KindAccumulate) == 0 {
			if fn, ok := outermost(i); ok {
				main[fn] = true
			}
		}
	}
	for i := range f.Stacks {
		if fn, ok := outermost(i); ok && main[fn] {
			f.Stacks[i] |= KindMain
		}
	}
}

// join returns the kind of a stack, innermost frame first. A model or backward pass that an optimizer's step
// runs as a closure does not belong to the optimizer.
func (f *Kinds) join(frames []traces.FrameID) Kind {
	var all Kind
	for _, id := range frames {
		k := f.Frames[id]
		if all&(KindModel|KindBackward) != 0 {
			k &^= KindOptimizer | KindOptimizerFile | KindStep
		}
		all |= k
	}
	return all
}

// Of returns the kind of a stack, 0 for NoStack.
func (f *Kinds) Of(s traces.StackID) Kind {
	if s < 0 || int(s) >= len(f.Stacks) {
		return 0
	}
	return f.Stacks[s]
}

// PhaseOf returns the phase that a stack shows by itself.
func PhaseOf(k Kind) traces.Phase {
	switch {
	case k&(KindEngine|KindBackward|KindAccumulate) != 0:
		return traces.PhaseBackward
	case k&KindOptimizer != 0:
		return traces.PhaseOptimizer
	case k&KindModel != 0:
		return traces.PhaseForward
	}
	return traces.PhaseUnknown
}

// ModulePrefix begins the frames that torch.profiler records for modules.
const ModulePrefix = "nn.Module: "
