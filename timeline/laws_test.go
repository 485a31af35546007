package timeline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// segSize is the size of the segments of [randomTrace].
const segSize = 64 << 10

// randomTrace makes n events of a small allocator: segments that come and go, blocks with delayed frees and,
// if damaged, missing events. Whatever is alive at the end becomes the final state. It begins in the middle:
// the first cut events are dropped.
func randomTrace(rng *rand.Rand, n, cut int, damaged bool) *traces.Trace {
	b := traces.NewBuilder()
	dev := b.Device(traces.DeviceGPU, 0)
	stacks := []traces.StackID{traces.NoStack}
	for i := range 5 {
		stacks = append(stacks, b.Stack([]traces.FrameID{
			b.Frame(traces.Frame{Func: b.String("forward"), File: b.String(fmt.Sprintf("net%d.py", i)),
				Line: int32(i + 1)}),
			b.Frame(traces.Frame{Func: b.String("main"), File: b.String("train.py"), Line: 7}),
		}))
	}
	type block struct {
		addr    uint64
		size    int64
		pending bool
		stack   traces.StackID
	}
	var blocks []block
	segs := map[uint64]int{}  // blocks in each
	held := map[uint64]bool{} // segments that the allocator has, with blocks or cached
	var all []traces.Event
	now := int64(0)
	emit := func(a traces.Action, addr uint64, size int64, st traces.StackID) {
		now += rng.Int64N(50)
		all = append(all, traces.Event{Time: now, Addr: addr, Size: size, Stack: st, Action: a, Device: dev,
			Stream: traces.StreamID(0)})
	}
	for len(all) < n {
		switch k := rng.IntN(10); {
		case k < 5:
			seg := uint64(1+rng.IntN(8)) * (1 << 20)
			slot := uint64(rng.IntN(16)) * 4096
			if slices.ContainsFunc(blocks, func(x block) bool { return x.addr == seg+slot }) {
				continue
			}
			if !held[seg] {
				emit(traces.SegmentAlloc, seg, segSize, traces.NoStack)
				held[seg] = true
			}
			segs[seg]++
			x := block{addr: seg + slot, size: 1 + rng.Int64N(4096), stack: stacks[rng.IntN(len(stacks))]}
			emit(traces.Alloc, x.addr, x.size, x.stack)
			blocks = append(blocks, x)
		case len(blocks) > 0:
			i := rng.IntN(len(blocks))
			x := &blocks[i]
			if !x.pending {
				emit(traces.FreeRequested, x.addr, x.size, x.stack)
				x.pending = true
				continue
			}
			emit(traces.FreeCompleted, x.addr, x.size, x.stack)
			seg := x.addr &^ (1<<20 - 1)
			blocks = slices.Delete(blocks, i, i+1)
			if segs[seg]--; segs[seg] == 0 && rng.IntN(2) == 0 { // else it stays cached
				emit(traces.SegmentFree, seg, segSize, traces.NoStack)
				held[seg] = false
			}
		}
	}
	for i, e := range all {
		if i >= cut && (!damaged || rng.IntN(20) > 0) {
			b.Event(e)
		}
	}
	b.T.Settings = []traces.Setting{{Key: "roundup_power2_divisions", Value: `{"1":0}`}}
	st := &b.T.Final
	st.Known = true
	slices.SortFunc(blocks, func(x, y block) int { return int(int64(x.addr) - int64(y.addr)) })
	for seg := uint64(1 << 20); seg <= 8<<20; seg += 1 << 20 {
		if !held[seg] {
			continue
		}
		s := traces.Segment{Address: seg, TotalSize: segSize, Device: dev, FirstBlock: int32(len(st.Blocks)),
			Stack: traces.NoStack}
		for _, x := range blocks {
			if x.addr&^(1<<20-1) != seg {
				continue
			}
			state, rounded := traces.BlockAllocated, (x.size+511)&^511
			if x.pending {
				state = traces.BlockPendingFree
			} else {
				s.AllocatedSize += rounded
			}
			s.ActiveSize += rounded
			st.Blocks = append(st.Blocks, traces.Block{Address: x.addr, Size: rounded,
				Requested: maybe.Known(x.size),
				State:     state, Count: 1, Stack: x.stack})
		}
		s.EndBlock = int32(len(st.Blocks))
		st.Segments = append(st.Segments, s)
	}
	return b.Finish()
}

// eachRandom runs f on the device of random traces: whole, begun in the middle, and damaged.
func eachRandom(t *testing.T, f func(t *testing.T, d *timeline.Device, rng *rand.Rand)) {
	for seed := range uint64(12) {
		for _, c := range []struct {
			name    string
			cut     int
			damaged bool
		}{{"whole", 0, false}, {"middle", 300, false}, {"damaged", 300, true}} {
			t.Run(fmt.Sprintf("%s/%d", c.name, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				tl, err := timeline.Build(context.Background(),
					randomTrace(rng, 1000+int(seed)*500, c.cut, c.damaged), nil)
				if err != nil {
					t.Fatal(err)
				}
				f(t, tl.Devices[0], rng)
			})
		}
	}
}

func randomMoment(rng *rand.Rand, d *timeline.Device) timeline.Moment {
	return timeline.Moment(rng.IntN(d.Len()+1) - 1)
}

func TestTheLawClosesOnTracesWithoutLosses(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		tt := d.Totals
		closes := timeline.Worst(&tt) == 0
		if tt.Exactness == timeline.Exact && !closes {
			t.Errorf("exact, yet a law is open by %d bytes", timeline.Worst(&tt))
		}
		if len(d.Timeline().Losses) == 0 && (tt.Exactness != timeline.Exact ||
			tt.EndAllocated != d.Allocated.Last()) {
			t.Errorf("nothing lost, yet %s: %s", tt.Exactness, tt.Reason)
		}
	})
}

func TestAWholeRecordingBeginsEmpty(t *testing.T) {
	tl, err := timeline.Build(context.Background(), randomTrace(rand.New(rand.NewPCG(1, 2)), 2000, 0, false),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	if tt := tl.Devices[0].Totals; !tt.BeginsEmpty || !tt.Complete {
		t.Errorf("begins empty %v, complete %v (%s)", tt.BeginsEmpty, tt.Complete, tt.Reason)
	}
}

func TestUsageIsTheSumOfWhatIsAlive(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		for range 50 {
			m := randomMoment(rng, d)
			var allocated, active, allocatedRequested, activeRequested int64
			for i := range d.Allocs.Len() {
				if d.Allocs.Start[i] <= m && m < d.Allocs.Requested[i] {
					allocated += d.Allocs.Rounded[i]
					allocatedRequested += d.Allocs.Size[i]
				}
				if d.Allocs.Start[i] <= m && m < d.Allocs.End[i] {
					active += d.Allocs.Rounded[i]
					activeRequested += d.Allocs.Size[i]
				}
			}
			if got := d.RequestedSeries().At(m); got != allocatedRequested {
				t.Fatalf("allocated at %d is %d in requested bytes, sum of lifetimes %d", m, got,
					allocatedRequested)
			}
			if got := d.RequestedActiveSeries().At(m); got != activeRequested {
				t.Fatalf("active at %d is %d in requested bytes, sum of lifetimes %d", m, got,
					activeRequested)
			}
			if got := d.Allocated.At(m); got != allocated {
				t.Fatalf("allocated at %d is %d, sum of lifetimes %d", m, got, allocated)
			}
			if got := d.Active.At(m); got != active {
				t.Fatalf("active at %d is %d, sum of lifetimes %d", m, got, active)
			}
		}
	})
}

func TestLiveAtEqualsAScan(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		for range 50 {
			m := randomMoment(rng, d)
			var live, active []timeline.AllocID
			for i := range timeline.AllocID(d.Allocs.Len()) {
				if d.Allocs.Start[i] <= m && m < d.Allocs.Requested[i] {
					live = append(live, i)
				}
				if d.Allocs.Start[i] <= m && m < d.Allocs.End[i] {
					active = append(active, i)
				}
			}
			if got := d.LiveAt(m, nil); !slices.Equal(got, live) {
				t.Fatalf("LiveAt(%d) = %v, want %v", m, got, live)
			}
			if got := d.ActiveAt(m, nil); !slices.Equal(got, active) {
				t.Fatalf("ActiveAt(%d) = %v, want %v", m, got, active)
			}
			for _, id := range live {
				if got := timeline.LiveAtAddr(d, m, d.Allocs.Addr[id]); got == timeline.NoAlloc {
					t.Fatalf("no allocation at %d holds %x", m, d.Allocs.Addr[id])
				}
			}
		}
	})
}

func TestAllocationsAreOrderedAsDocumented(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		a := &d.Allocs
		if !slices.IsSorted(a.Start) {
			t.Error("allocations are not ordered by start")
		}
		last := timeline.Never
		for i := 0; i < a.Len() && a.Start[i] == timeline.Start; i++ {
			if a.Requested[i] == timeline.Start {
				continue
			}
			if a.Requested[i] > last {
				t.Errorf("of those alive before, %d is freed at %d after its predecessor at %d", i,
					a.Requested[i], last)
			}
			last = a.Requested[i]
		}
		names := map[string]bool{}
		for i := range timeline.AllocID(a.Len()) {
			if names[d.Name(i)] {
				t.Errorf("two allocations are named %s", d.Name(i))
			}
			names[d.Name(i)] = true
			if a.Requested[i] > a.End[i] || a.Start[i] > a.Requested[i] {
				t.Errorf("%s lives %d, %d, %d", d.Name(i), a.Start[i], a.Requested[i], a.End[i])
			}
		}
	})
}

// scanned returns the column of events [first, end) by visiting each.
func scanned(s *timeline.Series, first, end timeline.Moment) timeline.Column {
	v := s.At(first - 1)
	c := timeline.Column{Min: v, Max: v, Last: v, First: first, End: end, MaxAt: first - 1}
	for m := first; m < end; m++ {
		v = s.At(m)
		c.Min, c.Last = min(c.Min, v), v
		if v > c.Max {
			c.Max, c.MaxAt = v, m
		}
	}
	return c
}

func TestRangesEqualAScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 63, 64, 65, 4096, 4097, 300_000} {
		dense := make([]int64, n)
		var at []timeline.Moment
		var sparse []int64
		for i := range dense {
			dense[i] = rng.Int64N(1000) - 300
			if rng.IntN(7) == 0 {
				at, sparse = append(at, timeline.Moment(i)), append(sparse, rng.Int64N(9))
			}
		}
		for name, s := range map[string]*timeline.Series{"dense": timeline.NewSeries(500, nil, dense),
			"sparse": timeline.NewSeries(4, append([]timeline.Moment{}, at...), sparse)} {
			for range 60 {
				i, j := timeline.Moment(rng.IntN(n+1)), timeline.Moment(rng.IntN(n+1))
				i, j = min(i, j), max(i, j)
				if got, want := s.Range(i, j), scanned(s, i, j); got != want {
					t.Fatalf("%s of %d: Range(%d, %d) = %+v, want %+v", name, n, i, j, got, want)
				}
			}
		}
	}
}

func TestColumnsTileTheWindowAndEqualAScan(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		for _, axis := range []timeline.Axis{timeline.AxisTime, timeline.AxisEvents} {
			w := d.Full(axis)
			for range 5 {
				n := 1 + rng.IntN(300)
				next := timeline.FirstAt(d, axis, w.From)
				for i, c := range d.Columns(d.Active, w, n, nil) {
					if c.First != next {
						t.Fatalf("column %d begins at %d, the one before ends at %d", i, c.First, next)
					}
					if want := scanned(d.Active, c.First, c.End); c != want {
						t.Fatalf("column %d is %+v, want %+v", i, c, want)
					}
					next = c.End
				}
				if end := timeline.FirstAt(d, axis, w.To); next != end {
					t.Fatalf("columns end at %d, the window at %d", next, end)
				}
				from := w.From + rng.Int64N(w.To-w.From)
				w = timeline.Window{Axis: axis, From: from, To: from + 1 + rng.Int64N(w.To-from)}
			}
		}
	})
}

func TestTheHighestColumnIsThePeakAtEveryZoom(t *testing.T) {
	eachRandom(t, func(t *testing.T, d *timeline.Device, rng *rand.Rand) {
		for n := 1; n < 500; n = n*3 + 1 {
			var top int64
			for _, c := range d.Columns(d.Allocated, d.Full(timeline.AxisTime), n, nil) {
				top = max(top, c.Max)
			}
			if top != d.Totals.PeakAllocated {
				t.Fatalf("of %d columns the highest is %d, the peak %d", n, top, d.Totals.PeakAllocated)
			}
		}
	})
}

func TestBuildingTwiceGivesEqualTimelines(t *testing.T) {
	tr := randomTrace(rand.New(rand.NewPCG(9, 9)), 5000, 700, true)
	a, errA := timeline.Build(context.Background(), tr, nil)
	b, errB := timeline.Build(context.Background(), tr, nil)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	x, y := a.Devices[0], b.Devices[0]
	if !reflect.DeepEqual(x.Allocs, y.Allocs) || !reflect.DeepEqual(x.Totals, y.Totals) ||
		!reflect.DeepEqual(a.Losses, b.Losses) ||
		!reflect.DeepEqual(x.Allocated, y.Allocated) || !reflect.DeepEqual(x.Reserved, y.Reserved) {
		t.Error("two builds of one trace differ")
	}
}

func TestBuildReportsProgressAndStopsWhenCancelled(t *testing.T) {
	tr := randomTrace(rand.New(rand.NewPCG(9, 9)), 200_000, 0, false)
	var last, total int64
	if _, err := timeline.Build(context.Background(), tr, func(d, n int64) {
		if d < last || d > n {
			t.Errorf("progress goes from %d to %d of %d", last, d, n)
		}
		last, total = d, n
	}); err != nil {
		t.Fatal(err)
	}
	if last != total || total == 0 {
		t.Errorf("progress ended at %d of %d", last, total)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err := timeline.Build(ctx, tr, func(done, n int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled, yet %v", err)
	}
}

func TestAnEmptyTraceAnswersEveryQuestion(t *testing.T) {
	b := traces.NewBuilder()
	b.Device(traces.DeviceCPU, 0)
	tl, err := timeline.Build(context.Background(), b.Finish(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := tl.Main()
	ctx := context.Background()
	if c := d.Columns(d.Allocated, d.Full(timeline.AxisTime), 10, nil); len(c) != 10 || c[9].Max != 0 {
		t.Errorf("columns %v", c)
	}
	if _, err := timeline.Bands(ctx, d, d.Full(timeline.AxisEvents), 3, 1); err != nil {
		t.Error(err)
	}
	if c, err := timeline.CategoryColumns(ctx, d, d.Full(timeline.AxisEvents), 3); err != nil || len(c) != 3 {
		t.Error(c, err)
	}
	if s, err := timeline.StateAt(ctx, d, timeline.Start); err != nil || s.Known {
		t.Error(s, err)
	}
	for by := range sites.NumBy {
		if g := sites.Breakdown(d, timeline.Start, by); len(g) != 0 {
			t.Error(g)
		}
	}
	if n := sites.Icicle(d, timeline.Start, sites.ByStack); n.Bytes != 0 {
		t.Error(n)
	}
	if ids, err := sites.Search(ctx, d, sites.Query{Text: "x"}); err != nil || len(ids) != 0 {
		t.Error(ids, err)
	}
	if d.MomentAt(5) != timeline.Start || d.Time(timeline.Start) != 0 || d.AllocOf(0) != timeline.NoAlloc ||
		d.Totals.PeakReserved.IsKnown() {
		t.Error("an empty device has moments")
	}
}
