package replay_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// endless plans until its context ends, and then returns its best plan, if it has one.
type endless struct {
	name string
	has  bool
}

func (m endless) Info() plan.Info { return plan.Info{Name: m.name, Needs: traces.Lifetimes} }
func (m endless) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	<-ctx.Done()
	if !m.has {
		return nil, ctx.Err()
	}
	pl, err := pool.Exact().Plan(context.WithoutCancel(ctx), p, r)
	if err == nil {
		pl.Manager = m.name
	}
	return pl, err
}

// Whoever stops planning keeps the best plans so far, measured, and marked wherever they are shown.
func TestStoppedPlanningKeepsTheBestPlansSoFar(t *testing.T) {
	t.Parallel()
	p := plantest.Chain(12, 8<<20, 4_000_000)
	ctx, stop := context.WithCancelCause(t.Context())
	begun := map[string]bool{}
	list := []plan.Manager{pool.Exact(), endless{"with", true}, endless{"without", false},
		endless{"waiting", true}}
	c, err := replay.Compare(ctx, p, list, replay.Options{Budget: 1 << 30, Parallel: 2,
		Update: func(u replay.Progress) {
			begun[u.Manager] = true
			if begun["with"] && begun["without"] {
				stop(replay.ErrStopped)
			}
		}})
	if !errors.Is(err, context.Canceled) || c == nil {
		t.Fatalf("the comparison is %v, %v", c, err)
	}
	want := []struct {
		name               string
		available, stopped bool
		reason             string
	}{{"exact", true, false, ""}, {"with", true, true, ""},
		{"without", false, true, "planning was stopped before it had a plan"},
		{"waiting", false, true, "planning was stopped before its turn"}}
	if len(c.Results) != len(want) {
		t.Fatalf("%d results", len(c.Results))
	}
	for i, w := range want {
		r := &c.Results[i]
		if r.Info.Name != w.name || r.Available != w.available || r.Stopped != w.stopped ||
			r.Reason != w.reason {
			t.Errorf("%s: available %v, stopped %v, %q", r.Info.Name, r.Available, r.Stopped, r.Reason)
		}
		noted := r.Plan != nil && slices.ContainsFunc(r.Plan.Notes, func(n string) bool {
			return strings.Contains(n, "stopped early")
		})
		if noted != (w.available && w.stopped) {
			t.Errorf("%s: its plan says that it was stopped early: %v", w.name, noted)
		}
	}
	if r := &c.Results[1]; r.Measurement.StepTime == 0 || !r.Fits {
		t.Errorf("the best plan so far is not measured: %+v", r.Measurement)
	}
	clause := "Stopped early: with gives its best plan so far, 2 managers have no plan yet."
	if s := c.Sentence(timeline.IEC); !strings.HasSuffix(s, clause) {
		t.Errorf("the sentence: %s", s)
	}
	var text, js bytes.Buffer
	err = errors.Join(c.WriteText(&text, replay.TextOptions{}), c.WriteJSON(&js, timeline.IEC))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "with, stopped early ") ||
		strings.Contains(text.String(), "exact, stopped") {
		t.Errorf("the table:\n%s", text.String())
	}
	if n := strings.Count(js.String(), `"stopped_early": true`); n != 3 {
		t.Errorf("JSON marks %d results", n)
	}
}

// A context that is cancelled for any other reason leaves nothing to show of who was planning.
func TestCancelledPlanningMeasuresNothing(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	c, err := replay.Compare(ctx, plantest.Chain(12, 8<<20, 4_000_000),
		[]plan.Manager{endless{"with", true}, endless{"waiting", true}},
		replay.Options{Parallel: 1, Update: func(replay.Progress) { stop() }})
	if !errors.Is(err, context.Canceled) || len(c.Results) != 1 || c.Results[0].Available {
		t.Errorf("%v, %+v", err, c)
	}
}

// A manager that reaches its limit is marked as well: with more time it might do better.
func TestAPlanAtTheLimitIsMarked(t *testing.T) {
	t.Parallel()
	c, err := replay.Compare(t.Context(), plantest.Chain(12, 8<<20, 4_000_000),
		[]plan.Manager{endless{"with", true}}, replay.Options{Limit: 1})
	if err != nil || !c.Results[0].Available || !c.Results[0].Stopped {
		t.Errorf("%v, %+v", err, c.Results)
	}
}
