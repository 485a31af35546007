package autopsy

import (
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Functions of sharded training that gather parts from all ranks, and what they gather.

// gather says which of some functions a stack is in, "" for none.
func gather(c *evidence, s traces.StackID, of []string) string {
	if s < 0 {
		return ""
	}
	for _, id := range c.d.Timeline().Places().Stacks.At(s) {
		fn, file, _ := c.d.Timeline().Places().FrameText(id)
		if slices.Contains(of, fn) && ofSharding(file) {
			return fn
		}
	}
	return ""
}

// ofSharding reports whether a file is of a library that shards models.
func ofSharding(file string) bool {
	return strings.Contains(file, "/torch/distributed/") || strings.Contains(file, "/deepspeed/")
}

// gatheredUnits returns what was gathered in [from, to) by some stacks, unit by unit, and in all. The blocks
// of a unit follow each other.
func gatheredUnits(c *evidence, stacks map[traces.StackID]bool, from, to timeline.Moment) (units []int64,
	total int64,
) {
	first, end := c.d.AllocsIn(from, to)
	within := false
	for id := first; id < end; id++ {
		if !stacks[c.d.Allocs.Stack[id]] {
			within = false
			continue
		}
		if !within {
			units = append(units, 0)
		}
		within = true
		units[len(units)-1] += c.d.Allocs.Rounded[id]
		total += c.d.Allocs.Rounded[id]
	}
	return units, total
}

// gatherers returns the stacks that are in some functions.
func gatherers(c *evidence, of []string) map[traces.StackID]bool {
	wanted := map[traces.FrameID]bool{}
	p := c.d.Timeline().Places()
	for i := range p.Frames {
		if fn, _, _ := p.FrameText(traces.FrameID(i)); slices.Contains(of, fn) {
			wanted[traces.FrameID(i)] = true
		}
	}
	stacks := map[traces.StackID]bool{}
	for i := 0; len(wanted) > 0 && i < p.Stacks.Len(); i++ {
		s := traces.StackID(i)
		if slices.ContainsFunc(p.Stacks.At(s), func(id traces.FrameID) bool { return wanted[id] }) &&
			gather(c, s, of) != "" {
			stacks[s] = true
		}
	}
	return stacks
}

// unitGathers are functions that gather one unit to compute with.
var unitGathers = []string{
	"foreach_all_gather", "foreach_all_gather_copy_out", "_alloc_padded_unsharded_flat_param",
	"_all_gather_flat_param",
}
