package steps

import (
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
)

// Iterations from the optimizer: a training step ends where the optimizer has done its last work before the
// next forward. Ranges that the source marks are used as they are; otherwise allocations whose stack is
// inside an optimizer's step are runs of work, and two runs are two steps only if modules or the autograd
// engine allocated in between, so an optimizer that pauses for something else stays one step. If several
// optimizers take turns (a generator and a discriminator), the one called from the line of code with the most
// runs, the last of equals, ends the step.

// fromOptimizer returns the steps delimited by optimizer marks or stacks, nil if there are none.
func (f stepFinder) fromOptimizer() []stretch {
	ends := f.optimizerMarks()
	if len(ends) == 0 {
		ends = f.optimizerRuns()
	}
	if len(ends) == 0 {
		return nil
	}
	first := f.firstWork(ends[0])
	var out []stretch
	for _, end := range ends {
		if end <= first {
			continue
		}
		out = append(out, f.stretchOf(first, end, false))
		first = end
	}
	if f.worksAfter(first) {
		out = append(out, f.stretchOf(first, timeline.Moment(f.Len()), true))
	}
	return out
}

func (f stepFinder) stretchOf(first, end timeline.Moment, cut bool) stretch {
	s := stretch{first: first, end: end, cut: cut}
	s.start = f.Time(first)
	if int(end) < f.Len() {
		s.finish = f.Time(end)
	} else {
		_, s.finish = f.Span()
	}
	return s
}

// optimizerMarks returns the moments after the ranges of the optimizer that the source marks.
func (f stepFinder) optimizerMarks() (ends []timeline.Moment) {
	tr := f.Timeline().Trace
	count := map[traces.StringID]int{}
	last := traces.StringID(-1)
	isStep := func(m traces.Mark) bool {
		if m.Start == traces.NoTime || m.End == traces.NoTime {
			return false
		}
		return m.Kind == traces.MarkPhase && m.Phase == traces.PhaseOptimizer &&
			!strings.Contains(tr.Text(m.Name), "zero_grad") ||
			strings.HasPrefix(tr.Text(m.Name), "Optimizer.step#")
	}
	marks := marks(f.Device)
	for _, m := range marks {
		if isStep(m) {
			count[m.Name]++
			if last < 0 || count[m.Name] >= count[last] {
				last = m.Name
			}
		}
	}
	for _, m := range marks {
		if !isStep(m) || m.Name != last {
			continue
		}
		first, end := f.MomentAt(m.Start-1)+1, f.MomentAt(m.End-1)+1
		if end > 0 && int(first) < f.Len() {
			ends = append(ends, end)
		}
	}
	return ends
}

// optimizerRuns returns the moments after the last event of each run of allocations made inside an
// optimizer's step.
func (f stepFinder) optimizerRuns() []timeline.Moment {
	kinds := f.Timeline().Kinds()
	callers := map[traces.StackID]traces.FrameID{}
	type run struct {
		caller traces.FrameID
		last   timeline.AllocID
	}
	var runs []run
	count := map[traces.FrameID]int{}
	open := false
	for a := f.Begun(timeline.Start); a < timeline.AllocID(f.Allocs.Len()); a++ {
		st := f.Allocs.Stack[a]
		k := kinds.Of(st)
		switch {
		case k.Has(frames.KindStep):
			c, ok := callers[st]
			if !ok {
				c = f.optimizerCaller(st)
				callers[st] = c
			}
			if !open || runs[len(runs)-1].caller != c {
				runs = append(runs, run{caller: c})
				count[c]++
				open = true
			}
			runs[len(runs)-1].last = a
		case k.Has(frames.KindModel | frames.KindBackwardPass | frames.KindFunctional):
			open = false
		}
	}
	if len(runs) == 0 {
		return nil
	}
	best := runs[len(runs)-1].caller
	for _, r := range runs {
		if count[r.caller] > count[best] {
			best = r.caller
		}
	}
	var ends []timeline.Moment
	for _, r := range runs {
		if r.caller == best {
			ends = append(ends, f.nextAlloc(r.last))
		}
	}
	return ends
}

// nextAlloc returns the moment of the next allocation after a, the number of events if there is none: the
// frees in between belong to the step before.
func (f stepFinder) nextAlloc(a timeline.AllocID) timeline.Moment {
	if int(a)+1 < f.Allocs.Len() {
		return f.Allocs.Start[a+1]
	}
	return timeline.Moment(f.Len())
}

// optimizerCaller returns the frame that called the outermost optimizer frame of a stack: the line of the
// training loop.
func (f stepFinder) optimizerCaller(s traces.StackID) traces.FrameID {
	stack, kinds := f.Timeline().Trace.Stacks.At(s), f.Timeline().Kinds().Frames
	for i := len(stack) - 1; i >= 0; i-- {
		if kinds[stack[i]].Has(frames.KindStep) {
			for i++; i < len(stack); i++ {
				if kinds[stack[i]].Has(frames.KindPython) {
					return stack[i]
				}
			}
			return -1
		}
	}
	return -1
}

// firstWork returns where the first step begins: at the first allocation of a module or of the autograd
// engine before the moment limit, so that building the model does not count, or at the first event if stacks
// do not show it.
func (f stepFinder) firstWork(limit timeline.Moment) timeline.Moment {
	kinds := f.Timeline().Kinds()
	for a := f.Begun(timeline.Start); a < timeline.AllocID(f.Allocs.Len()) && f.Allocs.Start[a] < limit; a++ {
		if kinds.Of(f.Allocs.Stack[a]).Has(frames.KindModuleCall | frames.KindBackwardPass) {
			return f.Allocs.Start[a]
		}
	}
	return 0
}

// worksAfter reports whether modules or the autograd engine allocate at or after a moment: a step that the
// recording cuts off.
func (f stepFinder) worksAfter(m timeline.Moment) bool {
	kinds := f.Timeline().Kinds()
	for a := f.Begun(timeline.Start); a < timeline.AllocID(f.Allocs.Len()); a++ {
		if k := kinds.Of(f.Allocs.Stack[a]); f.Allocs.Start[a] >= m &&
			k.Has(frames.KindModuleCall|frames.KindBackwardPass) {
			return true
		}
	}
	return false
}
