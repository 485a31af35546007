package pytorch

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func raw(k kind, payload string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)+1))
	return append(append(b, byte(k)), payload...)
}

func deflate(s string) string {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

const (
	aHello = `{"version":2,"pid":1,"start":1,"argv":["python"],` +
		`"waiting":"waiting for the first optimizer step"}`
	aStep   = `[[0,10,20,5,3,2,-1,-1,-1,-1,4096,-1,-1,100,50,25,7,0]]`
	aWindow = `{"gmemtop":"described","version":1,"torch":"2.9","steps":[[0,9]]}` + "\n" +
		`{"k":"alloc","id":0,"size":8,"t":0,"on":"cpu"}` + "\n"
)

// session returns a session over a stream of frames, and what it sends to a viewer.
func run(t testing.TB, stream []byte) (capture.View, error) {
	t.Helper()
	here, there := net.Pipe()
	go func() {
		_, _ = there.Write(stream)
		_ = there.Close()
	}()
	s := &Session{conn: here, info: capture.Info{PID: os.Getpid()}, ended: make(chan struct{}),
		gone: make(chan struct{})}
	seen := capture.NewHistory(capture.Limits{})
	err := s.Run(context.Background(), seen)
	return seen.Snapshot(), err
}

func TestASessionPassesOnWhatTheAgentSays(t *testing.T) {
	var b []byte
	for _, f := range [][]byte{
		raw(frameHello, aHello), raw(99, "a frame of the future"), raw(frameSteps, aStep),
		raw(frameWindow, `{"first":1,"last":1,"how":"ops"}`), raw(frameData, deflate(aWindow)[:10]),
		raw(frameData, deflate(aWindow)[10:]),
		raw(frameWhole, `{"cost":5,"lost":2}`), raw(frameNotice, `{"key":"k","text":"t"}`),
		raw(frameLost, `{"name":"steps","n":3}`),
		raw(frameBye, `{"reason":"OutOfMemoryError","detail":"CUDA out of memory"}`),
		raw(frameSteps, "what comes after is not read"),
	} {
		b = append(b, f...)
	}
	v, err := run(t, b)
	if err != nil {
		t.Fatal(err)
	}
	want := capture.Step{Index: 0, Start: 10, End: 20, Forward: maybe.Known(5), Backward: maybe.Known(3),
		Optimizer: maybe.Known(2), RSS: maybe.Known(4096), Parameters: maybe.Known(100),
		Gradients: maybe.Known(50), OptimizerState: maybe.Known(25), Cost: 7}
	if len(v.Steps) != 1 || v.Steps[0] != want {
		t.Errorf("%+v", v.Steps)
	}
	if held, exact := v.Steps[0].Held(); held != maybe.Known(175) || exact {
		t.Errorf("held %v, exact %v", held, exact)
	}
	if len(v.Windows) != 1 || v.Windows[0].Trace.Events.Len() != 1 || v.Windows[0].Cost != 5 ||
		v.Windows[0].Trace.Losses[0].Name != "window_rows" {
		t.Errorf("%+v", v.Windows)
	}
	if len(v.Notices) != 2 || v.Losses[0].Count != 3 || v.End.Reason != capture.Exited || !v.End.OutOfMemory {
		t.Errorf("%+v", v)
	}
}

// TestStepsSurviveTheWire gives every figure of a step a different value.
func TestStepsSurviveTheWire(t *testing.T) {
	n := int64(0)
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i); {
			case f.Type() == reflect.TypeFor[maybe.Int]():
				n++
				f.Set(reflect.ValueOf(maybe.Known(n)))
			case f.Kind() == reflect.Struct:
				fill(f)
			case f.Kind() == reflect.Bool:
				f.SetBool(true)
			default:
				n++
				f.SetInt(n)
			}
		}
	}
	var want capture.Step
	fill(reflect.ValueOf(&want).Elem())
	text, err := json.Marshal(rows([]capture.Step{want}))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := steps(text); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%+v became %+v, %v", want, got, err)
	}
}

func TestHistoryWindowsGetTheStepsThatTheAgentSaw(t *testing.T) {
	tr := traces.NewBuilder()
	tr.T.Clock.Epoch = 1000
	x := tr.Finish()
	markSteps(x, windowHead{First: 7, Steps: [][2]int64{{1500, 2500}, {2500, 3000}}})
	if len(x.Marks) != 2 || x.Marks[0].Start != 500 || x.Marks[1].End != 2000 ||
		x.Text(x.Marks[0].Name) != "step 7" {
		t.Errorf("%+v", x.Marks)
	}
}

func TestANoticeSaysWhetherAnOrderIsUnmet(t *testing.T) {
	for frame, unmet := range map[string]bool{
		`{"key":"ops","text":"torch.compile is in use"}`:             true,
		`{"key":"allocator","text":"RMM counts nothing"}`:            true,
		`{"key":"ops","text":"describing","state":true}`:             false,
		`{"key":"plan 3","text":"it does not fit"}`:                  false,
		`{"key":"asked","text":"waiting","state":true,"unmet":true}`: false,
	} {
		v, err := run(t, append(raw(frameNotice, frame), raw(frameBye, `{"reason":"exit"}`)...))
		if err != nil || len(v.Notices) != 1 || v.Notices[0].Unmet != unmet {
			t.Errorf("%s: %v, %+v", frame, err, v.Notices)
		}
	}
}

func TestOtherPeersCauseErrorsNotPanics(t *testing.T) {
	for name, b := range map[string][]byte{
		"an empty frame":              {0, 0, 0, 0, 1},
		"a frame above the limit":     {255, 255, 255, 255, 1},
		"a truncated frame":           raw(frameSteps, aStep)[:20],
		"steps that are not rows":     raw(frameSteps, `{"a":1}`),
		"a step with too few columns": raw(frameSteps, `[[1,2,3]]`),
		"a step that ends early":      raw(frameSteps, strings.Replace(aStep, "10,20", "20,10", 1)),
		"a piece without a window":    raw(frameData, "x"),
		"an end without a window":     raw(frameWhole, "{}"),
		"a notice that is not JSON":   raw(frameNotice, "{"),
	} {
		if _, err := run(t, b); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	v, err :=
		run(t,
			append(raw(frameWindow, `{"how":"ops"}`),
				append(append(raw(frameData, "no zlib"), raw(frameWhole, "{}")...),
					raw(frameBye, `{"reason":"exit"}`)...)...))
	if err != nil || len(v.Losses) != 1 || v.End.Reason != capture.Exited {
		t.Errorf("a damaged window ended the session: %v, %+v", err, v)
	}
}

func FuzzSession(f *testing.F) {
	f.Add(append(raw(frameHello, aHello), raw(frameSteps, aStep)...))
	f.Add(append(append(raw(frameWindow, `{"how":"ops"}`), raw(frameData, deflate(aWindow))...),
		raw(frameWhole, "{}")...))
	f.Add(append(append(raw(frameWindow, `{"how":"history"}`), raw(frameData, deflate("\x80\x04}."))...),
		raw(frameWhole, "{}")...))
	f.Add(append(raw(frameNotice, `{"key":"k","text":"t"}`),
		raw(frameBye, `{"reason":"detached","left":["x"]}`)...))
	f.Add([]byte{255, 255, 255, 3, 1})
	f.Add(append(raw(frameAnswer, `{"order":7,"state":"refused","reason":"not_begun","text":"t"}`),
		raw(frameAnswer, `{"order":-1}`)...))
	f.Fuzz(func(t *testing.T, stream []byte) {
		to := receiver{s: &Session{ended: make(chan struct{}), gone: make(chan struct{})},
			sink: capture.NewHistory(capture.Limits{})}
		for r := bytes.NewReader(stream); ; {
			k, payload, err := readFrame(r, maxFrame)
			if err != nil {
				return
			}
			if err := to.take(context.Background(), k, payload); err != nil {
				return
			}
		}
	})
}

func TestTheEnvironmentGetsTwoVariables(t *testing.T) {
	for _, c := range []struct {
		in, want []string
	}{
		{[]string{"A=1"}, []string{"A=1", "PYTHONPATH=/p", "GMEMTOP_SOCK=/s"}},
		{[]string{"PYTHONPATH=", "A=1"}, []string{"A=1", "PYTHONPATH=/p", "GMEMTOP_SOCK=/s"}},
		{[]string{"PYTHONPATH=/x:/y", "GMEMTOP_SOCK=/old"},
			[]string{"PYTHONPATH=/p:/x:/y", "GMEMTOP_SOCK=/s"}},
	} {
		if got := environ(c.in, "/p", "/s"); strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("%v becomes %v", c.in, got)
		}
	}
}

func TestTheAgentCompilesWithPython38(t *testing.T) {
	python := "python3.8"
	if exec.Command(python, "-c", "pass").Run() != nil {
		found, _ := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".pyenv/versions/3.8.*/bin/python"))
		if len(found) == 0 {
			t.Skip("needs python3.8: the agent is compiled with it")
		}
		python = found[0]
	}
	for name, source := range map[string]string{
		"agent": Agent(), "begin": bootstrap("/x"), "sitecustomize": siteSource,
	} {
		cmd := exec.Command(python, "-c", "import sys; compile(sys.stdin.read(), 'x', 'exec')")
		cmd.Stdin = strings.NewReader(source)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestACommandThatIsNotPythonRunsUnchanged needs no torch.
func TestACommandThatIsNotPythonRunsUnchanged(t *testing.T) {
	folder(t)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, c := range []struct {
		script string
		code   int
	}{{"echo out; echo err >&2; exit 3", 3}, {"kill -TERM $$", 143}, {"echo fine", 0}} {
		job, err := Start(Launch{Argv: []string{"sh", "-c", c.script}})
		if err != nil {
			t.Fatal(err)
		}
		seen := capture.NewHistory(capture.Limits{})
		if err := job.Run(context.Background(), seen); err != nil {
			t.Fatal(err)
		}
		v := seen.Snapshot()
		if v.End.Code != maybe.Known(int64(c.code)) || v.End.Reason != capture.Exited {
			t.Errorf("%s: %+v", c.script, v.End)
		}
		kept, err := os.ReadFile(job.OutputPath())
		if err != nil || !bytes.Equal(kept, v.Output) || c.code == 3 && string(kept) != "out\nerr\n" {
			t.Errorf("%s: kept %q, shown %q, %v", c.script, kept, v.Output, err)
		}
		if code, err := job.Wait(context.Background()); code != c.code || err != nil {
			t.Errorf("%s: %d %v", c.script, code, err)
		}
		err = job.Order(context.Background(), capture.Order{Do: capture.Describe, Steps: 1})
		if !errors.Is(err, ErrNotConnected) {
			t.Errorf("asking nobody: %v", err)
		}
	}
	if _, err := Start(Launch{Argv: []string{"/no/such/program"}}); err == nil {
		t.Error("a program that does not exist was started")
	}
	dir, _ := Folder()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}

// TestTheProgramsOwnSitecustomizeRuns needs a Python and no torch.
func TestTheProgramsOwnSitecustomizeRuns(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	folder(t)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	own := t.TempDir()
	if err := os.WriteFile(filepath.Join(own, "sitecustomize.py"),
		[]byte("import sys\nsys.mine = __file__\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, script, want string }{
		{"its own", own, "import sys, sitecustomize; print(sys.mine == sitecustomize.__file__, " +
			"len(sys.path) == len(set(sys.path)))", "True True\n"},
		{"none", "", "import sys, os\nprint('sitecustomize' in sys.modules and 'run-' in " +
			"str(sys.modules['sitecustomize']), any('run-' in p for p in sys.path), 'torch' in sys.modules)",
			"False False False\n"},
		{"a broken one", "broken", "print('runs')", "runs\n"},
		{"a torch that is not there", "", "try:\n    import torch_of_nobody\nexcept ImportError as e:\n    " +
			"print(e.name)", "torch_of_nobody\n"},
	} {
		path := c.path
		if path == "broken" {
			path = t.TempDir()
			_ = os.WriteFile(filepath.Join(path, "sitecustomize.py"),
				[]byte("raise ValueError('own')\n"), 0o600)
		}
		job, err := Start(Launch{Argv: []string{python, "-c", c.script},
			Env: append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")})
		if err != nil {
			t.Fatal(err)
		}
		seen := capture.NewHistory(capture.Limits{})
		if err := job.Run(context.Background(), seen); err != nil {
			t.Fatal(err)
		}
		if got := string(seen.Snapshot().Output); !strings.HasSuffix(got, c.want) || c.path == "broken" &&
			!strings.Contains(got, "ValueError: own") || c.path != "broken" && got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// TestTheAgentWakesWhenALibraryLooksForTorchFirst runs a program that checks for torch, as transformers does,
// before importing it. It needs a Python and no torch.
func TestTheAgentWakesWhenALibraryLooksForTorchFirst(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sitecustomize.py": siteSource,
		"agent.py": "class Agent(object):\n    def __init__(self, *args): pass\n" +
			"    def launch(self): print('awake')\n",
		"elsewhere/torch.py": "print('imported')\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, "-c", `
import sys
from importlib.util import find_spec
for _ in range(2): print(find_spec("torch").name, find_spec("torch_of_nobody"))
import torch
print(find_spec("torch").name, sum(type(f).__name__ == "_Finder" for f in sys.meta_path))`)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir+":"+filepath.Join(dir, "elsewhere"),
		"GMEMTOP_SOCK=/nowhere", "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	want := "torch None\ntorch None\nimported\nawake\ntorch 0\n"
	if err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
}

func TestATruncatedFrameIsNotACleanEnd(t *testing.T) {
	if _, _, err := readFrame(bytes.NewReader(nil), 10); err != io.EOF {
		t.Errorf("%v", err)
	}
	if _, _, err := readFrame(bytes.NewReader([]byte{5, 0, 0, 0}), 10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}

func TestDescribedStepsAreNumberedAsTheJobCountsThem(t *testing.T) {
	b := traces.NewBuilder()
	for _, k := range []traces.MarkKind{traces.MarkIteration, traces.MarkPhase, traces.MarkIteration} {
		b.T.Marks = append(b.T.Marks, traces.Mark{Name: b.String("its own"), Kind: k})
	}
	x := b.Finish()
	numberSteps(x, 29)
	for i, want := range []string{"step 29", "its own", "step 30"} {
		if got := x.Text(x.Marks[i].Name); got != want {
			t.Errorf("mark %d is called %q, want %q", i, got, want)
		}
	}
}

func TestAWindowsGPUsAreNamedAsInTheProcess(t *testing.T) {
	b := traces.NewBuilder()
	b.Device(traces.DeviceCPU, 0)
	b.Device(traces.DeviceGPU, 1)
	b.Device(traces.DeviceGPU, 0)
	named := b.Device(traces.DeviceGPU, 2)
	b.T.Devices[named].Name = "what the recording says"
	tr := b.Finish()
	nameDevices(tr, gpus([]gpu{{0, "zero", 1 << 30}, {1, strings.Repeat("x", maxDeviceName+1), 5},
		{-1, "none", 5}, {2, "two", 7}, {3, "not there", 7}}))
	want := []traces.Device{{Kind: traces.DeviceCPU}, {Kind: traces.DeviceGPU, Ordinal: 1},
		{Kind: traces.DeviceGPU, Name: "zero", TotalBytes: 1 << 30},
		{Kind: traces.DeviceGPU, Ordinal: 2, Name: "what the recording says", TotalBytes: 7}}
	if !slices.Equal(tr.Devices, want) {
		t.Errorf("%+v", tr.Devices)
	}
}
