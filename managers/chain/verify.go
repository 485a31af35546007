package chain

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Missing says that a rerun op does not find what it read.
type Missing struct {
	Op     plan.OpID
	Buffer plan.BufferID
	// Makers made the value that it read, in order; nil if no op of the iteration did.
	Makers []plan.OpID
	Reason string
}

// Error implements error.
func (e *Missing) Error() string {
	return fmt.Sprintf("op %d cannot run again: %s", e.Op, e.Reason)
}

// Verify checks a chain that somebody else made: that the ops, rerun in the given order at position x, find
// the values that they read in the recording, destroy nothing that is in memory, and leave the wanted buffers
// with the values that they hold at x. The wanted buffers count as out of memory until the chain makes them.
// The error is a [*Missing] if an op fails, otherwise an [*Impossible].
func (b *Builder) Verify(x plan.OpID, ops []plan.OpID, wanted []plan.BufferID, s *Set) (Chain, error) {
	p := b.p
	b.stamp++
	b.ops = append(b.ops[:0], ops...)
	for _, t := range wanted {
		b.wanted[t] = b.stamp
	}
	if x < 0 || int(x) >= len(p.Ops) {
		return Chain{}, &Impossible{Buffer: plan.NoBuffer, At: x, Reason: "no such position"}
	}
	// holds returns the chain's latest value of a buffer.
	holds := func(buf plan.BufferID) (v value, ok bool) {
		if b.wroteAt[buf] == b.stamp {
			return b.wrote[buf], true
		}
		if b.inMemory(buf, x, s) == present {
			return b.at(buf, x), true
		}
		return 0, false
	}
	for _, i := range ops {
		if i < 0 || i >= x {
			return Chain{}, &Missing{Op: i, Buffer: plan.NoBuffer,
				Reason: fmt.Sprintf("it does not come before op %d", x)}
		}
		op := &p.Ops[i]
		if b.stuck[i] != free {
			return Chain{}, &Missing{Op: i, Buffer: plan.NoBuffer,
				Reason: op.Name + " is not known to give the same bytes when it runs again"}
		}
		for k := op.First; k < op.End; k++ {
			a := p.Accesses[k]
			v, ok := holds(a.Buffer)
			switch {
			case a.Mode.Reads() && (!ok || v != b.found[k]):
				e := &Missing{Op: i, Buffer: a.Buffer, Reason: fmt.Sprintf("%s is not there as %s read it",
					p.Buffers[a.Buffer].Name, op.Name)}
				e.Makers, _ = p.Producer(a.Buffer, i)
				return Chain{}, e
			case a.Mode == plan.Write && ok && v != b.left[k]:
				return Chain{}, &Missing{Op: i, Buffer: a.Buffer,
					Reason: fmt.Sprintf("it would overwrite %s, which has changed since",
						p.Buffers[a.Buffer].Name)}
			}
		}
		for k := op.First; k < op.End; k++ {
			if a := p.Accesses[k]; a.Mode.Writes() {
				b.wroteAt[a.Buffer], b.wrote[a.Buffer] = b.stamp, b.left[k]
			}
		}
	}
	for _, t := range wanted {
		if v, ok := holds(t); !ok || v != b.at(t, x) {
			return Chain{}, &Impossible{Buffer: t, At: x, Reason: "no op of the chain makes it"}
		}
	}
	c := b.measure(x, s)
	c.Ops = slices.Clone(ops)
	return c, nil
}
