package batch

import (
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Scale makes problems at any batch size and, where its recordings tell that, at any sequence length,
// using the best model its recordings allow.
//
// Two recordings at two lengths give a straight line in the length, and the rule about categories applies to
// the batch. Attention that is not fused grows faster than a line: what such a Scale says is
// inferred.
type Scale struct {
	points []Point
	// in batch sizes, in lengths where byLength, in both where there are three recordings or more
	model    *Model
	byLength bool
}

// Errors of sequence lengths that cannot be told.
var (
	errBoth = errors.New("the two recordings differ in batch and in sequence length, which tells neither: " +
		"keep one of the two the same")
	errOne = errors.New("how sizes grow with the sequence is not known from one length: open a second " +
		"recording, at the same batch and another length")
)

// Scaling makes a Scale from one to four recordings. Sequence lengths may be left out, as 0, if they are the
// same.
func Scaling(points ...Point) (*Scale, error) {
	s := &Scale{points: points}
	var err error
	switch {
	case len(points) > 2:
		s.model, err = FitSequence(points...)
	case len(points) == 2 && points[0].Sequence != points[1].Sequence:
		if points[0].Batch != points[1].Batch {
			return nil, errBoth
		}
		s.byLength = true
		lines := make([]Point, len(points))
		for i, x := range points {
			lines[i] = Point{Batch: x.Sequence, Problem: x.Problem}
		}
		s.model, err = Fit(lines...)
	default:
		s.model, err = Fit(points...)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Inferred reports whether an answer is based on a rule and not on as many recordings as there are terms.
func (s *Scale) Inferred() bool { return s.byLength || s.model.Inferred() }

// At returns the problem at a batch size and a sequence length, 0 for that of the first recording.
func (s *Scale) At(size, sequence int) (*plan.Problem, error) {
	first := s.points[0]
	if sequence == 0 {
		sequence = first.Sequence
	}
	switch {
	case s.model.sequence:
		return s.model.ScaledTo(size, sequence)
	case !s.byLength && sequence != first.Sequence:
		return nil, fmt.Errorf("scale %s: %w", first.Problem.Name, errOne)
	case !s.byLength:
		return s.model.Scaled(size)
	}
	p, err := s.model.Scaled(sequence)
	if err != nil || size == first.Batch {
		return p, err
	}
	m, err := Fit(Point{Batch: first.Batch, Problem: p})
	if err != nil {
		return nil, err
	}
	return m.Scaled(size)
}
