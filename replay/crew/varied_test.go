package crew

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Programs whose steps run different ops are planned for: steps under the plan keep the budget, whichever ops
// they run, even if a step saves nothing that the planned one saves, and the training learns the same to the
// bit. A plan under which one of the described steps would not keep it is never turned on. If layers run
// together that never did while steps were watched, a step may exceed it once: then that is told.
func TestStepsThatRunDifferentOpsKeepTheBudget(t *testing.T) {
	torch(t)
	t.Parallel()
	for _, c := range [][2]string{{"recurrent", "joint"}, {"depth", "joint"}, {"depth", "sqrt"},
		{"branches", "joint"}, {"layerwise", "joint"}, {"passes", "joint"}, {"warmup", "joint"},
		{"evaluates", "sqrt"}} {
		t.Run(c[0]+" "+c[1], func(t *testing.T) {
			t.Parallel()
			keepsBudget(t, c[0], c[1])
		})
	}
}

func keepsBudget(t *testing.T, name, manager string) {
	t.Helper()
	const script = "testdata/varied.py"
	stop := filepath.Join(t.TempDir(), "stop")
	l := startLiveWith(t, []string{"STOP=" + stop}, script, name+"@1000000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var budget int64
	var ended tries
	ms, err := managers.Select(manager)
	if err != nil {
		t.Fatal(err)
	}
	choice := &Choice{Name: manager, Eager: managers.Eager,
		Budget: func(context.Context, *plan.Problem, maybe.Int) (int64, error) { return budget, nil },
		Make: func(ctx context.Context, p *plan.Problem, budget int64) (*plan.Plan, error) {
			return ms[0].Plan(ctx, p, plan.Request{Budget: budget, Evaluator: sim.Simulator{}, Work: 2000})
		}}
	makes := func(ctx context.Context, p *plan.Problem) (live.Made, error) {
		defer l.hold.still()()
		return choice.Plan(ctx, p, maybe.Int{}, ended.spare)
	}
	target := live.NewTarget(describedHeld{l}, live.Options{Warm: 1, Steps: 3, Again: makes,
		Patience: time.Hour}) // however slow the machine makes the steps
	goOn := l.hold.still() // it takes steps only when they are waited for
	p, err := target.Problem(ctx, anyHardware)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Varied) == 0 {
		t.Fatalf("the steps were taken to be alike; notes: %q", p.Notes)
	}
	budget = max(p.Held()*8/10, plan.LeastResident(p)*21/20)
	var last live.News
	described := 0
	tell := func(n live.News) {
		if last = n; n.Stage != live.On {
			return
		}
		steps := l.History.Snapshot().Steps
		under := steps[len(steps)-1].Carried.Plan
		tr, err := describedHeld{l}.Describe(ctx, under)
		if errors.Is(err, errGivenUp) {
			return // the plan was made again for larger steps; if it has ended for good, Hold says why
		}
		if err != nil {
			t.Errorf("%v; notices %v", err, l.History.Snapshot().Notices)
			cancel()
			return
		}
		tl, err := timeline.Build(ctx, tr, nil)
		if err != nil {
			t.Error(err)
		} else if held := tl.Devices[0].Totals.PeakAllocated; held > budget &&
			(n.Larger == 0 || held > budget+n.Above) {
			t.Errorf("a step holds %d bytes under the plan, %d without; the budget is %d, and it is told "+
				"that %d steps were larger, by %d", held, p.Held(), budget, n.Larger, n.Above)
		}
		if described++; described == 4 {
			cancel()
		}
	}
	for {
		made, noPlan := makes(ctx, p)
		if noPlan != nil && ended.above == nil {
			err = noPlan
		}
		if noPlan != nil {
			break
		}
		if err = target.Hold(ctx, p, made, tell); !ended.again(choice, err) {
			break
		}
	}
	above := (*live.Above)(nil)
	// it has one plan, however much room the steps that were seen need beside it
	never := manager == "sqrt" && name != "evaluates" && errors.As(err, &above)
	if never {
		if last.Stage != live.Waiting {
			t.Fatalf("%v, after %+v", err, last)
		}
	} else if err != nil {
		t.Fatalf("%v, after %+v", err, last)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	goOn()
	got := l.end()
	var steps int
	if _, err := fmt.Sscanf(got[strings.Index(got, name)+len(name):], "-%d", &steps); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	as := fmt.Sprintf("%s@%d", name, steps)
	learntTheSame(t, got, alone(t, script, as)[as])
	if never {
		return
	}
	moved, under := 0, 0
	for _, s := range l.History.Snapshot().Steps {
		if s.Carried.Plan > 0 {
			under++
			if s.Carried.Out+int64(s.Carried.Again) > 0 {
				moved++
			}
		}
	}
	least := under / 2
	if name == "branches" { // each network has rules of its own
		least = under * 3 / 4
	}
	if under == 0 || moved < least {
		t.Errorf("something left memory in %d of %d steps", moved, under)
	}
}
