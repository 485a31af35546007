package crew

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
)

// A training that does not fit keeps its saved tensors on the host from its first step on, until there is a
// plan that fits, and again after that plan has ended. A plan made meanwhile is the same as for a training
// that keeps everything, and none of this changes a bit of the training's results.
func TestWhatDoesNotFitIsOffloadedUntilThereIsAPlan(t *testing.T) {
	torch(t)
	t.Parallel()
	argv := []string{"testdata/exactly.py", "../../examples/gpt2.py", "--device", "cpu", "--steps", "1000000",
		"--batch", "8", "--sequence", "64", "--layers", "2", "--width", "64", "--heads", "2", "--vocabulary",
		"100"}
	stop := filepath.Join(t.TempDir(), "stop")
	l := launchLive(t, pytorch.Launch{Argv: argv, Env: []string{"STOP=" + stop, "OMP_NUM_THREADS=1"},
		Offload: []string{"cpu"}})
	if !l.offloads() {
		t.Errorf("it does not say that saved tensors wait on the host: %v", l.History.Snapshot().Notices)
	}
	offloaded := l.problem()
	for _, s := range l.History.Snapshot().Steps {
		if s.Carried.Plan != 0 || s.Carried.Out == 0 || s.Carried.In == 0 || s.Carried.Differ != 0 {
			t.Fatalf("step %d: %+v", s.Index, s.Carried)
		}
	}
	x := managed("joint", anyHardware, share(80))
	x.Offload = true
	on := l.trainOn(x)
	if on.Before != 0 || on.Peak == 0 || on.Peak >= on.PeakBefore {
		t.Errorf("under a plan: %+v", on)
	}
	if s := l.unplanned(); s.Carried.Out == 0 {
		t.Errorf("after the plan has ended: %+v", s.Carried)
	}
	// on a CPU offloading gains nothing, and a plan costs what was measured
	x = managed("joint", live.Hardware{Hardware: anyHardware.Hardware}, share(80))
	makes, measured := x.Make, false
	x.Make = func(ctx context.Context, p *plan.Problem, budget int64) (*plan.Plan, error) {
		measured = p.Hardware.Measured
		return makes(ctx, p, budget)
	}
	if on := l.trainOn(x); on.Before == 0 || !measured {
		t.Errorf("under a plan for what fits, its cost measured %v: %+v", measured, on)
	}
	if s := l.unplanned(); s.Carried.Out != 0 || l.offloads() {
		t.Errorf("if it fits and the plan has ended: %+v; %v", s.Carried, l.History.Snapshot().Notices)
	}
	kept := l.problem()
	a, _ := offloaded.PeakLive()
	b, _ := kept.PeakLive()
	if a != b || len(offloaded.Buffers) != len(kept.Buffers) {
		t.Errorf("described while it is offloaded: %d buffers, %d bytes at the peak; otherwise %d and %d",
			len(offloaded.Buffers), a, len(kept.Buffers), b)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := l.end()
	cmd := exec.Command(torch(t), argv...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1",
		fmt.Sprintf("STEPS=%d", strings.Count(got, "\n")))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := torchtest.Learned(out); got != want {
		t.Error("some steps computed something different from training without gmemtop")
	}
}

// A training on a CPU, where nothing is offloaded although GPUs were to be, is described once, and steps
// without a plan are timed once.
func TestOnACPUThePlanComesSoon(t *testing.T) {
	torch(t)
	t.Parallel()
	l := launchLive(t, pytorch.Launch{Argv: []string{scenarios, "convnet@100000"}, Env: []string{"PACE=0.02"},
		Offload: []string{"cuda"}})
	if !l.offloads() {
		t.Fatalf("it does not say that saved tensors would wait: %v", l.History.Snapshot().Notices)
	}
	captured, again := 0, 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var on live.News
	x := managed("joint", live.Hardware{Hardware: anyHardware.Hardware}, share(80))
	err := l.train(ctx, x, nil, func(n live.News) {
		switch on = n; n.Stage {
		case live.Describing:
			captured += int(min(n.Try, 1))
		case live.MeasuringWithout:
			again++
		case live.On:
			cancel()
		}
	})
	if err != nil || on.Stage != live.On || on.Before == 0 || captured != 1 || again != 0 {
		t.Errorf("%+v, captured %d times, timed again %d times, %v", on, captured, again, err)
	}
}

func TestProgramsLearnTheSameWhileTheyAreOffloaded(t *testing.T) {
	torch(t)
	t.Parallel()
	for name, x := range map[string]struct{ script, names string }{
		// which ends it
		"usual": {scenarios, "mlp@12,convnet@12,gpt@12,amp@12,accumulate@12,checkpoint@12,compiled@12"},
		"ranks": {scenarios, "ddp@12,fsdp@12"},
		"awkward": {awkward,
			"twice@12,penalty@12,varied@12,trips@12,stops@12,hooked@12,looks@12,changed@12,beside@12"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "ranks" {
				torchtest.Needs(t, 207, "fully_shard on a CPU")
			}
			l := launchLive(t, pytorch.Launch{Argv: []string{x.script, x.names}, Offload: []string{"cpu"}})
			got := l.end()
			learnt := alone(t, x.script, strings.Split(x.names, ",")...)
			if want := torchtest.Learned([]byte(strings.Join(slices.Collect(maps.Values(learnt)),
				""))); got != want {
				t.Errorf("it learnt\n%s\nbut without gmemtop\n%s", got, want)
			}
			var out int64
			for _, s := range l.History.Snapshot().Steps {
				out += s.Carried.Out
			}
			if out == 0 {
				t.Errorf("nothing was moved: %v", l.History.Snapshot().Notices)
			}
		})
	}
}

// share is a budget in percent of the bytes alive at the peak.
func share(percent int64) func(*plan.Problem) int64 {
	return func(p *plan.Problem) int64 {
		all, _ := p.PeakLive()
		return all * percent / 100
	}
}

// trainOn carries a choice out until the plan is on, returns the news at that point, and takes the plan away
// afterwards.
func (l *liveTraining) trainOn(w *Choice) (on live.News) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel()
	if err := l.train(ctx, w, nil, func(n live.News) {
		if n.Stage == live.On {
			on = n
			cancel()
		}
	}); err != nil && ctx.Err() == nil {
		l.t.Fatal(err)
	}
	return on
}

// unplanned returns the newest step, once one has run without a plan.
func (l *liveTraining) unplanned() capture.Step {
	l.t.Helper()
	if _, err := l.Steps(l.t.Context(), 0, 2); err != nil {
		l.t.Fatal(err)
	}
	steps := l.History.Snapshot().Steps
	return steps[len(steps)-1]
}
