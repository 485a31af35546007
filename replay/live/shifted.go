package live

import (
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// pinShifted marks ops that must not run again in a plan by place, in all of these steps. A plan knows an op
// by its module, its name, whether gradients were on, and a count. Where a module has run before in some of
// the steps only and in the same mode, as in an evaluation that forgets torch.no_grad() or within a function
// of its own for autograd, the same count means another op in each kind of step, and running it again would
// bring nothing back.
func pinShifted(steps []*plan.Problem) error {
	type run struct {
		module string
		passes int
	}
	first := map[place]place{} // by the place of a save, what makes the tensor in the first step that has it
	same, shifted := map[run]int{}, map[run]int{}
	all := make([]*encoder, len(steps))
	for i, q := range steps {
		e := &encoder{p: q, pl: &plan.Plan{}}
		if err := e.number(); err != nil {
			return err
		}
		all[i] = e
		for k, b := range e.saved() {
			if b == plan.NoBuffer {
				continue
			}
			made, ok := e.maker(b)
			if !ok {
				continue
			}
			was, known := first[e.placed.saves[k]]
			switch of := (run{made.module, made.passes}); {
			case !known:
				first[e.placed.saves[k]] = made
			case was == made:
				same[of]++
			case was.op == made.op && was.module == made.module && was.passes == made.passes:
				shifted[of]++
			}
		}
	}
	for _, e := range all {
		for i := range e.p.Ops {
			op := &e.p.Ops[i]
			at, ok := e.placed.ops[traces.OpID(op.Recorded-1)]
			if of := (run{at.module, at.passes}); ok && shifted[of] > same[of] {
				op.Rerunnable = false
			}
		}
	}
	return nil
}

// maker returns the place of the op that makes a buffer, and false if no op of a module does.
func (e *encoder) maker(b plan.BufferID) (place, bool) {
	for _, t := range e.p.TouchesOf(b) {
		if r := e.p.Ops[t.Op].Recorded; t.Mode.Writes() && r > 0 {
			at, ok := e.placed.ops[traces.OpID(r-1)]
			return at, ok
		}
	}
	return place{}, false
}
