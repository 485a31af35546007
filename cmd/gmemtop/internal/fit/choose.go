package fit

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/gmemtop/gmemtop/capture/standin"
)

// asIs are the settings of PyTorch's allocator that leave the environment's as they are.
const asIs = "default"

// choice is a way to run a training: a card and settings of PyTorch's allocator.
type choice struct {
	// Card runs PyTorch's own allocator; nil emulates it.
	Card *standin.Card
	// AllocConf is "" or "default" for the environment's settings.
	AllocConf string
	// Building is called if the stand-in GPU has to be compiled first; may be nil.
	Building func()
}

// choose makes the training run in the chosen way.
func (t *Training) choose(c choice) {
	settings := c.AllocConf
	if settings == asIs {
		settings = ""
	}
	if c.Card != nil {
		t.Real = &Real{Card: *c.Card, AllocConf: settings, Building: c.Building}
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

// onCards finds the smallest card that the training fits on. c has the settings, and tell is called before
// and after each run, with the card and what came of it.
func (t *Training) onCards(ctx context.Context, size Size, cards []standin.Card, c choice,
	tell func(what string)) (*Table, error) {
	all := Table{cards: true, outside: t.Outside}
	for _, card := range cards {
		all.rows = append(all.rows, row{Name: card.Name, Memory: card.Memory, Capability: card.Capability})
	}
	return &all, all.find(func(i int) (*Report, error) {
		own := *t
		own.Budget, c.Card = cards[i].Memory, &cards[i]
		own.choose(c)
		tell("trying the " + cards[i].Name)
		r, err := own.reportPeaks(ctx, size)
		if r != nil {
			tell(fmt.Sprintf("the %s: %s", cards[i].Name, r.Estimates[0].outcome()))
		}
		return r, err
	})
}

// withSettings runs the training with each of several settings of PyTorch's allocator. c has the card, and
// tell is called with each of the settings.
func (t *Training) withSettings(ctx context.Context, size Size, settings []string, c choice,
	tell func(name string)) (*Table, error) {
	var all Table
	for _, name := range settings {
		all.rows = append(all.rows, row{Name: name})
	}
	return &all, all.each(func(i int) (*Report, error) {
		own := *t
		c.AllocConf = settings[i]
		own.choose(c)
		tell(settings[i])
		return own.reportPeaks(ctx, size)
	})
}

// reportPeaks runs the command at one size for its peaks alone.
func (t *Training) reportPeaks(ctx context.Context, size Size) (*Report, error) {
	run := t.At
	if t.Real != nil {
		run = t.peaks
	}
	x, err := run(ctx, size)
	if err != nil {
		return nil, err
	}
	return &Report{Training: t, Estimates: []*Estimate{x}}, nil
}
