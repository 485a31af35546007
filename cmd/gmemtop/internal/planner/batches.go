package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
)

// scaled makes the problem at a batch size.
type scaled func(batch int) (*plan.Problem, error)

// largestBatch finds the largest batch whose plan by one manager fits.
// It calls asked with each size it tries.
func largestBatch(ctx context.Context, m plan.Manager, at scaled, opt replay.Options,
	asked func(batch int)) (int, error) {
	opt.Update, opt.Parallel, opt.Eager = nil, 1, nil
	problem := func(n int) (*plan.Problem, error) {
		asked(n)
		return at(n)
	}
	return batch.MaxBatch(ctx, problem, func(p *plan.Problem) (bool, error) {
		one, err := replay.Compare(ctx, p, []plan.Manager{m}, opt)
		if errors.Is(err, replay.ErrTooSmall) {
			return false, nil
		}
		return err == nil && one.Results[0].Available && one.Results[0].Fits, err
	})
}

// recordings show how sizes grow.
type recordings struct {
	N int
	// Problem makes the problem of recording i, counted from 0. The first one's is already known.
	Problem func(i int) (*plan.Problem, error)
}

// largestBatches finds, for every manager of a comparison of this task, the largest batch whose plan fits the
// budget. It calls tell with its progress.
func (t *Task) largestBatches(ctx context.Context, c *replay.Comparison, list []plan.Manager,
	opt replay.Options, r recordings, tell func(string)) error {
	at, inferred, err := t.scaling(c.Problem, r)
	if err != nil {
		return err
	}
	c.BatchSequence = t.AtSequence
	for i, m := range list {
		k := slices.IndexFunc(c.Results, func(r replay.Result) bool {
			return r.Available && r.Info.Name == m.Info().Name && r.Executor == plan.Ideal
		})
		if k < 0 {
			continue
		}
		head := fmt.Sprintf("max batch: %d of %d managers · %s", i, len(list), m.Info().Name)
		tell(head)
		largest, err := largestBatch(ctx, m, at, opt, func(n int) { tell(fmt.Sprintf("%s at %d", head, n)) })
		if err != nil {
			return err
		}
		x := &c.Results[k]
		x.MaxBatch, x.MaxBatchKnown, x.MaxBatchInferred = largest, true, inferred
		if c.BatchNotes == nil {
			if c.BatchNotes, err = t.batchNotes(c.Problem, at, largest); err != nil {
				return err
			}
		}
	}
	return nil
}

// batchNotes says what sizes at other batches are based on: the recordings, and what the problem at another
// size notes beyond the notes of p.
func (t *Task) batchNotes(p *plan.Problem, at scaled, largest int) ([]string, error) {
	notes := []string{}
	if n := len(t.Batch); n > 1 {
		var from []string
		for i := range n {
			from = append(from, strconv.Itoa(t.Batch[i]))
			if i < len(t.Sequence) {
				from[i] += fmt.Sprintf(" x %d", t.Sequence[i])
			}
		}
		notes = append(notes, "~ sizes and times at other batches are computed from recordings at "+
			strings.Join(from, ", "))
	}
	q, err := at(largest + 1) // a size that no recording has
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

// scaling returns a function that makes the problem at any batch size, from the network's layers or from a
// model fitted to recordings, the first of which has the problem p.
func (t *Task) scaling(p *plan.Problem, r recordings) (at scaled, inferred bool, err error) {
	if t.Network != "" {
		return t.OfNetwork, false, nil
	}
	if err := t.checkSizes(r.N); err != nil {
		return nil, false, err
	}
	points, err := t.points(p, r)
	if err != nil {
		return nil, false, err
	}
	fit := batch.Fit
	if len(t.Sequence) > 0 && len(points) > 1 {
		fit = batch.FitSequence
	}
	model, err := fit(points...)
	switch {
	case errors.Is(err, batch.ErrShape):
		return nil, false, fmt.Errorf("--max-batch: %w", err)
	case err != nil:
		return nil, false, exit.Mistakef("--max-batch: %w", err)
	case len(t.Sequence) == 0 || len(points) == 1:
		return model.Scaled, model.Inferred(), nil
	}
	length := t.AtSequence
	if length == 0 {
		length = t.Sequence[0]
	}
	return func(n int) (*plan.Problem, error) { return model.ScaledTo(n, length) }, model.Inferred(), nil
}

// checkSizes rejects sizes that do not match the number of recordings.
func (t *Task) checkSizes(recordings int) error {
	lengths := len(t.Sequence)
	switch {
	case len(t.Batch) != recordings:
		example := strings.Join([]string{"32", "64", "32", "32"}[:recordings], ",")
		return exit.Mistakef("--max-batch needs the batch size that each file was recorded at: --batch %s",
			example)
	case lengths == 0 && t.AtSequence != 0:
		return exit.Mistakef("--at-sequence needs the sequence length of each recording: --sequence " +
			"512,512,1024")
	case lengths == 0 && recordings > 2:
		return exit.Mistakef("to separate batch from sequence length, give %d recordings with "+
			"--sequence, one length per file; two are enough for the batch alone", recordings)
	case t.AtSequence != 0 && recordings < 3 && t.AtSequence != t.Sequence[0]:
		return exit.Mistakef("--at-sequence needs three recordings or four, at two batch sizes and two " +
			"sequence lengths, to know how sizes grow with each")
	case lengths != 0 && lengths != recordings:
		return exit.Mistakef("--sequence gives %d lengths for %d files: one a file, in their order", lengths,
			recordings)
	}
	return nil
}

// points returns the recordings with their sizes.
func (t *Task) points(p *plan.Problem, r recordings) ([]batch.Point, error) {
	points := make([]batch.Point, r.N)
	for i := range points {
		points[i] = batch.Point{Batch: t.Batch[i], Problem: p}
		if len(t.Sequence) > 0 {
			points[i].Sequence = t.Sequence[i]
		}
		if i > 0 {
			var err error
			if points[i].Problem, err = r.Problem(i); err != nil {
				return nil, err
			}
		}
	}
	return points, nil
}
