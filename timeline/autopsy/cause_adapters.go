package autopsy

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Weights beside low-rank adapters that get gradients. Adapters are meant to be trained alone, but a base
// that is not frozen gets gradients too, as large as itself (TUDB-Labs/mLoRA issue 90). The pattern, in a
// first step, when no optimizer shows what it trains: weights in pairs of r x in and out x r, for base
// weights of out x in, and a backward that made gradients of the base weights' sizes. Look-alikes: a training
// of both, and layers that a model itself factorises beside full ones.

const (
	leastAdapters = 4
	// leastRank leaves out the weight and the bias of a norm, which look like a pair of rank 1.
	leastRank, mostRank = 4, 256
	// baseTimes is how many times larger than its adapters a base weight must be.
	baseTimes = 16
)

// rankOf returns the rank of two adapters of a base weight, by their bytes; 0 if they are none.
func rankOf(down, up, base int64) int64 {
	for _, element := range [...]int64{2, 4} {
		// down * up = r * in * out * r * element^2
		r := int64(math.Round(math.Sqrt(float64(down) * float64(up) / (float64(base) * float64(element)))))
		row := r * element
		if r < leastRank || r > mostRank || down%row != 0 || up%row != 0 {
			continue
		}
		if down/row*(up/row)*element == base {
			return r
		}
	}
	return 0
}

// adapted returns the number of pairs of adapters of the commonest rank, and the sizes of the base weights
// that they may belong to.
func adapted(c *evidence) (pairs int, bases map[int64]bool) {
	sizes, _ := c.weights()
	var weights []int64 // in the order in which they were made
	for _, id := range c.live {
		if n := c.d.Allocs.Size[id]; c.d.Allocs.Start[id] < c.parts[0].First && sizes[n] > 0 {
			weights = append(weights, n)
		}
	}
	found := map[int64]map[int64]int{} // pairs by rank and base
	for i := range len(weights) - 1 {
		down, up := weights[i], weights[i+1]
		for base := range sizes {
			if base < baseTimes*max(down, up) {
				continue
			}
			if r := rankOf(down, up, base); r > 0 {
				if found[r] == nil {
					found[r] = map[int64]int{}
				}
				found[r][base]++
			}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(found)) {
		n, of := 0, map[int64]bool{}
		for base, k := range found[r] {
			if k >= leastAdapters && k <= sizes[base] { // each pair has a weight of its own
				n += k
				of[base] = true
			}
		}
		if n > pairs {
			pairs, bases = n, of
		}
	}
	return pairs, bases
}

func adaptersFault(c *evidence) (fault, bool) {
	if len(c.parts) == 0 || c.lastOf(traces.PhaseOptimizer) >= 0 || c.lastOf(traces.PhaseBackward) < 0 {
		return fault{}, false
	}
	pairs, bases := adapted(c)
	if pairs < leastAdapters {
		return fault{}, false
	}
	var smallest int64 = math.MaxInt64
	for base := range bases {
		smallest = min(smallest, base)
	}
	var ids []timeline.AllocID
	ofBases := 0
	for _, id := range c.live {
		if c.d.Allocs.Category[id] != timeline.Gradient || c.d.Allocs.Size[id] < smallest {
			continue
		}
		ids = append(ids, id)
		if bases[c.d.Allocs.Size[id]] {
			ofBases++
		}
	}
	if ofBases == 0 {
		return fault{}, false
	}
	bytes := c.bytesOf(ids)
	f := fault{Cause: Cause{Kind: "frozen_gradients", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of gradients in %s of base weights' sizes, beside %d pairs of weights of low rank",
		c.u.Bytes(bytes), nBlocks(len(ids)), pairs)}}
	f.said = fmt.Sprintf("The base model under the adapters is not frozen: its weights get gradients, %s so "+
		"far in this first backward.", c.u.Bytes(bytes))
	f.fix = "Freeze all weights before the adapters are added: model.requires_grad_(False)."
	f.sure(Likely, "weights come in pairs of low rank; a training of both would look the same")
	var changes []Change
	for _, id := range ids {
		changes = append(changes, life(c.d, id, c.d.Allocs.Rounded[id]))
	}
	f.lever = remedy{name: "freeze_gradients_off", command: "model.requires_grad_(False)", changes: changes}
	if bases[c.a.Asked.Or(0)] {
		f.lever.request = c.a.Asked.Or(0)
	}
	return f, true
}
