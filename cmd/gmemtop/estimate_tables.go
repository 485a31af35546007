package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/fit"
)

// asIs is the --alloc-conf that leaves the environment's settings as they are.
const asIs = "default"

// chosenSettings returns the only --alloc-conf, "" for none.
func (e *estimateCommand) chosenSettings() string {
	if len(e.allocConf) == 0 || e.allocConf[0] == asIs {
		return ""
	}
	return e.allocConf[0]
}

// oneSize returns an error where a table is asked for together with what reports of one size cannot have.
func (e *estimateCommand) oneSize(table string) error {
	if e.flags.json || e.maxBatch || e.flags.output != "" || e.snapshot != "" || len(e.sizes.All()) > 1 {
		return fmt.Errorf("%s is a table of one size: leave --json, --max-batch, -o, --snapshot and further "+
			"sizes out", table)
	}
	return nil
}

// choose has a training run on a card, or with the emulated allocator where there is none, with settings of
// the allocator.
func (e *estimateCommand) choose(t *fit.Training, cards []standin.Card, settings string) {
	if len(cards) > 0 {
		t.Real = &fit.Real{Card: cards[0], AllocConf: settings, Building: func() {
			e.note("compiling the stand-in GPU for this torch, once: that takes about a minute")
		}}
		return
	}
	t.Real = nil
	if settings == "" {
		return
	}
	if t.Options.Env == nil {
		t.Options.Env = os.Environ()
	}
	t.Options.Env = append(slices.Clone(t.Options.Env), "PYTORCH_CUDA_ALLOC_CONF="+settings,
		"PYTORCH_ALLOC_CONF="+settings)
}

// onCards runs the command on each card.
func (e *estimateCommand) onCards(ctx context.Context, cards []standin.Card) error {
	return e.table(ctx, len(cards), (*fit.Table).WriteCards, func(i int) (fit.Row, *fit.Training) {
		t := e.Training
		t.Budget = cards[i].Memory
		e.choose(&t, cards[i:i+1], e.chosenSettings())
		return fit.Row{Name: cards[i].Name, Memory: cards[i].Memory}, &t
	})
}

// withSettings runs the command with each of several settings of the allocator.
func (e *estimateCommand) withSettings(ctx context.Context, cards []standin.Card) error {
	if err := e.oneSize("several --alloc-conf"); err != nil {
		return usageError{err}
	}
	return e.table(ctx, len(e.allocConf), (*fit.Table).WriteSettings, func(i int) (fit.Row, *fit.Training) {
		t, settings := e.Training, e.allocConf[i]
		if settings == asIs {
			settings = ""
		}
		e.choose(&t, cards, settings)
		return fit.Row{Name: e.allocConf[i]}, &t
	})
}

// table runs the command once for each row and writes the table.
func (e *estimateCommand) table(ctx context.Context, rows int,
	write func(*fit.Table, io.Writer, fit.Look) error, row func(i int) (fit.Row, *fit.Training)) error {
	var all fit.Table
	ran := false // in any row
	for i := range rows {
		r, t := row(i)
		e.note("%s, %d of %d", r.Name, i+1, rows)
		x, err := t.At(ctx, e.sizes.All()[0])
		switch {
		case err == nil:
			r.Report = &fit.Report{Training: t, Estimates: []*fit.Estimate{x}}
			ran = true
		case errors.Is(err, estimate.ErrUnsupported) && (ran || i < rows-1):
			r.Why = err
		default:
			return e.explain(err)
		}
		all.Rows = append(all.Rows, r)
	}
	if err := e.writeTo("", false, func(w io.Writer) error {
		return write(&all, w, e.look())
	}); err != nil {
		return err
	}
	switch {
	case all.Unseen():
		return errNoStep
	case !all.Fits():
		return errFinding
	}
	return nil
}
