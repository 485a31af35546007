package managers

import (
	"errors"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// row is one line of the table: a manager with one of its results, or none yet.
type row struct {
	manager int // index in the roster
	m       *manager
	result  *result // nil if there is none
	// seen is what the training measured of the row's plan, nil if it was not measured. at is what ranks and
	// places the row: its result, or what was measured on the simulation's scale of time.
	seen   *replay.Result
	at     replay.Result
	why    string // in one clause why there is no plan, "" if there is one or it may come
	stale  bool   // an answer to another budget
	served bool   // the recording suffices for the manager
	of     plan.Executor
	mark   rune // its own in the trade-off and in the table, see number
	stands bool // the row for what a training does with its manager: it runs what eager PyTorch can
	theory bool // an ideal executor could run it, while PyTorch can run others of the table today
}

// noPlan says why there is no plan to look into; impossible says that nothing meets the budget.
func (r *row) noPlan(impossible bool) tea.Cmd {
	name := r.m.Info.Name
	switch {
	case r.why != "":
		return leaf.Send(leaf.ToastMsg{Text: name + ": " + r.why, Error: true})
	case r.result == nil && !r.m.on:
		return leaf.Send(leaf.ToastMsg{Text: name + " is off: space switches it on"})
	case impossible:
		return leaf.Send(leaf.ToastMsg{Text: "no plan fits into this budget", Error: true})
	}
	return leaf.Send(leaf.ToastMsg{Text: name + " has no plan for this budget yet"})
}

// planned reports whether there is a plan for the budget in force.
func (r *row) planned() bool { return r.result != nil && !r.stale && r.result.Available }

// early reports whether the row's plan is the best so far, since planning was stopped.
func (r *row) early() bool { return r.result != nil && r.result.Stopped }

// label names the row: a manager's name alone is what PyTorch runs today.
func (r *row) label() string {
	name := r.m.Info.Name
	if r.theory {
		name += " " + replay.InTheory
	}
	if r.early() {
		name += ", " + replay.StoppedEarly
	}
	return name
}

// runs says where the row's plan can be carried out or, for a row without a plan, where its manager's plans
// could be.
func (r *row) runs() string {
	switch {
	case r.result != nil && r.result.Available:
		return r.result.Runs()
	case r.stands:
		return replay.InPyTorch
	}
	return replay.InTheory
}

// labelOf names the row with a key, "" if there is none.
func labelOf(rows []row, k rowKey) string {
	for i := range rows {
		if rows[i].key() == k {
			return rows[i].label()
		}
	}
	return ""
}

// rowKey tells rows apart whatever their order.
type rowKey struct {
	manager  int
	executor plan.Executor
}

func (r *row) key() rowKey { return rowKey{r.manager, r.of} }

// see takes what the training measured of the row's plan, nil for nothing.
func (r *row) see(x *replay.Result) {
	if r.result == nil {
		return
	}
	r.at, r.seen = r.result.Result, nil
	if x == nil || !r.result.Available {
		return
	}
	r.seen, r.at = x, r.result.Seen(x)
}

// whyNot says in one clause why a manager cannot plan, "" for nil.
func whyNot(err error) string {
	var u *plan.Unavailable
	switch {
	case err == nil:
		return ""
	case errors.As(err, &u):
		return commandFirst(u.Reason)
	}
	return err.Error()
}

// commandFirst moves a command that helps from the end of a reason to its front, because a narrow row must
// show it.
func commandFirst(reason string) string {
	if wrong, command, ok := strings.Cut(reason, ": "); ok && strings.HasPrefix(command, "gmemtop ") {
		return command + "; " + wrong
	}
	return reason
}

// over returns how far a footprint lies above its proven lower bound.
func over(r *result) float64 {
	if r.Plan == nil || r.Plan.LowerBound <= 0 {
		return 0
	}
	return float64(r.Measurement.Footprint)/float64(r.Plan.LowerBound) - 1
}

// result is one manager's result under one executor, with what charts draw of it.
type result struct {
	replay.Result
	shape *shape
}

// baselineTime is the step time that overheads are counted from.
func baselineTime(list []*row) int64 {
	for _, r := range list {
		if m := &r.result.Measurement; m.StepTime > 0 {
			return int64(float64(m.StepTime) / (1 + r.result.Overhead))
		}
	}
	return 0
}
