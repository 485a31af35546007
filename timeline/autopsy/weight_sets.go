package autopsy

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// Sets of blocks that look like the weights of a model: which place made them, and which set is a copy of
// another.

// leastCopied is how many blocks a set of weights has at least.
const leastCopied = 8

// weightSet is the live blocks that one place allocated.
type weightSet struct {
	ids   []timeline.AllocID
	sizes map[int64]int
	stack traces.StackID
	late  bool // made after the training began
}

// weightSets returns the sets of all places that are neither the model's run, nor a backward's, nor the
// optimizer's, in the order of their sites.
func weightSets(c *evidence) []*weightSet {
	sets, table := map[int32]*weightSet{}, sites.Of(c.d.Timeline())
	for _, id := range c.live {
		s := c.d.Origin(id)
		n := table.Number(s)
		if n < 0 || c.kinds.Of(s).Has(frames.KindModel|frames.KindBackwardPass|frames.KindStep) {
			continue
		}
		x := sets[n]
		if x == nil {
			x = &weightSet{sizes: map[int64]int{}, stack: s,
				late: len(c.parts) > 0 && c.d.Allocs.Start[id] >= c.parts[0].First}
			sets[n] = x
		}
		x.ids = append(x.ids, id)
		x.sizes[c.d.Allocs.Size[id]]++
	}
	var out []*weightSet
	for _, n := range slices.Sorted(maps.Keys(sets)) {
		if len(sets[n].ids) >= leastCopied {
			out = append(out, sets[n])
		}
	}
	return out
}

// setsOfTraining is how many tensors of its size a training has for each weight: itself and two moments. A
// checkpoint may hold all of them, and they are wanted.
const setsOfTraining = 3

// setsOf returns how many complete sets of some sizes a set has.
func (x *weightSet) setsOf(sizes map[int64]int) int {
	if len(sizes) == 0 {
		return 0
	}
	least := math.MaxInt
	for size, n := range sizes {
		least = min(least, x.sizes[size]/n)
	}
	return least
}

// unfinished reports whether blocks of a stack's place are the first of a set that it makes again, in the
// same order, and the request that failed is the next one.
func unfinished(c *evidence, s traces.StackID, ids, of []timeline.AllocID) bool {
	if len(ids) < leastCopied || len(ids) >= len(of) || c.d.Allocs.Size[of[len(ids)]] != c.a.Asked.Or(0) {
		return false
	}
	failed := c.d.Event(c.a.At).Stack
	if failed < 0 || sites.Name(c.d, failed) != sites.Name(c.d, s) {
		return false
	}
	sizes := map[int64]bool{}
	for i, id := range ids {
		if c.d.Allocs.Size[id] != c.d.Allocs.Size[of[i]] {
			return false
		}
		sizes[c.d.Allocs.Size[id]] = true
	}
	return len(sizes) >= leastSizes
}

// twins returns the blocks of x for which another set has one of the same size, at most as many per size as
// that has. If x covers several sets, each counts.
func twins(c *evidence, x *weightSet, all []*weightSet) (ids []timeline.AllocID) {
	d, has := c.d, map[int64]int{}
	for _, y := range all {
		if y != x && !y.late && (covers(x.sizes, y.sizes) || unfinished(c, x.stack, x.ids, y.ids)) {
			for size, n := range y.sizes {
				has[size] += n
			}
		}
	}
	times := 1 // a place may have made several copies
	if x.late || x.setsOf(has) > setsOfTraining {
		times = len(x.ids)
	}
	used := map[int64]int{}
	for _, id := range x.ids {
		if size := d.Allocs.Size[id]; used[size] < times*has[size] {
			used[size]++
			ids = append(ids, id)
		}
	}
	return ids
}

// ofOwnLine reports whether a line of the user's made a block itself, and no function of a library.
func ofOwnLine(c *evidence, s traces.StackID) bool {
	for _, id := range c.d.Timeline().Places().Stacks.At(s) {
		if c.kinds.Frames[id].Has(frames.KindPython) {
			return c.ofUser(id)
		}
	}
	return false
}

// leastSizes is how many sizes the tensors of a whole model have at least: two weights of each layer have
// fewer.
const leastSizes = 4

// copier says what made a set that is a copy, "" if nothing shows it. Functions that save count once the
// training has begun: before, a checkpoint is loaded.
func copier(c *evidence, x *weightSet) string {
	if x.stack < 0 {
		return ""
	}
	saver := ""
	for _, id := range c.d.Timeline().Places().Stacks.At(x.stack) {
		fn, file, _ := c.d.Timeline().Places().FrameText(id)
		switch {
		case strings.HasSuffix(file, "torch/serialization.py"):
			return "torch.load"
		case fn == "deepcopy" || fn == "__deepcopy__":
			return "copy.deepcopy"
		case strings.Contains(file, "/torch/distributed/"):
			return "" // sharded: see gather
		case saver == "" && x.late && c.kinds.Frames[id].Has(frames.KindPython) &&
			!c.kinds.Frames[id].Has(frames.KindLibrary):
			for _, word := range savers {
				if strings.Contains(strings.ToLower(fn), word) {
					saver = fn
				}
			}
		}
	}
	if saver == "" && ofOwnLine(c, x.stack) {
		return byHand
	}
	return saver
}

// covers reports whether x has at least four fifths of the bytes of y, block by block, and y is a set of
// weights.
func covers(x, y map[int64]int) bool {
	var all, both int64
	n := 0
	for size, k := range y {
		n += k
		all += size * int64(k)
		both += size * int64(min(k, x[size]))
	}
	return n >= leastCopied && 5*both >= 4*all
}

// ofOptimizer reports whether a set has the sizes of optimizer state that was allocated and freed before it.
func ofOptimizer(c *evidence, x *weightSet) bool {
	a, ended, makes := &c.d.Allocs, map[int64]int{}, map[traces.StackID]bool{}
	for i := range c.parts {
		p := &c.parts[i]
		if p.Phase != traces.PhaseOptimizer {
			continue
		}
		first, end := c.d.AllocsIn(p.First, p.End)
		for id := first; id < min(end, x.ids[0]); id++ {
			of, known := makes[a.Stack[id]]
			if !known {
				of = c.makesState(a.Stack[id])
				makes[a.Stack[id]] = of
			}
			if of && a.Requested[id] <= c.a.At {
				ended[a.Size[id]]++
			}
		}
	}
	return covers(ended, x.sizes)
}

// byHand stands for a copy that a line of the user's makes, tensor by tensor: p.clone(), zeros_like(p).
const byHand = "by hand"

// savers are parts of the names of functions that copy weights to save them.
var savers = []string{"save", "checkpoint", "snapshot", "state_dict", "best", "backup"}

// makesState reports whether a stack is where an optimizer creates its state. PyTorch's optimizers do so in
// _init_group, others in functions such as init_state.
func (c *code) makesState(s traces.StackID) bool {
	if s < 0 || !c.kinds.Of(s).Has(frames.KindStep) {
		return false
	}
	return slices.ContainsFunc(c.places.Stacks.At(s), func(id traces.FrameID) bool {
		fn, _, _ := c.places.FrameText(id)
		return strings.HasPrefix(fn, "_init_") || strings.HasPrefix(fn, "init_")
	})
}
