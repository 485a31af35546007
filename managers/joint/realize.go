package joint

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// realize assembles, places and measures the current schedule. Places are packed by classes or, where it
// helps, by a search with bounded work. If the result fits the limit, addresses cost time, and no faster plan
// is known, realize also tries other packings and returns the best that fits.
func (v *view) realize(limit, work, incumbent int64) (*outcome, error) {
	pl, err := v.assemble(true)
	if err != nil {
		return nil, err
	}
	best, err := v.measured(pl, v.packing(pl, limit, work))
	estimate := perIteration(v.task.p, v.schedule.queues.time)
	if err != nil || !v.task.grid.probes || best.pl.Footprint > limit || estimate > incumbent {
		return best, err
	}
	return v.repack(best, limit, estimate)
}

// packing chooses how to look for places for a plan.
func (v *view) packing(pl *plan.Plan, limit, work int64) place.Options {
	opt := place.Options{Rule: place.Tight, Capacity: limit, Seed: v.task.request.Seed, Work: work}
	v.greedy = max(v.task.pack, work) < place.LeastSteps*int64(len(pl.Instances))
	switch live, _ := pl.PeakLive(); {
	case len(v.m.choices) == 0: // places are all there is to choose
		opt.Rule, opt.Work = place.Search, 0
	case v.off.packing:
		opt.Rule = place.BestFit
	case v.greedy, live > limit: // no search finds places
		opt.Rule = place.Classes
	}
	return opt
}

// repack looks for places that cost less time, down to the estimate, which assumes that addresses cost none.
// It tries other rules, rules that leave memory unused for a while before it is reused, and no discards.
func (v *view) repack(best *outcome, limit, estimate int64) (*outcome, error) {
	options := []place.Options{{Rule: place.BestFit}, {Rule: place.FirstFit}}
	for rest := len(best.pl.Steps) / 2; rest > 0; rest /= 2 {
		options = append(options, place.Options{Rule: place.BestFit, Rest: int32(rest)})
	}
	for _, opt := range options {
		for _, discards := range []bool{true, false} {
			if best.time <= estimate+estimate/v.task.params.noticeable {
				return best, nil
			}
			pl, err := v.assemble(discards)
			if err != nil {
				return nil, err
			}
			x, err := v.measured(pl, opt)
			if err != nil {
				return nil, err
			}
			if x.pl.Footprint <= limit && better(x, best) {
				best = x
			}
		}
	}
	return best, nil
}

// assemble makes a plan without places from the current schedule, with or without discards.
func (v *view) assemble(discards bool) (*plan.Plan, error) {
	d := v.schedule.decisions()
	if !discards {
		d.Absences = slices.DeleteFunc(d.Absences, func(x plan.Absence) bool { return x.How == plan.Discard })
	}
	pl, err := place.Assemble(v.p, d) // a schedule need not meet the host's limit
	if err != nil {
		return nil, err
	}
	pl.SectionBytes = v.section
	return pl, nil
}

// measured places and measures a plan.
func (v *view) measured(pl *plan.Plan, opt place.Options) (*outcome, error) {
	if _, err := place.Place(v.task.ctx, v.p, pl, opt); err != nil {
		return nil, err
	}
	v.schedule.steps += v.task.params.placing * int64(len(pl.Steps))
	x := &outcome{pl: pl, time: perIteration(v.task.p, v.schedule.queues.time)}
	if v.task.request.Evaluator != nil {
		me, err := v.task.request.Evaluator.Evaluate(v.task.ctx, v.task.p, pl)
		if err != nil {
			return nil, fmt.Errorf("measure: %w", err)
		}
		x.time = me.StepTime
	}
	budget := v.task.request.Budget
	if (budget == 0 || pl.Footprint <= budget) && v.found.keep(x, v.section) {
		x.at, x.of = &candidate{}, v.version
		v.schedule.take(x.at)
	}
	return x, nil
}

// polish improves a plan that fits by measuring, if the measured time is worse than its schedule promised.
// With several streams, reused memory makes streams wait for each other, which no schedule by positions can
// predict. Candidates whose schedule already loses are not placed.
func (v *view) polish(best *outcome, at *candidate, limit int64) (*outcome, error) {
	s := v.schedule
	promise := perIteration(v.task.p, at.time)
	if v.task.request.Evaluator == nil || !v.task.grid.probes || v.task.off.search ||
		best.time-promise <= promise/v.task.params.interference {
		return best, nil
	}
	w, ok := v.moves()
	if !ok {
		return best, nil
	}
	s.runAs(at)
	until := s.steps + v.task.rungWork/int64(v.task.versions)/v.task.params.polishing
	for s.steps < until && v.task.ctx.Err() == nil && best.time*int64(v.p.Iterations) > v.target {
		w.random()
		x := v.estimate()
		if x.over == 0 && perIteration(v.task.p, x.time) < best.time {
			pl, err := v.assemble(true)
			if err != nil {
				return nil, err
			}
			y, err := v.measured(pl, place.Options{Rule: place.BestFit})
			if err != nil {
				return nil, err
			}
			if y.pl.Footprint <= limit && better(y, best) {
				best = y
				continue
			}
		}
		w.undo()
	}
	return best, nil
}
