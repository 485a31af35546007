package traces

import "testing"

func TestProfilerFrameNamesAreSplit(t *testing.T) {
	for name, want := range map[string]struct {
		fn, file string
		line     int
	}{
		"torch/optim/adam.py(140): _init_group": {"_init_group", "torch/optim/adam.py", 140},
		"<string>(2): __init__":                 {"__init__", "<string>", 2},
		"C:\\a (b)\\train.py(7): main":          {"main", "C:\\a (b)\\train.py", 7},
		"<built-in method add of Tensor object at 0x7f0dc>": {"<built-in method add of Tensor object>", "",
			0},
		"nn.Module: Linear_0": {"nn.Module: Linear_0", "", 0},
		"f(99999999999): g":   {"f(99999999999): g", "", 0},
		"at::(x): y":          {"at::(x): y", "", 0},
		"":                    {"", "", 0},
	} {
		if fn, file, line := SplitFrameName(name); fn != want.fn || file != want.file || line != want.line {
			t.Errorf("%q is %q, %q, %d", name, fn, file, line)
		}
	}
}

func TestAFrameKeepsItsNameAndReadsAsItsParts(t *testing.T) {
	b := NewBuilder()
	id := b.Frame(Frame{Func: b.String("a.py(3): f"), File: b.String("none")})
	tr := b.Finish()
	if fn, file, line := tr.FrameText(id); fn != "f" || file != "a.py" || line != 3 {
		t.Errorf("%q %q %d", fn, file, line)
	}
	if got := tr.Text(tr.Frames[id].Func); got != "a.py(3): f" {
		t.Errorf("the frame itself is %q", got)
	}
}
