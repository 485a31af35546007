package milp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// intervalKnapsack is the shape of the planners' models: which of n tensors stay, each alive for up to span
// of the rows and of up to 64 times unit bytes, within half of what all of them would take.
func intervalKnapsack(seed uint64, n, rows, span int, unit float64, integer bool) *Model {
	r := rand.New(rand.NewPCG(seed, 0))
	m := &Model{}
	entries, sum := make([][]Term, rows), make([]float64, rows)
	for range n {
		v := m.AddVar(-float64(1+r.IntN(200)), 0, 1, integer)
		start := r.IntN(rows)
		end, size := min(rows, start+1+r.IntN(span)), float64(1+r.IntN(64))*unit
		for i := start; i < end; i++ {
			entries[i] = append(entries[i], Term{v, size})
			sum[i] += size
		}
	}
	for i := range entries {
		m.AddRow(math.Inf(-1), math.Floor(sum[i]/2), entries[i]...)
	}
	return m
}

// hardKnapsack is a random knapsack in many dimensions, of which no solver proves the optimum in a minute.
func hardKnapsack() *Model {
	r := rand.New(rand.NewPCG(7, 0))
	m := &Model{}
	for range 400 {
		m.AddVar(-float64(100+r.IntN(100)), 0, 1, true)
	}
	for range 100 {
		var terms []Term
		sum := 0.0
		for v := range 400 {
			size := float64(1 + r.IntN(1000))
			terms, sum = append(terms, Term{Var(v), size}), sum+size
		}
		m.AddRow(math.Inf(-1), math.Floor(sum/3), terms...)
	}
	return m
}

// randomModel has up to 9 variables, whole ones in [-2, 3], and up to 5 rows of every kind, so that trying
// all points is quick.
func randomModel(r *rand.Rand) *Model {
	m := &Model{}
	n := 1 + r.IntN(7)
	for range n {
		lo := float64(r.IntN(3) - 2)
		m.AddVar(float64(r.IntN(21)-10), lo, lo+float64(r.IntN(4)), true)
	}
	for range r.IntN(6) {
		var terms []Term
		for v := range n {
			if r.IntN(3) > 0 {
				terms = append(terms, Term{Var(v), float64(r.IntN(15) - 5)})
			}
		}
		lo, hi := math.Inf(-1), math.Inf(1)
		switch at := float64(r.IntN(20) - 5); r.IntN(8) {
		case 0:
			lo, hi = at, at
		case 1, 2:
			lo = at - 10
		case 3:
			lo, hi = at-5, at+5
		case 4: // free
		default:
			hi = at
		}
		m.AddRow(lo, hi, terms...)
	}
	return m
}

// bruteForce returns the least cost over all whole points, or +Inf. It shares no code with Check.
func bruteForce(m *Model) float64 {
	best, x := math.Inf(1), make([]float64, len(m.cost))
	var try func(j int)
	try = func(j int) {
		if j < len(x) {
			for x[j] = m.lower[j]; x[j] <= m.upper[j]; x[j]++ {
				try(j + 1)
			}
			return
		}
		for i := range m.start {
			end, sum := len(m.index), 0.0
			if i+1 < len(m.start) {
				end = int(m.start[i+1])
			}
			for k := int(m.start[i]); k < end; k++ {
				sum += m.value[k] * x[m.index[k]]
			}
			if sum < m.rowLower[i] || sum > m.rowUpper[i] {
				return
			}
		}
		cost := 0.0
		for j, c := range m.cost {
			cost += c * x[j]
		}
		best = min(best, cost)
	}
	try(0)
	return best
}

func TestEverySolverFindsWhatTryingAllPointsFinds(t *testing.T) {
	eachSolver(t, func(t *testing.T, _ program, solve func(*Model, Options) (Solution, error)) {
		feasible := 0
		for seed := range uint64(60) {
			m := randomModel(rand.New(rand.NewPCG(seed, 1)))
			want := bruteForce(m)
			s, err := solve(m, Options{})
			switch {
			case err != nil:
				t.Errorf("seed %d: %v", seed, err)
			case math.IsInf(want, 1):
				if s.Status != StatusInfeasible || s.X != nil {
					t.Errorf("seed %d: %v with %v, want infeasible", seed, s.Status, s.X)
				}
			case s.Status != StatusOptimal || math.Abs(s.Objective-want) > 1e-9 || s.Bound > want+1e-6 ||
				s.Bound < want-1e-3:
				t.Errorf("seed %d: %v, objective %v and bound %v, want %v", seed, s.Status, s.Objective,
					s.Bound, want)
			case m.Check(s.X, false) != nil:
				t.Errorf("seed %d: %v", seed, m.Check(s.X, false))
			default:
				feasible++
			}
		}
		if feasible < 20 {
			t.Errorf("only %d models had an answer: the test tests little", feasible)
		}
	})
}

func TestDualsProveTheLeastCostOfARelaxation(t *testing.T) {
	eachSolver(t, func(t *testing.T, p program, solve func(*Model, Options) (Solution, error)) {
		for seed := range uint64(6) {
			unit := []float64{1, 1 << 20, 1 << 34}[seed%3]
			m := intervalKnapsack(seed, 120, 40, 15, unit, true)
			s, err := solve(m, Options{LPOnly: true})
			if !p.linear {
				if err == nil && s.Dual != nil {
					t.Fatalf("%s has duals it cannot know exactly", p.name)
				}
				continue
			}
			if err != nil || s.Status != StatusOptimal || len(s.Dual) != m.NumRows() || s.Gap > 1e-8 {
				t.Fatalf("seed %d: %v, %d duals, gap %v, %v", seed, s.Status, len(s.Dual), s.Gap, err)
			}
			// A dual is a price: relaxing a row by a little lowers the cost by that much for each unit, and
			// by no more.
			priced := 0
			for i, price := range s.Dual {
				if price > 1e-9/unit {
					t.Errorf("seed %d: row %d has an upper bound only, and price %v", seed, i, price)
				}
				if price > -1e-9/unit || priced == 3 {
					continue
				}
				priced++
				step := unit / 1024
				m.rowUpper[i] += step
				more, err := solve(m, Options{LPOnly: true})
				m.rowUpper[i] -= step
				if err != nil || more.Objective < s.Objective+price*step-1e-7 || more.Objective > s.Objective+
					1e-9 {
					t.Errorf("seed %d: row %d with price %v takes the cost from %v to %v, %v",
						seed, i, price, s.Objective, more.Objective, err)
				}
			}
			if priced == 0 {
				t.Errorf("seed %d: no row has a price: the test tests little", seed)
			}
		}
	})
}

func TestRowsInBytesHoldToTheByte(t *testing.T) {
	eachSolver(t, func(t *testing.T, _ program, solve func(*Model, Options) (Solution, error)) {
		for _, unit := range []float64{1, 1<<24 + 1, 1<<32 + 1} {
			m := intervalKnapsack(3, 60, 30, 12, unit, true)
			s, err := solve(m, Options{Gap: 0.001})
			if err != nil || s.Status != StatusOptimal {
				t.Fatalf("unit %v: %v, %v", unit, s.Status, err)
			}
			for i := range m.start {
				index, value := m.row(i)
				var sum int64
				for k, j := range index {
					if x := s.X[j]; x != 0 && x != 1 {
						t.Fatalf("unit %v: x = %v", unit, x)
					}
					sum += int64(value[k]) * int64(s.X[j])
				}
				if sum > int64(m.rowUpper[i]) {
					t.Errorf("unit %v: row %d holds %d bytes of %v", unit, i, sum, m.rowUpper[i])
				}
			}
		}
	})
}

func TestCountedWorkStopsAtTheSameAnswerWhateverElseTheMachineDoes(t *testing.T) {
	m := hardKnapsack()
	want, err := Solve(context.Background(), m, Options{MaxWork: 1500})
	if err != nil || want.Status != StatusFeasible || want.X == nil {
		t.Fatalf("%v, %v", want.Status, err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			got, err := Solve(context.Background(), m, Options{MaxWork: 1500})
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v\nwant %v\n%v", got, want, err)
			}
		})
	}
	wg.Wait()
	if less, err := Solve(context.Background(), m, Options{MaxWork: 150}); err != nil ||
		less.Work >= want.Work {
		t.Errorf("a tenth of the work took %d reads of %d, %v", less.Work, want.Work, err)
	}
}

func TestMaxNodesEndsTheSearch(t *testing.T) {
	m := intervalKnapsack(1, 150, 60, 30, 1, true)
	eachSolver(t, func(t *testing.T, p program, solve func(*Model, Options) (Solution, error)) {
		if !p.maxNodes {
			if _, ok := p.find(m, &Options{MaxNodes: 1}); ok {
				t.Errorf("%s is taken for a limit it does not know", p.name)
			}
			return
		}
		s, err := solve(m, Options{MaxNodes: 1})
		if err != nil || s.X == nil || s.Nodes > 10 {
			t.Errorf("%v after %d nodes, %v", s.Status, s.Nodes, err)
		}
	})
}

func TestATimeLimitIsNoErrorAndLeavesTheBestPoint(t *testing.T) {
	m := hardKnapsack()
	start := make([]float64, m.NumVars())
	eachSolver(t, func(t *testing.T, _ program, solve func(*Model, Options) (Solution, error)) {
		s, err := solve(m, Options{TimeLimit: time.Second, Start: start})
		if err != nil || s.Status != StatusFeasible || m.Check(s.X, false) != nil || s.Objective > 0 ||
			s.Bound > s.Objective {
			t.Errorf("%v, objective %v, bound %v, %v, %v", s.Status, s.Objective, s.Bound,
				m.Check(s.X, false), err)
		}
	})
}

func TestACancelledSolveReturnsItsBestPointAndTheContextsError(t *testing.T) {
	m := hardKnapsack()
	start := make([]float64, m.NumVars())
	for _, s := range solvers {
		t.Run(s.name, func(t *testing.T) {
			if s.run == nil {
				t.Skipf("needs the solver %s: it is not on PATH", s.name)
			}
			for _, wait := range []time.Duration{0, 500 * time.Millisecond} {
				ctx, cancel := context.WithCancel(context.Background())
				if wait == 0 {
					cancel()
				}
				time.AfterFunc(wait, cancel)
				got, err := solveWith(ctx, m, Options{Start: start}, s.run)
				if !errors.Is(err, context.Canceled) || got.Status != StatusFeasible ||
					m.Check(got.X, false) != nil {
					t.Errorf("after %v: %v, %v, %v", wait, got.Status, m.Check(got.X, false), err)
				}
				cancel()
			}
		})
	}
	t.Run("embedded finds one", func(t *testing.T) {
		// How soon it has a first point depends on the machine, so it is given twice the time until it has.
		for wait := time.Second; ; wait *= 2 {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			got, err := Solve(ctx, m, Options{Solver: SolverWASM})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || got.Status != StatusFeasible &&
				wait > time.Minute {
				t.Fatalf("%v, objective %v, %v", got.Status, got.Objective, err)
			}
			if got.Status == StatusFeasible {
				if got.Objective >= 0 || m.Check(got.X, false) != nil {
					t.Errorf("objective %v, %v", got.Objective, m.Check(got.X, false))
				}
				return
			}
		}
	})
}

func TestAStartIsKeptWhenNothingBetterIsFound(t *testing.T) {
	m := intervalKnapsack(5, 60, 30, 12, 1, true)
	best, err := Solve(context.Background(), m, Options{})
	if err != nil || best.Status != StatusOptimal {
		t.Fatal(best.Status, err)
	}
	eachSolver(t, func(t *testing.T, p program, solve func(*Model, Options) (Solution, error)) {
		s, err := solve(m, Options{Start: best.X, TimeLimit: 50 * time.Millisecond})
		if err != nil || s.Objective != best.Objective || m.Check(s.X, false) != nil {
			t.Errorf("%v, objective %v, want %v, %v", s.Status, s.Objective, best.Objective, err)
		}
	})
}

func TestAModelBeyondItsMemoryIsAnError(t *testing.T) {
	m := intervalKnapsack(1, 20000, 2000, 60, 1, false)
	_, err := Solve(context.Background(), m, Options{MaxMemory: 24 << 20, Solver: SolverWASM})
	if !errors.Is(err, errMemory) {
		t.Errorf("%v, want %v", err, errMemory)
	}
	if s, err := Solve(context.Background(), m, Options{Solver: SolverWASM}); err != nil ||
		s.Status != StatusOptimal {
		t.Errorf("with all memory: %v, %v", s.Status, err)
	}
}

func TestMalformedModelsAndOptionsAreErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	x := func(m *Model) Var { return m.AddVar(1, 0, 1, false) }
	for name, build := range map[string]func(m *Model){
		"cost":        func(m *Model) { m.AddVar(nan, 0, 1, false) },
		"cost inf":    func(m *Model) { m.AddVar(inf, 0, 1, false) },
		"bound":       func(m *Model) { m.AddVar(1, nan, 1, false) },
		"bound inf":   func(m *Model) { m.AddVar(1, inf, inf, false) },
		"row bound":   func(m *Model) { m.AddRow(nan, 1) },
		"variable":    func(m *Model) { m.AddRow(0, 1, Term{x(m) + 1, 1}) },
		"negative":    func(m *Model) { m.AddRow(0, 1, Term{x(m) - 1, 1}) },
		"coefficient": func(m *Model) { m.AddRow(0, 1, Term{x(m), nan}) },
	} {
		m := &Model{}
		build(m)
		if _, err := Solve(context.Background(), m, Options{}); err == nil || m.err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ok := &Model{}
	x(ok)
	for _, o := range []Options{{Gap: -1}, {Gap: nan}, {TimeLimit: -1}, {MaxNodes: -1}, {MaxWork: -1},
		{MaxMemory: -1}, {Threads: -1},
		{Solver: 9}, {Start: []float64{1, 2}}, {Start: []float64{2}}, {Start: []float64{nan}},
		{Solver: SolverNative, MaxWork: 1}} {
		if _, err := Solve(context.Background(), ok, o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
	if _, err := Solve(context.Background(), nil, Options{}); err == nil {
		t.Error("no model: no error")
	}
}

// TestABasisSavesMostOfTheWorkOfAChangedModel: the dual simplex method begins where the last solve ended.
func TestABasisSavesMostOfTheWorkOfAChangedModel(t *testing.T) {
	ctx := context.Background()
	m := intervalKnapsack(3, 400, 200, 40, 1, false)
	first, err := Solve(ctx, m, Options{LPOnly: true, Solver: SolverWASM})
	if err != nil || first.Basis == nil {
		t.Fatalf("no basis of an optimal linear model: %v", err)
	}
	for i := range m.rowUpper {
		m.rowUpper[i] = math.Floor(m.rowUpper[i] * 0.98)
	}
	cold, err := Solve(ctx, m, Options{LPOnly: true, Solver: SolverWASM})
	if err != nil {
		t.Fatal(err)
	}
	warm, err := Solve(ctx, m, Options{LPOnly: true, Solver: SolverWASM, Basis: first.Basis})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(warm.Objective-cold.Objective) > 1e-6*math.Abs(cold.Objective) ||
		warm.Status != StatusOptimal {
		t.Errorf("from the basis %s at %v, from nothing %v", warm.Status, warm.Objective, cold.Objective)
	}
	if 2*warm.Work > cold.Work {
		t.Errorf("work %d from the basis and %d from nothing", warm.Work, cold.Work)
	}
	m.AddVar(0, 0, 1, false)
	if _, err := Solve(ctx, m, Options{LPOnly: true, Basis: first.Basis}); err == nil {
		t.Error("the basis of a model of another shape is taken")
	}
}
