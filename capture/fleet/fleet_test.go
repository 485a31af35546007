//go:build !nobus

package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// openHub opens a hub and writes its join file.
func openHub(t *testing.T) (h *bus.Hub, path string) {
	t.Helper()
	keys, err := bus.NewKeys(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if h, err = bus.OpenHub(bus.HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: keys}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	path = filepath.Join(t.TempDir(), "r.join")
	if err := h.Join(h.Address()).Write(path); err != nil {
		t.Fatal(err)
	}
	return h, path
}

// ranksOf returns a job with one process for each rank, which has not stepped.
func ranksOf(t *testing.T, world int64, numbers ...int64) (*job.Job, []*job.Process) {
	t.Helper()
	first := job.NewWatch(job.Options{})
	j := job.New(first)
	t.Cleanup(func() { _ = j.Close() })
	var list []*job.Process
	for i, r := range numbers {
		info := capture.Info{PID: 4000 + int(r), Started: 1, Rank: maybe.Known(r),
			WorldSize: maybe.Known(world), Axes: []traces.Axis{{Name: traces.Data, At: r, Of: world}},
			Argv: []string{"python", "train.py"}, Device: "cuda:0", Torch: "2.9",
			GPUs: []traces.Device{{Kind: traces.DeviceGPU, Name: "GPU", TotalBytes: 80 << 30}}}
		p := first.Process
		if i > 0 {
			p = j.Add(info, nil)
		}
		p.Begin(info)
		list = append(list, p)
	}
	return j, list
}

func aStep(i int64) capture.Step {
	return capture.Step{Index: i, Start: 1_000_000 * i, End: 1_000_000*i + 900_000,
		Forward:   maybe.Known(300_000),
		Allocated: maybe.Known(i << 20), PeakAllocated: maybe.Known(i<<20 + 5), Cost: 1000}
}

func follow(t *testing.T, h *bus.Hub, o WatchOptions) *Watch {
	t.Helper()
	c, err := h.Dial(bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWatch(o)
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { w.Run(ctx, c) })
	t.Cleanup(func() {
		stop()
		work.Wait()
		c.Close()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// until waits for something that another goroutine does, but not forever.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for late := time.Now().Add(3 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

// seen returns the indices of the steps of each rank, by rank.
func seen(w *Watch) map[int64][]int64 {
	all := map[int64][]int64{}
	for _, p := range w.Job().Processes() {
		v := p.History.Snapshot()
		var list []int64
		for _, s := range v.Steps {
			list = append(list, s.Index)
		}
		all[v.Info.Rank.Or(-1)] = list
	}
	return all
}

// Two nodes, of which one starts before there is a join file: the viewer has every step of every rank, as it
// was on its node, whether it came before the viewer or later.
func TestAViewerSeesTheRanksOfAllNodes(t *testing.T) {
	h, path := openHub(t)
	later := filepath.Join(t.TempDir(), "later.join")
	a, ranksA := ranksOf(t, 4, 0, 1)
	b, ranksB := ranksOf(t, 4, 2, 3)
	na := StartNode(a, NodeOptions{Identity: Identity{Node: "a"}, Join: path,
		Tell: func(s string) { t.Error(s) }})
	nb := StartNode(b, NodeOptions{Identity: Identity{Node: "b.c"}, Join: later})
	ranks := append(ranksA, ranksB...)
	for i := range int64(5) {
		for _, p := range ranks {
			p.Step(aStep(i))
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(later, text, 0o600); err != nil {
		t.Fatal(err)
	}
	w := follow(t, h, WatchOptions{})
	<-w.caught
	until(t, "both nodes were seen", func() bool { return len(w.Job().Processes()) == 4 })
	for i := int64(5); i < 9; i++ {
		for _, p := range ranks {
			p.Step(aStep(i))
		}
	}
	ranks[3].End(capture.End{Reason: capture.Exited, Code: maybe.Known(1), Detail: "boom"})
	for _, j := range []*job.Job{a, b} {
		j.End(capture.End{Reason: capture.Exited, Code: maybe.Known(0)})
	}
	ca, cb := na.Close(), nb.Close()
	until(t, "the run ended", func() bool { _, over := w.Job().Over(); return over })
	for r, list := range seen(w) {
		if !reflect.DeepEqual(list, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("steps of rank %d: %v", r, list)
		}
	}
	for i, p := range w.Job().Processes() {
		got, want := p.History.Snapshot(), ranks[i].History.Snapshot()
		want.Info.Host, want.Info.Remote, want.Info.Started = []string{"a", "b.c"}[i/2], true, 0
		if !reflect.DeepEqual(got.Info, want.Info) || !reflect.DeepEqual(got.Steps, want.Steps) ||
			got.End != want.End || len(got.Losses) > 0 || len(got.Notices) > 0 {
			t.Errorf("rank %d:\n%+v\nwant\n%+v", i, got, want)
		}
	}
	for _, c := range []bus.Counts{ca, cb} {
		if c.Put != c.Sent || c.Dropped != 0 || c.Waiting != 0 {
			t.Errorf("counts: %+v", c)
		}
	}
}

// What a node calls itself ends up in the names of files, and stays in its folder.
func TestANameFromTheWireIsNoPath(t *testing.T) {
	h, _ := openHub(t)
	agent, err := h.Dial(bus.Agent)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	const evil = "../../../evil"
	for id, kind := range []bus.Kind{bus.Hello, bus.Step} {
		data := fmt.Appendf(nil, `{"v":1,"host":%q,"ranks":[{"id":0,"pid":2,"step":0}]}`, evil)
		if kind == bus.Step {
			data = appendBatch(nil, batch{head{pid: 2}, []capture.Step{aStep(0)}})
		}
		if err := agent.Store(t.Context(), evil, kind, fmt.Sprint(id), data); err != nil {
			t.Fatal(err)
		}
	}
	c, err := h.Dial(bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := filepath.Join(t.TempDir(), "run")
	s, err := Seal(t.Context(), c, dir)
	if err != nil || len(s.Files) != 1 || filepath.Dir(s.Files[0]) != dir {
		t.Fatalf("sealed %+v: %v", s, err)
	}
	if _, err := os.Stat(s.Files[0]); err != nil {
		t.Error(err)
	}
}

// A rank that torchrun starts again is another attempt.
func TestARankThatStartsAgainIsAnotherAttempt(t *testing.T) {
	j, ranks := ranksOf(t, 2, 0, 1)
	n := newNode(j, NodeOptions{Identity: Identity{Attempt: 3}})
	for _, p := range ranks {
		p.Step(aStep(0))
	}
	n.collect(time.Now())
	again := j.Add(capture.Info{PID: 9, Rank: maybe.Known(int64(1))}, nil)
	again.Step(aStep(0))
	n.collect(time.Now())
	for p, want := range map[*job.Process]int{ranks[0]: 3, ranks[1]: 3, again: 4} {
		if got := n.sent[p].attempt; got != want {
			t.Errorf("process %d: attempt %d, not %d", p.Info().PID, got, want)
		}
	}
	// What was sent is not sent again, and a node without news says nothing.
	before := n.ring.Counts().Put
	if n.collect(n.saidAt); n.ring.Counts().Put != before {
		t.Error("a node without news sends messages")
	}
}

// A node's hello may arrive before the last steps, since they are stored apart.
func TestAProcessEndsAfterItsLastStep(t *testing.T) {
	now := time.Unix(1000, 0)
	w := NewWatch(WatchOptions{now: func() time.Time { return now }})
	defer w.Close()
	w.caughtUp(bus.Hello)
	w.caughtUp(bus.Step)
	ended := func() bool { w.look(true); return w.Job().First().History.Snapshot().Ended }
	w.take(bus.Message{Node: "a", Kind: bus.Hello, Data: []byte(
		`{"v":1,"host":"a","ranks":[{"id":0,"pid":2,"step":1,"end":{"reason":"exited"}}],"over":true}`)})
	if ended() {
		t.Error("it ended before its last step")
	}
	w.take(bus.Message{Node: "a", Kind: bus.Step, Data: appendBatch(nil, batch{head{},
		[]capture.Step{aStep(0)}})})
	if ended() {
		t.Error("it ended before its last step")
	}
	now = now.Add(2 * endGrace) // the last step was lost
	if _, over := w.Job().Over(); !ended() || over {
		_, over = w.Job().Over()
		if !over {
			t.Error("it never ends")
		}
	}
}

func TestTheEnvironmentTellsTheRun(t *testing.T) {
	host, _ := os.Hostname()
	for _, x := range []struct {
		env  string
		want Identity
	}{
		{"", Identity{Node: host}},
		{"SLURM_JOB_ID=42 SLURMD_NODENAME=n-1.x SLURM_RESTART_COUNT=2", Identity{"42", 2, "n-1.x"}},
		{"SLURM_JOB_ID=43 SLURM_ARRAY_JOB_ID=42 SLURM_ARRAY_TASK_ID=7 SLURMD_NODENAME=n", Identity{"42_7",
			0, "n"}},
		{"TORCHELASTIC_RUN_ID=exp TORCHELASTIC_RESTART_COUNT=1", Identity{"exp", 1, host}},
		{"TORCHELASTIC_RUN_ID=none", Identity{"", 0, host}},
		{"KUBERNETES_SERVICE_HOST=1 PET_RDZV_ID=u-1", Identity{"u-1", 0, host}},
		{"PMIX_NAMESPACE=prterun-1@2", Identity{"prterun-1@2", 0, host}},
		{"GMEMTOP_RUN=mine TORCHELASTIC_RUN_ID=exp", Identity{"mine", 0, host}},
	} {
		env := map[string]string{}
		for _, f := range strings.Fields(x.env) {
			k, v, _ := strings.Cut(f, "=")
			env[k] = v
		}
		if got := Identify(func(k string) string { return env[k] }); got != x.want {
			t.Errorf("%s: %+v, not %+v", x.env, got, x.want)
		}
	}
}

// A node collects because something has arrived, not because time has passed.
func TestANodeSendsAStepWhenItArrives(t *testing.T) {
	h, path := openHub(t)
	j, ranks := ranksOf(t, 1, 0)
	n := StartNode(j, NodeOptions{Identity: Identity{Node: "a"}, Join: path, idle: time.Hour})
	w := follow(t, h, WatchOptions{})
	for i := range int64(3) {
		ranks[0].Step(aStep(i))
		until(t, "the step is here", func() bool { return int64(len(seen(w)[0])) == i+1 })
	}
	ranks[0].End(capture.End{Reason: capture.Exited, Code: maybe.Known(0)})
	j.End(capture.End{Reason: capture.Exited, Code: maybe.Known(0)})
	until(t, "the run has ended", func() bool { _, over := w.Job().Over(); return over })
	n.Close()
}

// The more nodes a run has, the more each puts into a message.
func TestNodesOfALargeRunCollectLessOften(t *testing.T) {
	for world, want := range map[int64]time.Duration{2: leastRest, 1024: 256 * restPerNode,
		1 << 40: idleLook} {
		j, ranks := ranksOf(t, world, 0, 1, 2, 3)
		n := newNode(j, NodeOptions{})
		for _, p := range ranks {
			p.Step(aStep(0))
		}
		n.collect(time.Now())
		if got := n.rest(); got > want || got <= want-restPerNode {
			t.Errorf("%d ranks, four of them here: %v, want %v", world, got, want)
		}
	}
}
