package plan

import (
	"errors"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Optimizer state is in use for a short part of an iteration, and in memory for all of it. A running training
// can keep it on the host in between: it comes back for the optimizer's step and leaves again after it.
//
// Approach: another problem, in which the state exists only while it is used. A plan for it is a plan like
// any other, and nothing that reads plans needs to know about memory that is away when an iteration begins.
// The time of the copies is part of the ops beside which they happen: the training thread waits for them.
//
// On a CPU an optimizer goes through its parameters one by one, so only one parameter's state is present at a
// time, all that has come, until the next one's comes. On a GPU its kernels take lists of all parameters, so
// all of it is present for the whole step; also on a CPU if the program asks for such kernels.
//
// No recording says whose state a buffer is. An optimizer writes a parameter before it goes on to the next
// one, so all state that comes between two such writes is one parameter's.
//
// Rejected: absences that begin in one iteration and end in the next, as a kind of [Absence]. Every planner,
// joint's bounds and everything that draws plans take an absence for an interval within the iteration.

// leastParked is the size, in bytes, of the smallest state that the agent moves.
const leastParked = 1 << 12

// Parked returns the problem with the optimizer's state in memory only while the optimizer uses it, and how
// many bytes wait on the host otherwise; nil if no state can leave. Positions and buffers are those of p.
func (p *Problem) Parked() (*Problem, int64) {
	runs := optimizing(p)
	uses := make([][]parking, len(runs))
	var bytes int64
	for i := range p.Buffers {
		b, touches := &p.Buffers[i], p.TouchesOf(BufferID(i))
		if b.Life != Persistent || b.Category != timeline.OptimizerState || b.Size < leastParked ||
			len(touches) == 0 {
			continue
		}
		first, last := touches[0].Op, touches[len(touches)-1].Op
		k := slices.IndexFunc(runs, func(r opRange) bool { return r.from <= first && last < r.to })
		if k >= 0 {
			uses[k] = append(uses[k], parking{BufferID(i), first, last})
			bytes += b.Size
		}
	}
	if bytes == 0 {
		return nil, 0
	}
	q := *p
	q.Buffers, q.Ops = slices.Clone(p.Buffers), slices.Clone(p.Ops)
	for k, of := range uses {
		if len(of) == 0 {
			continue
		}
		begin := slices.MinFunc(of, func(x, y parking) int { return int(x.first) - int(y.first) }).first
		oneByOne := p.Source != nil && p.Source.Info.Kind == traces.DeviceCPU && !inLists(p, of)
		comes := owners(p, of)
		for _, x := range of {
			b := &q.Buffers[x.buffer]
			b.Life, b.Start, b.End = Inside, begin, runs[k].to
			if oneByOne {
				b.Start = x.first
				own := comes.at(x.first).owner
				for _, c := range comes.after(x.last) {
					if c.owner != own {
						b.End = c.op
						break
					}
				}
			}
			q.Ops[b.Start].Duration += p.Hardware.H2D.Time(b.Size)
			q.Ops[b.End-1].Duration += p.Hardware.D2H.Time(b.Size)
		}
	}
	if q.Finish() != nil {
		return nil, 0
	}
	return &q, bytes
}

// parking is when a buffer of optimizer state is used.
type parking struct {
	buffer      BufferID
	first, last OpID
}

// inLists reports whether an op takes lists of parameters.
func inLists(p *Problem, of []parking) bool {
	return slices.ContainsFunc(of, func(x parking) bool {
		return slices.ContainsFunc(p.TouchesOf(x.buffer), func(t Touch) bool {
			name := p.Ops[t.Op].Name
			return strings.Contains(name, "_foreach_") || strings.Contains(name, "_fused_")
		})
	})
}

// arrival is an op before which state comes, and the first write of a parameter from there on: state with the
// same one is the same parameter's.
type arrival struct{ op, owner OpID }

// arrivals are in the order of their ops.
type arrivals []arrival

// owners returns when state comes, and whose it is.
func owners(p *Problem, of []parking) arrivals {
	var writes []OpID
	for i := range p.Buffers {
		if p.Buffers[i].Category != timeline.Parameter {
			continue
		}
		for _, t := range p.TouchesOf(BufferID(i)) {
			if t.Mode != Read && p.Ops[t.Op].Phase == traces.PhaseOptimizer {
				writes = append(writes, t.Op)
			}
		}
	}
	slices.Sort(writes)
	var all arrivals
	for _, x := range of {
		a := arrival{x.first, x.first} // without a write, each tensor is taken for another parameter's
		if k, _ := slices.BinarySearch(writes, x.first); k < len(writes) {
			a.owner = writes[k]
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b arrival) int { return int(a.op) - int(b.op) })
	return slices.Compact(all)
}

// after returns the arrivals after an op.
func (a arrivals) after(op OpID) arrivals {
	k, _ := slices.BinarySearchFunc(a, op+1, func(x arrival, op OpID) int { return int(x.op) - int(op) })
	return a[k:]
}

// at returns the arrival at an op.
func (a arrivals) at(op OpID) arrival { return a.after(op - 1)[0] }

// opRange is the ops [from, to).
type opRange struct{ from, to OpID }

// optimizing returns the stretches of the iteration in which an optimizer runs.
func optimizing(p *Problem) []opRange {
	var runs []opRange
	within := false
	for i := range p.Ops {
		op := &p.Ops[i]
		switch {
		case op.Phase == traces.PhaseOptimizer && !within:
			runs, within = append(runs, opRange{OpID(i), OpID(i + 1)}), true
		case op.Phase == traces.PhaseOptimizer:
			runs[len(runs)-1].to = OpID(i + 1)
		case op.Name != HostOp:
			within = false
		}
	}
	return runs
}

// CheckLeast is CheckBudget for managers that may have optimizer state wait on the host as well.
func (p *Problem) CheckLeast(budget int64) error {
	err := p.CheckBudget(budget)
	if err == nil {
		return nil
	}
	if q, _ := p.Parked(); q != nil {
		return q.CheckBudget(budget)
	}
	return err
}

// LeastResident returns the bytes below which no plan can go, even if optimizer state waits on the host.
func LeastResident(p *Problem) int64 {
	least := p.MustReside().Total()
	if q, _ := p.Parked(); q != nil {
		least = min(least, q.MustReside().Total())
	}
	return least
}

var errNoState = errors.New("its optimizer state cannot leave")

// Of returns the problem that the plan is about, if that is not p itself: one of sections, one whose
// optimizer state waits on the host, or one whose ops run in another order.
func (pl *Plan) Of(p *Problem) (*Problem, error) {
	if pl.Parks {
		q, _ := p.Parked()
		if q == nil {
			return nil, errors.Join(ErrInvalid, errNoState)
		}
		p = q
	}
	if pl.Sequence != nil {
		q, err := Reordered(p, pl.Sequence)
		if err != nil {
			return nil, err
		}
		p = q
	}
	if pl.SectionBytes != 0 {
		return p.Sectioned(pl.SectionBytes)
	}
	return p, nil
}
