package capture_test

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// aDay is as many steps as a training takes in a day at five a second.
const aDay = 5 * 24 * 60 * 60

// stepOf is step i of a training whose steps take 200 ms and hold 1 GiB, but for number 7: it took a second,
// held 3 GiB and peaked at 4 GiB.
func stepOf(i int64) capture.Step {
	const gib = 1 << 30
	begin := i * 200e6
	s := capture.Step{Index: i, Start: begin, End: begin + 200e6, Forward: maybe.Known(80e6),
		Backward: maybe.Known(100e6), Optimizer: maybe.Known(20e6), Allocated: maybe.Known(gib),
		PeakAllocated: maybe.Known(2 * gib), RSS: maybe.Known(5 * gib), Cost: 10 * time.Microsecond,
		Retries: maybe.Known(i / 100000), Skipped: i%1000 == 5}
	if i == 7 {
		s.End, s.Allocated, s.PeakAllocated = begin+1e9, maybe.Known(3*gib), maybe.Known(4*gib)
	}
	return s
}

// A day of steps takes less than 200 MiB, with the snapshot that a slow viewer still draws. The newest steps
// are there one by one, all before them in spans, and the file has each of them.
func TestADayOfStepsIsReadableAndBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "day.gmt")
	r, err := capture.NewRecorder(capture.RecordOptions{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	h := capture.NewHistory(capture.Limits{})
	both := capture.Tee(h, r)
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most := live(), uint64(0)
	both.Begin(capture.Info{PID: 7, Device: "cuda:0"})
	var slow capture.View
	for i := range int64(aDay) {
		both.Step(stepOf(i))
		// right before and after steps are rolled up
		if n := int64(h.Limits().Most()); i+1 == n {
			slow = h.Snapshot()
		} else if i == n {
			most = max(most, live())
			runtime.KeepAlive(slow)
			slow = capture.View{}
		}
	}
	most = max(most, live())
	if took := int64(most) - int64(before); took > 200<<20 {
		t.Errorf("a day of steps takes %d MiB", took>>20)
	}
	v := h.Snapshot()
	if n := len(v.Steps); n < capture.MaxSteps || v.Steps[n-1].Index != aDay-1 || v.Seen() != aDay {
		t.Errorf("%d of %d steps are kept one by one, and %d are said to have been seen", n, aDay, v.Seen())
	}
	next := int64(0)
	for i, p := range v.Rolled {
		if p.First != next || p.Last != p.First+p.Steps-1 || p.Start != stepOf(p.First).Start {
			t.Fatalf("span %d: %+v, where step %d is next", i, p, next)
		}
		next = p.Last + 1
	}
	if v.Steps[0].Index != next {
		t.Errorf("step %d follows the spans up to %d", v.Steps[0].Index, next)
	}
	first := v.Rolled[0]
	if first.Time.Most != 1e9 || first.Time.Least != 200e6 || first.Held.Most != 3<<30 ||
		v.PeakAllocated() != maybe.Known(4<<30) || first.RSS.Mean() != maybe.Known(5<<30) {
		t.Errorf("the odd step is not seen in %+v", first)
	}
	var sum capture.Span
	for _, p := range v.Rolled {
		sum.Skipped, sum.Cost, sum.Retries = sum.Skipped+p.Skipped, sum.Cost+p.Cost, p.Retries
	}
	if sum.Skipped != (next+994)/1000 || sum.Cost != time.Duration(next)*10*time.Microsecond ||
		sum.Retries != stepOf(next-1).Retries {
		t.Errorf("up to step %d: %+v", next, sum)
	}

	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	tr := load(t, path)
	for _, c := range tr.Counters {
		if name := tr.Text(c.Name); name == "step.index" {
			if n := len(c.Value); n != aDay || c.Value[0] != 0 || c.Value[n-1] != aDay-1 {
				t.Errorf("the file has %d steps", n)
			}
			return
		}
	}
	t.Error("the file has no steps")
}

// However many steps there are, the number of spans is bounded and no step is missing in them, lost ones
// aside.
func TestSpansCoverAllStepsAndStayFew(t *testing.T) {
	h := capture.NewHistory(capture.Limits{Steps: 4000})
	var kept []capture.View
	n := int64(0)
	for i := range int64(400_000) {
		if i%1000 == 3 { // this one was lost
			continue
		}
		h.Step(stepOf(i))
		if n++; n%50_000 == 0 {
			kept = append(kept, h.Snapshot())
		}
	}
	for k, v := range kept {
		if want := int64(k+1) * 50_000; v.Seen() != want || len(v.Rolled) > 2048 || len(v.Steps) < 4000 {
			t.Errorf("of %d steps %d are there, in %d spans", want, v.Seen(), len(v.Rolled))
		}
		for i, p := range v.Rolled[1:] {
			if p.First <= v.Rolled[i].Last || p.Steps <= 0 || p.Time.Known != p.Steps {
				t.Fatalf("span %d: %+v", i+1, p)
			}
		}
	}
}

func TestPeakIsTheHighestOfAllSteps(t *testing.T) {
	v := capture.View{Steps: []capture.Step{{PeakAllocated: maybe.Known(3)}, {PeakAllocated: maybe.Known(7)},
		{}}}
	if got := v.PeakAllocated(); got != maybe.Known(7) {
		t.Errorf("the peak is %v, not 7", got)
	}
	v.Rolled = []capture.Span{{}, {PeakAllocated: capture.Range{Least: 8, Most: 9, Sum: 17, Known: 2}}}
	if got := v.PeakAllocated(); got != maybe.Known(9) {
		t.Errorf("with earlier steps the peak is %v, not 9", got)
	}
	if got := (&capture.View{}).PeakAllocated(); got.IsKnown() {
		t.Errorf("of no step the peak is %v", got)
	}
}

// Spans of steps that were missing go where they belong, however the list was summed up meanwhile.
func TestSpansOfMissingStepsGoBetweenOthers(t *testing.T) {
	span := func(from, to int64) (p capture.Span) {
		for i := from; i < to; i++ {
			step := capture.Step{Index: i, Start: i * 10, End: i*10 + 9, Retries: maybe.Known(i)}
			one := capture.SpanOf(&step)
			p.Merge(&one)
		}
		return p
	}
	for _, c := range []struct {
		what string
		most int
	}{{"with room", 100}, {"without", 2}} {
		s := capture.NewSpans(c.most)
		before := []capture.Span{span(0, 64), span(64, 70), span(90, 148), span(200, 264)}
		for _, p := range before {
			s.Add(&p)
		}
		for _, p := range []capture.Span{span(80, 90), span(150, 200), span(264, 300)} {
			s.Insert(&p)
		}
		var steps int64
		for i, p := range s.List {
			if steps += p.Steps; i > 0 && s.List[i-1].Last >= p.First || p.End != p.Last*10+9 ||
				p.Retries != maybe.Known(p.Last) {
				t.Errorf("%s: %+v after others", c.what, p)
			}
		}
		if steps != 70+10+58+50+64+36 || s.List[len(s.List)-1].Last != 299 {
			t.Errorf("%s: %d steps in %+v", c.what, steps, s.List)
		}
	}
}
