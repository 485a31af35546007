package chain

import (
	"fmt"
	"sort"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// value is the index of one value of one buffer: its contents between two writes. Values of a buffer have
// consecutive indices, in order of time.
type value int32

const (
	// before is the position of a value that comes from before the iteration, or that a buffer holds when it
	// comes into being.
	before plan.OpID = -1
	// never is a deadline that has passed before the iteration begins.
	never plan.OpID = -1
)

// Builder answers questions about recomputing in one problem. It is reusable and deterministic; one goroutine
// at a time may use it.
type Builder struct {
	p    *plan.Problem
	size []int64 // of each buffer, rounded, workspaces with their op's variant 0

	first  []value     // of each buffer, its first value; one entry more than buffers
	buffer []int32     // of each value
	from   []plan.OpID // for each value, the op after which the buffer holds it
	made   []bool      // of each value, whether op from made it (and it did not merely come into being)
	found  []value     // of each access, the value before it
	left   []value     // for each access, the value after it
	// for each value, the last position at which it can be recomputed even if every recomputable gap is
	// dropped
	base  []plan.OpID
	until []plan.OpID // of each value, the last position at which it can be had so, made or kept
	stuck []reason    // for each op, why it cannot be rerun

	// What follows is scratch of one query, valid where its stamp is the query's.
	stamp   int32
	opSeen  []int32 // of each op
	wanted  []int32 // for each buffer: whether to bring it back
	bufSeen []int32 // of each buffer: it has an entry in lastUse and in here
	wroteAt []int32 // of each buffer: an op of the chain writes all of it, with the value wrote
	wrote   []value
	lastUse []int32
	here    []bool
	held    []bool // of each buffer: it is scratch of the chain just now
	ops     []plan.OpID
	stack   []value
}

// reason says why an op cannot be rerun.
type reason uint8

const (
	free reason = iota
	notRerunnable
	unknownUse
	overItself
)

// New indexes a finished problem.
func New(p *plan.Problem) *Builder {
	n, nb := len(p.Ops), len(p.Buffers)
	b := &Builder{p: p, size: make([]int64, nb), first: make([]value, nb+1),
		found: make([]value, len(p.Accesses)), left: make([]value, len(p.Accesses)),
		stuck: make([]reason, n), opSeen: make([]int32, n), wanted: make([]int32, nb),
		bufSeen: make([]int32, nb), wroteAt: make([]int32, nb), wrote: make([]value, nb),
		lastUse: make([]int32, nb), here: make([]bool, nb), held: make([]bool, nb)}
	for i := range b.size {
		b.size[i] = p.Rounded(plan.BufferID(i))
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		if w := op.Workspace; w != plan.NoBuffer && op.Variants != nil {
			b.size[w] = (op.Variants[0].Workspace + p.Align - 1) &^ (p.Align - 1)
		}
		if !op.Rerunnable {
			b.stuck[i] = notRerunnable
		}
		for k := op.First; k < op.End && b.stuck[i] == free; k++ {
			b.stuck[i] = b.access(op.First, k)
		}
	}
	clear(b.bufSeen)
	b.number()
	b.deadlines()
	return b
}

// access returns what of access k, one of an op whose first access is first, keeps the op from running again.
func (b *Builder) access(first, k int32) reason {
	a := b.p.Accesses[k]
	if a.Mode == plan.Use {
		return unknownUse
	}
	if x := a.Buffer; b.bufSeen[x] > first &&
		(a.Mode == plan.Write) != (b.p.Accesses[b.bufSeen[x]-1].Mode == plan.Write) {
		return overItself
	}
	b.bufSeen[a.Buffer] = k + 1 // only here bufSeen is an access
	return free
}

// number gives every value its index. It walks the ops as recorded: an op that touches a buffer several times
// reads it before it writes it.
func (b *Builder) number() {
	p := b.p
	// for each buffer, its number of values; then the next index
	writes := make([]int32, len(p.Buffers)+1)
	lastBy := make([]plan.OpID, len(p.Buffers))
	for i := range lastBy {
		lastBy[i] = before
	}
	for i := range p.Ops {
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			if a.Mode.Writes() && lastBy[a.Buffer] != plan.OpID(i) {
				lastBy[a.Buffer] = plan.OpID(i)
				writes[a.Buffer]++
			}
		}
	}
	total := value(0)
	for i := range p.Buffers {
		b.first[i] = total
		total += value(writes[i]) + 1
		if p.Buffers[i].Life == plan.Carried {
			total++ // the next iteration's instance comes into being with a value of its own
		}
	}
	b.first[len(p.Buffers)] = total
	b.buffer, b.from, b.made = make([]int32, total), make([]plan.OpID, total), make([]bool, total)
	last := make([]value, len(p.Buffers))
	born := make([]bool, len(p.Buffers))
	for i := range last {
		last[i] = b.first[i]
		b.from[last[i]] = before
		for v := b.first[i]; v < b.first[i+1]; v++ {
			b.buffer[v] = int32(i)
		}
	}
	bear := func(i plan.BufferID) {
		born[i] = true
		last[i]++
		b.from[last[i]] = p.Buffers[i].Start
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		for k := op.First; k < op.End; k++ {
			x := p.Accesses[k].Buffer
			if buf := &p.Buffers[x]; buf.Life == plan.Carried && !born[x] && plan.OpID(i) >= buf.Start {
				bear(x)
			}
			b.found[k] = last[x]
		}
		for k := op.First; k < op.End; k++ {
			x := p.Accesses[k].Buffer
			if p.Accesses[k].Mode.Writes() && last[x] == b.found[k] {
				last[x]++
				b.from[last[x]], b.made[last[x]] = plan.OpID(i), true
			}
			b.left[k] = last[x]
		}
	}
	for i := range p.Buffers {
		if p.Buffers[i].Life == plan.Carried && !born[i] {
			bear(plan.BufferID(i))
		}
	}
}

// next returns the op that replaces value v, one past the last op if none does.
func (b *Builder) next(v value) plan.OpID {
	if v+1 < b.first[b.buffer[v]+1] {
		return b.from[v+1]
	}
	return plan.OpID(len(b.p.Ops)) + 1
}

// deadlines computes base and until. Values are made in order of ops, so one pass in that order finds all
// inputs done.
func (b *Builder) deadlines() {
	p := b.p
	b.base, b.until = make([]plan.OpID, len(b.from)), make([]plan.OpID, len(b.from))
	settle := func(v value, base plan.OpID) {
		buf := &p.Buffers[b.buffer[v]]
		hold := b.next(v)
		if buf.Life == plan.Inside || buf.Life == plan.Carried && b.from[v] < buf.Start {
			hold = min(hold, buf.End-1) // at its end it is freed first
		}
		b.base[v], b.until[v] = base, max(hold, min(base, b.next(v)))
	}
	for v := range b.from {
		if !b.made[v] {
			settle(value(v), never)
		}
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		for k := op.First; k < op.End; k++ {
			if p.Accesses[k].Mode.Writes() && b.made[b.left[k]] {
				settle(b.left[k], b.makeable(plan.OpID(i), p.Accesses[k].Buffer))
			}
		}
	}
}

// makeable returns the last position at which op i can be rerun to recompute buffer x.
func (b *Builder) makeable(i plan.OpID, x plan.BufferID) plan.OpID {
	p := b.p
	if b.stuck[i] != free {
		return never
	}
	d := plan.OpID(len(p.Ops))
	op := &p.Ops[i]
	for k := op.First; k < op.End; k++ {
		a := p.Accesses[k]
		switch {
		case a.Buffer == x && a.Mode.Reads(): // an intermediate value on the way to that of x
			d = min(d, b.base[b.found[k]])
		case a.Buffer != x && a.Mode == plan.Read:
			d = min(d, b.until[b.found[k]])
		case a.Buffer != x && a.Mode == plan.Write: // if it is in memory, it must hold what the op writes
			d = min(d, b.next(b.left[k]))
		case a.Buffer != x: // changed in place: not to be done twice
			return never
		}
	}
	return d
}

// at returns the value that buffer x holds at position i of the recording.
func (b *Builder) at(x plan.BufferID, i plan.OpID) value {
	lo, hi := int(b.first[x]), int(b.first[x+1])
	return value(lo + sort.Search(hi-lo-1, func(k int) bool { return b.from[lo+k+1] >= i }))
}

// Recomputable reports whether the gap's buffer may be dropped in it, whatever other recomputable gaps are
// dropped as well; if not, why says so in a few words. Absences of other kinds (a swap, or the loss of a
// value that cannot be recomputed) can still prevent it: [Builder.PlanDrops] finds them.
func (b *Builder) Recomputable(g plan.Gap) (ok bool, why string) {
	p := b.p
	if err := checkGap(b.p, g); err != nil {
		return false, err.Error()
	}
	v := b.at(g.Buffer, g.Before)
	if !b.made[v] {
		return false, "no op of the iteration makes it"
	}
	if b.base[v] >= g.Before {
		return true, ""
	}
	switch i := b.from[v]; b.stuck[i] {
	case notRerunnable:
		return false, fmt.Sprintf("%s is not known to give the same bytes when it runs again", p.Ops[i].Name)
	case unknownUse:
		return false, fmt.Sprintf("the recording does not tell what %s reads and writes", p.Ops[i].Name)
	case overItself:
		return false, fmt.Sprintf("%s reads a buffer and overwrites it", p.Ops[i].Name)
	}
	return false, fmt.Sprintf("what %s needs is overwritten, or gone for good, by then",
		p.Ops[b.from[v]].Name)
}

// checkGap returns what is wrong with a gap.
func checkGap(p *plan.Problem, g plan.Gap) error {
	n := plan.OpID(len(p.Ops))
	if g.Buffer < 0 || int(g.Buffer) >= len(p.Buffers) {
		return fmt.Errorf("%w gap: buffer %d of %d", plan.ErrInvalid, g.Buffer, len(p.Buffers))
	}
	buf := &p.Buffers[g.Buffer]
	switch {
	case g.After < 0 || g.Before <= g.After || g.Before >= n:
		return fmt.Errorf("%w gap: buffer %d (%s) is idle after op %d and before op %d of %d",
			plan.ErrInvalid, g.Buffer, buf.Name, g.After, g.Before, n)
	case buf.Life == plan.Persistent:
		return fmt.Errorf("%w gap: buffer %d (%s) stays between iterations", plan.ErrInvalid, g.Buffer,
			buf.Name)
	case buf.Life == plan.Carried:
		return fmt.Errorf("%w gap: buffer %d (%s) is carried into the next iteration", plan.ErrInvalid,
			g.Buffer, buf.Name)
	case !buf.AliveAt(g.After) || !buf.AliveAt(g.Before):
		return fmt.Errorf("%w gap: buffer %d (%s) lives [%d, %d) and is idle after op %d and before op %d",
			plan.ErrInvalid, g.Buffer, buf.Name, buf.Start, buf.End, g.After, g.Before)
	}
	t := p.TouchesOf(g.Buffer)
	k := sort.Search(len(t), func(i int) bool { return t[i].Op > g.After })
	if k == len(t) || t[k].Op < g.Before {
		return fmt.Errorf("%w gap: buffer %d (%s) is not idle between op %d and op %d", plan.ErrInvalid,
			g.Buffer, buf.Name, g.After, g.Before)
	}
	return nil
}

// Gaps returns the gaps of [plan.Problem.Gaps] that are [Builder.Recomputable].
func (b *Builder) Gaps(minBytes int64, minOps int) []plan.Gap {
	all := b.p.Gaps(minBytes, minOps)
	kept := all[:0]
	for _, g := range all {
		if b.p.Buffers[g.Buffer].Life != plan.Inside {
			continue
		}
		if v := b.at(g.Buffer, g.Before); b.made[v] && b.base[v] >= g.Before {
			kept = append(kept, g)
		}
	}
	return kept
}

// OpTime returns what one more run of op i adds to its stream, in nanoseconds: its duration or, if longer,
// the host's time to issue it.
func (b *Builder) OpTime(i plan.OpID) int64 {
	op := &b.p.Ops[i]
	return max(op.Duration, op.Gap+b.p.Hardware.LaunchGap)
}
