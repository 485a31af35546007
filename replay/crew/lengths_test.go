package crew

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
)

// A plan is made for the largest of the steps seen. If larger ones come, no tensor stays that was to leave,
// and the plan is made again for the new sizes: later steps hold the budget. The results of
// the training are the same to the bit. All of that is true even if the described steps have one shape by
// chance.
func TestAPlanIsMadeAgainForLargerSteps(t *testing.T) {
	torch(t)
	t.Parallel()
	const script = "testdata/lengths.py"
	for _, name := range []string{"lengths", "alike"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planAgain(t, script, name)
		})
	}
}

func planAgain(t *testing.T, script, name string) {
	t.Helper()
	late, stop := filepath.Join(t.TempDir(), "late"), filepath.Join(t.TempDir(), "stop")
	l := startLiveWith(t, []string{"PACE=0.02", "LATE=" + late, "STOP=" + stop}, script, name+"@1000000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var budget int64
	var plans []*plan.Plan
	makes := func(ctx context.Context, p *plan.Problem) (live.Made, error) {
		defer l.hold.still()() // the larger steps must not be over before there is a plan
		ms, err := managers.Select("joint")
		if err != nil {
			return live.Made{}, err
		}
		pl, err := ms[0].Plan(ctx, p, plan.Request{Budget: budget, Evaluator: sim.Simulator{}, Work: 2000})
		if err == nil {
			pl, err = managers.Eager(ctx, p, pl)
		}
		if err == nil && pl == nil {
			err = errors.New("nothing leaves")
		}
		plans = append(plans, pl)
		return live.Made{Plan: pl, Budget: budget}, err
	}
	target := live.NewTarget(describedHeld{l}, live.Options{Warm: 1, Steps: 3, Again: makes,
		Patience: time.Hour}) // however slow the machine makes the steps
	goOn := l.hold.still() // nor before the steps were described
	p, err := target.Problem(ctx, anyHardware)
	goOn()
	if err != nil {
		t.Fatal(err)
	}
	budget = p.Held() / 2
	made, err := makes(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	var last live.News
	after := 0
	err = target.Hold(ctx, p, made, func(n live.News) {
		if err := os.WriteFile(late, nil, 0o600); err != nil { // longer ones may come: the plan is on
			t.Error(err)
		}
		if n.Larger > 0 {
			after++
		}
		if last = n; after == 4 { // the plan made again was on for some steps, and its peak was measured
			cancel()
		}
	})
	if err != nil {
		t.Fatalf("%v, after %+v", err, last)
	}
	if last.Larger == 0 || last.Refused != "" || len(plans) < 2 {
		t.Fatalf("%d plans were made, and the news is %+v", len(plans), last)
	}
	if last.Predicted > budget || last.Peak > budget {
		t.Errorf("larger steps hold %d bytes, predicted %d, of a budget of %d", last.Peak, last.Predicted,
			budget)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := l.end()
	again := strings.Fields(got)[1]
	if strings.Count(again, "@") != 2 {
		t.Fatalf("longer steps never came: %s", again)
	}
	learntTheSame(t, got, alone(t, script, again)[again])

	steps := l.History.Snapshot().Steps
	slab := int64(0)
	for _, x := range made.Absences {
		if x.How == plan.Swap {
			slab += p.Buffers[x.Buffer].Size
		}
	}
	more := false
	for _, s := range steps {
		if s.Carried.Missed > 0 {
			t.Errorf("in step %d %d tensors stayed that should have left", s.Index, s.Carried.Missed)
		}
		more = more || s.Carried.Out > slab
	}
	if !more {
		t.Errorf("no step moved more than the %d bytes of the first plan", slab)
	}
}

// Until the plan is made again, and if it never is, a larger step keeps the budget too: further tensors leave
// in it. The plan's own rules would not keep it.
func TestALargerStepKeepsTheBudget(t *testing.T) {
	torch(t)
	t.Parallel()
	const script = "testdata/lengths.py"
	late, stop := filepath.Join(t.TempDir(), "late"), filepath.Join(t.TempDir(), "stop")
	l := startLiveWith(t, []string{"PACE=0.02", "LATE=" + late, "STOP=" + stop}, script, "lengths@1000000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	target := live.NewTarget(describedHeld{l}, live.Options{Warm: 1, Steps: 3, Patience: time.Hour})
	goOn := l.hold.still() // it takes steps only when they are waited for
	p, err := target.Problem(ctx, anyHardware)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := managers.Select("joint")
	if err != nil {
		t.Fatal(err)
	}
	budget := p.Held() * 3 / 4
	pl, err := ms[0].Plan(ctx, p, plan.Request{Budget: budget, Evaluator: sim.Simulator{}, Work: 2000})
	if err == nil {
		pl, err = managers.Eager(ctx, p, pl)
	}
	if err != nil || pl == nil {
		t.Fatal(pl, err)
	}
	goOn()
	var usual, longest int64 // the largest tensor before longer sequences came, and then
	err = target.Hold(ctx, p, live.Made{Plan: pl, Budget: budget}, func(n live.News) {
		if n.Stage != live.On || longest > usual {
			return
		}
		steps := l.History.Snapshot().Steps
		tr, err := describedHeld{l}.Describe(ctx, steps[len(steps)-1].Carried.Plan)
		if err != nil {
			t.Errorf("%v; notices %v", err, l.History.Snapshot().Notices)
			cancel()
			return
		}
		largest := slices.Max(tr.Events.Size)
		if usual == 0 {
			usual = largest
			if err := os.WriteFile(late, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
		tl, err := timeline.Build(ctx, tr, nil)
		if err != nil {
			t.Error(err)
		} else if held := tl.Devices[0].Totals.PeakAllocated; held > budget {
			t.Errorf("a step with a tensor of %d bytes, where %d are usual, holds %d; the budget is %d",
				largest, usual, held, budget)
		}
		if longest = largest; longest > usual {
			cancel()
		}
	})
	if err != nil || longest <= usual {
		t.Fatalf("the largest tensor had %d bytes, then %d: %v", usual, longest, err)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := l.end()
	again := strings.Fields(got)[1]
	learntTheSame(t, got, alone(t, script, again)[again])
}
