package swap

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/milp"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// The integer program that tvdnn_ilp.go describes: its windows and classes, its rows, its points, and the
// intervals for a point.
//
// Three points are considered: the heuristic's (point), the relaxation's with its counts rounded up
// (roundedUp), and the solver's. In all of them the counts A[c,w] decide; the continuous variables are the
// least that these allow (complete). Reading a point back (decode) must choose which sections of a class the
// counts refer to. The program cannot tell them apart, so they leave in the order in which they become free
// and return in the order in which they are needed. Linear in the program's size, except for sorting each
// class.

const (
	// mostIntegers and mostWindows bound the program: windows are made fewer until both hold.
	mostIntegers = 1500
	mostWindows  = 128
)

// class is sections whose idle interval spans the same windows.
type class struct {
	first, last int // windows, inclusive
	gaps        []plan.Gap
	bytes       int64
	count       int      // sections of the full size that it takes to hold them
	absent      milp.Var // of the first window; the others follow
	left, back  milp.Var // likewise: what left since the previous window, what is back in the next one
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

// program chooses windows and classes.
func (s *sections) program(limit int64) *program {
	m := &program{sections: s, limit: limit, unit: s.size}
	s.tree.Reset(s.load)
	var gaps []plan.Gap
	var largest int64
	for _, g := range s.p.Gaps(1, 1) {
		if s.p.Buffers[g.Buffer].Life == plan.Inside && s.tree.First(int(g.After)+1, int(g.Before),
			limit) >= 0 {
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
				m.model.AddRow(-ms(m.time[w]), inf, append(terms,
					milp.Term{Var: m.stall + milp.Var(w), Coef: 1})...)
			}
		}
		if over := m.high[w] - m.limit; over > 0 && len(rows[w]) > 0 {
			m.model.AddRow(float64(over)/float64(m.unit), inf,
				append(rows[w], milp.Term{Var: m.excess + milp.Var(w), Coef: 1})...)
		}
	}
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
		k, ok := key[plan.Gap{Buffer: c[i].buffer, After: plan.OpID(c[i].after),
			Before: plan.OpID(c[i].before)}]
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

// decode chooses sections for the counts: those that are free first leave first, those that are needed first
// return first.
func (m *program) decode(x []float64) []idle {
	var all []idle
	for k := range m.classes {
		c := &m.classes[k]
		slices.SortStableFunc(c.gaps, func(a, b plan.Gap) int {
			return cmp.Or(cmp.Compare(a.After, b.After), cmp.Compare(b.Before, a.Before))
		})
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
