package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
)

// maxBatches finds, for every manager of a comparison, the largest batch whose plan fits in the budget.
func (c *compareCommand) maxBatches(ctx context.Context, made *replay.Comparison, list []plan.Manager,
	opt replay.Options) error {
	at, inferred, err := c.scaling(ctx, made.Problem)
	if err != nil {
		return err
	}
	made.BatchSequence = c.plan.atSequence
	bar := c.newProgress()
	defer bar.Done()
	for i, m := range list {
		k := slices.IndexFunc(made.Results, func(r replay.Result) bool {
			return r.Available && r.Info.Name == m.Info().Name && r.Executor == plan.Ideal
		})
		if k < 0 {
			continue
		}
		head := fmt.Sprintf("max batch: %d of %d managers · %s", i, len(list), m.Info().Name)
		bar.Say(head)
		largest, err := planner.LargestBatch(ctx, m, at, opt,
			func(n int) { bar.Say(fmt.Sprintf("%s at %d", head, n)) })
		if err != nil {
			return err
		}
		r := &made.Results[k]
		r.MaxBatch, r.MaxBatchKnown, r.MaxBatchInferred = largest, true, inferred
		if made.BatchNotes == nil {
			if made.BatchNotes, err = c.plan.batchNotes(made.Problem, at, largest); err != nil {
				return err
			}
		}
	}
	return nil
}

// batchNotes say what sizes at other batches rest on: the recordings, and what the problem at some other size
// says about itself beside what p says.
func (f *planFlags) batchNotes(p *plan.Problem, at planner.Scaled, largest int) ([]string, error) {
	notes := []string{}
	if n := len(f.batch); n > 1 {
		var from []string
		for i := range n {
			from = append(from, strconv.Itoa(f.batch[i]))
			if i < len(f.sequence) {
				from[i] += fmt.Sprintf(" x %d", f.sequence[i])
			}
		}
		notes = append(notes, "~ sizes and times at other batches are computed from recordings at "+strings.Join(from, ", "))
	}
	q, err := at(largest + 1) // some size that is no recording's own
	if err != nil {
		return nil, err
	}
	for _, n := range q.Notes {
		if strings.HasPrefix(n, "~") && !slices.Contains(p.Notes, n) &&
			!strings.HasPrefix(n, "~ sizes and times at batch") {
			notes = append(notes, n)
		}
	}
	return notes, nil
}

// scaling returns what makes the problem at any batch size: the network's layers, or a model fitted to
// recordings.
func (c *compareCommand) scaling(ctx context.Context, p *plan.Problem) (at planner.Scaled, inferred bool,
	err error) {
	if c.plan.network != "" {
		return c.plan.made, false, nil
	}
	points, err := c.points(ctx, p)
	if err != nil {
		return nil, false, err
	}
	if len(c.plan.sequence) == 0 || len(points) == 1 {
		model, err := batch.Fit(points...)
		if err != nil {
			return nil, false, unfitted(err)
		}
		return model.Scaled, model.Inferred(), nil
	}
	model, err := batch.FitSequence(points...)
	if err != nil {
		return nil, false, unfitted(err)
	}
	length := c.plan.atSequence
	if length == 0 {
		length = c.plan.sequence[0]
	}
	return func(n int) (*plan.Problem, error) { return model.ScaledTo(n, length) }, model.Inferred(), nil
}

// unfitted turns recordings that no model can be fitted to into a mistake of the command line, which names
// the files.
func unfitted(err error) error {
	if errors.Is(err, batch.ErrShape) {
		return fmt.Errorf("--max-batch: %w", err)
	}
	return usageError{fmt.Errorf("--max-batch: %w", err)}
}

// points are the recordings with the sizes that the flags give them; the first is p's.
func (c *compareCommand) points(ctx context.Context, p *plan.Problem) ([]batch.Point, error) {
	example := strings.Join([]string{"32", "64", "32", "32"}[:len(c.paths)], ",")
	switch {
	case len(c.plan.batch) != len(c.paths):
		return nil, usageError{fmt.Errorf("--max-batch needs the batch size that each file was recorded "+
			"at: --batch %s", example)}
	case len(c.plan.sequence) == 0 && c.plan.atSequence != 0:
		return nil, usageError{errors.New("--at-sequence needs the sequence length of each recording: " +
			"--sequence 512,512,1024")}
	case len(c.plan.sequence) == 0 && len(c.paths) > 2:
		return nil, usageError{fmt.Errorf("batch and sequence length are told apart by %d recordings with "+
			"--sequence, one length a file; two suffice for the batch alone", len(c.paths))}
	case c.plan.atSequence != 0 && len(c.paths) < 3 && c.plan.atSequence != c.plan.sequence[0]:
		return nil, usageError{errors.New("--at-sequence needs three recordings or four, at two batch " +
			"sizes and two sequence lengths, to know how sizes grow with each")}
	case len(c.plan.sequence) != 0 && len(c.plan.sequence) != len(c.paths):
		return nil, usageError{fmt.Errorf("--sequence gives %d lengths for %d files: one a file, in "+
			"their order", len(c.plan.sequence), len(c.paths))}
	}
	var points []batch.Point
	for i, path := range c.paths {
		x := batch.Point{Batch: c.plan.batch[i], Problem: p}
		if len(c.plan.sequence) > 0 {
			x.Sequence = c.plan.sequence[i]
		}
		if i > 0 {
			other, readErr, err := c.recorded(ctx, path)
			if err := firstError(err, readErr); err != nil {
				return nil, err
			}
			x.Problem = other
		}
		points = append(points, x)
	}
	return points, nil
}

// networkOptions are what the flags say about --network.
func (f *planFlags) networkOptions() (networks.Options, error) {
	switch len(f.sequence) {
	case 0:
		return networks.Options{Sequence: f.atSequence}, nil
	case 1:
		return networks.Options{Sequence: f.sequence[0]}, nil
	}
	return networks.Options{}, usageError{errors.New("--network has one sequence length: --sequence 1024")}
}
