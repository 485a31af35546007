package plan

import "fmt"

// Sectioned returns the problem with every buffer above sectionBytes cut into sections of that size, the last
// one smaller, each touched by the ops that touch the buffer. That is tvDNN's memory-object sectioning: a
// section can be absent while its neighbours are there, and no hole need be as large as the whole buffer.
// Whether a target can give an op sections that are not neighbours is the executor's business: with virtual
// memory it can, at the granularity of its pages. Buffers that persist and workspaces stay whole. The section
// size is rounded up to the alignment.
func (p *Problem) Sectioned(sectionBytes int64) (*Problem, error) {
	if sectionBytes <= 0 {
		return nil, fmt.Errorf("cut into sections: %d bytes are too few; take 2 MiB or more", sectionBytes)
	}
	sectionBytes = (sectionBytes + p.Align - 1) &^ (p.Align - 1)
	q := *p
	q.Buffers, q.Accesses = make([]Buffer, 0, len(p.Buffers)), make([]Access, 0, len(p.Accesses))
	q.Ops = append([]Op(nil), p.Ops...)
	first := make([]BufferID, len(p.Buffers)+1)
	workspace := make([]bool, len(p.Buffers))
	for i := range p.Ops {
		if w := p.Ops[i].Workspace; w != NoBuffer {
			workspace[w] = true
		}
	}
	for b := range p.Buffers {
		first[b] = BufferID(len(q.Buffers))
		buf := p.Buffers[b]
		if buf.Life == Persistent || workspace[b] || buf.Size <= sectionBytes {
			q.Buffers = append(q.Buffers, buf)
			continue
		}
		if n := buf.Size / sectionBytes; n > 1<<20 {
			return nil, fmt.Errorf("cut into sections: buffer %d (%s) would have %d "+
				"sections; take larger ones", b, buf.Name, n)
		}
		for from := int64(0); from < buf.Size; from += sectionBytes {
			part := buf
			part.Size = min(sectionBytes, buf.Size-from)
			part.Name = fmt.Sprintf("%s[%d]", buf.Name, from/sectionBytes)
			q.Buffers = append(q.Buffers, part)
		}
	}
	first[len(p.Buffers)] = BufferID(len(q.Buffers))
	for i := range q.Ops {
		op := &q.Ops[i]
		if op.Workspace != NoBuffer {
			op.Workspace = first[op.Workspace]
		}
		op.First = int32(len(q.Accesses))
		for _, a := range p.AccessesOf(OpID(i)) {
			for b := first[a.Buffer]; b < first[a.Buffer+1]; b++ {
				q.Accesses = append(q.Accesses, Access{Buffer: b, Mode: a.Mode})
			}
		}
		op.End = int32(len(q.Accesses))
	}
	if err := q.Finish(); err != nil {
		return nil, err
	}
	return &q, nil
}
