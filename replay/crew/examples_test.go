package crew

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/pool"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// smallExamples are the trainings in folder examples, small enough for a CPU to train some thousand steps in
// a minute.
var smallExamples = map[string]string{
	"mlp.py":      "--batch 8200 --inputs 16 --layers 4 --width 32 --dropout 0.1",
	"resnet50.py": "--batch 8 --image 32 --width 4 --classes 10",
	"vgg16.py":    "--batch 8 --image 32 --width 4 --hidden 32 --classes 10",
	"gpt2.py":     "--batch 4 --sequence 64 --layers 2 --width 32 --heads 2 --vocabulary 100",
	"vit.py":      "--batch 8 --image 32 --patch 4 --layers 2 --width 32 --heads 2 --classes 10",
}

// stepsUnder is how many steps to run under each manager. Fifty steps of every example take about five
// minutes on two cores, so they run only on request; by default one fast example is tried.
var stepsUnder = flag.Int("steps-under", 0,
	"how many steps to run under each manager in TestEveryManagerLearnsTheSameOnEveryExample, of "+
		"every example; a pool also serves code that inductor compiled; "+
		"0 means four steps of one example")

// fewSteps is the default, for one fast example.
const (
	fewSteps = 4
	quickest = "gpt2.py"
)

// TestEveryManagerLearnsTheSameOnEveryExample runs every manager that works in a running training for some
// steps of every example, on and off at random, and compares parameters and gradients after every single step
// with those of the same training alone.
func TestEveryManagerLearnsTheSameOnEveryExample(t *testing.T) {
	torch(t)
	t.Parallel()
	var mu sync.Mutex
	under, examples := map[string]int{}, 0 // by manager, in how many examples it had something to do
	t.Run("examples", func(t *testing.T) {
		for script, flags := range smallExamples {
			if *stepsUnder == 0 && script != quickest {
				continue
			}
			t.Run(strings.TrimSuffix(script, ".py"), func(t *testing.T) {
				t.Parallel()
				argv := append([]string{"testdata/exactly.py", "../../examples/" + script, "--device", "cpu",
					"--steps", "1000000"}, strings.Fields(flags)...)
				stop := filepath.Join(t.TempDir(), "stop")
				l := startLiveWith(t, []string{"STOP=" + stop, "OMP_NUM_THREADS=1"}, argv...)
				plans := l.everyPlan()
				mu.Lock()
				examples++
				mu.Unlock()
				toggles := int64(0)
				r := rand.New(rand.NewPCG(5, 6))
				for _, x := range plans {
					toggles += l.someSteps(r, toggles, x)
					mu.Lock()
					under[x.manager]++
					mu.Unlock()
				}
				if err := os.WriteFile(stop, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				got := l.end()
				cmd := exec.Command(torch(t), argv...)
				steps := strings.Count(got, "\n")
				cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1",
					fmt.Sprintf("STEPS=%d", steps))
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				if want := torchtest.Learned(out); got != want {
					t.Errorf("some of %d steps computed something different from training without plans",
						steps)
				}
				var names []string
				for _, x := range plans {
					names = append(names, x.manager)
				}
				t.Logf("%d steps, %d toggles of %s", steps, toggles, strings.Join(names, ", "))
			})
		}
	})
	for _, m := range managers.All() {
		if i := m.Info(); i.Family != plan.Baseline && under[i.Name] == 0 && !replayOnly[i.Name] &&
			!stateOnly[i.Name] && examples == len(smallExamples) {
			t.Errorf("%s was not carried out on any example", i.Name)
		}
	}
	t.Logf("on how many examples: %v", under)
}

// replayOnly are the managers that need something that a running PyTorch lacks: docs/carry.md lists them.
var replayOnly = map[string]bool{"gmlake": true, "smartpool-swap": true, "order": true}

// stateOnly are the managers that move optimizer state alone. The captured step of an example may have none
// that only its optimizer uses; TestOptimizerStateLeavesWhereTheBudgetCannotBeMetOtherwise moves it.
var stateOnly = map[string]bool{"zero-offload": true}

// carriedPlan is a plan in the agent's words.
type carriedPlan struct {
	manager string
	words   []byte
	pool    bool
}

// everyPlan plans for the training with all managers, each for the first of some budgets at which it moves or
// drops anything at all.
func (l *liveTraining) everyPlan() []carriedPlan {
	l.t.Helper()
	ctx := l.t.Context()
	saved, library := l.problem(), ""
	pooled, err := l.Target(ctx, true, live.Options{})
	if err != nil && !errors.Is(err, pool.ErrNoCompiler) {
		l.t.Fatal(err)
	}
	var allocated *plan.Problem
	if err == nil {
		if library, err = pool.Build(ctx); err != nil {
			l.t.Fatal(err)
		}
		if allocated, err = pooled.Problem(ctx, anyHardware); err != nil {
			l.t.Fatal(err)
		}
	}
	defer l.hold.still()()
	var plans []carriedPlan
	for _, m := range managers.All() {
		switch i := m.Info(); {
		case i.Family == plan.Baseline || replayOnly[i.Name]:
		case i.Family == plan.Pooling:
			if allocated == nil {
				l.t.Logf("%s is left out: it needs cc", i.Name)
				continue
			}
			pl, err := m.Plan(ctx, allocated, plan.Request{Work: 2000})
			if err != nil {
				l.t.Fatalf("%s: %v", i.Name, err)
			}
			words, err := live.EncodePool(allocated, pl, library)
			if err != nil {
				l.t.Fatalf("%s: %v", i.Name, err)
			}
			plans = append(plans, carriedPlan{i.Name, words, true})
		default:
			if words := l.moving(m, saved); words != nil {
				plans = append(plans, carriedPlan{i.Name, words, false})
			}
		}
	}
	return plans
}

// moving returns a manager's plan that takes something out of memory, nil if it makes none.
func (l *liveTraining) moving(m plan.Manager, p *plan.Problem) []byte {
	l.t.Helper()
	all, _ := p.PeakLive()
	for _, share := range []int64{80, 90, 60, 95} {
		pl, err := m.Plan(l.t.Context(), p, plan.Request{Budget: all * share / 100,
			Evaluator: sim.Simulator{}, Seed: 1, Work: 500})
		if errors.As(err, new(*plan.TooSmall)) {
			continue
		}
		if unavailable := new(plan.Unavailable); errors.As(err, &unavailable) &&
			(stateOnly[m.Info().Name] || strings.HasPrefix(unavailable.Reason, "unsolved: ")) {
			continue
		}
		if err == nil {
			pl, err = managers.Eager(l.t.Context(), p, pl)
		}
		if err != nil {
			l.t.Fatalf("%s: %v", m.Info().Name, err)
		}
		if pl == nil || len(pl.Absences) == 0 {
			continue
		}
		words, err := live.Encode(p, pl, live.Same)
		if err != nil {
			l.t.Fatalf("%s: %v", m.Info().Name, err)
		}
		return words
	}
	return nil
}

// someSteps carries a plan out for some steps in all, on and off at random, and returns how often it was
// turned on. first is the number of earlier plans.
func (l *liveTraining) someSteps(r *rand.Rand, first int64, x carriedPlan) (toggles int64) {
	l.t.Helper()
	steps := cmp.Or(*stepsUnder, fewSteps)
	under, freed, missed, checked := 0, int64(0), int64(0), int64(0)
	for under < steps {
		toggles++
		list, err := l.under(first+toggles, x.words, min(1+r.IntN(max(steps/3, 4)), steps-under))
		if err != nil {
			l.t.Fatalf("%s: %v", x.manager, err)
		}
		under += len(list)
		for _, s := range list {
			freed, missed, checked = freed+s.Out+s.Again, missed+s.Missed, checked+s.Checked
		}
		if _, err := l.under(0, nil, 1+r.IntN(3)); err != nil {
			l.t.Fatal(err)
		}
	}
	if !x.pool && (freed == 0 || missed > 0 || checked == 0) {
		l.t.Errorf("%s: %d bytes and nanoseconds, %d tensors stayed that should have left, %d compared",
			x.manager, freed, missed, checked)
	}
	return toggles
}
