package autopsy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Experts that get more tokens than usual. With expert parallelism a process has some of a layer's experts,
// and as many tokens as the router sends there (arXiv 2601.17111: "funnel a disproportionate number of tokens
// to a small number of experts, leading to compute- and memory-bound failures"). The pattern: in the failed
// step, what the lines of experts hold is larger than ever, and it differed before, too, while the model's
// other lines hold what they always do. Look-alikes: a longer batch, with which all lines grow; experts that
// are all in one process, which share a fixed number of tokens, so that their sum stays constant; experts of
// libraries with other function names, about which we say nothing.

// othersGrown is the share of the other lines' bytes that may have grown.
const othersGrown = 0.1

// method is a function of the user's with the class that it is in, if any.
type method struct{ file, class, name string }

// methodAt returns the method of a frame.
func (c *history) methodAt(id traces.FrameID) method {
	fn, file, _ := c.places.FrameText(id)
	return method{file, c.classAt(id), fn}
}

// ofExperts returns which of some stacks are in an expert, below the model's call, by the names of functions,
// classes and files. What the methods make that call experts, such as the tokens for each, belongs to them.
// Where the program cannot be read, a function's class is unknown, and so are these.
func ofExperts(c *evidence, stacks map[traces.StackID]int64) map[traces.StackID]bool {
	of, dispatch := map[traces.StackID]bool{}, map[method]bool{}
	innermost := map[traces.StackID]method{}
	methods := map[traces.FrameID]method{} // finding a frame's class may take a walk through its file
	methodAt := func(id traces.FrameID) method {
		f, known := methods[id]
		if !known {
			f = c.methodAt(id)
			methods[id] = f
		}
		return f
	}
	for s := range stacks {
		at := c.places.Stacks.At(s)
		for _, id := range at {
			fn, file, _ := c.places.FrameText(id)
			name := strings.ToLower(fn + " " + file[strings.LastIndexByte(file, '/')+1:])
			switch {
			case of[s] && c.ofUser(id):
				if f := methodAt(id); f.class != "" {
					dispatch[f] = true
				}
			case namesExperts(name), c.ofUser(id) && namesExperts(strings.ToLower(methodAt(id).class)):
				of[s] = true
				continue
			default:
				continue
			}
			break
		}
		if i := slices.IndexFunc(at, c.ofUser); i >= 0 {
			innermost[s] = methodAt(at[i])
		}
	}
	for s, f := range innermost {
		of[s] = of[s] || dispatch[f]
	}
	return of
}

// namesExperts reports whether a name in lower case is that of an expert or of a mixture of them.
func namesExperts(name string) bool {
	return strings.Contains(name, "expert") || strings.Contains(name, "moe")
}

// heldByStack sums what a call of the model made in [from, to) and holds at to, by stack.
func heldByStack(c *evidence, from, to timeline.Moment) map[traces.StackID]int64 {
	held := map[traces.StackID]int64{}
	first, end := c.d.AllocsIn(from, to)
	for id := first; id < end; id++ {
		k := c.kinds.Of(c.d.Allocs.Stack[id])
		if k.Has(frames.KindModel) && !k.Has(frames.KindBackwardPass|frames.KindStep) &&
			c.d.Allocs.Requested[id] > to {
			held[c.d.Allocs.Stack[id]] += c.d.Allocs.Rounded[id]
		}
	}
	return held
}

func expertsFault(c *evidence) (fault, bool) {
	all := c.rounds()
	if len(all) <= leastSteps {
		return fault{}, false
	}
	open := all[len(all)-1]
	now := heldByStack(c, open.first, min(open.backward, c.a.At))
	of := ofExperts(c, now)
	var usual []int64 // of all experts, a step
	most := map[traces.StackID]int64{}
	for _, r := range all[:len(all)-1] {
		sum := int64(0)
		for s, n := range heldByStack(c, r.first, min(r.backward, r.end)) {
			most[s] = max(most[s], n)
			if of[s] {
				sum += n
			}
		}
		usual = append(usual, sum)
	}
	var experts, others, grown int64
	widest := traces.NoStack
	for s, n := range now {
		larger := float64(n) > grownBy*float64(most[s])
		switch {
		case of[s]:
			experts += n
			if widest == traces.NoStack || n > now[widest] || n == now[widest] && s < widest {
				widest = s
			}
		case larger:
			grown += n
			others += n
		default:
			others += n
		}
	}
	median := stats.Median(usual)
	if widest == traces.NoStack || median == 0 || distinct(usual) < leastShapes ||
		float64(experts) <= grownBy*float64(slices.Max(usual)) ||
		float64(grown) > othersGrown*float64(others) {
		return fault{}, false
	}
	line, times := sites.Name(c.d, widest), float64(experts)/float64(median)
	f := fault{Cause: Cause{Kind: "expert_imbalance", Bytes: maybe.Known(experts - median), Text: fmt.Sprintf(
		"the experts hold %s, %.1f times the median of %s, and the other layers no more than before",
		c.u.Bytes(experts), times, nSteps(len(usual)))}, news: times >= outlier}
	f.said = fmt.Sprintf("The router sent this GPU's experts %.1f times as many tokens as in the median "+
		"step: %s, most of it from %s.", times, c.u.Bytes(experts), line)
	f.fix = "Balance the router: raise the coefficient of its auxiliary loss, or give each expert a " +
		"capacity (capacity_factor) and drop the tokens beyond it."
	f.sure(Likely, "only the experts' lines grew; a larger batch for another part of the model would look "+
		"the same")
	f.lever = remedy{name: "expert_capacity", command: at("capacity_factor=1.25", line)}
	share := 1 - float64(median)/float64(experts)
	for _, id := range c.live {
		if s := c.d.Allocs.Stack[id]; c.d.Allocs.Start[id] >= open.first && of[s] {
			f.lever.changes = append(f.lever.changes,
				life(c.d, id, int64(share*float64(c.d.Allocs.Rounded[id]))))
		}
	}
	return f, true
}
