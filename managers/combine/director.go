package combine

import "github.com/gmemtop/gmemtop/managers/plan"

// DELTA's two decisions: the filter picks whom to release, the director how. The essay is in delta.go.

// release is the filter and the director: it takes a buffer out of memory at position i, and reports whether
// there was one.
func (o *online) release(i plan.OpID) bool {
	for {
		b := o.filter(i)
		if b == plan.NoBuffer {
			return false
		}
		g := &o.gaps[o.at[b]]
		after := max(g.After, o.since[b])
		if after >= i { // it has only just come back
			o.lock[b] = int32(i) + 1
			continue
		}
		how, why, ok := o.direct(g, after)
		o.lists.remove(b)
		if !ok {
			continue // neither way is open: it stays until it is used again
		}
		if o.fetched[b] {
			o.fetched[b] = false
			o.pending--
		}
		o.open[b] = int32(len(o.absences))
		x := plan.Absence{Buffer: b, After: after, Before: g.Before, Release: i, Fetch: g.Before, How: how,
			Paced: how == plan.Swap, Why: why}
		o.absences = append(o.absences, x)
		o.away.Add(x)
		o.live -= o.p.Rounded(b)
		o.released++
		switch how {
		case plan.Swap:
			o.state[b] = offloaded
			o.history = append(o.history, b)
			o.outFree = max(o.outFree, o.used[b]) + o.p.Hardware.D2H.Time(o.p.Rounded(b))
			o.now = max(o.now, o.outFree) // the next user of its memory waits
			if o.pinned != nil {
				o.pinned.Add(int(after), int(g.Before)+1, o.p.Rounded(b))
			}
		case plan.Recompute:
			o.state[b] = dropped
		default:
			o.state[b] = worthless
		}
		return true
	}
}

// filter returns the buffer with the smallest 1/(memory x staleness) of those that op i does not need,
// [plan.NoBuffer] if there is none.
func (o *online) filter(i plan.OpID) plan.BufferID {
	best, score := plan.NoBuffer, -1.0
	for _, k := range o.lists.filled {
		size := float64(o.lists.size[k])
		if size*float64(o.now+1) <= score {
			break // classes are in descending order of size, and nothing is staler than the iteration
		}
		b := o.lists.head[k]
		for b != plan.NoBuffer && o.lock[b] == int32(i)+1 {
			b = o.lists.next[b]
		}
		if b == plan.NoBuffer {
			continue
		}
		stale := float64(o.now - o.used[b] + 1)
		if o.noStaleness {
			stale = 1
		}
		if size*stale > score {
			best, score = b, size*stale
		}
	}
	return best
}

// direct is the director: the cheaper of copying out and back and of computing again, both in nanoseconds.
func (o *online) direct(g *plan.Gap, after plan.OpID) (how plan.How, why string, ok bool) {
	if g.Dead {
		return plan.Discard, "overwritten before it is read", true
	}
	size := o.p.Rounded(g.Buffer)
	copies := o.p.Hardware.D2H.Time(size) + o.p.Hardware.H2D.Time(size)
	canSwap := o.pinned == nil || o.pinned.Max(int(after), int(g.Before)+1)+size <= o.p.Hardware.PinnedBytes
	if o.noDirector && canSwap {
		return plan.Swap, "largest and longest unused", true
	}
	if t, can := o.again(g); can && (!canSwap || copies > t) {
		return plan.Recompute, "largest and longest unused, quicker to compute than to copy", true
	}
	return plan.Swap, "largest and longest unused, quicker to copy than to compute", canSwap
}

// again returns the time to recompute a gap's buffer where it is needed, in nanoseconds, including the copies
// of offloaded tensors that its chain reads.
func (o *online) again(g *plan.Gap) (int64, bool) {
	if can, _ := o.chains.Recomputable(*g); !can {
		return 0, false
	}
	one := [1]plan.BufferID{g.Buffer}
	var t int64
	var loads []plan.BufferID
	if len(o.history) > 0 {
		loads = o.inputs(g.Before, one[:], nil)
	}
	for _, b := range loads {
		t += o.p.Hardware.H2D.Time(o.p.Rounded(b))
		o.away.Remove(b, o.absences[o.open[b]].Release)
	}
	c, err := o.chains.AtMost(g.Before, one[:], o.away, longestOf(len(o.gaps)))
	for _, b := range loads {
		o.away.Add(o.absences[o.open[b]])
	}
	return t + c.Time, err == nil
}
