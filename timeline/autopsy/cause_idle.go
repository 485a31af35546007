package autopsy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Networks that are no longer used: a text encoder and an autoencoder whose outputs were stored before the
// training, or a model that made the labels. The pattern: calls without a graph from some lines came before
// the first backward and never again, of modules that no call of the training runs, though their layers may
// be of one library; and there are sets of weights for whose sizes there were never gradients. If the first
// call that trains fails, these are the sets that were there by the last such call, and others came later.
// Look-alikes: a frozen base below adapters, which the training's calls run, too, and whose weights have no
// gradients either. The recording does not show which set of weights a call runs, so as many sets as there
// are such networks count, the smallest first. A function that runs several networks in turn calls each from
// one line; they differ in how much their calls make. Another look-alike is an evaluation that comes back at
// the end of an epoch, which is why this is never more than likely. Sources: the examples of diffusers, which
// delete the text encoders and the VAE once latents are cached.

func idleFault(c *evidence) (fault, bool) {
	first := slices.IndexFunc(c.parts, func(p steps.Part) bool { return p.Phase == traces.PhaseBackward })
	if first < 0 && beginsTraining(c) {
		first = len(c.parts)
	}
	if first < 1 {
		return fault{}, false
	}
	lines, ran := map[traces.FrameID]int{}, map[traces.FrameID]bool{}
	began := timeline.Never // the first call that a backward followed
	for i := range c.parts {
		p := &c.parts[i]
		switch {
		case p.Phase != traces.PhaseForward:
		case c.trainedFrom(p) || p.Caller == c.parts[first-1].Caller: // the first backward may be under way
			began = min(began, p.First)
			for id := range modulesOf(c, p) {
				ran[id] = true
			}
		case i > first: // something that is not trained still runs
			return fault{}, false
		}
	}
	idle, networks, until := traces.FrameID(-1), map[string][]int{}, timeline.Start
	var run networkRun
	loop, file, _ := c.d.Timeline().Places().FrameText(max(c.parts[first-1].Caller, 0))
	for i := range c.parts[:first] {
		p := &c.parts[i]
		if p.Phase != traces.PhaseForward || p.Caller < 0 || p.First >= began {
			continue
		}
		// Lines of the loop call one network each; lines of another function are layers of one.
		fn, in, line := c.d.Timeline().Places().FrameText(p.Caller)
		if fn != loop || in != file {
			line = 0
		}
		if name := place(fn, in, line); line > 0 {
			networks[name] = []int{1}
		} else {
			run.add(c, p, name, networks)
		}
		own, other := 0, 0
		for id := range outermostOf(c, p) {
			if own++; ran[id] {
				other++
			}
		}
		if own > 0 && other == 0 {
			until = p.End
			if lines[p.Caller]++; lines[p.Caller] > lines[idle] {
				idle = p.Caller
			}
		}
	}
	if idle < 0 || began == timeline.Never {
		return fault{}, false
	}
	n := 0
	for _, made := range networks {
		n += networksOf(made)
	}
	ids := neverTrained(c, began, n)
	if first == len(c.parts) {
		ids = madeBy(c, until, n)
	}
	if len(ids) == 0 {
		return fault{}, false
	}
	bytes, from, call := c.bytesOf(ids), c.sitesOf(ids), c.frameText(idle)
	line := sites.Of(c.d.Timeline()).Names[from.top]
	f := fault{Cause: Cause{Kind: "idle_model", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of weights, most from %s, have no gradients, and %s called them for the last time before "+
			"the first backward", c.u.Bytes(bytes), line, call)}}
	f.said = fmt.Sprintf("A model that is no longer used is still on the GPU: %s of weights, most from %s. "+
		"Nothing has called it since the training began; before that, %s did.", c.u.Bytes(bytes), line, call)
	f.fix = "Move it to the CPU once its last output is stored, model.to(\"cpu\"), or delete it."
	f.sure(Likely, "its calls end before the training begins; a model that is called once an epoch would "+
		"look the same")
	f.lever = remedy{name: "offload_unused", command: at("model.to(\"cpu\")", line),
		changes: endingAt(c, ids, func(timeline.AllocID) timeline.Moment { return began })}
	return f, true
}

// networkRun is a run of one network by a function that may call its layers one by one: calls of the model
// that follow one another, up to the next from the line that the first came from.
type networkRun struct {
	name  string
	first traces.FrameID
}

// add counts a call's blocks for its run. made has the numbers of blocks of all runs, by name.
func (r *networkRun) add(c *evidence, p *steps.Part, name string, made map[string][]int) {
	if r.name != name || r.first == p.Caller {
		*r = networkRun{name, p.Caller}
		made[name] = append(made[name], 0)
	}
	first, end := c.d.AllocsIn(p.First, p.End)
	made[name][len(made[name])-1] += int(end - first)
}

// smallRun is the share of the largest run's blocks below which a run is a layer that the function calls
// alone.
const smallRun = 0.1

// networksOf returns how many networks made runs with these numbers of blocks. A run with half as many blocks
// again is another network's.
func networksOf(made []int) (n int) {
	least, most := 0, slices.Max(made)
	for _, k := range slices.Sorted(slices.Values(made)) {
		if float64(k) >= smallRun*float64(most) && (n == 0 || 2*k >= 3*least) {
			n, least = n+1, k
		}
	}
	return n
}

// beginsTraining reports whether a call of the model is under way whose code trains.
func beginsTraining(c *evidence) bool {
	n := len(c.parts)
	return n > 0 && c.parts[n-1].Phase == traces.PhaseForward && purpose(c, &c.parts[n-1]) == modeTraining
}

// madeWeights is what makes weights: a module's constructor or move, or a load.
const madeWeights = frames.KindModuleMove | frames.KindModuleInit | frames.KindLoad

// madeBy returns the blocks of the sets of weights that were there by a moment, if these are at most n and
// others came later: what is trained, before any gradients show it.
func madeBy(c *evidence, moment timeline.Moment, n int) (ids []timeline.AllocID) {
	later := false
	for _, x := range weightSets(c) {
		switch {
		case !c.kinds.Of(x.stack).Has(madeWeights):
		case c.d.Allocs.Start[x.ids[0]] >= moment:
			later = true
		default:
			n--
			ids = append(ids, x.ids...)
		}
	}
	if n < 0 || !later {
		return nil
	}
	return ids
}

// neverTrained returns the blocks of at most n sets of weights whose sizes no gradient had, the smallest sets
// first, of those that were there before a moment.
func neverTrained(c *evidence, before timeline.Moment, n int) (ids []timeline.AllocID) {
	gradients := map[int64]int{}
	for _, r := range c.rounds() {
		if r.backward == timeline.Never {
			continue
		}
		sizes := map[int64]int{}
		first, end := c.d.AllocsIn(r.backward, min(r.end, c.a.At))
		for id := first; id < end; id++ {
			if c.kinds.Of(c.d.Allocs.Stack[id]).Has(frames.KindBackwardPass) ||
				c.d.Allocs.Stack[id] == traces.NoStack {
				sizes[c.d.Allocs.Size[id]]++
			}
		}
		for size, k := range sizes {
			gradients[size] = max(gradients[size], k)
		}
	}
	var sets []*weightSet
	most, trained := 0, -1 // of a first backward that is not over: the weights with gradients so far
	whole := false         // whether a network has them all
	for _, x := range weightSets(c) {
		if c.d.Allocs.Start[x.ids[0]] >= before || !c.kinds.Of(x.stack).Has(madeWeights) {
			continue
		}
		if covers(gradients, x.sizes) {
			whole = true
			continue
		}
		of := 0
		for size, n := range x.sizes {
			of += min(n, gradients[size])
		}
		if sets = append(sets, x); of > most {
			most, trained = of, len(sets)-1
		}
	}
	if len(c.rounds()) == 1 && trained >= 0 && !whole {
		sets = slices.Delete(sets, trained, trained+1)
	}
	slices.SortStableFunc(sets, func(x, y *weightSet) int {
		return cmp.Compare(c.bytesOf(x.ids), c.bytesOf(y.ids))
	})
	for _, x := range sets[:min(n, len(sets))] {
		ids = append(ids, x.ids...)
	}
	return ids
}
