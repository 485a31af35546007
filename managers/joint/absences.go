package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// absences are the idle intervals of a schedule as carried out, by gap.
type absences struct {
	m              *model
	how            []choice // the choice for each gap
	release, fetch []plan.OpID
	leave          []plan.OpID // the first position at which the buffer may be gone
	due            []plan.OpID // the position by which the buffer must be back
	// for each swap, the position by which its first stay must end, because a chain loads it or makes it as
	// scratch
	evictBy []plan.OpID
}

// served reports whether a value is back for good in time for a rerun that would load it.
func (a *absences) served(l *loading) bool { return a.fetch[l.gap] <= l.at }

// present reports whether buffer b holds memory at position at. It also returns the gap that covers at, none
// if there is no such gap or b is not alive.
func (a *absences) present(b plan.BufferID, at plan.OpID) (bool, int32) {
	if !a.m.alive(b, at) {
		return false, none
	}
	g := a.m.gapOf(b, at)
	there := g < 0
	if !there {
		switch {
		case at < a.leave[g]:
			there = a.how[g] != discard
		case a.how[g] == keep:
			there = true
		case a.how[g] == swap:
			there = a.fetch[g] <= at // copies back are issued before the rerun
		case a.how[g] == recompute:
			there = a.fetch[g] < at
		}
	}
	return there, g
}
