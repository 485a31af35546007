package timeline

import (
	"runtime"
	"slices"
	"sort"
	"sync"

	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
)

// What is a block for? A recorded category is used as it is. PyTorch's allocator records none, so it is
// inferred, and marked so, from two things: the stack of its allocation (see frames.go) and the phases that
// began while it was allocated. A block of the forward pass that is still alive in the backward pass was
// saved for it: an activation; one that is gone by then was a temporary. The rules form an ordered table and
// the first that fits decides. If none fits, or no frame gives a hint, the category is unknown rather than a
// guess.
//
// The definitions are torch.profiler's (torch/profiler/_memory_profiler.py), which finds them from the data
// flow that a snapshot lacks; key-value caches are ours. Rejected: the first match on words of any frame, as
// flame graph tools do (then a parameter's name in a path decides, and temporaries look like activations);
// sizes (they repeat).

// blockFacts are what the rules look at.
type blockFacts struct {
	kind  frames.Kind  // of the stack
	phase traces.Phase // in which it was allocated, by its own stack or by those around it
	// Phases that began while it was allocated. In a trace without lifetimes all are true: the block is alive
	// at the one moment.
	seesForward, seesBackward bool
	outlivesPhase             bool // it is still allocated when the phase that it was allocated in ends
	beforeTraining            bool // allocated before the recording's first phase
	trains                    bool // the recording has a backward
	alone                     bool // no frame at all, in a recording whose main thread has Python frames
}

// categoryRule assigns a category to the blocks that it applies to.
type categoryRule struct {
	name     string
	category Category
	applies  func(f *blockFacts) bool
}

// has reports whether the stack has one of the kinds.
func (f *blockFacts) has(k frames.Kind) bool { return f.kind&k != 0 }

// categoryRules decide in this order.
var categoryRules = []categoryRule{
	{"an optimizer's block that the next forward finds", OptimizerState, func(f *blockFacts) bool {
		return f.has(frames.KindOptimizer) && !f.has(frames.KindZeroGrad|frames.KindBackward) &&
			f.outlivesPhase
	}},
	{"an optimizer's block that is freed within its step", Temporary, func(f *blockFacts) bool {
		return f.has(frames.KindOptimizer) && !f.has(frames.KindBackward)
	}},
	{"made in an optimizer's file and kept", OptimizerState, func(f *blockFacts) bool {
		return f.has(frames.KindOptimizerFile) &&
			!f.has(frames.KindBackward|frames.KindModel|frames.KindEngine) && f.outlivesPhase
	}},
	{"a forward run again by checkpointing", Activation, func(f *blockFacts) bool {
		return f.phase == traces.PhaseBackward && f.has(frames.KindCheckpoint) && f.has(frames.KindModel)
	}},
	{"a gradient accumulated for the first time", Gradient, func(f *blockFacts) bool {
		return f.has(frames.KindAccumulate) && f.outlivesPhase
	}},
	{"a backward's block that outlives it", Gradient, func(f *blockFacts) bool {
		return f.phase == traces.PhaseBackward && f.outlivesPhase
	}},
	{"a backward's block that is freed within it", AutogradDetail, func(f *blockFacts) bool {
		return f.phase == traces.PhaseBackward
	}},
	{"no hint in the stack", Unknown, func(f *blockFacts) bool { return !f.has(frames.KindPython) }},
	{"keys and values of earlier tokens", Cache, func(f *blockFacts) bool {
		return f.has(frames.KindCache) && !(f.trains && f.has(frames.KindModel)) && f.outlivesPhase
	}},
	{"a data loader's batch", Input, func(f *blockFacts) bool {
		return f.has(frames.KindLoader) && !f.has(frames.KindModel)
	}},
	{"weights read from a file", Parameter, func(f *blockFacts) bool {
		return f.has(frames.KindLoad) && !f.has(frames.KindModel) && f.outlivesPhase
	}},
	{"a module moved to the device", Parameter, func(f *blockFacts) bool {
		return f.has(frames.KindModuleMove) && !f.has(frames.KindModel) && f.outlivesPhase
	}},
	{"a module made before training", Parameter, func(f *blockFacts) bool {
		return f.has(frames.KindModuleInit|frames.KindUserInit) && !f.has(frames.KindModel) &&
			f.beforeTraining && f.outlivesPhase
	}},
	{"a module of PyTorch's made while training and kept", Parameter, func(f *blockFacts) bool {
		return f.has(frames.KindModuleInit) && !f.has(frames.KindModel) && f.outlivesPhase && f.seesBackward
	}},
	{"a forward's block that a backward finds", Activation, func(f *blockFacts) bool {
		return f.phase == traces.PhaseForward && f.seesBackward
	}},
	{"a forward's block in a recording without a backward", Activation, func(f *blockFacts) bool {
		return f.has(frames.KindModel) && f.phase == traces.PhaseForward && !f.trains
	}},
	{"a forward's block that is gone before the backward", Temporary, func(f *blockFacts) bool {
		return f.phase == traces.PhaseForward && !f.outlivesPhase
	}},
	{"copied to the device outside of the model", Input, func(f *blockFacts) bool {
		return f.has(frames.KindCopy) && !f.has(frames.KindModel|frames.KindModuleMove) && f.seesForward
	}},
	{"made between backward and the next forward, and gone by then", Temporary, func(f *blockFacts) bool {
		return f.has(frames.KindMain) && !f.has(frames.KindModel) && !f.beforeTraining &&
			f.phase == traces.PhaseUnknown && !f.outlivesPhase && !f.seesForward
	}},
	{"made outside of the model and found by a forward", Input, func(f *blockFacts) bool {
		return !f.has(frames.KindModel) && !f.beforeTraining && f.phase != traces.PhaseForward &&
			f.seesForward
	}},
}

// phaseTrack holds the phases that the stacks show along a device's allocations: when each began and ended.
type phaseTrack struct {
	changes []phaseChange
	starts  [traces.PhaseOptimizer + 1][]Moment
}

type phaseChange struct {
	at    Moment
	phase traces.Phase
}

// trackPhases walks the allocations once. A stack that shows no phase belongs to the phase around it. The
// exception is a stack of the thread that calls backward and waits for it: it means that the backward is
// over, and what follows belongs to no phase until another begins.
func (c *categoriser) trackPhases() *phaseTrack {
	a, t, now, over := &c.d.Allocs, &phaseTrack{}, traces.PhaseUnknown, false
	for i := c.d.Begun(Start); int(i) < a.Len(); i++ {
		k := c.kinds.Of(a.Stack[i])
		p, ends := frames.PhaseOf(k), false
		switch {
		case p != traces.PhaseUnknown:
		case c.pythonic && a.Stack[i] == traces.NoStack && (now == traces.PhaseForward || over):
			// PyTorch runs the backward pass on threads without Python frames.
			p = traces.PhaseBackward
		case k&frames.KindMain != 0 && now == traces.PhaseBackward:
			ends = true
		}
		if p == now || p == traces.PhaseUnknown && !ends {
			continue
		}
		now, over = p, ends
		t.changes = append(t.changes, phaseChange{a.Start[i], p})
		t.starts[p] = append(t.starts[p], a.Start[i])
	}
	return t
}

// categorise fills the device's category columns.
func categorise(d *Device) {
	recorded := recordedCategories(d)
	c := categoriser{d: d, kinds: d.tl.Kinds()}
	c.pythonic = mostlyPython(&d.Allocs, c.kinds)
	if !c.pythonic && !anyKind(c.kinds.Stacks, frames.KindEngine|frames.KindAccumulate) {
		return
	}
	c.track = c.trackPhases()
	c.lifeless = d.n == 0 || d.Totals.Allocations == 0
	inChunks(d.Allocs.Len(), func(from, to AllocID) {
		part := c // each chunk walks the phases by itself
		part.infer(from, to, recorded)
	})
	c.continued()
}

// continued gives the blocks of a forward that no backward followed, as of a step that ran out of memory,
// what blocks of their stacks were in the forwards before: saved for the backward, if most of those were that
// did not end within the forward.
func (c *categoriser) continued() {
	from := Never // the first forward after the last backward
	for _, x := range slices.Backward(c.track.changes) {
		if x.phase == traces.PhaseBackward {
			break
		}
		if x.phase == traces.PhaseForward {
			from = x.at
		}
	}
	if c.lifeless || from == Never {
		return
	}
	a := &c.d.Allocs
	first := AllocID(sort.Search(a.Len(), func(i int) bool { return a.Start[i] >= from }))
	open := map[traces.StackID]int{} // how many more blocks were activations than were not
	for i := first; int(i) < a.Len(); i++ {
		if a.Category[i] == Unknown && a.Stack[i] >= 0 && c.kinds.Of(a.Stack[i]).Has(frames.KindModel) {
			open[a.Stack[i]] = 0
		}
	}
	for i := c.d.Begun(Start); i < first && len(open) > 0; i++ {
		if n, ok := open[a.Stack[i]]; ok {
			switch a.Category[i] {
			case Activation:
				open[a.Stack[i]] = n + 1
			case Temporary: // of an operator that saves its output and frees a workspace, only that is left
			default:
				open[a.Stack[i]] = n - 1
			}
		}
	}
	for i := first; int(i) < a.Len(); i++ {
		if a.Category[i] == Unknown && open[a.Stack[i]] > 0 {
			a.Category[i], a.Inferred[i] = Activation, true
		}
	}
}

// inChunks splits n allocations among as many goroutines as there are processors, in stretches long enough to
// be worth a goroutine.
func inChunks(n int, f func(from, to AllocID)) {
	const least = 1 << 15
	step := max(least, (n+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for from := 0; from < n; from += step {
		wg.Go(func() { f(AllocID(from), AllocID(min(from+step, n))) })
	}
	wg.Wait()
}

// infer gives the allocations [from, to) the category of the first rule that applies, except where the
// category is recorded.
func (c *categoriser) infer(from, to AllocID, recorded []bool) {
	a := &c.d.Allocs
	f := &blockFacts{} // one for all: the rules are called through pointers, so each would be an allocation
	for i := from; i < to; i++ {
		if recorded != nil && recorded[i] {
			continue
		}
		*f = c.facts(i)
		for r := range categoryRules {
			if rule := &categoryRules[r]; rule.applies(f) {
				a.Category[i] = rule.category
				a.Inferred[i] = rule.category != Unknown
				break
			}
		}
	}
}

// recordedCategories sets the categories that the trace records, and returns which allocations have one;
// nil if none has.
func recordedCategories(d *Device) []bool {
	tr, a := d.tl.Trace, &d.Allocs
	if tr.Events.Detail == nil {
		return nil
	}
	of := make([]Category, len(tr.Details))
	named := make([]bool, len(tr.Details))
	some := false
	for i := range tr.Details {
		if tr.Details[i].Category != 0 {
			of[i], named[i] = ParseCategory(tr.Text(tr.Details[i].Category))
			some = some || named[i]
		}
	}
	if !some {
		return nil
	}
	got := make([]bool, a.Len())
	for m, id := range d.allocOf {
		if id == NoAlloc {
			continue
		}
		if det := tr.Events.Detail[d.first+m]; named[det] && !got[id] {
			a.Category[id], got[id] = of[det], true
		}
	}
	return got
}

// mostlyPython reports whether so many allocations have Python frames that a missing frame means something.
func mostlyPython(a *Allocs, kinds *frames.Kinds) bool {
	n := 0
	for _, s := range a.Stack {
		if kinds.Of(s)&frames.KindPython != 0 {
			n++
		}
	}
	return n > 0 && 4*n >= a.Len()
}

func anyKind(stacks []frames.Kind, k frames.Kind) bool {
	for _, s := range stacks {
		if s&k != 0 {
			return true
		}
	}
	return false
}

// categoriser walks the allocations in their order, with one position in each list of phases.
type categoriser struct {
	d                  *Device
	kinds              *frames.Kinds
	track              *phaseTrack
	pythonic, lifeless bool

	change int                            // changes up to the current allocation's start
	next   [traces.PhaseOptimizer + 1]int // first start after it
}

// facts returns the facts about allocation i for the rules; i grows from call to call.
func (c *categoriser) facts(i AllocID) blockFacts {
	a := &c.d.Allocs
	start, end := a.Start[i], a.Requested[i]
	for c.change < len(c.track.changes) && c.track.changes[c.change].at <= start {
		c.change++
	}
	f := blockFacts{kind: c.kinds.Of(a.Stack[i])}
	f.phase = frames.PhaseOf(f.kind)
	f.alone = a.Stack[i] == traces.NoStack && c.pythonic && start != Start
	if f.phase == traces.PhaseUnknown && start != Start && c.change > 0 &&
		(f.alone || f.has(frames.KindPython)) {
		f.phase = c.track.changes[c.change-1].phase
		if f.phase == traces.PhaseOptimizer { // only its own frames show an optimizer's block
			f.phase = traces.PhaseUnknown
		}
	}
	f.beforeTraining = c.change == 0
	f.trains = len(c.track.starts[traces.PhaseBackward]) > 0
	if c.lifeless {
		f.seesForward, f.seesBackward, f.outlivesPhase = true, true, true
		return f
	}
	f.seesForward = c.sees(traces.PhaseForward, start, end)
	f.seesBackward = c.sees(traces.PhaseBackward, start, end)
	f.outlivesPhase = end == Never || c.change < len(c.track.changes) && c.track.changes[c.change].at < end
	return f
}

// sees reports whether a phase begins after start and before end.
func (c *categoriser) sees(p traces.Phase, start, end Moment) bool {
	list := c.track.starts[p]
	for c.next[p] < len(list) && list[c.next[p]] <= start {
		c.next[p]++
	}
	return c.next[p] < len(list) && list[c.next[p]] < end
}
