package managers

import (
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
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

// tempo returns the factor for the rows of a question.
func (v *View) tempo(s *leaf.State, q question) tempo {
	takes := v.training.before(q.setup)
	if takes <= 0 && s.Step != "" {
		takes = s.StepTime
	}
	simulated := v.ranking.todayTime()
	if takes <= 0 || simulated <= 0 || !q.setup.p.HasTimes {
		return 0
	}
	return tempo(float64(takes) / float64(simulated))
}

// todayTime returns the simulated step time of today's allocator or, without its row, of a step that pays for
// no allocator; 0 if there is neither.
func (k *ranking) todayTime() int64 {
	var list []*row
	for i := range k.rows {
		r := &k.rows[i]
		if r.result == nil || !r.result.Available {
			continue
		}
		if r.m.Info.Name == replay.Today {
			return r.result.Measurement.StepTime
		}
		list = append(list, r)
	}
	return baselineTime(list)
}

// alike reports whether two setups are of the same training, with steps that take the same: as many ops, and
// nearly as many bytes alive.
func (s *setup) alike(o *setup) bool {
	if s == o {
		return true
	}
	if s == nil || o == nil || s.device != o.device && !sameJob(s.device, o.device) {
		return false
	}
	d := float64(s.live - o.live)
	return len(s.p.Ops) == len(o.p.Ops) && max(d, -d) <= float64(max(s.live, o.live))*sameLive
}

// sameLive is the share by which the bytes alive at the peak may differ between steps that are the same.
const sameLive = 0.02

// told says in a row's status why its step time is not the one that was recorded, "" if it is.
func (t tempo) told(r *row) string {
	if !t.shifts() || r.result == nil || !r.result.Available || r.seen != nil {
		return ""
	}
	m := &r.result.Measurement
	return "the captured step would take " + timeline.Duration(m.StepTime) + ", a usual one " +
		timeline.Duration(t.of(m.StepTime))
}
