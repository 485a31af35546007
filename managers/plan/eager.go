package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Refusal says why eager PyTorch cannot keep a buffer out of memory. The zero value means that it can.
type Refusal struct {
	Why  string
	Held bool // only a reference of the program's own keeps it: without that it could leave
}

// EagerRefusal says whether eager PyTorch can keep a buffer out of memory for an absence. Hooks on saved
// tensors see only what the forward pass saves for the backward pass: an activation that leaves after a
// forward op and returns to a backward op.
func (p *Problem) EagerRefusal(x Absence) Refusal {
	held := func(how string) Refusal { return Refusal{"the program itself holds it " + how, true} }
	b := &p.Buffers[x.Buffer]
	switch {
	case b.Category != timeline.Activation && b.Category != timeline.Input &&
		b.Category != timeline.Unknown && b.Category != timeline.AutogradDetail:
		return Refusal{Why: "only tensors saved for backward can leave, and this is " + b.Category.String()}
	case p.SavesKnown && !b.Saved:
		return Refusal{Why: "autograd does not save it in a module's forward pass"}
	case p.SavesKnown && b.Category == timeline.Input && outlives(p, x.Buffer):
		return held("to the end of the step")
	case p.Ops[x.After].Phase == traces.PhaseBackward || p.Ops[x.After].Phase == traces.PhaseOptimizer:
		return Refusal{Why: "it leaves after the forward pass"}
	case p.Ops[x.Before].Phase == traces.PhaseForward:
		return Refusal{Why: "it would have to be back before the forward pass ends"}
	case p.SavesKnown && b.Held > 0 && b.Held >= x.Before:
		return held("until the backward pass needs it")
	case readLater(p, x.Buffer, x.Before):
		return Refusal{Why: "a later forward pass of the program reads it"}
	}
	return Refusal{}
}

// readLater reports whether an op of a forward pass touches a buffer after a position of a backward pass, as
// when a discriminator sees a generator's images twice. Then a variable of the program holds it until there.
func readLater(p *Problem, b BufferID, at OpID) bool {
	touches := p.TouchesOf(b)
	return slices.ContainsFunc(touches[FirstTouch(touches, at):], func(t Touch) bool {
		return p.Ops[t.Op].Phase == traces.PhaseForward
	})
}

// outlives reports whether a buffer exists at the iteration's end although nothing touches it any more: a
// batch that stays in a variable until the next one comes, or in a list. What only autograd holds goes with
// the last backward op that reads it.
func outlives(p *Problem, b BufferID) bool {
	x, touches := &p.Buffers[b], p.TouchesOf(b)
	if x.Life == Carried {
		return true
	}
	if int(x.End) != len(p.Ops) || len(touches) == 0 {
		return false
	}
	last := touches[len(touches)-1].Op
	return last+1 < x.End
}

// executor checks what only some executors can do. Eager PyTorch has a hook on each tensor that the forward
// pass saves, called when it is saved and when the backward pass unpacks it, and checkpoints: regions of the
// forward pass that are rerun, in order, when the first of their tensors is unpacked. It checks
// the decisions, and that the steps carry out these decisions and no others.
func (v *validator) executor() error {
	if v.pl.Sequence != nil && v.pl.Executor != Reordering {
		return fmt.Errorf("%w plan: ops run in another order, which %s cannot", ErrInvalid, v.pl.Executor)
	}
	if v.pl.Executor != TorchEager {
		return nil
	}
	e := eagerCheck{validator: v, pairs: v.p.Pairs()}
	for _, check := range []func() error{e.whole, e.absences, e.reruns, e.steps} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// eagerCheck checks a plan for eager PyTorch.
type eagerCheck struct {
	*validator
	pairs []Pair // none if the recording does not distinguish forward from backward
}

func (e *eagerCheck) refuse(format string, args ...any) error {
	return fmt.Errorf("%w plan: eager PyTorch cannot: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// whole refuses what hooks have no handle on: parts of tensors and the algorithms of ops.
func (e *eagerCheck) whole() error {
	if e.pl.SectionBytes != 0 {
		return e.refuse("keep a part of a tensor out of memory, and the plan speaks of sections of %d bytes",
			e.pl.SectionBytes)
	}
	if i := slices.IndexFunc(e.pl.Variants, func(k uint8) bool { return k != 0 }); i >= 0 {
		return e.refuse("choose the algorithm of an op, and op %d has variant %d", i, e.pl.Variants[i])
	}
	return nil
}

// absences checks that each buffer leaves at most once, between its last touch of the forward pass and its
// first of the backward pass.
func (e *eagerCheck) absences() error {
	gone := make([]bool, len(e.p.Buffers))
	for _, x := range e.pl.Absences {
		if x.Buffer < 0 || int(x.Buffer) >= len(e.p.Buffers) || x.After < 0 || x.Release <= x.After ||
			x.Before < x.Release || int(x.Before) >= len(e.p.Ops) {
			return fmt.Errorf("%w plan: buffer %d cannot be absent between ops %d and %d", ErrInvalid,
				x.Buffer, x.After, x.Before)
		}
		name := e.p.Buffers[x.Buffer].Name
		if why := e.p.EagerRefusal(x).Why; why != "" {
			return fmt.Errorf("%w plan: buffer %d (%s) cannot be absent after op %d in eager PyTorch: %s",
				ErrInvalid, x.Buffer, name, x.After, why)
		}
		touches := e.p.TouchesOf(x.Buffer)
		// A copy may be read while it is made, so Release is what counts.
		next := FirstTouch(touches, x.Release)
		switch {
		case x.How == Discard:
			return e.refuse("drop buffer %d (%s) because op %d overwrites it: what is "+
				"saved is saved to be read", x.Buffer, name, x.Before)
		case gone[x.Buffer]:
			return e.refuse("have buffer %d (%s) leave twice: it is packed once", x.Buffer, name)
		case next == 0 || next == len(touches) || touches[next].Op < x.Before ||
			touches[next].Op > x.Before && x.How == Recompute:
			return e.refuse("have buffer %d (%s) absent from op %d to op %d, which is no "+
				"interval between two touches", x.Buffer, name, x.After, x.Before)
		case !e.between(x.After, x.Before):
			return e.refuse("have buffer %d (%s) absent from op %d to op %d: hooks act "+
				"between a forward pass and its backward pass", x.Buffer, name, x.After, x.Before)
		case x.How == Recompute && (x.After != touches[next-1].Op || x.Release != x.After+1):
			return e.refuse("drop buffer %d (%s) at op %d: a checkpoint saves nothing of it, so that it "+
				"goes behind its last touch, op %d", x.Buffer, name, x.Release, touches[next-1].Op)
		}
		gone[x.Buffer] = true
	}
	return nil
}

// between reports whether a backward pass begins after the first op, which is in a forward pass, and no later
// than the second.
func (e *eagerCheck) between(after, before OpID) bool {
	if len(e.pairs) == 0 {
		return true
	}
	turn := PairAt(e.pairs, after).Turn
	return after < turn && turn <= before
}

// reruns checks that what is rerun is a piece of one forward pass, in order, at the place where the first of
// the tensors that it brings back is unpacked.
func (e *eagerCheck) reruns() error {
	for _, r := range e.pl.Reruns {
		if len(r.Loads) > 0 {
			return e.refuse("load buffer %d for the ops that run again before op %d alone: once unpacked, a "+
				"tensor stays", r.Loads[0].Buffer, r.Before)
		}
		for k, o := range r.Ops {
			if len(e.pairs) > 0 && o >= PairAt(e.pairs, o).Turn {
				return e.refuse("run op %d again before op %d: it is not of a forward pass", o, r.Before)
			}
			if k > 0 && o <= r.Ops[k-1] {
				return e.refuse("run op %d again behind op %d: a region runs in order", o, r.Ops[k-1])
			}
		}
		if !slices.ContainsFunc(e.pl.Absences, func(x Absence) bool {
			return x.How == Recompute && x.Fetch == r.Before && x.Before == r.Before
		}) {
			return e.refuse("run ops again before op %d, where nothing that they bring back is unpacked",
				r.Before)
		}
	}
	return nil
}

// steps checks that the program carries out the checked decisions: the same ops are rerun, the same buffers
// are copied.
func (e *eagerCheck) steps() error {
	reruns := slices.Clone(e.pl.Reruns)
	slices.SortStableFunc(reruns, func(x, y Rerun) int { return cmp.Compare(x.Before, y.Before) })
	var again []OpID
	for _, r := range reruns {
		again = append(again, r.Ops...)
	}
	swapped := make([]bool, len(e.p.Buffers))
	for _, x := range e.pl.Absences {
		swapped[x.Buffer] = swapped[x.Buffer] || x.How == Swap
	}
	for s := range e.pl.Steps {
		switch st := &e.pl.Steps[s]; st.Kind {
		case Again:
			if len(again) == 0 || again[0] != st.Op {
				return e.wrong(s, "op %d runs again, and no rerun of the plan says so", st.Op)
			}
			again = again[1:]
		case Out, In:
			b := e.pl.Instances[st.Instance].Buffer
			if !swapped[b] {
				return e.wrong(s, "buffer %d (%s) is copied, and no absence of the plan says so", b,
					e.p.Buffers[b].Name)
			}
		}
	}
	if len(again) > 0 {
		return fmt.Errorf("%w plan: op %d is to run again and does not", ErrInvalid, again[0])
	}
	return nil
}
