package plan

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// window is where an iteration lies in the ticks: [first, end). second is the end of the next iteration, 0 if
// there is none of the same shape. idle is the time of each of the two outside of its ticks: before the first
// of them, and after the last.
type window struct {
	first, end, second int
	idle               [2]idle
}

// idle is the time of an iteration before its first tick and after its last one, in nanoseconds. An annotated
// step begins before it allocates anything.
type idle struct{ before, behind int64 }

// window finds the iteration.
func (x *extractor) window(opt BuildOptions) (window, error) {
	if len(x.ticks) == 0 {
		return window{}, fmt.Errorf("plan: %w", errNothing)
	}
	if opt.Period.Length > 0 {
		if opt.Period.Location < 0 || opt.Period.Location+opt.Period.Length > len(x.ticks) {
			return window{}, fmt.Errorf("plan: the period of %d ops from op %d passes the recording's %d",
				opt.Period.Length, opt.Period.Location, len(x.ticks))
		}
		return window{first: opt.Period.Location, end: opt.Period.Location + opt.Period.Length}, nil
	}
	its := steps.Of(x.d)
	k, err := chooseIteration(its, x.p.Kind, opt.Iteration)
	if err != nil {
		return window{}, err
	}
	if k < 0 {
		if x.d.Info.Kind != traces.DeviceArena {
			x.p.Notes = append(x.p.Notes, "no iterations were found: the whole recording is planned as one")
		}
		return window{end: len(x.ticks)}, nil
	}
	it := &its.List[k]
	odd := 0
	for i := range its.List {
		if i >= its.Steady && its.List[i].Odd {
			odd++
		}
	}
	if len(its.List) > 1 {
		x.p.Notes = append(x.p.Notes, fmt.Sprintf("planned for %s, one of %d in the recording",
			its.List[k].Name, len(its.List)))
	}
	if odd > 0 {
		x.p.Notes = append(x.p.Notes, count(odd,
			"other iteration has another shape, and the plan is not for it",
			"other iterations have another shape, and the plan is not for them"))
	}
	at := func(m timeline.Moment) int { // the first tick at or after event m
		t, _ := slices.BinarySearchFunc(x.ticks, m, func(t tick, m timeline.Moment) int {
			if x.moment(t) < m {
				return -1
			}
			return 1
		})
		return t
	}
	w := window{first: at(it.First), end: at(it.End)}
	if w.first >= w.end {
		return window{}, fmt.Errorf("plan: %s: %w", its.List[k].Name, errNothing)
	}
	w.idle[0] = x.idle(it, w.first, w.end)
	if k+1 < len(its.List) && !its.List[k+1].Odd && its.List[k+1].First == it.End {
		w.second = at(its.List[k+1].End)
		w.idle[1] = idle{w.idle[0].before, x.idle(&its.List[k+1], w.end, w.second).behind}
	}
	return w, nil
}

// idle returns the time of an iteration outside of its ticks [first, end).
func (x *extractor) idle(it *steps.Iteration, first, end int) idle {
	if first >= end || it.Finish <= it.Start {
		return idle{}
	}
	return idle{max(x.ticks[first].time-it.Start, 0), max(it.Finish-x.ticks[end-1].time, 0)}
}

// moment returns the event of a tick or, for an access, the event that it follows.
func (x *extractor) moment(t tick) timeline.Moment {
	switch t.kind {
	case tickAlloc:
		return x.d.Allocs.Start[t.alloc]
	case tickFree:
		return x.d.Allocs.End[t.alloc]
	}
	base, _ := x.tr.DeviceEvents(x.d.ID)
	return timeline.Moment(int(x.tr.Accesses[t.row].Event) - base - 1)
}

// chooseIteration returns the index of the iteration to plan for, -1 if there are none. The steady one is the
// one with the highest peak; the last one is chosen only if there is no other, since a recording often ends
// within it. The agent records two whole steps op by op, and the second is planned for: the first begins with
// tensors that only the program knows, such as its last output, which it keeps until the next one comes.
func chooseIteration(its *steps.Iterations, kind traces.Kind, asked int) (int, error) {
	switch {
	case asked >= len(its.List):
		return 0, fmt.Errorf("plan: there is no iteration %d; the recording has %d", asked+1, len(its.List))
	case asked >= 0:
		return asked, nil
	case asked == LastIteration:
		return len(its.List) - 1, nil
	case len(its.List) == 2 && its.Source == steps.FromAnnotations && kind == traces.Dataflow:
		return 1, nil
	}
	highest := func(from, to int, includeOdd bool) int {
		best := -1
		for i := from; i < to; i++ {
			if its.List[i].Odd && !includeOdd {
				continue
			}
			if best < 0 || its.List[i].PeakAllocated > its.List[best].PeakAllocated {
				best = i
			}
		}
		return best
	}
	best := highest(its.Steady, len(its.List)-1, false)
	if best < 0 {
		best = highest(its.Steady, len(its.List), false)
	}
	if best < 0 {
		best = highest(0, len(its.List), true)
	}
	return best, nil
}
