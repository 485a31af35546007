package joint

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The instants that the bound over intervals looks at, and the phases between them.
//
// The time of a turn of the bound grows with the instants of all spans together. With a thousand ops the work
// runs out long before the prices are good. The same program with the memory of only a few instants is a
// relaxation that is quick to solve, and its prices are a good start for the larger one. So the ascent begins
// with the fullest ops and adds more, level by level, while work for the next level is left.
//
// Instants are numbered as in intervals.go: 2j is the start of op j, 2j+1 its end. A phase lies between two
// neighbouring instants of the level. Its ops take their time; reruns may go where it holds a moment between
// two ops; copies may run during all of it.

// phases divide the iteration at some of its instants.
type phases struct {
	instants []int32   // where each phase begins, ascending from 0
	holder   []int32   // for each instant, the phase that it begins or lies in
	ops      []float64 // for each phase, the time of its ops without variants
	between  []bool    // for each phase, whether it holds a moment between two ops
}

// newPhases divides an iteration at its beginning and at the starts and ends of the given ops. dur is the
// time of each op, 0 for ops that are counted elsewhere.
func newPhases(ops []plan.OpID, dur []float64) phases {
	p := phases{instants: []int32{0}, holder: make([]int32, 2*len(dur))}
	for _, j := range ops {
		p.instants = append(p.instants, 2*int32(j), 2*int32(j)+1)
	}
	slices.Sort(p.instants)
	p.instants = slices.Compact(p.instants)
	p.ops, p.between = make([]float64, len(p.instants)), make([]bool, len(p.instants))
	at := int32(-1)
	for i := range p.holder {
		if k := int(at) + 1; k < len(p.instants) && p.instants[k] == int32(i) {
			at++
		}
		if p.holder[i] = at; i%2 == 0 {
			p.ops[at] += dur[i/2]
		} else {
			p.between[at] = true
		}
	}
	return p
}

// from returns the index of the first of the phases' instants at or after the given one; their number if
// there is none.
func (p *phases) from(instant int32) int32 {
	at := p.holder[instant]
	if p.instants[at] < instant {
		at++
	}
	return at
}

// levels lists the ops whose memory counts, level by level. Each level includes the one before it, and the
// last has all ops. A level cuts the iteration into parts and takes the fullest op of each.
func levels(load []int64, par *proving) (all [][]plan.OpID) {
	n := len(load)
	var known []plan.OpID
	for parts := par.fewestParts; parts*par.refined <= n; parts *= par.refined {
		for k := range parts {
			fullest := n * k / parts
			for j := fullest; j < n*(k+1)/parts; j++ {
				if load[j] > load[fullest] {
					fullest = j
				}
			}
			known = append(known, plan.OpID(fullest))
		}
		slices.Sort(known)
		known = slices.Compact(known)
		all = append(all, slices.Clone(known))
	}
	every := make([]plan.OpID, n)
	for j := range every {
		every[j] = plan.OpID(j)
	}
	return append(all, every)
}
