package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// One layer that is too wide: a classifier of millions of classes, of which the forward makes copies. The
// pattern: one weight is a significant share of the memory, a call of the model made blocks of its size,
// which it needs for the backward, and together they are most of it. Look-alikes: layers that are all as
// large, none of which stands out; activations that happen to have a weight's size, which are not that large.

const (
	// wideShare is the share of allocated and requested memory that the one weight must hold.
	wideShare = 0.15
	// wideWithCopies is the share with its copies.
	wideWithCopies = 0.4
)

func wideLayerFault(c *evidence) (fault, bool) {
	if len(c.parts) == 0 {
		return fault{}, false
	}
	a, most := &c.d.Allocs, timeline.NoAlloc
	for _, id := range c.live {
		if a.Start[id] < c.parts[0].First && (most == timeline.NoAlloc || a.Rounded[id] > a.Rounded[most]) {
			most = id
		}
	}
	all := float64(c.total + c.a.Asked.Or(0))
	if most == timeline.NoAlloc || float64(a.Rounded[most]) < wideShare*all {
		return fault{}, false
	}
	weights, copies := []timeline.AllocID{}, []timeline.AllocID{}
	for _, id := range c.live {
		switch {
		case a.Size[id] != a.Size[most]:
		case a.Start[id] < c.parts[0].First:
			weights = append(weights, id)
		case c.inModel(c.d.Origin(id)):
			copies = append(copies, id)
		}
	}
	bytes := c.bytesOf(weights) + c.bytesOf(copies)
	if len(weights) > 1 || len(copies) == 0 || float64(bytes) < wideWithCopies*all {
		return fault{}, false
	}
	line := sites.Name(c.d, c.d.Origin(copies[0]))
	f := fault{Cause: Cause{Kind: "too_large", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"one weight has %s, and %s made %s of its size in the forward", c.u.Bytes(a.Rounded[most]), line,
		nBlocks(len(copies)))}}
	f.said = fmt.Sprintf("One layer takes most of the memory: its weight is %s, and %s makes copies of it "+
		"that take %s.", c.u.Bytes(a.Rounded[most]), line, c.u.Bytes(c.bytesOf(copies)))
	f.fix = "Use a sample of its classes in each step (a sampled softmax, PartialFC), or divide it over " +
		"several GPUs. Normalising the products instead of the weight makes no copy."
	f.sure(Likely, "blocks of that weight's size stay for the backward; activations of the same size would "+
		"look the same")
	var changes []Change
	for _, id := range append(weights, copies...) { // of half of the classes
		changes = append(changes, life(c.d, id, a.Rounded[id]/2))
	}
	f.lever = remedy{name: "smaller_vocabulary", command: at("F.linear(x, weight[sample])", line),
		changes: changes, request: c.a.Asked.Or(0) / 2, scale: 0.5}
	return f, true
}
