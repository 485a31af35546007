package sites

import (
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
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
		"(unnamed)":                                                         "(unnamed)",
		"":                                                                  "",
	} {
		if got := cppName(name); got != want {
			t.Errorf("cppName(%q) = %q, want %q", name, got, want)
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
