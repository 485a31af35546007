package timeline

import (
	"path"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// Site returns the place that tells a person most about a stack, as "func file.py:123": the innermost Python frame that is neither
// PyTorch's, nor the standard library's, nor of a package that merely runs others' code. Where there is none it is the innermost
// Python frame, or node of the autograd graph, then the innermost frame that is no noise; "" for NoStack.
func (d *Device) Site(s traces.StackID) string {
	f := d.tl.named()
	if s < 0 || int(s) >= len(f.sites) {
		return ""
	}
	return f.sites[s]
}

func (t *Timeline) siteOf(f *stackFacts, frames []traces.FrameID) string {
	tiers := [...]func(k frameKind) bool{
		func(k frameKind) bool { return k&framePython != 0 && k&(frameLibrary|frameWrapper|frameModule) == 0 },
		func(k frameKind) bool { return k&(framePython|frameOp) != 0 && k&(frameWrapper|frameModuleCall) == 0 },
		func(k frameKind) bool { return k&(frameNoise|framePlumbing) == 0 },
		func(k frameKind) bool { return k&frameNoise == 0 },
	}
	for _, tells := range tiers {
		for _, id := range frames {
			if tells(f.frames[id]) && t.frameLabel(id) != "" {
				return t.frameLabel(id)
			}
		}
	}
	return ""
}

// frameLabel returns "func file.py:123", with what the frame lacks left out.
func (t *Timeline) frameLabel(id traces.FrameID) string {
	fn, file, line := t.Trace.FrameText(id)
	if t.stacks.frames[id]&framePython == 0 {
		fn = cppName(fn)
	}
	if file == "" || file == "??" {
		return fn
	}
	file = path.Base(strings.ReplaceAll(file, "\\", "/"))
	if line > 0 {
		file += ":" + strconv.Itoa(line)
	}
	if fn == "" {
		return file
	}
	return fn + " " + file
}

// cppName shortens the name of a C++ function: arguments, result and PyTorch's long namespaces go.
func cppName(fn string) string {
	s := strings.ReplaceAll(fn, "(anonymous namespace)::", "")
	if i := strings.IndexByte(s, '('); i > 0 {
		s = s[:i]
	}
	if i := strings.LastIndexByte(s, ' '); i >= 0 && !strings.Contains(s[i:], ">") && !strings.HasSuffix(s, "operator") {
		s = s[i+1:]
	}
	s = strings.TrimPrefix(strings.TrimPrefix(s, "torch::autograd::"), "generated::")
	return strings.TrimSuffix(s, "::apply")
}

// Module returns the module path that a stack shows, outermost first and joined by "/", "" where it shows none. torch.profiler's
// module frames give class names (ResNet_0/Conv2d_1). PyTorch's allocator records no classes: there the path is the chain of
// forward functions by file, with the line of each but the built-in modules (model:40/block:17/linear), which tells layers of one
// file apart and never claims a class name.
func (d *Device) Module(s traces.StackID) string {
	f := d.tl.named()
	if s < 0 || int(s) >= len(f.modules) {
		return ""
	}
	return f.modules[s]
}

func (t *Timeline) moduleOf(f *stackFacts, frames []traces.FrameID) string {
	want := frameForward
	for _, id := range frames {
		if f.frames[id]&frameModule != 0 {
			want = frameModule
			break
		}
	}
	var parts []string
	for i := len(frames) - 1; i >= 0; i-- {
		if k := f.frames[frames[i]]; k&want != 0 {
			parts = append(parts, t.modulePart(frames[i], k))
		}
	}
	return strings.Join(parts, "/")
}

func (t *Timeline) modulePart(id traces.FrameID, k frameKind) string {
	fn, file, line := t.Trace.FrameText(id)
	if k&frameModule != 0 {
		return strings.TrimPrefix(fn, "nn.Module: ")
	}
	stem := path.Base(strings.ReplaceAll(file, "\\", "/"))
	stem = strings.TrimSuffix(stem, path.Ext(stem))
	if k&frameTorch != 0 || line <= 0 {
		return stem
	}
	return stem + ":" + strconv.Itoa(line)
}
