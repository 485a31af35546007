package timelineview

import (
	"sort"
	"strconv"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/chart"
)

// The strip below the chart names the parts of the steps if they say more than the phases do: which
// micro-batch a forward or a backward belongs to, and which forwards evaluate.

// strip returns the parts of a recording's steps for its chart; nil if its phases say as much. A backward
// lasts as long as the phase that it begins in: the engine's threads have no Python frames to show it. Names
// begin with ~, because parts are inferred from stacks.
func strip(list []steps.Part, phases []steps.PhaseSpan, its []steps.Iteration) []chart.Stretch {
	micro, evals := microBatches(list, its), evaluations(list)
	more := false
	out := make([]chart.Stretch, len(list))
	for i := range list {
		p := &out[i]
		p.First, p.End = list[i].First, list[i].End
		number := ""
		if micro[i] > 0 {
			number, more = " "+strconv.Itoa(micro[i]), true
		}
		switch list[i].Phase {
		case traces.PhaseForward:
			p.Line, p.Names = '╌', []string{"forward" + number, "fwd" + number}
			if number != "" {
				p.Names = append([]string{"micro-batch" + number + ", forward"}, p.Names...)
			}
			if evals[i] {
				p.Line, p.Names, p.Stands, more = '┄', []string{"evaluation", "eval"}, true, true
			}
		case traces.PhaseBackward:
			p.Line, p.Names = '─', []string{"backward" + number, "bwd" + number}
			p.End = max(p.End, phaseEnd(phases, p.First))
			if i+1 < len(list) {
				p.End = min(p.End, list[i+1].First)
			}
		case traces.PhaseOptimizer:
			p.Line, p.Names = '━', []string{"optimizer", "opt"}
		}
		for k := range p.Names {
			p.Names[k] = "~" + p.Names[k]
		}
	}
	if !more {
		return nil
	}
	return out
}

// phaseEnd returns the end of the phase at a moment, or the moment itself if there is none.
func phaseEnd(phases []steps.PhaseSpan, m timeline.Moment) timeline.Moment {
	i := sort.Search(len(phases), func(i int) bool { return phases[i].Last > m })
	if i < len(phases) && phases[i].First <= m {
		return phases[i].Last
	}
	return m
}

// evaluations says which parts are forwards without a backward: none frees what they leave, and none follows.
// A forward whose result still exists when the recording ends may yet have one.
func evaluations(list []steps.Part) []bool {
	out := make([]bool, len(list))
	for i, p := range list {
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
// parts get 0. A backward belongs to the forward that it frees, else to the one before it. A step ends with
// its optimizer, or where the next iteration begins: an optimizer that allocates nothing is not a part.
func microBatches(list []steps.Part, its []steps.Iteration) []int {
	out, evals := make([]int, len(list)), evaluations(list)
	freed := map[int]int{} // by backward, the last forward that it frees
	for i, p := range list {
		if p.Phase == traces.PhaseForward && p.Frees >= 0 {
			freed[p.Frees] = i
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
	for i, p := range list {
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
			if f, ok := freed[i]; ok && out[f] > 0 {
				out[i] = out[f]
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
