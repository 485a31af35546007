package crew

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/traces"
)

// Scripts that train, and take the name of a scenario and a number of steps.
const (
	scenarios = "../../capture/pytorch/testdata/train.py"
	awkward   = "../../capture/pytorch/testdata/awkward.py"
)

func TestPlansToggledAtRandomStepsChangeNoBit(t *testing.T) {
	torch(t)
	t.Parallel()
	trainings := []struct{ scenario, managers string }{
		{"convnet@130", "sqrt,dtr,capuchin,joint"}, {"gpt@130", "sqrt,dtr,capuchin,joint"},
		{"amp@130", "sqrt,capuchin"}, {"accumulate@160", "capuchin,vdnn-all"},
		{"checkpoint@120", "dtr,capuchin"}, {"closure@130", "capuchin,joint"},
	}
	var all []string
	for _, x := range trainings {
		all = append(all, x.scenario)
	}
	want := alone(t, scenarios, all...)
	for _, x := range trainings {
		name, count, _ := strings.Cut(x.scenario, "@")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps, _ := strconv.ParseInt(count, 10, 64)
			l := startLive(t, scenarios, x.scenario)
			p := l.problem()
			words := l.plans(p, x.managers)
			if name == "convnet" && !bytes.Contains(bytes.Join(slices.Collect(maps.Values(words)), nil),
				[]byte(`batch_norm",`)) {
				t.Error("no plan recomputes a normalisation")
			}
			toggles, freed, missed := l.toggle(words, steps-40, 5)
			if toggles < 5 || freed == 0 || missed > 0 {
				t.Errorf("%d toggles, %d bytes and nanoseconds, %d tensors stayed that should have left",
					toggles, freed, missed)
			}
			learntTheSame(t, l.end(), want[x.scenario])
		})
	}
}

// One viewer asks for steps while another asks for steps to plan with: both get theirs.
func TestTwoOrdersToDescribeAreBothCarriedOut(t *testing.T) {
	torch(t)
	t.Parallel()
	l := startLive(t, scenarios, "mlp@100000")
	for range 3 {
		var both sync.WaitGroup
		both.Go(func() {
			w, err := l.describe(t.Context(), capture.Order{Do: capture.Describe, Steps: 1, Saves: true})
			if err != nil || !slices.Contains(w.Trace.Strings, plan.SaveOp) {
				t.Errorf("a step with saved tensors: %v", err)
			}
		})
		both.Go(func() {
			if w, err := l.describe(t.Context(), capture.Order{Do: capture.Describe, Steps: 2}); err != nil ||
				w.Last <= w.First {
				t.Errorf("two steps: %+v, %v", w, err)
			}
		})
		both.Wait()
	}
}

func TestAwkwardProgramsLearnTheSameUnderPlans(t *testing.T) {
	torch(t)
	t.Parallel()
	all := []string{"twice@150", "penalty@150", "varied@150", "trips@200", "stops@180", "hooked@150",
		"looks@180", "skips@180", "byhand@180", "busy@150", "changed@350", "beside@200",
		"effects@150", "mixed@150", "maps@150", "starves@220"}
	want := alone(t, awkward, all...)
	for _, scenario := range all {
		name, count, _ := strings.Cut(scenario, "@")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps, _ := strconv.ParseInt(count, 10, 64)
			l := startLive(t, awkward, scenario)
			p := l.problem()
			if name == "beside" {
				forwardComesFirst(t, p)
			}
			words := l.plans(p, "sqrt,dtr,capuchin,vdnn-all")
			toggles, freed, missed := l.toggle(words, steps*4/5-40, 12)
			t.Logf("%d toggles, %d, %d missed", toggles, freed, missed)
			if freed == 0 {
				t.Error("nothing left memory")
			}
			learntTheSame(t, l.end(), want[scenario])
		})
	}
}

// forwardComesFirst checks that no op up to the last one whose tensors autograd saves is mistaken for one of
// the backward pass.
func forwardComesFirst(t *testing.T, p *plan.Problem) {
	t.Helper()
	last := 0
	for i, op := range p.Ops {
		if op.Name == plan.SaveOp {
			last = i
		}
	}
	for i, op := range p.Ops[:last] {
		if op.Phase == traces.PhaseBackward {
			t.Fatalf("op %d of %d, %s, is in the forward pass but counted as backward", i, last, op.Name)
		}
	}
}

func TestAPlanEndsWhenTheProgramSetsItsOwnSavedTensorHooks(t *testing.T) {
	torch(t)
	t.Parallel()
	const scenario, half = "wrapped@600", 300
	l := startLive(t, awkward, scenario)
	words := l.plans(l.problem(), "vdnn-all,sqrt")
	ctx, number := t.Context(), int64(0)
	for _, name := range slices.Sorted(maps.Keys(words)) {
		number++
		if err := l.Carry(ctx, live.Order{Number: number, Plan: words[name]}); err != nil {
			t.Fatal(err)
		}
		list, err := l.Steps(ctx, number, 3)
		if err != nil || list[2].Out+list[2].Again == 0 {
			t.Fatalf("%s in the first half, which ends in step %d: %v, %v", name, half, list, err)
		}
	}
	if at := l.index(); at >= half {
		t.Fatalf("the first half ended before its plans did, in step %d", at)
	}
	if _, err := l.Steps(ctx, number, 1000); !errors.Is(err, errGivenUp) ||
		!strings.Contains(err.Error(), "has its own saved-tensor hooks") {
		t.Errorf("it ended with %v", err)
	}
	for range 2 {
		_, err := l.Describe(ctx, 0)
		if err == nil || !strings.Contains(err.Error(),
			"cannot be described: gmemtop did not see what autograd saved up to step ") ||
			!strings.Contains(err.Error(), "has its own saved-tensor hooks") {
			t.Errorf("it is described: %v", err)
		}
	}
	learntTheSame(t, l.end(), alone(t, awkward, scenario)[scenario])
}

// compiledUnseen says why a test that compiles needs a newer torch.
const compiledUnseen = "torch.compile of an older one takes the hooks off the steps of all optimizers, so " +
	"that no step is seen"

func TestAPlanEndsWhenTheProgramIsCompiled(t *testing.T) {
	torchtest.Needs(t, 206, compiledUnseen)
	t.Parallel()
	const scenario = "compiles@500"
	want := alone(t, awkward, scenario)[scenario]
	for _, manager := range []string{"vdnn-all", "sqrt"} {
		t.Run(manager, func(t *testing.T) {
			l := startLive(t, awkward, scenario)
			words, ctx := l.plans(l.problem(), manager), t.Context()
			name := slices.Sorted(maps.Keys(words))[0]
			if err := l.Carry(ctx, live.Order{Number: 1, Plan: words[name]}); err != nil {
				t.Fatal(err)
			}
			if list, err := l.Steps(ctx, 1, 3); err != nil || list[2].Out+list[2].Again == 0 {
				t.Fatalf("before it is compiled: %v, %v", list, err)
			}
			if _, err := l.Steps(ctx, 1, 1000); !errors.Is(err, errGivenUp) ||
				!strings.Contains(err.Error(), "torch.compile is in use") {
				t.Errorf("it ended with %v", err)
			}
			if err := l.Carry(ctx, live.Order{Number: 2, Plan: words[name]}); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Steps(ctx, 2, 1); !errors.Is(err, errGivenUp) ||
				!strings.Contains(err.Error(), "torch.compile is in use") {
				t.Errorf("once it is compiled: %v", err)
			}
			learntTheSame(t, l.end(), want)
		})
	}
}

func TestPlansThatExceedHostMemoryOrChangeResultsAreGivenUp(t *testing.T) {
	torch(t)
	t.Parallel()
	l := startLive(t, awkward, "wobbles@100000")
	p := l.problem()
	ms, err := managers.Select("sqrt")
	if err != nil {
		t.Fatal(err)
	}
	all, _ := p.PeakLive()
	pl, err := ms[0].Plan(context.Background(), p, plan.Request{Budget: all * 9 / 10,
		Evaluator: sim.Simulator{}})
	if err != nil {
		t.Fatal(err)
	}
	if pl, err = managers.Eager(context.Background(), p, pl); err != nil || pl == nil {
		t.Fatal(pl, err)
	}
	if !slices.ContainsFunc(pl.Reruns, func(r plan.Rerun) bool {
		return slices.ContainsFunc(r.Ops, func(o plan.OpID) bool { return p.Ops[o].Name == "aten::sigmoid" })
	}) {
		t.Fatal("no plan recomputes a sigmoid")
	}
	words, err := live.Encode(p, pl, live.Same)
	if err != nil {
		t.Fatal(err)
	}
	greedy := strings.Replace(string(words), `"slab":0`, `"slab":1125899906842624`, 1)
	if err := l.Carry(context.Background(), live.Order{Number: 5, Plan: []byte(greedy)}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Steps(context.Background(), 5, 1); !errors.Is(err, errGivenUp) ||
		!strings.Contains(err.Error(), "of host memory, but only") {
		t.Errorf("a plan that needs a pebibyte of host memory ends with %v", err)
	}
	tell := func(live.News) {}
	if err := live.NewTarget(l.Member, live.Options{}).Hold(context.Background(), p, live.Made{Plan: pl},
		tell); !errors.Is(err, errDiffer) {
		t.Errorf("it ended with %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last live.News
	err = live.NewTarget(l.Member, live.Options{Results: live.Any}).Hold(ctx, p, live.Made{Plan: pl},
		func(n live.News) {
			if last = n; n.Stage == live.On {
				cancel()
			}
		})
	if err != nil || last.Differ == 0 || last.Checked < last.Differ {
		t.Errorf("it ended with %v, and %d of %d tensors differed", err, last.Differ, last.Checked)
	}
}
