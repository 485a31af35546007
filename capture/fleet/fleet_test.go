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
		target := capture.Target{PID: 4000 + int(r), Started: 1, Rank: maybe.Known(r),
			WorldSize: maybe.Known(world), Axes: []traces.Axis{{Name: traces.Data, At: r, Of: world}},
			Argv: []string{"python", "train.py"}, Device: "cuda:0", Torch: "2.9",
			GPUs: []traces.Device{{Kind: traces.DeviceGPU, Name: "GPU", TotalBytes: 80 << 30}}}
		p := first.Process
		if i > 0 {
			p = j.Add(target, nil)
		}
		p.Begin(target)
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
	for late := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
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
		all[v.Target.Rank.Or(-1)] = list
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
		want.Target.Host, want.Target.Remote, want.Target.Started = []string{"a", "b.c"}[i/2], true, 0
		if !reflect.DeepEqual(got.Target, want.Target) || !reflect.DeepEqual(got.Steps, want.Steps) ||
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

// While the hub is away the ring keeps what fits. What does not is counted in steps, and the sum is right.
func TestWhatTheRingCouldNotHoldIsCounted(t *testing.T) {
	dir := t.TempDir()
	keys, err := bus.NewKeys(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	o := bus.HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: keys, Store: filepath.Join(dir, "store")}
	h, err := bus.OpenHub(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Listen = h.Address()
	path := filepath.Join(dir, "r.join")
	if err := h.Join(h.Address()).Write(path); err != nil {
		t.Fatal(err)
	}
	j, ranks := ranksOf(t, 1, 0)
	n := StartNode(j, NodeOptions{Identity: Identity{Node: "a"}, Join: path,
		limits: bus.RingLimits{Messages: 4}})
	index := int64(0)
	step := func() { ranks[0].Step(aStep(index)); index++ }
	step()
	until(t, "the hub has something", func() bool { return n.ring.Counts().Sent > 0 })
	h.Close()
	// The next hub has keys of its own.
	if o.Keys, err = bus.NewKeys(time.Hour); err != nil {
		t.Fatal(err)
	}
	until(t, "the ring is full",
		func() bool { step(); time.Sleep(collectEvery / 4); return n.ring.Counts().Dropped >= 5 })
	if h, err = bus.OpenHub(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if err := h.Join(h.Address()).Write(path); err != nil {
		t.Fatal(err)
	}
	until(t, "the hub has the rest", func() bool { return n.ring.Counts().Waiting == 0 })
	step()
	w := follow(t, h, WatchOptions{})
	until(t, "the newest step is here", func() bool {
		list := seen(w)[0]
		return len(list) > 0 && list[len(list)-1] == index-1
	})
	until(t, "every step is here or counted as lost", func() bool {
		v := w.Job().First().History.Snapshot()
		return len(v.Losses) == 1 && v.Losses[0].Name == "steps" &&
			v.Losses[0].Count+int64(len(v.Steps)) == index
	})
	until(t, "the viewer says what the node dropped", func() bool {
		said := w.Job().First().History.Snapshot().Notices
		return len(said) > 0 && strings.Contains(said[0].Text, "a dropped ")
	})
	n.Close()
}

// The hub starts when the ring was full already: what was dropped before the first step that it ever had is
// counted, for each rank, and the node's hellos push no step out.
func TestStepsDroppedBeforeTheHubCameAreCounted(t *testing.T) {
	const messages, steps = 4, 30
	j, ranks := ranksOf(t, 2, 0, 1)
	n := newNode(j, NodeOptions{Identity: Identity{Node: "a"}, limits: bus.RingLimits{Messages: messages}})
	now := time.Now()
	for i := range int64(steps) {
		ranks[0].Step(aStep(i))
		if i >= steps/2 {
			ranks[1].Step(aStep(i)) // it was attached to later
		}
		now = now.Add(2 * helloEvery)
		n.collect(now)
	}
	h, _ := openHub(t)
	w := follow(t, h, WatchOptions{})
	c, err := h.Dial(bus.Agent)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { n.ring.Send(ctx, c) })
	viewer, err := h.Dial(bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	defer viewer.Close()
	var losses Losses
	work.Go(func() { losses.Run(ctx, viewer) })
	defer work.Wait()
	defer stop()
	until(t, "every step is here or counted as lost", func() bool {
		n.collect(now)
		for i, p := range w.Job().Processes() {
			v := p.History.Snapshot()
			if len(v.Losses) != 1 || len(v.Steps) < messages-2 ||
				v.Losses[0].Count+int64(len(v.Steps)) != steps/int64(i+1) {
				return false
			}
		}
		return len(w.Job().Processes()) == 2
	})
	lost := int64(0)
	for _, p := range w.Job().Processes() {
		lost += p.History.Snapshot().Losses[0].Count
	}
	until(t, "the hub knows as well", func() bool {
		sum, worst := losses.Sum()
		return sum == lost && worst == "a"
	})
}

// The end of a process says how many steps it took. What has not come by then is lost, and what comes
// nevertheless is not.
func TestTheLastStepsAreCountedIfTheyDoNotCome(t *testing.T) {
	now := time.Unix(1000, 0)
	w := NewWatch(WatchOptions{now: func() time.Time { return now }})
	defer w.Close()
	lost := func() (n int64) {
		w.look(true)
		for _, l := range w.Job().First().History.Snapshot().Losses {
			n += l.Count
		}
		return n
	}
	step := func(i int64) {
		w.take(bus.Message{Node: "a", Kind: bus.Step, Data: appendBatch(nil, batch{head{},
			[]capture.Step{aStep(i)}})})
	}
	step(0)
	w.take(bus.Message{Node: "a", Kind: bus.Hello, Data: []byte(
		`{"v":1,"host":"a","ranks":[{"id":0,"pid":2,"first":0,"step":3,"end":{"reason":"exited"}}]}`)})
	now = now.Add(2 * endGrace)
	if n := lost(); n != 0 {
		t.Errorf("%d steps are lost while the hub still sends what it had", n)
	}
	w.caughtUp(bus.Hello)
	w.caughtUp(bus.Step)
	for _, want := range []int64{3, 3} {
		if n := lost(); n != want {
			t.Errorf("%d steps are lost, not %d", n, want)
		}
	}
	step(1)
	step(3)
	if n := lost(); n != 1 {
		t.Errorf("%d steps are lost, not only step 2", n)
	}
}

// A node remembers few spans of what it dropped, and never fewer steps than it dropped.
func TestDroppedStepsAreKeptAsSpans(t *testing.T) {
	var list []span
	for i := range int64(40) {
		list = addStep(addStep(list, 10*i), 10*i+1)
	}
	if want := []span{{0, 321}, {330, 331}}; len(list) != maxLost || !reflect.DeepEqual(list[:2], want) {
		t.Errorf("%v", list)
	}
	for index, want := range map[int64]int64{0: 0, 5: 5, 322: 322, 325: 322, 331: 323, 1000: 322 + 14} {
		if n := before(list, index); n != want {
			t.Errorf("%d steps before %d, not %d", n, index, want)
		}
	}
	for _, bad := range []string{`[{"from":2,"to":1}]`, `[{"from":-5,"to":1}]`,
		`[{"from":0,"to":3},{"from":3,"to":4}]`, `[{"from":0,"to":9223372036854775807}]`} {
		if _, err := readHello([]byte(`{"v":1,"ranks":[{"lost":` + bad + `}]}`)); err == nil {
			t.Errorf("%s is accepted", bad)
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

// A message that comes again, or comes late, changes nothing.
func TestAStepIsTakenOnce(t *testing.T) {
	w := NewWatch(WatchOptions{})
	defer w.Close()
	message := func(from, to int64) bus.Message {
		x := batch{head: head{id: 0, pid: 7, rank: maybe.Known(0), worldSize: maybe.Known(1)}}
		for i := from; i < to; i++ {
			x.steps = append(x.steps, aStep(i))
		}
		return bus.Message{Node: "a:1", Kind: bus.Step, Data: appendBatch(nil, x)}
	}
	for _, m := range []bus.Message{message(0, 3), message(0, 3), message(2, 5), message(1, 2), message(5,
		6)} {
		w.take(m)
	}
	if got := seen(w)[0]; !reflect.DeepEqual(got, []int64{0, 1, 2, 3, 4, 5}) {
		t.Errorf("steps %v", got)
	}
	if l := w.Job().First().History.Snapshot().Losses; len(l) > 0 {
		t.Errorf("lost: %v", l)
	}
}

func TestANodeThatFallsSilentIsLateAndThenLost(t *testing.T) {
	now := time.Unix(1000, 0)
	w := NewWatch(WatchOptions{now: func() time.Time { return now }})
	defer w.Close()
	say := func(node string) {
		w.take(bus.Message{Node: node, Kind: bus.Step, Data: appendBatch(nil, batch{
			head:  head{rank: maybe.Known(int64(len(w.nodes)))},
			steps: []capture.Step{aStep(now.UnixNano())}})})
	}
	say("a:1")
	say("b:1")
	w.caughtUp(bus.Hello)
	w.caughtUp(bus.Step)
	why := func() string {
		w.look(true)
		return w.Job().First().History.Snapshot().Severed
	}
	for _, x := range []struct {
		after time.Duration
		want  string
	}{{time.Second, ""}, {lateAfter, "late: nothing from a:1"}, {lostAfter, "lost: nothing from a:1 for"}} {
		now = time.Unix(1000, 0).Add(x.after)
		say("b:1")
		if got := why(); x.want == "" && got != "" || !strings.HasPrefix(got, x.want) {
			t.Errorf("after %s: %q", x.after, got)
		}
	}
	if other := w.Job().Processes()[1].History.Snapshot().Severed; other != "" {
		t.Errorf("the other node: %q", other)
	}
	say("a:1")
	if got := why(); got != "" {
		t.Errorf("when it is back: %q", got)
	}
	now = now.Add(time.Hour)
	w.look(false)
	if got := w.Job().First().History.Snapshot().Severed; got != "the hub does not answer" {
		t.Errorf("without the hub: %q", got)
	}
}

// A viewer that comes late is told that a node has long been silent, whatever its own clock says, as soon as
// it has read everything: until then, a node may have sent more.
func TestWhoComesLateSeesThatANodeIsSilent(t *testing.T) {
	now := time.Unix(1000, 0)
	w := NewWatch(WatchOptions{now: func() time.Time { return now }})
	defer w.Close()
	for rank, age := range []time.Duration{lostAfter + time.Second, lateAfter, 0} {
		w.take(bus.Message{Node: fmt.Sprint("n", rank), Kind: bus.Step, Age: age,
			Data: appendBatch(nil, batch{head: head{rank: maybe.Known(int64(rank))},
				steps: []capture.Step{aStep(0)}})})
	}
	check := func(when string, all ...string) {
		t.Helper()
		for i, want := range all {
			if got := w.Job().Processes()[i].History.Snapshot().Severed; got != want {
				t.Errorf("%s, rank %d: %q, not %q", when, i, got, want)
			}
		}
	}
	w.caughtUp(bus.Hello)
	w.look(true)
	check("while it reads", "", "", "")
	w.caughtUp(bus.Step)
	<-w.caught
	check("in the end", "lost: nothing from n0 for 31s", "late: nothing from n1 for 6s", "")
}

// A rank that torchrun starts again is another attempt.
func TestARankThatStartsAgainIsAnotherAttempt(t *testing.T) {
	j, ranks := ranksOf(t, 2, 0, 1)
	n := newNode(j, NodeOptions{Identity: Identity{Attempt: 3}})
	for _, p := range ranks {
		p.Step(aStep(0))
	}
	n.collect(time.Now())
	again := j.Add(capture.Target{PID: 9, Rank: maybe.Known(int64(1))}, nil)
	again.Step(aStep(0))
	n.collect(time.Now())
	for p, want := range map[*job.Process]int{ranks[0]: 3, ranks[1]: 3, again: 4} {
		if got := n.sent[p].attempt; got != want {
			t.Errorf("process %d: attempt %d, not %d", p.Target().PID, got, want)
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

// A sealed folder holds every step that the hub has of every rank, and opens as the job that it was.
func TestASealedRunOpensAsItWas(t *testing.T) {
	h, path := openHub(t)
	var want [][]capture.Step
	for k, numbers := range [][]int64{{0, 1}, {2, 3}} {
		j, ranks := ranksOf(t, 4, numbers...)
		n := StartNode(j, NodeOptions{Identity: Identity{Node: fmt.Sprint("n", k)}, Join: path})
		for r, p := range ranks {
			for i := range int64(600) {
				if r == 1 && i == 5 {
					continue // a step that never arrived
				}
				s := aStep(i + 1)
				s.RSS, s.Retries = maybe.Known(int64(r)), maybe.Known(int64(0))
				p.Step(s)
			}
			want = append(want, p.History.Snapshot().Steps)
		}
		until(t, "the steps were collected", func() bool { return n.ring.Counts().Sent > 2 })
		j.End(capture.End{Reason: capture.Exited, Code: maybe.Known(int64(0))})
		n.Close()
	}
	c, err := h.Dial(bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := filepath.Join(t.TempDir(), "run")
	s, err := Seal(t.Context(), c, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Files) != 4 || s.Steps != 4*600-2 || s.Lost != 2 || s.Gone != 0 {
		t.Errorf("sealed: %+v", s)
	}
	j, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	list := j.Processes()
	for r, p := range list {
		v := p.History.Snapshot()
		if !reflect.DeepEqual(v.Steps, want[r]) {
			t.Errorf("the steps of rank %d changed: %d of %d", r, len(v.Steps), len(want[r]))
		}
		if x := v.Target; x.Rank != maybe.Known(int64(r)) || x.Host != fmt.Sprint("n", r/2) ||
			x.PID != 4000+r ||
			x.Device != "cuda:0" || x.WorldSize != maybe.Known(int64(4)) {
			t.Errorf("rank %d: %+v", r, x)
		}
		if lost := len(v.Losses); lost != r%2 || lost > 0 && v.Losses[0].Count != 1 {
			t.Errorf("rank %d lost: %+v", r, v.Losses)
		}
	}
	if _, err := Seal(t.Context(), c, dir); err == nil || len(list) != 4 {
		t.Errorf("%d processes; a folder is sealed twice: %v", len(list), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".gmemtop-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
