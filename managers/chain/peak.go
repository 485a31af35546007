package chain

import "github.com/gmemtop/gmemtop/managers/plan"

// PeakLive returns the peak of live bytes of the program that [plan.Assemble] would make of the decisions:
// the same as [plan.Plan.PeakLive]. It costs O(ops + buffers + absences + length of all chains) and makes no
// program, so a planner can call it for every candidate. Absences may be of any kind; every op has its
// variant 0.
func (b *Builder) PeakLive(absences []plan.Absence, reruns []plan.Rerun) int64 {
	p := b.p
	n := len(p.Ops)
	// The change at each position: before reruns (frees, releases, fetches) and after them (what reruns bring
	// back, allocations).
	first, second := make([]int64, n+1), make([]int64, n+1)
	var resident int64
	for i := range p.Buffers {
		buf, size := &p.Buffers[i], b.size[i]
		if buf.Life != plan.Inside {
			resident += size
		}
		if buf.Life != plan.Persistent {
			first[buf.End] -= size
			second[buf.Start] += size
		}
	}
	s := b.NewSet()
	for i := range absences {
		x := &absences[i]
		s.Add(*x)
		first[x.Release] -= b.size[x.Buffer]
		if x.How == plan.Recompute {
			second[x.Fetch] += b.size[x.Buffer]
		} else {
			first[x.Fetch] += b.size[x.Buffer]
		}
	}
	during := make([]int64, n+1)
	for i := range reruns {
		r := &reruns[i]
		b.stamp++
		b.ops = append(b.ops[:0], r.Ops...)
		for _, o := range r.Ops { // what an absence at this position waits for stays
			for _, a := range p.AccessesOf(o) {
				for k := s.head[a.Buffer]; k != 0; k = s.stay[k].next {
					if s.stay[k].how == plan.Recompute && s.stay[k].fetch == r.Before {
						b.wanted[a.Buffer] = b.stamp
					}
				}
			}
		}
		during[r.Before] = max(during[r.Before], b.measure(r.Before, s).Peak)
	}
	live := resident
	peak := live
	for i := range n + 1 {
		live += first[i]
		peak = max(peak, live, live+during[i])
		live += second[i]
		peak = max(peak, live)
	}
	return peak
}
