package autopsy

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// No known cause. What can still be said: that the process never had a whole GPU to itself, what grew from
// step to step, and what is large.

// mostNamed is how many places are named.
const mostNamed = 3

// otherCause is the cause of an out-of-memory that no detector knows and the allocator's figures do not show.
func (f *facts) otherCause(w wording, at timeline.Moment) Cause {
	if f.served() {
		c := Cause{Kind: "unknown", Text: fmt.Sprintf("a hole of %s would have served this request, and the "+
			"recording does not show why PyTorch did not use it", f.units.Bytes(f.largestHole))}
		if !f.poolKnown {
			c.Text += "; the request may have been for a private pool (CUDA graphs, user pools)"
		}
		c.sure(Possible, "what is recorded does not agree with what happened")
		return c
	}
	free, ok := f.driverFree.Value()
	if had := f.reserved + free; f.capacity == 0 && ok && had < smallestGPU {
		c := Cause{Kind: "other_process", Text: fmt.Sprintf(
			"what PyTorch reserved here and the free memory add up to only %s, less than any GPU that "+
				"PyTorch supports; nvidia-smi shows which process holds the rest: another one, or this one "+
				"if it also runs a library such as TensorFlow", f.units.Bytes(had))}
		c.sure(Likely, "the recording does not say how much the GPU has; a slice of one would look the same")
		return c
	}
	large := largest(w, at)
	if grew := grew(w, at); grew != "" {
		c := Cause{Kind: "unknown", Text: "these grew: " + grew + "; these are large: " + large}
		c.sure(Possible, "it matches no pattern that gmemtop knows")
		return c
	}
	c := Cause{Kind: "too_large", Text: "nothing grows, is duplicated or waits to be freed; these are " +
		"large: " + large}
	c.sure(Likely, "it matches no pattern that gmemtop knows")
	return c
}

// firstOfStep returns where the step at a moment began, and false if there is no clear step: repeated calls
// of the model from one line without a backward are not one step.
func firstOfStep(d *timeline.Device, at timeline.Moment) (timeline.Moment, bool) {
	all := steps.Parts(d)
	open := all[:steps.PartAt(all, at)+1]
	for len(open) > 0 && open[len(open)-1].Phase != traces.PhaseForward {
		open = open[:len(open)-1] // its own backward or optimizer is under way
	}
	for i := len(open) - 1; i >= 0; i-- {
		if open[i].Phase != traces.PhaseForward {
			open = open[i+1:]
			break
		}
	}
	calls := map[traces.FrameID]int{}
	for _, p := range open {
		if calls[p.Caller]++; calls[p.Caller] >= leastForwards {
			return timeline.Start, false
		}
	}
	if len(open) == 0 {
		return timeline.Start, false
	}
	return open[0].First, true
}

// grew names the places whose bytes grow from step to step, "" for none. What only the current step made is
// no growth, however often it does the same.
func grew(w wording, at timeline.Moment) string {
	var out []string
	first, known := firstOfStep(w.Device, at)
	before := map[traces.StackID]bool{}
	for _, id := range w.Device.LiveAt(at, nil) {
		if w.Device.Allocs.Start[id] < first {
			before[w.Device.Origin(id)] = true
		}
	}
	for _, l := range steps.Leaks(w.Device) {
		if len(out) == mostNamed {
			break
		}
		if known && !before[l.Stack] {
			continue
		}
		out = append(out, fmt.Sprintf("%s by %s a step", named(sites.Name(w.Device, l.Stack)),
			w.units.Bytes(int64(l.Slope))))
	}
	return strings.Join(out, ", ")
}

// largest names the places that hold most at a moment.
func largest(w wording, at timeline.Moment) string {
	var out []string
	for i, g := range sites.Breakdown(w.Device, at, sites.BySite) {
		if i == mostNamed || g.Bytes == 0 {
			break
		}
		out = append(out,
			named(g.Words())+" "+w.units.Bytes(g.Bytes)+blocksWord(g.Blocks)+w.purpose(g.Largest))
	}
	return strings.Join(out, ", ")
}

// named returns a place, or that it has no name.
func named(place string) string {
	if place == "" {
		return "a place that the recording does not name"
	}
	return place
}
