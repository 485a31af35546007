package plan

import (
	"slices"

	"github.com/gmemtop/gmemtop/traces"
)

// Pair is a forward pass and the backward pass that follows it. A step that accumulates gradients has one for
// each micro-batch, and a step that trains two networks one for each.
type Pair struct {
	Begin OpID // the first op of the forward pass, or the iteration's beginning
	Turn  OpID // the first op of the backward pass
	End   OpID // end of the backward pass: where the next forward pass begins, or the iteration's end
}

// Pairs returns the pairs of an iteration, in order: together they cover it. It returns none if the recording
// does not distinguish forward from backward.
func (p *Problem) Pairs() []Pair {
	var all []Pair
	now := Pair{Turn: -1}
	for i := range p.Ops {
		switch phase := p.Ops[i].Phase; {
		case phase == traces.PhaseBackward && now.Turn < 0:
			now.Turn = OpID(i)
		case phase == traces.PhaseForward && now.Turn >= 0:
			now.End = OpID(i)
			all = append(all, now)
			now = Pair{Begin: now.End, Turn: -1}
		}
	}
	end := OpID(len(p.Ops))
	switch {
	case now.Turn >= 0:
		now.End = end
		all = append(all, now)
	case len(all) > 0: // a forward pass that nothing is learnt from
		all[len(all)-1].End = end
	}
	return all
}

// PairAt returns the pair that an op is in.
func PairAt(pairs []Pair, at OpID) Pair {
	k, found := slices.BinarySearchFunc(pairs, at,
		func(x Pair, at OpID) int { return int(x.Begin) - int(at) })
	if !found {
		k--
	}
	return pairs[k]
}
