package networks

import (
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// layers writes layers onto a tape: the ops of a layer, forward and backward, and what they read and write.
// The tape handles gradients, parameters and lifetimes.
type layers struct {
	*tape
	label plan.BufferID // what the loss compares with
}

// images begins the iteration of a network of images: the batch and its labels, one a sample, written by the
// loader.
func (t *layers) images(c, h, w int64) *tensor { return t.labelled(c, h, w, 1) }

// labelled is images with a number of labels for each sample.
func (t *layers) labelled(c, h, w, labels int64) *tensor {
	x := t.output("data", c, h, w, false)
	t.p.Buffers[x.buf].Category = timeline.Input
	t.label = t.buffer("label", t.batch*labels*8, timeline.Input)
	t.load("data", x.buf, t.label)
	return x
}

// load writes inputs; the loader's own copy from the host is not modelled.
func (t *layers) load(name string, inputs ...plan.BufferID) {
	accesses := make([]plan.Access, len(inputs))
	for i, b := range inputs {
		accesses[i] = write(b)
	}
	t.p.Ops[t.op(name, name, plan.ClassOther, 0, accesses...)].Rerunnable = false
}

// relu works in place, as every network here has it.
func (t *layers) relu(name string, x *tensor) *tensor {
	y := t.inPlace(name, x)
	t.op(name, name, plan.ClassActivation, 0, mutate(y.buf))
	t.backward = append(t.backward, func() {
		dy := t.take(y)
		dx := dy
		alone := t.refs[dy] == 1 && t.p.Buffers[dy].Size == x.elems*elemSize // no view of a concatenation's
		if t.opt.GradientsInPlace && alone {
			t.op(name+".backward", name, plan.ClassActivation, 0, mutate(dy), read(y.buf))
		} else {
			dx = t.gradient(x)
			t.op(name+".backward", name, plan.ClassActivation, 0, read(dy), read(y.buf), write(dx))
		}
		t.release(y)
		t.give(x, dx, name)
	})
	return y
}

// batchNorm saves its input and two figures a channel.
func (t *layers) batchNorm(name string, x *tensor) *tensor {
	weight, bias := t.param(name+".weight", x.c), t.param(name+".bias", x.c)
	running := t.persistent(name+".running", 2*x.c, timeline.Unknown)
	saved := t.buffer(name+".saved", 2*x.c*elemSize, timeline.Activation)
	y := t.output(name, x.c, x.h, x.w, true)
	i := t.op(name, name, plan.ClassNorm, 0, read(x.buf), read(t.params[weight].buf),
		read(t.params[bias].buf), write(y.buf), write(saved))
	t.p.Ops[i].Duration = t.price(0, 3*float64(x.elems*elemSize)) // the input is read twice
	t.p.Ops[t.op(name+".track", name, plan.ClassNorm, 0, read(saved), mutate(running))].Rerunnable = false
	t.backward = append(t.backward, func() {
		dy, dx := t.take(y), t.gradient(x)
		dw, db := t.paramGrad(weight), t.paramGrad(bias)
		i := t.op(name+".backward", name, plan.ClassNorm, 0, read(dy), read(x.buf), read(saved),
			read(t.params[weight].buf),
			write(dx), write(dw), write(db))
		t.p.Ops[i].Duration = t.price(0, 5*float64(x.elems*elemSize)) // both inputs are read twice
		t.release(y)
		t.settle(weight, dw, name)
		t.settle(bias, db, name)
		t.give(x, dx, name)
	})
	return y
}

// pool is max pooling, or average pooling over a window, by cuDNN: its backward pass reads X and Y.
func (t *layers) pool(name string, x *tensor, kernel, stride, pad int64, ceil bool) *tensor {
	y := t.output(name, x.c, pooled(x.h, kernel, stride, pad, ceil), pooled(x.w, kernel, stride, pad, ceil),
		true)
	t.op(name, name, plan.ClassPool, 0, read(x.buf), write(y.buf))
	t.backward = append(t.backward, func() {
		dy, dx := t.take(y), t.gradient(x)
		t.op(name+".backward", name, plan.ClassPool, 0, read(dy), read(x.buf), read(y.buf), write(dx))
		t.release(y)
		t.give(x, dx, name)
	})
	return y
}

// pooled returns the size of one side after a window.
func pooled(n, kernel, stride, pad int64, ceil bool) int64 {
	span := n + 2*pad - kernel
	out := span/stride + 1
	if ceil && span%stride != 0 && out*stride < n+pad { // the last window must begin within the image
		out++
	}
	return out
}

// average is average pooling over the whole image; its backward pass needs the gradient alone.
func (t *layers) average(name string, x *tensor) *tensor {
	y := t.output(name, x.c, 1, 1, true)
	t.op(name, name, plan.ClassPool, 0, read(x.buf), write(y.buf))
	t.backward = append(t.backward, func() {
		dy, dx := t.take(y), t.gradient(x)
		t.op(name+".backward", name, plan.ClassPool, 0, read(dy), write(dx))
		t.release(y)
		t.give(x, dx, name)
	})
	return y
}

// lrn is local response normalisation across channels, by cuDNN: its backward pass reads X and Y.
func (t *layers) lrn(name string, x *tensor) *tensor {
	y := t.output(name, x.c, x.h, x.w, true)
	t.op(name, name, plan.ClassNorm, 0, read(x.buf), write(y.buf))
	t.backward = append(t.backward, func() {
		dy, dx := t.take(y), t.gradient(x)
		t.op(name+".backward", name, plan.ClassNorm, 0, read(dy), read(x.buf), read(y.buf), write(dx))
		t.release(y)
		t.give(x, dx, name)
	})
	return y
}

// dropout saves a mask of one byte an element.
func (t *layers) dropout(name string, x *tensor) *tensor {
	y := t.output(name, x.c, x.h, x.w, true)
	mask := t.buffer(name+".mask", x.elems, timeline.Activation)
	t.op(name, name, plan.ClassDropout, 0, read(x.buf), write(y.buf), write(mask))
	t.backward = append(t.backward, func() {
		dy, dx := t.take(y), t.gradient(x)
		t.op(name+".backward", name, plan.ClassDropout, 0, read(dy), read(mask), write(dx))
		t.release(y)
		t.give(x, dx, name)
	})
	return y
}

// concat copies its inputs one after another; their gradients are views of its own.
func (t *layers) concat(name string, xs ...*tensor) *tensor {
	var c int64
	accesses := make([]plan.Access, 0, len(xs)+1)
	for _, x := range xs {
		c += x.c
		accesses = append(accesses, read(x.buf))
	}
	y := t.output(name, c, xs[0].h, xs[0].w, true)
	t.op(name, name, plan.ClassOther, 0, append(accesses, write(y.buf))...)
	t.backward = append(t.backward, func() {
		dy := t.take(y)
		for _, x := range xs {
			t.give(x, dy, name)
		}
		t.release(y)
	})
	return y
}

// add adds x into y, in place; both get its gradient unchanged.
func (t *layers) add(name string, y, x *tensor) *tensor {
	sum := t.inPlace(name, y)
	t.op(name, name, plan.ClassOther, 0, read(x.buf), mutate(sum.buf))
	t.backward = append(t.backward, func() {
		d := t.take(sum)
		t.give(y, d, name)
		t.give(x, d, name)
		t.release(sum)
	})
	return sum
}

// linear multiplies rows of x, which are its last dimension, w in a transformer and the whole sample
// elsewhere, with a weight. The backward pass reads x. A shared weight is named by the index of its
// parameter, -1 for one of its own.
func (t *layers) linear(name string, x *tensor, out int64, bias bool, shared int) *tensor {
	in, rows := x.w, x.elems/x.w
	y := &tensor{}
	if t.opt.Sequence == 0 {
		in, rows = x.elems/t.batch, t.batch
		y = t.output(name, out, 1, 1, true)
	} else {
		y = t.output(name, x.c, x.h, out, true)
	}
	weight, b := shared, -1
	if weight < 0 {
		weight = t.param(name+".weight", in*out)
	}
	accesses := []plan.Access{read(x.buf), read(t.params[weight].buf)}
	if bias {
		b = t.param(name+".bias", out)
		accesses = append(accesses, read(t.params[b].buf))
	}
	macs := float64(rows) * float64(in) * float64(out)
	t.op(name, name, plan.ClassLinear, macs, append(accesses, write(y.buf))...)
	t.backward = append(t.backward, func() {
		dy := t.take(y)
		dx := plan.NoBuffer
		if x.needs {
			dx = t.gradient(x)
			t.op(name+".dgrad", name, plan.ClassLinear, macs, read(dy), read(t.params[weight].buf), write(dx))
		}
		dw := t.paramGrad(weight)
		t.op(name+".wgrad", name, plan.ClassLinear, macs, read(dy), read(x.buf), write(dw))
		t.settle(weight, dw, name)
		if b >= 0 {
			db := t.paramGrad(b)
			t.op(name+".bgrad", name, plan.ClassLinear, 0, read(dy), write(db))
			t.settle(b, db, name)
		}
		t.release(y)
		t.give(x, dx, name)
	})
	return y
}

// loss is softmax and the negative log likelihood of the labels, one a row of x; it ends the forward pass.
func (t *layers) loss(x *tensor) {
	y := t.output("softmax", x.c, x.h, x.w, true)
	t.op("softmax", "softmax", plan.ClassSoftmax, 0, read(x.buf), write(y.buf))
	value := t.buffer("loss", elemSize, timeline.Activation)
	i := t.op("loss", "loss", plan.ClassLoss, 0, read(y.buf), read(t.label), write(value))
	// of each label and one probability
	t.p.Ops[i].Duration = t.price(0, float64(t.p.Buffers[t.label].Size/8*(8+elemSize)))
	t.backward = append(t.backward, func() {
		dy, dx := t.gradient(y), t.gradient(x)
		t.op("loss.backward", "loss", plan.ClassLoss, 0, read(t.label), write(dy))
		t.op("softmax.backward", "softmax", plan.ClassSoftmax, 0, read(dy), read(y.buf), write(dx))
		t.give(x, dx, "softmax")
	})
}
