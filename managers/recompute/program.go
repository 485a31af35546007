package recompute

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/milp"
)

// program is Checkmate's linear program over a coarse view.
//
// Variables, for stage t of the backward pass, group g of the forward pass and item v:
//
//	R[t,g] in {0,1}  group g runs again in stage t, before the stage itself
//	S[t,v] in [0,1]  item v is in memory when stage t begins
//	M[t,v,j]         item v is held in stage t's rerun until its j-th reader there has run
//	U[t,g]           bytes of items held while group g runs in stage t
//
// The paper has R and S over all pairs of nodes, and FREE, products of them linearised, for what leaves
// memory within a stage. Here the forward pass does not rerun ops (memory is not short yet), and M expresses
// the same as FREE with fewer variables: an item is held as long as a later reader, the stage itself or the
// next stage needs it. S and M need not be integer: given integer R, the least S and M that satisfy the rows
// are integer, and less memory is never worse.
//
// Which pairs have a variable: a group is rerun only in the stages from reach before the first need of its
// output to the last in which it is useful. Before that, an absent item cannot come back and nobody reads it,
// so S is one variable for all those stages: giving it up between them is never better than giving it up at
// once. That is exact; reach is not, see checkmate.go.
//
// Memory rows are soft: Over is the excess, at a price above any recomputation, so that a budget that cannot
// be met in the coarse view still yields its nearest miss.
type program struct {
	s    *stages
	m    milp.Model
	run  [][]milp.Var // for each stage and group; none if it makes no sense
	keep [][]milp.Var // of each item and stage up to its last need
	over milp.Var
	unit float64 // nanoseconds that cost 1
	// floor is the budget below which the rows say nothing reliable: a row that holds at it anyway is left
	// out.
	floor int64
	row   []milp.Term // scratch

	// What point needs to compute variables from others, each after those that it depends on.
	holds   []hold
	bounded int // holds that have their rows
	defs    []definition
	terms   []milp.Term // of definitions and memory rows
	rows    []memoryRow
}

// hold is one variable M: it is at least its reader's R and at least next.
type hold struct{ m, reader, next milp.Var }

// definition is one variable U: the sum of terms [at, end) of program.terms.
type definition struct {
	u       milp.Var
	at, end int
}

// memoryRow is a memory row without Over: its terms [at, end) together stay within room.
type memoryRow struct {
	at, end int
	room    float64
}

const none milp.Var = -1

// mib is the unit of memory in the program: rows of about equal size suit a solver with absolute tolerances.
const mib = 1 << 20

// scope is what to build a program for.
type scope struct {
	// budget is in bytes. floor, the least budget to be asked about, alone decides which rows are written, so
	// that programs for several budgets share the basis of a solution.
	budget, floor int64
	// reach is how many stages before the first one that needs a group's output the group may be rerun.
	reach int
	// apart gives S a variable of its own in every stage, where one would be enough. For the test that this
	// changes nothing.
	apart bool
}

// newProgram builds the program.
func newProgram(s *stages, o scope) *program {
	q := &program{s: s, floor: o.floor}
	var total float64
	for _, t := range s.time {
		total += float64(t)
	}
	total = max(total, 1)
	q.unit = total
	// a hundredth of the budget costs ten forward passes
	q.over = q.m.AddVar(1000/max(float64(o.floor)/mib, 1e-3), 0, math.Inf(1), false)
	useful := make([]int, s.groups()) // of each group, the last stage in which it may run
	for g := range useful {
		useful[g] = -1
		for _, v := range s.lists[g] {
			useful[g] = max(useful[g], s.items[v].last())
		}
	}
	for changed := true; changed; { // usually once: readers come after what they read
		changed = false
		raise := func(g int32, to int) {
			if useful[g] < to {
				useful[g], changed = to, true
			}
		}
		for h := s.groups() - 1; h >= 0; h-- {
			for _, v := range s.reads[h] {
				raise(s.items[v].group, useful[h])
			}
			for _, g := range s.runs[h] {
				raise(g, useful[h])
			}
		}
	}
	early := s.early(o.reach)
	q.run = make([][]milp.Var, s.count())
	for t := range q.run {
		q.run[t] = make([]milp.Var, s.groups())
		for g := range q.run[t] {
			q.run[t][g] = none
			if early[g] <= t && t <= useful[g] {
				q.run[t][g] = q.m.AddVar(float64(s.time[g])/total, 0, 1, true)
			}
		}
	}
	q.keep = make([][]milp.Var, len(s.items))
	use := s.firstUses(early)
	for v := range s.items {
		it := &s.items[v]
		q.keep[v] = make([]milp.Var, it.last()+1)
		one := min(early[it.group], use[v]) // up to here it is there all the time or not at all
		for t := range q.keep[v] {
			if t > 0 && t <= one && !o.apart {
				q.keep[v][t] = q.keep[v][0]
				continue
			}
			q.keep[v][t] = q.m.AddVar(0, 0, 1, false)
		}
	}
	q.correctness()
	q.memory(o.budget)
	return q
}

// early returns the first stage in which each group may be rerun: reach stages before the first that needs
// its output, or whose group runs it as well.
func (s *stages) early(reach int) []int {
	early := make([]int, s.groups())
	for g := range early {
		early[g] = s.count()
		for _, v := range s.lists[g] {
			early[g] = min(early[g], max(int(s.items[v].needs[0])-reach, 0))
		}
	}
	for h := s.groups() - 1; h >= 0; h-- {
		for _, g := range s.runs[h] {
			early[g] = min(early[g], early[h])
		}
	}
	return early
}

// firstUses returns the first stage in which each item may be read, by the stage or by a group that runs
// again.
func (s *stages) firstUses(early []int) []int {
	use := make([]int, len(s.items))
	for v := range use {
		use[v] = int(s.items[v].needs[0])
	}
	for h := range s.reads {
		for _, v := range s.reads[h] {
			use[v] = min(use[v], early[h])
		}
	}
	return use
}

// term adds a variable to the current row, unless there is none.
func (q *program) term(v milp.Var, coef float64) {
	if v != none {
		q.row = append(q.row, milp.Term{Var: v, Coef: coef})
	}
}

func (q *program) add(lower, upper float64) {
	q.m.AddRow(lower, upper, q.row...)
	q.row = q.row[:0]
}

func (q *program) kept(v int32, t int) milp.Var {
	if t < 0 || t >= len(q.keep[v]) {
		return none
	}
	return q.keep[v][t]
}

// correctness requires that whatever is read is present.
func (q *program) correctness() {
	s := q.s
	for v := range s.items {
		it := &s.items[v]
		for t := range q.keep[v] {
			if slices.Contains(it.needs, int32(t)) {
				q.term(q.keep[v][t], 1)
				q.term(q.run[t][it.group], 1)
				q.add(1, math.Inf(1))
			}
			if t > 0 && q.keep[v][t] != q.keep[v][t-1] {
				q.term(q.keep[v][t-1], 1)
				q.term(q.run[t-1][it.group], 1)
				q.term(q.keep[v][t], -1)
				q.add(0, math.Inf(1))
			}
		}
	}
	for t := range q.run {
		for h, r := range q.run[t] {
			if r == none {
				continue
			}
			for _, v := range s.reads[h] {
				q.term(q.kept(v, t), 1)
				q.term(q.run[t][s.items[v].group], 1)
				q.term(r, -1)
				q.add(0, math.Inf(1))
			}
			for _, g := range s.runs[h] {
				q.term(q.run[t][g], 1)
				q.term(r, -1)
				q.add(0, math.Inf(1))
			}
		}
	}
}

// limit closes a memory row: fixed bytes and the row's terms stay within the budget. A row that cannot be
// exceeded is left out.
func (q *program) limit(budget, fixed int64) {
	worst := float64(fixed) / mib
	for _, t := range q.row {
		worst += t.Coef
	}
	if worst <= float64(q.floor)/mib {
		q.row = q.row[:0]
		return
	}
	q.soft(float64(budget-fixed) / mib)
}

// memory requires that the budget holds at the worst moment of every group, of every stage and of every run
// in a stage.
func (q *program) memory(budget int64) {
	s := q.s
	for _, m := range s.forward {
		for v := range s.items {
			if s.items[v].after < m.op {
				q.term(q.keep[v][0], float64(s.items[v].bytes)/mib)
			}
		}
		q.limit(budget, m.fixed+m.natural)
	}
	for _, m := range s.backward {
		for v := range s.items {
			it := &s.items[v]
			if k, in := slices.BinarySearch(it.needs, m.stage); in && m.op <= it.ends[k] {
				continue // counted as natural
			}
			q.term(q.kept(int32(v), int(m.stage)+1), float64(it.bytes)/mib)
		}
		q.limit(budget, m.fixed+m.natural)
	}
	for t := range q.run {
		q.slots(t, budget)
	}
}

// slots writes the rows of one stage's rerun, from the last group to the first. What is held while a group
// runs is a variable U of its own, which differs from that of the next group by a few items. So rows stay
// short; spelled out, each would name every item.
func (q *program) slots(t int, budget int64) {
	s := q.s
	held := make([]milp.Var, len(s.items)) // of each item, until its next reader in the stage
	// bytes of items before the group that the stage itself uses; the most that U can be
	var natural, worst int64
	used := make([]bool, len(s.items))
	for v := range s.items {
		held[v] = q.kept(int32(v), t+1)
		_, used[v] = slices.BinarySearch(s.items[v].needs, int32(t))
		if used[v] {
			natural += s.items[v].bytes
		} else {
			worst += s.items[v].bytes
			q.term(held[v], float64(s.items[v].bytes)/mib)
		}
	}
	last := none // U of the next group; the current row is what has changed since
	for g := s.groups() - 1; g >= 0; g-- {
		var own int64
		// up to here it counted as made before, from here on as kept from the stage before or not there
		for _, v := range s.lists[g] {
			bytes := s.items[v].bytes
			own += bytes
			if q.run[t][g] == none && held[v] == q.kept(v, t) && !used[v] {
				continue // the same before and after
			}
			if used[v] {
				natural -= bytes
			} else {
				worst -= bytes
				q.term(held[v], -float64(bytes)/mib)
			}
		}
		if r := q.run[t][g]; r != none {
			for _, v := range s.reads[g] {
				if used[v] {
					continue
				}
				m := q.m.AddVar(0, 0, 1, false)
				q.holds = append(q.holds, hold{m: m, reader: r, next: held[v]})
				q.term(held[v], -float64(s.items[v].bytes)/mib)
				q.term(m, float64(s.items[v].bytes)/mib)
				held[v] = m
			}
			u := q.m.AddVar(0, 0, math.Inf(1), false)
			q.term(last, 1)
			q.defs = append(q.defs, definition{u: u})
			q.defs[len(q.defs)-1].at, q.defs[len(q.defs)-1].end = q.record()
			q.term(u, -1)
			q.add(math.Inf(-1), 0) // no reason to be more
			last = u
			if fixed := s.base[t] + natural; fixed+worst+own+s.extra[g] > q.floor {
				q.term(u, 1)
				q.term(r, float64(own+s.extra[g])/mib)
				q.soft(float64(budget-fixed) / mib)
			}
		}
		for _, v := range s.lists[g] {
			if k := q.kept(v, t); k != none && (q.run[t][g] != none || held[v] != k || used[v]) {
				worst += s.items[v].bytes
				q.term(k, float64(s.items[v].bytes)/mib)
			}
		}
	}
	q.row = q.row[:0]
	q.bounds()
}

// bounds writes the rows of the variables M that have none yet.
func (q *program) bounds() {
	for ; q.bounded < len(q.holds); q.bounded++ {
		h := q.holds[q.bounded]
		q.term(h.m, 1)
		q.term(h.reader, -1)
		q.add(0, math.Inf(1))
		if h.next != none {
			q.term(h.m, 1)
			q.term(h.next, -1)
			q.add(0, math.Inf(1))
		}
	}
}

// record keeps the current row for [program.point].
func (q *program) record() (at, end int) {
	at = len(q.terms)
	q.terms = append(q.terms, q.row...)
	return at, len(q.terms)
}

// soft closes a memory row that Over makes room in.
func (q *program) soft(room float64) {
	r := memoryRow{room: room}
	r.at, r.end = q.record()
	q.rows = append(q.rows, r)
	q.term(q.over, -1)
	q.add(math.Inf(-1), room)
}

// rounded reads from a solution which items are in memory when a stage begins: those with S at or above the
// threshold, the first phase of the paper's rounding. The second, the least R for that S, is what package
// chain does, op by op.
func (q *program) rounded(x []float64, threshold float64) func(v int32, t int) bool {
	return func(v int32, t int) bool {
		k := q.kept(v, t)
		return k != none && x[k] >= threshold
	}
}

// spread reads from a solution what the forward pass leaves, if that is fractional: if a third of each item
// in a stretch is kept, every third item is. Remaining bytes of one item count for the next, so that as many
// bytes are kept as in the solution.
func (q *program) spread(x []float64) func(v int32) bool {
	keep := make([]bool, len(q.keep))
	var owed float64
	for v := range keep { // in order of groups
		switch s, bytes := x[q.keep[v][0]], float64(q.s.items[v].bytes); {
		case s > 1-1e-6:
			keep[v] = true
		case s > 1e-6:
			if owed += s * bytes; owed >= bytes {
				keep[v] = true
				owed -= bytes
			}
		}
	}
	return func(v int32) bool { return keep[v] }
}

// least reads from a solution with whole R the least S that goes with it.
func (q *program) least(x []float64) func(v int32, t int) bool {
	s := q.s
	keep := make([][]bool, len(s.items))
	for v := range s.items {
		it := &s.items[v]
		keep[v] = make([]bool, len(q.keep[v])+1)
		for t := len(q.keep[v]) - 1; t >= 0; t-- {
			ran := func(g int32) bool { r := q.run[t][g]; return r != none && x[r] > 0.5 }
			_, wanted := slices.BinarySearch(it.needs, int32(t))
			wanted = wanted || keep[v][t+1]
			for h := range s.reads {
				if !wanted && ran(int32(h)) && slices.Contains(s.reads[h], int32(v)) {
					wanted = true
				}
			}
			keep[v][t] = wanted && !ran(it.group)
		}
	}
	return func(v int32, t int) bool { return t < len(keep[v]) && keep[v][t] }
}

// point returns the solution for what is kept, as a start for a search. kept says which items are in memory
// when a stage begins.
func (q *program) point(kept func(v int32, t int) bool) []float64 {
	s := q.s
	x := make([]float64, q.m.NumVars())
	for v := range q.keep {
		for t, k := range q.keep[v] {
			if kept(int32(v), t) {
				x[k] = 1
			}
		}
	}
	for t := range q.run {
		missing := func(v int32) bool { k := q.kept(v, t); return k == none || x[k] == 0 }
		var stack []int32
		run := func(g int32) {
			if r := q.run[t][g]; r != none && x[r] == 0 {
				x[r] = 1
				stack = append(stack, g)
			}
		}
		for v := range s.items {
			_, wanted := slices.BinarySearch(s.items[v].needs, int32(t))
			if k := q.kept(int32(v), t+1); k != none && x[k] == 1 {
				wanted = true
			}
			if wanted && missing(int32(v)) {
				run(s.items[v].group)
			}
		}
		for len(stack) > 0 {
			g := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, v := range s.reads[g] {
				if missing(v) {
					run(s.items[v].group)
				}
			}
			for _, h := range s.runs[g] {
				run(h)
			}
		}
	}
	for _, h := range q.holds {
		x[h.m] = x[h.reader]
		if h.next != none {
			x[h.m] = max(x[h.m], x[h.next])
		}
	}
	sum := func(at, end int) (sum float64) {
		for _, t := range q.terms[at:end] {
			sum += t.Coef * x[t.Var]
		}
		return sum
	}
	for _, d := range q.defs {
		x[d.u] = max(sum(d.at, d.end), 0)
	}
	for _, r := range q.rows {
		x[q.over] = max(x[q.over], sum(r.at, r.end)-r.room)
	}
	return x
}
