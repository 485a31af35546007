package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
)

// wishFlags say with what plan a command is to train.
type wishFlags struct {
	manager, file, most, results, unplanned string
	plan                                    planFlags
}

func (f *wishFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.manager, "manager", "", "train with this manager's plan, made once two steps have been described")
	p.StringVar(&f.plan.budget, "budget", "", "what the plan is to fit into: 8GiB, or 50% of what PyTorch's caching allocator takes (default nine tenths of what is free on the GPU)")
	p.StringVar(&f.file, "plan", "", "train with the plan in this file, which gmemtop plan --target live:PID wrote")
	p.StringVar(&f.plan.hardware, "hardware", "", "what the plan takes copies to cost")
	p.StringVar(&f.most, "most-overhead", "", "turn the plan off for good where steps take longer by more than this: 10%")
	p.StringVar(&f.results, "results", resultsSame, "turn the plan off where a tensor returns that is not the same to the bit (same), or count it and go on (any)")
}

// addUnplanned adds what is done until there is a plan: a training that runs already can do without.
func (f *wishFlags) addUnplanned(c *cobra.Command) {
	c.Flags().StringVar(&f.unplanned, "until-planned", unplannedAuto, "until there is a plan, have what autograd saves wait on the host, so that what does not fit runs as well (offload), leave it on the device (keep), or the first on GPUs alone and only as long as it has to be (auto)")
}

// wish returns what was wished for, nil for nothing.
func (f *wishFlags) wish() (*wish, error) {
	switch {
	case !slices.Contains([]string{"", unplannedAuto, unplannedOffload, unplannedKeep}, f.unplanned):
		return nil, usageError{fmt.Errorf("--until-planned %q is none: write auto, offload or keep", f.unplanned)}
	case f.manager == "" && f.file == "":
		if f.plan.budget != "" || f.most != "" {
			return nil, usageError{errors.New("--budget and --most-overhead are for --manager or --plan: name one")}
		}
		return nil, nil
	case f.manager != "" && f.file != "":
		return nil, usageError{errors.New("--manager makes a plan and --plan brings one: name one of them")}
	}
	w := managed(f.manager, live.Hardware{}, nil)
	w.file, w.offload = f.file, f.unplanned == unplannedOffload
	if f.most != "" {
		var percent float64
		if n, err := fmt.Sscanf(f.most, "%f%%", &percent); err != nil || n != 1 || !(percent > 0) {
			return nil, usageError{fmt.Errorf("--most-overhead %q is no share: write 10%%", f.most)}
		}
		w.most = percent / 100
	}
	if f.manager != "" {
		if _, err := oneManager(f.manager); err != nil {
			return nil, err
		}
	}
	var err error
	if w.file != "" {
		if err = w.open(); err != nil {
			return nil, err
		}
	}
	if w.results, err = liveResults(f.results); err != nil {
		return nil, err
	}
	w.budget = func(p *plan.Problem, room int64) (int64, error) {
		switch {
		case f.plan.budget != "" || w.pools:
			return f.plan.budgetBytes(context.Background(), p)
		case room == 0:
			return 0, errors.New("what there is of the device's memory is not known: say with --budget what the plan is to fit into")
		}
		return int64(float64(room) * roomShare), nil
	}
	w.hardware, err = f.plan.liveHardware()
	return w, err
}

// What --until-planned says.
const (
	unplannedAuto    = "auto"
	unplannedOffload = "offload"
	unplannedKeep    = "keep"
)

// roomShare is the share of the device's free memory that is planned with: the rest is for workspaces, which
// no recording shows, and for what lies between tensors.
const roomShare = 0.9

// open reads the plan's file, as far as it can be read before the training is known.
func (w *wish) open() error {
	f, err := os.Open(w.file)
	if err != nil {
		return err
	}
	defer f.Close()
	if w.text, err = io.ReadAll(io.LimitReader(f, maxPlan)); err != nil {
		return err
	}
	head, err := plan.ReadHead(bytes.NewReader(w.text))
	if err != nil {
		return fmt.Errorf("%s: %w", w.file, err)
	}
	w.pools = head.Addresses
	return nil
}

// maxPlan bounds a plan's file: some hundred bytes for each of a million buffers.
const maxPlan = 1 << 30

// resultsSame is the default of --results.
const resultsSame = "same"

// liveResults reads --results.
func liveResults(word string) (live.Results, error) {
	switch word {
	case resultsSame:
		return live.Same, nil
	case "any":
		return live.Any, nil
	}
	return 0, usageError{fmt.Errorf("--results %q is none: write same, or any where ops that add in no fixed order are welcome", word)}
}

// offloads returns the types of devices whose saved tensors wait on the host until there is a plan.
func (f *wishFlags) offloads() []string {
	switch {
	case f.unplanned == unplannedOffload:
		return []string{"cuda", "cpu"}
	case f.unplanned == unplannedAuto && (f.manager != "" && !pools(f.manager) || f.file != ""): // a choice of addresses takes nothing off the peak
		return []string{"cuda"}
	}
	return nil
}

// name is what the plan is called on the screen.
func (w *wish) name() string {
	if w.file != "" {
		return name(w.file)
	}
	return w.manager
}

// keyTraining is the key of the notice that says how a plan that was wished for goes.
const keyTraining = "training"

// trainWith has a wish carried out in all processes of a training until ctx is done; how it goes is a notice
// that all see who watch, and said aloud where aloud is set.
func (c *watcher) trainWith(ctx context.Context, all *crew, x *wish, aloud bool) {
	ever, phase, ended := false, live.Waiting, ""
	err := all.train(ctx, x, func(n live.News) {
		text := n.Sentence(x.name(), c.flags.report.Units)
		all.note(ctx, capture.Notice{Key: keyTraining, Text: text})
		if n.Phase == live.On && phase != live.On && aloud {
			c.note("%s", text)
		}
		if n.Ended != "" && (n.Ended != ended || phase == live.On && n.Phase != live.On) && aloud {
			c.note("%s ended and is planned anew: %s", x.name(), n.Ended)
		}
		ended, phase = n.Ended, n.Phase
		ever = ever || phase == live.On
	})
	if err == nil || errors.Is(err, errEnded) || ctx.Err() != nil {
		doing := phase.Doing()
		if phase == live.Waiting {
			doing = "waiting for steps to plan by"
			v := all.lead.session.Snapshot()
			if why := cmp.Or(v.Said("disarmed"), v.Said("state")); why != "" {
				doing += ": " + why
			}
		}
		if aloud && !ever { // whoever asked for a plan shall not take what was trained for trained under it
			c.note("%s was not carried out: the training ended while gmemtop was %s", x.name(), doing)
		}
		return
	}
	rest := "the training goes on without it"
	if all.offloads(ctx) {
		rest = "the training goes on, and what it saves waits on the host"
	}
	text := fmt.Sprintf("%s is not carried out: %s; %s", x.name(), oneLine(err), rest)
	all.note(ctx, capture.Notice{Key: keyTraining, Text: text})
	if aloud {
		c.note("%s", text)
	}
}
