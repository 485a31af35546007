package timeline

import (
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// Iterations from the optimizer: a training step ends where the optimizer has done its last work before the next forward. Ranges
// that the source marks are taken as they are; otherwise allocations whose stack is inside an optimizer's step are runs of work,
// and two runs are two steps only where modules or the autograd engine allocated in between, so that an optimizer that pauses for
// something else stays one step. Of several optimizers taking turns (a generator and a discriminator) the one called from the
// line of code with the most runs, the last of equals, ends the step.

// iterationsFromOptimizer returns the steps that optimizer marks or stacks bound, nil where there are none.
func (d *Device) iterationsFromOptimizer() []stretch {
	ends := d.optimizerMarks()
	if len(ends) == 0 {
		ends = d.optimizerRuns()
	}
	if len(ends) == 0 {
		return nil
	}
	first := d.firstWork(ends[0])
	var out []stretch
	for _, end := range ends {
		if end <= first {
			continue
		}
		out = append(out, d.stretchOf(first, end, false))
		first = end
	}
	if d.worksAfter(first) {
		out = append(out, d.stretchOf(first, Moment(d.n), true))
	}
	return out
}

func (d *Device) stretchOf(first, end Moment, cut bool) stretch {
	s := stretch{first: first, end: end, cut: cut}
	s.start = d.Time(first)
	if int(end) < d.n {
		s.finish = d.Time(end)
	} else {
		_, s.finish = d.Span()
	}
	return s
}

// optimizerMarks returns the moments after the ranges of the optimizer that the source marks.
func (d *Device) optimizerMarks() (ends []Moment) {
	tr := d.tl.Trace
	count := map[traces.StringID]int{}
	last := traces.StringID(-1)
	isStep := func(m traces.Mark) bool {
		if m.Start == traces.NoTime || m.End == traces.NoTime {
			return false
		}
		return m.Kind == traces.MarkPhase && m.Phase == traces.PhaseOptimizer && !strings.Contains(tr.Text(m.Name), "zero_grad") ||
			strings.HasPrefix(tr.Text(m.Name), "Optimizer.step#")
	}
	marks := d.marks()
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
		first, end := d.MomentAt(m.Start-1)+1, d.MomentAt(m.End-1)+1
		if end > 0 && int(first) < d.n && (len(ends) == 0 || end > ends[len(ends)-1]) {
			ends = append(ends, end)
		}
	}
	return ends
}

// optimizerRuns returns the moments after the last event of each run of allocations made inside an optimizer's step.
func (d *Device) optimizerRuns() []Moment {
	classes := d.classes()
	callers := map[traces.StackID]traces.FrameID{}
	type run struct {
		caller traces.FrameID
		last   AllocID
	}
	var runs []run
	count := map[traces.FrameID]int{}
	open := false
	for a := d.firstRecorded(); a < AllocID(d.Allocs.Len()); a++ {
		st := d.Allocs.Stack[a]
		t := classes.of(st)
		switch {
		case t.has(isOptimizer):
			c, ok := callers[st]
			if !ok {
				c = d.optimizerCaller(st)
				callers[st] = c
			}
			if !open || runs[len(runs)-1].caller != c {
				runs = append(runs, run{caller: c})
				count[c]++
				open = true
			}
			runs[len(runs)-1].last = a
		case t.has(isModule | isBackward | isForward):
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
	var ends []Moment
	for _, r := range runs {
		if r.caller == best {
			ends = append(ends, d.nextAlloc(r.last))
		}
	}
	return ends
}

// nextAlloc returns the moment of the next allocation after a, the number of events where there is none: the frees between belong
// to what came before.
func (d *Device) nextAlloc(a AllocID) Moment {
	if int(a)+1 < d.Allocs.Len() {
		return d.Allocs.Start[a+1]
	}
	return Moment(d.n)
}

// optimizerCaller returns the frame that called the outermost optimizer frame of a stack: the line of the training loop.
func (d *Device) optimizerCaller(s traces.StackID) traces.FrameID {
	tr := d.tl.Trace
	frames := tr.Stacks.At(s)
	for i := len(frames) - 1; i >= 0; i-- {
		fn, file, _ := tr.FrameText(frames[i])
		if frameTraits(fn, file).has(isOptimizer) {
			for i++; i < len(frames); i++ {
				if fn, file, _ := tr.FrameText(frames[i]); frameTraits(fn, file).has(isPython) {
					return frames[i]
				}
			}
			return -1
		}
	}
	return -1
}

// firstWork returns where the first step begins: at the first allocation of a module or of the autograd engine before the moment
// limit, so that building the model does not count; the first event where stacks do not tell.
func (d *Device) firstWork(limit Moment) Moment {
	classes := d.classes()
	for a := d.firstRecorded(); a < AllocID(d.Allocs.Len()) && d.Allocs.Start[a] < limit; a++ {
		if classes.of(d.Allocs.Stack[a]).has(isModule | isBackward) {
			return d.Allocs.Start[a]
		}
	}
	return 0
}

// worksAfter reports whether modules or the autograd engine allocate at or after a moment: a step that the recording cuts.
func (d *Device) worksAfter(m Moment) bool {
	classes := d.classes()
	for a := d.firstRecorded(); a < AllocID(d.Allocs.Len()); a++ {
		if d.Allocs.Start[a] >= m && classes.of(d.Allocs.Stack[a]).has(isModule|isBackward) {
			return true
		}
	}
	return false
}
