package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Sharded weights that are whole again. Two patterns. A state dict: blocks whose stack is in a function that
// gathers one (FSDP's hooks for full state dicts, torch.distributed.checkpoint.state_dict, DTensor's
// full_tensor, DeepSpeed's consolidated state dict). A step: what fully_shard or FullyShardedDataParallel
// gathers for one unit; if the largest gather is half of everything that a forward gathers, the whole model
// is one unit, and sharding saves nothing at that moment. Look-alikes: units that are gathered one after
// another, each of which is a small part; a model with one layer that is half of it. Sources: the docstrings
// of torch.distributed.fsdp.fully_shard and of StateDictOptions.

// stateGathers are functions that make sharded weights whole in order to save them.
var stateGathers = []string{
	"_full_post_state_dict_hook", "_gather_state_dict", "_iterate_state_dict", "_get_model_state_dict",
	"_maybe_full_or_cpu_state_dict", "_consolidated_16bit_state_dict", "_zero3_consolidated_16bit_state_dict",
	"_optim_state_dict_impl", "full_tensor",
}

func stateGatherFault(c *evidence) (fault, bool) {
	stacks := gatherers(c, stateGathers)
	var ids []timeline.AllocID
	for _, id := range c.live {
		if stacks[c.d.Origin(id)] {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return fault{}, false
	}
	bytes, line := c.bytesOf(ids), c.userLine(c.d.Origin(ids[0]))
	f := fault{Cause: Cause{Kind: "state_dict_gather", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s were gathered for a state dict at %s", c.u.Bytes(bytes), nBlocks(len(ids)), line)}}
	f.said = fmt.Sprintf("%s gathers the whole state dict of the sharded weights on the GPU: %s.",
		line, c.u.Bytes(bytes))
	f.fix = "Gather it to the CPU: StateDictOptions(full_state_dict=True, cpu_offload=True), or save " +
		"shards with torch.distributed.checkpoint."
	f.sure(Certain, "the functions that gather a state dict are on the stacks")
	var changes []Change
	for _, id := range ids {
		changes = append(changes, life(c.d, id, c.d.Allocs.Rounded[id]))
	}
	f.lever = remedy{name: "state_dict_to_cpu",
		command: at("StateDictOptions(full_state_dict=True, cpu_offload=True)", line), changes: changes}
	wholeGradients(c, &f, ids, line)
	return f, true
}

func unitGatherFault(c *evidence) (fault, bool) {
	stacks := gatherers(c, unitGathers)
	for s := range gatherers(c, stateGathers) {
		delete(stacks, s)
	}
	all := c.rounds()
	if len(stacks) == 0 {
		return fault{}, false
	}
	from := timeline.Start
	if len(all) > 0 {
		from = all[len(all)-1].first
	}
	// A unit's gather is a run of allocations in these functions; blocks of several units exist at once if
	// the next one is gathered ahead.
	var live []timeline.AllocID
	for _, id := range c.live {
		if stacks[c.d.Allocs.Stack[id]] {
			live = append(live, id)
		}
	}
	units, total := gatheredUnits(c, stacks, from, c.a.At+1)
	bytes, stack := c.bytesOf(live), c.d.Event(c.a.At).Stack
	if stacks[stack] { // the request that failed is one more unit, or a part of it
		bytes += c.a.Asked.Or(0)
		units, total = append(units, c.a.Asked.Or(0)), total+c.a.Asked.Or(0)
		if len(units) == 1 { // nothing shows yet what else this step would gather
			total = 0
			if n := len(all) - 2; n >= 0 {
				_, total = gatheredUnits(c, stacks, all[n].first, min(all[n].backward, from))
			}
			if total == 0 {
				return fault{}, false
			}
		}
	} else if len(live) > 0 {
		stack = c.d.Allocs.Stack[live[0]]
	}
	if bytes == 0 || len(units) == 0 {
		return fault{}, false
	}
	largest := slices.Max(units)
	if 2*largest < total || 2*largest < bytes {
		return fault{}, false
	}
	line := c.userLine(stack)
	f := fault{Cause: Cause{Kind: "fsdp_gather", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"one gather of sharded weights takes %s of the %s that gathers took", c.u.Bytes(largest),
		c.u.Bytes(total))}}
	f.said = fmt.Sprintf("Sharding gathers the whole model at once, %s, for the forward at %s.",
		c.u.Bytes(bytes), line)
	f.fix = "Shard each block by itself before the model: for block in model.blocks: fully_shard(block), " +
		"or set an auto_wrap_policy."
	f.sure(Likely, "one gather holds most of what the step gathers; one very large layer would look the same")
	f.lever = remedy{name: "wrap_finer", command: at("for block in model.blocks: fully_shard(block)", line)}
	return f, true
}
