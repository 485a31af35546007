package autopsy

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A batch that is mostly padding. Sizes show it if samples come to the GPU one by one and are padded there
// (torch.nn.utils.rnn.pad_sequence). The pattern is n blocks of one line, followed by a block of a function
// that pads by its name, exactly n times the largest of them; the difference to their sum is padding.
// Everything that the model makes from the batch is padding to the same share. Look-alikes: samples of one
// length, which have no padding; concatenated samples, whose block is their sum; sizes that fit by chance, as
// powers of two do, which is why the name must show it. A batch that is padded on the CPU comes as one block,
// which shows nothing; then only varying shapes are visible (sequence_growth). Sources: the docstring of
// pad_sequence; gluon-nlp issue 590.

const (
	// leastPadded is how many samples a batch must have.
	leastPadded = 4
	// paddingShare is the share of a batch that must be padding.
	paddingShare = 0.3
)

// padded is a batch and what it was made of.
type padded struct {
	batch   timeline.AllocID
	samples int
	share   float64 // that is padding
}

// samples are what a line made since the model was last called.
type samples struct {
	n            int
	sum, longest int64
}

// paddedBatch returns the batch with the most padding of those that were padded on the GPU since the part
// before a call of the model. Linear.
func paddedBatch(c *evidence, from timeline.Moment) (padded, bool) {
	a := &c.d.Allocs
	since := timeline.Start
	if i := steps.PartAt(c.parts, from) - 1; i >= 0 {
		since = c.parts[i].First
	}
	byStack := map[traces.StackID]*samples{}
	bySize := map[int64]traces.StackID{} // of what a line's samples would take, padded
	first, end := c.d.AllocsIn(since, from)
	found := padded{}
	for id := first; id < end; id++ {
		s := a.Stack[id]
		if s < 0 || c.kinds.Of(s).Has(frames.KindModel|frames.KindBackwardPass|frames.KindStep) {
			continue
		}
		if of, ok := bySize[a.Size[id]]; ok && of != s && pads(c, s) && c.ofData(of) {
			x := byStack[of]
			share := 1 - float64(x.sum)/float64(a.Size[id])
			if x.n >= leastPadded && int64(x.n)*x.longest == a.Size[id] && share > found.share {
				found = padded{id, x.n, share}
			}
		}
		x := byStack[s]
		if x == nil {
			x = &samples{}
			byStack[s] = x
		}
		x.n, x.sum, x.longest = x.n+1, x.sum+a.Size[id], max(x.longest, a.Size[id])
		bySize[int64(x.n)*x.longest] = s
	}
	return found, found.share >= paddingShare
}

// pads reports whether a function of a stack pads or collates, by its name.
func pads(c *evidence, s traces.StackID) bool {
	for _, id := range c.d.Timeline().Places().Stacks.At(s) {
		fn, _, _ := c.d.Timeline().Places().FrameText(id)
		if fn = strings.ToLower(fn); strings.Contains(fn, "pad") || strings.Contains(fn, "collat") {
			return true
		}
	}
	return false
}

func paddingFault(c *evidence) (fault, bool) {
	all := c.rounds()
	if len(all) == 0 {
		return fault{}, false
	}
	from := all[len(all)-1].first
	p, ok := paddedBatch(c, from)
	if !ok {
		return fault{}, false
	}
	ids, held := c.forwardBlocks(from, c.a.At, c.a.At+1)
	a, line := &c.d.Allocs, sites.Name(c.d, c.d.Allocs.Stack[p.batch])
	if a.Requested[p.batch] > c.a.At {
		ids, held = append(ids, p.batch), held+a.Rounded[p.batch]
	}
	bytes := int64(p.share * float64(held))
	f := fault{Cause: Cause{Kind: "padding", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%.0f %% of the batch of %d samples that %s made is padding, and so is that share of the %s that "+
			"the model made of it", 100*p.share, p.samples, line, c.u.Bytes(held))}}
	f.said = fmt.Sprintf("%.0f %% of the batch at %s is padding: %d samples of different lengths, padded to "+
		"the longest, and the forward holds %s for them.", 100*p.share, line, p.samples, c.u.Bytes(held))
	f.fix = "Put samples of like length into a batch (sort or bucket by length), limit the tokens of a " +
		"batch and not its samples, or pack them without padding."
	f.sure(Likely, "the batch is the longest sample's size times the number of samples, to the byte")
	f.lever = remedy{name: "bucket_by_length", command: at("batch_sampler=sorted_by_length", line)}
	for _, id := range ids {
		f.lever.changes = append(f.lever.changes, life(c.d, id, int64(p.share*float64(a.Rounded[id]))))
	}
	return f, true
}
