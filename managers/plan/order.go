package plan

// Order between queues.
//
// Steps are issued in one order, but queues run side by side: a copy out must see what the op before it
// wrote, and an op that takes the place of a buffer which is still being copied out must wait. Order walks
// the program once, tracks for each queue how far it is known to be behind every other (a vector clock), and
// inserts a Wait only where a step would otherwise not be ordered after the writer of what it reads; the
// readers and the writer of what it overwrites; or the last touch of every byte that its instance takes over
// from another. A wait that an earlier one implies is left out.
//
// Complexity: O(steps x queues x log instances). Rejected: one event per step (thousands of unnecessary
// waits, each a driver call on a device); waiting for the whole device at each swap (vDNN's way, which its
// planner requests itself).

// The value of [orderer.wrote] if no step of the program wrote an instance.
const (
	neverWritten  = -1
	writtenBefore = -2 // resident: it holds a value from before the iteration
)

// orderer is the state of one walk.
type orderer struct {
	p  *Problem
	pl *Plan
	k  int // queues

	out   []Step
	clock []int32 // for each queue: the last step of each queue that it is known to be behind
	// of each step written: what its completion implies; k a step, -1 throughout for steps that nothing waits
	// for
	known  []int32
	never  []int32 // -1 for each queue
	moved  []int32 // the index of each old step in the new program
	touch  []int32 // of each instance: the last step of each queue that touched it, or the bytes before it
	wrote  []int32 // for each instance: the step that last wrote it, -1 if none did
	host   []int32 // of each buffer: the step of each queue that last touched its copy on the host
	hostBy []int32 // of each buffer: the copy out that made its copy on the host
	bytes  *rangeMax
	found  []InstanceID // of each buffer: its instance in memory
}

// Order inserts the waits that a placed program needs in addition to those that it has. Plans with a Policy
// are ordered by data only: memory that is taken over is the allocator's business.
func (pl *Plan) Order(p *Problem) {
	o := &orderer{p: p, pl: pl, k: p.Queues(), out: make([]Step, 0, len(pl.Steps)+2*len(pl.Absences)),
		found: make([]InstanceID, len(p.Buffers))}
	fill := func(n int) []int32 {
		s := make([]int32, n)
		for i := range s {
			s[i] = -1
		}
		return s
	}
	o.clock, o.moved, o.never = fill(o.k*o.k), make([]int32, len(pl.Steps)+1), fill(o.k)
	o.known = make([]int32, 0, o.k*cap(o.out))
	o.touch, o.wrote = fill(len(pl.Instances)*o.k), fill(len(pl.Instances))
	o.host, o.hostBy = fill(len(p.Buffers)*o.k), fill(len(p.Buffers))
	if pl.Policy == nil {
		o.bytes = newRangeMax(pl.Instances, o.k)
	}
	for _, i := range pl.Resident {
		o.found[pl.Instances[i].Buffer], o.wrote[i] = i, writtenBefore
	}
	for s := range pl.Steps {
		o.moved[s] = int32(len(o.out))
		o.step(pl.Steps[s])
	}
	o.moved[len(pl.Steps)] = int32(len(o.out))
	pl.Steps = o.out
	for i := range pl.Instances {
		x := &pl.Instances[i]
		if x.From >= 0 {
			x.From = o.moved[x.From]
		}
		x.To = o.moved[x.To]
	}
	// Steps that carry a Wait moved with it: an Alloc's index must stay that of the Alloc itself.
	for s := range pl.Steps {
		switch st := &pl.Steps[s]; st.Kind {
		case Alloc:
			pl.Instances[st.Instance].From = int32(s)
		case Free:
			pl.Instances[st.Instance].To = int32(s)
		}
	}
}

func (o *orderer) emit(s Step) int32 {
	o.out = append(o.out, s)
	o.known = append(o.known, o.never...)
	return int32(len(o.out) - 1)
}

// behind makes queue q wait for step on, unless it is known to be behind it already.
func (o *orderer) behind(q int16, on int32, at OpID) {
	if on < 0 || o.out[on].Queue == q || o.clock[int(q)*o.k+int(o.out[on].Queue)] >= on {
		return
	}
	o.emit(Step{Kind: Wait, Queue: q, Op: at, On: on})
	raise(o.clock[int(q)*o.k:(int(q)+1)*o.k], o.known[int(on)*o.k:(int(on)+1)*o.k])
}

// work writes a step that does something on its queue, and what its completion implies.
func (o *orderer) work(s Step) int32 {
	i := o.emit(s)
	c := o.clock[int(s.Queue)*o.k : (int(s.Queue)+1)*o.k]
	c[s.Queue] = i
	copy(o.known[int(i)*o.k:], c)
	return i
}

func (o *orderer) of(i InstanceID) []int32 { return o.touch[int(i)*o.k : (int(i)+1)*o.k] }

// reads orders a read of instance i on queue q. What was never written counts as written now, since its bytes
// may be another's.
func (o *orderer) reads(i InstanceID, q int16, at OpID) {
	if o.wrote[i] == neverWritten {
		o.writes(i, q, at)
		return
	}
	o.behind(q, o.wrote[i], at)
}

func (o *orderer) writes(i InstanceID, q int16, at OpID) {
	for _, on := range o.of(i) {
		o.behind(q, on, at)
	}
}

func (o *orderer) step(s Step) {
	switch s.Kind {
	case Alloc:
		o.found[o.pl.Instances[s.Instance].Buffer] = s.Instance
		if o.bytes != nil {
			o.bytes.ask(&o.pl.Instances[s.Instance], o.of(s.Instance))
		}
		o.emit(s)
	case Free:
		if o.bytes != nil {
			o.bytes.touch(&o.pl.Instances[s.Instance], o.of(s.Instance))
		}
		o.emit(s)
	case Wait: // one that the manager requested; On refers to the old program
		if s.On >= 0 {
			o.behind(s.Queue, o.moved[s.On]+o.shift(s.On), s.Op)
		}
	case Out:
		b := o.pl.Instances[s.Instance].Buffer
		o.reads(s.Instance, s.Queue, s.Op)
		for _, on := range o.host[int(b)*o.k : (int(b)+1)*o.k] {
			o.behind(s.Queue, on, s.Op)
		}
		i := o.work(s)
		o.of(s.Instance)[s.Queue] = i
		o.host[int(b)*o.k+int(s.Queue)], o.hostBy[b] = i, i
	case In:
		b := o.pl.Instances[s.Instance].Buffer
		o.writes(s.Instance, s.Queue, s.Op)
		o.behind(s.Queue, o.hostBy[b], s.Op)
		i := o.work(s)
		o.of(s.Instance)[s.Queue], o.wrote[s.Instance] = i, i
		o.host[int(b)*o.k+int(s.Queue)] = i
	default:
		o.run(s)
	}
}

// shift finds the new index of an old step, after the waits written for it.
func (o *orderer) shift(old int32) int32 {
	at := o.moved[old]
	n := int32(0)
	for int(at+n) < len(o.out) && o.out[at+n].Kind == Wait {
		n++
	}
	return n
}

func (o *orderer) run(s Step) {
	op := &o.p.Ops[s.Op]
	accesses := o.p.AccessesOf(s.Op)
	for _, a := range accesses {
		if a.Mode.Writes() {
			o.writes(o.found[a.Buffer], s.Queue, s.Op)
		} else {
			o.reads(o.found[a.Buffer], s.Queue, s.Op)
		}
	}
	if op.Workspace != NoBuffer {
		o.writes(o.found[op.Workspace], s.Queue, s.Op)
	}
	i := o.work(s)
	for _, a := range accesses {
		id := o.found[a.Buffer]
		o.of(id)[s.Queue] = i
		if a.Mode.Writes() || o.wrote[id] == neverWritten {
			o.wrote[id] = i
		}
	}
	if op.Workspace != NoBuffer {
		id := o.found[op.Workspace]
		o.of(id)[s.Queue], o.wrote[id] = i, i
	}
}
