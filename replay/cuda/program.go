package cuda

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// program holds what is known about a plan before it runs.
type program struct {
	p *plan.Problem
	// pl's steps are carried out in order.
	pl *plan.Plan
	// marks has, for each step, the event recorded after it, -1 if nothing waits for it; events is how many
	// there are.
	marks  []int32
	events int
	// last is, for each instance, the last step that touches it, -1 for none.
	last []int32
	// foreign says, for each instance, that a queue other than its home touches it.
	foreign []bool
	// slots has, for each copy, the place of its bytes in pinned memory; behind has, for each copy out, the
	// copy in that must finish first because it reads from that place, -1 for none. pinned is the pinned
	// memory in bytes.
	slots  []int64
	behind []int32
	pinned int64
}

func compile(p *plan.Problem, pl *plan.Plan) (*program, error) {
	n := len(pl.Steps)
	g := &program{p: p, pl: pl, marks: make([]int32, n), last: make([]int32, len(pl.Instances)),
		foreign: make([]bool, len(pl.Instances)), slots: make([]int64, n), behind: make([]int32, n)}
	for s := range g.marks {
		g.marks[s], g.behind[s] = -1, -1
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	if err := g.touches(); err != nil {
		return nil, err
	}
	if err := g.host(); err != nil {
		return nil, err
	}
	for s := range pl.Steps {
		if st := &pl.Steps[s]; st.Kind == plan.Wait {
			g.mark(st.On)
		}
		if g.behind[s] >= 0 {
			g.mark(g.behind[s])
		}
	}
	return g, nil
}

func (g *program) mark(step int32) {
	if g.marks[step] < 0 {
		g.marks[step] = int32(g.events)
		g.events++
	}
}

// check refuses plans that would make the executor index outside its tables. Whether a plan is correct is for
// plan.Validate and the device to find out.
func (g *program) check() error {
	p, pl := g.p, g.pl
	wrong := func(s int, what string) error {
		return fmt.Errorf("%w plan: step %d %s", plan.ErrInvalid, s, what)
	}
	for i := range pl.Instances {
		x := &pl.Instances[i]
		if x.Buffer < 0 || int(x.Buffer) >= len(p.Buffers) || x.Size < 0 || pl.Policy == nil && x.Size > 0 &&
			(x.Offset < 0 || x.Offset > pl.Footprint-x.Size) {
			return fmt.Errorf("%w plan: instance %d lies outside of the arena, or is of no buffer",
				plan.ErrInvalid, i)
		}
	}
	for _, i := range pl.Resident {
		if i < 0 || int(i) >= len(pl.Instances) {
			return fmt.Errorf("%w plan: there is no instance %d to be resident", plan.ErrInvalid, i)
		}
	}
	for s := range pl.Steps {
		st := &pl.Steps[s]
		switch st.Kind {
		case plan.Run, plan.Again:
			if st.Op < 0 || int(st.Op) >= len(p.Ops) || int(st.Queue) < 0 || int(st.Queue) >= p.Streams {
				return wrong(s, "runs an op that is not the problem's")
			}
			if v := p.Ops[st.Op].Variants; v != nil &&
				(pl.Variants != nil && int(st.Op) >= len(pl.Variants) || pl.VariantOf(st.Op) >= len(v)) {
				return wrong(s, "runs a variant that its op does not have")
			}
		case plan.Alloc, plan.Free, plan.Out, plan.In:
			if st.Instance < 0 || int(st.Instance) >= len(pl.Instances) {
				return wrong(s, "names no instance")
			}
		case plan.Wait:
			if st.On < 0 || int(st.On) >= s || int(st.Queue) < 0 || int(st.Queue) >= p.Queues() {
				return wrong(s, "waits for no earlier step")
			}
			if k := pl.Steps[st.On].Kind; k != plan.Run && k != plan.Again && k != plan.Out && k != plan.In {
				return wrong(s, "waits for a step that is not work")
			}
		default:
			return wrong(s, "is of an unknown kind")
		}
	}
	return nil
}

// walk calls touch for every touch of an instance by a step, in order. Its error names a step that touches an
// instance that is not in memory.
func (g *program) walk(touch func(step int, i plan.InstanceID, queue int16)) error {
	p, pl := g.p, g.pl
	at := pl.ResidentOf(p)
	for s := range pl.Steps {
		st := &pl.Steps[s]
		switch st.Kind {
		case plan.Alloc:
			at[pl.Instances[st.Instance].Buffer] = st.Instance
		case plan.Free:
			at[pl.Instances[st.Instance].Buffer] = -1
		case plan.Out, plan.In:
			touch(s, st.Instance, g.queue(st))
		case plan.Run, plan.Again:
			for k := p.Ops[st.Op].First; k <= p.Ops[st.Op].End; k++ {
				b := p.Ops[st.Op].Workspace
				if k < p.Ops[st.Op].End {
					b = p.Accesses[k].Buffer
				}
				if b == plan.NoBuffer {
					continue
				}
				if at[b] < 0 {
					return fmt.Errorf("%w plan: step %d: op %d (%s) touches buffer %d (%s), which is not "+
						"in memory", plan.ErrInvalid,
						s, st.Op, p.Ops[st.Op].Name, b, p.Buffers[b].Name)
				}
				touch(s, at[b], st.Queue)
			}
		}
	}
	return nil
}

// queue returns the queue of a step.
func (g *program) queue(st *plan.Step) int16 {
	switch st.Kind {
	case plan.Out:
		return g.p.OutQueue()
	case plan.In:
		return g.p.InQueue()
	}
	return st.Queue
}

func (g *program) touches() error {
	for i := range g.last {
		g.last[i] = -1
	}
	return g.walk(func(s int, i plan.InstanceID, queue int16) {
		g.last[i] = int32(s)
		if queue != g.home(i) {
			g.foreign[i] = true
		}
	})
}

// home returns the queue that an instance's memory belongs to.
func (g *program) home(i plan.InstanceID) int16 { return g.p.Buffers[g.pl.Instances[i].Buffer].Stream }

// occupant is a range of pinned memory and the copy that occupies it.
type occupant struct {
	at, size int64
	until    int32 // the last step that reads it
	read     bool  // by a copy in
}

// host gives every copy on the host a place.
//
// Copies out share one queue and are in order among themselves, but a copy out into a place that a copy in
// still reads from must wait for it. The plan does not know places on the host, so such a wait would cost
// time that the plan does not account for. A place is therefore reused only if the plan's own waits put the
// reader first. Otherwise a new place is taken, as long as the limit of pinned memory allows, and only then
// an old one with a wait of ours. Iterations are in order, so they can use the same places.
//
// Each copy takes the lowest hole that is large enough, in the order of the steps. Complexity: O(steps x
// queues + copies x copies on the host at one time).
func (g *program) host() error {
	pl := g.pl
	// of each copy out, the last copy in that reads it, or the copy itself
	until := make([]int32, len(pl.Steps))
	out := make([]int32, len(g.p.Buffers))
	for b := range out {
		out[b] = -1
	}
	for s := range pl.Steps {
		switch st := &pl.Steps[s]; st.Kind {
		case plan.Out:
			out[pl.Instances[st.Instance].Buffer], until[s] = int32(s), int32(s)
		case plan.In:
			b := pl.Instances[st.Instance].Buffer
			if out[b] < 0 {
				return fmt.Errorf("%w plan: step %d copies buffer %d (%s) in, which was never copied out",
					plan.ErrInvalid, s, b, g.p.Buffers[b].Name)
			}
			until[out[b]] = int32(s)
		}
	}
	var live, gone []occupant // by address; those whose last reader has been issued, and may not be done
	known := g.readers()
	passed := int32(-1) // the last copy in that copies out are behind
	for s := range pl.Steps {
		st := &pl.Steps[s]
		if st.Kind == plan.In {
			g.slots[s] = g.slots[out[pl.Instances[st.Instance].Buffer]]
		}
		if st.Kind != plan.Out {
			continue
		}
		live = slices.DeleteFunc(live, func(o occupant) bool {
			if o.until < int32(s) && o.read {
				gone = inserted(gone, o)
			}
			return o.until < int32(s)
		})
		passed = max(passed, known[s])
		gone = slices.DeleteFunc(gone, func(o occupant) bool { return o.until <= passed })
		size := pl.Instances[st.Instance].Size
		at := hole(size, live, gone)
		if limit := g.p.Hardware.PinnedBytes; limit > 0 && at+size > max(limit, g.pinned) {
			at = hole(size, live, nil)
			for _, o := range gone {
				if o.at < at+size && at < o.at+o.size {
					g.behind[s] = max(g.behind[s], o.until)
				}
			}
			passed = max(passed, g.behind[s])
		}
		if size > 0 {
			live = inserted(live, occupant{at, size, until[s], until[s] > int32(s)})
		}
		g.slots[s], g.pinned = at, max(g.pinned, at+size)
		out[pl.Instances[st.Instance].Buffer] = int32(s)
	}
	return nil
}

// inserted returns occupants in order of their addresses with o among them.
func inserted(all []occupant, o occupant) []occupant {
	k, _ := slices.BinarySearchFunc(all, o.at,
		func(o occupant, at int64) int { return cmp.Compare(o.at, at) })
	return slices.Insert(all, k, o)
}

// hole returns the lowest address at which size bytes meet none of two lists of occupants, each in order of
// address.
func hole(size int64, live, gone []occupant) int64 {
	at := int64(0)
	for len(live)+len(gone) > 0 {
		from := &live
		if len(live) == 0 || len(gone) > 0 && gone[0].at < live[0].at {
			from = &gone
		}
		if o := (*from)[0]; o.at >= at+size {
			break
		} else {
			at = max(at, o.at+o.size)
		}
		*from = (*from)[1:]
	}
	return at
}

// readers returns, for each copy out, the last copy in that the plan's waits put before it, -1 for none. It
// keeps a vector clock for each queue, like plan.Plan.Order.
func (g *program) readers() []int32 {
	k := g.p.Queues()
	in, of := int(g.p.InQueue()), make([]int32, len(g.pl.Steps))
	awaited := make(map[int32][]int32)
	for s := range g.pl.Steps {
		if st := &g.pl.Steps[s]; st.Kind == plan.Wait {
			awaited[st.On] = nil
		}
	}
	clock := make([]int32, k*k)
	for i := range clock {
		clock[i] = -1
	}
	for s := range g.pl.Steps {
		st := &g.pl.Steps[s]
		of[s] = -1
		if st.Kind == plan.Alloc || st.Kind == plan.Free {
			continue
		}
		q := int(g.queue(st))
		mine := clock[q*k : (q+1)*k]
		if st.Kind == plan.Wait {
			for i, at := range awaited[st.On] {
				mine[i] = max(mine[i], at)
			}
			continue
		}
		if st.Kind == plan.Out {
			of[s] = mine[in]
		}
		mine[q] = int32(s)
		if _, marked := awaited[int32(s)]; marked {
			awaited[int32(s)] = slices.Clone(mine)
		}
	}
	return of
}
