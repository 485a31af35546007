package joint

import "math/rand/v2"

// view is a version of the problem with everything needed to plan it.
type view struct {
	*version
	task     *task
	found    *found
	schedule *schedule
	cover    *cover
	rnd      *rand.Rand
	until    int64 // the counted work at which the search for the current limit ends
	target   int64 // a step time below which no plan can get or needs to get
	returns  bool  // searches also change when swapped values are back
	greedy   bool  // the last plan has too many instances for a search for places
}

func newView(f *found, x version) *view {
	v := &view{version: &x, task: f.task, found: f, schedule: newSchedule(x.m)}
	v.schedule.chains.noSwap = x.off.swap
	v.cover = newCover(v.schedule)
	v.cover.noDrop = x.off.recompute
	return v
}

func (v *view) estimate() candidate {
	s := v.schedule
	s.run()
	x := candidate{over: s.over, time: s.queues.time}
	for _, g := range s.prefetches.order {
		x.cost += v.m.gaps[g].evictTime + v.m.gaps[g].prefetchTime
	}
	for _, l := range s.chains.loads {
		x.cost += v.m.gaps[l.gap].prefetchTime
	}
	for k := range s.chains.reruns {
		x.cost += s.chains.rerunTime[s.chains.reruns[k].at]
	}
	return x
}

// good reports whether a candidate is as good as it can be, or needs to be.
func (v *view) good(x *candidate) bool { return x != nil && x.over == 0 && x.time <= v.target }
