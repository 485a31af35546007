package swap

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Layers out of a recording of ops, for vDNN: which buffers are inputs of layers, where each layer's backward
// pass is, which convolution algorithms there are to choose from.
//
// Approach: a buffer's touches alternate between runs of the forward pass and runs of the backward pass.
// Between a forward run and the backward run after it a feature map is idle. The forward ops that read it in
// the first run are its layers, and the second run says where their backward passes are.
//
// Complexity: O(accesses + ops log ops). Rejected: pairing forward and backward ops by name or module
// (recordings have them only sometimes, and a data dependence is what vDNN means).

// network is a problem seen as layers.
type network struct {
	p *plan.Problem
	// inputs are the feature maps that could be offloaded, in order of buffer.
	inputs []featureMap
	// layers are the forward ops that the backward pass comes back to, in the order in which it does.
	layers []layer
	// last is the last feature-extraction layer of each iteration that the problem holds.
	last []plan.OpID
}

// featureMap is a layer's input X.
type featureMap struct {
	buffer plan.BufferID
	ready  plan.OpID // the op that wrote it last
	layer  plan.OpID // the last forward op that touches it, which offloads it
	need   plan.OpID // the first op after the forward pass that touches it
	conv   bool      // a convolution reads it
	any    bool      // a layer that vdnn-all offloads for reads it
}

// layer is a forward op with the place of its backward pass.
type layer struct {
	op         plan.OpID
	begin, end plan.OpID // of its backward pass
	conv       bool
}

// newNetwork finds feature maps and layers.
func newNetwork(p *plan.Problem) *network {
	n := &network{p: p}
	workspace := make([]bool, len(p.Buffers))
	// of each forward op, the begin of its backward pass; 0 for none
	backward := make([]plan.OpID, len(p.Ops))
	for i := range p.Ops {
		if w := p.Ops[i].Workspace; w != plan.NoBuffer {
			workspace[w] = true
		}
	}
	for b := range p.Buffers {
		if p.Buffers[b].Life != plan.Persistent && !workspace[b] {
			n.scan(plan.BufferID(b), backward)
		}
	}
	for k := range max(p.Iterations, 1) {
		n.lastLayer(plan.OpID(k*len(p.Ops)/max(p.Iterations, 1)),
			plan.OpID((k+1)*len(p.Ops)/max(p.Iterations, 1)), backward)
	}
	need := map[plan.OpID]plan.OpID{} // of each op that offloads, when the first of its inputs is needed
	for i := range n.inputs {
		if at, ok := need[n.inputs[i].layer]; !ok || n.inputs[i].need < at {
			need[n.inputs[i].layer] = n.inputs[i].need
		}
	}
	runs := modulesOf(p)
	for i := range p.Ops {
		begin := backward[i]
		if at, ok := need[plan.OpID(i)]; ok && (begin == 0 || at < begin) {
			begin = at
		}
		if begin == 0 {
			continue
		}
		begin, end := runs.around(begin)
		n.layers = append(n.layers, layer{op: plan.OpID(i), begin: begin, end: end,
			conv: p.Ops[i].Class == plan.ClassConv})
	}
	slices.SortStableFunc(n.layers, func(a, b layer) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(b.op, a.op))
	})
	return n
}

// moduleRuns are the stretches of ops of one module and phase: for each op, where its stretch begins and
// ends.
type moduleRuns struct{ begin, end []plan.OpID }

func modulesOf(p *plan.Problem) moduleRuns {
	r := moduleRuns{make([]plan.OpID, len(p.Ops)), make([]plan.OpID, len(p.Ops))}
	for lo := 0; lo < len(p.Ops); {
		hi := lo + 1
		for hi < len(p.Ops) && p.Ops[lo].Module != "" && p.Ops[hi].Module == p.Ops[lo].Module &&
			p.Ops[hi].Phase == p.Ops[lo].Phase {
			hi++
		}
		for i := lo; i < hi; i++ {
			r.begin[i], r.end[i] = plan.OpID(lo), plan.OpID(hi)
		}
		lo = hi
	}
	return r
}

// around returns the stretch of op i: the op alone if its module is not known.
func (r moduleRuns) around(i plan.OpID) (begin, end plan.OpID) { return r.begin[i], r.end[i] }

// lastLayer finds the last feature-extraction layer among the ops [from, to).
func (n *network) lastLayer(from, to plan.OpID, backward []plan.OpID) {
	last, any := plan.OpID(-1), plan.OpID(-1)
	for i := from; i < to; i++ {
		switch c := n.p.Ops[i].Class; {
		case backward[i] == 0:
		case c == plan.ClassConv || c == plan.ClassPool || c == plan.ClassNorm:
			last = i
		case extracts(c):
			any = i
		}
	}
	if last < 0 {
		last = any
	}
	if last >= 0 {
		n.last = append(n.last, last)
	}
}

// extracts reports whether vdnn-all offloads for a layer of the class. In-place activations are recognised by
// their access, not by their class.
func extracts(c plan.Class) bool {
	switch c {
	case plan.ClassLinear, plan.ClassSoftmax, plan.ClassLoss, plan.ClassOptimizer:
		return false
	}
	return true
}

// scan finds where buffer b passes from forward to backward pass, which happens more than once if an
// iteration accumulates gradients into one buffer.
func (n *network) scan(b plan.BufferID, backward []plan.OpID) {
	p := n.p
	touches := p.TouchesOf(b)
	forward := func(k int) bool { return p.Ops[touches[k].Op].Phase == traces.PhaseForward }
	for k := 0; k < len(touches); {
		if !forward(k) {
			k++
			continue
		}
		first := k
		for k < len(touches) && forward(k) {
			k++
		}
		// touches[first:again] are of the forward pass, touches[again:k] of the backward pass that follows
		again := k
		for k < len(touches) && !forward(k) {
			k++
		}
		if again == k || !touches[again].Mode.Reads() {
			continue
		}
		x := featureMap{buffer: b, ready: -1, layer: touches[again-1].Op, need: touches[again].Op}
		var firstOf [plan.ClassOptimizer + 1]plan.OpID
		for _, t := range touches[again:k] {
			if c := min(p.Ops[t.Op].Class, plan.ClassOptimizer); firstOf[c] == 0 {
				firstOf[c] = t.Op
			}
		}
		for _, t := range touches[first:again] {
			c := min(p.Ops[t.Op].Class, plan.ClassOptimizer)
			if t.Mode.Writes() {
				x.ready = t.Op
			}
			if !t.Mode.Reads() {
				continue
			}
			begin := x.need
			if firstOf[c] > 0 {
				begin = firstOf[c]
			}
			if backward[t.Op] == 0 || begin < backward[t.Op] {
				backward[t.Op] = begin
			}
			if t.Mode == plan.Mutate { // in place: its backward pass does not need what it read
				continue
			}
			x.conv = x.conv || c == plan.ClassConv
			x.any = x.any || extracts(c)
		}
		if x.any && x.need > x.layer+1 && p.Buffers[b].Life == plan.Inside && p.Rounded(b) > 0 {
			n.inputs = append(n.inputs, x)
		}
	}
}

// smallest returns the variant with the least workspace (m), fastest the one with the shortest duration (p);
// each breaks ties by the other's criterion.
func smallest(v []plan.Variant) uint8 {
	return best(v, func(a, b plan.Variant) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Duration, b.Duration))
	})
}

func fastest(v []plan.Variant) uint8 {
	return best(v, func(a, b plan.Variant) int {
		return cmp.Or(cmp.Compare(a.Duration, b.Duration), cmp.Compare(a.Workspace, b.Workspace))
	})
}

func best(v []plan.Variant, less func(a, b plan.Variant) int) uint8 {
	at := 0
	for i := 1; i < min(len(v), 256); i++ {
		if less(v[i], v[at]) < 0 {
			at = i
		}
	}
	return uint8(at)
}

// variants chooses for each op; nil if no op has a choice.
func (n *network) variants(choose func([]plan.Variant) uint8) []uint8 {
	var out []uint8
	for i := range n.p.Ops {
		if v := n.p.Ops[i].Variants; len(v) > 0 {
			if out == nil {
				out = make([]uint8, len(n.p.Ops))
			}
			out[i] = choose(v)
		}
	}
	return out
}

// workspace returns the rounded bytes of op i's workspace under variants.
func (n *network) workspace(i plan.OpID, variants []uint8) int64 {
	op := &n.p.Ops[i]
	switch {
	case op.Workspace == plan.NoBuffer:
		return 0
	case len(op.Variants) == 0 || variants == nil:
		return n.p.Rounded(op.Workspace)
	}
	return n.rounded(op.Variants[variants[i]].Workspace)
}

func (n *network) rounded(size int64) int64 { return (size + n.p.Align - 1) &^ (n.p.Align - 1) }

// fastestWithin returns the fastest variant of op i whose workspace fits into room, or least if none does.
func (n *network) fastestWithin(i plan.OpID, room int64, least uint8) uint8 {
	at := least
	for k, x := range n.p.Ops[i].Variants {
		if y := n.p.Ops[i].Variants[at]; k < 256 && n.rounded(x.Workspace) <= room &&
			x.Duration < y.Duration {
			at = uint8(k)
		}
	}
	return at
}
