package autopsy

import (
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Logits, the losses over them, and other blocks of their size.

// blockSet is a set of blocks at a moment.
type blockSet struct {
	lines    map[int32]bool // numbers of sites: two calls of a function, for two models, are one line
	outputs  map[int32]bool // of the output layer, whose blocks are longer than those of the loss
	sizes    map[int64]bool // of its blocks, those of parameters left out
	size     int64          // of the largest
	bytes    int64          // allocated at the moment
	blocks   int            // how many they are
	duration int64          // nanoseconds during which all of them exist together
}

// member reports whether an allocation is of the set: from one of its lines and of about the size of its
// blocks, or the output layer's; or a gradient of these, made by the backward in a thread without a stack.
func (b *blockSet) member(d *timeline.Device, a timeline.AllocID) bool {
	s, size := d.Origin(a), d.Allocs.Size[a]
	if s == traces.NoStack {
		return b.sizes[size] && !isKept(d.Allocs.Category[a])
	}
	n := sites.Of(d.Timeline()).Number(s)
	return n >= 0 && (b.lines[n] && logitsSized(size, b.size) || b.outputs[n] && size > b.size)
}

// logitsSized reports whether a block is as large as the logits in a type of the same, half or double width,
// or lacks up to a sixteenth of that: a loss over the next token leaves a position out.
func logitsSized(n, logits int64) bool {
	for _, m := range [...]int64{logits, logits / 2, 2 * logits} {
		if max(n, m)-min(n, m) <= m/16 {
			return true
		}
	}
	return false
}

// lossBlocks returns the blocks at a moment that are logits or similar: the largest that a loss over classes
// allocates there, and every block of the same, half or double size. It is empty if the loss holds less than
// 5 % of what is allocated, or if other lines made such blocks and the model made none: a function may use a
// loss to compare all pairs of something, such as boxes and anchors.
func lossBlocks(d *timeline.Device, m timeline.Moment) blockSet {
	live := d.LiveAt(m, nil)
	kinds := d.Timeline().Kinds()
	set := blockSet{lines: map[int32]bool{}, outputs: map[int32]bool{}, sizes: map[int64]bool{}}
	table := sites.Of(d.Timeline())
	total := int64(0)
	for _, a := range live {
		total += d.Allocs.Rounded[a]
		if kinds.Of(d.Origin(a)).Has(frames.KindLoss) && d.Allocs.Category[a] != timeline.Parameter {
			set.size = max(set.size, d.Allocs.Size[a])
		}
	}
	if m != timeline.Start && d.Len() > 0 {
		if e := d.Event(m); e.Action == traces.OOM && kinds.Of(e.Stack).Has(frames.KindLoss) {
			set.size = max(set.size, e.Size)
		}
	}
	if set.size*20 < total || set.size == 0 {
		return blockSet{}
	}
	first, last := timeline.Start, timeline.Never
	byHand := false // something else than the loss made one
	inLayers := linesOfLayers(d, live)
	for _, a := range live {
		cat, s, size := d.Allocs.Category[a], d.Origin(a), d.Allocs.Size[a]
		if s == traces.NoStack || cat == timeline.Parameter || cat == timeline.OptimizerState ||
			inLayers[table.Number(s)] {
			continue
		}
		switch {
		case logitsSized(size, set.size):
			set.lines[table.Number(s)] = true
		case size > set.size && size <= longerOutput*set.size && linearOfOutermost(d, s):
			set.outputs[table.Number(s)] = true // the loss is over a part of the positions
		default:
			continue
		}
		byHand = byHand || !kinds.Of(s).Has(frames.KindLoss)
		set.sizes[size] = true
		set.bytes += d.Allocs.Rounded[a]
		set.blocks++
		first, last = max(first, d.Allocs.Start[a]), min(last, d.Allocs.Requested[a])
	}
	if byHand && !outputSized(d, m, set.size) {
		return blockSet{}
	}
	for _, a := range live { // whose gradients have their sizes
		if d.Allocs.Category[a] == timeline.Parameter {
			delete(set.sizes, d.Allocs.Size[a])
		}
	}
	set.duration = d.Time(min(last, timeline.Moment(d.Len()-1))) - d.Time(first)
	return set
}

// linesOfLayers returns the sites that several layers of a model share, in a recording that names modules. A
// model computes its logits once: blocks of their size in its layers are that large by chance.
func linesOfLayers(d *timeline.Device, blocks []timeline.AllocID) map[int32]bool {
	table := sites.Of(d.Timeline())
	layer, several := map[int32]string{}, map[int32]bool{}
	for _, a := range blocks {
		s := d.Origin(a)
		if s == traces.NoStack {
			continue
		}
		if made := d.Timeline().Made(s); made != nil && made.Module != "" {
			n := table.Number(s)
			if before, ok := layer[n]; ok && before != made.Module {
				several[n] = true
			}
			layer[n] = made.Module
		}
	}
	return several
}

// outputSized reports whether the model's last call before a moment made a block that may be the logits of a
// loss whose largest block has a size: as large, or longer. A recording without calls does not tell, and
// neither does a loss that the model computes itself.
func outputSized(d *timeline.Device, m timeline.Moment, size int64) bool {
	parts, kinds := steps.Parts(d), d.Timeline().Kinds()
	i := steps.PartAt(parts, m)
	for i >= 0 && parts[i].Phase != traces.PhaseForward {
		i--
	}
	if i < 0 {
		return true
	}
	first, end := d.AllocsIn(parts[i].First, m+1)
	for id := first; id < end; id++ {
		n := d.Allocs.Size[id]
		if (logitsSized(n, size) || n > size && n <= longerOutput*size) &&
			kinds.Of(d.Allocs.Stack[id]).Has(frames.KindModel) {
			return true
		}
	}
	return false
}

// chunks returns in how many chunks a block is computed.
func chunks(size int64) int64 {
	n := int64(leastChunks)
	for size/n > chunkBytes {
		n *= 2
	}
	return n
}

// The loss is computed in chunks of at most chunkBytes, a size that still keeps a GPU busy, and in at least
// leastChunks.
const (
	chunkBytes  = 128 << 20
	leastChunks = 8
)

// longerOutput bounds the size of the logits of all positions relative to what the loss computes from them.
const longerOutput = 4

// linearOfOutermost reports whether a stack is that of a linear layer which the outermost module calls.
func linearOfOutermost(d *timeline.Device, s traces.StackID) bool {
	if s < 0 {
		return false
	}
	calls, linear := 0, false
	for _, id := range d.Timeline().Places().Stacks.At(s) {
		fn, file, _ := d.Timeline().Places().FrameText(id)
		switch {
		case fn == "_call_impl":
			calls++
		case calls == 0 && fn == "forward" && strings.HasSuffix(file, "torch/nn/modules/linear.py"):
			linear = true
		}
	}
	return linear && calls == 2
}
