package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/managers/pack/packtest"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Question: what does more search buy, and how good is a plan that is needed at once?
//
// Method: the same problem and budget again and again, each time with more work, from a hundredth of what
// joint does by default to ten times that. Quality is the step time over the highest bound that joint proved
// in any of these runs, so all managers are measured against the same figure. One plan at a time, so that the
// process's processor time is the manager's.
//
// Complexity: managers x amounts of work x problems plans. Rejected: stopping one long search by the clock
// and reading off its best so far, which would make the page depend on the machine.

// anytimeShare is the budget as a share of the baseline's footprint: low enough that planning is hard.
const anytimeShare = 0.40

// efforts are the managers that search, each with its amounts of work in its own unit.
var efforts = []struct {
	manager, unit string
	work          []int64
}{
	{jointName, "counted steps", []int64{100_000, 1_000_000, 10_000_000, 100_000_000}},
	{"home", "plans simulated", []int64{30, 120, 600, 2400}},
	{"capuchin", "rounds of feedback", []int64{1, 8, 100}},
	{"checkmate-lp", "solver's units", []int64{2_000, 20_000, 200_000}},
	{"checkmate", "solver's units", []int64{20_000, 200_000}},
}

// anytime shows plans after more and more work.
func (b *bench) anytime(ctx context.Context, p *page) error {
	p.para("The same problem again and again, with more and more work. *Over the bound* is the step time "+
		"over the highest bound that joint proved in any of these runs. Budgets are %.0f %% of the "+
		"baseline, the footprint of PyTorch's caching allocator. In a terminal, work is limited by "+
		"`--limit` or ctrl-c instead, and the best plan so far counts.", 100*anytimeShare)
	v100, err := preset("V100-SXM2-16GB")
	if err != nil {
		return err
	}
	for _, of := range []struct {
		net   string
		batch int
	}{{"MobileNet", 128}, {"ResNet-50", 64}} {
		problem, err := lean(of.net, of.batch, v100)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%s (%d)", of.net, of.batch)
		if err := b.planLonger(ctx, p, name, problem); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return b.packLonger(ctx, p)
}

// attempt is a plan made with a given amount of work.
type attempt struct {
	*figure
	unit string
	work int64
	took time.Duration
}

// planLonger writes the table of one problem.
func (b *bench) planLonger(ctx context.Context, p *page, name string, problem *plan.Problem) error {
	base, err := b.measure(ctx, problem, "caching", 0, 0, false)
	if err != nil {
		return err
	}
	budget := int64(anytimeShare * float64(base.Measurement.Footprint))
	var tried []attempt
	var bound int64
	for _, e := range efforts {
		for _, work := range e.work {
			began := processorTime()
			f, err := b.measure(ctx, problem, e.manager, budget, work, false)
			if err != nil {
				return err
			}
			tried = append(tried, attempt{f, e.unit, work, processorTime() - began})
			if f.plan != nil {
				bound = max(bound, f.plan.StepBound)
			}
		}
	}
	var rows [][]string
	for _, t := range tried {
		over := "no plan within the budget"
		if t.fits && bound > 0 {
			over = fmt.Sprintf("%.2f %%", 100*(float64(t.step())/float64(bound)-1))
		}
		row := []string{t.manager, fmt.Sprintf("%s: %d", t.unit, t.work), t.cell(), over}
		rows = append(rows, b.timed(row, rounded(t.took)))
	}
	p.heading(3, "Plans for %s", name)
	p.para("Within %s. %d ops, %d buffers, memory-optimal algorithms, %s.", gib(budget), len(problem.Ops),
		len(problem.Buffers), problem.Hardware.Name)
	p.table(b.timed([]string{"manager", "work", "overhead", "over the bound"}, processorTimeHead), rows)
	return nil
}

// packLonger writes the table of packings after more and more work.
func (b *bench) packLonger(ctx context.Context, p *page) error {
	p.heading(3, "Packings")
	p.para("`exact` on 10,000 pieces of a rectangle without any slack, as in the section on packing.")
	var rows [][]string
	for _, c := range []packtest.Cuts{{Pieces: 10_000, Width: 1 << 20, Height: 1 << 30, Seed: seed},
		{Pieces: 10_000, Width: 10_000, Height: 10_000, Even: true, Seed: seed}} {
		problem := c.Problem()
		for _, work := range []int64{100_000, 1_000_000, 10_000_000} {
			began := processorTime()
			res, err := pack.Exact(ctx, problem, pack.Options{Seed: seed, Work: work})
			if err != nil {
				return err
			}
			took := processorTime() - began
			if err := pack.Validate(problem, res.Offsets); err != nil {
				return err
			}
			rows = append(rows, b.timed([]string{fmt.Sprintf("%d x %d", c.Width, c.Height), fmt.Sprint(work),
				fmt.Sprintf("%.4f", float64(res.Top)/float64(c.Height)), res.Status.String()},
				rounded(took)))
		}
	}
	p.table(b.timed([]string{"time x bytes", "steps at most", "footprint over the bound", "exact is"},
		processorTimeHead), rows)
	return nil
}
