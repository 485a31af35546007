package autopsy

import (
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Blocks that look like data that are on the device as a whole, and the names that tell weights apart.

// largestMade returns the size of the largest block that a call of the model made or asked for.
func largestMade(c *evidence) int64 {
	most := int64(0)
	if c.inModel(c.d.Event(c.a.At).Stack) {
		most = c.a.Asked.Or(0)
	}
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		if n := c.d.Allocs.Size[id]; n > most && c.inModel(c.d.Allocs.Stack[id]) {
			most = n
		}
	}
	return most
}

const (
	// wholeTimes is how many times the largest block of the model a block of whole data has at least.
	wholeTimes = 2
	// leastSlices is how many calls of the model must follow on data that came after the first one.
	leastSlices = 2
)

// slicedBefore reports whether the model was called several times while an earlier block of a stack's site
// was there or, with whole, one that the same function made: what a function returns may come from another of
// its lines than the block that does not fit. A function that calls the model itself makes all kinds of
// blocks. What a backward pass needs is computed from weights, so a site or a function that made some of it
// prepares no data.
func slicedBefore(c *evidence, s traces.StackID, whole bool) (sliced bool) {
	a, table := &c.d.Allocs, sites.Of(c.d.Timeline())
	site := table.Number(s)
	fn, file := c.userFunction(s)
	byLine := !whole || fn == "" || fn == moduleLevel || runsModel(c, fn, file)
	alike := map[traces.StackID]bool{}
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		if site < 0 || a.Requested[id] >= c.a.At || a.Stack[id] < 0 {
			continue
		}
		is, known := alike[a.Stack[id]]
		if !known {
			f, in := c.userFunction(a.Stack[id])
			is = table.Number(a.Stack[id]) == site ||
				!byLine && f == fn && in == file && c.ofData(a.Stack[id])
			alike[a.Stack[id]] = is
		}
		if !is {
			continue
		}
		if end := steps.PartAt(c.parts, a.Requested[id]); end >= 0 &&
			c.parts[end].Phase == traces.PhaseBackward { // it was saved for the backward
			return false
		}
		if sliced {
			continue
		}
		calls := 0
		for i := steps.PartAt(c.parts, a.Start[id]) + 1; i < len(c.parts); i++ {
			if c.parts[i].First >= a.Requested[id] {
				break
			}
			if c.parts[i].Phase == traces.PhaseForward {
				calls++
			}
		}
		sliced = calls > leastSlices
	}
	return sliced
}

// mayBeWeights reports whether the names of a stack's user line leave it open that it makes weights.
func mayBeWeights(c *evidence, s traces.StackID) bool {
	name := strings.ToLower(c.userLine(s))
	return slices.ContainsFunc(makesWeights, func(word string) bool { return strings.Contains(name, word) })
}

// makesWeights are parts of the names of functions and files that make weights.
var makesWeights = []string{"init", "weight", "param", "model", "embed", "build", "cache", "net", "layer"}
