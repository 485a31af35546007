package sim

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// freed is a freed instance, and how far compute had come in the program by then.
type freed struct {
	instance plan.InstanceID
	compute  int64
}

// clip ends, when an instance is first touched, the instances whose bytes it takes over: copies and other
// streams need not wait until all compute has reached the place in the program where that memory was freed.
func (r *run) clip(frees []freed, taker plan.InstanceID, at int64, to []int64) {
	x := &r.pl.Instances[taker]
	if r.pl.Policy != nil {
		return // it already has its memory: nothing was taken over early
	}
	for k := len(frees) - 1; k >= 0 && frees[k].compute > at; k-- {
		y := &r.pl.Instances[frees[k].instance]
		if y.Offset < x.Offset+x.Size && x.Offset < y.Offset+y.Size {
			to[frees[k].instance] = min(to[frees[k].instance], at)
		}
	}
}

// usage computes memory in use over time: an instance takes its memory when its first step begins, and
// releases it when its last step is done, including copies in flight.
func (r *run) usage() {
	n := len(r.pl.Instances)
	from, to, taken := make([]int64, n), make([]int64, n), make([]int64, n)
	for i := range from {
		from[i], to[i] = -1, -1
	}
	var frees []freed
	touch := func(i plan.InstanceID, s int) {
		if from[i] < 0 {
			from[i] = r.start[s]
			r.clip(frees, i, r.start[s], to)
		}
		to[i] = max(to[i], r.end[s])
	}
	at := make([]plan.InstanceID, len(r.p.Buffers))
	for _, i := range r.pl.Resident {
		at[r.pl.Instances[i].Buffer], from[i] = i, 0
	}
	var compute int64
	for s := range r.pl.Steps {
		st := &r.pl.Steps[s]
		switch st.Kind {
		case plan.Alloc:
			at[r.pl.Instances[st.Instance].Buffer], taken[st.Instance] = st.Instance, compute
		case plan.Free:
			if i := st.Instance; from[i] < 0 { // nothing touched it: it exists while compute passes by
				from[i], to[i] = taken[i], compute
			} else {
				to[i] = max(to[i], min(compute, r.m.Makespan))
			}
			frees = append(frees, freed{st.Instance, compute})
		case plan.Out, plan.In:
			touch(st.Instance, s)
		case plan.Run, plan.Again:
			compute = max(compute, r.end[s])
			for _, a := range r.p.AccessesOf(st.Op) {
				touch(at[a.Buffer], s)
			}
			if w := r.p.Ops[st.Op].Workspace; w != plan.NoBuffer {
				touch(at[w], s)
			}
		}
	}
	changes := make([]plan.Sample, 0, 2*n)
	for i := range r.pl.Instances {
		x := &r.pl.Instances[i]
		if int(x.To) == len(r.pl.Steps) {
			to[i] = r.m.Makespan
		}
		if from[i] < 0 {
			from[i] = min(taken[i], r.m.Makespan)
		}
		if x.Size > 0 && to[i] >= from[i] {
			changes = append(changes, plan.Sample{Time: from[i], Bytes: x.Size},
				plan.Sample{Time: to[i], Bytes: -x.Size})
		}
	}
	slices.SortFunc(changes, func(a, b plan.Sample) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Bytes, b.Bytes))
	})
	var sum int64
	for _, c := range changes {
		sum += c.Bytes
		if k := len(r.m.Usage); k > 0 && r.m.Usage[k-1].Time == c.Time {
			r.m.Usage[k-1].Bytes = sum
		} else {
			r.m.Usage = append(r.m.Usage, plan.Sample{Time: c.Time, Bytes: sum})
		}
	}
}
