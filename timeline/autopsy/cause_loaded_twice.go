package autopsy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A model that two functions load. The pattern: nothing is trained, one line makes or moves the same weights
// several times, called by different functions of the user's, all of them stay, and the model is called from
// one line: one function needs its labels or its settings, and another runs it. Look-alikes: an ensemble,
// whose members one function loads in a loop; a model and its teacher, or two networks of the same kind,
// which are called from a line each; a model that is made again after the first one ran, which is a restart.
// Source: a detector of animals that reads the names of its classes from the model.

func loadedTwiceFault(c *evidence) (fault, bool) {
	caller := traces.FrameID(-1)
	for i := range c.parts {
		p := &c.parts[i]
		if p.Phase != traces.PhaseForward || p.Caller < 0 || caller >= 0 && p.Caller != caller {
			return fault{}, false
		}
		caller = p.Caller
	}
	if caller < 0 {
		return fault{}, false
	}
	for _, loads := range loadsOf(c) {
		var old []*load
		last := loads[len(loads)-1]
		for _, x := range loads[:len(loads)-1] {
			if covers(x.sizes, last.sizes) && covers(last.sizes, x.sizes) &&
				len(x.sizes) >= leastSizes {
				old = append(old, x)
			}
		}
		if len(old) > 0 {
			return loadedTwice(c, old, last, caller), true
		}
	}
	return fault{}, false
}

// load is what one line made for one function that called it.
type load struct {
	by    userFunction // called the function that the line is in
	stack traces.StackID
	ids   []timeline.AllocID
	sizes map[int64]int
}

// loadsOf returns the live sets of weights that lines made when different functions called them, by line,
// each in the order in which they were made.
func loadsOf(c *evidence) (out [][]*load) {
	table, found := sites.Of(c.d.Timeline()), map[int32][]*load{}
	by := map[traces.StackID]userFunction{}
	for _, id := range c.live {
		s := c.d.Origin(id)
		k := c.kinds.Of(s)
		n := table.Number(s)
		if n < 0 || !k.Has(frames.KindModuleMove|frames.KindModuleInit|frames.KindUserInit|frames.KindLoad) ||
			k.Has(frames.KindModel|frames.KindBackwardPass|frames.KindStep) {
			continue
		}
		f, known := by[s]
		if !known {
			if outer := callerOf(c, s); len(outer) > 0 {
				fn, file, _ := c.places.FrameText(outer[0])
				f = userFunction{fn, file}
			}
			by[s] = f
		}
		if f.name == "" {
			continue
		}
		i := slices.IndexFunc(found[n], func(x *load) bool { return x.by == f })
		if i < 0 {
			i, found[n] = len(found[n]), append(found[n], &load{by: f, stack: s, sizes: map[int64]int{}})
		}
		x := found[n][i]
		x.ids = append(x.ids, id)
		x.sizes[c.d.Allocs.Size[id]]++
	}
	for _, n := range slices.Sorted(maps.Keys(found)) {
		if len(found[n]) > 1 {
			out = append(out, found[n])
		}
	}
	return out
}

// loadedTwice is the fault of a model that several functions loaded.
func loadedTwice(c *evidence, old []*load, last *load, caller traces.FrameID) fault {
	var changes []Change
	bytes := int64(0)
	for _, x := range old {
		bytes += c.bytesOf(x.ids)
		for _, id := range x.ids {
			changes = append(changes, life(c.d, id, c.d.Allocs.Rounded[id]))
		}
	}
	line := sites.Name(c.d, last.stack)
	first, again := place(old[0].by.name, old[0].by.file, 0), place(last.by.name, last.by.file, 0)
	f := fault{Cause: Cause{Kind: "model_copy", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s that %s made for %s have the sizes of what it made for %s later", c.u.Bytes(bytes), line, first,
		again)}}
	f.said = fmt.Sprintf("The same model is on the GPU twice: %s made it for %s, %s, and again for %s, and "+
		"only calls at %s run it.", line, first, c.u.Bytes(bytes), again, c.frameText(caller))
	f.fix = "Load it once and pass it on, or load it on the CPU where it is not run."
	f.sure(Likely, "one line made the same sizes for two functions; two models of the same kind that one "+
		"line calls in turn would look the same")
	f.lever = remedy{name: "drop_copy", command: at("model = load(path, device=\"cpu\")", first),
		changes: changes}
	return f
}
