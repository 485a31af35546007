package whatif

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
)

// edit is what levers change, by allocation.
type edit struct {
	share  map[timeline.AllocID]float64 // the share of its bytes that remains
	moves  []move                       // by moment
	late   []move                       // moves after the failure, at the moment a period earlier
	prompt bool
	scale  float64 // the share of the bytes of the failed step's remaining requests that is kept
	keeps  float64 // the share of its bytes that the failed request still asks for
}

// move frees an allocation early, or allocates it again.
type move struct {
	at    timeline.Moment
	alloc timeline.AllocID
	again bool
}

func (t *trials) edit(levers []autopsy.Effect) (edit, error) {
	e := edit{share: map[timeline.AllocID]float64{}, scale: 1, keeps: 1}
	asked := float64(max(t.actions[t.request].Size, 1))
	a := &t.d.Allocs
	for _, l := range levers {
		e.prompt = e.prompt || l.Prompt
		if l.Scale > 0 {
			e.scale *= l.Scale
		}
		e.keeps *= max(1-float64(l.Less)/asked, 0)
		for _, c := range l.Changes {
			if t.blockOf[c.Alloc] < 0 {
				continue // over before the part that is played
			}
			end := min(a.Requested[c.Alloc], timeline.Moment(t.d.Len()))
			whole := c.Bytes >= a.Rounded[c.Alloc]
			switch {
			case c.From <= max(a.Start[c.Alloc], 0) && c.To >= end:
				left := 1 - float64(c.Bytes)/float64(max(a.Rounded[c.Alloc], 1))
				if was, ok := e.share[c.Alloc]; ok {
					left *= was
				}
				e.share[c.Alloc] = max(left, 0)
			case whole:
				e.moves = append(e.moves, move{c.From, c.Alloc, false})
				if c.To < end {
					e.moves = append(e.moves, move{c.To, c.Alloc, true})
				}
			default:
				return e, fmt.Errorf("%w: a block that changes its size", errNotRecorded)
			}
		}
	}
	t.repeat(&e)
	byMoment := func(x, y move) int { return cmp.Compare(x.at, y.at) }
	slices.SortStableFunc(e.moves, byMoment)
	slices.SortStableFunc(e.late, byMoment)
	return e, nil
}

// repeat changes what the last period left as its counterparts of the period before are changed. A lever
// leaves alone what the step under way made, since that may still be in use, and the steps that follow would
// leave as much again.
func (t *trials) repeat(e *edit) {
	if t.again < 0 {
		return
	}
	a, n, from := &t.d.Allocs, t.d.Begun(t.failed), t.actions[t.again].at
	moved, ends := map[timeline.AllocID]bool{}, map[timeline.AllocID]timeline.Moment{}
	for _, m := range e.moves {
		if moved[m.alloc] = true; !m.again {
			ends[m.alloc] = m.at
		}
	}
	for id := max(n-t.period, t.d.Begun(timeline.Start)+t.period); id < n; id++ {
		before := id - t.period
		_, shared := e.share[id]
		if shared || moved[id] || t.blockOf[id] < 0 || a.Requested[id] != timeline.Never ||
			a.Stack[before] != a.Stack[id] || a.Size[before] != a.Size[id] {
			continue
		}
		if left, ok := e.share[before]; ok {
			e.share[id] = left
			continue
		}
		end, ok := ends[before]
		switch at := a.Start[id] + end - a.Start[before]; {
		case !ok:
		case at <= t.failed:
			e.moves = append(e.moves, move{at, id, false})
		default:
			e.late = append(e.late, move{at - (t.failed - from), id, false})
		}
	}
}

// size returns the size of a request, given its original size and the allocation that it stands for.
func (e *edit) size(a timeline.AllocID, size int64) int64 {
	left, ok := e.share[a]
	switch {
	case !ok:
		return size
	case left <= 0:
		return 0
	}
	return max(int64(left*float64(size)), 1)
}

// asks returns the size of the failed request, given its original size. before is the allocation of the same
// request a step earlier, NoAlloc if the process was not at this point before.
func (e *edit) asks(before timeline.AllocID, size int64) int64 {
	if _, ok := e.share[before]; !ok {
		size = int64(math.Round(e.keeps * float64(size)))
	}
	return e.scaled(e.size(before, size))
}

// scaled returns the size of a request that was still to come in the failed step.
func (e *edit) scaled(size int64) int64 {
	if e.scale == 1 || size == 0 {
		return size
	}
	return max(int64(e.scale*float64(size)), 1)
}
