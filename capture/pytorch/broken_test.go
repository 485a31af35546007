package pytorch_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// rig launches agents by hand that are broken on purpose.
func rig(t *testing.T, agent, scenarios, socket string, env ...string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	site, err := os.ReadFile("sitecustomize.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"sitecustomize.py": string(site), "agent.py": agent} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python(t), "testdata/train.py", scenarios)
	cmd.Env = append(os.Environ(), append(env, "PYTHONPATH="+dir, "GMEMTOP_SOCK="+socket,
		"PYTHONDONTWRITEBYTECODE=1")...)
	return cmd
}

// bodyOf returns the start of the body of one of the agent's functions, and its indentation. It stands in a
// class or a function where class names one.
func bodyOf(t *testing.T, agent, class, name string) (start int, indent string) {
	t.Helper()
	begin, outer := 0, ""
	if class != "" {
		head := regexp.MustCompile(`(?m)^(?:class|def) ` + class + `\b`).FindStringIndex(agent)
		if head == nil {
			t.Fatalf("the agent has no %s", class)
		}
		begin, outer = head[1], "    "
	}
	head := regexp.MustCompile(`(?m)^` + outer + `def ` + name + `\((?s:.*?)\)(?: -> [^\n]+)?:\n`)
	def := head.FindStringIndex(agent[begin:])
	if def == nil {
		t.Fatalf("the agent has no %s in %q", name, class)
	}
	return begin + def[1], outer + "    "
}

// TestTrainingSurvivesAnyErrorInTheAgent raises an exception in each place of the agent in turn; one process
// trains again for each.
func TestTrainingSurvivesAnyErrorInTheAgent(t *testing.T) {
	t.Parallel()
	const later, counts = "self.outbox.produced >= 3", "clock() < tally.calm"
	cases := []struct {
		class, method string
		guarded       bool // the method's own try is what is put to the test
		when          string
		scenario      string // mlp where empty
	}{
		{class: "Agent", method: "boundary", when: later},
		{class: "Agent", method: "_pre", guarded: true, when: later},
		{class: "counting", method: "pre", guarded: true, when: counts},
		{class: "counting", method: "post", guarded: true, when: counts},
		{class: "Totals", method: "_take_totals", when: later},
		{class: "Sender", method: "_hear", when: "True"},
		{class: "Storages", method: "of", when: "len(self.born) > 30"},
		{class: "Addresses", method: "look", when: "True"},
		{class: "Ops", method: "_ran", when: "len(self.rows.list) > 40"},
		{class: "Roles", method: "enter", guarded: true, when: "self.modules.running"},
		{class: "Storages", method: "_gone", guarded: true, when: "len(self.rows.list) > 40"},
		{class: "Ops", method: "pieces", when: "True"},
		{method: "_look_for_steps", guarded: true, when: "begins", scenario: "byhand"},
		{method: "_look_for_steps", guarded: true, when: "not begins and unlisted",
			scenario: "byhand"},
		{class: "Agent", method: "unlisted_stepped", guarded: true, when: "self.outbox.produced >= 1",
			scenario: "byhand"},
	}
	names, agents := make([]string, len(cases)), t.TempDir()
	for i, c := range cases {
		names[i] = fmt.Sprintf("%s-%02d%s", cmp.Or(c.scenario, "mlp"), i, c.method)
		agent := pytorch.Agent()
		at, indent := bodyOf(t, agent, c.class, c.method)
		if c.guarded {
			at += strings.Index(agent[at:], indent+"try:\n") + len(indent+"try:\n")
			indent += "    "
		}
		agent = agent[:at] + indent + "if " + c.when + ":\n" + indent +
			"    raise RuntimeError('injected')\n" + agent[at:]
		if err := os.WriteFile(filepath.Join(agents, names[i]+".py"), []byte(agent), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names) // as the script takes them
	dir, l := listening(t)
	ctx, stop := context.WithTimeout(context.Background(), torchtest.Patience(t))
	defer stop()
	cmd := exec.CommandContext(ctx, python(t), "testdata/broken.py", l.Path(), agents)
	cmd.Env = append(os.Environ(), "GATE="+dir, "PACE=0.02", "PYTHONDONTWRITEBYTECODE=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			seen := capture.NewHistory(capture.Limits{})
			s, err := l.Accept(ctx)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx, seen) }()
			_ = s.Order(ctx, capture.Order{Do: capture.Every, Steps: 2})
			_ = s.Order(ctx, capture.Order{ID: 1, Do: capture.Describe, Steps: 1})
			// until it has heard, or broke while it heard
			_ = seen.Until(ctx, func(v *capture.View) (bool, error) {
				_, heard := v.Answered(1)
				return heard || v.Ended, nil
			})
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			<-done
			if v := seen.Snapshot(); v.End.Reason != capture.Disarmed ||
				!strings.Contains(v.End.Detail, "injected") {
				t.Errorf("%+v of %d steps and %d windows", v.End, len(v.Steps), len(v.Windows))
			}
		})
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	sections := strings.Split("\n"+out.String(), "\nbegins ")
	for _, name := range names {
		section, scenario := "", name[:strings.Index(name, "-")]+"@16"
		without := control(t, scenario)
		for _, x := range sections {
			if strings.HasPrefix(x, name+"\n") {
				section = strings.ReplaceAll(x, name, scenario)
			}
		}
		if with, _ := learnt(t, []byte(section)); !slices.Equal(with, without) {
			t.Errorf("with an agent broken in %s:\n%s\nwithout:\n%s", name, strings.Join(with, "\n"),
				strings.Join(without, "\n"))
		}
	}
	if strings.Contains(out.String(), "Traceback") || strings.Contains(out.String(), "Exception ignored") {
		t.Errorf("the program sees it:\n%s", out.String())
	}
}

// TestAllocatorHistoryReachesTheViewer tests history windows with a stand-in, since they need a GPU: an agent
// that believes the parameters to be on cuda:0, and functions of torch.cuda that print their arguments. It
// does not test what a real allocator records.
func TestAllocatorHistoryReachesTheViewer(t *testing.T) {
	t.Parallel()
	dir, l := listening(t)
	const standIn = `
def _stand_in(torch):
    on = []
    def record(enabled="all", context="all", stacks="all", max_entries=sys.maxsize, device=None):
        on[:] = [enabled] if enabled else []
    torch.cuda.memory._record_memory_history = record
    torch._C._cuda_isHistoryEnabled = lambda: bool(on)
    stat = {"all": {"current": 4096, "peak": 8192}}
    torch._C._cuda_memoryStats = lambda device: {
        "allocated_bytes": stat, "reserved_bytes": stat, "requested_bytes": {"all": {"current": 4000}},
        "num_alloc_retries": 1, "num_ooms": 0}
    def snapshot():
        now = time.time_ns() // 1000
        event = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "time_us": now,
                 "frames": [{"filename": "train.py", "line": 1, "name": "f"}]}
        return {"segments": segments(1), "device_traces": [[event]]}
    torch.cuda.memory._snapshot = snapshot
    def segments(free, include_traces=True):
        block = {"size": 512, "requested_size": 512, "address": 4096, "state": "active_allocated",
                 "frames": []}
        common = [{"device": 0, "address": 4096, "total_size": 2097152, "allocated_size": 512,
                   "active_size": 512, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
                   "blocks": [block]}]
        return common + [dict(common[0], device=device, segment_pool_id=pool, active_size=2097152 - free,
                              blocks=[])
                for device, pool in ((0, (0, 1)), (0, (2, 0)), (1, (0, 1)))]
    def snapshot_of_all(include_traces=True):
        assert not include_traces  # all of the program's history would come with it
        return segments(1000)
    torch.cuda.memory_snapshot = snapshot_of_all
`
	agent := pytorch.Agent() + standIn
	for _, x := range []struct{ class, method, code string }{
		{"Optimizers", "device", "return sys.modules['torch'].device('cuda:0')"},
		{"Agent", "__init__", "_stand_in(sys.modules['torch'])"},
	} {
		at, _ := bodyOf(t, agent, x.class, x.method)
		agent = agent[:at] + "        " + x.code + "\n" + agent[at:]
	}
	// at each step, and pools but once, however busy the machine is
	for was, is := range map[string]string{"SHARE = 400 ": "SHARE = 0 ",
		"POOLS_REST = 2000, 2000000000\n": "POOLS_REST = 0, 1 << 62\n"} {
		if strings.Count(agent, was) != 1 {
			t.Fatalf("the agent has no %q", was)
		}
		agent = strings.Replace(agent, was, is, 1)
	}
	cmd := rig(t, agent, "mlp", l.Path(), "GATE="+dir, "PACE=0.05", "STEPS=60")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := capture.NewHistory(capture.Limits{})
	s, err := l.Accept(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background(), seen) }()
	_ = s.Order(t.Context(), capture.Order{Do: capture.Depth, How: capture.HowHistory})
	_ = s.Order(t.Context(), capture.Order{ID: 1, Do: capture.Describe, Steps: 2})
	if err := heard(t.Context(), seen, 1); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if err := os.WriteFile(filepath.Join(dir, "mlp"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	<-done
	v := seen.Snapshot()
	if len(v.Windows) != 1 || v.End.Reason != capture.Exited {
		t.Fatalf("%d windows, %+v, %v\n%s", len(v.Windows), v.End, v.Notices, out.String())
	}
	x := v.Windows[0]
	if x.How != capture.HowHistory || x.Trace.Events.Len() != 1 || len(x.Trace.Marks) != 2 ||
		x.Trace.Stacks.Len() == 0 {
		t.Errorf("%+v with %d events and %d marks", x, x.Trace.Events.Len(), len(x.Trace.Marks))
	}
	release := x.Trace.Setting("gmemtop_torch")
	if !regexp.MustCompile(`^\[\d+, ?\d+\]$`).MatchString(release) {
		t.Errorf("the window names its release of torch %q", release)
	}
	first, last := v.Steps[0], v.Steps[len(v.Steps)-1]
	if last.Allocated.Or(4096) != 4096 || first.PeakReserved != maybe.Known(8192) ||
		first.Retries != maybe.Known(1) || first.Requested != maybe.Known(4000) || first.Active.IsKnown() {
		t.Errorf("%+v", v.Steps)
	}
	pools := map[int64]bool{}
	for _, s := range v.Steps {
		pools[s.PoolsFree.Or(-1)] = true
		if at := s.PoolsAt.Or(0); s.PoolsFree.IsKnown() && (at < first.Start || at > time.Now().UnixNano()) {
			t.Errorf("the pools of step %d were counted at %v", s.Index, s.PoolsAt)
		}
	}
	// counted once by itself and once for the window; of two pools of this device, with none of another
	if !pools[2000] || !pools[2] || len(pools) > 3 {
		t.Errorf("private pools contain %v", pools)
	}
}

// TestReplayedGraphsAreCountedAndReported uses a stand-in for CUDA graphs, since real ones need a GPU: a
// described step says that it does not see into them.
func TestReplayedGraphsAreCountedAndReported(t *testing.T) {
	t.Parallel()
	dir, l := listening(t)
	const asks = "if self.torch.cuda.is_available() and hasattr("
	if strings.Count(pytorch.Agent(), asks) != 1 {
		t.Fatalf("the agent has no %q", asks)
	}
	cmd := rig(t, strings.Replace(pytorch.Agent(), asks, "if hasattr(", 1), "graphs", l.Path(), "GATE="+dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	seen, done := capture.NewHistory(capture.Limits{}), make(chan error, 1)
	go func() { done <- s.Run(context.Background(), seen) }()
	if err := errors.Join(s.Order(t.Context(), capture.Order{ID: 1, Do: capture.Describe, Steps: 2}),
		heard(t.Context(), seen, 1)); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "graphs"), nil, 0o600), cmd.Wait(), <-done)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	v := seen.Snapshot()
	if !slices.ContainsFunc(v.Notices, func(n capture.Notice) bool {
		return n.Key == "graphs" && strings.HasPrefix(n.Text, "2 CUDA graphs were replayed")
	}) || len(v.Windows) != 1 {
		t.Errorf("%+v, %d windows", v.Notices, len(v.Windows))
	}
	if !strings.Contains(out.String(), "replay is its own\n") {
		t.Errorf("%s", out.String())
	}
}

// TestAViewerThatDoesNotReadDoesNotBlockTraining fills the socket.
func TestAViewerThatDoesNotReadDoesNotBlockTraining(t *testing.T) {
	t.Parallel()
	dir := torchtest.Folder(t)
	l, err := net.Listen("unix", filepath.Join(dir, "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			for _, f := range []struct {
				kind byte
				text string
			}{{64, `{"version":2}`}, {70, `{"do":"every","steps":1}`}} { // welcome; describe every step
				b := binary.LittleEndian.AppendUint32(nil, uint32(len(f.text)+1))
				_, _ = conn.Write(append(append(b, f.kind), f.text...))
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	without := control(t, "gpt@60")
	cmd := rig(t, pytorch.Agent(), "gpt@60", l.Addr().String())
	begin := time.Now()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if with, _ := learnt(t, out); !slices.Equal(with, without) {
		t.Errorf("with a full socket:\n%s\nwithout:\n%s", strings.Join(with, "\n"),
			strings.Join(without, "\n"))
	}
	t.Logf("%s", time.Since(begin))
}

// TestStepsThatWaitTooLongForAViewerAreCounted connects a viewer after more steps have ended than are kept
// for one.
func TestStepsThatWaitTooLongForAViewerAreCounted(t *testing.T) {
	t.Parallel()
	dir := torchtest.Folder(t)
	agent, room := pytorch.Agent(), "MAX_STEPS = 20000 "
	if strings.Count(agent, room) != 1 {
		t.Fatalf("the agent has no %q", room)
	}
	without := control(t, "mlp@16", "gpt")
	path := filepath.Join(dir, "x.sock")
	cmd := rig(t, strings.Replace(agent, room, "MAX_STEPS = 5 ", 1), "mlp@16,gpt", path, "GATE="+dir)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "mlp@16"), nil, 0o600), cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	said := func() []byte {
		b, _ := os.ReadFile(log.Name())
		return b
	}
	await.Until(t, "the program reaches its gate", func() bool {
		return bytes.Contains(said(), []byte("at gpt\n"))
	})
	l, err := pytorch.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := l.Accept(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	seen, done := capture.NewHistory(capture.Limits{}), make(chan error, 1)
	go func() { done <- s.Run(context.Background(), seen) }()
	if err := seen.Until(t.Context(), func(v *capture.View) (bool, error) {
		return len(v.Steps) > 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "gpt"), nil, 0o600), cmd.Wait(), <-done)
	if err != nil {
		t.Fatalf("%v\n%s", err, said())
	}
	v := seen.Snapshot()
	if len(v.Losses) != 1 || v.Losses[0].Name != "steps" || v.Losses[0].Count != 16+3-5 ||
		len(v.Steps) != 5+8-3 || v.Steps[0].Index != 16+3-5 {
		t.Errorf("losses %+v, %d steps from %d on, with 24 steps of which 5 wait",
			v.Losses, len(v.Steps), v.Steps[0].Index)
	}
	if with, _ := learnt(t, said()); !slices.Equal(with, without) {
		t.Errorf("without a viewer at first:\n%s\nwithout capture:\n%s", strings.Join(with, "\n"),
			strings.Join(without, "\n"))
	}
}

// TestSendingWhileObjectsAreEnumerated: programs, and this agent, may go through all of Python's objects
// while another thread sends.
func TestSendingWhileObjectsAreEnumerated(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/held.py")
}

func TestAttachWhileTheProgramImportsTorch(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/importing.py")
}

func TestAnAgentWithoutAViewerLeaves(t *testing.T) {
	t.Parallel()
	withAgent(t, python(t), "testdata/lonely.py")
}

// TestPrivatePoolsAreCountedIfThatIsCheap needs a Python and no torch.
func TestPrivatePoolsAreCountedIfThatIsCheap(t *testing.T) {
	withAgent(t, anyPython(t), "testdata/pools.py")
}

// TestAnOrderArrivingDuringAnotherIsNotLost needs a Python and no torch.
func TestAnOrderArrivingDuringAnotherIsNotLost(t *testing.T) {
	withAgent(t, anyPython(t), "testdata/orders.py")
}

func anyPython(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	return python
}

// listening returns a listener, and the folder that its socket is in.
func listening(t *testing.T) (dir string, l *pytorch.Listener) {
	t.Helper()
	dir = torchtest.Folder(t)
	l, err := pytorch.Listen(filepath.Join(dir, "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return dir, l
}

// withAgent runs a script with the agent's source and more, and fails the test if the script fails.
func withAgent(t *testing.T, python, script string, more ...string) {
	t.Helper()
	agent := filepath.Join(t.TempDir(), "agent.py")
	if err := os.WriteFile(agent, []byte(pytorch.Agent()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, append([]string{script, agent}, more...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestLateDeviceWorkCountsForItsStep needs a Python and no torch.
func TestLateDeviceWorkCountsForItsStep(t *testing.T) {
	withAgent(t, anyPython(t), "testdata/clock.py")
}
