package traces

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// private returns a trace in which every string that a user could have written holds the word "secret".
func private() *Trace {
	b := NewBuilder()
	b.T.Source = Source{Format: "torch_snapshot", Path: "/home/secret/run.pickle", Bytes: 7}
	b.T.Process.Host = "secret-node"
	dev := b.Device(DeviceGPU, 0)
	frame := func(fn, file string) FrameID {
		return b.Frame(Frame{Func: b.String(fn), File: b.String(file), Line: 12,
			Extra: b.String(`{"fx_node_name":"secret","fx_node_op":3}`)})
	}
	torch := frame("forward", "/home/secret/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py")
	b.Event(Event{Time: 1, Addr: 512, Size: 100, Action: Alloc, Device: dev, Stack: b.Stack([]FrameID{
		torch, frame("secret_attention", "/home/secret/model.py"),
		frame("forward", `C:\Users\secret\train.py`), frame("at::native::empty", "??"),
		frame("secretive::kernel", "/build/secret/kernel.cu"),
		frame("run_secret", "/usr/lib/python3/dist-packages/secret_pkg/x.py"),
		frame("run", "/usr/lib/python3.12/threading.py"), frame("hidden",
			"/home/secret/lib/python3.12/site-packages/secret_torch/torch/x.py"),
	}), Detail: b.Detail(Detail{UserMetadata: b.String("secret note"),
		CompileContext: b.String("secret region"), Op: b.String("secret::op"),
		Category: b.String("activation"), Extra: b.String(`{"key":["secret",{"secret Key":1.5}]}`),
		ForwardStack: NoStack})})
	name := func(s string) StringID { return b.String(s) }
	b.T.Marks = []Mark{{Start: 1, End: 2, Name: name("ProfilerStep#4")},
		{Start: 1, End: 2, Name: name("secret phase")},
		{Start: 1, End: 2, Name: name("Optimizer.step#AdamW.step")}, {Start: 1, End: 2,
			Name: name("Optimizer.step#SecretOptimizer.step")},
		{Start: 1, End: 2, Name: name("forward")}}
	b.T.Ops = []Op{{Name: name("aten::conv2d"), Module: name("secret.block.0"), Stack: NoStack, Parent: NoOp},
		{Name: name("secret_op"), Stack: NoStack, Parent: NoOp}}
	b.T.Counters = []Counter{{Name: name(CounterAllocated), Time: []int64{1}, Value: []int64{2}},
		{Name: name("secret counter"), Time: []int64{1}, Value: []int64{3}}}
	b.T.Settings = []Setting{{"PYTORCH_CUDA_ALLOC_CONF", `"expandable_segments:True,max_split_size_mb:128"`},
		{"max_split_size", "-1"},
		{"dump_dir", `"/home/secret/dumps"`}}
	b.T.Extra = []Setting{{"unknown", `{"who":"secret","n":3,"list":["secret",true,null]}`},
		{"broken", `secret{`}}
	b.T.Final = State{Known: true, Segments: []Segment{{Extra: name(`{"a":"secret"}`), EndBlock: 1,
		Stack: NoStack}},
		Blocks: []Block{{Extra: name(`"secret"`), Stack: NoStack}}}
	b.String("secret left over: nothing refers to it")
	return b.Finish()
}

func TestARedactedTraceHasNothingOfTheUsers(t *testing.T) {
	tr := private()
	before := fmt.Sprintf("%+v", tr)
	r := Redact(tr, nil)
	if text := fmt.Sprintf("%+v", r); strings.Contains(strings.ToLower(text), "secret") {
		at := strings.Index(strings.ToLower(text), "secret")
		t.Errorf("left over: ...%s...", text[max(at-60, 0):min(at+60, len(text))])
	}
	if fmt.Sprintf("%+v", tr) != before {
		t.Error("Redact changed the trace that it was given")
	}
}

func TestRedactKeepsPublicNamesAndFigures(t *testing.T) {
	tr := private()
	r := Redact(tr, []byte("key"))
	if !reflect.DeepEqual(r.Events, tr.Events) || !reflect.DeepEqual(r.Stacks, tr.Stacks) ||
		len(r.Frames) != len(tr.Frames) {
		t.Error("events or stacks changed")
	}
	have := strings.Join(r.Strings, "\n")
	for _, want := range []string{"site-packages/torch/nn/modules/linear.py", "forward", "at::native::empty",
		"??", "python/threading.py", "ProfilerStep#4",
		"Optimizer.step#AdamW.step", "aten::conv2d", CounterAllocated, "activation"} {
		if !strings.Contains("\n"+have+"\n", "\n"+want+"\n") {
			t.Errorf("%q is missing from\n%s", want, have)
		}
	}
	if got :=
		r.Setting("PYTORCH_CUDA_ALLOC_CONF"); got != `"expandable_segments:True,max_split_size_mb:128"` {
		t.Errorf("allocator setting is now %s", got)
	}
	if r.Setting("max_split_size") != "-1" || r.Frames[0].Line != 12 {
		t.Error("a number changed")
	}
}

func TestRedactedNamesCompareOnlyUnderOneKey(t *testing.T) {
	tr := private()
	a, b, c := Redact(tr, []byte("one")), Redact(tr, []byte("one")), Redact(tr, []byte("two"))
	if !reflect.DeepEqual(a.Strings, b.Strings) {
		t.Error("one key gives two results")
	}
	fn := func(r *Trace, i int) string { f, _, _ := r.FrameText(FrameID(i)); return f }
	if fn(a, 1) == fn(c, 1) {
		t.Errorf("two keys give one name: %s", fn(a, 1))
	}
	if fn(a, 1) == fn(a, 4) || !strings.HasPrefix(fn(a, 1), "fn_") {
		t.Errorf("two functions are called %s and %s", fn(a, 1), fn(a, 4))
	}
	_, file, _ := a.FrameText(1)
	if !strings.HasPrefix(file, "file_") || !strings.HasSuffix(file, ".py") {
		t.Errorf("file is called %s", file)
	}
}

func TestRedactOfNothingIsNothing(t *testing.T) {
	r := Redact(NewBuilder().Finish(), nil)
	if len(r.Strings) != 1 || r.Source.Path != "" {
		t.Errorf("%+v", r)
	}
}
