package networks

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// elemSize is the size of an element, in bytes: fp32, as in the papers.
const elemSize = 4

// kernelTime is the least time of an op on the device, in nanoseconds: a kernel's start and tail. Our
// assumption. The host's time to issue it is the hardware's launch gap, and not part of an op's duration.
const kernelTime = 2000

// tape is an iteration in the making: its ops and tensors so far, and the gradients that are still to come.
type tape struct {
	p        plan.Problem
	hw       plan.Hardware
	opt      Options
	batch    int64
	phase    traces.Phase
	backward []func() // of each layer, in forward order
	params   []param
	// for each buffer that holds a gradient: the number of tensors whose gradient it is and whose readers are
	// still to come
	refs []int32
	macs float64
	err  error
}

// tensor is a value of the forward pass. Two values may share a buffer if the later one was made in place.
type tensor struct {
	name  string
	elems int64 // of the whole batch
	// of one sample; h and w are 1 after a linear layer, h is the sequence's length in a transformer
	c, h, w int64
	buf     plan.BufferID
	grad    plan.BufferID
	needs   bool // whether its gradient is wanted
}

// param is a trained tensor.
type param struct {
	name string
	buf  plan.BufferID
	grad plan.BufferID // none until the backward pass reaches it
}

func newTape(batch int, hw plan.Hardware, o Options) *tape {
	return &tape{hw: hw, opt: o, batch: int64(batch), phase: traces.PhaseForward,
		p: plan.Problem{Kind: traces.Dataflow, Align: 512, Streams: 1, Hardware: hw, HasTimes: true,
			TimesInferred: true}}
}

func read(b plan.BufferID) plan.Access   { return plan.Access{Buffer: b, Mode: plan.Read} }
func write(b plan.BufferID) plan.Access  { return plan.Access{Buffer: b, Mode: plan.Write} }
func mutate(b plan.BufferID) plan.Access { return plan.Access{Buffer: b, Mode: plan.Mutate} }

// buffer adds a buffer whose lifetime its touches will give.
func (t *tape) buffer(name string, size int64, c timeline.Category) plan.BufferID {
	t.p.Buffers = append(t.p.Buffers, plan.Buffer{Name: name, Size: size, Category: c, Start: -1,
		Alloc: timeline.NoAlloc})
	t.refs = append(t.refs, 0)
	return plan.BufferID(len(t.p.Buffers) - 1)
}

func (t *tape) persistent(name string, elems int64, c timeline.Category) plan.BufferID {
	b := t.buffer(name, elems*elemSize, c)
	t.p.Buffers[b].Life = plan.Persistent
	return b
}

// param adds a trained tensor and returns its index in params.
func (t *tape) param(name string, elems int64) int {
	t.params = append(t.params, param{name: name, buf: t.persistent(name, elems, timeline.Parameter),
		grad: plan.NoBuffer})
	return len(t.params) - 1
}

// output adds a value of the forward pass.
func (t *tape) output(name string, c, h, w int64, needs bool) *tensor {
	elems := t.batch * c * h * w
	return &tensor{name: name, elems: elems, c: c, h: h, w: w, grad: plan.NoBuffer, needs: needs,
		buf: t.buffer(name, elems*elemSize, timeline.Activation)}
}

// inPlace returns the value that an op leaves in the buffer of x.
func (t *tape) inPlace(name string, x *tensor) *tensor {
	y := *x
	y.name, y.grad = name, plan.NoBuffer
	return &y
}

// op adds an op of a layer and prices it: arithmetic or memory, whichever takes longer. An access in place
// moves its bytes twice.
func (t *tape) op(name, layer string, class plan.Class, macs float64, accesses ...plan.Access) plan.OpID {
	var bytes int64
	for _, a := range accesses {
		bytes += t.p.Buffers[a.Buffer].Size
		if a.Mode == plan.Mutate {
			bytes += t.p.Buffers[a.Buffer].Size
		}
	}
	first := int32(len(t.p.Accesses))
	t.p.Accesses = append(t.p.Accesses, accesses...)
	t.p.Ops = append(t.p.Ops, plan.Op{Name: name, Module: layer, Class: class, Phase: t.phase, First: first,
		End:      int32(len(t.p.Accesses)),
		Duration: t.price(macs, float64(bytes)), Workspace: plan.NoBuffer,
		Rerunnable: t.phase == traces.PhaseForward})
	if t.phase == traces.PhaseForward {
		t.macs += macs
	}
	return plan.OpID(len(t.p.Ops) - 1)
}

// price returns how long multiply-accumulates and moved bytes take, in nanoseconds.
func (t *tape) price(macs, bytes float64) int64 {
	return max(kernelTime, int64(math.Ceil(1e9*max(2*macs/t.hw.FlopsPerSecond, bytes/t.hw.BytesPerSecond))))
}

// gradient adds the buffer for the gradient of a value.
func (t *tape) gradient(x *tensor) plan.BufferID {
	return t.buffer(x.name+".grad", x.elems*elemSize, timeline.AutogradDetail)
}

// take returns the finished gradient of y, for the backward ops of the layer that made y. It is theirs until
// they call release.
func (t *tape) take(y *tensor) plan.BufferID {
	// the network is at fault; continuing with a gradient that nothing wrote keeps every layer free of checks
	if y.grad == plan.NoBuffer {
		t.err = cmp.Or(t.err, fmt.Errorf("nothing reads %s", y.name))
		y.grad = t.gradient(y)
	}
	return y.grad
}

// release says that the backward ops of the layer that made y will not read its gradient again.
func (t *tape) release(y *tensor) { t.refs[y.grad]-- }

// give adds what a reader of x computed to the gradient of x. The first contribution becomes the gradient;
// each further one is added into it or, if the same buffer is another tensor's gradient too, into a new one.
func (t *tape) give(x *tensor, grad plan.BufferID, layer string) {
	if !x.needs {
		return
	}
	if x.grad == plan.NoBuffer {
		x.grad = grad
		t.refs[grad]++
		return
	}
	if t.refs[x.grad] == 1 {
		t.op(x.name+".accumulate", layer, plan.ClassOther, 0, read(grad), mutate(x.grad))
		return
	}
	sum := t.gradient(x)
	t.op(x.name+".accumulate", layer, plan.ClassOther, 0, read(x.grad), read(grad), write(sum))
	t.refs[x.grad]--
	x.grad = sum
	t.refs[sum] = 1
}

// paramGrad returns the buffer into which a backward op writes the gradient of a parameter; settle must
// follow the op.
func (t *tape) paramGrad(i int) plan.BufferID {
	w := &t.params[i]
	size := t.p.Buffers[w.buf].Size
	if t.opt.PersistentGradients && w.grad == plan.NoBuffer {
		w.grad = t.persistent(w.name+".grad", size/elemSize, timeline.Gradient)
	}
	if w.grad == plan.NoBuffer {
		w.grad = t.buffer(w.name+".grad", size, timeline.Gradient)
		return w.grad
	}
	return t.buffer(w.name+".grad.part", size, timeline.Gradient)
}

// settle adds what paramGrad gave room for to the gradient that was there before, if one was.
func (t *tape) settle(i int, part plan.BufferID, layer string) {
	if w := &t.params[i]; part != w.grad {
		t.op(w.name+".accumulate", layer, plan.ClassOther, 0, read(part), mutate(w.grad))
	}
}

// finish writes the backward pass and the optimizer, gives buffers their lifetimes and categories, and
// freezes the problem.
func (t *tape) finish() (*plan.Problem, error) {
	t.phase = traces.PhaseBackward
	for i := len(t.backward) - 1; i >= 0; i-- {
		t.backward[i]()
	}
	t.optimizer()
	if t.err != nil {
		return nil, fmt.Errorf("make %s: %w", t.p.Name, t.err)
	}
	t.lifetimes()
	t.p.Notes = append(t.p.Notes,
		"made from layer shapes, 4 bytes an element; nothing was recorded",
		fmt.Sprintf("durations are those of a model: arithmetic or memory at the sustained "+
			"rates of %s, %d us at least", t.hw.Name, kernelTime/1000))
	if t.opt.GradientsInPlace {
		t.p.Notes = append(t.p.Notes, "activations write their gradients over those that they read, as "+
			"frameworks did at the time of vDNN; PyTorch does not")
	}
	p := t.p
	if err := p.Finish(); err != nil {
		return nil, fmt.Errorf("make %s: %w", p.Name, err)
	}
	return &p, nil
}

// optimizer updates each parameter by an op of its own, in the order in which the network has them.
func (t *tape) optimizer() {
	t.phase = traces.PhaseOptimizer
	for i := range t.params {
		w := &t.params[i]
		if w.grad == plan.NoBuffer {
			t.err = fmt.Errorf("parameter %s gets no gradient", w.name)
			return
		}
		elems := t.p.Buffers[w.buf].Size / elemSize
		accesses := []plan.Access{read(w.grad)}
		name := "sgd " + w.name
		if t.opt.Optimizer == Adam {
			name = "adam " + w.name
			accesses = append(accesses, mutate(t.persistent(w.name+".exp_avg", elems,
				timeline.OptimizerState)),
				mutate(t.persistent(w.name+".exp_avg_sq", elems, timeline.OptimizerState)))
		} else {
			accesses = append(accesses, mutate(t.persistent(w.name+".momentum_buffer", elems,
				timeline.OptimizerState)))
		}
		t.op(name, w.name, plan.ClassOptimizer, 0, append(accesses, mutate(w.buf))...)
	}
	if t.opt.PersistentGradients {
		var all []plan.Access
		for i := range t.params {
			all = append(all, write(t.params[i].grad))
		}
		t.op("zero_grad", "zero_grad", plan.ClassOptimizer, 0, all...)
		return
	}
	for i := range t.params { // set_to_none after the last update
		t.p.Buffers[t.params[i].grad].End = plan.OpID(len(t.p.Ops))
	}
}

// lifetimes gives each buffer its lifetime, and calls temporary what the backward pass does not read.
func (t *tape) lifetimes() {
	last := make([]traces.Phase, len(t.p.Buffers))
	for i := range t.p.Ops {
		op := &t.p.Ops[i]
		for _, a := range t.p.Accesses[op.First:op.End] {
			last[a.Buffer] = op.Phase
			b := &t.p.Buffers[a.Buffer]
			if b.Life == plan.Persistent {
				continue
			}
			if b.Start < 0 {
				b.Start = plan.OpID(i)
			}
			b.End = max(b.End, plan.OpID(i)+1)
		}
	}
	for i := range t.p.Buffers {
		if b := &t.p.Buffers[i]; b.Category == timeline.Activation && last[i] == traces.PhaseForward {
			b.Category = timeline.Temporary
		}
	}
}
