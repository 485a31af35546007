package place

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// copied is the time during which the host holds a buffer's copy: from the op after which it first leaves to
// the one by which it is last back.
type copied struct {
	buffer      plan.BufferID
	from, until plan.OpID
	size        int64
}

// Assemble makes a plan, without places, from decisions. It leaves out swaps whose copies would take more
// pinned memory than the hardware has; a note says how many. Most managers' rules know no such limit. If
// there are too many copies at one moment, the buffer whose copy the host would hold longest stays on the
// device, whatever it is worth to the manager; a manager that can choose better does so first. Keeping more
// in memory breaks no rerun. The error is that of [plan.Assemble].
//
// Complexity on top of assembling: O(swaps x copies at one moment) if the limit is exceeded.
func Assemble(p *plan.Problem, d plan.Decisions) (*plan.Plan, error) {
	pl, err := plan.Assemble(p, d)
	if err != nil {
		return nil, fmt.Errorf("assemble: %w", err)
	}
	limit := p.Hardware.PinnedBytes
	if limit <= 0 {
		return pl, nil
	}
	if peak, _ := pl.PinnedPeak(p); peak <= limit {
		return pl, nil
	}
	all := len(d.Absences)
	d = pinned(p, d, limit)
	if pl, err = plan.Assemble(p, d); err != nil {
		return nil, fmt.Errorf("assemble without swaps that the host has no room for: %w", err)
	}
	pl.Note("swaps left out, since the host has no pinned memory left for them: %d", all-len(d.Absences))
	return pl, nil
}

// pinned returns the decisions without those swaps that a limit on pinned memory has no room for. Reruns find
// in memory what they would have loaded.
func pinned(p *plan.Problem, d plan.Decisions, limit int64) plan.Decisions {
	at := map[plan.BufferID]int{}
	var copies []copied
	for _, x := range d.Absences {
		if x.How != plan.Swap {
			continue
		}
		k, seen := at[x.Buffer] // a copy may serve several absences
		if !seen {
			k = len(copies)
			at[x.Buffer] = k
			copies = append(copies, copied{x.Buffer, x.After, x.Before, p.Rounded(x.Buffer)})
		}
		c := &copies[k]
		c.from, c.until = min(c.from, x.After), max(c.until, x.Before)
	}
	slices.SortStableFunc(copies, func(a, b copied) int { return cmp.Compare(a.from, b.from) })
	var held []copied // by until
	var sum int64
	stays := map[plan.BufferID]bool{}
	for _, c := range copies {
		for len(held) > 0 && held[0].until <= c.from { // back before the op after which c leaves
			sum -= held[0].size
			held = held[1:]
		}
		k, _ := slices.BinarySearchFunc(held, c, func(a, b copied) int {
			return cmp.Compare(a.until, b.until)
		})
		held = slices.Insert(held, k, c)
		for sum += c.size; sum > limit; held = held[:len(held)-1] {
			last := held[len(held)-1]
			sum -= last.size
			stays[last.buffer] = true
		}
	}
	d.Absences = slices.DeleteFunc(slices.Clone(d.Absences), func(x plan.Absence) bool {
		return x.How == plan.Swap && stays[x.Buffer]
	})
	d.Reruns = slices.Clone(d.Reruns)
	for i := range d.Reruns {
		d.Reruns[i].Loads = slices.DeleteFunc(slices.Clone(d.Reruns[i].Loads), func(x plan.Load) bool {
			return stays[x.Buffer]
		})
	}
	return d
}
