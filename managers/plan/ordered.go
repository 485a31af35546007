package plan

// ordered checks with a vector clock a queue that every pair of conflicting touches is ordered by the
// program's waits.
func (v *validator) ordered() error {
	c := newClocks(v)
	for s := range v.pl.Steps {
		if err := c.step(s); err != nil {
			return err
		}
	}
	return nil
}

// clocks are the vector clocks of one walk over a plan's steps. A clock has one step for each queue, the last
// that is known to be done there; -1 for none.
type clocks struct {
	v       *validator
	now     []int32 // for each queue, a clock: what it has waited for so far
	done    []int32 // a clock of each step: what its completion implies
	touched []int32 // a clock of each instance: its last touches
	wrote   []int32 // for each instance, a clock: the steps that wrote it
	before  []int32 // a clock of each instance: the touches of the bytes that it took over
	bytes   *rangeMax
	// of each buffer, the last step that reads its copy on the host, and the last that writes it
	hostRead, hostWrote []int32
	at                  []InstanceID // of each buffer
}

func newClocks(v *validator) *clocks {
	p, pl, k := v.p, v.pl, v.k
	c := &clocks{v: v, now: unset(k * k), done: make([]int32, len(pl.Steps)*k),
		touched: unset(len(pl.Instances) * k), wrote: unset(len(pl.Instances) * k),
		before: unset(len(pl.Instances) * k), hostRead: unset(len(p.Buffers)),
		hostWrote: unset(len(p.Buffers)), at: make([]InstanceID, len(p.Buffers))}
	if pl.Policy == nil {
		c.bytes = newRangeMax(pl.Instances, k)
	}
	for _, i := range pl.Resident {
		c.at[pl.Instances[i].Buffer] = i
	}
	return c
}

// unset returns n steps that are none.
func unset(n int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = -1
	}
	return s
}

// clock returns the i-th of a list of clocks.
func (c *clocks) clock(list []int32, i int) []int32 { return list[i*c.v.k : (i+1)*c.v.k] }

// step checks a step and takes note of it.
func (c *clocks) step(s int) error {
	pl := c.v.pl
	switch st := &pl.Steps[s]; st.Kind {
	case Alloc:
		x := &pl.Instances[st.Instance]
		c.at[x.Buffer] = st.Instance
		if c.bytes != nil {
			c.bytes.ask(x, c.clock(c.before, int(st.Instance)))
		}
	case Free:
		if x := &pl.Instances[st.Instance]; c.bytes != nil {
			c.bytes.touch(x, c.clock(c.touched, int(st.Instance)))
			c.bytes.touch(x, c.clock(c.before, int(st.Instance)))
		}
	case Wait:
		raise(c.clock(c.now, int(st.Queue)), c.clock(c.done, int(st.On)))
	case Out, In:
		return c.copied(s, st)
	case Run, Again:
		return c.ran(s, st)
	}
	return nil
}

// copied checks a copy, whose other end is the buffer's copy on the host.
func (c *clocks) copied(s int, st *Step) error {
	p := c.v.p
	b := c.v.pl.Instances[st.Instance].Buffer
	now := c.clock(c.now, int(st.Queue))
	if st.Kind == Out {
		if on := c.hostRead[b]; on >= 0 && now[p.InQueue()] < on {
			return c.v.wrong(s, "the copy of buffer %d on the host is overwritten while step %d reads it", b,
				on)
		}
		c.hostWrote[b] = int32(s)
	} else {
		if on := c.hostWrote[b]; on >= 0 && now[p.OutQueue()] < on {
			return c.v.wrong(s, "the copy of buffer %d on the host is read before step %d has written it", b,
				on)
		}
		c.hostRead[b] = int32(s)
	}
	if err := c.touch(s, st.Queue, st.Instance, st.Kind == In); err != nil {
		return err
	}
	c.complete(s, st.Queue)
	return nil
}

// ran checks an op.
func (c *clocks) ran(s int, st *Step) error {
	p := c.v.p
	for _, a := range p.AccessesOf(st.Op) {
		if err := c.touch(s, st.Queue, c.at[a.Buffer], a.Mode.Writes()); err != nil {
			return err
		}
	}
	if w := p.Ops[st.Op].Workspace; w != NoBuffer {
		if err := c.touch(s, st.Queue, c.at[w], true); err != nil {
			return err
		}
	}
	c.complete(s, st.Queue)
	return nil
}

// touch checks that a step on queue q may touch an instance, and takes note of that.
func (c *clocks) touch(s int, q int16, i InstanceID, write bool) error {
	b := c.v.pl.Instances[i].Buffer
	touched, wrote := c.clock(c.touched, int(i)), c.clock(c.wrote, int(i))
	if err := c.behind(s, q, c.clock(c.before, int(i)), "taking memory over for", b); err != nil {
		return err
	}
	if err := c.behind(s, q, wrote, "a touch of", b); err != nil {
		return err
	}
	if write {
		if err := c.behind(s, q, touched, "a write of", b); err != nil {
			return err
		}
		wrote[q] = int32(s)
	}
	touched[q] = int32(s)
	return nil
}

// behind checks that a step on queue q comes after earlier ones, one of each queue.
func (c *clocks) behind(s int, q int16, earlier []int32, what string, b BufferID) error {
	now := c.clock(c.now, int(q))
	for r, on := range earlier {
		if on >= 0 && int16(r) != q && now[r] < on {
			return c.v.wrong(s, "%s buffer %d (%s) is not ordered behind step %d of queue %d", what, b,
				c.v.p.Buffers[b].Name, on, r)
		}
	}
	return nil
}

// complete notes what follows once a step on queue q is done.
func (c *clocks) complete(s int, q int16) {
	now := c.clock(c.now, int(q))
	now[q] = int32(s)
	copy(c.clock(c.done, s), now)
}
