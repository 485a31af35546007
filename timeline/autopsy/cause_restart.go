package autopsy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// An earlier run in the same process that still holds memory. The pattern: one line makes a model's weights,
// the model runs, and the same line makes as many and as large weights again, or runs out among them, while
// the first ones stay. If the first run ended in the middle of a step, the graph of a forward that no
// backward followed remains, too: the run raised an exception, and its traceback holds the frames with all
// their tensors for as long as somebody holds the exception: sys.last_value in a notebook, a variable, the
// handler that retries (docs.python.org, sys.last_value; PyTorch's FAQ, "My out of memory exception handler
// can't allocate memory"). Without a graph the first model was just not deleted: a search over settings, or
// folds.
//
// The same after a failed request that the process survived: what the failed call made.
//
// Look-alikes: several models from one line that are all wanted, which are made before any of them runs; a
// model that is made again and replaces the first, whose weights then end; an ensemble whose members are
// trained one after another and kept, which is why the certainty is at most likely.

// restart is a run that was begun again.
type restart struct {
	begins []timeline.Moment // the weights were made, and made again
	stack  traces.StackID
	sizes  map[int64]int // of the first weights
}

// again is when they were made the last time.
func (r *restart) again() timeline.Moment { return r.begins[len(r.begins)-1] }

// restarts returns the last set of weights that a line made again, false for none.
func restarts(c *evidence) (restart, bool) {
	table := sites.Of(c.d.Timeline())
	type group struct {
		sizes map[int64]int
		ids   []timeline.AllocID
		first timeline.Moment
	}
	bySite := map[int32]map[int]*group{} // by the part after which they were made
	stacks := map[int32]traces.StackID{}
	for _, id := range c.live {
		s := c.d.Origin(id)
		n := table.Number(s)
		if n < 0 || !makesModel(c, s) {
			continue
		}
		if bySite[n] == nil {
			bySite[n], stacks[n] = map[int]*group{}, s
		}
		at := c.d.Allocs.Start[id]
		i := steps.PartAt(c.parts, at)
		g := bySite[n][i]
		if g == nil {
			g = &group{sizes: map[int64]int{}, first: at}
			bySite[n][i] = g
		}
		g.sizes[c.d.Allocs.Size[id]]++
		g.ids = append(g.ids, id)
	}
	var r restart
	found := false
	for _, n := range slices.Sorted(maps.Keys(bySite)) {
		groups := bySite[n]
		order := slices.Sorted(maps.Keys(groups))
		old, last := groups[order[0]], groups[order[len(order)-1]]
		again := covers(last.sizes, old.sizes) || unfinished(c, stacks[n], last.ids, old.ids)
		if old == last || !again || found && last.first <= r.again() {
			continue
		}
		r, found = restart{stack: stacks[n], sizes: old.sizes}, true
		for _, i := range order {
			if groups[i] == last || covers(groups[i].sizes, old.sizes) {
				r.begins = append(r.begins, groups[i].first)
			}
		}
	}
	return r, found
}

// everyBegin returns when each run began, including runs whose weights have been freed since. With the fix,
// tensors that a failed run left would have been freed when the next run began.
func everyBegin(c *evidence, r restart) []timeline.Moment {
	type group struct {
		sizes map[int64]int
		first timeline.Moment
	}
	table, groups := sites.Of(c.d.Timeline()), map[int]*group{}
	n := table.Number(r.stack)
	first, end := c.d.AllocsIn(r.begins[0], r.again())
	for id := first; id < end; id++ {
		if table.Number(c.d.Origin(id)) != n {
			continue
		}
		i := steps.PartAt(c.parts, c.d.Allocs.Start[id])
		if groups[i] == nil {
			groups[i] = &group{map[int64]int{}, c.d.Allocs.Start[id]}
		}
		groups[i].sizes[c.d.Allocs.Size[id]]++
	}
	begins := slices.Clone(r.begins)
	for _, g := range groups {
		if covers(g.sizes, r.sizes) {
			begins = append(begins, g.first)
		}
	}
	slices.Sort(begins)
	return slices.Compact(begins)
}

// aborted returns what a forward left of its call, if its last block came before a moment and no backward
// followed it: at least graphBlocks blocks.
func aborted(c *evidence, before timeline.Moment) []timeline.AllocID {
	i := steps.PartAt(c.parts, before)
	if i < 0 || c.parts[i].Phase != traces.PhaseForward {
		return nil
	}
	ids, _ := c.forwardBlocks(c.parts[i].First, before, c.a.At+1)
	if len(ids) < graphBlocks {
		return nil
	}
	return ids
}

// survived returns the last request that failed before the one that is explained, Never for none.
func survived(c *evidence) timeline.Moment {
	e := &c.d.Timeline().Trace.Events
	first, _ := c.d.Timeline().Trace.DeviceEvents(c.d.ID)
	for m := c.a.At - 1; m >= 0 && c.d.Totals.OOMs > 1; m-- {
		if e.Action[first+int(m)] == traces.OOM {
			return m
		}
	}
	return timeline.Never
}

func restartFault(c *evidence) (fault, bool) {
	if r, ok := restarts(c); ok {
		return restarted(c, r), true
	}
	m := survived(c)
	if m == timeline.Never || m < c.a.At && steps.PartAt(c.parts, m) == len(c.parts)-1 {
		return fault{}, false
	}
	ids := aborted(c, m)
	if ids == nil {
		return fault{}, false
	}
	bytes, line := c.bytesOf(ids), sites.Name(c.d, c.d.Event(m).Stack)
	f := fault{Cause: Cause{Kind: "exception_keeps", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of a call that ran out of memory at %s are still there", c.u.Bytes(bytes),
		nBlocks(len(ids)), line)}}
	f.said = fmt.Sprintf("An earlier out-of-memory at %s was caught, and the tensors of that call are still "+
		"in memory: %s.", line, c.u.Bytes(bytes))
	f.sure(Likely, "the call has ended and its blocks have not; a result that is kept would look the same")
	f.retryOutside(c, ids, m+1, line)
	return f, true
}

// retryOutside advises to try again outside of the except block, where the blocks of the call that failed
// would have ended at a moment.
func (f *fault) retryOutside(c *evidence, ids []timeline.AllocID, ended timeline.Moment, line string) {
	f.fix = "Try again after the except block, not in it: the exception holds the frames and their tensors."
	f.lever = remedy{name: "drop_exception", command: at("retry = True  # in the except block", line),
		changes: endingAt(c, ids, func(timeline.AllocID) timeline.Moment { return ended })}
}

// restarted is the fault of a run that was begun again while all of the one before stays.
func restarted(c *evidence, r restart) fault {
	var ids []timeline.AllocID
	for _, id := range c.live {
		if c.d.Allocs.Start[id] >= r.begins[0] && c.d.Allocs.Start[id] < r.again() {
			ids = append(ids, id)
		}
	}
	bytes, line := c.bytesOf(ids), sites.Name(c.d, r.stack)
	begins := everyBegin(c, r)
	changes := endingAt(c, ids, func(id timeline.AllocID) timeline.Moment { // the run after its own begins
		k, same := slices.BinarySearch(begins, c.d.Allocs.Start[id])
		if same {
			k++
		}
		return begins[k]
	})
	f := fault{Cause: Cause{Kind: "model_copy", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s were made before %s made the same weights again", c.u.Bytes(bytes),
		nBlocks(len(ids)), line)}}
	graph := aborted(c, r.again())
	if graph == nil {
		f.said = fmt.Sprintf("An earlier model is still on the GPU: %s with what its training left, and %s "+
			"made the same weights again.", c.u.Bytes(bytes), line)
		f.fix = "Delete the model, its optimizer and what refers to them before the next one, or keep " +
			"{k: v.cpu() for k, v in model.state_dict().items()}."
		if c.lastOf(traces.PhaseBackward) < 0 { // nothing was trained, so it may be a part of a model
			f.said = fmt.Sprintf("An earlier set of weights is still on the GPU: %s, and %s made the same "+
				"ones again.", c.u.Bytes(bytes), line)
			f.fix = "Delete it first, and what refers to it: del model, or delete_adapter() of an adapter " +
				"that is not needed any more; or keep it on the CPU."
		}
		f.sure(Likely, "the same line made the same weights again; models that are all wanted would look "+
			"the same")
		f.lever = remedy{name: "drop_copy", command: at("del model, optimizer; gc.collect()", line),
			changes: changes}
		return f
	}
	f.Kind = "exception_keeps"
	f.said = fmt.Sprintf("A run that ended in the middle of a step is still on the GPU: %s, of which %s is "+
		"its unfinished forward, and %s made the weights again.", c.u.Bytes(bytes),
		c.u.Bytes(c.bytesOf(graph)), line)
	f.fix = "Drop the exception that holds it, sys.last_value in a notebook, and call gc.collect() before " +
		"the next run; or restart the process."
	f.sure(Likely, "a forward without a backward and all of its run outlive it; a result that is kept, "+
		"with its graph, would look the same")
	f.lever = remedy{name: "drop_exception",
		command: at("sys.last_exc = sys.last_value = sys.last_traceback = None; gc.collect()", line),
		changes: changes}
	return f
}
