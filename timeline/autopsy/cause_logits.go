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
// If an evaluation fails and the training's losses were far smaller, the evaluation's batch is larger, as its
// default often is. Look-alike: longer texts.

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
	f.said = fmt.Sprintf("The logits and the tensors that the loss at %s computes from them take %s, in "+
		"blocks of %s.", line, c.u.Bytes(set.bytes), c.u.Bytes(set.size))
	f.sure(Certain, "a loss over classes made blocks of this size")
	f.fix = "Compute the output layer and the loss in chunks of the tokens, or use a smaller vocabulary."
	f.lever.name, f.lever.asks = "chunked_loss", chunkLoss
	if times := largerThanTrained(c, set.size); times >= leastTimes {
		f.said += fmt.Sprintf(" They are %.1f times as large as any in training.", times)
		f.instead = f.lever
		f.elseFix = "or compute the output layer and the loss in chunks of the tokens"
		f.fix = "Evaluate with the training's batch size: it is often a separate setting."
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
	if f.elseFix == "" {
		namedLogits(c, set, &f)
	}
	return f, true
}

// namedLogits offers to delete logits that a variable keeps while the loss works on what it made of them: the
// last step's blocks of the same lines outlived its backward pass and its optimizer's step, where no graph is
// left to need them. Look-alikes: a loss that saves the logits themselves, which log_softmax does not.
func namedLogits(c *evidence, set blockSet, f *fault) {
	all := c.rounds()
	n := len(all) - 1 // the one under way
	if n < 1 || !all[n-1].stepped || all[n-1].after == timeline.Never {
		return
	}
	a := &c.d.Allocs
	outlived := map[traces.StackID]bool{}
	first, end := c.d.AllocsIn(all[n-1].first, all[n-1].end)
	for id := first; id < end; id++ {
		if s := a.Stack[id]; a.Requested[id] >= all[n-1].end && set.member(c.d, id) &&
			!c.kinds.Of(s).Has(frames.KindLoss|frames.KindBackwardPass) {
			outlived[s] = true
		}
	}
	made := timeline.Moment(0) // when the loss made the last block that it keeps
	for _, id := range c.live {
		if set.member(c.d, id) && c.kinds.Of(c.d.Origin(id)).Has(frames.KindLoss) {
			made = max(made, a.Start[id]+1)
		}
	}
	var ids []timeline.AllocID
	for _, id := range c.live {
		if at := a.Start[id]; outlived[a.Stack[id]] && at >= all[n].first && at < made {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	line := c.topName(c.sitesOf(ids))
	f.elseFix = fmt.Sprintf("or delete the logits before the backward pass, if it does not need them: a "+
		"variable still has %s in %s, most from %s", c.u.Bytes(c.bytesOf(ids)), nBlocks(len(ids)), line)
	changes := endingAt(c, ids, func(timeline.AllocID) timeline.Moment { return made })
	for _, r := range all[:n] {
		if r.backward == timeline.Never {
			continue
		}
		var earlier []timeline.AllocID
		first, end := c.d.AllocsIn(r.first, r.backward)
		for id := first; id < end; id++ {
			if outlived[a.Stack[id]] {
				earlier = append(earlier, id)
			}
		}
		changes = append(changes, endingAt(c, earlier, func(timeline.AllocID) timeline.Moment {
			return r.backward
		})...)
	}
	f.instead = remedy{name: "del_outputs", command: at("del outputs, logits", line), changes: changes}
}

// leastTimes is how many times as large as in training a loss's blocks must be before the batch size counts
// as the reason: batches also differ in the length of their texts.
const leastTimes = 1.9

// largerThanTrained returns the ratio of size, a block of the evaluation under way, to the largest block that
// a loss allocated in training; 0 without an evaluation or a training.
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
