package replay

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Percent prints an overhead with its sign: "+3.1 %", "0 %".
func Percent(x float64) string {
	switch a := 100 * x; {
	case a > -0.005 && a < 0.005:
		return "0 %"
	case a > -0.0995 && a < 0.0995:
		return fmt.Sprintf("%+.2f %%", a)
	case a > -99.5 && a < 99.5:
		return fmt.Sprintf("%+.1f %%", a)
	default:
		return fmt.Sprintf("%+.0f %%", a)
	}
}

// Sentence says in plain words which manager is the fastest that fits, or, without a budget, which takes least memory without loss of time; and what it
// does with the memory at the peak.
func (c *Comparison) Sentence(u timeline.Units) string {
	if c.Budget <= 0 {
		return c.leastMemory(u)
	}
	best, ok := c.Fastest(plan.Ideal, c.firstTarget())
	if !ok {
		return c.nothingFits(u)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "To fit in %s, the fastest is %s: %s%s", u.Bytes(c.Budget), best.Info.Name, u.Bytes(best.Measurement.Footprint), c.stepClause(best.Overhead))
	if eager, ok := c.Fastest(plan.TorchEager, c.firstTarget()); ok && len(best.Plan.Absences) > 0 {
		if c.Problem.HasTimes {
			fmt.Fprintf(&b, " (runnable in PyTorch today: %s, %s)", Percent(eager.Overhead), eager.Info.Name)
		} else {
			fmt.Fprintf(&b, " (runnable in PyTorch today: %s)", eager.Info.Name)
		}
	}
	b.WriteString(".")
	if s := Treatment(c.Problem, best.Plan); s != "" {
		b.WriteString(" " + s)
	}
	return b.String()
}

func (c *Comparison) stepClause(overhead float64) string {
	if !c.Problem.HasTimes {
		return ""
	}
	if overhead > -0.00005 && overhead < 0.00005 {
		return ", at no cost in step time"
	}
	return ", step " + Percent(overhead)
}

func (c *Comparison) firstTarget() string {
	for i := range c.Results {
		return c.Results[i].Target
	}
	return "sim"
}

// free is the overhead up to which a plan counts as costing no time.
const free = 0.0005

func (c *Comparison) leastMemory(u timeline.Units) string {
	var best, base *Result
	for i := range c.Results {
		r := &c.Results[i]
		if !r.Available || r.Executor != plan.Ideal {
			continue
		}
		if r.Info.Name == "caching" && base == nil {
			base = r
		}
		if r.Overhead <= free && (best == nil || r.Measurement.Footprint < best.Measurement.Footprint) {
			best = r
		}
	}
	if best == nil {
		return "No manager serves this recording."
	}
	live, _ := c.Problem.PeakLive()
	s := fmt.Sprintf("Without loss of time the least memory is %s, by %s", u.Bytes(best.Measurement.Footprint), best.Info.Name)
	if base != nil && best != base && base.Measurement.Footprint > 0 {
		s += fmt.Sprintf(": %.1f %% below PyTorch's caching allocator (%s)", 100*(1-float64(best.Measurement.Footprint)/float64(base.Measurement.Footprint)), u.Bytes(base.Measurement.Footprint))
	}
	switch {
	case best.Measurement.Footprint == live:
		s += ", which is all that is alive at the peak"
	case best.Measurement.Footprint > live:
		s += fmt.Sprintf("; %s is alive at the peak", u.Bytes(live))
	}
	return s + ". Set a budget to see what less would cost."
}

func (c *Comparison) nothingFits(u timeline.Units) string {
	var least *Result
	for i := range c.Results {
		if r := &c.Results[i]; r.Available && (least == nil || r.Measurement.Footprint < least.Measurement.Footprint) {
			least = r
		}
	}
	if least == nil {
		return fmt.Sprintf("No manager made a plan for %s.", u.Bytes(c.Budget))
	}
	s := fmt.Sprintf("Nothing fits in %s: the least is %s, by %s", u.Bytes(c.Budget), u.Bytes(least.Measurement.Footprint), least.Info.Name)
	if c.Problem.Kind < traces.Dataflow {
		s += ". Swapping and recompute may need a richer recording: " + c.Problem.Kind.Missing()
	}
	return s + "."
}

// Treatment says what a plan does with what is alive at the problem's peak: the shares that it keeps, swaps and recomputes, of the bytes that can leave.
func Treatment(p *plan.Problem, pl *plan.Plan) string {
	if pl == nil || len(pl.Absences) == 0 {
		return ""
	}
	if pl.SectionBytes != 0 {
		var err error
		if p, err = p.Sectioned(pl.SectionBytes); err != nil {
			return ""
		}
	}
	_, at := p.PeakLive()
	var total int64
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Life != plan.Persistent && b.AliveAt(at) {
			total += p.Rounded(plan.BufferID(i))
		}
	}
	var by [3]int64
	for _, x := range pl.Absences {
		if x.Release <= at && at < x.Before {
			by[x.How] += p.Rounded(x.Buffer)
		}
	}
	gone := by[plan.Swap] + by[plan.Recompute] + by[plan.Discard]
	if total == 0 || gone == 0 {
		return ""
	}
	share := func(n int64) string { return fmt.Sprintf("%.0f %%", 100*float64(n)/float64(total)) }
	parts := []string{"keeps " + share(max(total-gone, 0))}
	if by[plan.Swap] > 0 {
		parts = append(parts, "swaps "+share(by[plan.Swap]))
	}
	if by[plan.Recompute] > 0 {
		parts = append(parts, "recomputes "+share(by[plan.Recompute]))
	}
	if by[plan.Discard] > 0 {
		parts = append(parts, "discards "+share(by[plan.Discard]))
	}
	list := strings.Join(parts[:len(parts)-1], ", ")
	if list != "" {
		list += " and "
	}
	return "It " + list + parts[len(parts)-1] + " of what is not persistent at the peak."
}
