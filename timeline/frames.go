package timeline

import (
	"path"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// frameKind is what one frame says about the allocations below it, as a bit set. Kinds are found once for
// each frame of a trace, from its function and file alone, so that a stack costs one OR a frame.
type frameKind uint32

const (
	framePython frameKind = 1 << iota
	frameLibrary
	frameTorch
	frameNoise   // says nothing to a person: see noiseNames
	frameWrapper // a call of a call: collapsed in icicles
	frameModule  // torch.profiler's "nn.Module: Linear_0"
	frameForward
	frameModuleCall
	frameBackward // the Python call that starts the backward pass
	frameEngine   // the C++ autograd engine
	frameAccumulate
	frameOptimizer
	frameZeroGrad
	frameCheckpoint // recomputation inside the backward pass
	frameLoader
	frameCopy       // .to, .cuda, pin_memory
	frameModuleInit // a constructor of PyTorch's modules, or the filling of their weights
	frameUserInit   // the innermost frame of the user's is a constructor
	frameModuleMove // nn.Module.to, .cuda: _apply
	frameLoad       // load_state_dict, torch.load
	frameConstructor
	frameOptimizerFile
	frameOp       // a C++ frame that names a node of the autograd graph
	framePackage  // in a folder of installed packages
	framePlumbing // the allocator and the tensor library below an operator
	frameMain     // the stack begins where those of the forward or the optimizer do: see stackKinds.begin
)

// noiseNames and noiseFiles are what PyTorch's own flame graphs drop (torch/cuda/_memory_viz.py,
// _frame_filter), and the frames of the C and Python run time that later versions record.
var (
	noiseNames = []string{
		"unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp", "_start", "__libc_start_main", "__libc_start_call_main",
		"PyEval_", "PyObject_", "PyFunction_", "_PyStack_", "PyMethod_New", "PyRun_", "Py_RunMain", "Py_BytesMain", "__Pyx_", "__pyx_",
		"slot_tp_", "method_vectorcall", "_PyFunction_Vectorcall", "PyVectorcall_", "PyCMethod_", "PyType_", "cfunction_", "_PyEval",
		"__libc_init_first", "THPVariable_", "start_thread", "__clone", "clone3", "pthread_", "execute_native_thread_routine", "std::error_code", "std::_Function_handler",
		"c10::impl::wrap_kernel_functor", "callUnboxedKernelFunction", "c10::Dispatcher::", "::redispatch(",
	}
	noiseFiles = []string{
		"core/boxing", "/Register", "/Redispatch", "pythonrun.c", "Modules/main.c", "Objects/call.c", "Objects/methodobject.c",
		"pycore_ceval.h", "ceval.c", "cpython/abstract.h", "Objects/typeobject.c", "Objects/classobject.c",
	}
	wrapperNames = []string{
		"_call_impl", "_wrapped_call_impl", "decorate_context", "_fn", "decorate_autocast", "wrapper", "inner", "_inner", "_run_code",
		"_run_module_as_main",
	}
	torchParts = []string{
		"/torch/nn/", "/torch/optim/", "/torch/autograd/", "/torch/utils/", "/torch/cuda/", "/torch/distributed/", "/torch/jit/",
		"/torch/fx/", "/torch/amp/", "/torch/func/", "/torch/_", "/torch/functional.py", "/torch/serialization.py", "/torch/overrides.py",
		"/torch/random.py", "/torch/storage.py", "/torch/export/", "/torch/compiler/", "/torch/profiler/", "/torch/nested/",
		"/site-packages/torch/", "/dist-packages/torch/",
	}
	// plumbing allocates for whoever asks and tells nothing of why.
	plumbing = []string{
		"c10::", "at::detail::", "at::native::empty", "at::TensorIterator", "at::_ops::empty", "::wrapper_", "::create_out(",
		"::set_output_raw_strided(", "new_empty", "empty_like", "_to_copy",
	}
	// infrastructure packages run a user's code and are never what a user wants to see as the place of an
	// allocation.
	infrastructure = []string{
		"/accelerate/", "/lightning/", "/pytorch_lightning/", "/deepspeed/", "/functorch/", "/triton/", "/numpy/", "/ipykernel/",
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

// fileKind classifies a file path, that begins with a slash and has no other separators.
func fileKind(f string) frameKind {
	var k frameKind
	if strings.HasSuffix(f, ".py") || strings.HasPrefix(f, "/<") || strings.HasSuffix(f, ".ipynb") {
		k |= framePython
	}
	if containsAny(f, torchParts) {
		k |= frameTorch | frameLibrary
	}
	if strings.Contains(f, "-packages/") {
		k |= framePackage
	}
	standard := strings.Contains(f, "/lib/python") && !strings.Contains(f, "-packages/") || strings.HasPrefix(f, "/<frozen")
	if standard || containsAny(f, infrastructure) {
		k |= frameLibrary
	}
	if containsAny(f, noiseFiles) {
		k |= frameNoise
	}
	if strings.Contains(f, "/torch/optim/") {
		k |= frameOptimizer
	}
	if strings.Contains(strings.ToLower(path.Base(f)), "optim") {
		k |= frameOptimizerFile
	}
	return k | torchFileKind(f)
}

func torchFileKind(f string) frameKind {
	switch {
	case strings.HasSuffix(f, "/torch/nn/init.py"):
		return frameModuleInit
	case strings.Contains(f, "/torch/utils/checkpoint.py"):
		return frameCheckpoint
	case strings.Contains(f, "/torch/utils/data/"):
		return frameLoader
	case strings.HasSuffix(f, "/torch/serialization.py"), strings.Contains(f, "/safetensors/"):
		return frameLoad
	}
	return 0
}

// funcKind classifies a function of a file whose kind is known.
func funcKind(fn string, file frameKind, path string) frameKind {
	var k frameKind
	if strings.HasPrefix(fn, "nn.Module: ") {
		return frameModule | frameForward | framePython
	}
	if file&framePython == 0 {
		return cppKind(fn)
	}
	switch fn {
	case "forward", "training_step", "_forward_impl":
		k |= frameForward
	case "_call_impl", "_wrapped_call_impl":
		if file&frameTorch != 0 {
			k |= frameModuleCall
		}
	case "backward", "_engine_run_backward", "run_backward":
		k |= frameBackward
	case "unpack_hook":
		if file&frameCheckpoint != 0 { // a forward that the backward pass runs again
			k |= frameBackward
		}
	case "zero_grad":
		k |= frameZeroGrad
	case "_init_group", "_multi_tensor_adamw", "_single_tensor_adamw":
		k |= frameOptimizer
	case "__init__":
		k |= constructorKind(path)
	case "reset_parameters":
		k |= frameModuleInit
	case "_apply":
		if strings.HasSuffix(path, "torch/nn/modules/module.py") {
			k |= frameModuleMove
		}
	case "to", "cuda", "pin_memory":
		k |= frameCopy
	case "load_state_dict", "_load_from_state_dict", "from_pretrained", "load_checkpoint":
		k |= frameLoad
	case "step", "optimizer_step":
		if strings.Contains(strings.ToLower(path), "optim") || strings.Contains(strings.ToLower(path), "adam") {
			k |= frameOptimizer
		}
	}
	if strings.Contains(fn, "init_weight") || strings.Contains(fn, "load_weight") {
		k |= frameLoad
	}
	if file&frameLibrary != 0 && isOneOf(fn, wrapperNames) {
		k |= frameWrapper
	}
	if strings.HasSuffix(path, "torch/_ops.py") || strings.HasSuffix(path, "torch/utils/_contextlib.py") {
		k |= frameWrapper
	}
	return k
}

// constructorKind classifies a constructor by its file: PyTorch's own modules make weights; others may, and
// what they make then depends on which frame is innermost (see madeBy). Buffers and caches are made in
// constructors too.
func constructorKind(file string) frameKind {
	if strings.Contains(file, "/torch/nn/modules/") {
		return frameModuleInit
	}
	if containsAny(strings.ToLower(path.Base(file)), []string{"grad", "cache", "optim", "buffer", "adam"}) {
		return 0
	}
	return frameConstructor
}

// madeBy says whether a stack's innermost frame of the user's is a constructor: what that makes are weights.
func (f *stackKinds) madeBy(frames []traces.FrameID) frameKind {
	for _, id := range frames {
		k := f.frames[id]
		if k&framePython == 0 || k&(frameLibrary|frameWrapper) != 0 {
			continue
		}
		if k&frameConstructor != 0 {
			return frameUserInit
		}
		return 0
	}
	return 0
}

func cppKind(fn string) frameKind {
	var k frameKind
	if containsAny(fn, noiseNames) {
		k |= frameNoise
	}
	node := strings.Contains(fn, "Backward") && strings.Contains(fn, "::apply(")
	if node || strings.HasPrefix(fn, "torch::autograd::AccumulateGrad::apply(") {
		k |= frameOp
	}
	if containsAny(fn, plumbing) {
		k |= framePlumbing
	}
	if strings.Contains(fn, "autograd::Engine::") || strings.Contains(fn, "PythonEngine::") {
		k |= frameEngine
	}
	if strings.Contains(fn, "AccumulateGrad") {
		k |= frameAccumulate
	}
	return k
}

func isOneOf(s string, list []string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// stackKinds are the kinds of a trace's frames and stacks.
type stackKinds struct {
	frames []frameKind // by FrameID
	stacks []frameKind // by StackID: those of its frames, see join
}

// kinds are found once for a trace and shared by its devices.
var kinds = NewMemo(func(t *Timeline) *stackKinds {
	tr := t.places
	files := make(map[string]frameKind)
	f := &stackKinds{frames: make([]frameKind, len(tr.Frames)), stacks: make([]frameKind, tr.Stacks.Len())}
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
		f.frames[i] = k | funcKind(fn, k, name)
	}
	for i := range f.stacks {
		f.stacks[i] = f.join(tr.Stacks.At(traces.StackID(i)))
		if f.stacks[i]&frameConstructor != 0 {
			f.stacks[i] |= f.madeBy(tr.Stacks.At(traces.StackID(i)))
		}
	}
	f.begin(tr)
	return f
})

// begin marks the stacks whose outermost Python function is that of a stack of the forward or the optimizer.
// The thread that runs these waits while the backward pass runs on threads of its own, whose stacks begin
// elsewhere: with a hook, or with no frame at all.
func (f *stackKinds) begin(tr *traces.Trace) {
	type function struct{ name, file traces.StringID }
	outermost := func(i int) (function, bool) {
		for _, id := range slices.Backward(tr.Stacks.At(traces.StackID(i))) {
			if f.frames[id]&framePython != 0 {
				return function{tr.Frames[id].Func, tr.Frames[id].File}, true
			}
		}
		return function{}, false
	}
	main := make(map[function]bool)
	for i, k := range f.stacks {
		if k&(frameModel|frameOptimizer) != 0 && k&(frameBackward|frameEngine|frameAccumulate) == 0 {
			if fn, ok := outermost(i); ok {
				main[fn] = true
			}
		}
	}
	for i := range f.stacks {
		if fn, ok := outermost(i); ok && main[fn] {
			f.stacks[i] |= frameMain
		}
	}
}

// join returns the kind of a stack, innermost frame first. A model or a backward pass that an optimizer's
// step runs, as a closure, is not the optimizer's.
func (f *stackKinds) join(frames []traces.FrameID) frameKind {
	var all frameKind
	for _, id := range frames {
		k := f.frames[id]
		if all&(frameModel|frameBackward) != 0 {
			k &^= frameOptimizer | frameOptimizerFile
		}
		all |= k
	}
	return all
}

// of returns the kind of a stack, 0 for NoStack.
func (f *stackKinds) of(s traces.StackID) frameKind {
	if s < 0 || int(s) >= len(f.stacks) {
		return 0
	}
	return f.stacks[s]
}
