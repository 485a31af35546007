package timeline

import "testing"

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
