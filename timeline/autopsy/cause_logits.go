package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Logits. The pattern: the blocks of a loss over classes and similar ones (see lossBlocks), including the
// failed one. Look-alikes: attention scores, which a softmax inside the model makes, several per block.
// If a call that is not trained fails, and the losses of the training were far smaller, its batch is larger
// than the training's, as the default for evaluations often is. Look-alike: longer texts.

func logitsFault(c *evidence) (fault, bool) {
	set := lossBlocks(c.d, c.a.At)
	if set.bytes == 0 {
		return fault{}, false
	}
	line := sites.Name(c.d, c.d.Event(c.a.At).Stack)
	for _, id := range c.live {
		if set.member(c.d, id) && c.kinds.Of(c.d.Origin(id)).Has(frames.KindLoss) {
			line = sites.Name(c.d, c.d.Origin(id))
		}
	}
	f := fault{Cause: Cause{Kind: "logits", Bytes: maybe.Known(set.bytes), Text: fmt.Sprintf(
		"%s are logits and blocks of their size, each %s, for the loss at %s", c.u.Bytes(set.bytes),
		c.u.Bytes(set.size), line)}}
	f.said = fmt.Sprintf("The logits and what the loss at %s makes of them hold %s, in blocks of %s.", line,
		c.u.Bytes(set.bytes), c.u.Bytes(set.size))
	f.sure(Certain, "a loss over classes made blocks of this size")
	f.fix = "Compute the output layer and the loss in chunks of the tokens, or use a smaller vocabulary."
	f.lever.name = "chunked_loss"
	if times := largerThanTrained(c, set.size); times >= leastTimes {
		f.said += fmt.Sprintf(" No step of the training had blocks of a loss as large; these are %.1f times "+
			"the largest.", times)
		f.instead = f.lever
		f.elseFix = "or compute the output layer and the loss in chunks of the tokens"
		f.fix = "Give the evaluation batches as small as the training's: its batch size is often a setting " +
			"of its own."
		f.lever = remedy{name: "smaller_input", command: at("eval_batch_size = train_batch_size", line),
			request: c.a.Asked.Or(0) - int64(float64(c.a.Asked.Or(0))/times)}
		call := c.parts[len(c.parts)-1].First
		for _, id := range c.live {
			if c.d.Allocs.Start[id] >= call {
				bytes := c.d.Allocs.Rounded[id]
				f.lever.changes = append(f.lever.changes, life(c.d, id, bytes-int64(float64(bytes)/times)))
			}
		}
	}
	return f, true
}

// leastTimes is how many times as large as in the training the blocks of a loss must be for its batch to be a
// larger one: the texts of a batch differ in length, too.
const leastTimes = 1.9

// largerThanTrained returns how many times the largest block that the losses of the training made goes into
// one of an evaluation that is under way, 0 where none is or nothing was trained.
func largerThanTrained(c *evidence, size int64) float64 {
	if len(c.parts) == 0 || c.parts[len(c.parts)-1].Phase != traces.PhaseForward {
		return 0
	}
	call := &c.parts[len(c.parts)-1]
	if c.trainedFrom(call) || c.lastOf(traces.PhaseBackward) < 0 {
		return 0
	}
	a, most := &c.d.Allocs, int64(0)
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(call.First-1); id++ {
		if a.Size[id] > most && c.kinds.Of(a.Stack[id]).Has(frames.KindLoss) {
			most = a.Size[id]
		}
	}
	if most == 0 {
		return 0
	}
	return float64(size) / float64(most)
}
