package swap

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/managers/milp"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// tvDNN's schedule as an integer linear program: our formulation (tvdnn.go says what of it is public).
//
// The plain form: x[s,k] = 1 where section s is in memory during kernel k; operands are in memory; the sizes of what is in memory
// during a kernel stay within the capacity; in[s,k] >= x[s,k] - x[s,k-1] are the sections fetched, likewise those that left; a
// kernel is held up by as much as the copies that go along with it take longer than it does; the sum of that is minimised. It has
// sections x kernels variables: over a million for a VGG-16 at batch 256 in sections of 2 MiB.
//
// What is solved: the same, with alike things counted together. Kernels are cut into windows at the positions at which intervals
// that matter begin and end (those that cross an op above the capacity), evenly thinned where there are too many. Sections whose
// interval spans the same windows are alike, since all have one size (smaller last ones make the class's size their mean); so are
// all copies of a window. A[c,w] is the number of sections of class c that are absent throughout window w, an integer. A section
// that leaves is copied during the window before, one that returns during the window at whose beginning its memory is taken; one
// that is still absent when the window begins that needs it is fetched then, and all of its copy is waited for.
//
//	minimise    sum of stall[w]  +  time of in on demand  +  little x time of all copies  +  much x excess[w]
//	such that   load[w] - sum over c of size[c] x A[c,w]  <=  capacity + excess[w]
//	            out[c,w] >= A[c,w] - A[c,w-1],  in[c,w] >= A[c,w-1] - A[c,w]
//	            stall[w] >= time of out[.,w+1] - time of window w,  stall[w] >= time of in[.,w] - time of window w
//
// where load[w] is the greatest load of the window's ops. With as many windows as ops and one section a class it is the plain form.
// Excess makes every model feasible, so that the best attempt is known where the capacity cannot be met. Windows are made fewer
// until at most mostIntegers variables are left.
//
// Its linear relaxation is solved first: counts are large and rounding one up only takes more out of memory, so that the relaxation
// rounded up is nearly as good as the integers can be. Where it is within the gap of its own bound, that is the answer; else the
// solver begins there, if the model is small. (Measured on a large one: with VGG-16 at 60 % the search took 14 s to come from 3.7 %
// of the bound to 2.8 %, and the plan was no faster.) The program says which sections
// are away; at which ops they leave and return is then settled by the clock (schedule.go), which came out better than the windows'
// own positions. The result is compared with the heuristic's by the evaluator, and the better one is the plan.
//
// Complexity: that of the solver, stopped at a gap, a number of nodes and counted work. Rejected: solving for whole buffers and
// cutting afterwards (it cannot know that half a buffer would do); keeping the windows' positions (a window is coarser than the ops
// at which memory runs short); a lower bound on step time from the program (for the same reason its value bounds nothing).

const (
	mostIntegers = 1500
	mostWindows  = 128
	// ilpGap is the relative gap at which the program counts as solved, ilpWork and ilpNodes what all its solves may take together.
	ilpGap   = 0.01
	ilpWork  = 40_000
	ilpNodes = 20_000
	// ilpSmall is the work of a relaxation beyond which the integers are not searched.
	ilpSmall = 1_000
	// ilpTime is a safety net: an answer that it cut short could not be repeated.
	ilpTime = 60 * time.Second
)

// class is sections whose idle interval spans the same windows.
type class struct {
	first, last int // windows, inclusive
	gaps        []plan.Gap
	bytes       int64
	count       int      // sections of the full size that it takes to hold them
	absent      milp.Var // of the first window; the others follow
	left, back  milp.Var // likewise: what left since the window before, what is back in the window behind
	size        float64  // of a section: the mean, in bytes
	out, in     float64  // durations of its copies, in milliseconds
}

// program is one integer program.
type program struct {
	*sections
	limit   int64
	bounds  []int // of windows: window w is ops [bounds[w], bounds[w+1])
	time    []int64
	high    []int64
	classes []class
	model   milp.Model
	stall   milp.Var
	excess  milp.Var
	unit    int64 // bytes of a section
}

// improve solves the integer program within the budget and returns its plan, or the heuristic's where that is better.
func (s *sections) improve(ctx context.Context, h *plan.Plan, r plan.Request) (*plan.Plan, error) {
	if r.Budget <= 0 || len(h.Absences) == 0 {
		return h, nil
	}
	if idle, err := s.holdsNothingUp(ctx, h, r); err != nil || idle {
		if idle {
			h.Note("the heuristic's plan holds nothing up, so that there was nothing for the integer program to gain")
		}
		return h, err
	}
	work := r.Work
	if work <= 0 {
		work = ilpWork
	}
	var note string
	var rounds int64
	pl, err := place.Within(ctx, s.p, r, place.Options{Work: placeWork}, func(limit int64) (plan.Decisions, error) {
		limit -= limit / 2000 * rounds * rounds // holes close slowly: each further round asks for a little more than they took
		rounds++
		share := (work + 1) / 2 // a tighter limit, asked for because of addresses, gets half of what is left
		c, n, used, err := s.solve(ctx, limit, max(share, 1))
		work -= min(used, share)
		if err == nil && note == "" {
			note = n
		}
		d := decisions(c)
		for i := range d.Absences {
			d.Absences[i].Why = "chosen by the integer program"
		}
		return d, err
	})
	if err != nil {
		if ctx.Err() != nil {
			h.Note("cancelled before the integer program was solved; this is the heuristic's plan")
			return h, nil
		}
		h.Note("the integer program failed (%v); this is the heuristic's plan", err)
		return h, nil
	}
	better, err := s.better(ctx, pl, h, r)
	if err != nil {
		return nil, err
	}
	pl.Work, h.Work = pl.Work+h.Work, pl.Work+h.Work
	if !better {
		pl = h
		note += "; the heuristic's plan is no worse and is taken"
	}
	pl.Note("%s", note)
	return pl, nil
}

// holdsNothingUp reports whether a plan is within the budget and its copies are known to cost no time.
func (s *sections) holdsNothingUp(ctx context.Context, h *plan.Plan, r plan.Request) (bool, error) {
	if r.Evaluator == nil || s.p.Streams > 1 || !s.p.HasTimes || h.Footprint > r.Budget || ctx.Err() != nil {
		return false, nil
	}
	m, err := s.measure(ctx, h, r)
	return m.Stall == 0, err
}

// measure evaluates a plan of the sections.
func (s *sections) measure(ctx context.Context, pl *plan.Plan, r plan.Request) (plan.Measurement, error) {
	signed := *pl // an evaluator may look at the signature
	signed.Manager = s.Info().Name
	m, err := r.Evaluator.Evaluate(ctx, s.p, &signed)
	if err != nil {
		return m, fmt.Errorf("evaluate: %w", err)
	}
	return m, nil
}

// better reports whether plan a is better than b: within the budget first, then by step time where there is an evaluator, then by
// bytes moved, then by footprint.
func (s *sections) better(ctx context.Context, a, b *plan.Plan, r plan.Request) (bool, error) {
	fits := func(x *plan.Plan) bool { return x.Footprint <= r.Budget }
	if fits(a) != fits(b) {
		return fits(a), nil
	}
	if !fits(a) {
		return a.Footprint < b.Footprint, nil
	}
	if r.Evaluator != nil && ctx.Err() == nil {
		var times [2]int64
		for i, x := range []*plan.Plan{a, b} {
			m, err := s.measure(ctx, x, r)
			if err != nil {
				return false, err
			}
			times[i] = m.StepTime
		}
		if times[0] != times[1] {
			return times[0] < times[1], nil
		}
	}
	outA, inA := a.Moved()
	outB, inB := b.Moved()
	return cmp.Or(cmp.Compare(outA+inA, outB+inB), cmp.Compare(a.Footprint, b.Footprint)) < 0, nil
}

// solve builds and solves the program for a limit and decodes its answer.
func (s *sections) solve(ctx context.Context, limit, work int64) (c []idle, note string, used int64, err error) {
	h, _, err := s.heuristic(ctx, limit)
	if err != nil {
		return nil, "", 0, err
	}
	m := s.program(limit)
	if len(m.classes) == 0 {
		return nil, "nothing above the budget can leave", 0, nil
	}
	m.build()
	ints := 0
	for i := range m.classes {
		ints += m.classes[i].last - m.classes[i].first + 1
	}
	start := m.point(h)
	lp, err := milp.Solve(ctx, &m.model, milp.Options{LPOnly: true, MaxWork: max(work*3/4, 1), TimeLimit: ilpTime})
	if lp.X != nil { // counts are large, so that the relaxation rounded up, which memory allows, is nearly as good
		if up := m.roundedUp(lp.X); m.model.Objective(up) < m.model.Objective(start) {
			start = up
		}
	} else if ctx.Err() != nil {
		return nil, "", lp.Work, err
	}
	used = lp.Work
	x, status, objective, bound := start, "not solved", m.model.Objective(start), lp.Bound
	switch near := objective-bound <= ilpGap*math.Abs(objective); {
	case near:
		status = "its relaxation rounded up is near enough"
	case lp.X != nil && lp.Work > ilpSmall:
		status = "its relaxation rounded up, which is all that its size allows"
	default:
		sol, err := milp.Solve(ctx, &m.model, milp.Options{Gap: ilpGap, MaxNodes: ilpNodes, MaxWork: max(work-lp.Work, 1), TimeLimit: ilpTime, Start: start})
		s.done += max(sol.Nodes, 1)
		used += sol.Work
		if sol.X == nil {
			if err == nil {
				err = fmt.Errorf("no solution: %s", sol.Status)
			}
			return nil, "", used, err
		}
		x, status, objective, bound = sol.X, sol.Status.String(), sol.Objective, max(sol.Bound, bound)
	}
	note = fmt.Sprintf("integer program over %d windows of %d ops with %d integers: %s, charged %.3f ms, at least %.3f ms",
		len(m.time), len(s.p.Ops), ints, status, objective, max(bound, 0))
	c, _ = s.stick(m.decode(x), limit)
	return c, note, used, nil
}

// roundedUp is the point of the relaxation x with its counts rounded up.
func (m *program) roundedUp(x []float64) []float64 {
	up := make([]float64, len(x))
	for k := range m.classes {
		c := &m.classes[k]
		for j := range milp.Var(c.last - c.first + 1) {
			up[c.absent+j] = min(math.Ceil(x[c.absent+j]-1e-6), float64(c.count))
		}
	}
	m.complete(up)
	return up
}

// program chooses windows and classes.
func (s *sections) program(limit int64) *program {
	m := &program{sections: s, limit: limit, unit: s.size}
	s.tree.reset(s.load)
	var gaps []plan.Gap
	var largest int64
	for _, g := range s.p.Gaps(1, 1) {
		if s.p.Buffers[g.Buffer].Life == plan.Inside && s.tree.firstOver(int(g.After)+1, int(g.Before), limit) >= 0 {
			gaps = append(gaps, g)
			largest = max(largest, s.p.Rounded(g.Buffer))
		}
	}
	if m.unit == 0 {
		m.unit = max(largest/8, 1)
	}
	cuts := []int{0, len(s.p.Ops)}
	for _, g := range gaps {
		cuts = append(cuts, int(g.After)+1, int(g.Before))
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for most := mostWindows; ; most = most * 3 / 4 {
		m.windows(cuts, most)
		if m.classify(gaps) <= mostIntegers || most < 8 {
			return m
		}
	}
}

// windows takes at most n windows between the cuts, evenly by number of cuts.
func (m *program) windows(cuts []int, n int) {
	m.bounds = m.bounds[:0]
	k := len(cuts) - 1
	n = min(n, k)
	for i := range n + 1 {
		m.bounds = append(m.bounds, cuts[i*k/n])
	}
	m.time, m.high = make([]int64, n), make([]int64, n)
	for w := range n {
		m.time[w] = m.clock[m.bounds[w+1]] - m.clock[m.bounds[w]]
		m.high[w] = slices.Max(m.load[m.bounds[w]:m.bounds[w+1]])
	}
}

// classify puts intervals that span the same windows together and returns the number of integers.
func (m *program) classify(gaps []plan.Gap) int {
	index := map[[2]int]int{}
	m.classes = m.classes[:0]
	for _, g := range gaps {
		first, _ := slices.BinarySearch(m.bounds, int(g.After)+1)
		last, _ := slices.BinarySearch(m.bounds, int(g.Before)+1)
		last -= 2 // the window that ends no later than the op that needs it
		if first > last {
			continue
		}
		k, ok := index[[2]int{first, last}]
		if !ok {
			k = len(m.classes)
			index[[2]int{first, last}] = k
			m.classes = append(m.classes, class{first: first, last: last})
		}
		c := &m.classes[k]
		c.gaps = append(c.gaps, g)
		c.bytes += m.p.Rounded(g.Buffer)
	}
	integers := 0
	for k := range m.classes {
		c := &m.classes[k]
		c.count = int(c.bytes / m.unit)
		if c.bytes%m.unit > 0 {
			c.count++
		}
		c.size = float64(c.bytes) / float64(c.count)
		c.out, c.in = ms(m.p.Hardware.D2H.Time(int64(c.size))), ms(m.p.Hardware.H2D.Time(int64(c.size)))
		integers += c.last - c.first + 1
	}
	return integers
}

func ms(t int64) float64 { return float64(t) / 1e6 }

// build writes the model. Times are in milliseconds, memory in sections of the full size.
func (m *program) build() {
	const little = 1e-3
	inf := math.Inf(1)
	n := len(m.time)
	much := 1.0
	for _, t := range m.time {
		much += ms(t)
	}
	for k := range m.classes {
		much = max(much, 10*(m.classes[k].out+m.classes[k].in))
	}
	for range n {
		m.stall = m.model.AddVar(1, 0, inf, false) - milp.Var(n-1)
	}
	for range n {
		m.excess = m.model.AddVar(much, 0, inf, false) - milp.Var(n-1)
	}
	outs, ins, rows := make([][]milp.Term, n), make([][]milp.Term, n), make([][]milp.Term, n)
	for k := range m.classes {
		c := &m.classes[k]
		span := c.last - c.first + 1
		c.absent = milp.Var(m.model.NumVars())
		c.left = c.absent + milp.Var(span)
		c.back = c.left + milp.Var(span)
		for range span {
			m.model.AddVar(0, 0, float64(c.count), true)
		}
		for range span {
			m.model.AddVar(little*c.out, 0, inf, false)
		}
		for j := range span {
			cost := little * c.in
			if j+1 == span {
				cost += c.in // on demand
			}
			m.model.AddVar(cost, 0, inf, false)
		}
		for j := range milp.Var(span) {
			w := c.first + int(j)
			rows[w] = append(rows[w], milp.Term{Var: c.absent + j, Coef: c.size / float64(m.unit)})
			left := []milp.Term{{Var: c.left + j, Coef: 1}, {Var: c.absent + j, Coef: -1}}
			if j > 0 {
				left = append(left, milp.Term{Var: c.absent + j - 1, Coef: 1})
			}
			back := []milp.Term{{Var: c.back + j, Coef: 1}, {Var: c.absent + j, Coef: -1}}
			if int(j)+1 < span {
				back = append(back, milp.Term{Var: c.absent + j + 1, Coef: 1})
				ins[w+1] = append(ins[w+1], milp.Term{Var: c.back + j, Coef: -c.in})
			}
			m.model.AddRow(0, inf, left...)
			m.model.AddRow(0, inf, back...)
			if w > 0 {
				outs[w-1] = append(outs[w-1], milp.Term{Var: c.left + j, Coef: -c.out})
			}
		}
	}
	for w := range n {
		for _, terms := range [][]milp.Term{outs[w], ins[w]} {
			if len(terms) > 0 {
				m.model.AddRow(-ms(m.time[w]), inf, append(terms, milp.Term{Var: m.stall + milp.Var(w), Coef: 1})...)
			}
		}
		if over := m.high[w] - m.limit; over > 0 && len(rows[w]) > 0 {
			m.model.AddRow(float64(over)/float64(m.unit), inf, append(rows[w], milp.Term{Var: m.excess + milp.Var(w), Coef: 1})...)
		}
	}
}

// point is the model's point for intervals with their release and fetch.
func (m *program) point(c []idle) []float64 {
	x := make([]float64, m.model.NumVars())
	key := map[plan.Gap]int{}
	for k := range m.classes {
		for _, g := range m.classes[k].gaps {
			g.Dead = false
			key[g] = k
		}
	}
	bytes := make([][]int64, len(m.classes))
	for i := range c {
		k, ok := key[plan.Gap{Buffer: c[i].buffer, After: plan.OpID(c[i].after), Before: plan.OpID(c[i].before)}]
		if !ok {
			continue
		}
		cl := &m.classes[k]
		if bytes[k] == nil {
			bytes[k] = make([]int64, cl.last-cl.first+1)
		}
		for w := cl.first; w <= cl.last; w++ {
			if c[i].release <= m.bounds[w] && m.bounds[w+1] <= c[i].fetch {
				bytes[k][w-cl.first] += c[i].size
			}
		}
	}
	for k := range bytes {
		c := &m.classes[k]
		for j, v := range bytes[k] {
			x[c.absent+milp.Var(j)] = math.Floor(float64(v)/c.size + 1e-9)
		}
	}
	m.complete(x)
	return x
}

// complete sets the continuous variables to the least that the integers allow.
func (m *program) complete(x []float64) {
	n := len(m.time)
	outs, ins, gone := make([]float64, n), make([]float64, n), make([]float64, n)
	for k := range m.classes {
		c := &m.classes[k]
		span := c.last - c.first + 1
		at := func(j int) float64 {
			if j < 0 || j >= span {
				return 0
			}
			return x[c.absent+milp.Var(j)]
		}
		for j := range span {
			w := c.first + j
			left, back := max(at(j)-at(j-1), 0), max(at(j)-at(j+1), 0)
			x[c.left+milp.Var(j)], x[c.back+milp.Var(j)] = left, back
			gone[w] += at(j) * c.size / float64(m.unit)
			if w > 0 {
				outs[w-1] += left * c.out
			}
			if j+1 < span {
				ins[w+1] += back * c.in
			}
		}
	}
	for w := range n {
		x[m.stall+milp.Var(w)] = max(max(outs[w], ins[w])-ms(m.time[w]), 0)
		x[m.excess+milp.Var(w)] = max(float64(m.high[w]-m.limit)/float64(m.unit)-gone[w], 0)
	}
}

// decode chooses sections for the counts: those that are free first leave first, those that are needed first return first.
func (m *program) decode(x []float64) []idle {
	var all []idle
	for k := range m.classes {
		c := &m.classes[k]
		slices.SortStableFunc(c.gaps, func(a, b plan.Gap) int { return cmp.Or(cmp.Compare(a.After, b.After), cmp.Compare(b.Before, a.Before)) })
		var away []idle
		var bytes int64
		next := 0
		for w := c.first; w <= c.last+1; w++ {
			var want int64
			if w <= c.last {
				want = int64(math.Ceil(math.Round(x[c.absent+milp.Var(w-c.first)])*c.size - 1e-3))
			}
			grown := len(away)
			for ; next < len(c.gaps) && bytes < want; next++ {
				y := newIdle(m.p, c.gaps[next])
				y.release = m.bounds[w]
				bytes += y.size
				away = append(away, y)
			}
			if len(away) > grown {
				slices.SortStableFunc(away, func(a, b idle) int { return cmp.Compare(a.before, b.before) })
			}
			for len(away) > 0 && bytes-away[0].size >= want {
				away[0].fetch = m.bounds[w]
				bytes -= away[0].size
				if away[0].fetch > away[0].release {
					all = append(all, away[0])
				}
				away = away[1:]
			}
		}
	}
	return all
}
