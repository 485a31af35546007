package autopsy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A second copy of all gradients, which data parallelism needs. Two patterns. A program that averages
// gradients by hand puts them into one tensor first: the request or a block from outside of the model and of
// the optimizer is as large as all gradients together (torch._utils._flatten_dense_tensors, torch.cat).
// DistributedDataParallel has buckets as large as all gradients, and copies each into the other, unless
// gradients are views of the buckets. Look-alikes: an optimizer that flattens gradients, such as LBFGS, which
// needs them like that; buckets with views, beside which there are no blocks of gradients. Sources:
// torch.nn.parallel.DistributedDataParallel, gradient_as_bucket_view; waveglow issue 92.

const (
	// leastGradients is how many gradients there must be for their sum to mean something.
	leastGradients = 8
	// sumOff is how far a buffer may be from the sum of the gradients, because of how parts are aligned.
	sumOff = 0.01
	// bucketsShare is the share of what is allocated and requested that buckets must hold to be a cause.
	bucketsShare = 0.15
)

// gradients returns the live gradients.
func gradients(c *evidence) (ids []timeline.AllocID) {
	for _, id := range c.live {
		if c.d.Allocs.Category[id] == timeline.Gradient {
			ids = append(ids, id)
		}
	}
	return ids
}

func flatGradientsFault(c *evidence) (fault, bool) {
	a, ids := &c.d.Allocs, gradients(c)
	if len(ids) < leastGradients {
		return fault{}, false
	}
	sum := int64(0)
	for _, id := range ids {
		sum += a.Size[id]
	}
	flat := func(s traces.StackID, size int64) bool {
		const others = frames.KindModel | frames.KindBackwardPass | frames.KindStep | frames.KindOptimizer
		return s >= 0 && !c.kinds.Of(s).Has(others) &&
			math.Abs(float64(size-sum)) <= sumOff*float64(sum)
	}
	stack, request := traces.NoStack, int64(0)
	if s := c.d.Event(c.a.At).Stack; flat(s, c.a.Asked.Or(0)) {
		stack, request = s, c.a.Asked.Or(0)
	}
	var buffers []timeline.AllocID
	first := a.Start[slices.Min(ids)]
	for _, id := range c.live {
		if a.Start[id] > first && flat(a.Stack[id], a.Size[id]) {
			buffers, stack = append(buffers, id), a.Stack[id]
		}
	}
	if stack == traces.NoStack {
		return fault{}, false
	}
	bytes, line := c.bytesOf(buffers)+request, c.userLine(stack)
	f := fault{Cause: Cause{Kind: "gradient_buffer", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s from %s is as large as all %s together", c.u.Bytes(bytes), line,
		timeline.Counted(len(ids), "gradient"))}}
	f.said = fmt.Sprintf("%s copies all gradients into one buffer: %s, as much again as the gradients.",
		line, c.u.Bytes(bytes))
	f.fix = "Do it for one parameter at a time, such as dist.all_reduce(p.grad), or in buckets of a few " +
		"MiB, as DistributedDataParallel does."
	f.sure(Likely, "its size is the sum of all gradients; another tensor of exactly that size would look "+
		"the same")
	f.lever = remedy{name: "smaller_buffers", request: request,
		command: at("for p in model.parameters(): dist.all_reduce(p.grad)", line)}
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		if flat(a.Stack[id], a.Size[id]) {
			f.lever.changes = append(f.lever.changes, life(c.d, id, a.Rounded[id]))
		}
	}
	return f, true
}

// bucketMakers are the functions of DistributedDataParallel that make buckets.
var bucketMakers = []string{"_ddp_init_helper", "_pre_forward", "_rebuild_buckets"}

func bucketsFault(c *evidence) (fault, bool) {
	made, p := map[traces.StackID]bool{}, c.d.Timeline().Places()
	makes := func(s traces.StackID) bool {
		if s < 0 {
			return false
		}
		is, known := made[s]
		if !known {
			if top := p.Stacks.At(s); len(top) > 0 {
				fn, file, _ := p.FrameText(top[0])
				is = slices.Contains(bucketMakers, fn) &&
					strings.HasSuffix(file, parallelFile)
			}
			made[s] = is
		}
		return is
	}
	var buckets []timeline.AllocID
	for _, id := range c.live {
		if makes(c.d.Allocs.Stack[id]) {
			buckets = append(buckets, id)
		}
	}
	bytes := c.bytesOf(buckets)
	if float64(bytes) < bucketsShare*float64(c.total+c.a.Asked.Or(0)) {
		return fault{}, false
	}
	beside := c.bytesOf(gradients(c))
	if again, _ := remade(c); 2*max(beside, again) < bytes {
		return fault{}, false
	}
	f := fault{Cause: Cause{Kind: "gradient_buffer", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s were made by %s, and gradients have blocks of their own", c.u.Bytes(bytes),
		nBlocks(len(buckets)), sites.Name(c.d, c.d.Allocs.Stack[buckets[0]]))}}
	f.said = fmt.Sprintf("DistributedDataParallel keeps a second copy of all gradients in its buckets: %s.",
		c.u.Bytes(bytes))
	f.fix = "Pass gradient_as_bucket_view=True: gradients are then views of the buckets."
	f.sure(Certain, "DistributedDataParallel's frames and the gradients beside the buckets show it")
	f.lever = remedy{name: "gradient_as_bucket_view",
		command: "DistributedDataParallel(model, gradient_as_bucket_view=True)",
		changes: neverMade(c, func(id timeline.AllocID) bool {
			return c.d.Allocs.Category[id] == timeline.Gradient
		})}
	return f, true
}
