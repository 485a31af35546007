package autopsy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// What a loop without a backward keeps from each call of the model: what it computes from the outputs, or the
// batches themselves. The pattern: since the last backward, or ever, one line calls the model repeatedly, and
// lines outside of the model left blocks after calls all over that stretch. Blocks of a line that made one
// before the first call are inputs; if lines leave nothing else, the batches stay. Look-alikes: outputs of
// the model itself, and graphs, which are made inside it (openForwardsFault); one tensor that is made again,
// longer each time (concatenatedFault); a buffer that was filled before.

// resultsShare is how much of what stays must have been made after the calls for it to be their results.
const resultsShare = 0.1

func resultsFault(c *evidence) (fault, bool) {
	open := c.parts[c.lastOf(traces.PhaseBackward, traces.PhaseOptimizer)+1:]
	caller, _, _ := openForwards(c)
	ticks := firstsOf(open, caller)
	if caller < 0 || len(ticks) == 0 {
		return fault{}, false
	}
	beside := slices.DeleteFunc(slices.Clone(c.live), func(id timeline.AllocID) bool {
		const other = frames.KindModel | frames.KindBackwardPass | frames.KindStep | frames.KindModuleInit |
			frames.KindModuleMove | frames.KindLoad
		s := c.d.Origin(id)
		return s == traces.NoStack || c.kinds.Of(s).Has(other)
	})
	ids, in := leftSince(c, ticks, beside)
	if len(ids) == 0 || 2*in < len(ticks)-1 {
		return fault{}, false
	}
	return collected(c, ids, in, ticks, caller), true
}

// collected is the fault of what calls of the model from one line left, none of which kept a graph. They
// began at ticks.
func collected(c *evidence, ids []timeline.AllocID, in int, ticks []timeline.Moment,
	caller traces.FrameID,
) fault {
	first := map[traces.StackID]bool{} // stacks that made something before the first call
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(ticks[0]); id++ {
		first[c.d.Allocs.Stack[id]] = true
	}
	var results int64
	for _, id := range ids {
		if s := c.d.Origin(id); !first[s] || c.inModel(s) {
			results += c.d.Allocs.Rounded[id]
		}
	}
	bytes, from := c.bytesOf(ids), c.sitesOf(ids)
	line, call := c.topName(from), c.frameText(caller)
	f := fault{Cause: Cause{Kind: "collected_outputs", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of %s of the model at %s are still there, most from %s", c.u.Bytes(bytes),
		nBlocks(len(ids)), nCalls(in), call, line)}}
	f.said = fmt.Sprintf("The results of %s of the model at %s pile up on the GPU: %s, most of it from %s.",
		nCalls(in), call, c.u.Bytes(bytes), line)
	f.fix = "Move each result to the CPU as it comes: results.append(x.detach().cpu()); empty what " +
		"collects them when it has been read, as reset() does for a metric."
	f.sure(Likely, "blocks of calls all over the loop stay; an attribute that keeps them would look the same")
	f.lever = remedy{name: "move_outputs_to_cpu", command: at("results.append(x.detach().cpu())", line),
		changes: untilCall(c, ids, ticks), request: putTogether(c, ids)}
	f.from = lineCalls{caller, in}
	if float64(results) < resultsShare*float64(bytes) && together(c, caller) {
		return oneBackwardOf(c, ids, in, ticks, caller)
	}
	if float64(results) < resultsShare*float64(bytes) {
		f.Kind, f.batches = "leak", true
		f.said = fmt.Sprintf("The batches of %s of the model at %s stay on the GPU: %s, from %s.", nCalls(in),
			call, c.u.Bytes(bytes), line)
		f.seek, f.fix = "Find what keeps them: a list or an attribute", "keep them on the CPU."
		f.sure(Possible, "the recording does not show what keeps a block")
		f.lever.name, f.lever.command = "drop_references", at("del batch", line)
		return f
	}
	var inside int64
	for _, id := range ids {
		if c.inModel(c.d.Origin(id)) {
			inside += c.d.Allocs.Rounded[id]
		}
	}
	if 2*inside > bytes && !c.outputStays(ids) {
		if c.keepsNothing(ids) && c.mostly(ids) == gradientsOff {
			return f // a list of what the layers made
		}
		if c.keepsNothing(ids) {
			return f.withGraph(c, nCalls(in), call, line)
		}
		f.Kind = "hook_keeps"
		f.said = fmt.Sprintf("%s of the model at %s left %s on the GPU, most of it from %s, and "+
			"neither their outputs nor a graph: a hook, or an attribute of a module, keeps tensors.",
			nCalls(in), call, c.u.Bytes(bytes), line)
		f.fix = "Remove the hook (handle.remove()), or clear what it fills after each call."
		f.sure(Likely, "what stays was made in the middle of a call; a list of layers' outputs would look "+
			"the same")
		f.lever.name, f.lever.command = "remove_hook", at("handle.remove()", line)
	}
	return f
}

// withGraph turns the fault of collected results into that of results which keep their graphs.
func (f fault) withGraph(c *evidence, calls, call, line string) fault {
	f.Kind = "kept_graph"
	f.said = fmt.Sprintf("What the loop keeps of %s of the model at %s has its graph: %s, most of it from "+
		"%s.", calls, call, c.u.Bytes(f.Bytes.Or(0)), line)
	f.fix = "Detach it before it is kept: kept.append(value.detach()); call the model under " +
		"torch.no_grad() if nothing is differentiated."
	f.sure(Likely, "the program's code has neither a hook nor an attribute that could keep what a module "+
		"makes; a list of layers' outputs would look the same")
	f.lever.name, f.lever.command, f.lever.request = "detach_metric", at("value = value.detach()", call), 0
	return f
}

// withBatches adds the batches of some calls to what is said of their results: if the same code keeps both,
// such as a callback that stores its arguments, one change fixes both. Batches of other calls are another
// fault.
func withBatches(c *evidence, found []fault) {
	for i := range found {
		for k := range found {
			f, b := &found[i], &found[k]
			if f.Kind != "collected_outputs" || f.from.count == 0 || !b.batches || f.from != b.from {
				continue
			}
			first, rest, _ := strings.Cut(f.fix, " as it comes")
			f.fix = fmt.Sprintf("%s as it comes, and the batches that stay with them (%s)%s", first,
				c.u.Bytes(b.Bytes.Or(0)), rest)
			f.lever.changes = append(f.lever.changes, b.lever.changes...)
		}
	}
}

// untilCall ends each block when the second call after it begins: by then nothing that belongs to its own
// call is under way.
func untilCall(c *evidence, ids []timeline.AllocID, ticks []timeline.Moment) []Change {
	return endingAt(c, ids, func(id timeline.AllocID) timeline.Moment {
		k, found := slices.BinarySearch(ticks, c.d.Allocs.Start[id])
		if found {
			k++
		}
		if k+1 < len(ticks) {
			return ticks[k+1]
		}
		return timeline.Never
	})
}

// together reports whether earlier calls of the model from a line waited for one backward.
func together(c *evidence, caller traces.FrameID) bool {
	freed := map[int]int{} // by the backward that freed what they had left
	for i := range c.parts {
		if p := &c.parts[i]; p.Phase == traces.PhaseForward && p.Caller == caller && c.backwardFrees(p) {
			if freed[p.Frees]++; freed[p.Frees] >= leastForwards {
				return true
			}
		}
	}
	return false
}

// oneBackwardOf is the fault of calls whose batches stay because one backward is to follow all of them, as
// one followed several earlier calls from their line: the steps of an episode.
func oneBackwardOf(c *evidence, ids []timeline.AllocID, in int, ticks []timeline.Moment,
	caller traces.FrameID,
) fault {
	_, _, left := openForwards(c)
	all := slices.Concat(ids, left)
	slices.Sort(all)
	all = slices.Compact(all)
	bytes, call := c.u.Bytes(c.bytesOf(all)), c.frameText(caller)
	f := fault{Cause: Cause{Kind: "one_backward_for_many", Bytes: maybe.Known(c.bytesOf(all)),
		Text: fmt.Sprintf("%s in %s of %s of the model at %s are still there, most from %s", bytes,
			nBlocks(len(all)), nCalls(in), call, c.topName(c.sitesOf(ids)))}}
	f.said = fmt.Sprintf("%s of the model at %s wait for one backward, which needs their batches: %s.",
		nCalls(in), call, bytes)
	f.fix = "Call backward() after fewer of them, and add the gradients up until the optimizer's step."
	f.sure(Likely, "one backward followed several earlier calls from there; a list of batches would look "+
		"the same")
	f.lever = remedy{name: "backward_each_micro_batch", command: at("(loss / n).backward()", call),
		changes: untilCall(c, all, ticks)}
	return f
}
