package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Batches of different shapes. The pattern: what the same lines of the model allocate differs from step to
// step, and in the failed step nearly all of it is larger than ever before, in block size or, if a recurrent
// network runs its loop more often, in number. Look-alikes: the first step with a mode that needs more (only
// some lines, or another path to the call); a smaller last batch; a key-value cache, which is its own line
// and grows by itself.

const (
	// grownShare is the share of the step's bytes that must come from lines that never made as large blocks.
	grownShare = 0.7
	// grownBy is how much larger they must be than the largest before.
	grownBy = 1.1
	// leastShapes is in how many sizes the steps before must differ, and leastSteps how many there must be.
	leastShapes = 3
	// outlier is by what factor a step must exceed the median step for fewer sizes to be enough, and for it
	// to be the cause despite logits or scores that earlier steps had, too
	outlier = 2
)

// lineBytes is what a line of the model made in one of its calls.
type lineBytes struct{ largest, bytes int64 }

// most returns the larger of each figure.
func (m lineBytes) most(n lineBytes) lineBytes {
	return lineBytes{max(m.largest, n.largest), max(m.bytes, n.bytes)}
}

// bytesByLine sums what the lines of the model made in its calls up to a moment; for each line, the maximum
// over calls.
func bytesByLine(c *evidence, calls []steps.Part, until timeline.Moment) map[traces.StackID]lineBytes {
	a, most := &c.d.Allocs, map[traces.StackID]lineBytes{}
	for i := range calls {
		if calls[i].Phase != traces.PhaseForward {
			continue
		}
		in := map[traces.StackID]lineBytes{}
		first, end := c.d.AllocsIn(calls[i].First, min(calls[i].End, until))
		for id := first; id < end; id++ {
			if s := a.Stack[id]; c.inModel(s) {
				in[s] = lineBytes{max(in[s].largest, a.Size[id]), in[s].bytes + a.Size[id]}
			}
		}
		for s, n := range in {
			most[s] = most[s].most(n)
		}
	}
	return most
}

// lineHistory is what a line made in earlier rounds, one figure for each.
type lineHistory struct{ largest, bytes []int64 }

// outgrew returns the share of a line's present amount that it makes in the median round, and whether it
// never made as much before: blocks as large or, if a loop runs more often, as many bytes in one call.
func (m *lineHistory) outgrew(now lineBytes) (usual float64, grew bool) {
	usual = min(1, float64(stats.Median(m.largest))/float64(now.largest),
		float64(stats.Median(m.bytes))/float64(now.bytes))
	return usual, float64(now.largest) > grownBy*float64(slices.Max(m.largest)) ||
		float64(now.bytes) > grownBy*float64(slices.Max(m.bytes))
}

// shapesFault leaves calls that train nothing, beside a training, to inferenceFault: their batches can be
// split, which changes no result, and a cap would.
func shapesFault(c *evidence) (fault, bool) {
	if _, ok := inferenceFault(c); ok && c.lastOf(traces.PhaseBackward) >= 0 {
		return fault{}, false
	}
	return largestBatch(c, false)
}

// outlierFault finds one batch that is far larger than all earlier ones, which were alike. If something else
// is wrong, a training that fails with a large batch fails because of that.
func outlierFault(c *evidence) (fault, bool) { return largestBatch(c, true) }

// largestBatch finds what shapesFault does, of steps that were all alike or of steps that were not.
func largestBatch(c *evidence, alike bool) (fault, bool) {
	all := c.rounds()
	if len(all) <= leastSteps {
		return fault{}, false
	}
	a, open := &c.d.Allocs, all[len(all)-1]
	before := map[traces.StackID]*lineHistory{}
	for _, r := range all[:len(all)-1] {
		for s, n := range bytesByLine(c, c.parts[r.from:r.to], min(r.backward, r.end)) {
			if before[s] == nil {
				before[s] = &lineHistory{}
			}
			before[s].largest = append(before[s].largest, n.largest)
			before[s].bytes = append(before[s].bytes, n.bytes)
		}
	}
	now := bytesByLine(c, c.parts[open.from:open.to], c.a.At+1)
	held := map[traces.StackID]int64{}
	var ids []timeline.AllocID
	first, end := c.d.AllocsIn(open.first, c.a.At+1)
	for id := first; id < end; id++ {
		s := a.Stack[id]
		if m := before[s]; m != nil && len(m.largest) >= leastSteps && a.Requested[id] > c.a.At {
			held[s] += a.Rounded[id]
			ids = append(ids, id)
		}
	}
	var total, grown int64
	usual := map[traces.StackID]float64{}
	widest := traces.NoStack
	for s, bytes := range held {
		total += bytes
		share, grew := before[s].outgrew(now[s])
		if usual[s] = share; !grew {
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
	var less float64 // that would be held in the median step
	for s, bytes := range held {
		less += float64(bytes) * (1 - usual[s])
	}
	ratio := float64(total) / (float64(total) - less)
	shapes := max(distinct(before[widest].largest), distinct(before[widest].bytes))
	if shapes < leastShapes && ratio < outlier || alike != (shapes < 2) ||
		alike && !c.trainedFrom(&c.parts[open.from]) {
		return fault{}, false
	}
	line := c.frameText(c.parts[open.from].Caller)
	f := fault{Cause: Cause{Kind: "sequence_growth", Bytes: maybe.Known(int64(less)), Text: fmt.Sprintf(
		"this step's activations are %.1f times those of the median of %s, and larger than any of them",
		ratio, nSteps(len(all)-1))}, news: ratio >= outlier}
	f.said = fmt.Sprintf("Batches differ in shape, and this one is the largest: in the forward at %s its "+
		"activations take %.1f times as much memory as in the median step.", line, ratio)
	f.fix = "Cap the length (max_length, a crop), or sort batches by length and give long ones fewer samples."
	f.sure(Likely, "in every earlier step most of these lines made less, and different amounts")
	if alike {
		f.sure(Likely, "the same lines made less in all steps before; a part of the training that begins "+
			"later would look the same")
	}
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
