package replay

import (
	"fmt"
	"slices"
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

// stepChange says how much longer steps are.
func stepChange(overhead float64) string {
	if s := Percent(overhead); s != Percent(0) {
		return "step " + s
	}
	return "same step time"
}

// Headline says in one line what the result's plan for a problem takes, what it costs and what it does with
// the memory at the peak. Sizes are in units u.
func (r *Result) Headline(p *plan.Problem, u timeline.Units) string {
	s := fmt.Sprintf("%s: %s", r.Name(), u.Bytes(r.Measurement.Footprint))
	if p.HasTimes {
		s += ", " + stepChange(r.Overhead)
	}
	if t := Treatment(p, r.Plan); t != "" {
		s += ". " + t
	}
	return s
}

// prose words what a comparison found, with sizes in units u.
type prose struct {
	*Comparison
	u timeline.Units
}

// Sentence names the fastest manager that fits or, without a budget, the one that needs the least memory
// without costing time, and says what it does with the memory at the peak.
func (c *Comparison) Sentence(u timeline.Units) string {
	p := prose{c, u}
	return p.answer() + p.stoppedClause()
}

// answer is the sentence about what there is.
func (p prose) answer() string {
	c, u := p.Comparison, p.u
	if c.Budget <= 0 {
		return p.leastMemory()
	}
	if c.fitsAsItIs() {
		return p.largestBatch() + fmt.Sprintf("A step fits in %s as it is: it holds %s at its peak.",
			u.Bytes(c.Budget), u.Bytes(c.Problem.Held()))
	}
	best, ok := c.Answer()
	if !ok {
		return p.largestBatch() + p.nothingFits()
	}
	ideal, _ := c.Best(c.firstTarget())
	var b strings.Builder
	b.WriteString(p.largestBatch())
	can := ""
	if best.runnable() && !ideal.runnable() {
		can = " that PyTorch can run today"
	}
	is, figures := "is", p.figures(&best)
	switch {
	case p.faster(&best) != nil:
		is = "measured is"
	case c.anyMeasured() && c.measured(&best) == nil:
		is, figures = "is predicted to be", u.Bytes(best.Measurement.Footprint)+p.stepClause(&best)
	}
	fmt.Fprintf(&b, "To fit in %s, the fastest%s %s %s: %s", u.Bytes(c.Budget), can, is, best.Info.Name,
		figures)
	b.WriteString(p.executorClause(&best, &ideal))
	if s := Treatment(c.Problem, best.Plan); s != "" {
		b.WriteString(" " + s)
	}
	b.WriteString(p.idealClause(&best, &ideal))
	b.WriteString(p.otherMeasured(&best))
	if base := c.today(); base != nil && base.Fits && base.Info.Name != best.Info.Name {
		fmt.Fprintf(&b, " PyTorch's caching allocator fits as it is, with %s.",
			u.Bytes(base.Measurement.Footprint))
	}
	return b.String()
}

// largestBatch says which manager fits the largest batch and how large today's allocator's is, "" if they
// were not searched for.
func (p prose) largestBatch() string {
	var best *Result
	for i := range p.Results {
		if r := &p.Results[i]; r.MaxBatchKnown && (best == nil || r.MaxBatch > best.MaxBatch) {
			best = r
		}
	}
	if best == nil {
		return ""
	}
	at := ""
	if p.BatchSequence > 0 {
		at = fmt.Sprintf(" at sequence length %d", p.BatchSequence)
	}
	if best.MaxBatch == 0 {
		return fmt.Sprintf("The largest batch in %s%s: none, not even a batch of 1 fits. ",
			p.u.Bytes(p.Budget), at)
	}
	s := fmt.Sprintf("The largest batch in %s%s: %s, with %s", p.u.Bytes(p.Budget), at, best.batch(),
		best.Info.Name)
	if base := p.today(); base != nil && base.MaxBatchKnown && base.Info.Name != best.Info.Name {
		with := base.batch()
		if base.MaxBatch == 0 {
			with = "none"
		}
		s += fmt.Sprintf("; %s with %s", with, base.Info.Name)
	}
	return s + ". "
}

// batch prints the largest batch, with a mark if it was inferred.
func (r *Result) batch() string {
	if r.MaxBatchInferred {
		return fmt.Sprintf("~%d", r.MaxBatch)
	}
	return fmt.Sprint(r.MaxBatch)
}

// executorClause ends the sentence about the best result with who can carry it out.
func (p prose) executorClause(best, ideal *Result) string {
	if len(best.Plan.Absences) == 0 || best.runnable() && !ideal.runnable() {
		return "."
	}
	if best.runnable() {
		return ", runnable in PyTorch today."
	}
	if least := p.least(func(r *Result) bool { return r.Executor == plan.TorchEager }); least != nil {
		return fmt.Sprintf(". None of the plans that PyTorch can run today fits: the smallest needs %s, "+
			"with %s.", p.u.Bytes(least.Measurement.Footprint), least.Info.Name)
	}
	return "."
}

// idealClause says what an executor that can move any buffer at any moment would need, "" if the best result
// is for such an executor or is as good.
func (p prose) idealClause(best, ideal *Result) string {
	x, y := &best.Measurement, &ideal.Measurement
	if len(best.Plan.Absences) == 0 || !best.runnable() || ideal.runnable() ||
		x.Footprint == y.Footprint && x.StepTime == y.StepTime {
		return ""
	}
	return fmt.Sprintf(" If any buffer could move at any moment, %s would need %s%s.", ideal.Info.Name,
		p.u.Bytes(y.Footprint), p.stepClause(ideal))
}

// leastAtACost names the plan that needs the least memory where every plan costs time.
func (p prose) leastAtACost() string {
	least := p.least(func(*Result) bool { return true })
	if least == nil {
		return "No manager can plan from this recording."
	}
	return fmt.Sprintf("Every plan costs time; %s needs the least memory: %s.", least.Info.Name,
		p.figures(least))
}

func (p prose) leastMemory() string {
	best, ok := p.Answer()
	if !ok {
		return p.leastAtACost()
	}
	live, _ := p.Problem.PeakLive()
	if best.isToday() {
		return p.asItIs(&best, live)
	}
	name, needs := best.Info.Name, p.u.Bytes(best.Measurement.Footprint)
	head, tail := "needs the least memory:", ""
	if setting := best.setting(); setting != "" {
		tail = fmt.Sprintf(" Set PYTORCH_CUDA_ALLOC_CONF=%s.", setting)
		if least := p.smallest(); least.Info.Name != name {
			head = "needs"
			if more := best.Measurement.Footprint - least.Measurement.Footprint; more > 0 {
				tail += fmt.Sprintf(" %s saves %s more.", least.Info.Name, p.u.Bytes(more))
			}
		}
	}
	s := fmt.Sprintf("At no cost in step time, %s %s %s", name, head, needs)
	if p.anyMeasured() {
		s = fmt.Sprintf("%s %s %s", name, head, p.figures(&best))
	}
	var clauses []string
	if best.Measurement.Footprint == live {
		clauses = append(clauses, "as much as is alive at the peak")
	}
	if base := p.today(); base != nil && base.Info.Name != best.Info.Name &&
		base.Measurement.Footprint > best.Measurement.Footprint {
		share := 100 * (1 - float64(best.Measurement.Footprint)/float64(base.Measurement.Footprint))
		than := "PyTorch's caching allocator"
		if best.setting() != "" {
			than = "PyTorch's defaults"
		}
		clause := fmt.Sprintf("%.1f %% below %s", share, than)
		if share < 0.05 {
			clause = "hardly less than " + than
		}
		if takes := p.u.Bytes(base.Measurement.Footprint); takes != needs {
			clause += " (" + takes + ")"
		}
		clauses = append(clauses, clause)
	}
	switch alive := p.u.Bytes(live); {
	case best.Measurement.Footprint > live && alive == needs:
		clauses = append(clauses, "barely more than is alive at the peak")
	case best.Measurement.Footprint > live:
		clauses = append(clauses, alive+" of it alive at the peak")
	}
	if len(clauses) > 0 {
		s += ", " + strings.Join(clauses, ", ")
	}
	return s + "." + tail + p.lower(&best, live)
}

// asItIs says that PyTorch's allocator does as well as anything that costs no time.
func (p prose) asItIs(best *Result, live int64) string {
	needs := p.u.Bytes(best.Measurement.Footprint)
	s := "PyTorch's defaults need " + needs
	if p.anyMeasured() {
		s = "PyTorch's defaults need " + p.figures(best)
	}
	switch alive := p.u.Bytes(live); {
	case best.Measurement.Footprint == live:
		s += ", as much as is alive at the peak"
	case alive == needs:
		s += ", barely more than is alive at the peak"
	default:
		s += ", " + alive + " of it alive at the peak"
	}
	s += ". At no cost in step time, no setting needs noticeably less"
	if least := p.smallest(); least.Measurement.Footprint < best.Measurement.Footprint {
		s += fmt.Sprintf("; %s would need %s less", least.Info.Name,
			p.u.Bytes(best.Measurement.Footprint-least.Measurement.Footprint))
	}
	return s + "." + p.lower(best, live)
}

// lower says how to get below the best result of a comparison without a budget.
func (p prose) lower(best *Result, live int64) string {
	switch {
	case p.Problem.PackingOnly() && best.Measurement.Footprint == live:
		return " No packing needs less."
	case p.Problem.PackingOnly():
		return " gmemtop pack --work N searches longer for a smaller one."
	case p.Problem.Kind < traces.Accesses:
		return " To swap or recompute, record whole steps: gmemtop describe -o describe.py."
	case best.Measurement.Footprint <= plan.LeastResident(p.Problem):
		return " Nothing can go lower."
	}
	return " Set a budget to see what going lower would cost."
}

func (p prose) nothingFits() string {
	least := p.least(func(*Result) bool { return true })
	if least == nil {
		return fmt.Sprintf("No manager made a plan for %s.", p.u.Bytes(p.Budget))
	}
	s := fmt.Sprintf("Nothing fits in %s: the smallest plan needs %s, with %s", p.u.Bytes(p.Budget),
		p.u.Bytes(least.Measurement.Footprint), least.Info.Name)
	switch {
	case p.Problem.PackingOnly():
		live, _ := p.Problem.PeakLive()
		s += fmt.Sprintf(". No packing needs less than %s", p.u.Bytes(live))
	case p.Problem.Kind < traces.Dataflow:
		s += ". Managers that swap or recompute need a recording of whole steps: gmemtop describe -o " +
			"describe.py"
	default:
		if there, where := Remains(p.Problem, least.Plan, p.u); where != "" {
			s += fmt.Sprintf(". At its peak, %s, it still holds %s", where, there)
			return s + "." + Advice(p.Problem, least.Plan, p.u)
		}
	}
	return s + "."
}

// Treatment says what a plan does with the memory at the problem's peak: the shares that it keeps, swaps and
// recomputes, of the bytes that can leave.
func Treatment(p *plan.Problem, pl *plan.Plan) string {
	if pl == nil || len(pl.Absences) == 0 {
		return ""
	}
	p, err := pl.Of(p)
	if err != nil {
		return ""
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
	parts := []string{"keeps " + share(max(total-gone, 0)) + " of what can move at the peak"}
	for _, x := range []struct {
		verb string
		how  plan.How
	}{{"swaps ", plan.Swap}, {"recomputes ", plan.Recompute}, {"discards ", plan.Discard}} {
		if n := by[x.how]; 200*n >= total { // leave out shares that round to zero
			parts = append(parts, x.verb+share(n))
		}
	}
	if len(parts) == 1 {
		return ""
	}
	list := strings.Join(parts[:len(parts)-1], ", ")
	if list != "" {
		list += " and "
	}
	return "It " + list + parts[len(parts)-1] + "."
}

// figures gives the answer's memory and time: as measured, followed by the prediction, or only as predicted.
func (p prose) figures(r *Result) string {
	m := p.measured(r)
	switch {
	case m != nil:
		r = p.prediction(m, r)
		s := fmt.Sprintf("%s measured %s (predicted %s)", p.u.Bytes(m.Measurement.Footprint), Place(m.Target),
			p.u.Bytes(Predicted(&m.Measurement, &r.Measurement)))
		if !m.Fits {
			s += ", which does not fit"
		}
		return s + ", " + timing(m) + fmt.Sprintf(" (predicted %s)", Percent(r.Overhead))
	case p.anyMeasured() && p.Problem.HasTimes:
		return fmt.Sprintf("%s, step %s, both only predicted", p.u.Bytes(r.Measurement.Footprint),
			Percent(r.Overhead))
	}
	return p.u.Bytes(r.Measurement.Footprint) + p.stepClause(r)
}

// stepClause says what a predicted plan does to the step time. For a step on a CPU it predicts copies as a
// GPU makes them, in parallel with the work.
func (p prose) stepClause(r *Result) string {
	if !p.Problem.HasTimes {
		return ""
	}
	where, source := "", p.Problem.Source
	if source != nil && source.Info.Kind == traces.DeviceCPU && !p.Problem.Hardware.NoEngines && r.swaps() {
		where = " on a GPU"
	}
	if r.Overhead > -0.00005 && r.Overhead < 0.00005 {
		return ", at no cost in step time" + where
	}
	return ", step " + Percent(r.Overhead) + where
}

// otherMeasured names the fastest measured result that fits, in a sentence that begins with a space, unless
// that is the answer. Then it names the one that is predicted to be faster, if any.
func (p prose) otherMeasured(answer *Result) string {
	m := p.fastestMeasured()
	if m == nil {
		return ""
	}
	if m.Info.Name != answer.Info.Name {
		return fmt.Sprintf(" Of what was measured, %s is the fastest: %s, %s.", m.Info.Name,
			p.u.Bytes(m.Measurement.Footprint), timing(m))
	}
	r := p.faster(answer)
	if r == nil {
		return ""
	}
	return fmt.Sprintf(" Predicted to be faster, but not measured: %s, with %s%s.", r.Info.Name,
		p.u.Bytes(r.Measurement.Footprint), p.stepClause(r))
}

// faster returns the result that was not measured and is predicted to be faster than the answer was measured
// to be; nil for none, or if the answer was not measured.
func (p prose) faster(answer *Result) *Result {
	m := p.measured(answer)
	if m == nil || m != p.fastestMeasured() {
		return nil
	}
	if r := p.predicted(true); r != nil && r.Info.Name != m.Info.Name && r.Overhead < m.Overhead {
		return r
	}
	return nil
}

// timing says how long a measured result's steps last, with their spread.
func timing(m *Result) string {
	x := &m.Measurement
	base := x.KeepAll()
	spread := x.StepP95 > 0 && m.Target != plan.LiveTarget // of a training the screen says it elsewhere
	s := stepChange(m.Overhead)
	switch {
	case base == 0 && spread:
		return fmt.Sprintf("step %s, 95 of 100 within %s", timeline.Duration(x.StepTime),
			timeline.Duration(x.StepP95))
	case base == 0:
		return "step " + timeline.Duration(x.StepTime)
	case spread:
		s += fmt.Sprintf(", 95 of 100 within %s", Percent(Off(x.StepP95, base)))
	}
	return s
}

// stoppedClause says which plans are the best so far, because planning was stopped early, "" if none is.
func (p prose) stoppedClause() string {
	var with []string
	without := map[string]bool{}
	for i := range p.Results {
		switch r := &p.Results[i]; {
		case !r.Stopped:
		case !r.Available:
			without[r.Info.Name] = true
		case !slices.Contains(with, r.Info.Name):
			with = append(with, r.Info.Name)
		}
	}
	var parts []string
	switch n := len(with); {
	case n == 1:
		parts = append(parts, with[0]+" gives its best plan so far")
	case n > 1:
		parts = append(parts, fmt.Sprintf("%s and %s give their best plans so far",
			strings.Join(with[:n-1], ", "), with[n-1]))
	}
	for _, name := range with {
		delete(without, name)
	}
	switch n := len(without); {
	case n == 1:
		parts = append(parts, "1 manager has no plan yet")
	case n > 1:
		parts = append(parts, timeline.Counted(n, "manager")+" have no plan yet")
	}
	if len(parts) == 0 {
		return ""
	}
	return " Stopped early: " + strings.Join(parts, ", ") + "."
}

// notes returns what is known of the problem, and of the program's own checkpoints.
func (c *Comparison) notes(u timeline.Units) []string {
	return slices.Concat(c.Problem.Notes, checkpointNotes(c.Problem, c.Budget, u))
}

// notes collects what a reader should know about a result.
func (r *Result) notes() []string {
	notes := []string{}
	reading := "Our reading: " + r.Info.Reading
	if r.Info.Reading != "" {
		notes = append(notes, reading)
	}
	if r.Plan != nil {
		for _, n := range r.Plan.Notes {
			if n != reading { // a plan that is read alone needs it
				notes = append(notes, n)
			}
		}
		b, t := r.Plan.StepBound, r.Measurement.StepTime
		if b > 0 && t > 0 && r.Target == (Simulated{}).Name() {
			notes = append(notes, fmt.Sprintf("no plan within this memory can be faster by more than %.1f %%",
				(1-float64(b)/float64(t))*100))
		}
	}
	return append(notes, r.Measurement.Notes...)
}
