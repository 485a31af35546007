package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// What chains are made of: see chains.go.

// rerun is a chain before position at: ops[from:to] and, for itself alone, loads[loadFrom:loadTo].
type rerun struct {
	at               plan.OpID
	from, to         int32
	loadFrom, loadTo int32
}

// loading is the return of a swapped value for the rerun before op at alone.
type loading struct {
	gap   int32
	at    plan.OpID
	after plan.OpID // the last position before it at which a rerun touches the buffer; 0 for none
	fetch plan.OpID // where the copy is issued
}

// touched is a position of a schedule.
type touched struct {
	round int32
	at    plan.OpID
}

// in returns the position if it is of the given schedule, otherwise 0.
func (t touched) in(round int32) plan.OpID {
	if t.round == round {
		return t.at
	}
	return 0
}

// need is a value that a chain reads: the contents of buffer just before op at.
type need struct {
	buffer plan.BufferID
	at     plan.OpID
}
