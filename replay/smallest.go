package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

const (
	// nearEnough ends the search where the smallest budget known to fit is this share above one that is not.
	nearEnough = 0.01
	// mostProbes is how many budgets are tried.
	mostProbes = 8
)

// SmallestBudget looks for the smallest budget in which a plan of one of the managers fits, after a
// comparison in which none did: made, nil if Compare refused the budget. It tries budgets between what must
// reside and what a plan needs, as long as within allows, and finally plans for the budget that it returns,
// so its result is a plan that was made for this budget and fits. It returns nil if it found none in time.
func SmallestBudget(ctx context.Context, p *plan.Problem, managers []plan.Manager, opt Options,
	made *Comparison, within time.Duration) (*Smallest, error) {
	opt.Devices = nil
	limited, stop := context.WithTimeout(ctx, within)
	defer stop()
	var seen []*Comparison
	var plans Plans
	opt.Known = plans.Known(p)
	if made != nil {
		seen = append(seen, made)
		plans.Add(p, made.Results)
	}
	search := func(of func(*Result) bool) (*Smallest, error) {
		s := smallestSearch{p: p, opt: opt, list: managers, of: of, extra: p.Outside + opt.Margin,
			low: lowest(p), seen: &seen, plans: &plans}
		return s.run(ctx, limited, made)
	}
	s, err := search(func(*Result) bool { return true })
	if err == nil && s != nil && !s.runs() {
		s.Runnable, err = search((*Result).runnable)
	}
	return s, err
}

// lowest returns the bytes below which no plan can go. Where the recording does not say when buffers are
// used, none can leave, and all that are alive at the peak must be in memory.
func lowest(p *plan.Problem) int64 {
	least := plan.LeastResident(p)
	if p.Kind < traces.Accesses {
		peak, _ := p.PeakLive()
		least = max(least, peak)
	}
	return least
}

// runs reports whether PyTorch can run the plan today.
func (s *Smallest) runs() bool { return s.Result.runnable() || len(s.Result.Plan.Absences) == 0 }

// smallestSearch narrows the budgets for buffers down to between low, which is not known to fit, and high,
// the footprint of a plan; high is 0 before there is one.
type smallestSearch struct {
	p         *plan.Problem
	opt       Options
	list      []plan.Manager
	of        func(*Result) bool // which results count
	extra     int64              // the part of a device's budget that is not for buffers
	low, high int64
	seen      *[]*Comparison // all that were made, also of an earlier search
	plans     *Plans         // of all of these
}

// run narrows the budgets down until limited ends, and then plans for the smallest of them.
func (s *smallestSearch) run(ctx, limited context.Context, made *Comparison) (*Smallest, error) {
	least := s.low
	if made != nil {
		s.low = max(s.low, made.Net)
	}
	for _, c := range *s.seen {
		s.take(c)
	}
	if err := s.narrow(limited); ctx.Err() != nil {
		return nil, ctx.Err()
	} else if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	for try := 0; s.high > 0 && try < 3; try++ {
		budget, text := roundBudget(s.high + s.extra)
		c, err := s.compare(ctx, budget-s.extra)
		if err != nil {
			return nil, err
		}
		if best, ok := c.Answer(); ok && s.of(&best) {
			return &Smallest{Budget: budget, Text: text, Result: best, Least: s.high <= least}, nil
		}
		s.high += s.high / 50
	}
	return nil, nil
}

// narrow tries what must reside and no budget at all until there is a plan, and then budgets between.
func (s *smallestSearch) narrow(ctx context.Context) error {
	for probe := range mostProbes {
		net := s.low + (s.high-s.low)/2
		switch {
		case probe == 0 && s.high == 0:
			net = s.low
		case s.high == 0:
			net = 0
		case float64(s.high-s.low) <= nearEnough*float64(s.high):
			return nil
		}
		c, err := s.compare(ctx, net)
		if err != nil {
			return err
		}
		if s.take(c); net > 0 && (s.high == 0 || s.high > net) {
			s.low = net
		}
	}
	return nil
}

// compare plans with a budget for buffers, 0 for none.
func (s *smallestSearch) compare(ctx context.Context, net int64) (*Comparison, error) {
	opt := s.opt
	opt.Budget = 0
	if net > 0 {
		opt.Budget = net + s.extra
	}
	c, err := Compare(ctx, s.p, s.list, opt)
	if err == nil {
		*s.seen = append(*s.seen, c)
		s.plans.Add(s.p, c.Results)
	}
	if errors.Is(err, ErrTooSmall) {
		return &Comparison{Problem: s.p, Budget: opt.Budget, Net: net}, nil
	}
	return c, err
}

// take lowers high to the smallest footprint of a comparison, and from then on plans only with its manager.
func (s *smallestSearch) take(c *Comparison) {
	best := c.least(s.of)
	if best == nil || s.high > 0 && best.Measurement.Footprint >= s.high {
		return
	}
	s.high = best.Measurement.Footprint
	for _, m := range s.list {
		if m.Info().Name == best.Info.Name {
			s.list = []plan.Manager{m}
			return
		}
	}
}

// roundBudget rounds a size up to one that is easy to type, at most 1 % larger, and returns it with its text.
func roundBudget(n int64) (int64, string) {
	for _, x := range []struct {
		unit   int64
		name   string
		digits int
	}{{1 << 30, "GiB", 1}, {1 << 20, "MiB", 0}, {1 << 20, "MiB", 2}, {1 << 10, "KiB", 0}} {
		scale := int64(1)
		for range x.digits {
			scale *= 10
		}
		tenths := (n*scale + x.unit - 1) / x.unit
		text := fmt.Sprintf("%.*f%s", x.digits, float64(tenths)/float64(scale), x.name)
		size, err := timeline.ParseBytes(text)
		if err == nil && size >= n && float64(size-n) <= nearEnough*float64(n) {
			return size, text
		}
	}
	return n, fmt.Sprintf("%dB", n)
}

// Sentence says which budget fits, with which manager and at what cost, with sizes in units u.
func (s *Smallest) Sentence(c *Comparison, u timeline.Units) string {
	smallest := "The smallest budget that was found to fit"
	if s.Least {
		smallest = "The smallest budget that fits"
	}
	text := smallest + " is " + s.figures(c, u)
	if s.runs() {
		return text + "."
	}
	text += "; PyTorch cannot run this plan today."
	if r := s.Runnable; r != nil {
		text += " The smallest for a plan that it can run is " + r.figures(c, u) + "."
	}
	return text
}

// Commands returns the command lines that were set, that of the smallest budget first.
func (s *Smallest) Commands() []string {
	var list []string
	for x := s; x != nil; x = x.Runnable {
		if x.Command != "" {
			list = append(list, x.Command)
		}
	}
	return list
}

// figures describes a budget, and what the plan for it needs, if that is not the budget, and costs.
func (s *Smallest) figures(c *Comparison, u timeline.Units) string {
	budget, figures := u.Bytes(s.Budget), prose{c, u}.figures(&s.Result)
	if figures == budget {
		return fmt.Sprintf("%s, with %s", budget, s.Result.Info.Name)
	}
	figures = strings.TrimPrefix(figures, budget+", ")
	return fmt.Sprintf("%s, with %s: %s", budget, s.Result.Info.Name, figures)
}
