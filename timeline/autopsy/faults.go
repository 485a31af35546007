package autopsy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Faults: what an expert looks for before saying that a training is too large. Each detector knows one
// pattern of lifetimes and stacks, and says how many bytes fit it and what to change. Detectors are
// independent: of the faults found, the one with the most bytes is the cause if it holds a significant share
// of the memory. A wrong cause costs the reader more than none, so a detector that cannot distinguish two
// causes names neither.

// faults returns what detectors find, the most bytes first.
func faults(d *timeline.Device, a *Result, u timeline.Units) []fault {
	if !a.OOM || d.Info.Kind != traces.DeviceGPU {
		return nil
	}
	c := evidenceOf(d, a, u)
	var found []fault
	for _, detect := range detectors {
		f, ok := detect(c)
		share := mainShare
		if f.Kind == "optimizer_pending" {
			share = 0 // what is still to come is not part of what is allocated
		}
		if ok && float64(f.Bytes.Or(0)) >= share*float64(c.total+a.Asked.Or(0)) {
			found = append(found, f)
		}
	}
	found = slices.DeleteFunc(found, func(f fault) bool {
		return slices.ContainsFunc(found, func(x fault) bool {
			// A copy explains its own gradients, but not a larger graph beside them.
			graph := f.Kind == "frozen_gradients" && f.Bytes.Or(0) > x.Bytes.Or(0)
			return f.as == "" && slices.Contains(explains[cmp.Or(x.as, x.Kind)], f.Kind) && !graph
		})
	})
	withBatches(c, found)
	most := map[string]int64{} // two detectors may find the same: what one knows more of stays
	for _, f := range found {
		most[f.Kind] = max(most[f.Kind], f.Bytes.Or(0))
	}
	found = slices.DeleteFunc(found, func(f fault) bool { return f.Bytes.Or(0) < most[f.Kind] })
	for _, detect := range lastDetectors {
		if f, ok := detect(c); ok && len(found) == 0 {
			found = append(found, f)
		}
	}
	slices.SortStableFunc(found, func(x, y fault) int {
		return cmp.Or(cmp.Compare(x.turn(), y.turn()), cmp.Compare(y.Bytes.Or(0), x.Bytes.Or(0)))
	})
	if len(found) > 0 {
		found[0].Main = true
		nameKeeper(c, &found[0])
	}
	return found
}

// newHeight reports whether the run, with the request, would have needed more memory than ever before, or
// works on blocks that are a real share of it.
func newHeight(c *evidence) bool {
	before := c.d.Allocated.Range(0, c.a.At).Max
	return c.likeLargeBlock() || c.needsMore() && float64(c.total+c.a.Asked.Or(0)) > newDemand*float64(before)
}

// judged returns all causes: faults first, then what the allocator's figures show, none of which is the main
// cause beside a fault. If the figures only say that it was too much, and no fault was found, other names
// what is large, and what grows if anything does. Holes that smaller tensors left are not the cause if the
// run needs more than it ever had.
func (f *facts) judged(found []fault, newHeight func() bool, other func() Cause) []Cause {
	all := f.causes()
	main := slices.ContainsFunc(all, func(c Cause) bool {
		return c.Main && c.Kind != "capacity" && (c.Kind != "fragmentation" || !newHeight())
	})
	none := f.oom && f.known && !main && len(found) == 0
	for i := range all {
		all[i].Main = all[i].Main && len(found) == 0 && !none
	}
	if none {
		c := other()
		c.Main = true
		all = append([]Cause{c}, all...)
	}
	graded(all)
	for _, x := range slices.Backward(found) {
		all = append([]Cause{x.Cause}, all...)
	}
	return all
}

// asking says, after the fix, what was requested.
func (f *facts) asking(allocated int64) string {
	return fmt.Sprintf(" The request that failed: %s, with %s allocated.",
		f.units.Bytes(f.asked), f.units.Bytes(allocated))
}
