package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The search asks at 1, 2, 4, ... until a batch does not fit, then halves the interval between the last that
// did and the first that did not: about twice log2 of the answer questions. Each is a plan, so there is no
// cheaper way to ask, and a guess from the load's slope would save few.

// MaxBatch returns the largest batch size up to [Limit] that fits, 0 if not even 1 does. scaled makes the
// problem at a batch size, such as [Model.Scaled]; fits answers for a problem, for example by planning it
// within a budget. A [plan.TooSmall] from fits counts as no; any other error ends the search. It assumes that
// if a batch size fits, every smaller one does too; with a planner that is not monotone, a larger size than
// the answer may fit. When the context is cancelled it returns the largest size that has fit so far, with the
// context's error.
func MaxBatch(ctx context.Context, scaled func(batch int) (*plan.Problem, error),
	fits func(*plan.Problem) (bool, error)) (int, error) {
	ask := func(batch int) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		p, err := scaled(batch)
		if err != nil {
			return false, fmt.Errorf("max batch: %w", err)
		}
		ok, err := fits(p)
		if err != nil {
			if errors.As(err, new(*plan.TooSmall)) {
				return false, nil
			}
			return false, fmt.Errorf("max batch: at batch %d: %w", batch, err)
		}
		return ok, nil
	}
	yes, no := 0, 1
	for ; no <= Limit; no *= 2 {
		ok, err := ask(no)
		if err != nil {
			return yes, err
		}
		if !ok {
			break
		}
		yes = no
	}
	for no-yes > 1 && yes < Limit {
		middle := yes + (no-yes)/2
		ok, err := ask(middle)
		if err != nil {
			return yes, err
		}
		if ok {
			yes = middle
		} else {
			no = middle
		}
	}
	return yes, nil
}
