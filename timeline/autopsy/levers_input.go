package autopsy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Smaller samples: shorter sequences, or smaller crops of images and volumes. Activations scale with the size
// of a sample as they do with the number of samples, so half the length or half the area saves about what
// half the batch does, and it is all that is left where the batch is one sample. It changes what the model
// sees, so it comes after smaller batches and checkpoints that save as much, and is offered only where no
// fault and nothing in the allocator explains the memory.

// convolves and embeds report what a model's samples are: images and the like, or sequences of tokens.
func (c *leverCase) convolves() bool { return c.ran("", "torch/nn/modules/conv.py") }
func (c *leverCase) embeds() bool    { return c.ran("embedding", "torch/nn/functional.py") }

// ran reports whether a function of a file is on some stack; any function for "".
func (c *leverCase) ran(function, file string) bool {
	p := c.d.Timeline().Places()
	for i := range p.Frames {
		fn, in, _ := p.FrameText(traces.FrameID(i))
		if (function == "" || fn == function) && strings.HasSuffix(in, file) {
			return true
		}
	}
	return false
}

func inputLever(c *leverCase) (Lever, bool) {
	tooLarge := slices.ContainsFunc(c.a.Causes, func(x Cause) bool { return x.Main && x.Kind == "too_large" })
	if !tooLarge || 2*c.batch < c.total || c.batch == 0 {
		return Lever{}, false
	}
	return c.divided(func(parts int64) (Lever, bool) {
		n, ok := c.saves(c.cutBatch(parts))
		request := allBut(c.requestOfBatch(c.batch), parts)
		l := Lever{Name: "smaller_input", Saves: maybe.Known(n + request), Exactness: timeline.Inferred,
			Unsure: true, ofSamples: true, Fits: c.serves(c.f.asked-request, n),
			Effect: Effect{Less: request}}
		l.Text = fmt.Sprintf("make the samples smaller, such as crops of %s the area: the %s of activations "+
			"and inputs at that moment scale with them", ofIt(parts), c.f.units.Bytes(c.batch))
		if !c.convolves() && c.embeds() {
			l.Name = "cap_sequence"
			l.Text = fmt.Sprintf("cap the length of the sequences, for example at %s of the longest: the %s "+
				"of activations and inputs at that moment scale with it", Fraction(parts),
				c.f.units.Bytes(c.batch))
		}
		return l, ok
	})
}
