package autopsy

import (
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Whether calls of the model left graphs, or something else keeps their tensors. There are five signs, the
// surest first. Norms: layer_norm, batch_norm and group_norm make an output and small statistics, which only
// a graph keeps (derivatives.yaml saves them for backward). If the statistics are gone and larger blocks are
// not, a hook, a closure or an attribute keeps these. But batch_norm in eval mode takes its statistics from
// buffers, so a call without them shows nothing if calls that a backward followed lack them, too. Then it
// counts how much of what they make such calls keep. Intermediate results of one module: a hook gets only
// its input and output. And by-products: an operator makes, besides its output, something of another size (a
// workspace, indices, a mask), which no Python object but a graph holds. Besides, the program's code may say
// that gradients are off, or that nothing but a graph could keep so much: see modeByCode.

// norms are the functions whose statistics only a graph keeps.
var norms = []string{"layer_norm", "batch_norm", "group_norm", "instance_norm"}

const (
	// alikeShare is how much of what calls with a graph keep a call must keep to have one.
	alikeShare = 0.9
	// leastByProducts is how many by-products must be there.
	leastByProducts = 3
)

// graphSign says whether calls left a graph, and what shows it.
type graphSign struct {
	graph, known bool
	why          string // "" for what keeps statistics of norms, the surest
}

// leftGraph reports whether the model's calls, the last one excepted, left a graph.
func leftGraph(c *evidence, calls []steps.Part) graphSign {
	calls = sinceLeft(c, calls)
	if len(calls) < 2 {
		return graphSign{}
	}
	from, to := calls[0].First, calls[len(calls)-1].First
	graph, known := keptStatistics(c, from, to, c.a.At)
	if known && graph {
		return graphSign{graph: true, known: true}
	}
	ids, _ := c.forwardBlocks(from, to, c.a.At+1)
	if c.mostly(ids) == gradientsOff {
		return graphSign{known: true}
	}
	then := map[traces.FrameID]byProduct{}
	var trained []steps.Part // calls to compare with: a backward freed their graphs
	for _, p := range c.parts {
		if p.Phase == traces.PhaseForward && p.Kept > 0 && c.backwardFrees(&p) {
			trained = append(trained, p)
			for line, n := range byProductsOf(c, p.First, p.End, p.End) {
				was := then[line]
				then[line] = byProduct{was.made + n.made, was.kept + n.kept}
			}
		}
	}
	if graph, tells := sameByProducts(then, byProductsOf(c, from, to, c.a.At)); tells {
		return graphSign{graph: graph, known: true,
			why: "operators keep what they make beside their outputs, as in calls that a backward followed"}
	}
	if len(trained) > 0 {
		p := &trained[0]
		if shows, tells := keptStatistics(c, p.First, p.End, p.End); !tells || !shows {
			made, kept := madeAndKept(c, calls)
			_, madeThen := c.forwardBlocks(p.First, p.End, p.First)
			_, keptThen := c.forwardBlocks(p.First, p.End, p.End)
			if made > 0 && madeThen > 0 {
				share, usual := float64(kept)/float64(made), float64(keptThen)/float64(madeThen)
				return graphSign{graph: share >= alikeShare*usual, known: usual > 0,
					why: "calls that a backward followed keep as much of what they make"}
			}
		} // otherwise norms show whether there is a graph
	}
	if !known && keptInside(c, calls) {
		return graphSign{graph: true, known: true,
			why: "each call left several intermediate results of one module, which hooks cannot see"}
	}
	if !known && byProducts(c, from, to) >= leastByProducts {
		return graphSign{graph: true, known: true,
			why: "what operators make beside their outputs is kept, as by a graph"}
	}
	if !known && !c.outputStays(ids) && c.onlyGraphs(ids) {
		return graphSign{graph: true, known: true,
			why: "each call left more than it returns, and the program's code has neither a hook nor an " +
				"attribute that could keep it"}
	}
	return graphSign{graph: graph, known: known}
}

// madeAndKept returns how many bytes calls made, and how many of these still exist. It counts neither the
// last call, nor those that left nothing: an agent that acts without gradients says nothing about its values.
func madeAndKept(c *evidence, calls []steps.Part) (made, kept int64) {
	for i := range calls[:len(calls)-1] {
		from, to := calls[i].First, calls[i+1].First
		if _, n := c.forwardBlocks(from, to, c.a.At+1); n > 0 {
			_, all := c.forwardBlocks(from, to, from)
			made, kept = made+all, kept+n
		}
	}
	return made, kept
}

// sinceLeft drops the calls before the first one that left something of the model. A text or a video that is
// finished says nothing about the next one.
func sinceLeft(c *evidence, calls []steps.Part) []steps.Part {
	for _, id := range c.live { // in the order in which they were made
		if len(calls) == 0 || c.d.Allocs.Start[id] < calls[0].First || !c.inModel(c.d.Origin(id)) {
			continue
		}
		return calls[max(steps.PartAt(calls, c.d.Allocs.Start[id]), 0):]
	}
	return calls
}

// keptStatistics reports whether most statistics that norms made in [from, to) still exist after a moment;
// known is false if there are none. A norm makes its statistics right after its output, and they are far
// smaller; what another layer's norm makes on the same line may be small, too.
func keptStatistics(c *evidence, from, to, after timeline.Moment) (kept, known bool) {
	there, all := statistics(c, from, to, after)
	return 2*there > all, all > 0
}

// statistics counts the statistics that norms made in [from, to), and those that still exist after a moment.
func statistics(c *evidence, from, to, after timeline.Moment) (there, all int) {
	a := &c.d.Allocs
	norms := map[traces.StackID]bool{}
	output := int64(0) // of the norm that the block before belongs to
	first, end := c.d.AllocsIn(from, to)
	for id := first; id < end; id++ {
		s := a.Stack[id]
		is, seen := norms[s]
		if !seen {
			is = norm(c, s)
			norms[s] = is
		}
		if !is || id == first || a.Stack[id-1] != s || 8*a.Size[id] > output {
			output = a.Size[id]
			continue
		}
		all++
		if a.Requested[id] > after {
			there++
		}
	}
	return there, all
}

// leastInside is how many lines of one module must have left blocks in a call.
const leastInside = 3

// keptInside reports whether most calls, except the last, left blocks from several lines of one module's own
// code. A hook gets only a module's input and output, and a loop that collects something has one line or two.
func keptInside(c *evidence, calls []steps.Part) bool {
	type module struct {
		call int
		of   traces.FrameID // what called it
	}
	lines, modules := map[module]map[traces.StackID]bool{}, map[traces.StackID]traces.FrameID{}
	many := map[int]bool{}
	for _, id := range c.live {
		call := steps.PartAt(calls, c.d.Allocs.Start[id])
		if call < 0 || call >= len(calls)-1 {
			continue
		}
		s := c.d.Origin(id)
		of, known := modules[s]
		if !known {
			of = c.ownModule(s)
			modules[s] = of
		}
		if of < 0 {
			continue
		}
		m := module{call, of}
		if lines[m] == nil {
			lines[m] = map[traces.StackID]bool{}
		}
		if lines[m][s] = true; len(lines[m]) >= leastInside {
			many[call] = true
		}
	}
	return 2*len(many) > len(calls)-1
}

// byProduct is how often an operator made something besides its output, and how often both stayed.
type byProduct struct{ made, kept int }

// byProductsOf finds blocks that follow one of another size from the same operator, and counts by the
// operator's line how many there were, and how many of these and of their outputs exist after a moment. It
// looks only at PyTorch's own lines: one of a user's may call several operators. Norms are left out: see
// keptStatistics.
func byProductsOf(c *evidence, from, to, after timeline.Moment) map[traces.FrameID]byProduct {
	a := &c.d.Allocs
	found, lines := map[traces.FrameID]byProduct{}, map[traces.StackID]traces.FrameID{}
	first, end := c.d.AllocsIn(from, to)
	for id := first + 1; id < end; id++ {
		s := a.Stack[id]
		if s == traces.NoStack || s != a.Stack[id-1] || a.Size[id] == a.Size[id-1] {
			continue
		}
		line, known := lines[s]
		if !known {
			line = c.d.Timeline().Places().Stacks.At(s)[0]
			if !c.inModel(s) || !c.kinds.Frames[line].Has(frames.KindTorch) || norm(c, s) {
				line = -1
			}
			lines[s] = line
		}
		if line < 0 {
			continue
		}
		n := found[line]
		n.made++
		if a.Requested[id] > after && a.Requested[id-1] > after {
			n.kept++
		}
		found[line] = n
	}
	return found
}

// sameByProducts compares calls with some that had a graph: whether operators keep at least half as much of
// their by-products. tells is false if they ran none that kept something then.
func sameByProducts(then, now map[traces.FrameID]byProduct) (graph, tells bool) {
	var expected float64
	kept := 0
	for line, n := range then {
		if x := now[line]; n.kept > 0 {
			expected += float64(x.made) * float64(n.kept) / float64(n.made)
			kept += x.kept
		}
	}
	return 2*float64(kept) >= expected, expected >= 1
}

// byProducts counts what operators made besides their outputs in [from, to) that exists together with these.
func byProducts(c *evidence, from, to timeline.Moment) (n int) {
	for _, x := range byProductsOf(c, from, to, c.a.At) {
		n += x.kept
	}
	return n
}

// norm reports whether a stack is inside one of norms, called by the model.
func norm(c *evidence, s traces.StackID) bool { return normNamed(c, s, norms...) }

// normNamed reports whether a stack is inside a function of torch.nn.functional with one of some names.
func normNamed(c *evidence, s traces.StackID, names ...string) bool {
	if !c.kinds.Of(s).Has(frames.KindFunctional) {
		return false
	}
	for _, id := range c.d.Timeline().Places().Stacks.At(s) {
		if c.kinds.Frames[id].Has(frames.KindFunctional) {
			fn, _, _ := c.d.Timeline().Places().FrameText(id)
			return slices.Contains(names, fn)
		}
	}
	return false
}
