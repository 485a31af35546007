package live

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// What only other steps have. A program may run one of two networks in turn: the smaller one has no place in
// the plan of the larger one. So where another described step exceeds the budget, a plan is made for that
// step too, and what it decides at places that no step before has joins the first plan's rules. Those of one
// step never act in a step that lacks its places, so neither prediction changes.
//
// In the process the further places have numbers after those of the planned step. Only the planned step's
// tell how far a step is; what leaves at further places leaves at once.
//
// Rejected: one plan for all steps together (no manager plans a problem that holds several steps of which one
// runs); rules of the second plan at places that the first one knows (they would move more than planned in
// steps that fit).

// byPlace returns the rules of a plan by place: its own first, then those for other steps.
func byPlace(p *plan.Problem, pl *plan.Plan) ([]*encoder, error) {
	all := []*encoder{{p: p, pl: pl}}
	for i, x := range pl.Varied {
		if x == nil {
			continue
		}
		q, err := pl.Of(p.Varied[i])
		if err != nil {
			return nil, err
		}
		all = append(all, &encoder{p: q, pl: x})
	}
	for _, e := range all {
		if err := e.number(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Join returns a plan that also does, in the other described step of that index, what a plan for it alone
// decides at places that the first plan does not know. own is a plan of [plan.Plan.Of] that step. The result
// is the first plan itself if there is nothing to add.
func Join(p *plan.Problem, pl *plan.Plan, index int, own *plan.Plan) (*plan.Plan, error) {
	all, err := byPlace(p, pl)
	if err != nil {
		return nil, err
	}
	q, err := pl.Of(p.Varied[index])
	if err != nil {
		return nil, err
	}
	e := encoder{p: q, pl: own}
	if err := e.number(); err != nil {
		return nil, err
	}
	saves, ops := map[place]bool{}, map[place]bool{}
	for _, x := range all {
		for _, s := range x.placed.saves {
			saves[s] = true
		}
		for _, o := range x.placed.ops {
			ops[o] = true
		}
	}
	add := &plan.Plan{Manager: own.Manager, Executor: own.Executor}
	again := map[plan.OpID]bool{} // where ops run again, and whether all of them are new
	for _, r := range own.Reruns {
		before, known := again[r.Before]
		again[r.Before] = (before || !known) && !slices.ContainsFunc(r.Ops, func(o plan.OpID) bool {
			return ops[e.placed.ops[traces.OpID(q.Ops[o].Recorded-1)]]
		})
	}
	makes := map[plan.OpID]bool{}
	for _, x := range own.Absences {
		save := e.firstSave(x.Buffer)
		if save < 0 || saves[e.placed.saves[save]] || x.How != plan.Swap && !again[x.Fetch] {
			continue
		}
		add.Absences = append(add.Absences, x)
		makes[x.Fetch] = makes[x.Fetch] || x.How != plan.Swap
	}
	for _, r := range own.Reruns {
		if makes[r.Before] {
			add.Reruns = append(add.Reruns, r)
		}
	}
	if len(add.Absences) == 0 {
		return pl, nil
	}
	with := *pl
	if with.Varied = slices.Clone(pl.Varied); with.Varied == nil {
		with.Varied = make([]*plan.Plan, len(p.Varied))
	}
	with.Varied[index] = add
	return &with, nil
}

// numbers are those that places have in the process.
type numbers struct {
	saves map[place]int
	loads map[int]int // the first load, by the number of the save
	ops   map[place]int
	next  int // of an op that the planned step does not run
}

// beside adds the rules for what only other steps have, and their places.
func (e *encoder) beside(others []*encoder) error {
	n := numbers{map[place]int{}, map[int]int{}, map[place]int{}, len(e.p.Source.Timeline().Trace.Ops)}
	for k, x := range e.placed.saves {
		n.saves[x] = k
	}
	for x, k := range slices.Backward(e.placed.loads) {
		n.loads[k] = x
	}
	for _, x := range others {
		if err := x.groups(); err != nil {
			return err
		}
		if err := x.values(); err != nil {
			return err
		}
		e.further(x, &n)
		e.join(x, &n)
	}
	return nil
}

// further numbers the places of another step that have no number yet.
func (e *encoder) further(x *encoder, n *numbers) {
	out := e.out.Places
	for _, s := range x.placed.saves {
		if _, ok := n.saves[s]; !ok {
			n.saves[s] = len(out.Saves)
			out.Saves = append(out.Saves, [2]int{out.module(s), s.passes})
		}
	}
	for _, k := range x.placed.loads {
		if k < 0 {
			continue
		}
		save := n.saves[x.placed.saves[k]]
		if _, ok := n.loads[save]; !ok {
			n.loads[save] = len(out.Loads)
			out.Loads = append(out.Loads, save)
		}
	}
	for again := range x.noted() {
		for _, o := range again {
			op := x.placed.ops[traces.OpID(x.p.Ops[o].Recorded-1)]
			if _, ok := n.ops[op]; !ok {
				n.ops[op] = n.next
				if op.noGrad {
					n.ops[op] = -1 - n.next
				}
				n.next++
				out.Ops[op.op] = append(out.Ops[op.op], [4]int{n.ops[op], out.module(op), op.passes, op.n})
			}
		}
	}
}

// join adds another step's rules, in the numbers of their places.
func (e *encoder) join(x *encoder, n *numbers) {
	first := len(e.out.Groups)
	numerals := func(again []plan.OpID) (ops []Numeral) {
		for _, o := range again {
			at := x.placed.ops[traces.OpID(x.p.Ops[o].Recorded-1)]
			ops = append(ops, Numeral{at.op, n.ops[at]})
		}
		return ops
	}
	for _, r := range x.pl.Reruns {
		e.out.Groups = append(e.out.Groups, numerals(r.Ops))
	}
	for _, ops := range x.backups {
		e.out.Backups = append(e.out.Backups, numerals(ops))
	}
	for _, v := range x.out.Values {
		own := n.saves[x.placed.saves[v.Save]]
		fetch := n.loads[own]
		if v.Fetch < len(x.placed.loads) && x.placed.loads[v.Fetch] >= 0 {
			if l, ok := n.loads[n.saves[x.placed.saves[x.placed.loads[v.Fetch]]]]; ok {
				fetch = l
			}
		}
		v.Save, v.Release, v.Fetch = own, 0, fetch
		if v.How == "swap" {
			v.Slot += e.out.Slab
		} else {
			v.Group += first
		}
		e.out.Values = append(e.out.Values, v)
	}
	e.out.Slab += x.out.Slab
}
