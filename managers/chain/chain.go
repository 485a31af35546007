package chain

import (
	"fmt"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Chain is the rerun at one position that brings a group of buffers back.
type Chain struct {
	// Ops are rerun in this order, which is issue order.
	Ops []plan.OpID
	// Time is what they add to their streams, in nanoseconds; see [Builder.OpTime].
	Time int64
	// Scratch is the most bytes that the chain holds at one moment besides what is in memory when it begins
	// and what it brings back; Peak also counts what it brings back, from the moment it is allocated.
	Scratch, Peak int64
}

// Impossible says why a buffer cannot be brought back at a position.
type Impossible struct {
	Buffer plan.BufferID
	At     plan.OpID
	Reason string
	// Always says that it is impossible there whatever else is in memory.
	Always bool
}

// Error implements error.
func (e *Impossible) Error() string {
	return fmt.Sprintf("buffer %d cannot be made again before op %d: %s", e.Buffer, e.At, e.Reason)
}

// At returns the chain that brings the buffers back at position x, each with the value that it holds there in
// the recording. The set says what else is out of memory; the buffers themselves count as out of it in any
// case. The error is an [*Impossible] that names the first buffer that cannot be brought back. The caller may
// keep the chain's Ops.
func (b *Builder) At(x plan.OpID, buffers []plan.BufferID, s *Set) (Chain, error) {
	return b.AtMost(x, buffers, s, math.MaxInt)
}

// AtMost is [Builder.At] for callers that do not want chains longer than a number of ops: it gives up on a
// longer one, with an error that wraps [ErrLong], so that a candidate that needs half of the network
// recomputed costs no more time than any other.
func (b *Builder) AtMost(x plan.OpID, buffers []plan.BufferID, s *Set, ops int) (Chain, error) {
	if err := b.collect(x, buffers, s, ops); err != nil {
		return Chain{}, err
	}
	c := b.measure(x, s)
	c.Ops = slices.Clone(b.ops)
	return c, nil
}

// Cost returns the cost of bringing only the gap's buffer back where the gap ends: the time of its chain in
// nanoseconds and the chain's scratch in bytes. The set says what else is out of memory. ok is false if it is
// impossible. A gap whose buffer is overwritten next costs nothing.
func (b *Builder) Cost(g plan.Gap, s *Set) (ns, scratch int64, ok bool) {
	if g.Dead {
		return 0, 0, true
	}
	one := [1]plan.BufferID{g.Buffer}
	if checkGap(b.p, g) != nil || b.collect(g.Before, one[:], s, math.MaxInt) != nil {
		return 0, 0, false
	}
	c := b.measure(g.Before, s)
	return c.Time, c.Scratch, true
}

// inMemory returns how a buffer finds itself when a rerun at position x begins.
func (b *Builder) inMemory(i plan.BufferID, x plan.OpID, s *Set) state {
	if b.wanted[i] == b.stamp {
		return absent
	}
	switch buf := &b.p.Buffers[i]; {
	case buf.Life == plan.Persistent:
	case buf.Life == plan.Carried:
		if x <= buf.Start && x >= buf.End {
			return absent
		}
	case x <= buf.Start || x >= buf.End: // freed first, allocated last
		return absent
	}
	if s == nil {
		return present
	}
	return s.state(i, x)
}

// collect fills b.ops with the ops that bring the buffers back, in issue order.
func (b *Builder) collect(x plan.OpID, buffers []plan.BufferID, s *Set, most int) error {
	b.stamp++
	b.ops, b.stack = b.ops[:0], b.stack[:0]
	if x < 0 || int(x) >= len(b.p.Ops) {
		return &Impossible{Buffer: plan.NoBuffer, At: x, Reason: "no such position"}
	}
	for _, t := range buffers {
		b.wanted[t] = b.stamp
	}
	for _, t := range buffers {
		if l := b.p.Buffers[t].Life; l != plan.Inside {
			return &Impossible{Buffer: t, At: x, Reason: "it lives on between iterations"}
		}
		b.stack = append(b.stack[:0], b.at(t, x))
		for len(b.stack) > 0 {
			v := b.stack[len(b.stack)-1]
			b.stack = b.stack[:len(b.stack)-1]
			if why, always := b.need(v, x, s); why != "" {
				return &Impossible{Buffer: t, At: x, Reason: why, Always: always}
			}
			if len(b.ops) > most {
				return fmt.Errorf("before op %d: %w: more than %d ops would run again", x, ErrLong, most)
			}
		}
	}
	slices.Sort(b.ops)
	return nil
}

// need makes sure that a value is available at position x: it is present, or its op joins the chain. If
// neither is possible it says why, and whether that is so whatever is in memory: the chain is shortest if
// nothing else is absent.
func (b *Builder) need(v value, x plan.OpID, s *Set) (why string, always bool) {
	p := b.p
	buf := plan.BufferID(b.buffer[v])
	switch b.inMemory(buf, x, s) {
	case present:
		if b.at(buf, x) == v {
			return "", false
		}
		why = fmt.Sprintf("%s is in memory and has changed since", p.Buffers[buf].Name)
		return why, s == nil && p.Buffers[buf].Life == plan.Persistent
	case blocked:
		return fmt.Sprintf("%s is about to be overwritten", p.Buffers[buf].Name), false
	}
	i := b.from[v]
	if !b.made[v] {
		return fmt.Sprintf("%s is gone and no op of the iteration makes it", p.Buffers[buf].Name), s == nil
	}
	if b.opSeen[i] == b.stamp {
		return "", false
	}
	switch b.stuck[i] {
	case notRerunnable:
		return fmt.Sprintf("%s would have to run again and is not known to give the same bytes",
			p.Ops[i].Name), s == nil
	case unknownUse:
		return fmt.Sprintf("%s would have to run again and the recording does not tell "+
			"what it reads and writes", p.Ops[i].Name), s == nil
	case overItself:
		return fmt.Sprintf("%s would have to run again and overwrites what it reads", p.Ops[i].Name), s == nil
	}
	b.opSeen[i] = b.stamp
	b.ops = append(b.ops, i)
	for k := p.Ops[i].First; k < p.Ops[i].End; k++ {
		a := p.Accesses[k]
		if a.Mode.Reads() {
			b.stack = append(b.stack, b.found[k])
		}
		if a.Mode == plan.Write {
			switch b.inMemory(a.Buffer, x, s) {
			case present:
				if b.at(a.Buffer, x) != b.left[k] {
					return fmt.Sprintf("%s would overwrite %s, which has changed since", p.Ops[i].Name,
						p.Buffers[a.Buffer].Name), false
				}
			case blocked:
				return fmt.Sprintf("%s is about to be overwritten", p.Buffers[a.Buffer].Name), false
			}
		}
	}
	return "", false
}

// measure walks the collected chain as [plan.Assemble] will: outputs are allocated when they are first
// written, scratch is freed after its last use.
func (b *Builder) measure(x plan.OpID, s *Set) Chain {
	p := b.p
	for k, i := range b.ops {
		for _, a := range p.AccessesOf(i) {
			b.lastUse[a.Buffer] = int32(k)
		}
	}
	var c Chain
	var scratch, kept int64
	for k, i := range b.ops {
		c.Time += b.OpTime(i)
		op := &p.Ops[i]
		for a := op.First; a <= op.End; a++ {
			var buf plan.BufferID
			if a < op.End {
				buf = p.Accesses[a].Buffer
			} else if buf = op.Workspace; buf == plan.NoBuffer {
				break
			}
			if b.bufSeen[buf] == b.stamp && b.here[buf] {
				continue
			}
			st := b.inMemory(buf, x, s)
			b.bufSeen[buf], b.here[buf] = b.stamp, true
			switch {
			case b.wanted[buf] == b.stamp:
				kept += b.size[buf]
			case st == absent:
				scratch += b.size[buf]
				if a == op.End {
					b.lastUse[buf] = int32(k)
				}
				b.held[buf] = true
			}
		}
		c.Scratch, c.Peak = max(c.Scratch, scratch), max(c.Peak, scratch+kept)
		for a := op.First; a <= op.End; a++ { // what is used last is used here
			var buf plan.BufferID
			if a < op.End {
				buf = p.Accesses[a].Buffer
			} else if buf = op.Workspace; buf == plan.NoBuffer {
				break
			}
			if b.held[buf] && b.lastUse[buf] <= int32(k) {
				scratch -= b.size[buf]
				b.held[buf], b.here[buf] = false, false
			}
		}
	}
	return c
}
