package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// absences are the idle intervals of a schedule as they are carried out, by gap.
type absences struct {
	m              *model
	how            []choice // what becomes of it
	release, fetch []plan.OpID
	leave          []plan.OpID // the first position at which it may be gone
	due            []plan.OpID // the position by which it must be back
	// of each swap, the position by which its first stay must be over, since a chain makes it again as
	// scratch
	evictBy []plan.OpID
}

// present reports whether buffer b holds memory at position at, and the gap that it is absent in where it
// does not; -1 where it is not alive.
func (a *absences) present(b plan.BufferID, at plan.OpID) (bool, int32) {
	if !a.m.alive(b, at) {
		return false, -1
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
