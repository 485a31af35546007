package autopsy

import (
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// How much of what a call of the model made is still there when the call is over.

// keepsAll reports whether the current call keeps what it made, as a graph does, and returns the bytes kept
// and made. It keeps most of it, or the statistics of its norms: what quantized layers make beside their
// outputs is gone either way. A call whose layers make few blocks keeps those of layers that have returned.
func keepsAll(c *evidence, p *steps.Part) (kept, made int64, ok bool) {
	ids, kept := c.forwardBlocks(p.First, c.a.At, c.a.At+1)
	_, made = c.forwardBlocks(p.First, c.a.At, p.First)
	switch {
	case len(ids) < graphBlocks:
		return kept, made, keepsReturned(c, p, ids, kept)
	case float64(kept) >= keptByCall*float64(made):
		return kept, made, true
	}
	there, all := statistics(c, p.First, c.a.At, c.a.At)
	return kept, made, there >= leastStatistics && 2*there > all
}

// keepsReturned reports whether most of what the current call keeps was made by lines that have run again
// since, of modules that a training ran, too: each layer of a network runs the same function, and without a
// graph what a function makes ends when it returns. Look-alikes: a list of what all layers hand on comes from
// one line, a cache of keys and values from two, and what compares features of two inputs keeps those of the
// first, but nothing trains it.
func keepsReturned(c *evidence, p *steps.Part, ids []timeline.AllocID, kept int64) bool {
	if _, cached := cacheFault(c); cached || !ranTrained(c, p) {
		return false
	}
	again := map[traces.StackID]timeline.AllocID{} // since when what a line makes is of its last run
	first, end := c.d.AllocsIn(p.First, c.a.At)
	before := traces.NoStack
	for id := first; id <= end; id++ {
		s := c.d.Event(c.a.At).Stack // of the request that failed
		if id < end {
			s = c.d.Allocs.Stack[id]
		}
		if s != before { // what one run makes in a row is of that run
			again[s], before = id, s
		}
	}
	lines, bytes := map[traces.StackID]bool{}, int64(0)
	for _, id := range ids {
		if s := c.d.Allocs.Stack[id]; id < again[s] {
			lines[s] = true
			bytes += c.d.Allocs.Rounded[id]
		}
	}
	return len(lines) >= leastReturned && 2*bytes >= kept
}

const (
	// leastStatistics is how many statistics of norms show a graph: the last norm's may just be in use.
	leastStatistics = 3
	// leastReturned is how many lines must have left something when the function that they are in ran again.
	leastReturned = 2
)
