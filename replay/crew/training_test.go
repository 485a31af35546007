package crew

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// torch returns the interpreter that has torch.
var torch = torchtest.Python

// learntTheSame checks that a training learnt the same as without plans, to the bit.
func learntTheSame(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("it learnt\n%s\nbut without plans\n%s", got, want)
	}
}

// training is a scenario that runs under the agent.
type liveTraining struct {
	*Member
	t    *testing.T
	job  *pytorch.Job
	done chan error
	hold *hold
}

func startLive(t *testing.T, argv ...string) *liveTraining {
	t.Helper()
	return startLiveWith(t, []string{"PACE=0.02"}, argv...)
}

// startLiveWith adds variables to the environment.
func startLiveWith(t *testing.T, env []string, argv ...string) *liveTraining {
	t.Helper()
	return launchLive(t, pytorch.Launch{Argv: argv, Env: env})
}

// launchLive starts a script in the interpreter that has torch, with extra variables in its environment.
func launchLive(t *testing.T, launch pytorch.Launch) *liveTraining {
	t.Helper()
	launch.Argv = append([]string{torch(t)}, launch.Argv...)
	hold := newHold(t)
	launch.Env = slices.Concat(os.Environ(), []string{"PYTHONDONTWRITEBYTECODE=1", hold.environ()},
		launch.Env)
	job, err := pytorch.Start(launch)
	if err != nil {
		t.Fatal(err)
	}
	l := &liveTraining{Member: newMember(capture.NewHistory(capture.Limits{}), job), t: t, job: job,
		done: make(chan error, 1), hold: hold}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() {
		_ = job.Signal(os.Kill)
		_, _ = job.Wait(context.Background())
		stop()
	})
	go func() { l.done <- job.Run(ctx, l.History) }()
	l.wait(3)
	return l
}

// wait waits for that many further steps.
func (l *liveTraining) wait(n int) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), torchtest.Patience(l.t))
	defer cancel()
	first := l.History.Snapshot()
	if err := l.until(ctx, func(v *capture.View) (bool, error) {
		return len(v.Steps) >= len(first.Steps)+n,
			nil
	}); err != nil {
		v := l.History.Snapshot()
		l.t.Fatalf("%v; notices %v; output:\n%s", err, v.Notices, v.Output)
	}
}

// end waits for the end and returns what was learnt.
func (l *liveTraining) end() string {
	l.t.Helper()
	select {
	case err := <-l.done:
		if err != nil {
			l.t.Fatal(err)
		}
	case <-time.After(torchtest.Patience(l.t)):
		l.t.Fatal("the training does not end")
	}
	v := l.History.Snapshot()
	if v.End.Code != maybe.Known(0) {
		l.t.Fatalf("it ended with code %v: %s\n%s", v.End.Code, v.End.Detail, v.Output)
	}
	return torchtest.Learned(v.Output)
}

// alone returns what scenarios learn without gmemtop, by scenario. They train in one process, since importing
// torch takes longest.
func alone(t *testing.T, script string, scenarios ...string) map[string]string {
	t.Helper()
	cmd := exec.Command(torch(t), script, strings.Join(scenarios, ","))
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, trouble.Bytes())
	}
	learnt := map[string]string{}
	for _, s := range scenarios {
		var lines []byte
		rank, _, _ := strings.Cut(s, "@")
		for l := range bytes.Lines(out) {
			if words := bytes.Fields(l); len(words) > 1 && (string(words[1]) == s ||
				strings.HasPrefix(string(words[1]), s+"-") || strings.HasPrefix(string(words[1]), rank+"-")) {
				lines = append(lines, l...)
			}
		}
		if learnt[s] = torchtest.Learned(lines); learnt[s] == "" {
			t.Fatalf("%s learnt nothing", s)
		}
	}
	return learnt
}

// describedHeld is a training that is paused unless somebody waits for its steps, so that work on a
// description costs the training no steps, however busy the machine is.
type describedHeld struct{ *liveTraining }

func (d describedHeld) Describe(ctx context.Context, number int64) (*traces.Trace, error) {
	defer d.running()()
	return d.liveTraining.Describe(ctx, number)
}

func (d describedHeld) Carry(ctx context.Context, o live.Order) error {
	defer d.running()()
	return d.liveTraining.Carry(ctx, o)
}

func (d describedHeld) Steps(ctx context.Context, number int64, n int) ([]live.Step, error) {
	defer d.running()()
	return d.liveTraining.Steps(ctx, number, n)
}

// running lets the training run until the returned function is called.
func (d describedHeld) running() (pause func()) {
	if d.hold == nil {
		return func() {}
	}
	d.hold.off()
	return d.hold.on
}

// problem describes the training until it has two ordinary steps: two with the same number of ops.
func (l *liveTraining) problem() *plan.Problem {
	l.t.Helper()
	defer l.hold.still()()
	for {
		target := live.NewTarget(describedHeld{l}, live.Options{Patience: time.Hour})
		p, err := target.Problem(context.Background(), anyHardware)
		if err == nil {
			return p
		}
		if !errors.Is(err, live.ErrUneven) {
			l.t.Fatal(err)
		}
	}
}

// plans returns the managers' plans for the training that eager PyTorch can carry out, in the agent's words,
// by name.
func (l *liveTraining) plans(p *plan.Problem, names string) map[string][]byte {
	l.t.Helper()
	defer l.hold.still()()
	all, _ := p.PeakLive()
	ms, err := managers.Select(names)
	if err != nil {
		l.t.Fatal(err)
	}
	words := map[string][]byte{}
	for _, m := range ms {
		for _, share := range []int64{95, 80} {
			var small *plan.TooSmall
			pl, err := m.Plan(context.Background(), p, plan.Request{Budget: all * share / 100,
				Evaluator: sim.Simulator{}, Work: 2000})
			if errors.As(err, &small) {
				continue
			}
			if err != nil {
				l.t.Fatal(err)
			}
			eager, err := managers.Eager(context.Background(), p, pl)
			if err != nil {
				l.t.Fatal(err)
			}
			if eager == nil {
				continue
			}
			if err := plan.Validate(p, eager); err != nil {
				l.t.Fatal(err)
			}
			name := fmt.Sprintf("%s %d", m.Info().Name, share)
			if words[name], err = live.Encode(p, eager, live.Same); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	return words
}

// anyHardware is the hardware to plan for when a test only looks at what plans change.
var anyHardware = live.Hardware{Hardware: hardware.Presets()[0], Chosen: true}

// index returns how many steps there were.
func (l *liveTraining) index() int64 {
	v := l.History.Snapshot()
	return v.Steps[len(v.Steps)-1].Index + 1
}

// toggle runs plans one after the other, and now and then none, for some steps each, until so many steps are
// over and at least three plans were, or the training is over. It returns how many plans ran, the bytes they
// moved plus the nanoseconds they recomputed, and how many tensors stayed that should have left; a plan that
// was given up counts as one such tensor.
func (l *liveTraining) toggle(words map[string][]byte, until int64, steps int) (toggles, freed,
	missed int64) {
	l.t.Helper()
	names := slices.Sorted(maps.Keys(words))
	if len(names) == 0 {
		l.t.Fatal("no manager made a plan that can be carried out")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for l.index() < until || toggles < 3 {
		toggles++
		name := names[r.IntN(len(names))]
		under, err := l.under(toggles, words[name], 1+r.IntN(steps))
		if errors.Is(err, errGivenUp) {
			missed++
			continue
		}
		for _, s := range under {
			freed, missed = freed+s.Out+s.Again, missed+s.Missed
		}
		if err == nil && r.IntN(3) == 0 {
			_, err = l.under(0, nil, 1+r.IntN(steps))
		}
		if l.over(err) {
			return toggles, freed, missed
		}
		if err != nil {
			v := l.History.Snapshot()
			l.t.Fatalf("%s: %v; notices %v; output:\n%s", name, err, v.Notices, v.Output)
		}
	}
	if err := l.Carry(l.t.Context(), live.Order{}); err != nil && !l.over(err) {
		l.t.Fatal(err)
	}
	return toggles, freed, missed
}

// under turns a plan on, or all plans off, and returns the next steps that ran that way.
func (l *liveTraining) under(number int64, words []byte, steps int) ([]live.Step, error) {
	if err := l.Carry(l.t.Context(), live.Order{Number: number, Plan: words}); err != nil {
		return nil, err
	}
	return l.Steps(l.t.Context(), number, steps)
}

// over reports whether an error says that the training is over, which may happen while a plan is on.
func (l *liveTraining) over(err error) bool {
	return err != nil && (errors.Is(err, errEnded) || errors.Is(err, pytorch.ErrNotConnected) ||
		l.History.Snapshot().Ended)
}
