package networks

import (
	"math"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// Convolution algorithms.
//
// Managers after vDNN choose between memory-optimal and performance-optimal algorithms, so a problem must say
// what each costs. cuDNN does not document its workspaces; the following is our model, derived from the
// algorithms and fitted to nothing.
//
// Memory-optimal: implicit GEMM. No workspace; every multiply-accumulate of the convolution; input, weights
// and output move once.
//
// Performance-optimal: Fourier transforms on tiles of 32 x 32, which cuDNN has had since version 4, the one
// vDNN used. A tile yields s x s outputs, s = 33 - k. A transformed tile of real numbers has 32 x 17 complex
// values, that is 8 x 544 bytes. The workspace holds the transformed tiles of the whole input, of the whole
// output and of the filters. The product takes four multiply-accumulates a complex value for each pair of
// channels. Beside the input, filters and output, the workspace moves twice: written by the transform and
// read by the product, or written by it and read by the transform back. Transforms and product are kernels of
// their own, so their times add up; the transforms' arithmetic hides behind their memory traffic.
//
// That is for stride 1 and kernels of 3 to 31. It is offered, as variant 0, if this model makes it the faster
// one as the batch grows. That is the same for every batch, so problems with two batch sizes have the same
// shape. Where arithmetic is cheap (tensor cores) it is offered less often. The data gradient and the weight
// gradient are convolutions of the same sizes with the roles exchanged, and cost the same.
//
// Rejected: Winograd's algorithm beside it (a third variant that lies between the two in everything); limits
// on workspace (a plan may pick the other variant).

const (
	fftTile   = 32
	fftValues = fftTile * (fftTile/2 + 1) // complex values of a transformed tile
)

// convolution is the shape of one.
type convolution struct {
	batch, in, out int64 // samples, channels, channels
	h, w           int64 // of the output
	kh, kw         int64
	groups         int64
	stride         int64
	bytes          int64 // of input, weights and output
}

func (c *convolution) macs() float64 {
	return float64(c.batch) * float64(c.h*c.w) * float64(c.out) * float64(c.in/c.groups) * float64(c.kh*c.kw)
}

// tiles returns how many tiles one channel of one sample takes.
func (c *convolution) tiles() int64 {
	ceil := func(n, s int64) int64 { return (n + s - 1) / s }
	return ceil(c.h, fftTile+1-c.kh) * ceil(c.w, fftTile+1-c.kw)
}

// workspace returns the bytes of the transformed tiles.
func (c *convolution) workspace() int64 {
	return 8 * fftValues * (c.batch*c.tiles()*(c.in+c.out) + c.in*c.out)
}

// variants returns the ways of computing it; nil for one way, implicit GEMM, whose duration comes second.
func (t *layers) variants(c *convolution) ([]plan.Variant, int64) {
	gemm := t.price(c.macs(), float64(c.bytes))
	if c.stride != 1 || c.groups != 1 || min(c.kh, c.kw) < 3 || max(c.kh, c.kw) >= fftTile {
		return nil, gemm
	}
	one := *c // what one more sample costs either way
	one.batch = 1
	perSample := float64(8*fftValues*one.tiles()*(c.in+c.out)) * 2
	samples := float64(c.batch)
	pairs := float64(fftValues*4) * float64(one.tiles()) * float64(c.in*c.out)
	activations := float64(c.bytes-elemSize*c.in*c.out*c.kh*c.kw) / samples
	marginalFFT := 2*pairs/t.hw.FlopsPerSecond + (activations+perSample)/t.hw.BytesPerSecond
	marginalGEMM := max(2*one.macs()/t.hw.FlopsPerSecond, activations/t.hw.BytesPerSecond)
	if marginalFFT >= marginalGEMM {
		return nil, gemm
	}
	seconds := 2*samples*pairs/t.hw.FlopsPerSecond +
		(float64(c.bytes)+2*float64(c.workspace()))/t.hw.BytesPerSecond
	return []plan.Variant{
		{Name: "fft-tiling", Duration: max(kernelTime, int64(math.Ceil(seconds*1e9))),
			Workspace: c.workspace()},
		{Name: "implicit-gemm", Duration: gemm},
	}, gemm
}

// convOp adds an op that computes a convolution, with its variants and their workspace.
func (t *layers) convOp(name, layer string, c *convolution, accesses ...plan.Access) {
	i := t.op(name, layer, plan.ClassConv, c.macs(), accesses...)
	op := &t.p.Ops[i]
	op.Variants, op.Duration = t.variants(c)
	if op.Variants == nil {
		return
	}
	op.Duration = op.Variants[0].Duration
	op.Workspace = t.buffer(name+".workspace", op.Variants[0].Workspace, timeline.Temporary)
	b := &t.p.Buffers[op.Workspace]
	b.Start, b.End = i, i+1
}

// conv is a square convolution that saves its input.
func (t *layers) conv(name string, x *tensor, out, kernel, stride, pad int64, bias bool) *tensor {
	return t.grouped(name, x, out, kernel, stride, pad, 1, bias)
}

// grouped is conv in groups of channels that do not see each other; as many groups as channels make it
// depthwise.
func (t *layers) grouped(name string, x *tensor, out, kernel, stride, pad, groups int64, bias bool) *tensor {
	side := func(n int64) int64 { return (n+2*pad-kernel)/stride + 1 }
	y := t.output(name, out, side(x.h), side(x.w), true)
	c := &convolution{batch: t.batch, in: x.c, out: out, h: y.h, w: y.w, kh: kernel, kw: kernel,
		groups: groups, stride: stride}
	return t.convolve(name, x, y, c, bias)
}

// up is a transposed convolution that doubles both sides, by a kernel as large as its stride. It takes the
// multiply-accumulates of the convolution that it transposes, whose output is its input.
func (t *layers) up(name string, x *tensor, out int64) *tensor {
	y := t.output(name, out, 2*x.h, 2*x.w, true)
	c := &convolution{batch: t.batch, in: x.c, out: out, h: x.h, w: x.w, kh: 2, kw: 2, groups: 1, stride: 2}
	return t.convolve(name, x, y, c, true)
}

// convolve writes the ops of a convolution from x to y, which saves x.
func (t *layers) convolve(name string, x, y *tensor, c *convolution, bias bool) *tensor {
	weight, b := t.param(name+".weight", c.out*c.in/c.groups*c.kh*c.kw), -1
	w := t.params[weight].buf
	accesses := []plan.Access{read(x.buf), read(w)}
	if bias {
		b = t.param(name+".bias", c.out)
		accesses = append(accesses, read(t.params[b].buf))
	}
	c.bytes = (x.elems+y.elems)*elemSize + t.p.Buffers[w].Size
	t.convOp(name, name, c, append(accesses, write(y.buf))...)
	t.backward = append(t.backward, func() {
		dy := t.take(y)
		dx := plan.NoBuffer
		if x.needs {
			dx = t.gradient(x)
			t.convOp(name+".dgrad", name, c, read(dy), read(w), write(dx))
		}
		dw := t.paramGrad(weight)
		t.convOp(name+".wgrad", name, c, read(dy), read(x.buf), write(dw))
		t.settle(weight, dw, name)
		if b >= 0 {
			db := t.paramGrad(b)
			t.op(name+".bgrad", name, plan.ClassConv, 0, read(dy), write(db))
			t.settle(b, db, name)
		}
		t.release(y)
		t.give(x, dx, name)
	})
	return y
}
