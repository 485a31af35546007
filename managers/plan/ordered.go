package plan

// ordered checks with a vector clock a queue that every pair of conflicting touches is ordered by the
// program's waits.
func (v *validator) ordered() error {
	p, pl, k := v.p, v.pl, v.k
	clock := make([]int32, k*k)
	for i := range clock {
		clock[i] = -1
	}
	done := make([]int32, len(pl.Steps)*k) // what a step's completion implies
	touched := make([]int32, len(pl.Instances)*k)
	wrote := make([]int32, len(pl.Instances)*k)
	hostRead, hostWrote := make([]int32, len(p.Buffers)), make([]int32, len(p.Buffers))
	for _, s := range [][]int32{touched, wrote, hostRead, hostWrote} {
		for i := range s {
			s[i] = -1
		}
	}
	var bytes *rangeMax
	before := make([]int32, len(pl.Instances)*k) // the touches of the bytes that an instance took over
	for i := range before {
		before[i] = -1
	}
	if pl.Policy == nil {
		bytes = newRangeMax(pl.Instances, k)
	}
	at := make([]InstanceID, len(p.Buffers))
	for _, i := range pl.Resident {
		at[pl.Instances[i].Buffer] = i
	}
	behind := func(s int, q int16, steps []int32, what string, b BufferID) error {
		for r, on := range steps {
			if on >= 0 && int16(r) != q && clock[int(q)*k+r] < on {
				return v.wrong(s, "%s buffer %d (%s) is not ordered behind step %d of queue %d", what, b,
					p.Buffers[b].Name, on, r)
			}
		}
		return nil
	}
	touch := func(s int, q int16, i InstanceID, write bool) error {
		b := pl.Instances[i].Buffer
		lo, hi := int(i)*k, (int(i)+1)*k
		if err := behind(s, q, before[lo:hi], "taking memory over for", b); err != nil {
			return err
		}
		if err := behind(s, q, wrote[lo:hi], "a touch of", b); err != nil {
			return err
		}
		if write {
			if err := behind(s, q, touched[lo:hi], "a write of", b); err != nil {
				return err
			}
			wrote[lo+int(q)] = int32(s)
		}
		touched[lo+int(q)] = int32(s)
		return nil
	}
	complete := func(s int, q int16) {
		c := clock[int(q)*k : (int(q)+1)*k]
		c[q] = int32(s)
		copy(done[s*k:], c)
	}
	for s := range pl.Steps {
		st := &pl.Steps[s]
		var err error
		switch st.Kind {
		case Alloc:
			at[pl.Instances[st.Instance].Buffer] = st.Instance
			if bytes != nil {
				bytes.ask(&pl.Instances[st.Instance], before[int(st.Instance)*k:(int(st.Instance)+1)*k])
			}
		case Free:
			if bytes != nil {
				i := int(st.Instance)
				bytes.touch(&pl.Instances[i], touched[i*k:(i+1)*k])
				bytes.touch(&pl.Instances[i], before[i*k:(i+1)*k])
			}
		case Wait:
			raise(clock[int(st.Queue)*k:(int(st.Queue)+1)*k], done[int(st.On)*k:(int(st.On)+1)*k])
		case Out:
			b := pl.Instances[st.Instance].Buffer
			if on := hostRead[b]; on >= 0 && clock[int(st.Queue)*k+int(p.InQueue())] < on {
				err = v.wrong(s, "the copy of buffer %d on the host is overwritten while step %d reads it", b,
					on)
			} else if err = touch(s, st.Queue, st.Instance, false); err == nil {
				hostWrote[b] = int32(s)
				complete(s, st.Queue)
			}
		case In:
			b := pl.Instances[st.Instance].Buffer
			if on := hostWrote[b]; on >= 0 && clock[int(st.Queue)*k+int(p.OutQueue())] < on {
				err = v.wrong(s, "the copy of buffer %d on the host is read before step %d has written it", b,
					on)
			} else if err = touch(s, st.Queue, st.Instance, true); err == nil {
				hostRead[b] = int32(s)
				complete(s, st.Queue)
			}
		case Run, Again:
			for _, a := range p.AccessesOf(st.Op) {
				if err = touch(s, st.Queue, at[a.Buffer], a.Mode.Writes()); err != nil {
					break
				}
			}
			if w := p.Ops[st.Op].Workspace; w != NoBuffer && err == nil {
				err = touch(s, st.Queue, at[w], true)
			}
			complete(s, st.Queue)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
