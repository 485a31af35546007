package sweep

import (
	"cmp"
	"slices"
)

// point is a plan that fits, with its costs.
type point struct {
	Row *Row
	// Memory is what the plan takes of a device, in bytes.
	Memory int64
	// Time is the time of a sample in nanoseconds if the batch size is known, otherwise that of a step; 0
	// without a clock.
	Time float64
}

// front is the plans for one trace that fit, and which of them no other beats.
type front struct {
	Trace, Hash string
	// perSample says that times are per sample, Timed that there are any.
	perSample, Timed bool
	// Inferred says that some sizes were scaled by a rule.
	Inferred bool
	// All are the plans that fit. Best are the ones that no other plan beats: none is better in memory or
	// time and at least equal in the other. Without a clock, the larger batch counts instead of the time.
	// They are ordered by memory.
	All, Best []point
	// Rows counts the rows of the trace.
	Rows int
	// Smallest is the plan that takes the least memory of those that exceed their budgets, nil for none.
	Smallest *Row
	// Unplanned are the reasons why rows have no plan, in the order in which they came first.
	Unplanned []Unplanned
}

// Unplanned is a reason why there is no plan, and how many rows have it.
type Unplanned struct {
	Reason string
	Rows   int
}

// fronts returns the fronts of all traces, in the order of the list.
func fronts(list []Done) []front {
	var all []front
	at := map[string]int{}
	for _, d := range list {
		for i := range d.Rows {
			r := &d.Rows[i]
			k, ok := at[r.Hash]
			if !ok {
				k = len(all)
				at[r.Hash] = k
				all = append(all, front{Trace: r.Trace, Hash: r.Hash})
			}
			f := &all[k]
			f.Rows++
			f.add(r)
		}
	}
	for i := range all {
		all[i].best()
	}
	return all
}

// NoneFits reports whether no plan fits any budget.
func NoneFits(list []Done) bool {
	return !slices.ContainsFunc(fronts(list), func(f front) bool { return len(f.All) > 0 })
}

func (f *front) add(r *Row) {
	total, ok := r.total()
	if r.Status != fits {
		known := ok && r.Status == tooLarge
		if known && (f.Smallest == nil || r.Footprint.Or(0) < f.Smallest.Footprint.Or(0)) {
			f.Smallest = r
		}
		if r.Reason != "" {
			f.unplanned(r.Reason)
		}
		return
	}
	if !ok {
		return
	}
	p := point{Row: r, Memory: total}
	size, sized := r.Batch.Value()
	if step, ok := r.Step.Value(); ok {
		p.Time, f.Timed = float64(step), true
		if sized && size > 0 {
			p.Time /= float64(size)
		}
	}
	f.perSample = f.perSample || sized
	f.Inferred = f.Inferred || r.Inferred
	f.All = append(f.All, p)
}

func (f *front) unplanned(reason string) {
	i := slices.IndexFunc(f.Unplanned, func(u Unplanned) bool { return u.Reason == reason })
	if i < 0 {
		i = len(f.Unplanned)
		f.Unplanned = append(f.Unplanned, Unplanned{Reason: reason})
	}
	f.Unplanned[i].Rows++
}

// cost is what a point costs besides memory: less is better.
func (f *front) cost(p point) float64 {
	if !f.Timed {
		return -float64(p.Row.Batch.Or(0))
	}
	return p.Time
}

// best finds the points that no other beats. Of several with the same memory and cost the first asked for is
// taken.
func (f *front) best() {
	sorted := slices.Clone(f.All)
	slices.SortStableFunc(sorted, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.Memory, b.Memory), cmp.Compare(f.cost(a), f.cost(b)))
	})
	for _, p := range sorted {
		if n := len(f.Best); n == 0 || f.cost(p) < f.cost(f.Best[n-1]) {
			f.Best = append(f.Best, p)
		}
	}
}
