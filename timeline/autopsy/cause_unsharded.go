package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Gradients of a sharded model that are whole. Two patterns. no_sync(), or set_requires_gradient_sync(False):
// backward passes of a model whose weights are gathered reduce nothing, and what they made is there after
// them. Frameworks do so in all micro-batches but the last. And a list of whole gradients: DTensor's
// full_tensor after a backward and before the optimizer's step, for a norm or for logs, one for each
// parameter. Look-alikes: a state dict, which is gathered after a step; the gradients of one unit, which a
// backward reduces before it comes to the next ones; activations that a graph keeps, which a forward made.
// Sources: the docstrings of FullyShardedDataParallel.no_sync and FSDPModule.set_requires_gradient_sync.

// gradientReductions are the functions of FSDP that reduce the gradients of one unit.
var gradientReductions = []string{"foreach_reduce", "_reduce_grad", "_reduce_grad_no_shard",
	"_get_reduce_scatter_tensors"}

// shardedRanks is how many ranks share a gradient if the recording does not say: at least two do.
const shardedRanks = 2

// leastGathered is how many units an unfinished backward must have gathered. It gathers one in advance.
const leastGathered = 4

func unreducedFault(c *evidence) (fault, bool) {
	gathers := gatherers(c, unitGathers)
	if len(gathers) == 0 {
		return fault{}, false
	}
	reduces := gatherers(c, gradientReductions)
	var ids []timeline.AllocID
	passes := 0
	for i := c.lastOf(traces.PhaseOptimizer) + 1; i < len(c.parts); i++ {
		p := &c.parts[i]
		if p.Phase != traces.PhaseBackward {
			continue
		}
		made, reduced := madeByBackward(c, p.First, min(p.End, c.a.At), reduces, gathers)
		if i == len(c.parts)-1 && passes == 0 { // under way: a unit's gradients are reduced a little later
			units, _ := gatheredUnits(c, gathers, p.First, c.a.At)
			reduced = reduced || len(units) < leastGathered
		}
		if !reduced {
			ids = append(ids, made...)
			passes++
		}
	}
	ids = c.stillThere(ids)
	if len(ids) < graphBlocks {
		return fault{}, false
	}
	bytes := c.bytesOf(ids)
	f := fault{Cause: Cause{Kind: "unsharded_gradients", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of %s since the optimizer's last step are there, and FSDP has reduced none of them",
		c.u.Bytes(bytes), nBlocks(len(ids)), timeline.Counted(passes, "backward pass"))}}
	f.said = fmt.Sprintf("The model is sharded, but gradients are accumulated whole: %s, because no "+
		"backward pass since the optimizer's last step has reduced them.", c.u.Bytes(bytes))
	f.fix = "Leave no_sync() out, or call set_requires_gradient_sync(True), so that each micro-batch " +
		"reduces its gradients (in Accelerate, GradientAccumulationPlugin(sync_each_batch=True))."
	f.sure(Likely, "FSDP gathers weights and none of the functions that reduce gradients ran")
	f.lever = remedy{name: "sync_each_batch", command: "model.set_requires_gradient_sync(True)",
		changes: sharded(c, ids)}
	// The buffer from which a unit's gradients are reduced is as large as its weights, which are gathered
	// into one buffer and copied out of it.
	if units, _ := gatheredUnits(c, gathers, timeline.Start, c.a.At); len(units) > 0 {
		f.lever.beside = slices.Max(units) / 2
	}
	return f, true
}

// madeByBackward returns what the engine made in [from, to) for gradients, and whether any of it was reduced.
func madeByBackward(c *evidence, from, to timeline.Moment, reduces, gathers map[traces.StackID]bool,
) (ids []timeline.AllocID, reduced bool) {
	first, end := c.d.AllocsIn(from, to)
	for id := first; id < end; id++ {
		s := c.d.Allocs.Stack[id]
		switch {
		case reduces[s]:
			return nil, true
		case gathers[s], s >= 0 && c.kinds.Of(s).Has(frames.KindForward):
			continue
		}
		ids = append(ids, id)
	}
	return ids, false
}

// sharded leaves of each block what one rank keeps of it.
func sharded(c *evidence, ids []timeline.AllocID) (out []Change) {
	ranks := max(int64(c.d.Timeline().Trace.Process.WorldSize.Or(shardedRanks)), shardedRanks)
	for _, id := range ids {
		n := c.d.Allocs.Rounded[id]
		out = append(out, life(c.d, id, n-n/ranks))
	}
	return out
}

// wholeGradients turns the fault of blocks that were gathered into that of whole gradients, if all of them
// were gathered after a backward.
func wholeGradients(c *evidence, f *fault, ids []timeline.AllocID, line string) {
	// DTensor's functions have a forward, too, which is no call of the model.
	within := map[timeline.Moment]bool{}
	for _, id := range ids {
		within[c.d.Allocs.Start[id]] = true
	}
	for _, id := range ids {
		i := steps.PartAt(c.parts, c.d.Allocs.Start[id])
		for i > 0 && within[c.parts[i].First] {
			i--
		}
		if i < 0 || c.parts[i].Phase != traces.PhaseBackward ||
			gather(c, c.d.Allocs.Stack[id], []string{"full_tensor"}) == "" {
			return
		}
	}
	f.Kind = "unsharded_gradients"
	f.Text = fmt.Sprintf("%s in %s were made whole after a backward at %s", c.u.Bytes(f.Bytes.Or(0)),
		nBlocks(len(ids)), line)
	f.said = fmt.Sprintf("%s makes the sharded gradients whole, and holds all of them at once: %s.", line,
		c.u.Bytes(f.Bytes.Or(0)))
	f.fix = "Work on the shards, p.grad.to_local(), and reduce the result: torch.nn.utils.clip_grad_norm_ " +
		"does so. Where a gradient must be whole, take one at a time."
	f.sure(Likely, "full_tensor ran after a backward and before the optimizer's step; weights that are "+
		"gathered there would look the same")
	f.lever.name, f.lever.command = "norm_of_shards", at("p.grad.to_local()", line)
}
