package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Weights that do not fit by themselves. The pattern: the failed request comes from a module that is being
// built, loaded or moved, the model has never run, and nearly everything that exists was made in that way.
// Look-alikes: weights that are on the GPU twice, which are reported as model_copy; a second model that is
// made after the first has run; weights beside data that came first, which then hold less than nearly
// everything. Many blocks of one size that one line made by itself are not weights, because a model's weights
// have many sizes and lines: they are images or other data that are read ahead. Transformers and others load
// in float32 unless told otherwise (transformers issue 21681). Sources: transformers' docs, from_pretrained,
// torch_dtype and device_map; torch.nn.Module.to.

// leastAlike is how many blocks of one size from one line are data.
const leastAlike = 32

// alikeFault is data that a constructor of the user's puts on the GPU, before a model has run, if that made
// nearly all of some blocks.
func alikeFault(c *evidence, ids []timeline.AllocID) (fault, bool) {
	type kind struct {
		site int32
		size int64
	}
	alike, table := map[kind][]timeline.AllocID{}, sites.Of(c.d.Timeline())
	best, bytes, sum := kind{site: -1}, int64(0), map[kind]int64{}
	for _, id := range ids {
		s := c.d.Origin(id)
		if c.kinds.Of(s).Has(frames.KindModuleMove | frames.KindModuleInit | frames.KindLoad) {
			continue
		}
		k := kind{table.Number(s), c.d.Allocs.Size[id]}
		alike[k] = append(alike[k], id)
		if sum[k] += c.d.Allocs.Rounded[id]; k.site >= 0 && sum[k] > bytes {
			best, bytes = k, sum[k]
		}
	}
	if len(alike[best]) < leastAlike || float64(bytes) < weightsShare*float64(c.total) {
		return fault{}, false
	}
	line, n := table.Names[best.site], len(alike[best])
	f := fault{Cause: Cause{Kind: "prefetch", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of %s each came from %s before the model ever ran", c.u.Bytes(bytes), nBlocks(n),
		c.u.Bytes(best.size), line)}}
	f.said = fmt.Sprintf("Data is moved to the GPU before any model runs: %s in %s of one size from "+
		"%s.", c.u.Bytes(bytes), nBlocks(n), line)
	f.fix = "Keep it on the CPU and move what a step needs in the loop: " +
		"x = x.to(device, non_blocking=True)."
	f.sure(Likely, "one line made nearly all of it, in blocks of one size; equal layers made by hand would "+
		"look the same")
	f.lever = remedy{name: "load_each_batch", command: at("x = x.to(device, non_blocking=True)", line),
		request: c.a.Asked.Or(0)}
	for _, id := range alike[best] {
		f.lever.changes = append(f.lever.changes, life(c.d, id, c.d.Allocs.Rounded[id]))
	}
	return f, true
}

// weightsShare is the share of allocated memory that weights must hold.
const weightsShare = 0.9

func weightsFault(c *evidence) (fault, bool) {
	const makes = frames.KindModuleMove | frames.KindModuleInit | frames.KindUserInit | frames.KindLoad
	s := c.d.Event(c.a.At).Stack
	if len(c.parts) > 0 || !c.kinds.Of(s).Has(makes) {
		return fault{}, false
	}
	var ids []timeline.AllocID
	for _, id := range c.live {
		if c.kinds.Of(c.d.Origin(id)).Has(makes) {
			ids = append(ids, id)
		}
	}
	bytes := c.bytesOf(ids)
	if len(ids) < leastCopied || float64(bytes) < weightsShare*float64(c.total) {
		return fault{}, false
	}
	line := c.userLine(s)
	if f, ok := alikeFault(c, ids); ok {
		return f, true
	}
	if f, ok := tablesOfLayers(c, ids); ok {
		return f, true
	}
	f := fault{Cause: Cause{Kind: "weights_too_large", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of weights in %s were there when %s asked for the next, before the model ever ran",
		c.u.Bytes(bytes), nBlocks(len(ids)), line)}}
	f.said = fmt.Sprintf("The weights alone do not fit: %s of them were loaded when %s asked for %s more.",
		c.u.Bytes(bytes), line, c.u.Bytes(c.a.Asked.Or(0)))
	f.fix = "Load them in the type that they were saved in (torch_dtype=\"auto\", model.to(torch.bfloat16) " +
		"before it is moved) or quantised; or divide them over several GPUs (device_map=\"auto\")."
	f.sure(Certain, "modules that are built or moved made nearly all that is there, and no model has run")
	f.lever = remedy{name: "smaller_weights", command: at("model.to(torch.bfloat16).to(\"cuda\")", line)}
	if r, n := inTurn(c, s); n > 0 {
		f.elseFix = fmt.Sprintf("%d functions each moved a model: if these run in turn, load or move each "+
			"when its turn comes, and move it back or delete it afterwards", n)
		f.instead = r
	}
	return f, true
}

// Several models that are all loaded before the first of them runs, such as those of several metrics (versa
// pull request 72): lines of different functions each moved a module, and none of them nearly everything.
// Look-alike: the parts of one model that are moved one by one, so the advice begins with an "if".

const (
	leastModels = 3
	// ofModels is the share of allocated memory that each must hold, and mostOfModels what one may.
	ofModels, mostOfModels = 0.05, 0.6
)

// inTurn returns the remedy of several models that need not be there at the same time, and how many these
// are: the one that is being moved stays.
func inTurn(c *evidence, s traces.StackID) (r remedy, n int) {
	type function struct{ fn, file string }
	moved, all := map[function][]timeline.AllocID{}, int64(0)
	for _, id := range c.live {
		if of := c.d.Origin(id); c.kinds.Of(of).Has(frames.KindModuleMove) {
			fn, file := c.userFunction(of)
			moved[function{fn, file}] = append(moved[function{fn, file}], id)
		}
	}
	var largest int64
	for f, ids := range moved {
		bytes := c.bytesOf(ids)
		if f.fn == "" || len(ids) < leastCopied || float64(bytes) < ofModels*float64(c.total) {
			delete(moved, f)
			continue
		}
		largest, all = max(largest, bytes), all+bytes
	}
	if len(moved) < leastModels || float64(largest) > mostOfModels*float64(all) {
		return remedy{}, 0
	}
	fn, file := c.userFunction(s)
	r = remedy{name: "offload_unused", command: at("model.to(\"cpu\")", c.userLine(s)), remains: largest,
		changes: neverMade(c, func(id timeline.AllocID) bool {
			of := c.d.Origin(id)
			g, in := c.userFunction(of)
			return c.kinds.Of(of).Has(frames.KindModuleMove) && len(moved[function{g, in}]) > 0 &&
				(g != fn || in != file)
		})}
	return r, len(moved)
}

// A table that each layer makes for itself, such as the mask of the longest possible context (TransformerLens
// issue 479): one line in a constructor of the user's made half of the allocated memory, in blocks of one
// size. Making each took a larger block that was freed: the tensor that a comparison or .bool() turned into a
// smaller one. Look-alike: weights that are cast to a smaller type where they are made, so the advice begins
// with an "if".

const (
	leastTables = 4
	tablesShare = 0.5
	// madeShare is how many times larger than the table the block must be that it was made from.
	madeShare = 1.5
)

func tablesOfLayers(c *evidence, ids []timeline.AllocID) (fault, bool) {
	type kind struct {
		stack traces.StackID
		size  int64
	}
	alike, a := map[kind][]timeline.AllocID{}, &c.d.Allocs
	var best kind
	for _, id := range ids {
		const torchs = frames.KindModuleMove | frames.KindModuleInit | frames.KindLoad
		if s := c.d.Origin(id); !c.kinds.Of(s).Has(torchs) {
			k := kind{s, a.Size[id]}
			if alike[k] = append(alike[k], id); len(alike[k]) > len(alike[best]) && k.size >= best.size {
				best = k
			}
		}
	}
	tables := alike[best]
	if len(tables) < leastTables || float64(c.bytesOf(tables)) < tablesShare*float64(c.total) {
		return fault{}, false
	}
	larger := 0
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		if a.Stack[id] == best.stack && a.Requested[id] <= c.a.At &&
			float64(a.Size[id]) >= madeShare*float64(best.size) {
			larger++
		}
	}
	if larger < len(tables) {
		return fault{}, false
	}
	bytes, line := c.bytesOf(tables), c.userLine(best.stack)
	f := fault{Cause: Cause{Kind: "weights_too_large", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of %s each came from %s before the model ever ran, each made from something larger",
		c.u.Bytes(bytes), nBlocks(len(tables)), c.u.Bytes(best.size), line)}}
	f.said = fmt.Sprintf("%s made a table of %s each at %s before the model ever ran: %s.",
		timeline.Counted(len(tables), "layer"), c.u.Bytes(best.size), line, c.u.Bytes(bytes))
	f.fix = "If it is a mask or another table for the longest possible input, make one that all layers " +
		"share, or one of the length that is in use when they run; or lower that length."
	f.sure(Likely, "one line made equal blocks, each from something larger; weights that are cast where "+
		"they are made would look the same")
	f.lever = remedy{name: "smaller_input", command: at("mask = mask_of(x.shape[1])", line),
		request: c.a.Asked.Or(0) - partOf(c, c.a.Asked.Or(0), true)}
	for _, id := range tables[1:] {
		f.lever.changes = append(f.lever.changes, life(c.d, id, a.Rounded[id]))
	}
	f.elseFix = "if they are weights, load them in a smaller type or divide them over several GPUs"
	f.instead = remedy{name: "smaller_weights", command: at("model.to(torch.bfloat16).to(\"cuda\")", line)}
	return f, true
}
