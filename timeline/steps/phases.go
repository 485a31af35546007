package steps

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
)

// Phases: forward, backward and optimizer stretches. The source's marks are used as they are (ranges, else
// ops that carry a phase). Everything else is inferred from the stacks of allocations: inside the optimizer's
// step, inside the autograd engine, inside a module. Python-only stacks are empty on the engine's threads, so
// in a trace whose modules have stacks an allocation without one counts as backward. Allocations without a
// hint (the loss of a training loop, clipping of gradients) join the phase before them if they lie between
// forward and backward or between backward and the optimizer. Single strays do not cut a phase in two.

// strays is the number of allocations up to which a run inside another phase does not count.
const strays = 2

// Phases returns the forward, backward and optimizer stretches in order of time, without overlaps; Inferred
// marks those found from stacks. It is computed once; callers must not modify the result.
func Phases(d *timeline.Device) []PhaseSpan { return phases.Of(d) }

var phases = timeline.NewMemo(findPhases)

// PhaseAt returns the phase at a moment, and whether it was inferred; PhaseUnknown outside all phases.
func PhaseAt(d *timeline.Device, m timeline.Moment) (p traces.Phase, inferred bool) {
	spans := Phases(d)
	i, found := slices.BinarySearchFunc(spans, m,
		func(s PhaseSpan, m timeline.Moment) int { return cmp.Compare(s.First, m) })
	if !found {
		i--
	}
	if i < 0 || m >= spans[i].Last {
		return traces.PhaseUnknown, false
	}
	return spans[i].Phase, spans[i].Inferred
}

func findPhases(d *timeline.Device) []PhaseSpan {
	if d.Len() == 0 || d.Info.Kind == traces.DeviceArena {
		return nil
	}
	exact := markedPhases(d)
	if len(exact) == 0 {
		exact = opPhases(d)
	}
	for _, s := range exact {
		if s.Phase == traces.PhaseForward || s.Phase == traces.PhaseBackward {
			return exact
		}
	}
	return overlay(stackPhases(d), exact)
}

// span returns a phase over the events of a stretch of time.
func span(d *timeline.Device, p traces.Phase, start, end int64) PhaseSpan {
	return PhaseSpan{Phase: p, Start: start, End: end, First: d.MomentAt(start-1) + 1,
		Last: d.MomentAt(end-1) + 1}
}

// markedPhases returns the ranges of phase marks, and of PyTorch's own annotation of the optimizer.
func markedPhases(d *timeline.Device) []PhaseSpan {
	var out []PhaseSpan
	for _, m := range marks(d) {
		p := m.Phase
		if m.Kind != traces.MarkPhase {
			p = traces.PhaseUnknown
			if strings.HasPrefix(d.Timeline().Trace.Text(m.Name), "Optimizer.step#") {
				p = traces.PhaseOptimizer
			}
		}
		if p == traces.PhaseUnknown || m.Start == traces.NoTime || m.End == traces.NoTime {
			continue
		}
		if n := len(out); n > 0 && m.Start < out[n-1].End {
			continue // nested
		}
		out = append(out, span(d, p, m.Start, m.End))
	}
	return out
}

// opPhases returns the stretches of consecutive ops of one phase; ops without a phase do not end one.
func opPhases(d *timeline.Device) []PhaseSpan {
	var out []PhaseSpan
	for _, op := range d.Timeline().Trace.Ops {
		if op.Phase == traces.PhaseUnknown {
			continue
		}
		end := op.Start + max(op.Duration, 1)
		if n := len(out); n > 0 && out[n-1].Phase == op.Phase {
			out[n-1].End = max(out[n-1].End, end)
			continue
		}
		if n := len(out); n > 0 {
			out[n-1].End = min(out[n-1].End, op.Start)
		}
		out = append(out, PhaseSpan{Phase: op.Phase, Start: op.Start, End: end})
	}
	for i, s := range out {
		out[i] = span(d, s.Phase, s.Start, s.End)
	}
	return out
}

// phaseRun is a run of allocations of one phase.
type phaseRun struct {
	phase traces.Phase
	first timeline.AllocID
	count int
}

func stackPhases(d *timeline.Device) []PhaseSpan {
	kinds := d.Timeline().Kinds()
	modules := slices.ContainsFunc(kinds.Stacks, func(k frames.Kind) bool {
		return k.Has(frames.KindModuleCall)
	})
	var runs []phaseRun
	for a := d.Begun(timeline.Start); a < timeline.AllocID(d.Allocs.Len()); a++ {
		st := d.Allocs.Stack[a]
		p := phaseOf(kinds.Of(st))
		if st == traces.NoStack && modules {
			p = traces.PhaseBackward
		}
		if n := len(runs); n > 0 && runs[n-1].phase == p {
			runs[n-1].count++
			continue
		}
		runs = append(runs, phaseRun{p, a, 1})
	}
	runs = smooth(runs)
	var out []PhaseSpan
	for i, r := range runs {
		if r.phase == traces.PhaseUnknown {
			continue
		}
		s := PhaseSpan{Phase: r.phase, First: d.Allocs.Start[r.first], Last: timeline.Moment(d.Len()),
			Inferred: true}
		_, s.End = d.Span()
		if i+1 < len(runs) {
			s.Last = d.Allocs.Start[runs[i+1].first]
			s.End = d.Time(s.Last)
		}
		s.Start = d.Time(s.First)
		out = append(out, s)
	}
	return out
}

func phaseOf(k frames.Kind) traces.Phase {
	switch {
	case k.Has(frames.KindStep):
		return traces.PhaseOptimizer
	case k.Has(frames.KindBackwardPass):
		return traces.PhaseBackward
	case k.Has(frames.KindModel | frames.KindFunctional | frames.KindLoss):
		return traces.PhaseForward
	}
	return traces.PhaseUnknown
}

// smooth removes strays and joins runs without a hint to the phase before them if the order of a step allows
// it.
func smooth(runs []phaseRun) []phaseRun {
	var out []phaseRun
	add := func(r phaseRun) {
		if n := len(out); n > 0 && out[n-1].phase == r.phase {
			out[n-1].count += r.count
			return
		}
		out = append(out, r)
	}
	for i, r := range runs {
		if i > 0 && i+1 < len(runs) && len(out) > 0 {
			before, after := out[len(out)-1].phase, runs[i+1].phase
			switch {
			case before == after && (r.count <= strays || r.phase == traces.PhaseUnknown &&
				before != traces.PhaseUnknown):
				r.phase = before
			case r.phase == traces.PhaseUnknown &&
				(before == traces.PhaseForward && after == traces.PhaseBackward ||
					before == traces.PhaseBackward && after == traces.PhaseOptimizer):
				r.phase = before
			}
		}
		add(r)
	}
	return out
}

// overlay cuts the exact spans out of the inferred ones, drops inferred spans of a phase that is known
// exactly, and returns both in order, without overlaps in time.
func overlay(inferred, exact []PhaseSpan) []PhaseSpan {
	out := slices.Clone(exact)
	var known [traces.PhaseOptimizer + 1]bool
	for _, e := range exact {
		known[e.Phase] = true
	}
	k := 0
	for _, s := range inferred {
		if known[s.Phase] {
			continue
		}
		for k < len(exact) && exact[k].Last <= s.First {
			k++
		}
		for _, e := range exact[k:] {
			if e.First >= s.Last {
				break
			}
			if s.First < e.First {
				left := s
				left.Last, left.End = e.First, e.Start
				out = append(out, left)
			}
			s.First, s.Start = e.Last, e.End
		}
		if s.First < s.Last {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b PhaseSpan) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Start, b.Start))
	})
	for i := 1; i < len(out); i++ {
		out[i-1].End = max(min(out[i-1].End, out[i].Start), out[i-1].Start)
	}
	return out
}

// PhaseSpan is a forward, backward or optimizer stretch.
type PhaseSpan struct {
	Phase      traces.Phase
	Start, End int64 // nanoseconds
	First      timeline.Moment
	Last       timeline.Moment // exclusive
	Inferred   bool
}
