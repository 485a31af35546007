package runs

import (
	"context"
	"fmt"
	"math"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Recording is one process's recording of a run.
type Recording struct {
	// Path is the file's.
	Path string
	// Rank is the process's rank in the run.
	Rank maybe.Int
	// Trace is the readable part of the file, and Err says what was damaged.
	Trace *traces.Trace
	Err   error
}

// Together summarises the recordings of a run and puts them on one clock, cut into columns. If no moment is
// in all of them, the run is Apart and each rank has a clock of its own, which begins with its first event.
// progress gets the number of finished recordings.
func Together(ctx context.Context, recordings []Recording, columns int,
	progress func(done, total int64)) (*Run, error) {
	spans, apart := clocks(recordings)
	var ranks []RankSummary
	for i, m := range recordings {
		progress(int64(i), int64(len(recordings)))
		t, err := timeline.Build(ctx, m.Trace, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		r, err := Summarise(ctx, t, spans[i].from, spans[i].to, columns)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		if apart {
			r.From, r.To, r.PeakTime = r.From-spans[i].from, r.To-spans[i].from, r.PeakTime-spans[i].from
		}
		r.Path, r.Rank, r.Err = m.Path, m.Rank, m.Err
		ranks = append(ranks, r)
	}
	run := Build(ranks)
	run.Apart = apart
	return run, nil
}

// span is a stretch [from, to) of a clock, in nanoseconds.
type span struct{ from, to int64 }

// clocks returns the stretch of the clock over which each rank is drawn. It is the same for all, from the
// first event of any to the last. If two ranks were not recorded at the same time, or on clocks that are
// hours apart, it begins with each rank's own first event instead, and is as long as the longest.
func clocks(recordings []Recording) (spans []span, apart bool) {
	whole, longest := span{math.MaxInt64, math.MinInt64}, int64(1)
	begun, over := int64(math.MinInt64), int64(math.MaxInt64) // the last to begin, the first to end
	spans = make([]span, len(recordings))
	for i, m := range recordings {
		own := span{math.MaxInt64, math.MinInt64}
		t := m.Trace
		for d := range t.Devices {
			first, end := t.DeviceEvents(traces.DeviceID(d))
			if end > first { // a clock may step back between them
				a, b := t.Clock.Epoch+t.Events.Time[first], t.Clock.Epoch+t.Events.Time[end-1]
				own.from, own.to = min(own.from, a, b), max(own.to, max(a, b)+1)
			}
		}
		if own.from > own.to {
			continue // it has no events
		}
		spans[i] = own
		whole.from, whole.to = min(whole.from, own.from), max(whole.to, own.to)
		begun, over = max(begun, own.from), min(over, own.to)
		longest = max(longest, own.to-own.from)
	}
	if whole.from > whole.to {
		whole = span{0, 1}
	}
	apart = begun >= over
	for i := range spans {
		if apart {
			spans[i].to = spans[i].from + longest
		} else {
			spans[i] = whole
		}
	}
	return spans, apart
}
