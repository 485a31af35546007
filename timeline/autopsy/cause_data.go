package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Data that are on the device as a whole. The pattern: a line of the user's, outside of the model, made a few
// blocks, each at least twice as large as the largest block that a call of the model makes, and the model
// runs on parts of them, or ran on parts of what the line made before; or, before the first call, many blocks
// of one or two sizes. Look-alikes: the batch itself, from which its first layers make blocks of the same
// size; weights, which come from a module's constructor or move, get gradients of their sizes, or are named
// as such; results, which come after the calls that produced them; a buffer that is filled step by step,
// which cannot be distinguished and has the same fix.

// leastBatches is how many blocks of like size make a data set that is loaded batch by batch.
const leastBatches = 8

// gradientSizes returns the sizes that backward passes made.
func gradientSizes(c *evidence) map[int64]bool {
	sizes := map[int64]bool{}
	for _, p := range c.parts {
		if p.Phase != traces.PhaseBackward {
			continue
		}
		first, end := c.d.AllocsIn(p.First, p.End)
		for id := first; id < end; id++ {
			sizes[c.d.Allocs.Size[id]] = true
		}
	}
	return sizes
}

func dataFault(c *evidence) (fault, bool) {
	if len(c.parts) == 0 {
		return fault{}, false
	}
	table, most := sites.Of(c.d.Timeline()), largestMade(c)
	gradients := gradientSizes(c)
	whole, many := map[int32][]timeline.AllocID{}, map[int32][]timeline.AllocID{}
	for _, id := range c.live {
		s := c.d.Origin(id)
		n := table.Number(s)
		size := c.d.Allocs.Size[id]
		after := steps.PartAt(c.parts, c.d.Allocs.Start[id])
		// Before a backward only names distinguish data from weights that no module made, unless the model
		// was called several times while one block was most of the memory: weights are many blocks.
		dominates := 2*size >= c.total && callsAfter(c, after) >= leastSlices
		if n < 0 || gradients[size] || !c.ofData(s) ||
			len(gradients) == 0 && !dominates && mayBeWeights(c, s) {
			continue
		}
		switch {
		case size >= wholeTimes*most &&
			(after < 0 || callsAfter(c, after) >= leastSlices || slicedBefore(c, s, false)):
			whole[n] = append(whole[n], id)
		case after < 0:
			many[n] = append(many[n], id)
		}
	}
	for n, ids := range whole { // what a step or a short queue holds is no data set
		if c.d.Allocs.Start[ids[len(ids)-1]] >= c.parts[0].First && len(ids) > leastAhead {
			delete(whole, n)
		}
	}
	for n, ids := range many {
		sizes := map[int64]bool{}
		for _, id := range ids {
			sizes[c.d.Allocs.Size[id]] = true
		}
		if len(gradients) > 0 && len(ids) >= leastBatches && 4*len(sizes) <= len(ids) {
			whole[n] = append(whole[n], ids...)
		}
	}
	best, ok := c.largest(whole)
	if !ok {
		return fault{}, false
	}
	ids, line := whole[best], table.Names[best]
	bytes := c.bytesOf(ids)
	f := fault{Cause: Cause{Kind: "prefetch", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s put %s on the GPU in %s, while a call of the model makes at most %s at once", line,
		c.u.Bytes(bytes), nBlocks(len(ids)), c.u.Bytes(most))}}
	f.said = fmt.Sprintf("The whole data set is on the GPU: %s in %s from %s.", c.u.Bytes(bytes),
		nBlocks(len(ids)), line)
	f.fix = "Keep it on the CPU and move each batch in the loop: batch = batch.to(device, non_blocking=True)."
	f.sure(Likely, "nothing that the model makes is as large, and no gradients have these sizes; a buffer "+
		"that steps fill would look the same")
	var changes []Change
	for _, id := range ids {
		changes = append(changes, life(c.d, id, c.d.Allocs.Rounded[id]))
	}
	f.lever = remedy{name: "load_each_batch", changes: changes,
		command: at("batch = batch.to(device, non_blocking=True)", line)}
	return f, true
}

// callsAfter counts the calls of the model after a part, the one under way included.
func callsAfter(c *evidence, i int) (n int) {
	for _, p := range c.parts[i+1:] {
		if p.Phase == traces.PhaseForward {
			n++
		}
	}
	return n
}
