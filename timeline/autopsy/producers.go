package autopsy

import (
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// What allocated a block: the model, a line of user code, a function.

// inModel reports whether a stack is inside a call of the model, and neither of a backward nor an optimizer.
func (c *code) inModel(s traces.StackID) bool {
	k := c.kinds.Of(s)
	return k.Has(frames.KindModel) && !k.Has(frames.KindBackwardPass|frames.KindStep)
}

// ofOutermost reports whether the module that the user's code calls made a block itself, and no module within
// it: its results are often made there.
func (c *code) ofOutermost(s traces.StackID) bool {
	calls := 0
	for _, id := range c.places.Stacks.At(s) {
		if !c.kinds.Frames[id].Has(frames.KindModuleCall) {
			continue
		}
		if fn, _, _ := c.places.FrameText(id); fn == "_call_impl" {
			calls++
		}
	}
	return calls == 1
}

// hooksFile is where PyTorch wraps full backward hooks. What it calls is a hook, whatever its name is.
const hooksFile = "torch/utils/hooks.py"

// inHook reports whether a stack goes through a hook: a function of the user's that torch.nn.Module called
// and that has hook in its name, or one that PyTorch's wrapper of backward hooks called.
func (c *code) inHook(s traces.StackID) bool {
	if s < 0 {
		return false
	}
	at := c.places.Stacks.At(s)
	for i := 1; i < len(at); i++ {
		_, file, _ := c.places.FrameText(at[i])
		if strings.HasSuffix(file, hooksFile) && c.ofUser(at[i-1]) {
			return true
		}
		if !strings.HasSuffix(file, "torch/nn/modules/module.py") {
			continue
		}
		fn, _, _ := c.places.FrameText(at[i-1])
		return c.ofUser(at[i-1]) && strings.Contains(strings.ToLower(fn), "hook")
	}
	return false
}

// ownModule returns the frame that called the module whose own code allocated a block, or -1 if the
// allocation is not directly in a module of the user's.
func (c *code) ownModule(s traces.StackID) traces.FrameID {
	if s < 0 {
		return -1
	}
	at := c.places.Stacks.At(s)
	for i := 1; i < len(at); i++ {
		switch {
		case c.kinds.Frames[at[i]].Has(frames.KindModuleCall):
			for _, id := range at[i:] {
				if c.ofUser(id) {
					return id
				}
			}
			return -1
		case !c.ofUser(at[i-1]):
			return -1
		}
	}
	return -1
}

// byHooks returns how many bytes of some blocks hooks allocated (see inHook).
func (c *evidence) byHooks(ids []timeline.AllocID) (bytes int64) {
	of := map[traces.StackID]bool{}
	for _, id := range ids {
		s := c.d.Origin(id)
		is, known := of[s]
		if !known {
			is = c.inHook(s)
			of[s] = is
		}
		if is {
			bytes += c.d.Allocs.Rounded[id]
		}
	}
	return bytes
}

// ofData reports whether a stack may have put data on the device: its innermost own line is the user's, and
// no module, optimizer or loader of weights is on it.
func (c *code) ofData(s traces.StackID) bool {
	return s >= 0 && !c.kinds.Of(s).Has(frames.KindLoss) && c.ofFunction(s)
}

// ofFunction is the same of what a function of the user's computes, losses included. The buckets that
// DistributedDataParallel makes for gradients are its own.
func (c *code) ofFunction(s traces.StackID) bool {
	if s < 0 || c.kinds.Of(s).Has(frames.KindModel|frames.KindBackwardPass|frames.KindStep|
		frames.KindOptimizer|frames.KindModuleInit|frames.KindModuleMove|frames.KindUserInit|
		frames.KindLoad) {
		return false
	}
	for _, id := range c.places.Stacks.At(s) {
		k := c.kinds.Frames[id]
		if k.Has(frames.KindPython) && !k.Has(frames.KindLibrary|frames.KindNoise) {
			return !k.Has(frames.KindPackage)
		}
		if _, file, _ := c.places.FrameText(id); strings.HasSuffix(file, parallelFile) {
			return false
		}
	}
	return false
}

// userFunction returns the innermost function of a stack that is the user's, and its file.
func (c *code) userFunction(s traces.StackID) (fn, file string) {
	if s < 0 {
		return "", ""
	}
	at := c.places.Stacks.At(s)
	i := slices.IndexFunc(at, c.ofUser)
	if i < 0 {
		return "", ""
	}
	fn, file, _ = c.places.FrameText(at[i])
	return fn, file
}

// userLine names the innermost frame of a stack that is no library's: the line that a user can change.
func (c *evidence) userLine(s traces.StackID) string {
	if s >= 0 {
		for _, id := range c.d.Timeline().Places().Stacks.At(s) {
			if c.ofUser(id) {
				return c.frameText(id)
			}
		}
	}
	return sites.Name(c.d, s)
}

// ofUser reports whether a frame is of the user's own code.
func (c *code) ofUser(id traces.FrameID) bool {
	k := c.kinds.Frames[id]
	return k.Has(frames.KindPython) && !k.Has(frames.KindLibrary|frames.KindPackage|frames.KindNoise)
}

// within reports whether a function is on a stack.
func within(c *evidence, s traces.StackID, fn, file string) bool {
	return s >= 0 && slices.ContainsFunc(c.d.Timeline().Places().Stacks.At(s), func(id traces.FrameID) bool {
		if !c.kinds.Frames[id].Has(frames.KindPython) {
			return false
		}
		f, in, _ := c.d.Timeline().Places().FrameText(id)
		return f == fn && in == file
	})
}

// frames returns the files of a stack's frames, joined.
func (c *code) frames(s traces.StackID) string {
	var b strings.Builder
	if s >= 0 {
		for _, id := range c.places.Stacks.At(s) {
			fn, file, _ := c.places.FrameText(id)
			b.WriteString(fn + " " + file + "\n")
		}
	}
	return b.String()
}

// parallelFile is where DistributedDataParallel is.
const parallelFile = "torch/nn/parallel/distributed.py"
