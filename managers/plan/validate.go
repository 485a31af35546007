package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// Validation.
//
// Validate trusts nothing that a planner, Assemble or Order computed: it takes the steps as a target would
// get them and asks whether carrying them out gives every op the bytes that it had in the recording. It
// follows values, not addresses: each write in the recorded iteration makes a new version of a buffer; each
// instance and each copy on the host holds one version or nothing; an op, run or rerun, must find exactly the
// versions that it read in the recording. Then it checks places (no two live instances share a byte, and none
// lies beyond the footprint that the plan claims), pinned host memory, the steady state (the iteration ends
// as it began), and order: with a vector clock per queue, every pair of conflicting touches, of a value or of
// a byte that changes hands, must be ordered by the waits in the program, not by luck. That copies fit the
// link needs no check: copies in one direction form one queue.
//
// Complexity: O(steps x queues x log instances + accesses). Rejected: checking a simulated schedule, which
// shows that one timing worked.

// Validate returns nil if the plan, carried out in any timing that its queues and waits allow, gives every op
// of the problem what it read in the recording, with every live buffer at a place of its own, within the
// footprint that the plan claims. A plan that claims more than its budget is valid: the caller decides
// whether it fits. The error wraps [ErrInvalid] and names the step.
func Validate(p *Problem, pl *Plan) error {
	p, err := pl.Of(p)
	if err != nil {
		return err
	}
	v := &validator{p: p, pl: pl, k: p.Queues()}
	for _, check := range []func() error{v.shape, v.places, v.values, v.pinned, v.ordered, v.executor} {
		if err := check(); err != nil {
			return fmt.Errorf("%s: %w", pl.Manager, err)
		}
	}
	return nil
}

type validator struct {
	p  *Problem
	pl *Plan
	k  int
}

func (v *validator) wrong(step int, format string, args ...any) error {
	return fmt.Errorf("%w plan: step %d: %s", ErrInvalid, step, fmt.Sprintf(format, args...))
}

// shape checks indices, that every op runs once and in order, and that instances live as the steps say.
func (v *validator) shape() error {
	p, pl := v.p, v.pl
	if err := checkVariants(p, pl.Variants); err != nil {
		return err
	}
	state := make([]int8, len(pl.Instances)) // 0 not yet, 1 alive, 2 gone
	for i := range pl.Instances {
		x := &pl.Instances[i]
		if x.Buffer < 0 || int(x.Buffer) >= len(p.Buffers) || x.Size != sizeOf(p, x.Buffer, pl.Variants) {
			return fmt.Errorf("%w plan: instance %d has buffer %d with %d bytes, which is not the problem's",
				ErrInvalid, i, x.Buffer, x.Size)
		}
	}
	for _, i := range pl.Resident {
		if i < 0 || int(i) >= len(pl.Instances) || state[i] != 0 || pl.Instances[i].From != -1 {
			return fmt.Errorf("%w plan: instance %d is resident twice or begins within the iteration",
				ErrInvalid, i)
		}
		state[i] = 1
	}
	next := OpID(0)
	for s := range pl.Steps {
		if err := v.stepShape(s, state, next); err != nil {
			return err
		}
		if pl.Steps[s].Kind == Run {
			next++
		}
	}
	if int(next) != len(p.Ops) {
		return fmt.Errorf("%w plan: %d of %d ops run", ErrInvalid, next, len(p.Ops))
	}
	for i := range state {
		if state[i] == 0 || state[i] == 1 && int(pl.Instances[i].To) != len(pl.Steps) {
			return fmt.Errorf("%w plan: instance %d is never allocated or has no end", ErrInvalid, i)
		}
	}
	return nil
}

// stepShape checks one step, which may run op next, and takes note of the state that its instance has then.
func (v *validator) stepShape(s int, state []int8, next OpID) error {
	p, pl := v.p, v.pl
	st := &pl.Steps[s]
	switch st.Kind {
	case Run, Again:
		switch {
		case st.Op < 0 || int(st.Op) >= len(p.Ops) || st.Queue != p.Ops[st.Op].Stream:
			return v.wrong(s, "op %d on queue %d is not the problem's", st.Op, st.Queue)
		case st.Kind == Run && st.Op != next:
			return v.wrong(s, "op %d runs where op %d is due", st.Op, next)
		case st.Kind == Again && !p.Ops[st.Op].Rerunnable:
			return v.wrong(s, "op %d (%s) runs again and is not known to give the same bytes", st.Op,
				p.Ops[st.Op].Name)
		}
	case Alloc, Free, Out, In:
		if st.Instance < 0 || int(st.Instance) >= len(pl.Instances) {
			return v.wrong(s, "no instance %d", st.Instance)
		}
		x := &pl.Instances[st.Instance]
		want := int8(1)
		if st.Kind == Alloc {
			want = 0
		}
		if state[st.Instance] != want {
			return v.wrong(s, "%s of instance %d of buffer %d (%s), which is not in that state", st.Kind,
				st.Instance, x.Buffer, p.Buffers[x.Buffer].Name)
		}
		switch {
		case st.Kind == Alloc && x.From != int32(s), st.Kind == Free && x.To != int32(s):
			return v.wrong(s, "instance %d says that it lives [%d, %d)", st.Instance, x.From, x.To)
		case st.Kind == Out && st.Queue != p.OutQueue(), st.Kind == In && st.Queue != p.InQueue():
			return v.wrong(s, "%s on queue %d", st.Kind, st.Queue)
		case st.Kind == Alloc:
			state[st.Instance] = 1
		case st.Kind == Free:
			state[st.Instance] = 2
		}
	case Wait:
		if st.On < 0 || int(st.On) >= s || st.Queue < 0 || int(st.Queue) >= v.k {
			return v.wrong(s, "queue %d waits for step %d", st.Queue, st.On)
		}
		if k := pl.Steps[st.On].Kind; k != Run && k != Again && k != Out && k != In {
			return v.wrong(s, "queue %d waits for step %d, which is a %s", st.Queue, st.On, k)
		}
	default:
		return v.wrong(s, "unknown kind %d", st.Kind)
	}
	return nil
}

// places checks that no two live instances share a byte, and that the claimed footprint is right.
func (v *validator) places() error {
	pl := v.pl
	if pl.Policy != nil {
		return nil
	}
	var top int64
	byFrom := make([]InstanceID, 0, len(pl.Instances))
	for i := range pl.Instances {
		x := &pl.Instances[i]
		if x.Size == 0 {
			continue
		}
		if x.Offset < 0 || x.Offset%v.p.Align != 0 || x.Offset > 1<<62 {
			return fmt.Errorf("%w plan: instance %d of buffer %d (%s) is at offset %d", ErrInvalid, i,
				x.Buffer, v.p.Buffers[x.Buffer].Name, x.Offset)
		}
		top = max(top, x.Offset+x.Size)
		byFrom = append(byFrom, InstanceID(i))
	}
	if v.p.Scattered {
		top, _ = pl.PeakLive()
	}
	if top != pl.Footprint {
		return fmt.Errorf("%w plan: the footprint is %d bytes and the plan says %d", ErrInvalid, top,
			pl.Footprint)
	}
	slices.SortFunc(byFrom, func(a, b InstanceID) int {
		return cmp.Compare(pl.Instances[a].From, pl.Instances[b].From)
	})
	byTo := slices.Clone(byFrom)
	slices.SortFunc(byTo, func(a, b InstanceID) int {
		return cmp.Compare(pl.Instances[a].To, pl.Instances[b].To)
	})
	var live occupied
	for _, id := range byFrom {
		x := &pl.Instances[id]
		for len(byTo) > 0 && pl.Instances[byTo[0]].To <= x.From {
			live.remove(&pl.Instances[byTo[0]])
			byTo = byTo[1:]
		}
		if y, ok := live.insert(x); !ok {
			return fmt.Errorf("%w plan: buffers %d (%s) and %d (%s) share bytes while "+
				"both are alive, at step %d", ErrInvalid,
				x.Buffer, v.p.Buffers[x.Buffer].Name, y.Buffer, v.p.Buffers[y.Buffer].Name, x.From)
		}
	}
	return nil
}

// occupied holds the live instances in order of offset, in runs of at most runLength so that inserting one
// does not move them all.
type occupied struct{ runs [][]*Instance }

const runLength = 256

func (o *occupied) find(offset int64) (run, at int) {
	run, _ = slices.BinarySearchFunc(o.runs, offset, func(r []*Instance, off int64) int {
		if r[len(r)-1].Offset < off {
			return -1
		}
		return 1
	})
	if run == len(o.runs) {
		return run, 0
	}
	at, _ = slices.BinarySearchFunc(o.runs[run], offset, func(x *Instance, off int64) int {
		return cmp.Compare(x.Offset, off)
	})
	return run, at
}

// insert adds x, or returns an instance that overlaps it.
func (o *occupied) insert(x *Instance) (*Instance, bool) {
	run, at := o.find(x.Offset)
	if run < len(o.runs) {
		if y := o.runs[run][at]; y.Offset < x.Offset+x.Size {
			return y, false
		}
	}
	var before *Instance
	switch {
	case run < len(o.runs) && at > 0:
		before = o.runs[run][at-1]
	case run > 0:
		before = o.runs[run-1][len(o.runs[run-1])-1]
	}
	if before != nil && before.Offset+before.Size > x.Offset {
		return before, false
	}
	if run == len(o.runs) {
		if run == 0 {
			o.runs = append(o.runs, []*Instance{x})
			return nil, true
		}
		run--
		at = len(o.runs[run])
	}
	o.runs[run] = slices.Insert(o.runs[run], at, x)
	if r := o.runs[run]; len(r) > runLength {
		o.runs = slices.Insert(o.runs, run+1, slices.Clone(r[len(r)/2:]))
		o.runs[run] = r[:len(r)/2]
	}
	return nil, true
}

func (o *occupied) remove(x *Instance) {
	run, at := o.find(x.Offset)
	o.runs[run] = slices.Delete(o.runs[run], at, at+1)
	if len(o.runs[run]) == 0 {
		o.runs = slices.Delete(o.runs, run, run+1)
	}
}
