package sites

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
)

func TestNamesOfNativeFrames(t *testing.T) {
	for name, want := range map[string]string{
		"at::native::add(at::Tensor const&, at::Tensor const&)":             "at::native::add",
		"void at::native::(anonymous namespace)::copy_kernel(long, bool)":   "at::native::copy_kernel",
		"torch::autograd::generated::AddmmBackward0::apply(std::vector<x>)": "AddmmBackward0",
		"c10::Dispatcher::operator()(int)":                                  "c10::Dispatcher::operator",
		"aten::mm":                                                          "aten::mm",
		"forward pass":                                                      "forward pass",
		"Torch-Compiled Region: 0/0":                                        "Torch-Compiled Region: 0/0",
		"## Call CompiledFxGraph fay2kcvgyh66yeoxoopa6wviprou5ua6oex3 ##":   "compiled graph fay2kcvg",
		"## Call CompiledFxGraph f ##":                                      "compiled graph f",
		"void at::(anonymous namespace)::Launch::operator()(int) const":     "void at::Launch::operator",
		"at::Tensor make<int, long>(int)":                                   "at::Tensor make<int, long>",
		" leading(int)":                                                     "leading",
		"(unnamed)":                                                         "(unnamed)",
		"":                                                                  "",
	} {
		if got := cppName(name); got != want {
			t.Errorf("cppName(%q) = %q, want %q", name, got, want)
		}
	}
}

// A site has the shortest name that no other has: more folders where files are called alike, the caller
// where a function of a package is called from several places, and the phase where it runs in several.
func TestNamesOfSitesTellThemApart(t *testing.T) {
	d := timelinetest.Text(t, `
stack a: step /home/u/train.py:10
stack b: rearrange /lib/site-packages/einops/einops.py:5 | step /home/u/train.py:10
stack c: rearrange /lib/site-packages/einops/einops.py:5 | check /home/u/eval.py:3
stack d: load /home/u/old/data.py:1
stack e: load /home/u/new/data.py:1
stack f: load /home/v/new/data.py:1
stack g: hook /home/u/hooks.py:4 | step /home/u/train.py:11
stack h: hook /home/u/hooks.py:4 | _engine_run_backward /lib/site-packages/torch/autograd/graph.py:700
alloc 0x1000 8 stack=a
alloc 0x2000 8 stack=b
alloc 0x3000 8 stack=c
alloc 0x4000 8 stack=d
alloc 0x5000 8 stack=e
alloc 0x6000 8 stack=f
alloc 0x7000 8 stack=g
alloc 0x8000 8 stack=h
`).Main()
	for a, want := range []string{
		"step train.py:10",
		"rearrange einops.py:5 < step train.py:10", "rearrange einops.py:5 < check eval.py:3",
		"load old/data.py:1", "load u/new/data.py:1", "load v/new/data.py:1",
		"hook hooks.py:4", "hook hooks.py:4 in backward",
	} {
		if got := Name(d, d.Origin(timeline.AllocID(a))); got != want {
			t.Errorf("block %d is of site %q, want %q", a, got, want)
		}
	}
	table := Of(d.Timeline())
	for _, s := range []traces.StackID{traces.NoStack, 8, 1 << 20} {
		if table.Number(s) >= 0 || table.Name(s) != "" || table.module(s) != "" {
			t.Errorf("stack %d has site %q", s, table.Name(s))
		}
	}
}

func TestABlockNamesItsLayerAndTheSharedSite(t *testing.T) {
	d := timelinetest.Text(t,
		"alloc 0x1000 8\nop aten::mm forward in=blocks.7.up w=0x1000\nalloc 0x2000 8 cat=parameter "+
			"name=blocks.7.up.weight\nalloc 0x3000 8\n").Main()
	for a, want := range [][2]string{{"mm blocks.7.up", "mm blocks.*.up"},
		{"blocks.7.up.weight", "blocks.*.up.weight"}, {"", ""}} {
		if from, site := From(d, timeline.AllocID(a)),
			Name(d, d.Origin(timeline.AllocID(a))); from != want[0] || site != want[1] {
			t.Errorf("block %d is from %q of site %q, want %q", a, from, site, want)
		}
	}
}

// A word by which gmemtop calls some blocks finds them together with those that have it in their stack,
// and other words narrow that down.
func TestWhatIsCalledByAWordIsFoundByIt(t *testing.T) {
	d := timelinetest.Text(t, `
stack a: step /home/u/train.py:10
stack b: make_logits /home/u/model.py:5
alloc 0x1000 8 stack=a
alloc 0x2000 8 stack=a
alloc 0x3000 8 stack=b
`).Main()
	called := &Called{Word: "logits", Blocks: func(*timeline.Device) func(timeline.AllocID) bool {
		return func(id timeline.AllocID) bool { return id == 1 }
	}}
	for text, want := range map[string][]timeline.AllocID{
		"logits": {1, 2}, "LOGIT": {1, 2}, "logits train": {1}, "train logits": {1}, "logits other": nil,
		"train": {0, 1},
		"log":   {2}, "git": {2},
	} {
		got, err := Search(t.Context(), d, Query{Text: text, Called: called})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, not %v: %v", text, got, want, err)
		}
	}
	called.Blocks = func(*timeline.Device) func(timeline.AllocID) bool { return nil }
	if got, err := Search(t.Context(), d, Query{Text: "logits", Called: called}); err != nil ||
		!slices.Equal(got, []timeline.AllocID{2}) {
		t.Errorf("where nothing is called so: %v %v", got, err)
	}
}

// A bound of 0 is refused, because a query keeps 0 for "no bound".
func TestAFigureThatCannotBeReadIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"size>":   `size "": write a number and a unit, such as 8GiB or 512k`,
		"size>=":  `size "": write a number and a unit, such as 8GiB or 512k`,
		"life<5":  `time "5": write a number and a unit, such as 5ms or 2s`,
		"size<1":  "<1: nothing is that small",
		"size<=0": "<=0: nothing is that small",
		"size=0":  "=0: nothing is that small",
		"life=0s": "=0s: nothing is that small",
	} {
		if q, err := ParseQuery(text); err == nil || err.Error() != want {
			t.Errorf("%s: %+v, %v", text, q, err)
		}
	}
	for text, want := range map[string]Query{
		"size<2": {MaxSize: 1}, "size<=1": {MaxSize: 1}, "size=1": {MinSize: 1, MaxSize: 1},
		"size>1": {MinSize: 2}, "size>=1": {MinSize: 1}, "life=2ns": {MinLife: 2, MaxLife: 2},
	} {
		if q, err := ParseQuery(text); err != nil || q != want {
			t.Errorf("%s: %+v, %v", text, q, err)
		}
	}
}

// A module path begins with the outermost frame, whether torch.profiler recorded the modules or only their
// forward functions are there.
func TestAModulePathHasTheOutermostFrame(t *testing.T) {
	const call = "_call_impl torch/nn/modules/module.py:1"
	for stack, want := range map[string]string{
		"mm ops.py:1 | nn.Module: Conv2d_1 | run net.py:3 | nn.Module: ResNet_0": "ResNet_0/Conv2d_1",
		"mm ops.py:1 | forward block.py:17 | " + call + " | forward model.py:40": "model:40/block:17",
		"mm ops.py:1 | run train.py:3":                                           "",
	} {
		d := timelinetest.Text(t, "stack s: "+stack+"\nalloc 0x1000 8 stack=s\n").Main()
		if got := Module(d, d.Origin(0)); got != want {
			t.Errorf("%s: %q, not %q", stack, got, want)
		}
	}
}
