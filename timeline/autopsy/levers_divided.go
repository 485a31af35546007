package autopsy

import (
	"context"
	"fmt"
)

// How much smaller does a batch have to be? Half of it is the first thing to try. Where that is not enough,
// an expert says how far to go: "an eighth of it fits". So a lever that divides something has degrees, and
// the first that helps is offered: 2, 4 and then 8 parts.
//
// Whether a degree helps shows when the run is played with it, so callers ask for further degrees one by one
// (Lever.Divide), and only for those they need: each costs a pass over the recording. Before anything is
// tried, arithmetic excludes degrees that cannot even free what the failed request lacks.
//
// Rejected: three quarters, since batches are mostly powers of two; exact shares, since activations do not
// scale to the byte, and the batch has to be a whole number; more than eight parts, where something else is
// wrong with the training.

const (
	halves = 2
	// mostParts is the last degree.
	mostParts = 8
)

// MoreParts are the degrees after half, in the order in which they are to be tried.
func MoreParts() []int64 { return []int64{4, mostParts} }

// divided makes a lever in two parts, or in the first number of parts that may serve the failed request.
func (c *leverCase) divided(in func(parts int64) (Lever, bool)) (Lever, bool) {
	l, ok := in(halves)
	if !ok {
		return l, false
	}
	l.Parts, l.Effect.Changes = halves, c.tried
	if l.Fits == DoesNotFit {
		for _, parts := range MoreParts() {
			if m, ok := in(parts); ok && m.Fits != DoesNotFit {
				l = m
				l.Parts, l.Effect.Changes = parts, c.tried
				break
			}
		}
	}
	c.tried = l.Effect.Changes
	l.Divide = func(ctx context.Context, parts int64) (Lever, bool, error) {
		c.ctx, c.tried = ctx, nil
		m, ok := in(parts)
		if !ok || c.err != nil {
			return Lever{}, false, c.err
		}
		m.Parts, m.Effect.Changes = parts, c.tried
		err := c.finish(&m)
		return m, err == nil, err
	}
	return l, true
}

// Fraction names one of some equal parts: half, a quarter, an eighth.
func Fraction(parts int64) string {
	switch parts {
	case halves:
		return "half"
	case 4:
		return "a quarter"
	case mostParts:
		return "an eighth"
	}
	return fmt.Sprintf("1/%d", parts)
}

// ofIt is Fraction in front of a noun: half the area, a quarter of the area.
func ofIt(parts int64) string {
	if parts == halves {
		return Fraction(parts)
	}
	return Fraction(parts) + " of"
}

// numeral is a small number as a word.
func numeral(n int64) string {
	words := []string{"none", "one", "two", "three", "four", "five", "six", "seven", "eight"}
	if n >= 0 && n < int64(len(words)) {
		return words[n]
	}
	return fmt.Sprint(n)
}

// dividedWords name levers that divide something into more than two parts.
var dividedWords = map[string]string{
	microBatch:      "%s of the micro-batch",
	"smaller_input": "%s of the input",
	"cap_sequence":  "%s of the length",
}
