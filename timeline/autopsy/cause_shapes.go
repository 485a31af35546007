package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Batches of different shapes. The pattern: what the same lines of the model allocate differs from step to
// step, and in the step that failed nearly all of it is larger than ever before. What looks like it: the
// first step with a mode that needs more (only some lines, and the steps before were all alike); a last batch
// that is smaller; a key-value cache, which is its own line and grows by itself.

const (
	// grownShare is the share of the step's bytes that must come from lines that never made as large blocks.
	grownShare = 0.7
	// grownBy is how much larger they must be than the largest before.
	grownBy = 1.1
	// leastShapes is in how many sizes the steps before must differ, and leastSteps how many there must be.
	leastShapes = 3
	// outlier is how many times what it takes in the median step a step must take for two sizes to be
	// enough, and to be the cause beside logits or scores that the steps before had, too.
	outlier = 2
)

// sizesOf are a line's largest blocks, one a round.
type sizesOf struct {
	largest []int64
	round   int
}

func shapesFault(c *evidence) (fault, bool) {
	all := c.rounds()
	if len(all) <= leastSteps {
		return fault{}, false
	}
	a, open := &c.d.Allocs, all[len(all)-1]
	before := map[traces.StackID]*sizesOf{}
	inModel := func(id timeline.AllocID) bool {
		k := c.kinds.Of(a.Stack[id])
		return k.Has(frames.KindModel) && !k.Has(frames.KindBackwardPass|frames.KindStep)
	}
	for i, r := range all[:len(all)-1] {
		first, end := c.d.AllocsIn(r.first, min(r.backward, r.end))
		for id := first; id < end; id++ {
			if !inModel(id) {
				continue
			}
			s := before[a.Stack[id]]
			if s == nil {
				s = &sizesOf{round: -1}
				before[a.Stack[id]] = s
			}
			if s.round != i {
				s.largest, s.round = append(s.largest, 0), i
			}
			n := len(s.largest) - 1
			s.largest[n] = max(s.largest[n], a.Size[id])
		}
	}
	now := map[traces.StackID]int64{}
	held := map[traces.StackID]int64{}
	var ids []timeline.AllocID
	first, end := c.d.AllocsIn(open.first, c.a.At+1)
	for id := first; id < end; id++ {
		s := before[a.Stack[id]]
		if s == nil || len(s.largest) < leastSteps || !inModel(id) {
			continue
		}
		now[a.Stack[id]] = max(now[a.Stack[id]], a.Size[id])
		if a.Requested[id] > c.a.At {
			held[a.Stack[id]] += a.Rounded[id]
			ids = append(ids, id)
		}
	}
	var total, grown int64
	widest := traces.NoStack
	for s, bytes := range held {
		total += bytes
		if float64(now[s]) <= grownBy*float64(slices.Max(before[s].largest)) {
			continue
		}
		grown += bytes
		if widest == traces.NoStack || bytes > held[widest] || bytes == held[widest] && s < widest {
			widest = s
		}
	}
	if widest == traces.NoStack || float64(grown) < grownShare*float64(total) {
		return fault{}, false
	}
	// What is held would be smaller, line by line, in the median step.
	usual := map[traces.StackID]float64{}
	var less float64
	for s, bytes := range held {
		usual[s] = min(1, float64(stats.Median(before[s].largest))/float64(now[s]))
		less += float64(bytes) * (1 - usual[s])
	}
	ratio := float64(total) / (float64(total) - less)
	shapes := distinct(before[widest].largest)
	if shapes < leastShapes && (shapes < 2 || ratio < outlier) {
		return fault{}, false
	}
	line := c.frameText(c.parts[open.from].Caller)
	f := fault{Cause: Cause{Kind: "sequence_growth", Bytes: maybe.Known(int64(less)), Text: fmt.Sprintf(
		"this step's activations are %.1f times those of the median of %d steps, and larger than any of them",
		ratio, len(all)-1)}, news: ratio >= outlier}
	f.said = fmt.Sprintf("The batches differ in shape, and this one is the largest: its activations take "+
		"%.1f times the memory of the median step's, in the forward at %s.", ratio, line)
	f.fix = "Cap the length (max_length, a crop), or sort batches by length and give long ones fewer samples."
	f.sure(Certain, "the same lines made smaller blocks of different sizes in all steps before")
	var changes []Change
	for _, id := range ids {
		if less := a.Rounded[id] - int64(float64(a.Rounded[id])*usual[a.Stack[id]]); less > 0 {
			changes = append(changes, life(c.d, id, less))
		}
	}
	f.lever = remedy{name: "cap_sequence", command: at("batch = batch[:, :max_length]", line),
		changes: changes, scale: 1 / ratio, request: int64((1 - 1/ratio) * float64(c.a.Asked.Or(0)))}
	return f, true
}

// distinct counts different values.
func distinct(v []int64) int {
	s := slices.Clone(v)
	slices.Sort(s)
	return len(slices.Compact(s))
}
