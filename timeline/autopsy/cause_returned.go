package autopsy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// What checkpointed blocks return besides their output: keys and values, with use_cache in training. A
// checkpointed block keeps only its input, which is the output of the block before. The pattern: in the
// forward, each checkpointed call leaves blocks of three lines or more, two of which, keys and values, are
// equal in size and number. Look-alikes: a block without a checkpoint, from which everything stays; hidden
// states that are returned too, which are the outputs; attention weights that are returned, which is one more
// line, not two of one size. Sources: torch.utils.checkpoint (what a function returns is not recomputed);
// transformers' modeling code, which warns that use_cache=True is incompatible with checkpoints.

// leastCheckpoints is how many checkpointed calls must have left something.
const leastCheckpoints = 4

// checkpointed reports whether a stack is inside a checkpoint's forward.
func checkpointed(c *evidence, s traces.StackID) bool {
	k := c.kinds.Of(s)
	return k.Has(frames.KindCheckpoint) && k.Has(frames.KindModel) &&
		!k.Has(frames.KindBackwardPass|frames.KindStep)
}

func returnedFault(c *evidence) (fault, bool) {
	all := c.rounds()
	if len(all) == 0 {
		return fault{}, false
	}
	r := all[len(all)-1]
	first, end := c.d.AllocsIn(r.first, min(r.backward, c.a.At))
	left := map[traces.StackID][]timeline.AllocID{}
	for id := first; id < end; id++ {
		s := c.d.Allocs.Stack[id]
		if checkpointed(c, s) && c.d.Allocs.Requested[id] > min(r.backward, c.a.At) {
			left[s] = append(left[s], id)
		}
	}
	// An output of each call, and two lines that left as many blocks, of one size, that the backward does not
	// free as it goes.
	pairs := map[[2]int64][]traces.StackID{}
	calls := 0
	for _, s := range slices.Sorted(maps.Keys(left)) {
		ids := left[s]
		size := c.d.Allocs.Size[ids[0]]
		calls = max(calls, len(ids))
		equal := !slices.ContainsFunc(ids,
			func(id timeline.AllocID) bool { return c.d.Allocs.Size[id] != size })
		if live := c.stillThere(ids); equal && len(live) == len(ids) && len(ids) >= leastCheckpoints {
			key := [2]int64{size, int64(len(ids))}
			pairs[key] = append(pairs[key], s)
		}
	}
	for key, stacks := range pairs {
		if len(stacks) != 2 || int(key[1]) < calls-1 || len(left) < 3 || len(left) > 4 {
			continue
		}
		return returned(c, left[stacks[0]], left[stacks[1]]), true
	}
	return fault{}, false
}

// returned is the fault of keys and values that checkpointed calls return.
func returned(c *evidence, keys, values []timeline.AllocID) fault {
	ids := slices.Concat(keys, values)
	bytes, line := c.bytesOf(ids), sites.Name(c.d, c.d.Allocs.Stack[keys[0]])
	f := fault{Cause: Cause{Kind: "kv_cache", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s left two blocks of %s each beside their output, at %s and the like",
		timeline.Counted(len(keys), "checkpointed call"), c.u.Bytes(c.d.Allocs.Size[keys[0]]), line)}}
	f.said = fmt.Sprintf("The checkpointed blocks return two more tensors with their output, as for a "+
		"key-value cache: %s from %s, made at %s.", c.u.Bytes(bytes), nCalls(len(keys)), line)
	f.fix = "Turn the key-value cache off in training: use_cache=False; no gradient needs it."
	f.sure(Likely, "a checkpointed call keeps nothing else; other pairs that blocks return would look the "+
		"same")
	if text := c.frames(c.d.Allocs.Stack[keys[0]]); strings.Contains(text, "cache_utils.py") {
		f.sure(Certain, "the cache's own functions made them")
	}
	f.lever = remedy{name: "use_cache_off", command: at("model(..., use_cache=False)", line),
		changes: untilNext(c, ids)}
	return f
}
