package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A program that switches from one model to another while the first one is still there: a server whose
// user chooses another checkpoint, or a benchmark that loads one model after the other. A variable keeps
// the old model until the new one is complete, self.model = load(name), or a cache of models keeps it for
// good. The pattern: nothing is trained, a line made weights, calls of the model ran, and the request
// that failed is for weights that the same line makes. Look-alikes: the same weights again, which
// restartFault knows; layers that are made in the first call, below the model; a pipeline whose models
// one function loads when each is needed for the first time, where the same advice helps. Source:
// IOPaint, whose manager deletes the old model first.

func switchedFault(c *evidence) (fault, bool) {
	table, failed := sites.Of(c.d.Timeline()), c.d.Event(c.a.At).Stack
	n := table.Number(failed)
	if !c.a.OOM || n < 0 || !makesModel(c, failed) || c.lastOf(traces.PhaseBackward) >= 0 {
		return fault{}, false
	}
	if _, again := restarts(c); again {
		return fault{}, false
	}
	now := steps.PartAt(c.parts, c.a.At)
	var old []timeline.AllocID
	sizes, begun := map[int64]bool{}, c.a.At
	for _, id := range c.live {
		s, at := c.d.Origin(id), c.d.Allocs.Start[id]
		switch {
		case table.Number(s) != n || !makesModel(c, s):
		case steps.PartAt(c.parts, at) < now:
			old = append(old, id)
			sizes[c.d.Allocs.Size[id]] = true
		default:
			begun = min(begun, at)
		}
	}
	if len(sizes) < leastSizes {
		return fault{}, false
	}
	bytes, line := c.bytesOf(old), sites.Name(c.d, failed)
	f := fault{Cause: Cause{Kind: "idle_model", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of weights from %s were there when calls of the model ran, and that line was making others",
		c.u.Bytes(bytes), line)}}
	f.said = fmt.Sprintf("The model that ran before is still on the GPU, %s, while %s makes another one.",
		c.u.Bytes(bytes), line)
	f.fix = "Delete the old model before the new one is made, and what refers to it (del self.model; " +
		"gc.collect()), or move it to the CPU."
	f.sure(Likely, "nothing called it since the new one was begun; models that are all wanted later would "+
		"look the same")
	f.lever = remedy{name: "offload_unused", command: at("del model; gc.collect()", line),
		changes: endingAt(c, old, func(timeline.AllocID) timeline.Moment { return begun })}
	return f, true
}

// makesModel reports whether a stack makes or moves a module, outside of its calls.
func makesModel(c *evidence, s traces.StackID) bool {
	k := c.kinds.Of(s)
	return k.Has(frames.KindModuleMove|frames.KindModuleInit|frames.KindUserInit) &&
		!k.Has(frames.KindModel|frames.KindBackwardPass|frames.KindStep)
}
