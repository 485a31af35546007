//go:build !nobus

package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// trainee steps and captures as an agent does: an order waits for its step.
type trainee struct {
	process *job.Process
	deaf    atomic.Int64 // it hears no order before this step
	refuses string       // why it captures nothing

	mu    sync.Mutex
	heard []capture.Order
}

func (x *trainee) Order(_ context.Context, o capture.Order) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.heard = append(x.heard, o)
	return nil
}

func (x *trainee) Detach(context.Context) error { return nil }

func (x *trainee) orders() []capture.Order {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.heard)
}

// train steps until ctx is done.
func (x *trainee) train(ctx context.Context) {
	answered := map[capture.OrderID]bool{}
	begun := map[capture.OrderID]int64{}
	for i := int64(0); ctx.Err() == nil; i++ {
		for _, o := range x.orders() {
			switch _, open := begun[o.ID]; {
			case answered[o.ID], i < x.deaf.Load():
			case x.refuses != "":
				answered[o.ID] = true
				x.process.Answer(capture.Answer{Order: o.ID, State: capture.OrderRefused, Text: x.refuses})
			case !open && i >= o.From:
				begun[o.ID] = i
			}
		}
		time.Sleep(2 * time.Millisecond)
		s := aStep(i)
		// It takes longer than it says, however busy the machine is: nobody is ahead of where an operator
		// expects them.
		s.End = time.Now().UnixNano()
		s.Start = s.End - int64(time.Millisecond)
		x.process.Step(s)
		for _, o := range x.orders() {
			if first, open := begun[o.ID]; open && !answered[o.ID] && i == first+int64(o.Steps)-1 {
				answered[o.ID] = true
				x.process.Window(capture.Window{Trace: aTrace(), First: first, Last: i, How: capture.HowOps,
					Orders: []capture.OrderID{o.ID}, Bytes: 1})
				x.process.Answer(capture.Answer{Order: o.ID, State: capture.OrderDone})
			}
		}
	}
}

// aTrace is larger than what fits into one part, whatever compresses it.
func aTrace() *traces.Trace {
	t := &traces.Trace{Strings: []string{""}, Clock: traces.Clock{HasTime: true, Resolution: 1}}
	x := uint64(1)
	for range 3 * partBytes / 32 {
		text := make([]byte, 0, 64)
		for range 4 {
			x = x*6364136223846793005 + 1442695040888963407
			text = fmt.Appendf(text, "%016x", x)
		}
		t.Strings = append(t.Strings, string(text))
		t.Losses = append(t.Losses, traces.Loss{Name: string(text), Count: 1})
	}
	return t
}

// trainOn starts a node with ranks that train until the test ends.
func trainOn(t *testing.T, node, join string, ranks map[int64]*trainee) *Node {
	t.Helper()
	j := job.New(job.NewWatch(job.Options{}))
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for r, x := range ranks {
		info := capture.Info{PID: 5000 + int(r), Rank: maybe.Known(r), WorldSize: maybe.Known(int64(8))}
		x.process = j.Add(info, x)
		x.process.Begin(info)
		work.Go(func() { x.train(ctx) })
	}
	n := StartNode(j, NodeOptions{Identity: Identity{Node: node}, Join: join})
	t.Cleanup(func() {
		stop()
		work.Wait()
		n.Close()
		_ = j.Close()
	})
	return n
}

func operate(t *testing.T, path string, r bus.Role) (*bus.Conn, error) {
	t.Helper()
	join, err := bus.ReadJoin(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := bus.Dial(t.Context(), bus.Access{Join: join, Role: r})
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

// The chosen ranks of all nodes capture the same steps, the others nothing. A rank that hears of it too late
// is named, and so are those that cannot.
func TestRanksOfAllNodesCaptureTheSameSteps(t *testing.T) {
	_, path := openHub(t)
	late := &trainee{}
	late.deaf.Store(1 << 40)
	refuses := &trainee{refuses: "nothing to see"}
	others := []*trainee{{}, {}}
	a := trainOn(t, "a", path, map[int64]*trainee{0: {}, 1: others[0], 2: late})
	b := trainOn(t, "b", path, map[int64]*trainee{3: {}, 4: refuses, 5: others[1]})
	for _, n := range []*Node{a, b} {
		until(t, "the node has sent steps", func() bool { return n.ring.Counts().Sent > 1 })
	}
	c, err := operate(t, path, bus.Operator)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	var told []string
	done, err := Capture(t.Context(), c, CaptureOptions{
		Nodes: []string{a.name, b.name, "gone:1"}, Steps: 3,
		Wait: time.Minute, lead: time.Second, answer: time.Second,
		Choose: func(running []int64) ([]int64, error) {
			if !slices.Equal(running, []int64{0, 1, 2, 3, 4, 5}) {
				t.Errorf("ranks %v run", running)
			}
			return []int64{3, 0, 2, 4, 9}, nil
		},
		Dir: func(first int64) string {
			late.deaf.Store(first + 2)
			return dir
		},
		Tell: func(s string) { told = append(told, s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || !strings.HasPrefix(told[0], "gone:1 does not answer") ||
		told[1] != fmt.Sprintf("capturing steps %d to %d of ranks 0, 2 to 4, 9", done.First, done.Last) {
		t.Errorf("told: %q", told)
	}
	if done.Last != done.First+2 || len(done.Ranks) != 5 {
		t.Fatalf("captured: %+v", done)
	}
	for i, want := range []struct {
		rank  int64
		late  bool
		why   string
		after int64
	}{{rank: 0}, {rank: 2, late: true, after: 2}, {rank: 3}, {rank: 4, why: "nothing to see"},
		{rank: 9, why: "no node has this rank"}} {
		got := done.Ranks[i]
		if got.Rank != want.rank || got.Why != want.why || done.Late(got) != want.late ||
			(got.Path == "") != (want.why != "") {
			t.Errorf("rank %d: %+v", want.rank, got)
		}
		if want.why != "" {
			continue
		}
		if got.First != done.First+want.after || got.Last != got.First+2 {
			t.Errorf("rank %d captured %d to %d, asked for %d", want.rank, got.First, got.Last, done.First)
		}
		f, err := os.Open(got.Path)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := gmt.Read(t.Context(), f, nil)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if p := tr.Process; p.Rank != maybe.Known(want.rank) || p.Host != []string{"a", "b"}[want.rank/3] ||
			p.WorldSize != maybe.Known(int64(8)) || len(tr.Losses) != len(aTrace().Losses) {
			t.Errorf("the trace of rank %d is of %+v, with %d rows", want.rank, p, len(tr.Losses))
		}
		if info, err := os.Stat(got.Path); err != nil || info.Size() != got.Bytes || got.Bytes < partBytes {
			t.Errorf("its file: %v, %v, %d bytes were sent", info.Size(), err, got.Bytes)
		}
	}
	for i, x := range others {
		if o := x.orders(); len(o) > 0 {
			t.Errorf("rank %d was not asked for, and got %+v", []int{1, 5}[i], o)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".gmemtop-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := Capture(t.Context(), c, CaptureOptions{Steps: 1, lead: 1, Nodes: []string{a.name, b.name},
		Choose: func([]int64) ([]int64, error) { return []int64{0}, nil },
		Dir:    func(int64) string { return dir }, Tell: func(string) {}}); err == nil ||
		!strings.Contains(err.Error(), "exists already") {
		t.Errorf("a second capture in the same folder: %v", err)
	}
}

// Who may only look gives no orders, and reads no trace that others asked for.
func TestACaptureNeedsTheOperatorsKey(t *testing.T) {
	h, path := openHub(t)
	x := &trainee{}
	n := trainOn(t, "a", path, map[int64]*trainee{0: x})
	until(t, "the node has sent steps", func() bool { return n.ring.Counts().Sent > 1 })
	looks := filepath.Join(t.TempDir(), "look.join")
	if err := h.Join(h.Address()).ForViewers().Write(looks); err != nil {
		t.Fatal(err)
	}
	if _, err := operate(t, looks, bus.Operator); err == nil ||
		!strings.Contains(err.Error(), "no key of role operator") {
		t.Errorf("as an operator: %v", err)
	}
	c, err := operate(t, looks, bus.Viewer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Capture(t.Context(), c, CaptureOptions{Steps: 1,
		Choose: func(r []int64) ([]int64, error) { return r, nil },
		Dir:    func(int64) string { return filepath.Join(t.TempDir(), "x") },
		Tell:   func(string) {}}); err == nil ||
		!strings.Contains(err.Error(), "operator's key") {
		t.Errorf("a viewer captures: %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	c.ReadNew(ctx, func(bus.Message) { t.Error("a viewer reads traces") },
		func(bus.Kind) { t.Error("a viewer may read traces") }, bus.Trace)
	if len(x.orders()) > 0 {
		t.Errorf("it was ordered %+v", x.orders())
	}
}

// What is lost or damaged on the way is an error, and what comes twice is not.
func TestATraceIsWholeOrAnError(t *testing.T) {
	list, err := partsOf(t.Context(), aTrace(), "a", capture.Info{PID: 1})
	if err != nil || len(list) < 3 {
		t.Fatalf("%d parts: %v", len(list), err)
	}
	put := func(list ...part) (string, error) {
		var b bytes.Buffer
		w := assembly{id: "x", rank: 7, to: &b, sum: sha256.New()}
		for _, p := range list {
			if p.ID == "" {
				p.ID, p.Rank = "x", 7
			}
			message, err := p.encode()
			if err != nil {
				t.Fatal(err)
			}
			if complete, err := w.take(message); complete || err != nil {
				return b.String(), err
			}
		}
		return b.String(), fmt.Errorf("incomplete")
	}
	var want bytes.Buffer
	for _, p := range list {
		want.Write(p.data)
	}
	other := list[0]
	other.ID = "y"
	twice := append([]part{other, list[0], other, list[0]}, list[1:]...)
	if got, err := put(twice...); err != nil || got != want.String() {
		t.Errorf("parts that came twice: %v", err)
	}
	damaged := slices.Clone(list)
	damaged[1].data = append([]byte("x"), list[1].data[1:]...)
	for name, x := range map[string]struct {
		list []part
		want string
	}{
		"lost":    {append([]part{list[0]}, list[2:]...), "parts 1 to 1 of its trace were lost"},
		"damaged": {damaged, "damaged on the way"},
		"cut":     {list[:2], "incomplete"},
		"refused": {[]part{{Number: -1, Why: "no memory"}}, "no memory"},
		"none":    {[]part{{}}, "not a message of a gmemtop node"},
	} {
		if _, err := put(x.list...); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzPart(f *testing.F) {
	p := part{ID: "x", Of: 1, Sum: "00", data: []byte("data")}
	good, err := p.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, message []byte) {
		p, err := readPart(message)
		if err == nil && (p.Why == "" && (p.Number < 0 || p.Number >= p.Of) || len(p.data) > len(message)) {
			t.Errorf("part %+v", p)
		}
	})
}
