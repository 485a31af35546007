package joint

import (
	"context"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// task is what a call of Plan is asked for, and what all parts of the call share.
type task struct {
	ctx      context.Context
	p        *plan.Problem
	request  plan.Request
	off      mechanisms
	params   params
	m        *model // of the problem as it is
	bounder  *bounder
	grid     grid
	versions int     // of the problem that are searched
	rungWork int64   // counted work for each rung
	perByte  float64 // time to copy a byte out and in, in nanoseconds
	pack     int64   // counted work of a search for places, in the packer's steps
}

// mechanisms are the parts that tests switch off to measure what each contributes.
type mechanisms struct {
	prices, recompute, swap, feedback, search, ladder, sections, packing bool
}

// bound returns a step time that no plan within the limit can beat, as an evaluator would measure it; 0 if
// there are no times.
func (t *task) bound(limit int64) int64 {
	if !t.p.HasTimes {
		return 0
	}
	return perIteration(t.p, t.bounder.bound(limit, t.params.turns(t.m.n)))
}

// perIteration returns the step time as an evaluator reports it, for a time that covers all iterations of the
// problem.
func perIteration(p *plan.Problem, time int64) int64 { return time / int64(p.Iterations) }

// large reports whether planning takes seconds.
func (t *task) large() bool { return t.m.n+len(t.p.Buffers) > t.params.largeProblem }

// enough reports whether the work of a search allows a number of schedules.
func (t *task) enough(schedules int64) bool {
	return t.rungWork >= schedules*int64(t.m.n+len(t.m.gaps))
}
