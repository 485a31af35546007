package combine

import (
	"context"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The cost of a candidate.
//
// The planners here call the request's evaluator, hundreds of times, for candidates that differ in a few
// absences. Placing each one's addresses first would take longer than everything else, so candidates are
// measured without addresses: swaps are paced (a copy back waits until compute reaches the position at which
// it is issued) and blocking (compute waits at the release for the copy out), and the program is ordered only
// by its data. Nothing in such a program depends on whose addresses a buffer takes over. In the final, placed
// program a copy out delays only the next user of its memory, so it can be faster, except for waits on holes.
//
// Without an evaluator the same figures come from one pass in issue order: a step begins when its queue is
// free and what it waits for is done. That estimate misses what only a simulator knows: copies in opposite
// directions slow each other down.

// profile says when compute gets where, in nanoseconds from the iteration's start: Capuchin's measured
// execution.
type profile struct {
	// begin and end of each op
	begin, end []int64
	// reach is when compute reaches each position: all ops before it are done. It has one entry more than
	// there are ops.
	reach []int64
	// in is when each absence's copy back is done; need is when the first op, or the first rerun op, would
	// have used the value if no copy had delayed it. Both are 0 if there is none.
	in, need []int64
	// out is when each absence's copy out is done; 0 if there is none.
	out []int64
	// step is the step time.
	step int64
}

// draft assembles decisions into a program that can be measured without addresses.
func draft(p *plan.Problem, d plan.Decisions) (*plan.Plan, error) {
	d.Absences = slices.Clone(d.Absences)
	for i := range d.Absences {
		if x := &d.Absences[i]; x.How == plan.Swap {
			x.Blocking, x.Paced = true, true
		}
	}
	pl, err := plan.Assemble(p, d)
	if err != nil {
		return nil, fmt.Errorf("assemble: %w", err)
	}
	pl.Policy = &plan.Policy{} // whose memory is taken over does not matter yet
	pl.Order(p)
	pl.Policy = nil
	return pl, nil
}

// measure carries decisions out with the evaluator, or with the estimate if there is none, and also returns
// the peak of live bytes.
func measure(
	ctx context.Context, p *plan.Problem, ev plan.Evaluator, d plan.Decisions,
) (*profile, int64, error) {
	pl, err := draft(p, d)
	if err != nil {
		return nil, 0, err
	}
	live, _ := pl.PeakLive()
	at := newProfile(p, pl)
	if ev == nil {
		at.estimate(p, pl)
		return at, live, ctx.Err()
	}
	m, err := trace(ctx, ev, p, pl)
	if err != nil {
		return nil, 0, fmt.Errorf("evaluate: %w", err)
	}
	if len(m.Spans) > 0 {
		at.observe(p, pl, m.Spans)
	} else {
		at.estimate(p, pl)
	}
	at.step = m.StepTime
	return at, live, nil
}

func newProfile(p *plan.Problem, pl *plan.Plan) *profile {
	n := len(p.Ops)
	return &profile{begin: make([]int64, n), end: make([]int64, n), reach: make([]int64, n+1),
		in: make([]int64, len(pl.Absences)), need: make([]int64, len(pl.Absences)),
		out: make([]int64, len(pl.Absences))}
}

// copies returns, for each copy of the program, the absence that it belongs to.
func copies(pl *plan.Plan) map[int32]int32 {
	type key struct {
		b  plan.BufferID
		at plan.OpID
	}
	out, in := make(map[key]int32, len(pl.Absences)), make(map[key]int32, len(pl.Absences))
	for i := range pl.Absences {
		if x := &pl.Absences[i]; x.How == plan.Swap {
			out[key{x.Buffer, x.After + 1}], in[key{x.Buffer, x.Fetch}] = int32(i), int32(i)
		}
	}
	steps := make(map[int32]int32, 2*len(in))
	for s := range pl.Steps {
		switch st := &pl.Steps[s]; st.Kind {
		case plan.In:
			steps[int32(s)] = in[key{pl.Instances[st.Instance].Buffer, st.Op}]
		case plan.Out:
			steps[int32(s)] = out[key{pl.Instances[st.Instance].Buffer, st.Op}]
		}
	}
	return steps
}

// observe fills the profile from an evaluator's recording.
func (at *profile) observe(p *plan.Problem, pl *plan.Plan, spans []plan.Span) {
	want, end := make([]int64, len(pl.Steps)), make([]int64, len(pl.Steps))
	for _, x := range spans {
		if !x.Stall {
			want[x.Step], end[x.Step] = x.Start, x.End
			if st := &pl.Steps[x.Step]; st.Kind == plan.Run {
				at.begin[st.Op] = x.Start
			}
		}
	}
	for _, x := range spans {
		if x.Stall {
			want[x.Step] = min(want[x.Step], x.Start)
		}
	}
	at.conclude(p, pl, want, end)
}

// conclude computes the rest from when each step could have begun and when it was done.
func (at *profile) conclude(p *plan.Problem, pl *plan.Plan, want, end []int64) {
	of := copies(pl)
	// for each buffer: the absence, plus one, that has ended without a use of the buffer since
	coming := make([]int32, len(p.Buffers))
	for s := range pl.Steps {
		st := &pl.Steps[s]
		switch st.Kind {
		case plan.In:
			i := of[int32(s)]
			at.in[i] = end[s]
			coming[pl.Instances[st.Instance].Buffer] = i + 1
		case plan.Out:
			at.out[of[int32(s)]] = end[s]
		case plan.Run, plan.Again:
			for _, a := range p.AccessesOf(st.Op) {
				if i := coming[a.Buffer]; i > 0 {
					at.need[i-1], coming[a.Buffer] = want[s], 0
				}
			}
			if st.Kind == plan.Run {
				at.end[st.Op] = end[s]
			}
		}
		at.step = max(at.step, end[s])
	}
	for i, e := range at.end {
		at.reach[i+1] = max(at.reach[i], e)
	}
}

// estimate fills the profile from one pass over the program in issue order.
func (at *profile) estimate(p *plan.Problem, pl *plan.Plan) {
	wants, ends := make([]int64, len(pl.Steps)), make([]int64, len(pl.Steps))
	type queue struct{ free, held int64 } // when its last step is done; until when waits for copies hold it
	queues := make([]queue, p.Queues())
	var host int64
	for s := range pl.Steps {
		st := &pl.Steps[s]
		if st.Kind == plan.Alloc || st.Kind == plan.Free {
			continue
		}
		q := &queues[st.Queue]
		var takes int64
		switch st.Kind {
		case plan.Wait:
			if on := pl.Steps[st.On].Kind; on == plan.In || on == plan.Out {
				q.held = max(q.held, ends[st.On])
			} else {
				q.free = max(q.free, ends[st.On])
			}
			continue
		case plan.Out:
			takes = p.Hardware.D2H.Time(pl.Instances[st.Instance].Size)
		case plan.In:
			takes = p.Hardware.H2D.Time(pl.Instances[st.Instance].Size)
		default:
			takes = p.DurationOf(pl, st.Op)
			host += p.Ops[st.Op].Gap
		}
		host += p.Hardware.LaunchGap
		wants[s] = max(q.free, host)
		start := max(wants[s], q.held)
		ends[s] = start + takes
		q.free = ends[s]
		if st.Kind == plan.Run {
			at.begin[st.Op] = start
		}
	}
	at.conclude(p, pl, wants, ends)
}

// trace measures a plan, with spans if the evaluator can record them.
func trace(ctx context.Context, ev plan.Evaluator, p *plan.Problem, pl *plan.Plan) (plan.Measurement, error) {
	if t, ok := ev.(plan.Tracer); ok {
		return t.Trace(ctx, p, pl)
	}
	return ev.Evaluate(ctx, p, pl)
}
