// Package batch scales a problem to another batch size or sequence length, and finds the largest that fits.
//
// Its duties:
//   - [Fit] makes a [Model] from a recording at one batch size, or at two; [FitSequence] from three or four
//     at different batch sizes and sequence lengths;
//   - [Model.Scaled] and [Model.ScaledTo] make the problem at another batch size and sequence length;
//   - [MaxBatch] searches for the largest batch that a question answers yes to.
package batch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Problem: a recording shows what its own batch size takes; the question is what another one would take.
//
// Approach: training code runs the same ops whatever the batch size, so recordings at several sizes match op
// by op and buffer by buffer. Sizes of tensors are polynomials: a constant for parameters, b x batch for
// activations, in a transformer c x batch x seq, and d x batch x seq^2 for attention scores. With as many
// recordings as terms, the value at another point is a weighted sum of the recorded ones, with the same
// weights for every buffer, duration, gap and workspace: one small linear system per point, solved in
// rational arithmetic, instead of one fit per buffer. Sizes of tensors are exact; durations are straight
// lines.
//
// From a single recording there is nothing to fit: what the category calls a parameter, its gradient or
// optimizer state stays, and everything else grows with the batch. That is a rule, not a measurement, so such
// a model is inferred and its problems say so.
//
// If recordings differ in shape (another op, another lifetime), no weighted sum means anything, and fitting
// is refused: libraries choose other algorithms at other batch sizes, last batches are smaller, or a
// recording began in another iteration.
//
// Complexity: O(ops + accesses + buffers) for a fit and for each scaled problem.
//
// Rejected: least squares over many recordings (small residuals would hide a misfit); a fit per buffer with a
// choice of terms (four recordings cannot tell a wrong choice from noise); taking durations from a hardware
// model (recorded ones are more accurate).

// Point is a problem with the batch size at which it was recorded and, for [FitSequence], its sequence
// length.
type Point struct {
	Batch    int
	Sequence int
	Problem  *plan.Problem
}

// Model makes problems of the shape of its recordings at other sizes. It is frozen; goroutines share it
// without locks.
type Model struct {
	points []Point
	// constant says for each buffer, in a model from one recording, whether it does not grow.
	constant []bool
	sequence bool
	notes    []string
}

// Limit is the largest batch size or sequence length that is asked about.
const Limit = 1 << 20

// ErrShape is wrapped by the error of a fit whose recordings do not match op by op.
var ErrShape = errors.New("the recordings differ in shape")

// Fit makes a model of one recording or of two at different batch sizes. From one, the model is inferred; see
// [Model.Inferred].
func Fit(points ...Point) (*Model, error) {
	if len(points) != 1 && len(points) != 2 {
		return nil, fmt.Errorf("fit batch sizes: %d recordings given; give one, or two "+
			"at different batch sizes", len(points))
	}
	m := &Model{points: slices.Clone(points)}
	if err := m.match(); err != nil {
		return nil, fmt.Errorf("fit batch sizes: %w", err)
	}
	if len(points) == 1 {
		m.constant = plan.Constants(points[0].Problem)
		return m, nil
	}
	if points[0].Batch == points[1].Batch {
		return nil, fmt.Errorf("fit batch sizes: both recordings are of batch %d; record "+
			"one at another batch size", points[0].Batch)
	}
	if points[0].Sequence != points[1].Sequence {
		return nil, fmt.Errorf("fit batch sizes: the recordings have sequence lengths %d and "+
			"%d; keep it the same, "+
			"or fit sequence lengths from three", points[0].Sequence, points[1].Sequence)
	}
	m.shrinking()
	return m, nil
}

// FitSequence makes a model of three recordings, a + b x batch + c x batch x seq, or of four, which adds d x
// batch x seq^2: without fused attention the fourth is needed. They must tell the terms apart: two batch
// sizes, and two sequence lengths, or three for four recordings.
func FitSequence(points ...Point) (*Model, error) {
	if len(points) != 3 && len(points) != 4 {
		return nil, fmt.Errorf("fit sequence lengths: %d recordings given; give three, or four with "+
			"attention that is not fused", len(points))
	}
	m := &Model{points: slices.Clone(points), sequence: true}
	for _, p := range points {
		if p.Sequence < 1 || p.Sequence > Limit {
			return nil, fmt.Errorf("fit sequence lengths: sequence length %d is not between 1 and %d",
				p.Sequence, Limit)
		}
	}
	if err := m.match(); err != nil {
		return nil, fmt.Errorf("fit sequence lengths: %w", err)
	}
	if _, err := m.weights(points[0].Batch, points[0].Sequence); err != nil {
		return nil, fmt.Errorf("fit sequence lengths: %w", err)
	}
	if len(points) == 3 {
		m.notes = append(m.notes, "~ three recordings leave no term for the squares of attention that is "+
			"not fused: record a fourth if there is any")
	}
	return m, nil
}

// Inferred reports whether the model is based on a rule about categories, from a single recording, and not on
// two or more that agree. Its figures must be marked as inferred.
func (m *Model) Inferred() bool { return len(m.points) == 1 }

// match checks that all recordings have the shape of the first.
func (m *Model) match() error {
	for i, x := range m.points {
		if x.Problem == nil {
			return errors.New("a recording is missing: its problem is nil")
		}
		if x.Batch < 1 || x.Batch > Limit {
			return fmt.Errorf("batch %d is not between 1 and %d; say at which batch size "+
				"the recording was made", x.Batch, Limit)
		}
		if i > 0 {
			if why := differ(m.points[0].Problem, x.Problem); why != "" {
				return fmt.Errorf("%w: %s; record both with the same code and settings, "+
					"changing only the size", ErrShape, why)
			}
		}
	}
	return nil
}

// differ says how two problems differ in anything except sizes and durations; "" if they do not.
func differ(p, q *plan.Problem) string {
	switch {
	case p.Kind != q.Kind:
		return fmt.Sprintf("one is of kind %s and one of kind %s", p.Kind, q.Kind)
	case p.Hardware.Name != q.Hardware.Name:
		return fmt.Sprintf("one is on %s and one on %s", p.Hardware.Name, q.Hardware.Name)
	case p.Align != q.Align || p.Streams != q.Streams:
		return "they differ in alignment or streams"
	}
	for i := range min(len(p.Ops), len(q.Ops)) {
		a, b := &p.Ops[i], &q.Ops[i]
		switch {
		case stem(a.Name) != stem(b.Name):
			return fmt.Sprintf("op %d is %s in one and %s in another", i, a.Name, b.Name)
		case a.Stream != b.Stream || a.Phase != b.Phase || len(a.Variants) != len(b.Variants) ||
			a.Workspace != b.Workspace:
			return fmt.Sprintf("op %d (%s) differs in stream, phase or algorithms", i, a.Name)
		case !slices.Equal(p.AccessesOf(plan.OpID(i)), q.AccessesOf(plan.OpID(i))):
			return fmt.Sprintf("op %d (%s) touches other buffers", i, a.Name)
		}
		for k := range a.Variants {
			if a.Variants[k].Name != b.Variants[k].Name {
				return fmt.Sprintf("op %d (%s) has other algorithms", i, a.Name)
			}
		}
	}
	if len(p.Ops) != len(q.Ops) {
		return fmt.Sprintf("one has %d ops and one %d", len(p.Ops), len(q.Ops))
	}
	for i := range min(len(p.Buffers), len(q.Buffers)) {
		a, b := &p.Buffers[i], &q.Buffers[i]
		switch {
		case stem(a.Name) != stem(b.Name):
			return fmt.Sprintf("buffer %d is %s in one and %s in another", i, a.Name, b.Name)
		case a.Life != b.Life || a.Start != b.Start || a.End != b.End || a.Stream != b.Stream:
			return fmt.Sprintf("buffer %d (%s) lives [%d, %d) in one and [%d, %d) in another", i, a.Name,
				a.Start, a.End, b.Start, b.End)
		case a.Category != b.Category:
			return fmt.Sprintf("buffer %d (%s) is %s in one and %s in another", i, a.Name, a.Category,
				b.Category)
		}
	}
	if len(p.Buffers) != len(q.Buffers) {
		return fmt.Sprintf("one has %d buffers and one %d", len(p.Buffers), len(q.Buffers))
	}
	return ""
}

// stem takes addresses out of a name: they change from run to run.
func stem(name string) string {
	const shortest = 6 // hexadecimal digits of an address
	var b strings.Builder
	digits := 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && strings.IndexByte("0123456789abcdefABCDEF", name[i]) >= 0 {
			digits++
			continue
		}
		if run := name[i-digits : i]; digits < shortest || !strings.ContainsAny(run, "0123456789") {
			b.WriteString(run)
		} else {
			b.WriteByte('#')
		}
		digits = 0
		if i < len(name) {
			b.WriteByte(name[i])
		}
	}
	return b.String()
}

// shrinking notes buffers that are smaller at the larger batch.
func (m *Model) shrinking() {
	small, large := m.points[0], m.points[1]
	if small.Batch > large.Batch {
		small, large = large, small
	}
	n := 0
	for i := range small.Problem.Buffers {
		if small.Problem.Buffers[i].Size > large.Problem.Buffers[i].Size {
			n++
		}
	}
	if n > 0 {
		m.notes = append(m.notes, fmt.Sprintf("~ %d buffers are smaller at batch %d than at %d: "+
			"another algorithm was probably chosen, and a line through them means little", n, large.Batch,
			small.Batch))
	}
}

// Scaled returns the problem at another batch size, at the sequence length of the first recording. Its name
// and notes say that it was scaled and from what.
func (m *Model) Scaled(batch int) (*plan.Problem, error) {
	return m.ScaledTo(batch, m.points[0].Sequence)
}

// ScaledTo returns the problem at another batch size and sequence length; at those of a recording, that
// recording's own problem. A model of [Fit] knows only the sequence length of its recordings.
func (m *Model) ScaledTo(batch, sequence int) (*plan.Problem, error) {
	first := m.points[0]
	switch {
	case batch < 1 || batch > Limit:
		return nil, fmt.Errorf("scale %s: batch %d is not between 1 and %d", first.Problem.Name, batch, Limit)
	case !m.sequence && sequence != first.Sequence:
		return nil, fmt.Errorf("scale %s: its recordings have one sequence length, %d; "+
			"record others and fit those",
			first.Problem.Name, first.Sequence)
	case m.sequence && (sequence < 1 || sequence > Limit):
		return nil, fmt.Errorf("scale %s: sequence length %d is not between 1 and %d", first.Problem.Name,
			sequence, Limit)
	}
	for _, x := range m.points {
		if x.Batch == batch && (!m.sequence || x.Sequence == sequence) {
			return x.Problem, nil
		}
	}
	w, err := m.weights(batch, sequence)
	if err != nil {
		return nil, fmt.Errorf("scale %s: %w", first.Problem.Name, err)
	}
	q, err := m.sum(w)
	if err != nil {
		return nil, fmt.Errorf("scale %s: %w", first.Problem.Name, err)
	}
	m.say(q, batch, sequence)
	if err := q.Finish(); err != nil {
		return nil, fmt.Errorf("scale %s to batch %d: %w", first.Problem.Name, batch, err)
	}
	return q, nil
}

// sum makes the problem whose every figure is the weighted sum of the recorded ones.
func (m *Model) sum(w []float64) (*plan.Problem, error) {
	q := *m.points[0].Problem
	q.Buffers, q.Ops, q.Notes = slices.Clone(q.Buffers), slices.Clone(q.Ops), slices.Clone(q.Notes)
	var largest float64
	figure := func(grows bool, of func(p *plan.Problem) int64) int64 {
		if m.constant != nil && !grows {
			return of(m.points[0].Problem)
		}
		var sum float64
		for i := range m.points {
			sum += w[i] * float64(of(m.points[i].Problem))
		}
		largest = max(largest, sum)
		return int64(math.Round(min(max(sum, 0), 1<<62)))
	}
	for i := range q.Buffers {
		q.Buffers[i].Size = figure(m.constant == nil || !m.constant[i], func(p *plan.Problem) int64 {
			return p.Buffers[i].Size
		})
	}
	for i := range q.Ops {
		op := &q.Ops[i]
		grows := op.Phase != traces.PhaseOptimizer && op.Class != plan.ClassOptimizer
		op.Duration = figure(grows, func(p *plan.Problem) int64 { return p.Ops[i].Duration })
		op.Gap = figure(false, func(p *plan.Problem) int64 { return p.Ops[i].Gap })
		op.Variants = slices.Clone(op.Variants)
		for k := range op.Variants {
			v := &op.Variants[k]
			v.Duration = figure(grows, func(p *plan.Problem) int64 { return p.Ops[i].Variants[k].Duration })
			v.Workspace = figure(true, func(p *plan.Problem) int64 { return p.Ops[i].Variants[k].Workspace })
		}
	}
	q.Outside = figure(false, func(p *plan.Problem) int64 { return p.Outside })
	if largest > 1<<60 || math.IsNaN(largest) {
		return nil, fmt.Errorf("%w problem: a size or duration passes 2^60; ask for smaller sizes",
			plan.ErrInvalid)
	}
	return &q, nil
}

// say names the scaled problem, and notes where its figures come from.
func (m *Model) say(q *plan.Problem, batch, sequence int) {
	size := func(b, s int) string {
		if m.sequence {
			return fmt.Sprintf("%d x %d", b, s)
		}
		return fmt.Sprint(b)
	}
	from := make([]string, len(m.points))
	for i, x := range m.points {
		from[i] = size(x.Batch, x.Sequence)
	}
	at := size(batch, sequence)
	q.Name = fmt.Sprintf("%s scaled to batch %s", q.Name, at)
	q.TimesInferred = true
	q.Notes = append(q.Notes, m.notes...)
	if m.Inferred() {
		q.Notes = append(q.Notes, fmt.Sprintf("~ scaled from one recording at batch %s: "+
			"parameters, their gradients and "+
			"optimizer state kept, everything else, workspaces too, in proportion to the batch; record a "+
			"second batch size to replace this rule", from[0]))
		return
	}
	q.Notes = append(q.Notes, fmt.Sprintf("~ sizes and times at batch %s are computed from recordings at %s",
		at, strings.Join(from, ", ")))
}
