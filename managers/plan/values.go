package plan

import "fmt"

// Versions of a buffer's value. Version 0 is its contents when it is allocated (anything) or when the
// iteration begins.
const garbage int32 = -1

// versions are the values that each access of the recorded iteration found and left.
type versions struct {
	before, after []int32 // by access; 32 bits are enough since an access makes at most one version
	last          []int32 // by buffer, when the iteration ends
}

// versionsOf numbers the values of all buffers. A buffer that is touched several times by one op is read
// before it is written.
func versionsOf(p *Problem) versions {
	v := versions{before: make([]int32, len(p.Accesses)), after: make([]int32, len(p.Accesses)),
		last: make([]int32, len(p.Buffers))}
	born := make([]bool, len(p.Buffers))
	for i := range p.Ops {
		op := &p.Ops[i]
		for k := op.First; k < op.End; k++ {
			b := p.Accesses[k].Buffer
			if buf := &p.Buffers[b]; buf.Life == Carried && !born[b] && OpID(i) >= buf.Start {
				// the next iteration's instance: a new value, whatever it holds
				born[b], v.last[b] = true, v.last[b]+1
			}
			v.before[k] = v.last[b]
		}
		for k := op.First; k < op.End; k++ {
			if b := p.Accesses[k].Buffer; p.Accesses[k].Mode.Writes() && v.last[b] == v.before[k] {
				v.last[b]++
			}
			v.after[k] = v.last[p.Accesses[k].Buffer]
		}
	}
	return v
}

// values follows versions through the program.
func (v *validator) values() error {
	p, pl := v.p, v.pl
	recorded := versionsOf(p)
	holds := make([]int32, len(pl.Instances))
	host := make([]int32, len(p.Buffers))
	at := make([]InstanceID, len(p.Buffers))
	// for a value that a rerun op made, the position of the rerun, plus one
	remade := make([]int32, len(pl.Instances))
	fresh := make([]bool, len(p.Buffers)) // whether the buffer came into being in this iteration
	for b := range at {
		at[b], host[b] = none, garbage
	}
	for _, i := range pl.Resident {
		b := pl.Instances[i].Buffer
		if at[b] != none || p.Buffers[b].Life == Inside {
			return fmt.Errorf("%w plan: buffer %d (%s) is resident and should not be", ErrInvalid, b,
				p.Buffers[b].Name)
		}
		at[b] = i
	}
	position := int32(1) // ops that have run, plus one
	for s := range pl.Steps {
		st := &pl.Steps[s]
		switch st.Kind {
		case Alloc:
			b := pl.Instances[st.Instance].Buffer
			if at[b] != none {
				return v.wrong(s, "buffer %d (%s) is in memory twice", b, p.Buffers[b].Name)
			}
			at[b], holds[st.Instance] = st.Instance, garbage
			buf := &p.Buffers[b]
			// whatever leaves comes back at a later position
			if !fresh[b] && st.Op == buf.Start && buf.Life != Persistent {
				fresh[b] = true
				if buf.Life == Carried {
					holds[st.Instance] = bornVersion(p, &recorded, b)
				} else {
					holds[st.Instance] = 0
				}
			}
		case Free:
			at[pl.Instances[st.Instance].Buffer] = none
		case Out:
			b := pl.Instances[st.Instance].Buffer
			if holds[st.Instance] == garbage {
				return v.wrong(s, "buffer %d (%s) is copied out before it holds anything", b,
					p.Buffers[b].Name)
			}
			host[b] = holds[st.Instance]
		case In:
			b := pl.Instances[st.Instance].Buffer
			if host[b] == garbage {
				return v.wrong(s, "buffer %d (%s) is copied in and was never copied out", b,
					p.Buffers[b].Name)
			}
			holds[st.Instance], remade[st.Instance] = host[b], 0
		case Run, Again:
			if err := v.op(s, &recorded, at, holds, remade, position); err != nil {
				return err
			}
			if st.Kind == Run {
				position++
			}
		}
	}
	return v.steady(&recorded, at, holds)
}

// steady checks that the iteration ends as it began: the same buffers are in memory, at the same places, and
// hold their values.
func (v *validator) steady(recorded *versions, at []InstanceID, holds []int32) error {
	p, pl := v.p, v.pl
	for b := range p.Buffers {
		buf := &p.Buffers[b]
		switch {
		case buf.Life == Inside && at[b] != none:
			return fmt.Errorf("%w plan: buffer %d (%s) is still there when the iteration ends", ErrInvalid, b,
				buf.Name)
		case buf.Life != Inside && at[b] == none:
			return fmt.Errorf("%w plan: buffer %d (%s) is not there for the next iteration", ErrInvalid, b,
				buf.Name)
		case buf.Life != Inside && holds[at[b]] != recorded.last[b] && len(p.TouchesOf(BufferID(b))) > 0:
			return fmt.Errorf("%w plan: buffer %d (%s) does not hold its value when the iteration ends",
				ErrInvalid, b, buf.Name)
		}
	}
	for _, i := range pl.Resident {
		b := pl.Instances[i].Buffer
		if end := at[b]; pl.Policy == nil && pl.Instances[end].Offset != pl.Instances[i].Offset {
			return fmt.Errorf("%w plan: buffer %d (%s) begins the iteration at offset %d and ends it at %d",
				ErrInvalid, b, p.Buffers[b].Name, pl.Instances[i].Offset, pl.Instances[end].Offset)
		}
	}
	return nil
}

// bornVersion returns the version that a carried buffer has when its new instance comes into being: that
// before its first access there.
func bornVersion(p *Problem, recorded *versions, b BufferID) int32 {
	for i := int(p.Buffers[b].Start); i < len(p.Ops); i++ {
		for k := p.Ops[i].First; k < p.Ops[i].End; k++ {
			if p.Accesses[k].Buffer == b {
				return recorded.before[k]
			}
		}
	}
	return recorded.last[b]
}

// op checks that a run finds the versions of the recording, and leaves those of the recording. A rerun op may
// not overwrite another value, unless that was recomputed at the same position: then it is scratch of the
// chain, such as one of two values that a buffer had in turn.
func (v *validator) op(s int, recorded *versions, at []InstanceID, holds, remade []int32,
	position int32) error {
	p, op := v.p, &v.p.Ops[v.pl.Steps[s].Op]
	again := v.pl.Steps[s].Kind == Again
	for k := op.First; k < op.End; k++ {
		a := p.Accesses[k]
		id := at[a.Buffer]
		switch {
		case id == none:
			return v.wrong(s, "op %d (%s) touches buffer %d (%s), which is not in memory", v.pl.Steps[s].Op,
				op.Name, a.Buffer, p.Buffers[a.Buffer].Name)
		case a.Mode.Reads() && holds[id] != recorded.before[k]:
			return v.wrong(s, "op %d (%s) finds version %d of buffer %d (%s) and read "+
				"version %d in the recording", v.pl.Steps[s].Op, op.Name,
				holds[id], a.Buffer, p.Buffers[a.Buffer].Name, recorded.before[k])
		case again && a.Mode == Write && holds[id] != garbage && holds[id] != recorded.after[k] &&
			remade[id] != position:
			return v.wrong(s, "op %d (%s), run again, would overwrite version %d of buffer %d (%s)",
				v.pl.Steps[s].Op, op.Name, holds[id], a.Buffer, p.Buffers[a.Buffer].Name)
		}
	}
	if w := op.Workspace; w != NoBuffer {
		if at[w] == none {
			return v.wrong(s, "op %d (%s) has no workspace", v.pl.Steps[s].Op, op.Name)
		}
	}
	for k := op.First; k < op.End; k++ {
		if p.Accesses[k].Mode.Writes() {
			made := int32(0)
			if again {
				made = position
			}
			remade[at[p.Accesses[k].Buffer]] = made
		}
		holds[at[p.Accesses[k].Buffer]] = recorded.after[k]
	}
	return nil
}

// pinned checks the host memory that copies hold: from a buffer's copy out to the last copy in that reads it.
func (v *validator) pinned() error {
	limit := v.p.Hardware.PinnedBytes
	if peak, at := v.pl.PinnedPeak(v.p); limit > 0 && peak > limit {
		return v.wrong(at, "%d bytes of pinned host memory, and the limit is %d", peak, limit)
	}
	return nil
}

// PinnedPeak returns the most bytes of pinned host memory that copies hold at one step, and that step.
func (pl *Plan) PinnedPeak(p *Problem) (bytes int64, at int) {
	last := make([]int32, len(pl.Steps)) // for an In, 1 if it is the last reader of its copy
	needed := make([]bool, len(p.Buffers))
	for s := len(pl.Steps) - 1; s >= 0; s-- {
		switch st := &pl.Steps[s]; st.Kind {
		case In:
			if b := pl.Instances[st.Instance].Buffer; !needed[b] {
				last[s], needed[b] = 1, true
			}
		case Out:
			needed[pl.Instances[st.Instance].Buffer] = false
		}
	}
	held := make([]int64, len(p.Buffers))
	var sum int64
	for s := range pl.Steps {
		switch st := &pl.Steps[s]; {
		case st.Kind == Out:
			x := &pl.Instances[st.Instance]
			sum += x.Size - held[x.Buffer]
			held[x.Buffer] = x.Size
		case st.Kind == In && last[s] == 1:
			x := &pl.Instances[st.Instance]
			sum -= held[x.Buffer]
			held[x.Buffer] = 0
		}
		if sum > bytes {
			bytes, at = sum, s
		}
	}
	return bytes, at
}
