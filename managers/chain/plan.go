package chain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Drop is a gap, or a part of it, for which a buffer should be out of memory, and where it comes back.
type Drop struct {
	plan.Gap
	// Release is the position at which it leaves, After < Release; 0 for at once.
	Release plan.OpID
	// Fetch is the position at which it is recomputed, Release <= Fetch <= Before; 0 for Before. Drops with
	// the same Fetch come back by one rerun.
	Fetch plan.OpID
	// Why goes into the absence.
	Why string
}

// Result is the result of a set of drops.
type Result struct {
	Absences []plan.Absence // in the order of the drops; absences of other kinds are not among them
	Reruns   []plan.Rerun   // in order of position, at most one each
	// Time is what all chains add to their streams, in nanoseconds; Ops the number of ops rerun.
	Time int64
	Ops  int
}

// ErrLong is wrapped by the error of a plan whose chains together have more ops than the caller wants.
var ErrLong = errors.New("the recompute chains are too long together")

// DefaultMaxOps returns the default bound on the ops rerun in one plan: more would make a program that nobody
// runs, and could take memory quadratic in the problem.
func (b *Builder) DefaultMaxOps() int { return 64*len(b.p.Ops) + 1<<16 }

// Plan drops the gaps throughout and brings each buffer back where its gap ends, with one joint chain for
// those that end at the same op. A gap whose buffer is overwritten next is discarded. The error wraps an
// [*Impossible], [ErrLong] or [plan.ErrInvalid].
func (b *Builder) Plan(gaps []plan.Gap) (Result, error) {
	drops := make([]Drop, len(gaps))
	for i, g := range gaps {
		drops[i].Gap = g
	}
	return b.PlanDrops(drops, nil, 0)
}

// PlanDrops is [Builder.Plan] with chosen positions, in the presence of absences of other kinds (others:
// swaps and discards, which stay the caller's) and with a bound on how many ops may be rerun; 0 is
// [Builder.DefaultMaxOps].
func (b *Builder) PlanDrops(drops []Drop, others []plan.Absence, maxOps int) (Result, error) {
	r, _, err := b.plan(drops, others, maxOps, false)
	return r, err
}

// PlanPossible is [Builder.PlanDrops] for callers that want as much as possible: it leaves out drops that
// cannot be brought back given the others and, from the iteration's end on, those that would make the chains
// too long. kept are the drops that were planned, in the given order.
func (b *Builder) PlanPossible(drops []Drop, others []plan.Absence, maxOps int) (r Result, kept []Drop) {
	kept = slices.Clone(drops)
	for {
		r, bad, err := b.plan(kept, others, maxOps, true)
		if err == nil {
			return r, kept
		}
		slices.Sort(bad)
		left := kept[:0]
		for i := range kept {
			if _, in := slices.BinarySearch(bad, i); !in {
				left = append(left, kept[i])
			}
		}
		kept = left
	}
}

// plan returns, with an error, which drops prevent the plan. If lenient, it looks for all of them: a drop
// that does counts as kept from then on, so that one that merely depended on it is not reported. The effects
// on earlier positions are found by the next call.
func (b *Builder) plan(drops []Drop, others []plan.Absence, maxOps int, lenient bool) (r Result, bad []int,
	err error) {
	if maxOps <= 0 {
		maxOps = b.DefaultMaxOps()
	}
	s := b.NewSet()
	for i := range others {
		s.Add(others[i])
	}
	r.Absences = make([]plan.Absence, len(drops))
	order := make([]int, 0, len(drops))
	for i := range drops {
		x, wrong := absenceOf(b.p, &drops[i])
		if wrong != nil {
			bad, err = append(bad, i), wrong
			if !lenient {
				return Result{}, bad, err
			}
			continue
		}
		r.Absences[i] = x
		s.Add(x)
		if x.How == plan.Recompute {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(r.Absences[i].Fetch, r.Absences[j].Fetch)
	})
	var group []plan.BufferID
	for lo := 0; lo < len(order); {
		at := r.Absences[order[lo]].Fetch
		hi := lo
		for group = group[:0]; hi < len(order) && r.Absences[order[hi]].Fetch == at; hi++ {
			group = append(group, r.Absences[order[hi]].Buffer)
		}
		for len(group) > 0 {
			c, wrong := b.At(at, group, s)
			if wrong == nil {
				if r.Ops += len(c.Ops); r.Ops > maxOps {
					return Result{}, append(bad, order[lo:]...),
						fmt.Errorf("recompute: %w: more than %d ops would run again", ErrLong, maxOps)
				}
				r.Time += c.Time
				r.Reruns = append(r.Reruns, plan.Rerun{Before: at, Ops: c.Ops})
				break
			}
			err = fmt.Errorf("recompute: %w", wrong)
			no := (*Impossible)(nil)
			if !errors.As(wrong, &no) || !lenient {
				return Result{}, append(bad, order[lo:hi]...), err
			}
			for _, i := range order[lo:hi] {
				if r.Absences[i].Buffer == no.Buffer {
					bad = append(bad, i)
					s.Remove(no.Buffer, r.Absences[i].Release)
				}
			}
			group = slices.DeleteFunc(group, func(x plan.BufferID) bool { return x == no.Buffer })
		}
		lo = hi
	}
	if err != nil {
		return Result{}, bad, err
	}
	return r, nil, nil
}

// absenceOf turns a drop into an absence.
func absenceOf(p *plan.Problem, d *Drop) (plan.Absence, error) {
	if err := checkGap(p, d.Gap); err != nil {
		return plan.Absence{}, err
	}
	x := plan.Absence{Buffer: d.Buffer, After: d.After, Before: d.Before, Release: d.Release, Fetch: d.Fetch,
		How: plan.Recompute, Why: d.Why}
	if x.Release == 0 {
		x.Release = d.After + 1
	}
	if x.Fetch == 0 {
		x.Fetch = d.Before
	}
	if d.Dead {
		x.How, x.Fetch = plan.Discard, d.Before
	}
	if x.Release <= x.After || x.Fetch < x.Release || x.Before < x.Fetch {
		return plan.Absence{}, fmt.Errorf("%w drop: buffer %d (%s) leaves after op %d, at %d, and is made "+
			"again at %d for op %d: not in this order", plan.ErrInvalid,
			d.Buffer, p.Buffers[d.Buffer].Name, d.After, x.Release, x.Fetch, d.Before)
	}
	return x, nil
}

// TimeOf returns what reruns add to their streams, in nanoseconds.
func (b *Builder) TimeOf(reruns []plan.Rerun) (ns int64) {
	for i := range reruns {
		for _, o := range reruns[i].Ops {
			ns += b.OpTime(o)
		}
	}
	return ns
}
