package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Weights that each layer computes in its forward: adapters that are added to the weight (DoRA, LoHa),
// parametrizations, weight standardization, simulated quantization. The pattern: blocks of the sizes of the
// layers' weights, made in the model, stay for the backward, at least as many bytes as the weights of these
// sizes have. Look-alikes: activations that happen to have a weight's size, as with as many tokens as
// channels, of which norms make some, too; one layer that stands out, which is reported for itself; 16-bit
// copies by autocast, which are half as large. Source: section 4.2 of the DoRA paper.

const (
	// leastMadeWeight is the least size of a weight that counts.
	leastMadeWeight = 1 << 20
	// madeWeightsShare is the share of allocated and requested memory that they must hold.
	madeWeightsShare = 0.4
)

func madeWeightsFault(c *evidence) (fault, bool) {
	if len(c.parts) == 0 {
		return fault{}, false
	}
	a := &c.d.Allocs
	weights, _ := c.weights()
	byNorm, norms := map[int64]bool{}, map[traces.StackID]bool{} // sizes that activations have, too
	bySize := map[int64][]timeline.AllocID{}
	for id := c.d.Begun(c.parts[0].First); id < c.d.Begun(c.a.At); id++ {
		s := a.Stack[id]
		if a.Size[id] < leastMadeWeight || weights[a.Size[id]] == 0 ||
			!c.kinds.Of(s).Has(frames.KindModel) ||
			c.kinds.Of(s).Has(frames.KindBackwardPass|frames.KindStep) {
			continue
		}
		is, known := norms[s]
		if !known {
			is = norm(c, s)
			norms[s] = is
		}
		byNorm[a.Size[id]] = byNorm[a.Size[id]] || is
		if a.Requested[id] > c.a.At {
			bySize[a.Size[id]] = append(bySize[a.Size[id]], id)
		}
	}
	var ids []timeline.AllocID
	held, most := map[traces.StackID]int64{}, traces.NoStack
	of := int64(0) // the weights that they are made of
	for _, id := range c.live {
		n := a.Size[id]
		if a.Start[id] < c.parts[0].First && len(bySize[n]) > 0 && !byNorm[n] {
			of += a.Rounded[id]
		}
	}
	for n, made := range bySize {
		if byNorm[n] {
			continue
		}
		ids = append(ids, made...)
		for _, id := range made {
			s := a.Stack[id]
			if held[s] += a.Rounded[id]; most == traces.NoStack || held[s] > held[most] ||
				held[s] == held[most] && s < most {
				most = s
			}
		}
	}
	slices.Sort(ids) // a map has no order
	bytes := c.bytesOf(ids)
	if len(ids) < leastLayers || bytes < of ||
		float64(bytes) < madeWeightsShare*float64(c.total+c.a.Asked.Or(0)) {
		return fault{}, false
	}
	line := sites.Name(c.d, most)
	f := fault{Cause: Cause{Kind: "too_large", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of the sizes of weights are kept for the backward, most of it from %s",
		c.u.Bytes(bytes), nBlocks(len(ids)), line)}}
	f.said = fmt.Sprintf("Each layer computes a weight in its forward and keeps it for the backward: %s, "+
		"most of it at %s.", c.u.Bytes(bytes), line)
	f.fix = "Checkpoint the layer, so that its weight is computed again in the backward; or change the " +
		"order: F.linear(x, W) plus what an adapter adds to its output."
	f.sure(Likely, "blocks of the weights' sizes stay for the backward, and no norm makes blocks of "+
		"these sizes")
	f.lever = remedy{name: "checkpoint", changes: untilNext(c, ids),
		command: at("checkpoint(layer, x, use_reentrant=False)", line)}
	f.instead = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
		changes: untilNext(c, ids)}
	f.elseFix = "if a part needs no gradient, such as the norm of a weight, compute it under torch.no_grad()"
	return f, true
}
