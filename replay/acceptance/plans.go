package acceptance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// liveFootprint and liveStep are how far a plan in a running training may be from the prediction: shares of
// the footprint and of the step.
const liveFootprint, liveStep = 0.03, 0.07

// carried makes a check in which a running training carries out plans of these managers, one after the other.
// It then compares what that training learned with one of as many steps without a plan.
func carried(example, managers string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		began := time.Now()
		j, err := t.train("managed", example, 0)
		if err != nil {
			return err
		}
		defer j.child.stop()
		if err := j.warm(ctx); err != nil {
			return err
		}
		c, err := t.compare(ctx, 3*time.Minute, "--target", fmt.Sprintf("live:%d", j.pid()), "--budget",
			t.share(), "--managers", managers, "--limit", "5s", "--iterations", t.size.live)
		if c != nil {
			err = errors.Join(err, t.judgeLive(c))
		}
		if err != nil {
			return err
		}
		if err := j.tell(); err != nil {
			return err
		}
		got, err := j.end(ctx, time.Minute)
		if err != nil {
			return err
		}
		if !t.end.IsZero() && time.Until(t.end) < time.Since(began)/2 {
			return errNoTime // the comparison takes as many steps again
		}
		alone, err := t.train("alone", example, got.steps)
		if err != nil {
			return err
		}
		want, err := alone.end(ctx, 4*time.Minute)
		if err != nil {
			return err
		}
		t.add(figure("steps", float64(got.steps)))
		return t.same(ctx, example, got, want)
	}
}

// share is the budget of plans in a training. PyTorch's allocator leaves more of a tiny network's memory
// empty.
func (t *trial) share() string {
	if t.size.name == tiny.name {
		return "50%"
	}
	return "70%"
}

// judgeLive notes how each plan did, and fails if none was carried out.
func (t *trial) judgeLive(c *compared) error {
	type key struct{ manager, executor string }
	predicted := map[key]comparedRow{}
	var live []comparedRow
	for _, r := range c.Results {
		switch {
		case r.Target == "sim" && r.Available:
			predicted[key{r.Manager, r.Executor}] = r
		case r.Target != "sim" && r.Available:
			live = append(live, r)
		case r.Target != "sim":
			t.log("not carried out: %s %s: %s", r.Manager, r.Executor, r.Reason)
		}
	}
	within := 0
	for _, r := range live {
		p := predicted[key{r.Manager, r.Executor}]
		step := (1+r.Overhead)/(1+p.Overhead) - 1
		if r.Predicted > 0 && math.Abs(float64(r.Footprint)/float64(r.Predicted)-1) <= liveFootprint &&
			math.Abs(step) <= liveStep {
			within++
		}
	}
	if len(live) == 0 {
		return errors.New("no plan was carried out")
	}
	t.add(figure("plans", float64(len(live))), figure("as_predicted", float64(within)),
		figure("step_before", float64(live[0].Before)/1e6),
		figure("step_after", float64(live[len(live)-1].After)/1e6))
	for _, r := range live {
		p := predicted[key{r.Manager, r.Executor}]
		t.add(figureOf(r.Manager, "footprint", float64(r.Footprint)),
			figureOf(r.Manager, "footprint_predicted", float64(r.Predicted)),
			figureOf(r.Manager, "overhead", r.Overhead),
			figureOf(r.Manager, "overhead_predicted", p.Overhead))
	}
	return nil
}

// outcome is what gmemtop run has said about a plan on standard error. These checks run the program as a user
// does, and know only what it prints: sentences of the catalogue.
type outcome struct{ on, off, never bool }

func outcomeIn(text string) outcome {
	return outcome{on: say.PlanOn.In(text), off: say.PlanFailed.In(text), never: say.PlanNeverOn.In(text)}
}

// known reports whether the plan has come to run, or will not.
func (o outcome) known() bool { return o.on || o.off || o.never }

// planned trains under a plan until it has been on for a while or has ended, and returns what the training
// printed.
func (t *trial) planned(ctx context.Context, manager string, flags []string,
	script ...string) ([]byte, error) {
	stop := t.path("-planned.stop")
	os.Remove(stop)
	from := t.logged()
	watching, cancel := context.WithCancel(ctx)
	told := make(chan error, 1)
	go func() {
		told <- func() error {
			known := func() bool { return outcomeIn(t.said(from)).known() }
			if err := t.poll(watching, 4*time.Minute, known); err != nil {
				return nil // the training is over, or its time is
			}
			if outcomeIn(t.said(from)).on {
				select {
				case <-watching.Done():
				case <-time.After(t.size.on):
				}
			}
			return os.WriteFile(stop, nil, 0o600)
		}()
	}()
	argv := slices.Concat([]string{t.Program, "run", "--headless", "--manager", manager}, flags,
		[]string{"--", t.Python, "learn.py", "plain"}, script, []string{"--steps", "1000000"})
	out, _, err := t.limited(ctx, 4*time.Minute, nil,
		[]string{"STOP=" + stop, "MOST=" + strconv.Itoa(int(t.allow(longest).Seconds()))}, argv...)
	cancel()
	err = errors.Join(err, <-told)
	if err != nil {
		return out, err
	}
	if o := outcomeIn(t.said(from)); !o.on || o.off {
		return out, fmt.Errorf("it did not train under a plan of %s to the end: %s", manager,
			t.lastSaid(from))
	}
	return out, nil
}

// beside makes a check that trains with one of torch's own ways to save memory, and then under a plan in as
// much memory, by the first of the managers whose plan can be carried out.
func beside(example, how string, managers ...string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		out, err := t.script(ctx, 2*time.Minute, nil,
			slices.Concat([]string{"learn.py", how}, t.example(example, "--steps", "20"))...)
		if err != nil {
			return err
		}
		_, peak, ok := learnedOf(out)
		if !ok || peak <= 0 {
			return errors.New("the training did not print how much memory it took")
		}
		t.add(figure("torch_step", medianOfLast(stepsOf(out))), figure("torch_peak", float64(peak)))
		budget := strconv.FormatInt(peak, 10) + "B"
		if t.size.name == tiny.name {
			// libraries' workspaces are much of that peak, and a plan would have nothing to do in it
			budget = t.share()
		}
		var failures error
		for _, m := range managers {
			out, err := t.planned(ctx, m, []string{"--budget", budget}, t.example(example)...)
			if errors.Is(err, errNoTime) {
				return err
			}
			if err != nil {
				failures = errors.Join(failures, err)
				continue
			}
			_, took, _ := learnedOf(out)
			t.add(figureOf(m, "plan_step", medianOfLast(stepsOf(out))),
				figureOf(m, "plan_peak", float64(took)))
			return nil
		}
		return failures
	}
}

// ranOut reports whether an error comes from a training that ran out of memory, by PyTorch's message.
func (t *trial) ranOut(err error, from int64) bool {
	if err == nil || errors.Is(err, errNoTime) {
		return false
	}
	m, ok, _ := report.ReadMessage(strings.NewReader(t.said(from)))
	return ok && m.OnGPU()
}

// largestBatch makes a check that finds the largest batch that trains in a limited memory, to an eighth, by
// doubling and halving; then it trains factor times as much under a plan. The papers' factors are for other
// cards.
func largestBatch(factor float64, example string, flags ...string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		capped := strconv.FormatFloat(t.size.cap, 'g', -1, 64)
		if need := int64(t.size.cap * gib); t.facts.free > 0 && t.facts.free < need+need/8 {
			return skip("needs %.1f GiB of free memory", 1.125*t.size.cap)
		}
		train := func(batch, steps int) ([]byte, bool, error) {
			from := t.logged()
			argv := t.example(example, slices.Concat(flags,
				[]string{"--memory", capped, "--batch", strconv.Itoa(batch), "--steps",
					strconv.Itoa(steps)})...)
			out, err := t.script(ctx, 2*time.Minute, nil, argv...)
			if t.ranOut(err, from) {
				return nil, false, nil
			}
			return out, err == nil, err
		}
		fits, fails, batch := 0, 0, t.size.first
		for fails == 0 || fits > 0 && 8*(fails-fits) > fits {
			_, ok, err := train(batch, 4)
			switch {
			case err != nil:
				return err
			case ok:
				fits = batch
			default:
				fails = batch
			}
			switch {
			case fails == 0:
				batch *= 2
			case fits == 0:
				return fmt.Errorf("not even batch %d trains in that memory", batch)
			default:
				batch = (fits + fails) / 2
			}
			if batch > 1<<16 {
				return errors.New("the memory is not limited: a batch of 65536 trains")
			}
		}
		out, ok, err := train(fits, 20)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("batch %d trained for 4 steps and not for 20", fits)
		}
		if t.size.name == tiny.name {
			factor = min(factor, 1.75) // PyTorch's segments of 20 MiB are much of that memory
		}
		// of the largest that may train, which is only known to an eighth
		more := int(math.Ceil(float64(fails-1) * factor))
		t.add(figure("batch", float64(fits)), figure("sample", medianOfLast(stepsOf(out))/float64(fits)),
			figure("batch_planned", float64(more)))
		out, err = t.planned(ctx, "joint", nil,
			t.example(example, slices.Concat(flags,
				[]string{"--memory", capped, "--batch", strconv.Itoa(more)})...)...)
		if err != nil {
			return err
		}
		t.add(figure("sample_planned", medianOfLast(stepsOf(out))/float64(more)))
		return nil
	}
}

// beyond makes a check of what the vDNN paper is known for: VGG-16 at batch 256, which takes 28 GB, trains in
// 12. Smaller networks get the same share.
func beyond(manager string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		const batch, paper = 256, 12.0 / 28
		if t.size.name == tiny.name {
			// almost all memory is in the first layers, and PyTorch takes 20 MiB at once
			return skip("needs networks of ordinary size: what the first layers of a tiny one need at once " +
				"is more than its share")
		}
		from := t.logged()
		out, err := t.script(ctx, 3*time.Minute, nil,
			slices.Concat([]string{"learn.py", "plain"}, t.example("vgg16", "--batch", strconv.Itoa(batch),
				"--steps", "15"))...)
		if t.ranOut(err, from) {
			return skip("needs more memory: batch %d does not train in all that is free, so there is "+
				"nothing to compare with", batch)
		}
		if err != nil {
			return err
		}
		_, peak, ok := learnedOf(out)
		if !ok || peak <= 0 {
			return errors.New("the training did not print how much memory it took")
		}
		memory := 12.0
		if t.size.name != full.name {
			memory = float64(peak) / gib * paper
		}
		t.add(figure("allocated", float64(peak)), figure("sample", medianOfLast(stepsOf(out))/batch))
		out, err = t.planned(ctx, manager, nil, t.example("vgg16", "--batch", strconv.Itoa(batch), "--memory",
			strconv.FormatFloat(memory, 'f', 4, 64))...)
		if err != nil {
			return err
		}
		_, took, _ := learnedOf(out)
		t.add(figure("plan_peak", float64(took)), figure("sample_planned", medianOfLast(stepsOf(out))/batch))
		return nil
	}
}
