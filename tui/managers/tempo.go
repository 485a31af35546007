package managers

import (
	"github.com/gmemtop/gmemtop/timeline"
)

// Times of the training.
//
// Problem: rows are simulated with the ops' times of a captured step, and capturing slows a step down, so the
// table disagrees with the Live view about how long a step takes.
//
// Approach: one factor for all simulated times makes the row of today's allocator take as long as a step of
// the training does, as timed before a plan was on, or else as Live shows. Overheads are ratios and stay.

// tempo is how much longer the training takes than the simulation of a captured step; 0 if nothing is known.
type tempo float64

// of returns a simulated duration as the training would take it, in nanoseconds.
func (t tempo) of(ns int64) int64 {
	if t <= 0 {
		return ns
	}
	return int64(float64(ns) * float64(t))
}

// shifts reports whether the factor is large enough to be mentioned.
func (t tempo) shifts() bool { return t > 0 && (t < 1-drift/2 || t > 1+drift/2) }

// told says in a row's status why its step time is not the one that was recorded, "" if it is.
func (t tempo) told(r *row) string {
	if !t.shifts() || r.result == nil || !r.result.Available || r.seen != nil {
		return ""
	}
	m := &r.result.Measurement
	return "the captured step would take " + timeline.Duration(m.StepTime) + ", a usual one " +
		timeline.Duration(t.of(m.StepTime))
}

// drift is the share by which later steps may differ from those right after the switch before we mention it:
// it is not the plan's doing.
const drift = 0.1
