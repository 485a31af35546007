package live

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// mostTried bounds the bytes swapped in a trial of copies: enough for a rate, on any host.
const mostTried = 64 << 20

// swapping returns an encoded plan that swaps every buffer that can be swapped or, if together they exceed
// most bytes, every n-th of them; nil if there is none.
func swapping(p *plan.Problem, most int64) ([]byte, error) {
	var all []plan.Gap
	var bytes int64
	for _, g := range p.Gaps(1, 1) {
		if !g.Dead && (len(all) == 0 || all[len(all)-1].Buffer != g.Buffer) {
			all = append(all, g)
			bytes += p.Rounded(g.Buffer)
		}
	}
	every := int(bytes/most) + 1
	var d plan.Decisions
	for i := 0; i < len(all); i += every {
		g := all[i]
		d.Absences = append(d.Absences, plan.Absence{Buffer: g.Buffer, After: g.After, Release: g.After + 1,
			Fetch: g.Before, Before: g.Before, How: plan.Swap})
	}
	if len(all) == 0 {
		return nil, nil
	}
	pl, err := plan.Assemble(p, d)
	if err != nil {
		return nil, err
	}
	pl.Executor = plan.TorchEager
	return Encode(p, pl, Same)
}

// mostAgain bounds the ops in a trial of reruns.
const mostAgain = 24

// rerunning returns an encoded plan that drops tensors which a single op can recompute from what is in
// memory, and those ops; nil if there are none. It takes the largest tensors, as real plans do: much of an
// op's time beyond its recorded time goes into fresh memory for its result.
func rerunning(p *plan.Problem) (words []byte, ops []plan.OpID, err error) {
	var d plan.Decisions
	gone, read, at := map[plan.BufferID]bool{}, map[plan.BufferID]bool{}, map[plan.OpID]bool{}
	gaps := p.Gaps(1, 1)
	slices.SortStableFunc(gaps, func(x, y plan.Gap) int {
		return cmp.Compare(p.Rounded(y.Buffer), p.Rounded(x.Buffer))
	})
	for _, g := range gaps {
		made, ok := p.Producer(g.Buffer, g.Before)
		if g.Dead || !ok || len(made) != 1 || !p.Ops[made[0]].Rerunnable || gone[g.Buffer] ||
			read[g.Buffer] || at[g.Before] || len(ops) == mostAgain {
			continue
		}
		if !there(p, made[0], g, gone) {
			continue
		}
		for _, a := range p.AccessesOf(made[0]) {
			read[a.Buffer] = read[a.Buffer] || !a.Mode.Writes()
		}
		gone[g.Buffer], at[g.Before] = true, true
		ops = append(ops, made[0])
		d.Absences = append(d.Absences, plan.Absence{Buffer: g.Buffer, After: g.After, Release: g.After + 1,
			Fetch: g.Before, Before: g.Before, How: plan.Recompute})
		d.Reruns = append(d.Reruns, plan.Rerun{Before: g.Before, Ops: made})
	}
	if len(ops) == 0 {
		return nil, nil, nil
	}
	pl, err := plan.Assemble(p, d)
	if err != nil {
		return nil, nil, err
	}
	pl.Executor = plan.TorchEager
	words, err = Encode(p, pl, Same)
	return words, ops, err
}

// there reports whether an op that alone makes a gap's buffer finds its inputs at the gap's end: in memory,
// and unchanged.
func there(p *plan.Problem, op plan.OpID, g plan.Gap, gone map[plan.BufferID]bool) bool {
	for _, a := range p.AccessesOf(op) {
		b := &p.Buffers[a.Buffer]
		switch {
		case a.Buffer == g.Buffer && a.Mode == plan.Write:
		case a.Mode != plan.Read, gone[a.Buffer], b.Life == plan.Carried, !b.AliveAt(g.Before):
			return false
		case slices.ContainsFunc(p.TouchesOf(a.Buffer), func(t plan.Touch) bool {
			return t.Op > op && t.Op < g.Before && t.Mode.Writes()
		}):
			return false
		}
	}
	return true
}
