package plan

// What a problem holds at each op if everything stays in memory, the least that any plan must hold, and when
// buffers are not used.

// Load returns the bytes alive during each op when everything is kept, sizes rounded.
func (p *Problem) Load() []int64 {
	n := len(p.Ops)
	delta := make([]int64, n+1)
	for i := range p.Buffers {
		b, size := &p.Buffers[i], p.rounded[i]
		delta[b.Start] += size
		if b.Life == Carried {
			delta[0] += size
			delta[b.End] -= size
		} else {
			delta[b.End] -= size
		}
	}
	var sum int64
	for i := range delta {
		sum += delta[i]
		delta[i] = sum
	}
	return delta[:n]
}

// PeakLive returns the peak of live bytes when everything is kept, a lower bound for every placement, and the
// first op at which it is reached.
func (p *Problem) PeakLive() (bytes int64, at OpID) {
	for i, v := range p.Load() {
		if v > bytes {
			bytes, at = v, OpID(i)
		}
	}
	return bytes, at
}

// Held returns the most bytes that an iteration holds at one moment when everything is kept, including what
// lies outside. Shares of memory refer to this: unlike what an allocator reserves for it, it is the same on a
// GPU and on a CPU.
func (p *Problem) Held() int64 {
	peak, _ := p.PeakLive()
	return peak + p.Outside
}

// MustReside is what a budget must hold whatever a manager does, in bytes.
type MustReside struct {
	// Persistent are the buffers that stay from one iteration to the next.
	Persistent int64
	// Operands are the most bytes that one op needs besides them: what it reads, writes and works in; Op is
	// that op.
	Operands int64
	Op       OpID
}

// Total is the smallest budget that any plan can meet.
func (m MustReside) Total() int64 { return m.Persistent + m.Operands }

// MustReside returns the floor below which no budget can be met.
func (p *Problem) MustReside() MustReside {
	var m MustReside
	for i := range p.Buffers {
		if p.Buffers[i].Life == Persistent {
			m.Persistent += p.rounded[i]
		}
	}
	seen := make([]OpID, len(p.Buffers)) // the op that a buffer was counted for, plus one
	for i := range p.Ops {
		var sum int64
		add := func(b BufferID, size int64) {
			if seen[b] != OpID(i)+1 && p.Buffers[b].Life != Persistent {
				seen[b] = OpID(i) + 1
				sum += size
			}
		}
		op := &p.Ops[i]
		for _, a := range p.AccessesOf(OpID(i)) {
			if a.Buffer != op.Workspace {
				add(a.Buffer, p.rounded[a.Buffer])
			}
		}
		if op.Workspace != NoBuffer {
			size := p.rounded[op.Workspace]
			for _, v := range op.Variants {
				size = min(size, (v.Workspace+p.Align-1)&^(p.Align-1))
			}
			add(op.Workspace, size)
		}
		if sum > m.Operands {
			m.Operands, m.Op = sum, OpID(i)
		}
	}
	return m
}

// Gap is an idle interval of a buffer: the time between two consecutive accesses. The buffer holds a value
// that the later one needs unless that one is a Write.
type Gap struct {
	Buffer BufferID
	After  OpID // the access before
	Before OpID // the next access
	// Dead says that the next access overwrites the buffer, so nothing need be kept.
	Dead bool
}

// tinyParts says which of a training's tensors are left alone: those smaller than the peak divided by it.
const tinyParts = 4000

// Gaps returns the idle intervals of at least minOps ops between accesses of buffers that do not persist, of
// at least minBytes, in order of buffer and time. A carried buffer's absence across the iteration's end is
// not among them, and where EagerOnly those that eager PyTorch cannot use are not.
func (p *Problem) Gaps(minBytes int64, minOps int) []Gap {
	var gaps []Gap
	if p.EagerOnly { // each tensor that leaves costs the host some microseconds, whatever its size
		peak, _ := p.PeakLive()
		minBytes = max(minBytes, peak/tinyParts)
	}
	for b := range p.Buffers {
		if p.Buffers[b].Life == Persistent || p.rounded[b] < max(minBytes, 1) {
			continue
		}
		touches := p.TouchesOf(BufferID(b))
		for k := 1; k < len(touches); k++ {
			x, y := touches[k-1], touches[k]
			if p.Buffers[b].Life == Carried && x.Op < p.Buffers[b].End && y.Op >= p.Buffers[b].Start {
				continue // two instances: the one from before dies between
			}
			away := Absence{Buffer: BufferID(b), After: x.Op, Before: y.Op}
			if p.EagerOnly && p.EagerRefusal(away).Why != "" {
				continue
			}
			if int(y.Op-x.Op)-1 >= max(minOps, 1) {
				gap := Gap{Buffer: BufferID(b), After: x.Op, Before: y.Op, Dead: y.Mode == Write}
				gaps = append(gaps, gap)
			}
		}
	}
	return gaps
}
