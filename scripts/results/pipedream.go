package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Problem: PipeDream published profiles of networks: for each layer its measured forward and backward time,
// the bytes that it writes and those of its weights, and the edges between layers. A planner needs buffers,
// accesses and lifetimes.
//
// Solution: one forward op and one backward op for each layer, in topological order and in reverse, with the
// measured times. What the backward op reads besides the gradient of its output follows from the kind of
// layer, as in PyTorch: a convolution, a linear layer and a batch normalisation read their input, a rectifier
// its output, a pooling both, a dropout a mask of a byte an element. A layer marked "inplace" changes its
// input's buffer if no other layer reads that, a view shares its input's, and a layer that writes four bytes
// of sizes is left out. A gradient that comes from several readers is added up in place. Each layer's weight
// gradient lives to the end of the iteration, where an update that takes no time (the profile has none) uses
// it.
//
// The profile does not say, and this leaves out: the device (copies use a preset's links), optimizer state,
// workspaces. The first layer's time is that of the setup and does not count.
//
// Complexity: linear but for sorting. Rejected: scaling the times to a device, since they were measured.

// profiled is a layer of a profile.
type profiled struct {
	node              int
	kind              string // Conv2d, ReLU...
	inplace           bool
	forward, backward int64 // nanoseconds
	output, weights   int64 // bytes
	inputs            []int // nodes, in order of number
}

var (
	profileLine = regexp.MustCompile(
		`^node(\d+) -- (\w+)(\(.*\))? -- forward_compute_time=([\d.]+), backward_compute_time=([\d.]+), ` +
			`activation_size=([\d.]+), parameter_size=([\d.]+)`)
	edgeLine = regexp.MustCompile(`^\s+node(\d+) -- node(\d+)\s*$`)
)

// Limits of a profile, far beyond any network: larger figures are damage.
const (
	mostLayers = 1 << 16
	mostMillis = 1e9
)

// readProfile reads a profile's layers in topological order.
func readProfile(r io.Reader) ([]profiled, error) {
	at := map[int]int{}
	var layers []profiled
	type edge struct{ from, to int }
	var edges []edge
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if m := edgeLine.FindStringSubmatch(line); m != nil {
			from, err1 := strconv.Atoi(m[1])
			to, err2 := strconv.Atoi(m[2])
			if err := cmp.Or(err1, err2); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			edges = append(edges, edge{from, to})
			continue
		}
		m := profileLine.FindStringSubmatch(line)
		if m == nil {
			if strings.TrimSpace(line) == "" {
				continue
			}
			return nil, fmt.Errorf("line %d is neither a layer nor an edge: %.60q", n, line)
		}
		node, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		var f [4]float64
		for i := range f {
			if f[i], err = strconv.ParseFloat(m[4+i], 64); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			if limit := [4]float64{mostMillis, mostMillis, float64(plan.MaxSize),
				float64(plan.MaxSize)}[i]; f[i] > limit {
				return nil, fmt.Errorf("line %d: the figure %g is out of range", n, f[i])
			}
		}
		if _, twice := at[node]; twice || len(layers) == mostLayers {
			return nil, fmt.Errorf("line %d: node %d is there twice, or the profile has more than %d layers",
				n, node, mostLayers)
		}
		at[node] = len(layers)
		layers = append(layers, profiled{node: node, kind: m[2], inplace: strings.Contains(m[3], "inplace"),
			forward: int64(math.Round(f[0] * 1e6)), backward: int64(math.Round(f[1] * 1e6)),
			output: int64(f[2]), weights: int64(f[3])})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	for _, e := range edges {
		_, known := at[e.from]
		to, known2 := at[e.to]
		if !known || !known2 {
			return nil, fmt.Errorf("an edge joins node %d and node %d, of which one has no line", e.from,
				e.to)
		}
		layers[to].inputs = append(layers[to].inputs, e.from)
	}
	return sorted(layers, at)
}

// sorted puts layers in topological order; the lowest number breaks ties.
func sorted(layers []profiled, at map[int]int) ([]profiled, error) {
	missing := make([]int, len(layers))
	readers := make([][]int, len(layers))
	var ready []int
	for i := range layers {
		slices.Sort(layers[i].inputs)
		missing[i] = len(layers[i].inputs)
		for _, from := range layers[i].inputs {
			readers[at[from]] = append(readers[at[from]], i)
		}
		if missing[i] == 0 {
			ready = append(ready, i)
		}
	}
	var out []profiled
	for len(ready) > 0 {
		k := 0
		for j := range ready {
			if layers[ready[j]].node < layers[ready[k]].node {
				k = j
			}
		}
		i := ready[k]
		ready = slices.Delete(ready, k, k+1)
		out = append(out, layers[i])
		for _, r := range readers[i] {
			if missing[r]--; missing[r] == 0 {
				ready = append(ready, r)
			}
		}
	}
	if len(out) < len(layers) {
		return nil, fmt.Errorf("the edges of %d layers form a cycle", len(layers)-len(out))
	}
	return out, nil
}

var classes = map[string]plan.Class{"Conv2d": plan.ClassConv, "Linear": plan.ClassLinear,
	"ReLU": plan.ClassActivation, "MaxPool2d": plan.ClassPool, "AvgPool2d": plan.ClassPool,
	"BatchNorm2d": plan.ClassNorm, "Dropout": plan.ClassDropout}

// profile builds a problem.
type profile struct {
	p       plan.Problem
	layers  []profiled
	at      map[int]int
	readers []int           // of each layer, how many layers read it
	out     []plan.BufferID // of each layer; NoBuffer for one that is left out
	grad    []plan.BufferID
	weight  []plan.BufferID
	mask    []plan.BufferID
}

// profileProblem makes an iteration from a profile's layers.
func profileProblem(name string, layers []profiled, hw plan.Hardware) (*plan.Problem, error) {
	n := len(layers)
	x := &profile{layers: layers, at: map[int]int{}, readers: make([]int, n), out: make([]plan.BufferID, n),
		grad: make([]plan.BufferID, n), weight: make([]plan.BufferID, n), mask: make([]plan.BufferID, n),
		p: plan.Problem{Name: name, Kind: traces.Dataflow, Align: 512, Streams: 1, Hardware: hw,
			HasTimes: true}}
	x.p.Hardware.LaunchGap = 0 // measured times include it
	for i := range layers {
		x.at[layers[i].node] = i
		x.out[i], x.grad[i], x.weight[i], x.mask[i] = plan.NoBuffer, plan.NoBuffer, plan.NoBuffer,
			plan.NoBuffer
	}
	for i := range layers {
		for _, from := range layers[i].inputs {
			x.readers[x.at[from]]++
		}
	}
	for i := range layers {
		x.forward(i)
	}
	for i := n - 1; i >= 0; i-- {
		x.backward(i)
	}
	gradients := len(x.p.Ops)
	for i := range layers {
		if x.weight[i] != plan.NoBuffer {
			x.op(i, ".update", 0, traces.PhaseOptimizer,
				plan.Access{Buffer: x.weight[i] + 1, Mode: plan.Read},
				plan.Access{Buffer: x.weight[i], Mode: plan.Mutate})
			x.p.Ops[len(x.p.Ops)-1].Class = plan.ClassOptimizer
		}
	}
	x.lifetimes(plan.OpID(gradients))
	return &x.p, x.p.Finish()
}

func (x *profile) buffer(i int, what string, size int64, c timeline.Category) plan.BufferID {
	x.p.Buffers = append(x.p.Buffers, plan.Buffer{Name: fmt.Sprintf("%s%d%s", x.layers[i].kind,
		x.layers[i].node, what), Size: size, Category: c, Alloc: timeline.NoAlloc})
	return plan.BufferID(len(x.p.Buffers) - 1)
}

func (x *profile) op(i int, what string, time int64, phase traces.Phase, accesses ...plan.Access) {
	first := int32(len(x.p.Accesses))
	x.p.Accesses = append(x.p.Accesses, accesses...)
	l := &x.layers[i]
	x.p.Ops = append(x.p.Ops, plan.Op{Name: fmt.Sprintf("%s%d%s", l.kind, l.node, what),
		Module: fmt.Sprintf("node%d", l.node), Duration: time, Workspace: plan.NoBuffer, First: first,
		End: int32(len(x.p.Accesses)), Phase: phase, Class: classes[l.kind],
		Rerunnable: phase != traces.PhaseOptimizer})
}

// inputs returns the layers that a layer reads, without those left out.
func (x *profile) inputs(i int) []int {
	var in []int
	for _, node := range x.layers[i].inputs {
		if k := x.at[node]; x.out[k] != plan.NoBuffer {
			in = append(in, k)
		}
	}
	return in
}

// reusable returns the input whose buffer an in-place layer may change: no other layer reads it, and its own
// backward pass does not need it.
func (x *profile) reusable(i int) int {
	for _, k := range x.inputs(i) {
		switch x.layers[k].kind {
		case "Input", "ReLU", "MaxPool2d", "AvgPool2d":
			continue
		}
		if x.readers[k] == 1 && x.layers[k].output == x.layers[i].output {
			return k
		}
	}
	return -1
}

func (x *profile) forward(i int) {
	l := &x.layers[i]
	in := x.inputs(i)
	switch {
	case l.kind == "Input":
		x.out[i] = x.buffer(i, "", l.output, timeline.Input)
		x.op(i, "", 0, traces.PhaseForward, plan.Access{Buffer: x.out[i], Mode: plan.Write})
		x.p.Ops[len(x.p.Ops)-1].Rerunnable = false
		return
	case l.kind == "Size" || len(in) == 0:
		return
	case l.kind == "View":
		x.out[i] = x.out[in[0]]
		return
	}
	var accesses []plan.Access
	mine := -1
	if l.inplace {
		mine = x.reusable(i)
	}
	for _, k := range in {
		if k != mine {
			accesses = append(accesses, plan.Access{Buffer: x.out[k], Mode: plan.Read})
		}
	}
	if l.weights > 0 {
		x.weight[i] = x.buffer(i, ".weight", l.weights, timeline.Parameter)
		x.buffer(i, ".weight.grad", l.weights, timeline.Gradient) // the next number
		accesses = append(accesses, plan.Access{Buffer: x.weight[i], Mode: plan.Read})
	}
	if mine >= 0 {
		x.out[i] = x.out[mine]
		accesses = append(accesses, plan.Access{Buffer: x.out[i], Mode: plan.Mutate})
	} else {
		x.out[i] = x.buffer(i, "", l.output, timeline.Activation)
		accesses = append(accesses, plan.Access{Buffer: x.out[i], Mode: plan.Write})
	}
	if l.kind == "Dropout" {
		x.mask[i] = x.buffer(i, ".mask", max(l.output/4, 1), timeline.Activation)
		accesses = append(accesses, plan.Access{Buffer: x.mask[i], Mode: plan.Write})
	}
	x.op(i, "", l.forward, traces.PhaseForward, accesses...)
}

// saved returns what the backward op of a layer reads besides gradients and weights.
func (x *profile) saved(i int, in []int) []plan.BufferID {
	switch x.layers[i].kind {
	case "Conv2d", "Linear", "BatchNorm2d":
		return []plan.BufferID{x.out[in[0]]}
	case "ReLU":
		return []plan.BufferID{x.out[i]}
	case "MaxPool2d", "AvgPool2d":
		return []plan.BufferID{x.out[in[0]], x.out[i]}
	case "Dropout":
		return []plan.BufferID{x.mask[i]}
	}
	return nil
}

func (x *profile) backward(i int) {
	l := &x.layers[i]
	in := x.inputs(i)
	if l.kind == "Input" || x.out[i] == plan.NoBuffer || len(in) == 0 {
		return
	}
	if l.kind == "View" {
		x.grad[in[0]] = x.grad[i]
		return
	}
	var accesses []plan.Access
	if x.grad[i] == plan.NoBuffer { // the last layer: the loss's gradient
		x.grad[i] = x.buffer(i, ".grad", l.output, timeline.AutogradDetail)
		accesses = append(accesses, plan.Access{Buffer: x.grad[i], Mode: plan.Write})
	} else {
		accesses = append(accesses, plan.Access{Buffer: x.grad[i], Mode: plan.Read})
	}
	for _, b := range x.saved(i, in) {
		accesses = append(accesses, plan.Access{Buffer: b, Mode: plan.Read})
	}
	if w := x.weight[i]; w != plan.NoBuffer {
		accesses = append(accesses, plan.Access{Buffer: w, Mode: plan.Read},
			plan.Access{Buffer: w + 1, Mode: plan.Write})
	}
	for _, k := range in {
		switch {
		case x.layers[k].kind == "Input":
		case x.grad[k] == plan.NoBuffer:
			x.grad[k] = x.buffer(k, ".grad", x.layers[k].output, timeline.AutogradDetail)
			accesses = append(accesses, plan.Access{Buffer: x.grad[k], Mode: plan.Write})
		default:
			accesses = append(accesses, plan.Access{Buffer: x.grad[k], Mode: plan.Mutate})
		}
	}
	x.op(i, ".backward", l.backward, traces.PhaseBackward, accesses...)
}

// lifetimes ends each buffer after its last access; weights persist.
func (x *profile) lifetimes(end plan.OpID) {
	for b := range x.p.Buffers {
		x.p.Buffers[b].Start = -1
		if x.p.Buffers[b].Category == timeline.Parameter {
			x.p.Buffers[b].Life, x.p.Buffers[b].Start = plan.Persistent, 0
		}
	}
	for i := range x.p.Ops {
		for _, a := range x.p.Accesses[x.p.Ops[i].First:x.p.Ops[i].End] {
			b := &x.p.Buffers[a.Buffer]
			if b.Start < 0 {
				b.Start = plan.OpID(i)
			}
			b.End = plan.OpID(i) + 1
		}
	}
	for b := range x.p.Buffers { // a weight gradient that no op made
		if buf := &x.p.Buffers[b]; buf.Start < 0 {
			buf.Start, buf.End = end-1, end
		}
	}
}

// pipedream makes a problem from a public profile.
func (from recordings) pipedream(ctx context.Context, file, network string, batch int,
	hw plan.Hardware) (*plan.Problem, error) {
	path, err := from.public("measurements/*pipedream_" + file + "_graph.txt")
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	layers, err := readProfile(f)
	if err != nil {
		return nil, fmt.Errorf("the PipeDream profile of %s: %w", network, err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return profileProblem(fmt.Sprintf("PipeDream's %s (%d)", network, batch), layers, hw)
}
