package plantest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Layers is a chain of layers over a link so slow that nothing is worth copying, for which the least time to
// train it within a budget can be computed. Layer i reads activation i and writes activation i+1; its
// backward op reads activation i and the gradient of activation i+1 and writes that of activation i.
type Layers struct {
	Sizes []int64 // of the activations and of their gradients, one more than layers, in bytes
	Times []int64 // of the layers, in nanoseconds; their backward ops take twice as long
}

// Never is the time of what memory does not suffice for.
const Never = math.MaxInt64 / 4

// EvenLayers returns n layers that are all alike.
func EvenLayers(n int) Layers {
	l := Layers{Sizes: make([]int64, n+1), Times: make([]int64, n)}
	for i := range l.Sizes {
		l.Sizes[i] = 1 << 20
	}
	for i := range l.Times {
		l.Times[i] = 1_000_000
	}
	return l
}

// UnevenLayers returns n layers of sizes from 1 to 16 MiB and times from 0.2 to 4 ms.
func UnevenLayers(seed uint64, n int) Layers {
	r := rand.New(rand.NewPCG(seed, 0x2545f4914f6cdd1d))
	l := EvenLayers(n)
	for i := range l.Sizes {
		l.Sizes[i] *= 1 + r.Int64N(16)
	}
	for i := range l.Times {
		l.Times[i] = 200_000 + r.Int64N(3_800_000)
	}
	return l
}

// Base returns the time of a step that keeps everything.
func (l Layers) Base() (sum int64) {
	for _, t := range l.Times {
		sum += 3 * t
	}
	return sum
}

// Problem returns the training of the layers.
func (l Layers) Problem() *plan.Problem {
	b := New()
	b.P.Hardware.D2H.BytesPerSecond, b.P.Hardware.H2D.BytesPerSecond = 1<<18, 1<<18
	n := len(l.Times)
	acts := make([]plan.BufferID, n+1)
	for i := range acts {
		acts[i] = b.Buffer(fmt.Sprintf("act%d", i), l.Sizes[i], timeline.Activation)
	}
	input := b.Op("input", traces.PhaseForward, 0, nil, acts[:1])
	b.P.Ops[input].Rerunnable = false
	for i, t := range l.Times {
		b.Op(fmt.Sprintf("forward%d", i), traces.PhaseForward, t, acts[i:i+1], acts[i+1:i+2])
	}
	grad := b.Buffer(fmt.Sprintf("grad%d", n), l.Sizes[n], timeline.Gradient)
	b.Op("loss", traces.PhaseBackward, 0, acts[n:], []plan.BufferID{grad})
	for i := n - 1; i >= 0; i-- {
		next := b.Buffer(fmt.Sprintf("grad%d", i), l.Sizes[i], timeline.Gradient)
		b.Op(fmt.Sprintf("backward%d", i), traces.PhaseBackward, 2*l.Times[i], []plan.BufferID{grad, acts[i]},
			[]plan.BufferID{next})
		grad = next
	}
	return b.End()
}

// Least returns the least time of layers that must be rerun for a step to fit the budget, without copies,
// [Never] if it cannot fit. It is Revolve's dynamic program if all layers are alike, and that of Beaumont and
// others for layers of any sizes and times: a result, once held, is held until its layer has run backward.
func (l Layers) Least(budget int64) int64 {
	type state struct {
		s, t int // activation s is held; the ops from backward t down to s are to run
		m    int64
	}
	n := len(l.Times)
	known := map[state]int64{}
	var least func(x state) int64
	least = func(x state) int64 {
		first := x.t == n // the loss takes the place of backward n: the sweep is the forward pass
		var grad int64
		if !first {
			grad = l.Sizes[x.t+1]
		}
		if x.s == x.t {
			if grad+l.Sizes[x.s] <= x.m {
				return 0
			}
			return Never
		}
		if v, ok := known[x]; ok {
			return v
		}
		best, sweep := int64(Never), int64(0)
		for j := x.s + 1; j <= x.t; j++ {
			need := grad + l.Sizes[j]
			if j-1 > x.s {
				need += l.Sizes[j-1]
			}
			if need > x.m {
				break
			}
			if !first {
				sweep += l.Times[j-1]
			}
			if sweep >= best {
				break
			}
			behind := least(state{j, x.t, x.m - l.Sizes[j]})
			if sweep+behind < best {
				best = min(best, sweep+behind+least(state{x.s, j - 1, x.m}))
			}
		}
		known[x] = best
		return best
	}
	return least(state{0, n, budget - l.Sizes[0]})
}

// LeastOfAll is [Layers.Least] over all schedules whatever, by trying every set of held activations: for a
// few layers.
func (l Layers) LeastOfAll(budget int64) int64 {
	type state struct {
		op   int // the next op: forward ops, loss, backward ops
		held uint32
	}
	n := len(l.Times)
	bytes := func(x state) (sum int64) {
		for i := range n + 1 {
			if x.held>>i&1 == 1 {
				sum += l.Sizes[i]
			}
		}
		if x.op > n {
			sum += l.Sizes[2*n+1-x.op] // the gradient that the last op made
		}
		return sum
	}
	at := map[state]int64{{0, 1}: 0}
	done := map[state]bool{}
	for {
		now, best := state{}, int64(Never)
		for x, v := range at {
			if !done[x] && v < best {
				now, best = x, v
			}
		}
		if best == Never || now.op == 2*n+1 {
			return best
		}
		done[now] = true
		reach := func(x state, v int64) {
			if old, ok := at[x]; !ok || v < old {
				at[x] = v
			}
		}
		for i := range n + 1 {
			if now.held>>i&1 == 0 {
				continue
			}
			if i > 0 { // the input cannot be recomputed
				reach(state{now.op, now.held &^ (1 << i)}, best)
			}
			if i < n && now.held>>(i+1)&1 == 0 && i < now.op && bytes(now)+l.Sizes[i+1] <= budget { // again
				reach(state{now.op, now.held | 1<<(i+1)}, best+l.Times[i])
			}
		}
		next, reads, writes := state{now.op + 1, now.held}, now.op, int64(0)
		if now.op < n {
			writes = l.Sizes[now.op+1]
			next.held |= 1 << (now.op + 1)
		} else {
			reads = 2*n - now.op
			writes = l.Sizes[reads]
		}
		fits := bytes(now)+writes <= budget
		if fits && now.held>>reads&1 == 1 && (now.op >= n || now.held>>(now.op+1)&1 == 0) {
			reach(next, best)
		}
	}
}
