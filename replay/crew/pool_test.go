package crew

import (
	"errors"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch/pool"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
)

// pooled returns a training as the target of plans that choose addresses.
func (l *liveTraining) pooled() *live.Target {
	l.t.Helper()
	defer l.hold.still()() // a library is compiled
	x, err := l.Target(l.t.Context(), true, live.Options{Steps: 5})
	if errors.Is(err, pool.ErrNoCompiler) {
		l.t.Skip("needs cc: ", err)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return x
}

// pool returns a plan for the training's allocations, in the agent's words and as a table.
func (l *liveTraining) pool(manager string) (words []byte, table live.Table, footprint int64) {
	l.t.Helper()
	ctx := l.t.Context()
	p, err := l.pooled().Problem(ctx, anyHardware)
	if err != nil {
		l.t.Fatal(err)
	}
	defer l.hold.still()()
	list, err := managers.Select(manager)
	if err != nil {
		l.t.Fatal(err)
	}
	pl, err := list[0].Plan(ctx, p, plan.Request{})
	if err != nil {
		l.t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		l.t.Fatal(err)
	}
	library, err := pool.Build(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	if words, err = live.EncodePool(p, pl, library); err != nil {
		l.t.Fatal(err)
	}
	if table, err = live.PoolTable(p, pl); err != nil {
		l.t.Fatal(err)
	}
	return words, table, pl.Footprint
}

func TestPoolsToggledAtRandomStepsChangeNoBit(t *testing.T) {
	torch(t)
	t.Parallel()
	for _, x := range []struct{ scenario, manager string }{{"mlp@1200", "smartpool"},
		{"convnet@500", "exact"}} {
		name, _, _ := strings.Cut(x.scenario, "@")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLive(t, scenarios, x.scenario)
			words, table, footprint := l.pool(x.manager)
			under, missed := l.toggled(words, 30)
			places, all := table.PlannedBytes()
			t.Logf("%d steps under %d entries, %d missed; %d of %d bytes have a place in an arena of %d, "+
				"predicted %d",
				under, len(table.Entries), missed, places, all, table.Arena, footprint)
			if missed > under*int64(len(table.Entries))/20 {
				t.Errorf("%d allocations, %d of them without a place",
					under*int64(len(table.Entries)), missed)
			}
			if places*10 < all*9 || table.Arena > footprint || table.Arena >= places {
				t.Errorf("%d of %d bytes have a place in an arena of %d; the planner says %d", places, all,
					table.Arena, footprint)
			}
			learntTheSame(t, l.end(), alone(t, scenarios, x.scenario)[x.scenario])
			if v := l.History.Snapshot(); len(v.Losses) > 0 {
				t.Errorf("lost %v", v.Losses)
			}
		})
	}
}

// toggled turns a pool's plan on and off at random steps, at most until the training is over, and returns how
// many steps ran under it and how many of their allocations found no place.
func (l *liveTraining) toggled(words []byte, toggles int64) (under, missed int64) {
	l.t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	for n := range toggles {
		list, err := l.under(n+1, words, 1+r.IntN(4))
		for _, s := range list {
			under, missed = under+1, missed+s.Missed
		}
		if err == nil && (r.IntN(2) == 0 || n == toggles-1) {
			_, err = l.under(0, nil, 1+r.IntN(2))
		}
		if l.over(err) {
			break
		}
		if err != nil {
			l.t.Fatalf("%v; notices %v", err, l.History.Snapshot().Notices)
		}
	}
	if under == 0 {
		l.t.Error("no step ran under the plan")
	}
	return under, missed
}

// TestAPoolServesCompiledCode runs torch.compile's graphs eagerly, and as compiled code if there is a
// compiler.
func TestAPoolServesCompiledCode(t *testing.T) {
	torchtest.Needs(t, 206, "torch.compile of an older one takes the hooks off the steps of all "+
		"optimizers, so that no step is seen")
	t.Parallel()
	compiled := []string{"compiled@800"}
	if *stepsUnder > 0 { // it takes a minute, most of it a compiler's
		compiled = append(compiled, "inductor@1500")
	}
	for _, scenario := range compiled {
		name, _, _ := strings.Cut(scenario, "@")
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("g++"); name == "inductor" && err != nil {
				t.Skip("needs g++: ", err)
			}
			want := alone(t, scenarios, scenario)[scenario] // compiled here, and only loaded below
			l := startLive(t, scenarios, scenario)
			words, table, _ := l.pool("smartpool")
			under, missed := l.toggled(words, 30)
			places, all := table.PlannedBytes()
			t.Logf("%d steps under %d entries, %d missed; %d of %d bytes have a place in an arena of %d",
				under, len(table.Entries), missed, places, all, table.Arena)
			if missed > under*int64(len(table.Entries))/20 || places*10 < all*9 {
				t.Errorf("of %d allocations %d found no place; %d of %d bytes have one",
					under*int64(len(table.Entries)), missed, places, all)
			}
			if got := l.end(); got != want {
				t.Errorf("it learnt\n%s\nbut without plans\n%s", got, want)
			}
		})
	}
}

func TestAPoolIsMeasuredInTheTraining(t *testing.T) {
	torch(t)
	t.Parallel()
	l := startLive(t, scenarios, "convnet@300")
	target := l.pooled()
	p, err := target.Problem(t.Context(), anyHardware)
	if err != nil {
		t.Fatal(err)
	}
	list, err := managers.Select("smartpool")
	if err != nil {
		t.Fatal(err)
	}
	pl, err := list[0].Plan(t.Context(), p, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := target.Run(t.Context(), p, pl, plan.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("step %s with, %s before, %s after; arena %d, alive %d; %v", time.Duration(m.StepTime),
		time.Duration(m.KeepAllBefore), time.Duration(m.KeepAllAfter), m.Footprint, m.PeakLive, m.Notes)
	if m.Footprint != pl.Footprint || m.Allocated || m.PeakLive > m.Footprint || m.StepTime == 0 ||
		m.KeepAllBefore == 0 || m.KeepAllAfter == 0 || m.Process == 0 || m.ProcessBefore == 0 {
		t.Errorf("%+v", m)
	}
	if err := l.Carry(t.Context(), live.Order{}); err != nil {
		t.Fatal(err)
	}
	learntTheSame(t, l.end(), alone(t, scenarios, "convnet@300")["convnet@300"])
}

func TestANewBatchSizeEndsAPoolAndTrainingGoesOn(t *testing.T) {
	torch(t)
	t.Parallel()
	l := startLive(t, awkward, "grows@800")
	words, _, _ := l.pool("smartpool")
	ctx := t.Context()
	if err := l.Carry(ctx, live.Order{Number: 1, Plan: words}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Steps(ctx, 1, 2); err != nil {
		t.Fatal(err)
	}
	_, err := l.Steps(ctx, 1, 2000)
	if !errors.Is(err, errGivenUp) || !strings.Contains(err.Error(), "three iterations in a row") {
		t.Errorf("%v", err)
	}
	if _, err := l.Steps(ctx, 0, 3); err != nil {
		t.Error(err)
	}
	learntTheSame(t, l.end(), alone(t, awkward, "grows@800")["grows@800"])
}

func TestTheReasonForRefusingAPoolIsReported(t *testing.T) {
	torch(t)
	t.Parallel()
	l := startLive(t, scenarios, "mlp@100000")
	words, _, _ := l.pool("smartpool")
	library, err := pool.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := string(words)
	for want, spoilt := range map[string]string{
		"cannot be loaded":   strings.Replace(text, library, "/nowhere.so", 1),
		"the parameters are": strings.Replace(text, `"device":"cpu"`, `"device":"cuda:0"`, 1),
		"has version 9":      strings.Replace(text, `"version":1`, `"version":9`, 1),
		"malformed":          strings.Replace(text, `"arena":`, `"arena":64,"was":`, 1),
	} {
		if err := l.Carry(t.Context(), live.Order{Number: 7, Plan: []byte(spoilt)}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Steps(t.Context(), 7, 3); !errors.Is(err, errGivenUp) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	if _, err := l.DescribeEvents(t.Context(), "/nowhere.so"); err == nil ||
		!strings.Contains(err.Error(), "cannot be loaded") {
		t.Errorf("recorded by a library that is not there: %v", err)
	}
	if err := l.Carry(t.Context(), live.Order{Number: 8, Plan: words}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Steps(t.Context(), 8, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := l.DescribeEvents(t.Context(), library); err == nil ||
		!strings.Contains(err.Error(), "another pool is in use in this process") {
		t.Errorf("recorded under a plan: %v", err)
	}
	// saved tensors may still be described meanwhile
	if tr, err := l.Describe(t.Context(), 0); err != nil || len(tr.Ops) == 0 {
		t.Errorf("described under a plan: %v", err)
	}
	_, err = l.describe(t.Context(), capture.Order{Do: capture.Describe, Steps: 3, How: capture.HowHistory})
	if err == nil || !strings.Contains(err.Error(), "no history of the CPU") {
		t.Errorf("the history of a CPU: %v", err)
	}
	if _, err := l.Steps(t.Context(), 8, 2); err != nil {
		t.Error(err)
	}
}
