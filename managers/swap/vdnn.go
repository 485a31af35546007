package swap

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// vDNN (Rhu et al., "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network
// Design", MICRO 2016, arXiv 1602.08124).
//
// Problem: the input feature map X of a layer is read by the layer's forward pass and, much later, by its
// backward pass, and nobody needs it in between. Keep it on the host meanwhile, knowing nothing about the
// network except its layers.
//
// The authors' approach, followed here. Forward: while layer n computes, its X is copied out; compute waits
// for both at the END of the layer, and X is freed. If several layers read X (fork), the last one offloads
// it. vdnn-all offloads the X of every layer except in-place activations, softmax and fully connected layers,
// vdnn-conv only those of convolutions; neither offloads that of the last feature-extraction layer, whose
// backward pass comes at once. Backward: while layer n computes, at most one layer's X is brought back: that
// of the nearest earlier layer that is still out, no further away than the nearest convolution. Compute waits
// for both at the end of the layer. A layer whose X was not brought back fetches it when it begins. vdnn-dyn
// tries eight settings of offloading and convolution algorithm in order of speed and takes the first that
// fits: all with the smallest algorithms (m), which if it does not fit makes the network untrainable; none,
// conv, all with the fastest (p); conv, all with each convolution on the fastest algorithm that fits there;
// conv, all with (m). A workspace lives as long as its op, so the algorithm of one convolution does not
// affect another and the greedy downgrade is exact: the fastest that fits, op by op.
//
// Complexity: O(accesses + ops log ops) for the decisions, eight times that for vdnn-dyn; then a placement
// for each setting whose live bytes fit. The window needs no search of its own: the nearest layer that is
// still out moves one way only, and the next convolution is a table.
//
// Rejected: bringing back as much as fits, or as soon as the link is free (a planner does that, and vDNN is
// not one: its window bounds its memory); synchronising the copy with the next user of the memory (cheaper,
// and not vDNN).
//
// Our reading. Layers are the forward ops of the recording. X is a buffer that a forward op reads and that is
// touched again after the forward pass. A layer's backward pass is the first op of its own class, or else of
// any class, that touches it again, and the ops of the same module right before and after that one. The last
// feature-extraction layer is the last forward op of class conv, pool or norm or, if there is none, the last
// that could offload. vdnn-all and vdnn-conv use (m). The copy out may begin when the op before the layer is
// done, hence an absence's After is that op: the layer itself still reads X while it is being copied. Like
// any buffer, the network's own input is copied out. vDNN's memory manager is a pool (cnmem) that finds
// addresses at run time; here they are placed ahead of time, which can only favour it.

// policy says which inputs a vDNN manager offloads.
type policy uint8

const (
	offloadNone policy = iota
	offloadConv
	offloadAll
	dynamic
)

// vdnn is one of the three managers. The unexported switches are for tests of what each mechanism is worth.
type vdnn struct {
	policy     policy
	noWindow   bool // look for a layer to prefetch beyond the nearest convolution
	noPrefetch bool // fetch when a layer begins
	noSync     bool // wait for copies only where their bytes or memory are needed
}

// Info implements [plan.Manager].
func (v vdnn) Info() plan.Info {
	i := plan.Info{After: "Rhu 2016", Family: plan.Swapping, Needs: traces.Dataflow,
		Reading: "layers are taken from the recorded ops; addresses are placed ahead of time where vDNN's " +
			"pool finds them at run time"}
	switch v.policy {
	case offloadConv:
		i.Name, i.Summary = "vdnn-conv", "Offloads the inputs of convolutions during the forward pass and "+
			"prefetches them layer by layer; ignores the budget."
	case dynamic:
		i.Name, i.Summary = "vdnn-dyn", "Takes the fastest of eight settings of vDNN's offloading and "+
			"convolution algorithms that fits the budget."
	default:
		i.Name, i.Summary = "vdnn-all", "Offloads the inputs of all feature-extraction layers during the "+
			"forward pass and prefetches them layer by layer; ignores the budget."
	}
	return i
}

// Plan implements [plan.Manager].
func (v vdnn) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	began, info := time.Now(), v.Info()
	if err := serves(p, info, r); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := newNetwork(p)
	var pl *plan.Plan
	var err error
	if v.policy == dynamic {
		r.Beat, r.MustFit = 0, false // what one setting takes says nothing about the next
		pl, err = v.profile(ctx, n, r)
	} else {
		var d plan.Decisions
		if d.Absences, err = v.absences(ctx, n, v.policy); err != nil {
			return nil, err
		}
		d.Variants = n.variants(smallest)
		if pl, err = placed(ctx, p, r, d); err == nil && len(d.Absences) == 0 {
			of := map[policy]string{offloadConv: "convolution",
				offloadAll: "feature-extraction layer"}[v.policy]
			pl.Note("no %s has an input that is needed again in the backward pass, so "+
				"that nothing is offloaded", of)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	return made(pl, info, r, began), nil
}

// absences decides what leaves under a policy, and when it comes back.
func (v vdnn) absences(ctx context.Context, n *network, o policy) ([]plan.Absence, error) {
	var out []plan.Absence
	of := map[plan.OpID][]int32{} // the absences of each layer
	for i := range n.inputs {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		x := &n.inputs[i]
		if o == offloadNone || o == offloadConv && !x.conv || slices.Contains(n.last, x.layer) {
			continue
		}
		why := "input of a layer"
		switch {
		case x.conv:
			why = "input of a convolution"
		case n.p.Buffers[x.buffer].Category == timeline.Input:
			why = "the network's input"
		}
		of[x.layer] = append(of[x.layer], int32(len(out)))
		out = append(out, plan.Absence{Buffer: x.buffer,
			After: max(x.layer-1, x.ready, n.p.Buffers[x.buffer].Start), Before: x.need,
			Release: x.layer + 1, Fetch: x.need, How: plan.Swap, Blocking: !v.noSync, Paced: true, Why: why})
	}
	if !v.noPrefetch {
		v.prefetch(n, out, of)
	}
	return out, nil
}

// checkEvery is how many inner iterations run between two looks at the context.
const checkEvery = 1 << 12

// prefetch walks the backward pass; while each layer computes it brings back the inputs of one upcoming
// layer.
func (v vdnn) prefetch(n *network, out []plan.Absence, of map[plan.OpID][]int32) {
	nextConv := make([]int, len(n.layers)+1)
	nextConv[len(n.layers)] = len(n.layers)
	for k := len(n.layers) - 1; k >= 0; k-- {
		nextConv[k] = nextConv[k+1]
		if n.layers[k].conv {
			nextConv[k] = k
		}
	}
	next := 0 // the nearest layer that is still out
	for k := range n.layers {
		cur := &n.layers[k]
		next = max(next, k+1)
		for next < len(n.layers) && len(of[n.layers[next].op]) == 0 {
			next++
		}
		if next == len(n.layers) {
			return
		}
		if !v.noWindow && nextConv[k+1] < next {
			continue
		}
		for _, i := range of[n.layers[next].op] {
			x := &out[i]
			if cur.begin < x.Release { // of a later forward pass: it has not even left
				continue
			}
			x.Fetch = min(cur.begin, x.Before)
			if !v.noSync {
				x.Joined = min(cur.end, x.Before)
			}
		}
		if cur.begin >= n.layers[next].op {
			next++
		}
	}
}

// passes are vDNN-dyn's settings, in the order in which they are tried.
var passes = []struct {
	offload   policy
	algorithm string
	name      string
}{
	{offloadAll, "m", "all inputs offloaded, smallest algorithms"},
	{offloadNone, "p", "nothing offloaded, fastest algorithms"},
	{offloadConv, "p", "inputs of convolutions offloaded, fastest algorithms"},
	{offloadAll, "p", "all inputs offloaded, fastest algorithms"},
	{offloadConv, "greedy", "inputs of convolutions offloaded, fastest algorithms that fit"},
	{offloadAll, "greedy", "all inputs offloaded, fastest algorithms that fit"},
	{offloadConv, "m", "inputs of convolutions offloaded, smallest algorithms"},
	{offloadAll, "m", "all inputs offloaded, smallest algorithms"},
}

// profile is vDNN-dyn.
func (v vdnn) profile(ctx context.Context, n *network, r plan.Request) (*plan.Plan, error) {
	var floor *plan.Plan // pass 0, which is the last one too
	var tried int64
	for k, pass := range passes {
		r.Report(int64(k), int64(len(passes)))
		if k == len(passes)-1 && floor != nil {
			return v.won(ctx, n, r, floor, tried, pass.name)
		}
		tried++
		pl, err := v.try(ctx, n, r, pass.offload, pass.algorithm)
		if err != nil {
			if floor != nil && ctx.Err() != nil {
				floor.Note("cancelled before faster settings were tried")
				return v.won(ctx, n, r, floor, tried, passes[0].name)
			}
			return nil, err
		}
		switch fits := pl != nil && (r.Budget <= 0 || pl.Footprint <= r.Budget); {
		case k == 0 && !fits:
			pl.Note("does not fit even with all inputs offloaded and the smallest algorithms, which " +
				"vDNN calls untrainable")
			return v.won(ctx, n, r, pl, tried, pass.name)
		case k == 0:
			floor = pl
		case fits:
			return v.won(ctx, n, r, pl, tried, pass.name)
		}
	}
	return floor, nil
}

// won notes which setting was chosen, and how long its iteration takes if that is known.
func (v vdnn) won(ctx context.Context, n *network, r plan.Request, pl *plan.Plan, tried int64,
	name string) (*plan.Plan, error) {
	pl.Note("setting taken: %s", name)
	pl.Work += tried
	if r.Evaluator != nil && n.p.HasTimes && ctx.Err() == nil {
		pl.Manager = v.Info().Name
		m, err := r.Evaluator.Evaluate(ctx, n.p, pl)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		if err == nil {
			pl.Note("its profiled step time is %.3f ms", float64(m.StepTime)/1e6)
		}
	}
	return pl, nil
}

// try makes the plan of one setting. It is nil where its live bytes alone pass the budget and it is not the
// setting of least memory.
func (v vdnn) try(ctx context.Context, n *network, r plan.Request, offload policy,
	algorithm string) (*plan.Plan, error) {
	absences, err := v.absences(ctx, n, offload)
	if err != nil {
		return nil, err
	}
	least := plan.Decisions{Absences: absences, Variants: n.variants(smallest)}
	asm, err := plan.Assemble(n.p, least)
	if err != nil {
		return nil, err
	}
	least.Absences = absences
	live, _ := asm.PeakLive()
	if r.Budget > 0 && live > r.Budget && (offload != offloadAll || algorithm != "m") {
		return nil, nil
	}
	switch algorithm {
	case "m":
		return placed(ctx, n.p, r, least)
	case "p":
		d := plan.Decisions{Absences: absences, Variants: n.variants(fastest)}
		if asm, err = plan.Assemble(n.p, d); err != nil {
			return nil, err
		}
		if live, _ = asm.PeakLive(); r.Budget > 0 && live > r.Budget {
			return nil, nil
		}
		return placed(ctx, n.p, r, d)
	}
	// A workspace is live only during its own op: what else is live there says how much it may take.
	others := make([]int64, len(n.p.Ops))
	var now int64
	for _, i := range asm.Resident {
		now += asm.Instances[i].Size
	}
	for s := range asm.Steps {
		switch st := &asm.Steps[s]; st.Kind {
		case plan.Alloc:
			now += asm.Instances[st.Instance].Size
		case plan.Free:
			now -= asm.Instances[st.Instance].Size
		case plan.Run:
			others[st.Op] = now - n.workspace(st.Op, least.Variants)
		}
	}
	return place.Within(ctx, n.p, r, place.Options{Work: placeWork},
		func(limit int64) (plan.Decisions, error) {
			d := plan.Decisions{Absences: absences, Variants: slices.Clone(least.Variants)}
			for i := range d.Variants {
				d.Variants[i] = n.fastestWithin(plan.OpID(i), limit-others[i], d.Variants[i])
			}
			return d, nil
		})
}
