package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
)

// wishFlags say with what plan a command is to train.
type wishFlags struct {
	manager, file, most, results string
	plan                         planFlags
}

func (f *wishFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.manager, "manager", "", "train with this manager's plan, made once two steps have been described; needs --budget, unless it only chooses addresses (smartpool, exact)")
	p.StringVar(&f.plan.budget, "budget", "", "what the plan is to fit into: 8GiB, or 50% of what PyTorch's caching allocator takes")
	p.StringVar(&f.file, "plan", "", "train with the plan in this file, which gmemtop plan --target live:PID wrote")
	p.StringVar(&f.plan.hardware, "hardware", "", "what the plan takes copies to cost")
	p.StringVar(&f.most, "most-overhead", "", "turn the plan off for good where steps take longer by more than this: 10%")
	p.StringVar(&f.results, "results", resultsSame, "turn the plan off where a tensor returns that is not the same to the bit (same), or count it and go on (any)")
}

// wish returns what was wished for, nil for nothing.
func (f *wishFlags) wish() (*wish, error) {
	switch {
	case f.manager == "" && f.file == "":
		if f.plan.budget != "" || f.most != "" {
			return nil, usageError{errors.New("--budget and --most-overhead are for --manager or --plan: name one")}
		}
		return nil, nil
	case f.manager != "" && f.file != "":
		return nil, usageError{errors.New("--manager makes a plan and --plan brings one: name one of them")}
	case f.manager != "" && f.plan.budget == "" && !pools(f.manager):
		return nil, usageError{errors.New("--manager needs --budget: what the plan is to fit into")}
	}
	w := &wish{manager: f.manager, file: f.file}
	if f.most != "" {
		var percent float64
		if n, err := fmt.Sscanf(f.most, "%f%%", &percent); err != nil || n != 1 || !(percent > 0) {
			return nil, usageError{fmt.Errorf("--most-overhead %q is no share: write 10%%", f.most)}
		}
		w.most = percent / 100
	}
	if f.manager != "" {
		if _, err := (&planning{manager: f.manager}).one(); err != nil {
			return nil, err
		}
	}
	var err error
	if w.results, err = liveResults(f.results); err != nil {
		return nil, err
	}
	w.budget = func(p *plan.Problem) (int64, error) { return f.plan.budgetBytes(context.Background(), p) }
	w.hardware, err = f.plan.liveHardware()
	return w, err
}

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

// name is what the plan is called on the screen.
func (w *wish) name() string {
	if w.file != "" {
		return name(w.file)
	}
	return w.manager
}

// keyTraining is the key of the notice that says how a plan that was wished for goes.
const keyTraining = "training"

// trainWith has a wish carried out in the training of w until ctx is done; how it goes is a notice of the session, and said aloud where aloud is set.
func (a *app) trainWith(ctx context.Context, w *watching, x *wish, aloud bool) {
	t := &trainer{session: w.session, control: w.control}
	var last live.News
	err := t.train(ctx, x, func(n live.News) {
		text := n.Sentence(x.name(), a.flags.report.Units)
		w.session.Notice(capture.Notice{Key: keyTraining, Text: text})
		if aloud && n.Peak > 0 && last.Peak == 0 {
			a.note("%s", text)
		}
		last = n
	})
	if err == nil || errors.Is(err, errEnded) || ctx.Err() != nil {
		return
	}
	text := fmt.Sprintf("%s is not carried out: %s; the training goes on without it", x.name(), oneLine(err))
	w.session.Notice(capture.Notice{Key: keyTraining, Text: text})
	if aloud {
		a.note("%s", text)
	}
}
