package timelineview

import (
	"slices"
	"strconv"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/chart"
)

// The strip below the chart names the parts of the steps if they say more than the phases do: which
// micro-batch a forward or a backward belongs to, and which forwards evaluate.

// strip returns the parts of a recording's steps for its chart; nil if its phases say as much. A backward
// lasts as long as the phase that it begins in: the engine's threads have no Python frames to show it.
func strip(list []steps.Part, phases []steps.PhaseSpan, its []steps.Iteration) []chart.Stretch {
	evals := evaluations(list)
	micro := microBatches(list, its, evals)
	if !slices.Contains(evals, true) && slices.Max(append(micro, 0)) == 0 {
		return nil
	}
	out := make([]chart.Stretch, len(list))
	names := stripNames{}
	for i := range list {
		p := &out[i]
		p.First, p.End = list[i].First, list[i].End
		switch list[i].Phase {
		case traces.PhaseForward:
			p.Line = '╌'
			if evals[i] {
				p.Line, p.Stands = '┄', true
			}
		case traces.PhaseBackward:
			p.Line = '─'
			for len(phases) > 0 && phases[0].Last <= p.First {
				phases = phases[1:]
			}
			if len(phases) > 0 && phases[0].First <= p.First {
				p.End = max(p.End, phases[0].Last)
			}
			if i+1 < len(list) {
				p.End = min(p.End, list[i+1].First)
			}
		case traces.PhaseOptimizer:
			p.Line = '━'
		}
		p.Names = names.of(list[i].Phase, micro[i], evals[i])
	}
	return out
}

// stripNames are the names of parts, which thousands of parts share.
type stripNames map[stripName][]string

type stripName struct {
	phase traces.Phase
	micro int // the number of the micro-batch, 0 for none
	eval  bool
}

// of returns the names of a part, longest first. They begin with ~, because parts are inferred from stacks.
func (n stripNames) of(phase traces.Phase, micro int, eval bool) []string {
	key := stripName{phase, micro, eval}
	if names, ok := n[key]; ok {
		return names
	}
	number := ""
	if micro > 0 {
		number = " " + strconv.Itoa(micro)
	}
	var names []string
	switch {
	case phase == traces.PhaseForward && eval:
		names = []string{"~evaluation", "~eval"}
	case phase == traces.PhaseForward && micro > 0:
		names = []string{"~micro-batch" + number + ", forward", "~forward" + number, "~fwd" + number}
	case phase == traces.PhaseForward:
		names = []string{"~forward", "~fwd"}
	case phase == traces.PhaseBackward:
		names = []string{"~backward" + number, "~bwd" + number}
	case phase == traces.PhaseOptimizer:
		names = []string{"~optimizer", "~opt"}
	}
	n[key] = names
	return names
}

// evaluations says which parts are forwards without a backward: none frees what they leave, and none follows.
// A forward whose result still exists when the recording ends may yet have one.
func evaluations(list []steps.Part) []bool {
	out := make([]bool, len(list))
	for i := range list {
		p := &list[i]
		followed := i+1 == len(list) || list[i+1].Phase == traces.PhaseBackward
		switch {
		case p.Phase != traces.PhaseForward || followed:
		case p.Frees >= 0:
			out[i] = list[p.Frees].Phase != traces.PhaseBackward
		default:
			out[i] = p.Kept == 0
		}
	}
	return out
}

// microBatches numbers the pairs of forward and backward in each step that has several, from 1; all other
// parts get 0. evals are the parts that evaluate. A backward belongs to the forward that it frees, else to
// the one before it. A step ends with its optimizer, or where the next iteration begins: an optimizer that
// allocates nothing is not a part.
func microBatches(list []steps.Part, its []steps.Iteration, evals []bool) []int {
	out := make([]int, len(list))
	freed := make([]int, len(list)) // by backward, the last forward that it frees, from 1; 0 for none
	for i := range list {
		if p := &list[i]; p.Phase == traces.PhaseForward && p.Frees >= 0 {
			freed[p.Frees] = i + 1
		}
	}
	from, n, backwards := 0, 0, 0
	end := func(to int) {
		if n < 2 || backwards < 2 {
			clear(out[from:to])
		}
		from, n, backwards = to, 0, 0
	}
	before := 0 // the number of the forward before
	for i := range list {
		p := &list[i]
		for len(its) > 0 && its[0].First <= p.First {
			its = its[1:]
			end(i)
		}
		switch p.Phase {
		case traces.PhaseForward:
			if !evals[i] {
				n++
				out[i], before = n, n
			}
		case traces.PhaseBackward:
			backwards++
			out[i] = before
			if f := freed[i]; f > 0 && out[f-1] > 0 {
				out[i] = out[f-1]
			}
		case traces.PhaseOptimizer:
			end(i)
		}
	}
	end(len(list))
	return out
}

// strips keeps the strip of the last device.
type strips struct {
	of   *timeline.Device
	list []chart.Stretch
}

// parts returns the strip of a device, nil before its steps are known.
func (v *strips) parts(d *timeline.Device, analysed bool) []chart.Stretch {
	if !analysed {
		return nil
	}
	if v.of != d {
		v.of, v.list = d, strip(steps.Parts(d), steps.Phases(d), steps.Of(d).List)
	}
	return v.list
}
