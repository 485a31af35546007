package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Levers that change the training itself.

func microBatchLever(c *leverCase) (Lever, bool) {
	if float64(c.batch) < 0.05*float64(c.total) || c.batch == 0 || c.oneSample() {
		return Lever{}, false
	}
	return c.divided(func(parts int64) (Lever, bool) {
		n, ok := c.saves(c.cutBatch(parts))
		request, too := allBut(c.requestOfBatch(c.batch), parts), ""
		if request > 0 {
			too = ", as does the request that failed"
		}
		does, short := "halve the micro-batch", "a batch of one sample cannot be halved"
		if parts > halves {
			does = fmt.Sprintf("make the micro-batch %s of what it is", Fraction(parts))
			short = fmt.Sprintf("a batch of fewer than %s samples cannot be cut that small", numeral(parts))
		}
		return Lever{
			Name: microBatch, Saves: maybe.Known(n + request), Exactness: timeline.Inferred,
			Fits: c.serves(c.f.asked-request, n), Effect: Effect{Less: request},
			Command: fmt.Sprintf("batch_size //= %d; accumulation_steps *= %d", parts, parts),
			Text: fmt.Sprintf("%s and accumulate gradients over %s: %s at that moment are activations and "+
				"inputs, which scale with it%s (%s: shorten its sequence, or crop it)",
				does, numeral(parts), c.f.units.Bytes(c.batch), too, short),
		}, ok
	})
}

// blocksOfModel is what the activations at a moment show about the model's repeated blocks.
type blocksOfModel struct {
	count   int // how many there are
	bytes   int64
	stacks  map[traces.StackID]bool
	largest int64 // bytes of the largest of them, which exist again while it is recomputed
	inputs  int64 // of what each made last: the input of the next, which is kept
}

// blockPlace is where a block of a model makes an activation: a stack, or the site if it was not recorded.
type blockPlace struct {
	stack traces.StackID
	site  string
}

// placeOf returns an activation's place. Stacks made of ops and modules name the block that they are in:
// those that differ in its number only are one place.
func (c *leverCase) placeOf(a timeline.AllocID) blockPlace {
	stack := c.d.Origin(a)
	if !c.d.Timeline().Recorded(stack) {
		return blockPlace{traces.NoStack, sites.Name(c.d, stack)}
	}
	return blockPlace{stack: stack}
}

const (
	leastRepeated = 4 // blocks of a model
	// manyRepeated is from how many blocks on a place may make several activations a block, as a norm does,
	// or one more than other places, in a block under way: with fewer, numbers agree by chance.
	manyRepeated = 8
	mostOfPlace  = 3 // activations that one place makes a block
)

// ofBlocks reports whether a place that made n activations made equally many in each of some blocks.
func ofBlocks(n, blocks int) bool {
	if n == blocks || blocks < manyRepeated {
		return n == blocks
	}
	for k := 1; k <= mostOfPlace; k++ {
		if n == k*blocks || n == k*(blocks+1) {
			return true
		}
	}
	return false
}

// repeatedBlocks finds the blocks of the model: most activation bytes at a moment come from places that
// allocated the same number of activations each, one or a few a block.
func (c *leverCase) repeatedBlocks() blocksOfModel {
	d := c.d
	type made struct {
		n     int
		bytes int64
	}
	from := map[blockPlace]*made{}
	var ids []timeline.AllocID
	for _, a := range c.live {
		if d.Allocs.Category[a] != timeline.Activation || d.Origin(a) == traces.NoStack {
			continue
		}
		p := c.placeOf(a)
		if from[p] == nil {
			from[p] = &made{}
		}
		from[p].n++
		from[p].bytes += d.Allocs.Rounded[a]
		ids = append(ids, a)
	}
	byCount := map[int]int64{}
	for _, m := range from {
		byCount[m.n] += m.bytes
	}
	best := blocksOfModel{stacks: map[traces.StackID]bool{}}
	for blocks := range byCount {
		bytes := int64(0)
		for n, b := range byCount {
			if ofBlocks(n, blocks) {
				bytes += b
			}
		}
		if blocks >= leastRepeated && (bytes > best.bytes || bytes == best.bytes && blocks > best.count) {
			best.count, best.bytes = blocks, bytes
		}
	}
	if best.count == 0 {
		return best
	}
	slices.Sort(ids)
	ids = slices.DeleteFunc(ids, func(a timeline.AllocID) bool {
		return !ofBlocks(from[c.placeOf(a)].n, best.count)
	})
	k := slices.IndexFunc(ids, func(a timeline.AllocID) bool { return from[c.placeOf(a)].n <= best.count+1 })
	first, block, most, last := c.placeOf(ids[k]), int64(0), int64(0), int64(0)
	for _, a := range ids {
		best.stacks[d.Origin(a)] = true
		n := d.Allocs.Rounded[a]
		if c.placeOf(a) == first {
			best.inputs += last
			block, most = 0, 0
		}
		if most = max(most, n); 8*n >= most { // no statistics of a norm
			last = n
		}
		block += n
		best.largest = max(best.largest, block)
	}
	best.inputs += last
	return best
}

func checkpointLever(c *leverCase) (Lever, bool) {
	b := c.repeatedBlocks()
	if b.count == 0 {
		return Lever{}, false
	}
	left := b.largest + b.inputs
	if left >= b.bytes {
		return Lever{}, false
	}
	share := 1 - float64(left)/float64(b.bytes)
	n, ok := c.saves(cutsOf(c.d, func(a timeline.AllocID) int64 {
		if c.d.Allocs.Category[a] == timeline.Activation && b.stacks[c.d.Origin(a)] {
			return int64(share * float64(c.d.Allocs.Rounded[a]))
		}
		return 0
	}))
	return Lever{
		Name: "checkpoint", Saves: maybe.Known(n), Exactness: timeline.Inferred, Fits: c.fits(n),
		Command: "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
		Text: fmt.Sprintf("checkpoint each of the %s repeated blocks: %s of activations are saved in "+
			"them; each would keep only its input and be computed again in the backward pass, one at a time "+
			"(the trace does not show how long that takes)",
			timeline.Count(int64(b.count)), c.f.units.Bytes(b.bytes)),
	}, ok
}

// heldLever finds what an earlier iteration allocated, this one still holds at the moment and frees later in
// it: outputs and losses that a variable keeps until it is assigned again.
func heldLever(c *leverCase) (Lever, bool) {
	d := c.d
	if c.a.OOM && int(c.a.At) >= d.Len()-1 { // nothing is freed any more: see heldFault
		return Lever{}, false
	}
	var now *steps.Iteration
	list := steps.Of(d).List
	for i := range list {
		if list[i].First <= c.a.At && c.a.At < list[i].End {
			now = &list[i]
		}
	}
	if now == nil || now.Index == 0 {
		return Lever{}, false
	}
	since := list[0].First
	held := func(a timeline.AllocID) bool {
		switch d.Allocs.Category[a] {
		case timeline.Parameter, timeline.OptimizerState, timeline.Gradient:
			return false
		}
		return d.Allocs.Start[a] >= since && d.Allocs.Start[a] < now.First && d.Allocs.Requested[a] < now.End
	}
	bytes, largest := int64(0), timeline.NoAlloc
	for _, a := range c.live {
		if held(a) {
			bytes += d.Allocs.Rounded[a]
			if largest == timeline.NoAlloc || d.Allocs.Rounded[a] > d.Allocs.Rounded[largest] {
				largest = a
			}
		}
	}
	if bytes == 0 {
		return Lever{}, false
	}
	var cuts []Change
	for i := range list {
		x := &list[i]
		first, end := d.AllocsIn(since, x.First)
		for a := max(first, timeline.AllocID(0)); a < end && i > 0; a++ {
			if r := d.Allocs.Requested[a]; r >= x.First && r < x.End && !isKept(d.Allocs.Category[a]) {
				cuts = append(cuts, Change{a, x.First, r, d.Allocs.Rounded[a]})
			}
		}
	}
	n, ok := c.saves(cuts)
	return Lever{
		Name: "del_outputs", Saves: maybe.Known(n), Exactness: c.exactness(), Fits: c.fits(n),
		Command: "del outputs, loss",
		Text: fmt.Sprintf("delete what the last step left before the next forward: %s of it are still "+
			"there at that moment, most from %s",
			c.f.units.Bytes(bytes), sites.Name(d, d.Origin(largest))),
	}, ok
}

func gradientLever(c *leverCase) (Lever, bool) {
	d := c.d
	phase, _ := steps.PhaseAt(d, c.a.At)
	if phase != traces.PhaseForward || float64(c.by[timeline.Gradient]) < worthShowing*float64(c.total) {
		return Lever{}, false
	}
	var cuts []Change
	for _, s := range steps.Phases(d) {
		if s.Phase != traces.PhaseForward {
			continue
		}
		for _, a := range d.LiveAt(s.First, nil) {
			if d.Allocs.Category[a] == timeline.Gradient {
				to := min(s.Last, d.Allocs.Requested[a])
				cuts = append(cuts, Change{a, s.First, to, d.Allocs.Rounded[a]})
			}
		}
	}
	n, ok := c.saves(cuts)
	return Lever{
		Name: "set_to_none", Saves: maybe.Known(n), Exactness: timeline.Inferred, Fits: c.fits(n),
		Command: "optimizer.zero_grad(set_to_none=True)  # before the forward",
		Text: fmt.Sprintf("free gradients before the forward, unless they are being accumulated: %s of "+
			"gradients are there at that "+
			"moment, in the forward",
			c.f.units.Bytes(c.by[timeline.Gradient])),
	}, ok
}

// freezeShare is the share of allocated memory that gradients must hold for freezing to be worth mentioning.
const freezeShare = 0.2

// freezeLever is offered in the first backward, when nothing shows yet which weights an optimizer has: if
// only a part of a model is trained, such as adapters or a head, all weights may still get gradients.
func freezeLever(c *leverCase) (Lever, bool) {
	d := c.d
	phase, _ := steps.PhaseAt(d, c.a.At)
	if !c.a.OOM || phase != traces.PhaseBackward ||
		float64(c.by[timeline.Gradient]) < freezeShare*float64(c.total) {
		return Lever{}, false
	}
	for _, p := range steps.Parts(d) {
		if p.Phase == traces.PhaseOptimizer && p.First < c.a.At {
			return Lever{}, false
		}
	}
	n, ok := c.saves(cutsOf(d, func(a timeline.AllocID) int64 {
		if d.Allocs.Category[a] == timeline.Gradient {
			return d.Allocs.Rounded[a]
		}
		return 0
	}))
	return Lever{
		Name: "freeze_gradients_off", Saves: maybe.Known(n), Exactness: timeline.Inferred, Fits: c.fits(n),
		Command: "model.requires_grad_(False)  # then turn it on for what is trained",
		Text: fmt.Sprintf("if only a part of the model is trained, such as adapters or a head, freeze the "+
			"rest: gradients hold %s in this first backward", c.f.units.Bytes(c.by[timeline.Gradient])),
	}, ok
}

// shard returns the cuts of one category when it is divided over the ranks, and says over how many: the run's
// own number, else two.
func (c *leverCase) shard(cat timeline.Category) ([]Change, string) {
	world := c.d.Timeline().Trace.Process.WorldSize.Or(0)
	stated := fmt.Sprintf("over the run's %d ranks", world)
	if world < 2 {
		world, stated = 2, "over 2 ranks (more save more)"
	}
	return cutsOf(c.d, func(a timeline.AllocID) int64 {
		if c.d.Allocs.Category[a] == cat {
			return c.d.Allocs.Rounded[a] / world * (world - 1)
		}
		return 0
	}), stated
}

func shardLever(c *leverCase) (Lever, bool) {
	if float64(c.by[timeline.OptimizerState]) < 0.05*float64(c.total) || c.by[timeline.OptimizerState] == 0 {
		return Lever{}, false
	}
	cuts, stated := c.shard(timeline.OptimizerState)
	n, ok := c.saves(cuts)
	return Lever{
		Name: "shard_optimizer", Saves: maybe.Known(n), Exactness: c.exactness(), Fits: c.fits(n),
		Command: "ZeroRedundancyOptimizer(model.parameters(), optimizer_class=type(optimizer))  # or " +
			"fully_shard(model)",
		Text: fmt.Sprintf("shard the optimizer state %s: it holds %s", stated,
			c.f.units.Bytes(c.by[timeline.OptimizerState])),
	}, ok
}

func shardParametersLever(c *leverCase) (Lever, bool) {
	if float64(c.by[timeline.Parameter]) < 0.25*float64(c.total) || c.by[timeline.Parameter] == 0 {
		return Lever{}, false
	}
	cuts, stated := c.shard(timeline.Parameter)
	n, ok := c.saves(cuts)
	return Lever{
		Name: "shard_parameters", Saves: maybe.Known(n), Exactness: c.exactness(), Fits: c.fits(n),
		Command: "fully_shard(model)",
		Text: fmt.Sprintf("shard the parameters %s: they hold %s; this does not count the one layer "+
			"that is gathered at a time",
			stated, c.f.units.Bytes(c.by[timeline.Parameter])),
	}, ok
}

// foreachLever finds an optimizer that makes temporaries for all parameters at once.
func foreachLever(c *leverCase) (Lever, bool) {
	d := c.d
	kinds := d.Timeline().Kinds()
	temporary := func(a timeline.AllocID) bool {
		cat := d.Allocs.Category[a]
		return kinds.Of(d.Origin(a)).Has(frames.KindForeach) && !isKept(cat)
	}
	var bytes, largest int64
	for _, a := range c.live {
		if temporary(a) {
			bytes += d.Allocs.Rounded[a]
			largest = max(largest, d.Allocs.Rounded[a])
		}
	}
	if float64(bytes) < worthShowing*float64(c.total) || bytes <= largest {
		return Lever{}, false
	}
	share := 1 - float64(largest)/float64(bytes)
	n, ok := c.saves(cutsOf(d, func(a timeline.AllocID) int64 {
		if temporary(a) {
			return int64(share * float64(d.Allocs.Rounded[a]))
		}
		return 0
	}))
	return Lever{
		Name: "foreach", Saves: maybe.Known(n), Exactness: timeline.Inferred, Fits: c.fits(n),
		Command: "type(optimizer)(params, fused=True)  # or foreach=False",
		Text: fmt.Sprintf("use the fused or the plain optimizer: its foreach form holds %s of temporaries "+
			"for all parameters at "+
			"once", c.f.units.Bytes(bytes)),
	}, ok
}

// mixedPrecisionLever is offered if nothing in the stacks shows mixed precision. A trace has no element
// types, so it has no saving either.
func mixedPrecisionLever(c *leverCase) (Lever, bool) {
	if float64(c.by[timeline.Activation]) < 0.1*float64(c.total) || c.by[timeline.Activation] == 0 {
		return Lever{}, false
	}
	for _, k := range c.d.Timeline().Kinds().Stacks {
		if k.Has(frames.KindAutocast) {
			return Lever{}, false
		}
	}
	return Lever{
		Name: "mixed_precision", Exactness: timeline.Inferred,
		Command: "with torch.autocast(\"cuda\", dtype=torch.bfloat16): ...",
		Text: fmt.Sprintf("activations hold %s; those that are float32 today would take half in bfloat16 "+
			"(the trace does not record "+
			"element types)",
			c.f.units.Bytes(c.by[timeline.Activation])),
	}, true
}

func smallOptimizerLever(c *leverCase) (Lever, bool) {
	if float64(c.by[timeline.OptimizerState]) < 0.1*float64(c.total) || c.by[timeline.OptimizerState] == 0 {
		return Lever{}, false
	}
	return Lever{
		Name: "optimizer_8bit", Exactness: timeline.Inferred,
		Command: "bitsandbytes.optim.Adam8bit(params)  # AdamW8bit for AdamW",
		Text: fmt.Sprintf("optimizer state holds %s; what is float32 today would take a quarter in 8 bits "+
			"(the trace does not record "+
			"element types)",
			c.f.units.Bytes(c.by[timeline.OptimizerState])),
	}, true
}

func smallParametersLever(c *leverCase) (Lever, bool) {
	if float64(c.by[timeline.Parameter]) < 0.5*float64(c.total) || c.by[timeline.Parameter] == 0 {
		return Lever{}, false
	}
	return Lever{
		Name: "smaller_weights", Exactness: timeline.Inferred,
		Command: "model.to(torch.bfloat16)  # or quantise for inference",
		Text: fmt.Sprintf("parameters hold %s: in bfloat16 they take half of that if they are float32 now "+
			"(the trace does not record element types)", c.f.units.Bytes(c.by[timeline.Parameter])),
	}, true
}

// hostWeightsLever is offered if weights alone fill the device. The user chooses how many of them stay on the
// host, so no saving is claimed.
func hostWeightsLever(c *leverCase) (Lever, bool) {
	if !c.a.Inferred || float64(c.by[timeline.Parameter]) < fullShare*float64(c.total) {
		return Lever{}, false
	}
	return Lever{
		Name: "weights_on_host", Exactness: timeline.Inferred,
		Command: "from_pretrained(..., device_map=\"auto\", max_memory={0: \"8GiB\", \"cpu\": \"64GiB\"})",
		Text: "keep a part of the weights on the host: each layer that stays there is copied to the GPU " +
			"when it runs, which is slower; the limits in the code are examples",
	}, true
}
