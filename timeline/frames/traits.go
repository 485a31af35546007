package frames

import (
	"hash/fnv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// Traits are what a frame, or all frames of a stack, say about the step of training that they belong to.
type Traits uint16

// The traits.
const (
	IsOptimizer Traits = 1 << iota // inside an optimizer's step
	IsBackward                     // inside the autograd engine
	IsModule                       // inside a call of an nn.Module
	IsForward                      // inside a function called forward, or torch.nn.functional
	IsLoss                         // a cross entropy, a softmax over classes, or the backward of one
	IsForeach                      // an optimizer that works on all parameters at once
	IsAutocast                     // mixed precision
	IsPython                       // has a Python frame
)

// Has reports whether t has any of the traits in u.
func (t Traits) Has(u Traits) bool { return t&u != 0 }

// TraitsOf judges one frame. File paths are compared with forward slashes.
func TraitsOf(fn, file string) Traits {
	if strings.IndexByte(file, '\\') >= 0 {
		file = strings.ReplaceAll(file, `\`, "/")
	}
	if strings.HasSuffix(file, ".py") || strings.HasPrefix(file, "<") {
		return IsPython | pythonTraits(fn, file)
	}
	return nativeTraits(fn)
}

func pythonTraits(fn, file string) Traits {
	base := file[strings.LastIndexByte(file, '/')+1:]
	var t Traits
	switch {
	case strings.Contains(file, "torch/optim/"):
		if base != "lr_scheduler.py" && !notAStep(fn) {
			t |= IsOptimizer
		}
		if strings.HasPrefix(fn, "_multi_tensor_") || strings.Contains(fn, "_foreach_") {
			t |= IsForeach
		}
	case strings.Contains(base, "optim") && (fn == "step" || strings.HasPrefix(fn, "_step")):
		t |= IsOptimizer
	case strings.HasSuffix(file, "torch/nn/modules/module.py"):
		if strings.Contains(fn, "call_impl") || fn == "__call__" || fn == "_slow_forward" {
			t |= IsModule
		}
	case strings.HasSuffix(file, "torch/nn/functional.py"):
		t |= IsForward
	case strings.Contains(file, "torch/autograd/") &&
		(fn == "backward" || fn == "_engine_run_backward" || fn == "grad"):
		t |= IsBackward
	case strings.HasSuffix(file, "torch/utils/checkpoint.py"):
		if fn == "backward" || fn == "unpack_hook" {
			t |= IsBackward
		}
	case strings.Contains(file, "torch/amp/") || strings.HasSuffix(file, "autocast_mode.py"):
		t |= IsAutocast
	}
	if fn == "forward" {
		t |= IsForward
	}
	if isLossName(fn) {
		t |= IsLoss
	}
	return t
}

// notAStep reports whether fn is one of the functions of torch/optim that allocate outside a step.
func notAStep(fn string) bool {
	switch fn {
	case "__init__", "add_param_group", "load_state_dict", "state_dict", "zero_grad", "__setstate__",
		"_process_value_according_to_param_policy":
		return true
	}
	return false
}

func nativeTraits(fn string) Traits {
	var t Traits
	if strings.Contains(fn, "torch::autograd::Engine::") || strings.Contains(fn, "Backward0") ||
		strings.Contains(fn, "Backward1") {
		t |= IsBackward
	}
	if strings.Contains(fn, "_foreach_") {
		t |= IsForeach
	}
	if strings.Contains(fn, "at::autocast::") {
		t |= IsAutocast
	}
	if isLossName(fn) || strings.Contains(fn, "LogSoftmaxBackward") || strings.Contains(fn, "NllLoss") ||
		strings.Contains(fn, "CrossEntropy") {
		t |= IsLoss
	}
	return t
}

// isLossName reports whether a function's name is that of a loss over classes, in PyTorch's spelling or the
// common hand-written one.
func isLossName(fn string) bool {
	for _, s := range [...]string{"cross_entropy", "crossentropy", "log_softmax", "nll_loss", "logsumexp"} {
		if strings.Contains(fn, s) {
			return true
		}
	}
	return false
}

// Stacks holds the traits of every stack of a trace and of nothing else; index with a valid StackID.
type Stacks []Traits

// Classify judges every frame once and gives each stack the traits of its frames: linear in the frames of all
// stacks.
func Classify(tr *traces.Trace) Stacks {
	frames := make([]Traits, len(tr.Frames))
	for i := range tr.Frames {
		fn, file, _ := tr.FrameText(traces.FrameID(i))
		frames[i] = TraitsOf(fn, file)
	}
	classes := make(Stacks, tr.Stacks.Len())
	for i := range classes {
		for _, f := range tr.Stacks.At(traces.StackID(i)) { // innermost first
			t := frames[f]
			if classes[i].Has(IsModule | IsForward | IsBackward) {
				t &^= IsOptimizer // it runs the model as a closure
			}
			classes[i] |= t
		}
	}
	return classes
}

// Of returns the traits of stack s, none for NoStack.
func (c Stacks) Of(s traces.StackID) Traits {
	if s < 0 || int(s) >= len(c) {
		return 0
	}
	return c[s]
}

// Hashes hashes every stack so that the same code in two recordings hashes alike although lines were
// added above it, the two lie in different folders, or were started by scripts of different names: of each
// frame the function and the last two elements of the path, no line; of frames of the script itself (the file
// of the outermost Python frame) the function alone. Frames of C++ are left out where the stack has Python
// frames, since they differ between builds of PyTorch, and so are the wrappers of mixed precision. Calls of
// one function from several lines of another fall together.
func Hashes(tr *traces.Trace) []uint64 {
	type frame struct {
		full, function uint64
		file           traces.StringID
		traits         Traits
	}
	frames := make([]frame, len(tr.Frames))
	h := fnv.New64a()
	hash := func(s string) uint64 {
		h.Reset()
		h.Write([]byte(s))
		return h.Sum64()
	}
	for i := range tr.Frames {
		fn, file, _ := tr.FrameText(traces.FrameID(i))
		frames[i] = frame{hash(fn + "\x00" + PathEnd(file, 2)), hash(fn), tr.Frames[i].File,
			TraitsOf(fn, file)}
	}
	hashes := make([]uint64, tr.Stacks.Len())
	for i := range hashes {
		ids := tr.Stacks.At(traces.StackID(i))
		script := traces.StringID(-1)
		for _, f := range ids {
			if frames[f].traits.Has(IsPython) {
				script = frames[f].file
			}
		}
		sum := uint64(1)
		for _, id := range ids {
			switch f := &frames[id]; {
			case script < 0:
				sum = Mix(sum ^ f.full)
			case !f.traits.Has(IsPython) || f.traits.Has(IsAutocast):
			case f.file == script:
				sum = Mix(sum ^ f.function)
			default:
				sum = Mix(sum ^ f.full)
			}
		}
		hashes[i] = sum
	}
	return hashes
}

// PathEnd returns the last n elements of a path of any system, joined by slashes.
func PathEnd(p string, n int) string {
	p = strings.ReplaceAll(p, `\`, "/")
	at := len(p)
	for range n {
		if at = strings.LastIndexByte(p[:at], '/'); at < 0 {
			return p
		}
	}
	return p[at+1:]
}

// Mix is the finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// OOPSLA 2014).
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
