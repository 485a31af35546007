package plan

import (
	"fmt"
	"slices"
)

// Another order of ops.
//
// Approach: another problem, as for sections and for parked optimizer state. Its ops are those of the problem
// in the order of [Plan.Sequence], and its buffers live as that order requires. A plan for it is a plan like
// any other: nothing that reads plans needs to know a second numbering of positions.
//
// A buffer is allocated when its first op begins and freed when its last op ends. Its ops here are those that
// touch it, and the two between which the recording has it alive: a framework that frees late frees late in
// any order. Two ops that touch a buffer keep their order unless both only read it.
//
// Rejected: steps that run ops out of order. Every reader of absences and lifetimes counts positions.

// Reordered returns the problem with its ops in another order: op order[k] of p is op k of the result. Its
// error wraps [ErrInvalid] and names two ops that may not change places.
func Reordered(p *Problem, order []OpID) (*Problem, error) {
	n := len(p.Ops)
	if len(order) != n {
		return nil, fmt.Errorf("%w order: %d ops of %d", ErrInvalid, len(order), n)
	}
	at := make([]OpID, n) // of each op of p, its new position
	for i := range at {
		at[i] = -1
	}
	for k, o := range order {
		if o < 0 || int(o) >= n || at[o] >= 0 {
			return nil, fmt.Errorf("%w order: op %d is not in the problem, or is listed twice", ErrInvalid,
				o)
		}
		at[o] = OpID(k)
	}
	q := *p
	q.Buffers = slices.Clone(p.Buffers)
	q.Ops, q.Accesses = make([]Op, n), make([]Access, 0, len(p.Accesses))
	for k, o := range order {
		q.Ops[k] = p.Ops[o]
		q.Ops[k].First = int32(len(q.Accesses))
		q.Accesses = append(q.Accesses, p.AccessesOf(o)...)
		q.Ops[k].End = int32(len(q.Accesses))
	}
	for b := range q.Buffers {
		if err := keepsOrder(p, BufferID(b), at); err != nil {
			return nil, err
		}
		x := &q.Buffers[b]
		if x.Held > 0 {
			x.Held = at[x.Held-1] + 1
		}
		if x.Life == Persistent {
			continue
		}
		first, last := Stay(p, BufferID(b))
		x.Start, x.End = earliest(at, first), latest(at, last)+1
	}
	if err := q.Finish(); err != nil {
		return nil, err
	}
	return &q, nil
}

// Stay returns two lists of ops: the earliest to run of the first begins a buffer's life, and the last to run
// of the second ends it. The lists are the same if it lives within the iteration; an op may be in a list
// twice.
func Stay(p *Problem, b BufferID) (first, last []OpID) {
	x := &p.Buffers[b]
	if int(x.Start) < len(p.Ops) {
		first = append(first, x.Start)
	}
	if x.End > 0 {
		last = append(last, x.End-1)
	}
	for _, t := range p.TouchesOf(b) {
		if x.Life != Carried || t.Op >= x.Start {
			first = append(first, t.Op)
		}
		if x.Life != Carried || t.Op < x.End {
			last = append(last, t.Op)
		}
	}
	if x.Life == Inside {
		first = append(first, x.End-1)
		last = append(last, x.Start)
	}
	return first, last
}

func earliest(at []OpID, ops []OpID) OpID {
	least := OpID(len(at))
	for _, o := range ops {
		least = min(least, at[o])
	}
	return least
}

func latest(at []OpID, ops []OpID) OpID {
	most := OpID(-1)
	for _, o := range ops {
		most = max(most, at[o])
	}
	return most
}

// keepsOrder checks that in a new order every op that touches a buffer finds in it what it found before.
func keepsOrder(p *Problem, b BufferID, at []OpID) error {
	writer, reader := OpID(-1), OpID(-1) // the last to write so far, and the latest of those that read since
	for _, t := range p.TouchesOf(b) {
		wrong := writer
		if writer < 0 || t.Op == writer || at[writer] < at[t.Op] {
			wrong = -1
			if t.Mode.Writes() && reader >= 0 && t.Op != reader && at[reader] > at[t.Op] {
				wrong = reader
			}
		}
		if wrong >= 0 {
			return fmt.Errorf("%w order: op %d (%s) comes before op %d (%s), and both touch buffer %d (%s)",
				ErrInvalid, t.Op, p.Ops[t.Op].Name, wrong, p.Ops[wrong].Name, b, p.Buffers[b].Name)
		}
		switch {
		case t.Mode.Writes():
			writer, reader = t.Op, -1
		case reader < 0 || at[reader] < at[t.Op]:
			reader = t.Op
		}
	}
	return nil
}
