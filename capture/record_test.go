package capture_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func trigger(t *testing.T, s string) *capture.Trigger {
	t.Helper()
	x, err := capture.ParseTrigger(s, timeline.ParseBytes, timeline.ParseDuration)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func load(t *testing.T, path string) *traces.Trace {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := gmt.Read(context.Background(), bytes.NewReader(b), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestARecordingHoldsTheJoinedWindowsAndTheSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.gmt")
	r, err := capture.NewRecorder(capture.RecordOptions{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	r.Begin(capture.Info{PID: 7, Host: "h", Torch: "2.9", Device: "cpu", Rank: maybe.Known(1),
		WorldSize: maybe.Known(2)})
	now := time.Now().UnixNano()
	windows := two(t)
	for i := range windows {
		windows[i].Trace.Clock.Epoch = now + int64(i)*4000
		r.Step(capture.Step{Index: int64(i), Start: now + int64(i)*4000, End: now + int64(i)*4000 + 1000,
			Allocated: maybe.Known(100)})
		r.Window(windows[i])
	}
	r.End(capture.End{Reason: capture.Exited})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	tr := load(t, path)
	joined, err := capture.Join(windows)
	if err != nil {
		t.Fatal(err)
	}
	want, got := rows(joined), rows(tr)
	for _, x := range []*string{&want, &got} { // the two clocks start at different times
		var out []string
		for line := range strings.Lines(*x) {
			if _, rest, ok := strings.Cut(line, " "); ok && line[0] != ' ' && line[0] != 'l' &&
				line[0] != 'm' {
				line = rest
			}
			if line[0] != 'm' {
				out = append(out, line)
			}
		}
		*x = strings.Join(out, "")
	}
	if got != want {
		t.Errorf("recorded\n%sjoined\n%s", got, want)
	}
	if tr.Process.PID != maybe.Known(7) || tr.Process.Rank != maybe.Known(1) || len(tr.Marks) != 2 {
		t.Errorf("%+v, %d marks", tr.Process, len(tr.Marks))
	}
	found := false
	for _, c := range tr.Counters {
		switch tr.Text(c.Name) {
		case "step.allocated":
			found = len(c.Value) == 2 && c.Value[0] == 100
		case "step.reserved":
			t.Error("a figure that was not measured was recorded")
		}
	}
	if !found {
		t.Error("the steps' figures are not in the file")
	}
	if _, err := capture.NewRecorder(capture.RecordOptions{Path: path}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
}

func TestARecordingKeepsWhatIsUnknownOfAProcess(t *testing.T) {
	for _, c := range []struct {
		begin []capture.Info
		want  traces.Process
	}{
		{nil, traces.Process{}},
		{[]capture.Info{{PID: 7}}, traces.Process{PID: maybe.Known(7)}},
		{[]capture.Info{{PID: 7, Rank: maybe.Known(0), WorldSize: maybe.Known(2)}},
			traces.Process{PID: maybe.Known(7), Rank: maybe.Known(0), WorldSize: maybe.Known(2)}},
	} {
		path := filepath.Join(t.TempDir(), "run.gmt")
		r, err := capture.NewRecorder(capture.RecordOptions{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range c.begin {
			r.Begin(info)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if got := load(t, path).Process; got != c.want {
			t.Errorf("%+v is recorded as %+v, not %+v", c.begin, got, c.want)
		}
	}
}

func TestFilesRotateAndEachIsReadable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.gmt")
	r, err := capture.NewRecorder(capture.RecordOptions{Path: path, MaxAge: time.Nanosecond, Keep: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(5) {
		r.Window(window(t, 5000, i, alloc(0, 1000, 64, 0, "parameter"), alloc(1, 9000, 8, 5, "activation"),
			op(5, "0", "1"), free(1, 50)))
		r.End(capture.End{}) // flushes, and so rotates
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if got := r.Files(); len(got) != 3 || len(files) != 3 {
		t.Fatalf("%v, on disk %v", got, files)
	}
	for _, f := range r.Files()[:2] {
		if tr := load(t, f); tr.Events.Len() != 3 || tr.Kind() != traces.Dataflow {
			t.Errorf("%s holds %d events of the kind %s", f, tr.Events.Len(), tr.Kind())
		}
	}
}

// asked is a Controller that remembers what it was asked for.
type asked struct {
	capture.Controller
	steps chan int
}

func (a asked) Order(_ context.Context, o capture.Order) error {
	if o.Do == capture.Describe {
		a.steps <- o.Steps
	}
	return nil
}

func TestATriggerKeepsTheWindowsAroundIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.gmt")
	a := asked{steps: make(chan int, 1)}
	fired := ""
	r, err := capture.NewRecorder(capture.RecordOptions{Path: path, Before: 2, After: 1, Control: a,
		Triggers: []*capture.Trigger{trigger(t, "allocated > 1KiB")},
		Fired: func(x *capture.Trigger, _ capture.Step, _ string) {
			fired = x.String()
		}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Triggered() {
		t.Error("a trigger has fired before the first step")
	}
	for i := range int64(10) {
		s := capture.Step{Index: i, End: i, Allocated: maybe.Known(1000)}
		if i == 5 {
			s.Allocated = maybe.Known(2000)
		}
		r.Window(window(t, 5000+i*2000, i, alloc(int(i), int(1000+i*100), 64, 0, "parameter"), op(5, "", "")))
		r.Step(s)
	}
	if n := <-a.steps; n != 1 || fired != "allocated>1KiB" || !r.Triggered() {
		t.Errorf("asked for %d windows after %q, %v", n, fired, r.Triggered())
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	tr := load(t, path)
	var kept []int64
	trigger := ""
	for _, m := range tr.Marks {
		if m.Kind == traces.MarkIteration {
			kept = append(kept, m.Start)
		} else {
			trigger = tr.Text(m.Name)
		}
	}
	if len(kept) != 3 || kept[1]-kept[0] != 2000 || kept[2]-kept[1] != 2000 ||
		trigger != "trigger allocated>1KiB: 2000 bytes" {
		t.Errorf("windows at %v are kept for %q", kept, trigger)
	}
}

// The process ends in the step after the last one reported.
func TestAFatalOutOfMemoryKeepsTheWindowsBeforeIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.gmt")
	var fired []int64
	r, err := capture.NewRecorder(capture.RecordOptions{Path: path, Before: 2,
		Triggers: []*capture.Trigger{trigger(t, "oom")},
		Fired:    func(_ *capture.Trigger, s capture.Step, _ string) { fired = append(fired, s.Index) }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(10) {
		r.Window(window(t, 5000+i*2000, i, alloc(int(i), int(1000+i*100), 64, 0, "parameter"), op(5, "", "")))
		r.Step(capture.Step{Index: i, End: i})
	}
	r.End(capture.End{Reason: capture.Exited, OutOfMemory: true, Detail: "CUDA out of memory"})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	kept, lost := 0, ""
	tr := load(t, path)
	for _, m := range tr.Marks {
		if m.Kind == traces.MarkIteration {
			kept++
		}
	}
	for _, l := range tr.Losses {
		if l.Name == "out_of_memory" {
			lost = l.Detail
		}
	}
	if !slices.Equal(fired, []int64{10}) || kept != 2 || !strings.Contains(lost, "CUDA out of memory") {
		t.Errorf("fired in %v, %d windows kept, the notice is %q", fired, kept, lost)
	}
}

func TestADiskErrorEndsOnlyTheRecording(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full")
	}
	dir := t.TempDir()
	var told []error
	r, err := capture.NewRecorder(capture.RecordOptions{Path: filepath.Join(dir, "x.gmt"), MaxBytes: 1,
		Failed: func(err error) {
			told = append(told, err)
		}})
	if err != nil {
		t.Fatal(err)
	}
	// the next file cannot be made
	if err := os.Symlink("/dev/full", filepath.Join(dir, "x.001.gmt")); err != nil {
		t.Fatal(err)
	}
	r.End(capture.End{})
	for i := range int64(100) {
		r.Step(capture.Step{Index: i})
		r.Window(two(t)[0])
	}
	if len(told) != 1 { // before it is closed
		t.Errorf("reported %v", told)
	}
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "recording") || r.Err() == nil ||
		len(told) != 1 || told[0] != err {
		t.Errorf("%v, reported %v", err, told)
	}
	load(t, filepath.Join(dir, "x.gmt"))
}

func TestFlushedDataSurvivesTheRecordersDeath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.gmt")
	r, err := capture.NewRecorder(capture.RecordOptions{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Window(two(t)[0])
	r.End(capture.End{}) // flushes; the file is not closed
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := gmt.Read(context.Background(), bytes.NewReader(b), nil)
	if tr == nil || tr.Events.Len() != 4 || tr.Kind() != traces.Dataflow {
		t.Errorf("%v of %v", tr, err)
	}
}

func TestTriggersFireWhenTheirConditionBeginsToHold(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		trigger string
		step    func(i int64) capture.Step
		want    []int64
	}{
		{"allocated>1MiB", func(i int64) capture.Step {
			return capture.Step{Allocated: maybe.Known(i % 4 * mib)}
		}, []int64{2, 6}},
		{"held>1MiB", func(i int64) capture.Step {
			return capture.Step{Parameters: maybe.Known(i * mib / 2)}
		}, []int64{3}},
		{"rss>1MiB", func(i int64) capture.Step { return capture.Step{} }, nil},
		{"iteration=5", func(i int64) capture.Step { return capture.Step{} }, []int64{5}},
		{"step_time>1ms", func(i int64) capture.Step {
			return capture.Step{End: i % 2 * 2e6}
		}, []int64{1, 3, 5, 7}},
		{"oom", func(i int64) capture.Step { return capture.Step{OOMs: maybe.Known(i / 3)} }, []int64{3, 6}},
	} {
		x, fired := trigger(t, c.trigger), []int64(nil)
		for i := range int64(8) {
			s := c.step(i)
			s.Index = i
			if ok, _ := x.Step(s); ok {
				fired = append(fired, i)
			}
		}
		if len(fired) != len(c.want) || len(fired) > 0 && fired[0] != c.want[0] {
			t.Errorf("%s fires at %v, not at %v", c.trigger, fired, c.want)
		}
	}
}

func TestNeitherNoiseNorAJumpIsALeak(t *testing.T) {
	const mib = int64(1 << 20)
	for _, c := range []struct {
		name  string
		bytes func(i int64) int64
		want  bool
	}{
		{"2 MiB a step under 100 MiB of noise now and then", func(i int64) int64 {
			return i*2*mib + i%9/8*100*mib
		}, true},
		{"half a MiB a step", func(i int64) int64 { return i * mib / 2 }, false},
		{"one jump of 1 GiB", func(i int64) int64 { return i / 100 * 1024 * mib }, false},
		{"a sawtooth", func(i int64) int64 { return i % 16 * 50 * mib }, false},
	} {
		x, fired := trigger(t, "leak>1MiB/step"), false
		for i := range int64(200) {
			ok, _ := x.Step(capture.Step{Index: i, Allocated: maybe.Known(c.bytes(i)), RSS: maybe.Known(7)})
			fired = fired || ok
		}
		if fired != c.want {
			t.Errorf("%s: fires: %v", c.name, fired)
		}
	}
}

func TestTheErrorForABadTriggerShowsGoodOnes(t *testing.T) {
	for _, s := range []string{"", "allocated", "allocated>", "allocated>lots", "leak>1MiB", "iteration=-1",
		"iteration=x", "temperature>80", "step_time>1GiB"} {
		if _, err := capture.ParseTrigger(s, timeline.ParseBytes, timeline.ParseDuration); err == nil ||
			!strings.Contains(err.Error(), "allocated>60GiB") {
			t.Errorf("%q: %v", s, err)
		}
	}
}
