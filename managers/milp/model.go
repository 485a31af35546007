package milp

import (
	"errors"
	"fmt"
	"math"
)

// Var is the index of a variable in its model, counted from 0 in the order of [Model.AddVar].
type Var int32

// Row is the index of a row in its model, counted from 0 in the order of [Model.AddRow].
type Row int32

// Term is one entry of a row: Coef times the variable Var.
type Term struct {
	Var  Var
	Coef float64
}

// Model is a mixed-integer linear program to be minimised. The zero value is an empty model ready for use.
// Variables and rows are added and never removed, and the entries of all rows lie in two flat slices
// (compressed sparse rows), so that a model of millions of entries costs 12 bytes for each and no allocation
// of its own.
//
// The building methods do not fail: the first malformed argument is kept and returned by [Solve]. A
// model must not be changed while it is being solved, but any number of solves may read it at once.
type Model struct {
	cost, lower, upper []float64
	integer            []bool
	rowLower, rowUpper []float64
	// of each row in index and value; rows follow one another, so the end is the next start
	start []int32
	index []int32
	value []float64
	// per variable, one past the position of its latest entry: finds a variable named twice in a row
	last []int32
	err  error // the first malformed argument
}

// maxEntries is HiGHS' limit on variables, rows and entries: its integers have 32 bits.
const maxEntries = math.MaxInt32 - 1

// AddVar adds a variable that costs cost for each unit and lies in [lower, upper]; either bound may be
// infinite. If integer is set it takes whole values only.
func (m *Model) AddVar(cost, lower, upper float64, integer bool) Var {
	v := Var(len(m.cost))
	switch {
	case len(m.cost) >= maxEntries:
		m.fail(errors.New("more than 2^31 variables: aggregate the model before solving it"))
		return v
	case math.IsNaN(cost) || math.IsInf(cost, 0):
		m.fail(fmt.Errorf("variable %d costs %v: give a finite cost", v, cost))
	case math.IsNaN(lower) || math.IsNaN(upper) || math.IsInf(lower, 1) || math.IsInf(upper, -1):
		m.fail(fmt.Errorf("variable %d has bounds [%v, %v]: give numbers, or -Inf below and +Inf above", v,
			lower, upper))
	}
	m.cost = append(m.cost, cost)
	m.lower = append(m.lower, lower)
	m.upper = append(m.upper, upper)
	m.integer = append(m.integer, integer)
	m.last = append(m.last, 0)
	return v
}

// AddRow adds the row lower <= sum of terms <= upper; either bound may be infinite, and equal bounds make an
// equation. A variable named twice has its coefficients added.
func (m *Model) AddRow(lower, upper float64, terms ...Term) Row {
	r, ok := m.openRow(lower, upper)
	if !ok {
		return r
	}
	for _, t := range terms {
		m.addEntry(r, t.Var, t.Coef)
	}
	return r
}

func (m *Model) openRow(lower, upper float64) (r Row, ok bool) {
	r = Row(len(m.start))
	if len(m.start) >= maxEntries {
		m.fail(errors.New("more than 2^31 rows: aggregate the model before solving it"))
		return r, false
	}
	if math.IsNaN(lower) || math.IsNaN(upper) || math.IsInf(lower, 1) || math.IsInf(upper, -1) {
		m.fail(fmt.Errorf("row %d has bounds [%v, %v]: give numbers, or -Inf below and +Inf above", r, lower,
			upper))
	}
	m.start = append(m.start, int32(len(m.index)))
	m.rowLower = append(m.rowLower, lower)
	m.rowUpper = append(m.rowUpper, upper)
	return r, true
}

func (m *Model) addEntry(r Row, v Var, coef float64) {
	switch {
	case v < 0 || int(v) >= len(m.cost):
		m.fail(fmt.Errorf("row %d names variable %d of %d: add the variable first", r, v, len(m.cost)))
	case math.IsNaN(coef) || math.IsInf(coef, 0):
		m.fail(fmt.Errorf("row %d has coefficient %v on variable %d: give a finite number", r, coef, v))
	case m.last[v] > m.start[r]:
		m.value[m.last[v]-1] += coef
	case len(m.index) >= maxEntries:
		m.fail(errors.New("more than 2^31 entries: aggregate the model before solving it"))
	default:
		m.index = append(m.index, int32(v))
		m.value = append(m.value, coef)
		m.last[v] = int32(len(m.index))
	}
}

func (m *Model) fail(err error) {
	if m.err == nil {
		m.err = fmt.Errorf("milp: malformed model: %w", err)
	}
}

// NumVars returns the number of variables.
func (m *Model) NumVars() int { return len(m.cost) }

// NumRows returns the number of rows.
func (m *Model) NumRows() int { return len(m.start) }

// row returns the entries of a row; the slices must not be changed.
func (m *Model) row(r int) (index []int32, value []float64) {
	end := len(m.index)
	if r+1 < len(m.start) {
		end = int(m.start[r+1])
	}
	return m.index[m.start[r]:end], m.value[m.start[r]:end]
}

// hasIntegers reports whether any variable must be whole.
func (m *Model) hasIntegers() bool {
	for _, whole := range m.integer {
		if whole {
			return true
		}
	}
	return false
}

// crossed reports whether some variable or row has its lower bound above its upper one, which no point
// satisfies. Solvers differ in whether they take that for an error, so it is answered here.
func (m *Model) crossed() bool {
	for j, lo := range m.lower {
		if lo > m.upper[j] {
			return true
		}
	}
	for i, lo := range m.rowLower {
		if lo > m.rowUpper[i] {
			return true
		}
	}
	return false
}

// withBounds returns a model that shares everything with m but its bounds and wholeness.
func (m *Model) withBounds(lower, upper []float64, integer []bool) *Model {
	c := *m
	c.lower, c.upper, c.integer = lower, upper, integer
	return &c
}

// withCost returns a model that shares everything with m but its cost.
func (m *Model) withCost(cost []float64) *Model {
	c := *m
	c.cost = cost
	return &c
}
