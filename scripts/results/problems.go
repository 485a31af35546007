package main

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// network makes a network's problem on a device preset.
func network(name string, batch int, hw plan.Hardware) (*plan.Problem, error) {
	n, err := networks.ByName(name)
	if err != nil {
		return nil, err
	}
	return n.Problem(batch, hw, networks.Options{})
}

// lean is network with memory-optimal algorithms only.
func lean(name string, batch int, hw plan.Hardware) (*plan.Problem, error) {
	p, err := network(name, batch, hw)
	if err != nil {
		return nil, err
	}
	return memoryOptimal(p)
}

func preset(name string) (plan.Hardware, error) { return hardware.ByName(name) }

// memoryOptimal returns the problem in which each op has only its variant with the smallest workspace, if it
// needs one at all.
func memoryOptimal(p *plan.Problem) (*plan.Problem, error) {
	q := &plan.Problem{Name: p.Name, Kind: p.Kind, Align: p.Align, Streams: p.Streams,
		Iterations: p.Iterations, Hardware: p.Hardware, Outside: p.Outside, HasTimes: p.HasTimes,
		TimesInferred: p.TimesInferred, Ops: slices.Clone(p.Ops), Accesses: slices.Clone(p.Accesses),
		Notes: append(slices.Clone(p.Notes), "memory-optimal algorithms only")}
	sizes := make([]int64, len(p.Buffers))
	for i := range p.Buffers {
		sizes[i] = p.Buffers[i].Size
	}
	for i := range q.Ops {
		op := &q.Ops[i]
		if len(op.Variants) == 0 {
			continue
		}
		v := slices.MinFunc(op.Variants, func(a, b plan.Variant) int {
			if a.Workspace != b.Workspace {
				return int(min(max(a.Workspace-b.Workspace, -1), 1))
			}
			return int(min(max(a.Duration-b.Duration, -1), 1))
		})
		op.Variants, op.Duration = nil, v.Duration
		if op.Workspace == plan.NoBuffer {
			continue
		}
		sizes[op.Workspace] = v.Workspace
		if v.Workspace == 0 {
			sizes[op.Workspace] = -1 // gone
			op.Workspace = plan.NoBuffer
		}
	}
	id := make([]plan.BufferID, len(p.Buffers))
	for i := range p.Buffers {
		if sizes[i] < 0 {
			id[i] = plan.NoBuffer
			continue
		}
		id[i] = plan.BufferID(len(q.Buffers))
		b := p.Buffers[i]
		b.Size = sizes[i]
		q.Buffers = append(q.Buffers, b)
	}
	for i := range q.Accesses {
		if q.Accesses[i].Buffer = id[q.Accesses[i].Buffer]; q.Accesses[i].Buffer == plan.NoBuffer {
			return nil, fmt.Errorf("%s: an op accesses a workspace beside its own", p.Name)
		}
	}
	for i := range q.Ops {
		if w := q.Ops[i].Workspace; w != plan.NoBuffer {
			q.Ops[i].Workspace = id[w]
		}
	}
	return q, q.Finish()
}

// rebuilt returns the problem with buffers replaced: merge gives for each the buffer that holds it (itself if
// nothing changes), size its bytes.
func rebuilt(p *plan.Problem, merge []plan.BufferID, size func(i int) int64,
	note string) (*plan.Problem, error) {
	q := &plan.Problem{Name: p.Name, Kind: p.Kind, Align: p.Align, Streams: p.Streams,
		Iterations: p.Iterations, Hardware: p.Hardware, Outside: p.Outside, HasTimes: p.HasTimes,
		TimesInferred: p.TimesInferred, Ops: slices.Clone(p.Ops), Notes: append(slices.Clone(p.Notes), note)}
	id := make([]plan.BufferID, len(p.Buffers))
	for i := range p.Buffers {
		if merge[i] != plan.BufferID(i) {
			continue
		}
		id[i] = plan.BufferID(len(q.Buffers))
		b := p.Buffers[i]
		b.Size = size(i)
		q.Buffers = append(q.Buffers, b)
	}
	for i := range p.Buffers {
		if merge[i] != plan.BufferID(i) {
			id[i] = id[merge[i]]
			into := &q.Buffers[id[i]]
			into.Start, into.End = min(into.Start, p.Buffers[i].Start), max(into.End, p.Buffers[i].End)
		}
	}
	for i := range q.Ops {
		op := &q.Ops[i]
		first := int32(len(q.Accesses))
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			to := id[a.Buffer]
			same := slices.IndexFunc(q.Accesses[first:], func(x plan.Access) bool { return x.Buffer == to })
			switch {
			case same < 0:
				q.Accesses = append(q.Accesses, plan.Access{Buffer: to, Mode: a.Mode})
			case q.Accesses[int(first)+same].Mode != a.Mode:
				// read as one and written as another: changed in place
				q.Accesses[int(first)+same].Mode = plan.Mutate
			}
		}
		op.First, op.End = first, int32(len(q.Accesses))
		if op.Workspace != plan.NoBuffer {
			op.Workspace = id[op.Workspace]
		}
	}
	return q, q.Finish()
}

// inPlace returns the problem in which an activation's backward op writes its gradient over the one that it
// reads, wherever no other op needs that one. Frameworks did so at the time of vDNN and tvDNN; PyTorch, on
// which problems are modelled, does not.
func inPlace(p *plan.Problem) (*plan.Problem, error) {
	merge := make([]plan.BufferID, len(p.Buffers))
	for i := range merge {
		merge[i] = plan.BufferID(i)
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		if op.Class != plan.ClassActivation || op.Phase != traces.PhaseBackward {
			continue
		}
		from, to := plan.NoBuffer, plan.NoBuffer
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			if p.Buffers[a.Buffer].Category != timeline.AutogradDetail {
				continue
			}
			touches := p.TouchesOf(a.Buffer)
			switch {
			case a.Mode == plan.Read && touches[len(touches)-1].Op == plan.OpID(i):
				from = a.Buffer
			case a.Mode == plan.Write && touches[0].Op == plan.OpID(i):
				to = a.Buffer
			}
		}
		if from != plan.NoBuffer && to != plan.NoBuffer && p.Rounded(from) == p.Rounded(to) {
			merge[to] = merge[from]
		}
	}
	return rebuilt(p, merge, func(i int) int64 { return p.Buffers[i].Size },
		"gradients of activations in place")
}

// caffe is inPlace of another function's result.
func caffe(p *plan.Problem, err error) (*plan.Problem, error) {
	if err != nil {
		return nil, err
	}
	return inPlace(p)
}

// managed returns the problem in which parameters, their gradients and optimizer state take no memory: the
// rest is what vDNN manages.
func managed(p *plan.Problem) (*plan.Problem, error) {
	merge := make([]plan.BufferID, len(p.Buffers))
	for i := range merge {
		merge[i] = plan.BufferID(i)
	}
	return rebuilt(p, merge, func(i int) int64 {
		if b := &p.Buffers[i]; b.Category == timeline.Parameter || b.Category == timeline.Gradient ||
			b.Life == plan.Persistent {
			return 0
		}
		return p.Buffers[i].Size
	}, "without parameters, their gradients and optimizer state")
}
