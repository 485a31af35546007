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

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces/load"
)

// choiceFlags say with what plan a command is to train.
type choiceFlags struct {
	manager, file, most, results, unplanned string
	plan                                    planFlags
}

func (f *choiceFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.manager, "manager", "",
		"train with this manager's plan, made once two steps have been described")
	p.StringVar(&f.plan.budget, "budget", "",
		"what the plan is to fit into: 8GiB, or 50% of what PyTorch's caching allocator takes (default "+
			"nine tenths of what is free on the GPU)")
	p.StringVar(&f.file, "plan", "",
		"train with the plan in this file, which gmemtop plan --target live:PID wrote")
	p.StringVar(&f.plan.hardware, "hardware", "", "what the plan takes copies to cost")
	p.StringVar(&f.most, "most-overhead", "",
		"turn the plan off for good where steps take longer by more than this: 10%")
	p.StringVar(&f.results, "results", resultsSame,
		"turn the plan off where a tensor returns that is not the same to the bit (same), or count it and "+
			"go on (any)")
}

// addUnplanned adds what is done until there is a plan: a training that runs already can do without.
func (f *choiceFlags) addUnplanned(c *cobra.Command) {
	c.Flags().StringVar(&f.unplanned, "until-planned", unplannedAuto,
		"until there is a plan, have what autograd saves wait on the host, so that what does not fit runs "+
			"as well (offload), leave it on the device (keep), or the first on GPUs alone and only as "+
			"long as "+
			"it has to be (auto)")
}

// choice returns what was chosen, nil for nothing.
func (f *choiceFlags) choice() (*crew.Choice, error) {
	switch {
	case !slices.Contains([]string{"", unplannedAuto, unplannedOffload, unplannedKeep}, f.unplanned):
		return nil, usageError{fmt.Errorf("--until-planned %q is none: write auto, offload or keep",
			f.unplanned)}
	case f.manager == "" && f.file == "":
		if f.plan.budget != "" || f.most != "" {
			return nil, usageError{errors.New("--budget and --most-overhead are for --manager or --plan: " +
				"name one")}
		}
		return nil, nil
	case f.manager != "" && f.file != "":
		return nil, usageError{errors.New("--manager makes a plan and --plan brings one: name one of them")}
	}
	var most float64
	if f.most != "" {
		if n, err := fmt.Sscanf(f.most, "%f%%", &most); err != nil || n != 1 || !(most > 0) {
			return nil, usageError{fmt.Errorf("--most-overhead %q is no share: write 10%%", f.most)}
		}
	}
	w, err := f.planned()
	if err != nil {
		return nil, err
	}
	w.MostOverhead, w.Offload = most/100, f.unplanned == unplannedOffload
	if w.Results, err = liveResults(f.results); err != nil {
		return nil, err
	}
	w.Hardware, err = f.plan.liveHardware()
	return w, err
}

// planned returns the choice of the manager's plan, or of the file's.
func (f *choiceFlags) planned() (*crew.Choice, error) {
	if f.manager == "" {
		return planIn(f.file)
	}
	m, err := oneManager(f.manager)
	if err != nil {
		return nil, err
	}
	return planner.Choose(m, f.fitInto), nil
}

// fitInto returns what the plan of a manager is to fit into, of so much room, 0 where that is not known.
func (f *choiceFlags) fitInto(ctx context.Context, p *plan.Problem, room int64) (int64, error) {
	switch {
	case f.plan.budget != "" || pools(f.manager):
		return f.plan.budgetBytes(ctx, p)
	case room == 0:
		return 0, errors.New("what there is of the device's memory is not known: say with --budget what " +
			"the plan is to fit into")
	}
	return int64(float64(room) * crew.RoomShare), nil
}

// What --until-planned says.
const (
	unplannedAuto    = "auto"
	unplannedOffload = "offload"
	unplannedKeep    = "keep"
)

// planIn returns the choice of the plan in a file, which is looked at as far as that can be without the
// training.
func planIn(path string) (*crew.Choice, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPlan))
	if err != nil {
		return nil, err
	}
	head, err := plan.ReadHead(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := planner.Terms(load.Name(path))
	c.Pools = head.Addresses
	c.Make = func(_ context.Context, p *plan.Problem, _ int64) (*plan.Plan, error) {
		pl, err := plan.ReadJSON(bytes.NewReader(text), p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return pl, nil
	}
	return c, nil
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
	return 0, usageError{fmt.Errorf("--results %q is none: write same, or any where ops that add in no "+
		"fixed order are welcome", word)}
}

// offloads returns the types of devices whose saved tensors wait on the host until there is a plan.
func (f *choiceFlags) offloads() []string {
	switch {
	case f.unplanned == unplannedOffload:
		return []string{"cuda", "cpu"}
	// a choice of addresses takes nothing off the peak
	case f.unplanned == unplannedAuto && (f.manager != "" && !pools(f.manager) || f.file != ""):
		return []string{"cuda"}
	}
	return nil
}

// trainWith has a choice carried out in all processes of a training until ctx is done; how it goes is a
// notice that all see who watch, and said aloud where aloud is set.
func (c *watcher) trainWith(ctx context.Context, all *crew.Crew, x *crew.Choice, aloud bool) {
	ever, phase, ended := false, live.Waiting, ""
	err := all.Train(ctx, x, func(n live.News) {
		text := n.Sentence(x.Name, c.flags.report.Units)
		all.Tell(ctx, text)
		if n.Phase == live.On && phase != live.On && aloud {
			c.note("%s", text)
		}
		if n.Ended != "" && (n.Ended != ended || phase == live.On && n.Phase != live.On) && aloud {
			c.note("%s ended and is planned anew: %s", x.Name, n.Ended)
		}
		ended, phase = n.Ended, n.Phase
		ever = ever || phase == live.On
	})
	if err == nil || errors.Is(err, crew.ErrEnded) || ctx.Err() != nil {
		doing := phase.Doing()
		if phase == live.Waiting {
			doing = "waiting for steps to plan by"
			v := all.Lead.Session.Snapshot()
			if why := cmp.Or(v.Said("disarmed"), v.Said("state")); why != "" {
				doing += ": " + why
			}
		}
		if aloud && !ever { // or the user would believe that the training ran under the plan
			c.note("%s was not carried out: the training ended while gmemtop was %s", x.Name, doing)
		}
		return
	}
	rest := "the training goes on without it"
	if all.Offloads(ctx) {
		rest = "the training goes on, and what it saves waits on the host"
	}
	text := fmt.Sprintf("%s is not carried out: %s; %s", x.Name, oneLine(err), rest)
	all.Tell(ctx, text)
	if aloud {
		c.note("%s", text)
	}
}

// pools reports whether this is the name of a manager that only chooses addresses.
func pools(name string) bool {
	list, err := managers.Select(name)
	return err == nil && len(list) == 1 && list[0].Info().Family == plan.Pooling
}
