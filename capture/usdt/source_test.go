//go:build linux && amd64

package usdt

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// sink keeps what a source sends.
type sink struct {
	mu      sync.Mutex
	targets []capture.Info
	steps   []capture.Step
	windows []capture.Window
	notices map[string]string
	lost    map[string]int64
	ends    []capture.End
	began   chan struct{} // closed when probes are in place
}

func newSink() *sink {
	return &sink{notices: map[string]string{}, lost: map[string]int64{}, began: make(chan struct{})}
}

func (s *sink) Begin(t capture.Info) { s.locked(func() { s.targets = append(s.targets, t) }) }
func (s *sink) Step(x capture.Step)  { s.locked(func() { s.steps = append(s.steps, x) }) }
func (s *sink) Window(w capture.Window) {
	s.locked(func() { s.windows = append(s.windows, w) })
}
func (s *sink) Answer(capture.Answer) {}

func (s *sink) Notice(n capture.Notice) {
	s.locked(func() {
		if _, known := s.notices[n.Key]; !known && n.Key == noticeLimits {
			close(s.began)
		}
		s.notices[n.Key] = n.Text
	})
}
func (s *sink) Lose(name string, n int64, _ string) { s.locked(func() { s.lost[name] += n }) }
func (s *sink) Output([]byte)                       {}
func (s *sink) End(e capture.End)                   { s.locked(func() { s.ends = append(s.ends, e) }) }

func (s *sink) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// run starts a source and returns its sink, once it watches, and a function that stops it and returns its
// error.
func run(t *testing.T, o Options) (*sink, func() error) {
	t.Helper()
	needProbes(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, ended := newSink(), make(chan error, 1)
	go func() { ended <- New(o).Run(ctx, s) }()
	select {
	case <-s.began:
	case err := <-ended:
		if errors.Is(err, ErrPermission) {
			lacksProbes(t, err)
		}
		t.Fatal(err)
	}
	return s, func() error { cancel(); return <-ended }
}

// balance returns the blocks that a trace leaves alive, and fails the test if a free has no allocation.
func balance(t *testing.T, tr *traces.Trace) map[uint64]int64 {
	t.Helper()
	live := map[uint64]int64{}
	for i := range tr.Events.Len() {
		switch e := tr.Events.At(i); e.Action {
		case traces.Alloc:
			if _, twice := live[e.Addr]; twice {
				t.Errorf("event %d allocates %#x twice", i, e.Addr)
			}
			live[e.Addr] = e.Size
		case traces.Free:
			if live[e.Addr] != e.Size {
				t.Errorf("event %d frees %#x of %d bytes, which has %d", i, e.Addr, e.Size, live[e.Addr])
			}
			delete(live, e.Addr)
		}
	}
	return live
}

func TestASourceCutsItsEventsIntoWindowsThatEachAddUp(t *testing.T) {
	p := start(t, "libc10_cuda.so")
	s, stop := run(t, Options{PID: p.pid, MaxEvents: 1000})
	p.do("f 600000000000") // from before
	p.do("m 500000000000 1 1000 0")
	p.do("p %x", 2500)
	p.do("m 500000002000 1 2000 0")
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(s.targets) == 0 || s.targets[0].PID != p.pid || s.targets[0].Started <= 0 || len(s.ends) != 1 ||
		s.ends[0].Reason != capture.Detached {
		t.Errorf("targets %+v, ends %+v", s.targets, s.ends)
	}
	if len(s.windows) != 6 {
		t.Fatalf("%d windows of 5003 events in thousands", len(s.windows))
	}
	var before map[uint64]int64
	allocs, unknown := 0, int64(0)
	for i, w := range s.windows {
		tr := w.Trace
		if tr.Kind() != traces.Lifetimes || w.How != capture.HowProbes || w.First != int64(i) ||
			tr.Process.PID != maybe.Known(int64(p.pid)) {
			t.Errorf("window %d: %v %+v", i, tr.Kind(), w)
		}
		given := map[uint64]int64{}
		for j := range tr.Events.Len() {
			e := tr.Events.At(j)
			if e.Time == 0 {
				given[e.Addr] = e.Size
			} else if e.Action == traces.Alloc {
				allocs++
			}
		}
		if i > 0 && len(given) != len(before) {
			t.Errorf("window %d begins with %v, but the previous one ended with %v", i, given, before)
		}
		before = balance(t, tr)
		for _, l := range tr.Losses {
			if l.Name == "freed_unknown" {
				unknown += l.Count
			}
		}
		if i > 0 && tr.Clock.Epoch < s.windows[i-1].Trace.Clock.Epoch {
			t.Errorf("window %d begins before the previous one", i)
		}
		if age := time.Since(time.Unix(0, tr.Clock.Epoch)); age < 0 || age > time.Minute {
			t.Errorf("window %d began %v ago", i, age)
		}
	}
	if len(s.steps) != len(s.windows) {
		t.Fatalf("%d intervals of %d windows", len(s.steps), len(s.windows))
	}
	for i, x := range s.steps {
		held, most := heldBytes(s.windows[i].Trace)
		if x.Index != int64(i) || x.Allocated != maybe.Known(held) || x.PeakAllocated != maybe.Known(most) ||
			x.Reserved.IsKnown() || x.OOMs.IsKnown() || x.End < x.Start {
			t.Errorf("interval %d %+v of a window that ends with %d bytes, at most %d", i, x, held, most)
		}
		if i > 0 && x.Start != s.steps[i-1].End {
			t.Errorf("interval %d does not begin where the one before ended", i)
		}
	}
	if !slices.Contains(s.targets[0].Capabilities, intervals) {
		t.Errorf("capabilities %q", s.targets[0].Capabilities)
	}
	if allocs != 2502 || unknown != 1 || len(before) != 2 || before[0x500000000000] != 0x1000 {
		t.Errorf("%d allocations, %d frees of unknown blocks, at the end %v", allocs, unknown, before)
	}
}

// heldBytes returns what a trace of one device holds at its end and at its most.
func heldBytes(tr *traces.Trace) (now, most int64) {
	var rule torchalloc.Rounding
	for i := range tr.Events.Len() {
		switch e := tr.Events.At(i); e.Action {
		case traces.Alloc:
			now += rule.Round(e.Size)
		case traces.Free:
			now -= rule.Round(e.Size)
		}
		if tr.Events.Time[i] > 0 { // a window begins with all of what was there before
			most = max(most, now)
		}
	}
	return now, most
}

func TestIntervalsGoOnWhileNothingHappensAndWindowsDoNot(t *testing.T) {
	p := start(t, "libc10_cuda.so")
	s, stop := run(t, Options{PID: p.pid, Window: 20 * time.Millisecond})
	p.do("m 500000000000 0 1000 0")
	await.Until(t, "there are five intervals", func() (enough bool) {
		s.locked(func() { enough = len(s.steps) >= 5 })
		return enough
	})
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(s.windows) != 1 || len(s.steps) < 5 {
		t.Fatalf("%d windows, %d intervals", len(s.windows), len(s.steps))
	}
	last := s.steps[len(s.steps)-1]
	if last.Allocated != maybe.Known(0x1000) || last.Index != int64(len(s.steps)-1) ||
		s.windows[0].Last >= last.Index {
		t.Errorf("window of %d to %d, last interval %+v", s.windows[0].First, s.windows[0].Last, last)
	}
}

func TestTheEndOfTheProcessIsTheEndOfTheSource(t *testing.T) {
	p := start(t, "libc10_cuda.so")
	s, stop := run(t, Options{PID: p.pid, Window: time.Hour})
	p.do("m 500000000000 0 1000 0")
	p.cmd.Process.Kill()
	p.cmd.Wait()
	await.Until(t, "the source ends", func() (ended bool) {
		s.locked(func() { ended = len(s.ends) > 0 })
		return ended
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(s.ends) != 1 || s.ends[0].Reason != capture.Exited || len(s.windows) != 1 ||
		s.windows[0].Trace.Events.Len() != 1 {
		t.Errorf("ends %+v, %d windows", s.ends, len(s.windows))
	}
}

func TestASourceThatWaitsBeginsWhenTheLibraryIsLoaded(t *testing.T) {
	needProbes(t)
	p := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, ended := newSink(), make(chan error, 1)
	go func() { ended <- New(Options{PID: p.pid, Probes: PyTorch, Wait: true}).Run(ctx, s) }()
	await.Until(t, "it says that it waits", func() (said bool) {
		s.locked(func() { said = s.notices[noticeWaiting] != "" })
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		return said
	})
	p.do("L %s", p.library("libc10_cuda.so"))
	select {
	case <-s.began:
	case err := <-ended:
		if errors.Is(err, ErrPermission) {
			lacksProbes(t, err)
		}
		t.Fatal(err)
	}
	p.do("m 500000000000 0 1000 0")
	p.stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(s.windows) != 1 || s.windows[0].Trace.Events.Len() != 1 || s.notices[noticeWaiting] != "" {
		t.Errorf("%d windows, notices %v", len(s.windows), s.notices)
	}
}

func TestASourceThatFailsSaysWhatToDo(t *testing.T) {
	needProbes(t)
	p := start(t)
	check := func(name string, o Options, is error, text string) {
		t.Helper()
		err := New(o).Run(t.Context(), newSink())
		if !errors.Is(err, is) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	check("not loaded", Options{PID: p.pid, Probes: PyTorch}, ErrNotLoaded, "torch is not imported yet")
	check("no CUDA", Options{PID: p.pid}, ErrNotLoaded, "libcuda.so.1")
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	check("no such process", Options{PID: dead.Process.Pid}, ErrNoProcess, "gmemtop attach")

	zombie := exec.Command("true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Wait()
	await.Until(t, "the process has ended", func() bool { return procs.State(zombie.Process.Pid) == 'Z' })
	check("ended and not waited for", Options{PID: zombie.Process.Pid}, ErrNoProcess, "has ended")

	// A library of an older torch: the same name, no probes.
	old := filepath.Join(t.TempDir(), "libc10_cuda.so")
	src := filepath.Join(t.TempDir(), "old.c")
	text := "void torch_malloc(void) {} void torch_free(void) {} void torch_free_uncached(void) {}"
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", old, src).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	p.do("L %s", old)
	check("no notes", Options{PID: p.pid}, ErrNoProbes, "torch has had since 2.2")
}

func TestALibraryThatWasReplacedWhileItRunsIsStillWatched(t *testing.T) {
	needProbes(t)
	dir := build(t)
	data, err := os.ReadFile(filepath.Join(dir, "libc10_cuda.so"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libc10_cuda.so")
	if err := os.WriteFile(path, data, 0o700); err != nil {
		t.Fatal(err)
	}
	p := start(t, path)
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("another"), 0o700)); err != nil {
		t.Fatal(err)
	}
	k, _ := p.trace(Options{})
	p.do("m 500000000000 0 1000 0")
	if n := len(k.all(t)); n != 1 {
		t.Errorf("%d events", n)
	}
}

func TestAUserWithoutRightsLearnsWhichAreMissingAndHowToGetThem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: another user is taken on")
	}
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	self := filepath.Join(dir, "usdt.test")
	if err := errors.Join(os.WriteFile(self, data, 0o755), os.Chmod(dir, 0o755),
		os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Dir, cmd.Env = "/", []string{"USDT_CHECK=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{ErrPermission.Error(), "CAP_BPF and CAP_PERFMON",
		"sudo setcap cap_bpf,cap_perfmon"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}
