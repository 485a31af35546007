// Package sim carries plans out on a simulated device: compute streams as recorded, one copy engine each way
// or none, pinned host memory, launch gaps, the allocator in the loop.
//
// Its duties:
//   - [Run] measures a plan: step time, stalls, traffic, footprint and, on request, what each queue did when;
//   - [Simulator] is the [plan.Evaluator] for planners;
//   - plans that it cannot simulate are refused with a reason.
package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
)

// Problem: when is each step of a program done if queues run side by side, each in order, some steps wait for
// steps of other queues, and two copies in opposite directions slow each other down?
//
// Approach: a wait always names an earlier step, so with constant rates one pass in program order
// gives every time: a step begins when the host has issued it, its queue is free and the step it waits for is
// done. Planners call that pass thousands of times. If copies share a link (Hardware.Together < 1), rates
// depend on what else is running, and [shared] advances from event to event instead. Without copy engines
// copies are ordinary work of the first compute stream: they share nothing, and their time adds to the step
// and is no stall.
//
// Complexity: O(steps) for the pass, O(steps x queues) for the events; no allocation beyond a few columns of
// numbers. Rejected: events throughout (five times slower where nothing is shared); fixed time steps (wrong
// by up to a step at every event).
//
// Not simulated: compute that slows down because copies use the device's memory bandwidth; ops of two streams
// that share the multiprocessors; clocks that fall under load. The device target measures all three.

// Options say what to record besides the totals.
type Options struct {
	// Spans records what each queue did; Usage memory over time.
	Spans, Usage bool
	// Cap is the most that an online allocator may hold from the driver, in bytes; 0 for the device's memory.
	Cap int64
}

// Simulator evaluates plans for planners.
type Simulator struct{ Options }

// Evaluate measures a plan: see [Run].
func (s Simulator) Evaluate(ctx context.Context, p *plan.Problem, pl *plan.Plan) (plan.Measurement, error) {
	return Run(ctx, p, pl, s.Options)
}

// Trace measures a plan and records what each queue did: it makes a Simulator a [plan.Tracer].
func (s Simulator) Trace(ctx context.Context, p *plan.Problem, pl *plan.Plan) (plan.Measurement, error) {
	o := s.Options
	o.Spans = true
	return Run(ctx, p, pl, o)
}

// run is the state of one simulation.
type run struct {
	p     *plan.Problem
	pl    *plan.Plan
	opt   Options
	m     plan.Measurement
	start []int64 // when each step begins on its queue; for Alloc and Free when the host issued it
	end   []int64
	issue []int64
	ready []int64 // when each queue is free
	held  []int64 // how far waits for copies delay each queue
	after []int64 // how far waits for compute delay each queue
	hooks bool    // tensors leave memory and return

	online   string // the allocator that serves Alloc and Free steps, "" where instances have addresses
	settings allocator.Settings
}

// Run simulates one iteration of a plan. It returns the context's error when cancelled, and an error with the
// reason if it cannot simulate a plan. The plan must have passed [plan.Validate]; Run does not repeat its
// checks.
func Run(ctx context.Context, p *plan.Problem, pl *plan.Plan, opt Options) (plan.Measurement, error) {
	began := time.Now()
	var parked int64
	if pl.Parks {
		_, parked = p.Parked()
	}
	p, err := pl.Of(p)
	if err != nil {
		return plan.Measurement{}, err
	}
	n, k := len(pl.Steps), p.Queues()
	r := &run{p: p, pl: pl, opt: opt, start: make([]int64, n), end: make([]int64, n), issue: make([]int64, n),
		ready: make([]int64, k), held: make([]int64, k), after: make([]int64, k)}
	r.m.Target = "sim"
	r.hooks = slices.ContainsFunc(pl.Absences, func(x plan.Absence) bool { return x.How != plan.Discard })
	switch {
	case pl.Policy != nil:
		err = r.byPolicy(ctx)
	case !p.Hardware.NoEngines && p.Hardware.Together > 0 && p.Hardware.Together < 1 && len(pl.Absences) > 0:
		r.issueAll()
		err = r.shared(ctx)
	default:
		err = r.pass(ctx)
	}
	if err != nil {
		return plan.Measurement{}, err
	}
	r.totals()
	// the copies of optimizer state have no steps of their own: their time is part of the optimizer's ops
	r.m.SwappedOut += parked
	r.m.SwappedIn += parked
	r.m.Elapsed = time.Since(began)
	return r.m, nil
}

// duration returns how long a step takes on its queue without sharing.
func (r *run) duration(s *plan.Step) int64 {
	switch s.Kind {
	case plan.Run:
		d := r.p.DurationOf(r.pl, s.Op)
		if r.hooks {
			d += r.p.Hardware.HookTime(&r.p.Ops[s.Op], len(r.pl.Reruns) > 0)
		}
		return d
	case plan.Again:
		return r.p.DurationOf(r.pl, s.Op) + r.p.Hardware.AgainTime
	case plan.Out:
		return r.p.Hardware.D2H.Time(r.pl.Instances[s.Instance].Size)
	case plan.In:
		return r.p.Hardware.H2D.Time(r.pl.Instances[s.Instance].Size)
	}
	return 0
}

// launch returns the host's time to issue a step.
func (r *run) launch(s *plan.Step) int64 {
	switch s.Kind {
	case plan.Run, plan.Again:
		return r.p.Ops[s.Op].Gap + r.p.Hardware.LaunchGap
	case plan.Out, plan.In:
		return r.p.Hardware.LaunchGap
	}
	return 0
}

const checkEvery = 1 << 14

// issueAll computes when the host issues each step, if it never has to wait for the device.
func (r *run) issueAll() {
	var host int64
	for s := range r.pl.Steps {
		host += r.launch(&r.pl.Steps[s])
		r.issue[s] = host
	}
}

// pass computes all times in program order.
func (r *run) pass(ctx context.Context) error {
	r.issueAll()
	for s := range r.pl.Steps {
		if s%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r.step(s)
	}
	return nil
}

// step places one step on its queue, after all earlier steps.
func (r *run) step(s int) {
	st := &r.pl.Steps[s]
	switch st.Kind {
	case plan.Wait:
		on := &r.pl.Steps[st.On]
		if on.Kind == plan.Out || on.Kind == plan.In {
			r.held[st.Queue] = max(r.held[st.Queue], r.end[st.On])
		} else {
			r.after[st.Queue] = max(r.after[st.Queue], r.end[st.On])
		}
	case plan.Alloc, plan.Free:
		r.start[s], r.end[s] = r.issue[s], r.issue[s]
	default:
		q := st.Queue
		free := max(r.ready[q], r.issue[s], r.after[q])
		r.begin(s, q, free, max(free, r.held[q]))
		r.end[s] = r.start[s] + r.duration(st)
		r.ready[q] = r.end[s]
	}
}

// begin records that a step that could have begun at free begins at start, delayed by a copy.
func (r *run) begin(s int, q int16, free, start int64) {
	r.start[s] = start
	if start <= free || int(q) >= r.p.Streams {
		return
	}
	if q == 0 {
		r.m.Stall += start - free
	}
	if r.opt.Spans {
		r.m.Spans = append(r.m.Spans, plan.Span{Start: free, End: start, Step: int32(s), Queue: q,
			Stall: true})
	}
}

// shared computes all times from event to event: two copies in opposite directions run at Together of their
// own speed each.
func (r *run) shared(ctx context.Context) error {
	o := newOverlap(r)
	for turn := 0; ; turn++ {
		if turn%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		next := o.startReady()
		running := false
		for q, left := range o.left {
			if left >= 0 {
				running = true
				next = min(next, o.now+left/o.rate(q))
			}
		}
		if math.IsInf(next, 1) {
			if running {
				return fmt.Errorf("simulate: no next event at %.0f ns", o.now)
			}
			return o.unfinished()
		}
		o.advance(next)
	}
}

// overlap is the state of a walk from event to event over all queues at once.
type overlap struct {
	r     *run
	lists [][]int32 // the steps of each queue, except allocations and frees, which take no time
	head  []int     // how many of these are over
	// of each queue, the rest of its running step, in nanoseconds at full speed; negative if none runs
	left  []float64
	rates []float64 // scratch
	done  []bool    // of each step
	now   float64   // nanoseconds
}

func newOverlap(r *run) *overlap {
	k := r.p.Queues()
	o := &overlap{r: r, lists: make([][]int32, k), head: make([]int, k), left: make([]float64, k),
		rates: make([]float64, k), done: make([]bool, len(r.pl.Steps))}
	count := make([]int, k)
	for s := range r.pl.Steps {
		if st := &r.pl.Steps[s]; st.Kind != plan.Alloc && st.Kind != plan.Free {
			count[st.Queue]++
		}
	}
	for q := range o.lists {
		o.lists[q], o.left[q] = make([]int32, 0, count[q]), -1
	}
	for s := range r.pl.Steps {
		if st := &r.pl.Steps[s]; st.Kind != plan.Alloc && st.Kind != plan.Free {
			o.lists[st.Queue] = append(o.lists[st.Queue], int32(s))
		} else {
			r.start[s], r.end[s] = r.issue[s], r.issue[s]
		}
	}
	return o
}

// startReady starts what can start now, and returns when the next step of a queue will be issued, infinity if
// none waits for that. When a wait ends, the next step of its own queue may be able to start, but never that
// of another.
func (o *overlap) startReady() float64 {
	r, next := o.r, math.Inf(1)
	for q := range o.lists {
		for o.left[q] < 0 && o.head[q] < len(o.lists[q]) {
			s := o.lists[q][o.head[q]]
			st := &r.pl.Steps[s]
			if st.Kind == plan.Wait {
				if !o.done[st.On] {
					break
				}
				if on := r.pl.Steps[st.On].Kind; on != plan.Out && on != plan.In {
					r.after[q] = max(r.after[q], r.end[st.On])
				}
				o.head[q]++
				continue
			}
			if at := float64(r.issue[s]); at > o.now {
				next = min(next, at)
				break
			}
			free := max(r.ready[q], r.issue[s], r.after[q])
			r.begin(int(s), int16(q), free, max(free, int64(math.Round(o.now))))
			o.left[q] = float64(r.duration(st))
		}
	}
	return next
}

// rate returns the share of its full speed at which a queue runs now.
func (o *overlap) rate(q int) float64 {
	out, in := int(o.r.p.OutQueue()), int(o.r.p.InQueue())
	if (q == out || q == in) && o.left[out] >= 0 && o.left[in] >= 0 {
		return o.r.p.Hardware.Together
	}
	return 1
}

// advance runs what is running until next.
func (o *overlap) advance(next float64) {
	for q := range o.rates { // all of them first: when one ends, the rate of the other direction changes
		o.rates[q] = o.rate(q)
	}
	for q, rate := range o.rates {
		if o.left[q] < 0 {
			continue
		}
		// it is done then, even if the rest is too little for a float64 to add to now
		last := o.now+o.left[q]/rate <= next
		o.left[q] -= (next - o.now) * rate
		if last || o.left[q] < 1e-6 {
			s := o.lists[q][o.head[q]]
			o.r.end[s] = int64(math.Round(next))
			o.r.ready[q], o.done[s], o.left[q] = o.r.end[s], true, -1
			o.head[q]++
		}
	}
	o.now = next
}

// unfinished returns an error if a queue has steps left when nothing runs and nothing will start.
func (o *overlap) unfinished() error {
	for q, list := range o.lists {
		if o.head[q] < len(list) {
			return fmt.Errorf("simulate: queue %d waits for ever at step %d", q, list[o.head[q]])
		}
	}
	return nil
}

// totals fills the measurement from the times and from the program's allocations and frees, which are later
// compared with the plan's own figures.
func (r *run) totals() {
	var last, live int64
	take := func(i plan.InstanceID) { // from here on the instance holds its bytes
		x := &r.pl.Instances[i]
		live += x.Size
		r.m.PeakLive = max(r.m.PeakLive, live)
		if r.pl.Policy == nil && x.Size > 0 {
			r.m.Footprint = max(r.m.Footprint, x.Offset+x.Size)
		}
	}
	for _, i := range r.pl.Resident {
		take(i)
	}
	for s := range r.pl.Steps {
		st := &r.pl.Steps[s]
		if st.Kind == plan.Wait {
			continue
		}
		last = max(last, r.end[s])
		switch {
		case st.Kind == plan.Alloc:
			take(st.Instance)
		case st.Kind == plan.Free:
			live -= r.pl.Instances[st.Instance].Size
		case st.Kind == plan.Again:
			r.m.RecomputeTime += r.end[s] - r.start[s]
		case r.p.Hardware.NoEngines && (st.Kind == plan.Out || st.Kind == plan.In):
			r.m.CopyTime += r.end[s] - r.start[s]
		}
		if r.opt.Spans && st.Kind != plan.Alloc && st.Kind != plan.Free {
			r.m.Spans = append(r.m.Spans, plan.Span{Start: r.start[s], End: r.end[s], Step: int32(s),
				Queue: st.Queue})
		}
	}
	if r.p.Scattered && r.pl.Policy == nil {
		r.m.Footprint = r.m.PeakLive
	}
	n := int64(r.p.Iterations)
	r.m.SwappedOut, r.m.SwappedIn = r.pl.Moved()
	r.m.SwappedOut /= n
	r.m.SwappedIn /= n
	r.m.Makespan = last
	r.m.StepTime, r.m.StepP95 = last/n, last/n
	r.m.Stall /= n
	r.m.RecomputeTime /= n
	r.m.CopyTime /= n
	r.m.PinnedPeak, _ = r.pl.PinnedPeak(r.p)
	if r.opt.Usage {
		r.usage()
	}
}
