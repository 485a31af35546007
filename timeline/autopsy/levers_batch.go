package autopsy

import (
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// A batch of one sample cannot be halved. A recording has no shapes, but shows it in two ways. What one line
// brings to the GPU is, step by step, the number of samples times something times the bytes of a number; if
// lengths vary, the greatest common divisor of those sizes is the samples times the bytes, or a multiple of
// it. And a loss over classes takes one index of eight bytes per sample. If neither shows it, the lever says
// that one sample cannot be halved. Rejected: small inputs in general, since a learning rate is one, too.

const (
	// indexBytes is the size of a token or of a class.
	indexBytes = 8
	// leastBrought is how many blocks of a line must be seen.
	leastBrought = 3
)

// brought is what a line brought to the GPU.
type brought struct {
	n        int
	divisor  int64
	smallest int64
	largest  int64
}

// oneSample reports whether the recording shows that a batch is one sample.
func (c *leverCase) oneSample() bool {
	d, kinds, table := c.d, c.d.Timeline().Kinds(), sites.Of(c.d.Timeline())
	lines := map[int32]*brought{}
	for id := range d.Allocs.Category {
		n := table.Number(d.Allocs.Stack[id])
		if n < 0 || d.Allocs.Category[id] != timeline.Input {
			continue
		}
		size := d.Allocs.Size[id]
		b := lines[n]
		if b == nil {
			b = &brought{smallest: size}
			lines[n] = b
		}
		b.n, b.divisor = b.n+1, gcd(b.divisor, size)
		b.smallest, b.largest = min(b.smallest, size), max(b.largest, size)
	}
	varies, most, index := false, int64(0), false
	for _, b := range lines {
		switch {
		case b.n < leastBrought:
		case b.smallest < b.largest:
			varies, most = true, max(most, b.divisor)
		case b.largest == indexBytes:
			index = true
		}
	}
	return varies && most <= indexBytes || index && c.classes(kinds)
}

// requestOfBatch returns the bytes of the failed request if they belong to the batch: the forward or the
// backward made the request, it is no larger than what exists of the batch, and no parameter has its size, as
// its gradient would. Otherwise it is 0.
func (c *leverCase) requestOfBatch(there int64) int64 {
	const others = frames.KindStep | frames.KindOptimizer | frames.KindModuleInit | frames.KindModuleMove |
		frames.KindUserInit | frames.KindLoad
	if !c.a.OOM || c.f.asked > there || c.d.Timeline().Kinds().Of(c.d.Event(c.a.At).Stack).Has(others) {
		return 0
	}
	all := steps.Parts(c.d)
	i := steps.PartAt(all, c.a.At)
	if i < 0 || all[i].Phase != traces.PhaseForward && (all[i].Phase != traces.PhaseBackward ||
		c.a.At >= all[i].End) { // what follows a call of the model is a loss, or a metric
		return 0
	}
	for _, id := range c.live {
		if c.d.Allocs.Category[id] == timeline.Parameter && c.d.Allocs.Size[id] == c.f.asked {
			return 0
		}
	}
	return c.f.asked
}

// classes reports whether the training has a loss over classes.
func (c *leverCase) classes(kinds *frames.Kinds) bool {
	p := c.d.Timeline().Places()
	for i, k := range kinds.Frames {
		fn, _, _ := p.FrameText(traces.FrameID(i))
		if k.Has(frames.KindLoss) && (strings.Contains(fn, "cross_entropy") ||
			strings.Contains(fn, "nll_loss")) {
			return true
		}
	}
	return false
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
