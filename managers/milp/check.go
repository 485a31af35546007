package milp

import (
	"fmt"
	"math"
)

// This file checks answers. A point is feasible when it holds in the caller's own numbers, so the measure
// must suit both a row of ones and a row in bytes. Our reading of "holds within tolerance":
//
//   - a whole variable is exactly whole (points are rounded before they are checked);
//   - a row may be exceeded by Tolerance in the scale the solver saw it in, plus what float64 addition can
//     lose. A row over whole variables with whole coefficients below 2^40 therefore holds exactly, since it
//     can only be exceeded by 1 or more.
//
// The bound of a linear program follows from its row duals y by weak duality: for every feasible x,
//
//	c·x = y·Ax + d·x  with  d = c - A'y,   hence
//	c·x >= sum of the least y[i]*a over [rowLower, rowUpper] + likewise for d and x.
//
// That holds for any y, right or wrong, which is why the bound is computed rather than read from the solver.

// tolerance is by how much a row, in the solver's scale, may be exceeded, and how far from integer a variable
// may be before rounding. It is HiGHS' own primal and integer feasibility tolerance.
const tolerance = 1e-6

// roundingUnit bounds the relative error of a float64 sum of a row's products; generous, for rows of up to
// ten thousand entries.
const roundingUnit = 1e-12

// maxScaled is the largest magnitude a row or the cost keeps when it is handed to a solver.
const maxScaled = 1 << 20

// scaleOf returns the power of two that brings the largest magnitude of values into [1, maxScaled], or 1 when
// it lies there already. A power of two keeps every value exact.
func scaleOf(values []float64) float64 {
	var largest float64
	for _, v := range values {
		largest = max(largest, math.Abs(v))
	}
	_, exp := math.Frexp(largest) // largest in [2^(exp-1), 2^exp)
	switch {
	case largest == 0:
		return 1
	case largest > maxScaled:
		return math.Ldexp(1, 20-exp)
	case largest < 1:
		return math.Ldexp(1, min(1-exp, 1000)) // beyond 2^1000 the scale itself would overflow
	}
	return 1
}

// Check returns nil if x satisfies every row, bound and, unless relaxed, every wholeness of the model, and
// otherwise an error that names the first thing violated and by how much.
func (m *Model) Check(x []float64, relaxed bool) error {
	if m.err != nil {
		return m.err
	}
	if err := m.violation(x, relaxed); err != nil {
		return fmt.Errorf("milp: infeasible point: %w", err)
	}
	return nil
}

func (m *Model) violation(x []float64, relaxed bool) error {
	if len(x) != len(m.cost) {
		return fmt.Errorf("%d values for %d variables", len(x), len(m.cost))
	}
	for j, v := range x {
		slack := tolerance * math.Max(1, roundingUnit/tolerance*math.Abs(v))
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
			return fmt.Errorf("variable %d is %v", j, v)
		case v < m.lower[j]-slack || v > m.upper[j]+slack:
			return fmt.Errorf("variable %d = %v lies outside its bounds [%v, %v]", j, v, m.lower[j],
				m.upper[j])
		case m.integer[j] && !relaxed && v != math.Round(v):
			return fmt.Errorf("variable %d = %v is not whole", j, v)
		}
	}
	for i := range m.start {
		index, value := m.row(i)
		var sum, size float64
		for k, j := range index {
			p := value[k] * x[j]
			sum += p
			size += math.Abs(p)
		}
		slack := tolerance/scaleOf(value) + roundingUnit*size
		if sum < m.rowLower[i]-slack || sum > m.rowUpper[i]+slack || math.IsNaN(sum) {
			return fmt.Errorf("row %d = %v lies outside its bounds [%v, %v]", i, sum, m.rowLower[i],
				m.rowUpper[i])
		}
	}
	return nil
}

// Objective returns the cost of x, which must have one value for each variable.
func (m *Model) Objective(x []float64) float64 {
	var sum float64
	for j, c := range m.cost {
		sum += c * x[j]
	}
	return sum
}

// settle rounds the whole variables of x in place and moves values that overstep a bound by no more than
// Tolerance back onto it. It reports whether every whole variable was within Tolerance of a whole number.
func (m *Model) settle(x []float64, relaxed bool) bool {
	ok := true
	for j, v := range x {
		if m.integer[j] && !relaxed {
			r := math.Round(v)
			ok = ok && math.Abs(r-v) <= 2*tolerance
			v = r
		}
		if lo := m.lower[j]; v < lo && v >= lo-tolerance {
			v = lo
		}
		if hi := m.upper[j]; v > hi && v <= hi+tolerance {
			v = hi
		}
		x[j] = v + 0 // turns -0 into 0
	}
	return ok
}

// dualBound returns the lower bound on the cost of the relaxed model that the row duals prove, or -Inf when
// they prove none. Duals and reduced costs that are noise next to the terms they were computed from are taken
// for 0 where their bound is infinite.
func (m *Model) dualBound(dual []float64) float64 {
	if len(dual) != len(m.start) {
		return math.Inf(-1)
	}
	reduced := append([]float64(nil), m.cost...)
	size := make([]float64, len(m.cost))
	for j, c := range m.cost {
		size[j] = math.Abs(c)
	}
	for i := range m.start {
		index, value := m.row(i)
		for k, j := range index {
			p := value[k] * dual[i]
			reduced[j] -= p
			size[j] += math.Abs(p)
		}
	}
	noise := 1 / scaleOf(m.cost) * tolerance
	var bound float64
	for i, y := range dual {
		bound += least(y, m.rowLower[i], m.rowUpper[i], noise)
	}
	for j, d := range reduced {
		bound += least(d, m.lower[j], m.upper[j], noise+roundingUnit*size[j])
	}
	if math.IsNaN(bound) {
		return math.Inf(-1)
	}
	return bound
}

// least returns the least d*v over v in [lower, upper], leaving out a d within noise of 0 whose bound is
// infinite.
func least(d, lower, upper, noise float64) float64 {
	at := lower
	if d < 0 {
		at = upper
	}
	if d == 0 || math.IsInf(at, 0) && math.Abs(d) <= noise {
		return 0
	}
	return d * at
}

// relativeGap returns how far the objective may be from the best possible one, relative to the objective, in
// HiGHS' reading: 0 when the two agree, +Inf when only one of them is 0 or the bound is infinite.
func relativeGap(objective, bound float64) float64 {
	switch {
	case objective <= bound:
		return 0
	case objective == 0 || math.IsInf(bound, 0):
		return math.Inf(1)
	}
	return (objective - bound) / math.Abs(objective)
}
