package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

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

// oneSize returns an error if a table is asked for together with flags for reports of a single size.
func (e *estimateCommand) oneSize(table string) error {
	if e.flags.json || e.maxBatch || e.flags.output != "" || e.snapshot != "" || len(e.sizes.All()) > 1 {
		return fmt.Errorf("%s is a table of one size: leave --json, --max-batch, -o, --snapshot and further "+
			"sizes out", table)
	}
	return nil
}

// choose makes a training run on a card, or with the emulated allocator if there is none, with the given
// allocator settings.
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

// onCards finds the smallest card that the training fits on.
func (e *estimateCommand) onCards(ctx context.Context, cards []standin.Card) error {
	var all fit.Table
	for _, c := range cards {
		all.Rows = append(all.Rows, fit.Row{Name: c.Name, Memory: c.Memory, Generation: c.Capability[0]})
	}
	err := all.Find(func(i int) (*fit.Report, error) {
		t := e.Training
		t.Budget = cards[i].Memory
		e.choose(&t, cards[i:i+1], e.chosenSettings())
		return e.oneOf(ctx, cards[i].Name, &t)
	})
	if err != nil {
		return e.explain(err)
	}
	return e.writeTable(&all, all.WriteCards)
}

// withSettings runs the command with each of several settings of the allocator.
func (e *estimateCommand) withSettings(ctx context.Context, cards []standin.Card) error {
	if err := e.oneSize("several --alloc-conf"); err != nil {
		return usageError{err}
	}
	var all fit.Table
	for _, name := range e.allocConf {
		all.Rows = append(all.Rows, fit.Row{Name: name})
	}
	err := all.Each(func(i int) (*fit.Report, error) {
		t, settings := e.Training, all.Rows[i].Name
		if settings == asIs {
			settings = ""
		}
		e.choose(&t, cards, settings)
		return e.oneOf(ctx, all.Rows[i].Name, &t)
	})
	if err != nil {
		return e.explain(err)
	}
	return e.writeTable(&all, all.WriteSettings)
}

// oneOf runs the command for the row of a table.
func (e *estimateCommand) oneOf(ctx context.Context, name string, t *fit.Training) (*fit.Report, error) {
	e.note("%s", name)
	x, err := t.At(ctx, e.sizes.All()[0])
	if err != nil {
		return nil, err
	}
	return &fit.Report{Training: t, Estimates: []*fit.Estimate{x}}, nil
}

// writeTable writes a table; the error says what its exit code is.
func (e *estimateCommand) writeTable(all *fit.Table, write func(io.Writer, fit.Look) error) error {
	if err := e.writeTo("", false, func(w io.Writer) error { return write(w, e.look()) }); err != nil {
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
