package milp

import (
	"bufio"
	"io"
	"math"
	"strconv"
)

// scaling holds the powers of two a model is multiplied by on its way to a solver.
type scaling struct {
	cost float64
	rows []float64
}

func (m *Model) scaling() scaling {
	s := scaling{cost: scaleOf(m.cost), rows: make([]float64, m.NumRows())}
	for i := range s.rows {
		_, value := m.row(i)
		s.rows[i] = scaleOf(value)
	}
	return s
}

// unscale turns the duals of the scaled model into those of the caller's, in place.
func (s scaling) unscale(dual []float64) {
	for i := range dual {
		dual[i] = dual[i]*s.rows[i]/s.cost + 0 // adding 0 turns -0 into 0
	}
}

// mpsWriter writes fields separated by spaces and remembers the first error through its bufio.Writer.
type mpsWriter struct {
	*bufio.Writer
	buf []byte
}

func (w *mpsWriter) name(prefix byte, i int) {
	w.buf = append(w.buf[:0], ' ', prefix)
	w.buf = strconv.AppendInt(w.buf, int64(i), 10)
	w.Write(w.buf)
}

func (w *mpsWriter) number(v float64) {
	w.buf = strconv.AppendFloat(append(w.buf[:0], ' '), v, 'g', -1, 64)
	w.Write(w.buf)
}

// writeMPS writes the model in free MPS format, in which every solver reads it: variables are named C0, C1
// and so on, rows R0, R1 and so on, and the objective cost. Numbers are written so that they read back
// exactly. Rows with two infinite bounds are left out; relaxed leaves out that variables are whole.
func (m *Model) writeMPS(out io.Writer, s scaling, relaxed bool) error {
	if m.err != nil {
		return m.err
	}
	w := &mpsWriter{Writer: bufio.NewWriterSize(out, 1<<16)}
	w.WriteString("NAME milp FREE\nROWS\n N cost\n")
	for i, lo := range m.rowLower {
		if kind := rowKind(lo, m.rowUpper[i]); kind != 0 {
			w.WriteByte(' ')
			w.WriteByte(kind)
			w.name('R', i)
			w.WriteByte('\n')
		}
	}
	m.writeColumns(w, s, relaxed)
	w.WriteString("RHS\n")
	for i, lo := range m.rowLower {
		rhs := lo
		switch rowKind(lo, m.rowUpper[i]) {
		case 0:
			continue
		case 'L':
			rhs = m.rowUpper[i]
		}
		if rhs != 0 {
			w.WriteString(" RHS")
			w.name('R', i)
			w.number(rhs * s.rows[i])
			w.WriteByte('\n')
		}
	}
	w.WriteString("RANGES\n")
	for i, lo := range m.rowLower {
		if hi := m.rowUpper[i]; rowKind(lo, hi) == 'G' && !math.IsInf(hi, 1) {
			w.WriteString(" RNG")
			w.name('R', i)
			w.number((hi - lo) * s.rows[i])
			w.WriteByte('\n')
		}
	}
	m.writeBounds(w)
	w.WriteString("ENDATA\n")
	return w.Flush()
}

// rowKind returns the MPS letter of a row, G standing for ranges too, or 0 for a row without bounds.
func rowKind(lo, hi float64) byte {
	switch {
	case lo == hi:
		return 'E'
	case !math.IsInf(lo, -1):
		return 'G'
	case !math.IsInf(hi, 1):
		return 'L'
	}
	return 0
}

// writeColumns writes the entries by column, which takes the transpose of the rows.
func (m *Model) writeColumns(w *mpsWriter, s scaling, relaxed bool) {
	start := make([]int32, len(m.cost)+1)
	for _, j := range m.index {
		start[j+1]++
	}
	for j := range m.cost {
		start[j+1] += start[j]
	}
	rows, values := make([]int32, len(m.index)), make([]float64, len(m.index))
	next := append([]int32(nil), start...)
	for i := range m.start {
		index, value := m.row(i)
		for k, j := range index {
			rows[next[j]], values[next[j]] = int32(i), value[k]*s.rows[i]
			next[j]++
		}
	}
	w.WriteString("COLUMNS\n")
	whole := false
	for j, c := range m.cost {
		if is := m.integer[j] && !relaxed; is != whole {
			whole = is
			writeMarker(w, whole)
		}
		w.name('C', j)
		w.WriteString(" cost")
		w.number(c * s.cost)
		w.WriteByte('\n')
		for k := start[j]; k < start[j+1]; k++ {
			if i := rows[k]; rowKind(m.rowLower[i], m.rowUpper[i]) != 0 {
				w.name('C', j)
				w.name('R', int(i))
				w.number(values[k])
				w.WriteByte('\n')
			}
		}
	}
	if whole {
		writeMarker(w, false)
	}
}

func writeMarker(w *mpsWriter, open bool) {
	if open {
		w.WriteString(" M 'MARKER' 'INTORG'\n")
	} else {
		w.WriteString(" M 'MARKER' 'INTEND'\n")
	}
}

// writeBounds writes both bounds of every variable: readers disagree about the bounds of a whole variable
// that has none.
func (m *Model) writeBounds(w *mpsWriter) {
	bound := func(kind string, j int, v float64) {
		w.WriteString(kind)
		w.name('C', j)
		if !math.IsInf(v, 0) {
			w.number(v)
		}
		w.WriteByte('\n')
	}
	w.WriteString("BOUNDS\n")
	for j, lo := range m.lower {
		hi := m.upper[j]
		switch below, above := math.IsInf(lo, -1), math.IsInf(hi, 1); {
		case below && above:
			bound(" FR BND", j, lo)
			continue
		case lo == hi:
			bound(" FX BND", j, lo)
			continue
		case below:
			bound(" MI BND", j, lo)
		default:
			bound(" LO BND", j, lo)
		}
		if math.IsInf(hi, 1) {
			bound(" PL BND", j, hi)
		} else {
			bound(" UP BND", j, hi)
		}
	}
}
