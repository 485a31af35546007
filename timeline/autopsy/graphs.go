package autopsy

import (
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Whether calls of the model left graphs, or something else keeps tensors of theirs. Three signs, the surest
// first. Norms: layer_norm, batch_norm and group_norm make an output and small statistics, which only a graph
// keeps (derivatives.yaml saves them for backward). Where the statistics are gone and larger blocks are not,
// a hook, a closure or an attribute keeps these; but batch_norm in eval mode takes its statistics from
// buffers, so that a call without them shows nothing where calls that a backward followed lack them, too.
// Then it counts how much of what they make such calls keep. And by-products: an operator that makes its
// output and something of another size beside it (a workspace, indices, a mask), of which no Python object
// but a graph holds the second.

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
	if len(calls) < 2 {
		return graphSign{}
	}
	from, to := calls[0].First, calls[len(calls)-1].First
	graph, known := keptStatistics(c, from, to, c.a.At)
	if known && graph {
		return graphSign{graph: true, known: true}
	}
	for _, p := range c.parts {
		if p.Phase != traces.PhaseForward || p.Kept == 0 || !c.backwardFrees(&p) {
			continue
		}
		// The call to compare with: its backward freed its graph.
		if trained, tells := keptStatistics(c, p.First, p.End, p.End); tells && trained {
			break // norms show a graph where there is one
		}
		_, made := c.forwardBlocks(from, to, from)
		_, kept := c.forwardBlocks(from, to, c.a.At+1)
		_, madeThen := c.forwardBlocks(p.First, p.End, p.First)
		_, keptThen := c.forwardBlocks(p.First, p.End, p.End)
		if made == 0 || madeThen == 0 {
			break
		}
		share, trained := float64(kept)/float64(made), float64(keptThen)/float64(madeThen)
		return graphSign{graph: share >= alikeShare*trained, known: trained > 0,
			why: "calls that a backward followed keep as much of what they make"}
	}
	if !known && byProducts(c, from, to) >= leastByProducts {
		return graphSign{graph: true, known: true,
			why: "what operators make beside their outputs is kept, as by a graph"}
	}
	return graphSign{graph: graph, known: known}
}

// keptStatistics reports whether most statistics that norms made in [from, to) are there after a moment;
// known is false where there are none.
func keptStatistics(c *evidence, from, to, after timeline.Moment) (kept, known bool) {
	a := &c.d.Allocs
	largest := map[traces.StackID]int64{} // of the stacks of norms, 0 for other stacks
	first, end := c.d.AllocsIn(from, to)
	for id := first; id < end; id++ {
		n, ok := largest[a.Stack[id]]
		if !ok && !norm(c, a.Stack[id]) {
			largest[a.Stack[id]] = 0
		} else if !ok || n > 0 {
			largest[a.Stack[id]] = max(n, a.Size[id])
		}
	}
	there, all := 0, 0
	for id := first; id < end; id++ {
		if 8*a.Size[id] > largest[a.Stack[id]] {
			continue
		}
		all++
		if a.Requested[id] > after {
			there++
		}
	}
	return 2*there > all, all > 0
}

// byProducts counts blocks that are there beside one that the same operator made right before, of another
// size. It looks at PyTorch's own lines alone: one of a user's may call several operators.
func byProducts(c *evidence, from, to timeline.Moment) (n int) {
	a := &c.d.Allocs
	first, end := c.d.AllocsIn(from, to)
	for id := first + 1; id < end; id++ {
		s := a.Stack[id]
		if s != traces.NoStack && s == a.Stack[id-1] && a.Size[id] != a.Size[id-1] &&
			a.Requested[id] > c.a.At && a.Requested[id-1] > c.a.At &&
			c.inModel(s) && c.kinds.Frames[c.d.Timeline().Places().Stacks.At(s)[0]].Has(frames.KindTorch) {
			n++
		}
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
