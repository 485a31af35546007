package live

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
)

// evaluating is a training that evaluates, with as much memory as a step takes without a plan, in the first
// so many recordings under a plan.
type evaluating struct {
	drifting
	times int
}

func (e *evaluating) Describe(ctx context.Context, number int64) (*traces.Trace, error) {
	e.heavy = number != 0 && e.times > 0
	tr, err := e.drifting.Describe(ctx, number)
	if err != nil || number == 0 {
		return tr, err
	}
	e.times--
	return saysEvaluates(tr, e.times >= 0), nil
}

func (e *evaluating) Steps(ctx context.Context, number int64, n int) ([]Step, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return e.drifting.Steps(ctx, number, n)
}

// saysEvaluates returns a recording that says whether the program evaluated meanwhile.
func saysEvaluates(tr *traces.Trace, does bool) *traces.Trace {
	with := *tr
	with.Settings = slices.DeleteFunc(slices.Clone(tr.Settings), func(s traces.Setting) bool {
		return s.Key == described.EvaluatesSetting
	})
	value := "false"
	if does {
		value = "true"
	}
	with.Settings = append(with.Settings, traces.Setting{Key: described.EvaluatesSetting, Value: value})
	return &with
}

// An evaluation between two steps under a plan is no measurement of the plan: other steps are described, and
// the plan stays on. Where the planned steps evaluate too, all count.
func TestAnEvaluationIsNotTakenForAStepUnderThePlan(t *testing.T) {
	for _, c := range []struct {
		planned   bool // the planned steps evaluate
		times     int
		describes int
		above     bool
	}{{false, 0, 1, false}, {false, 2, 3, false}, {false, peakTries, peakTries, true}, {true, 1, 1, true}} {
		e := &evaluating{drifting{tr: saysEvaluates(recording(t, triedCosts), c.planned)}, c.times}
		p, pl := swapsAll(t, e.tr)
		with, _ := pl.PeakLive()
		m, err := NewTarget(e, Options{}).Run(t.Context(), p, pl, plan.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		described := 0
		for _, a := range e.asked {
			if a == "describe" {
				described++
			}
		}
		if described != c.describes || (m.Footprint > with) != c.above {
			t.Errorf("%+v: described %d times, %d bytes with a plan of %d", c, described, m.Footprint, with)
		}
		if noted := slices.ContainsFunc(m.Notes, func(n string) bool {
			return strings.HasPrefix(n, "an evaluation between two steps holds ")
		}); noted != (c.times > 0 && !c.above) {
			t.Errorf("%+v: its notes are %q", c, m.Notes)
		}
		e.times = c.times
		above := (*Above)(nil)
		ctx, cancel := context.WithCancel(t.Context())
		err = NewTarget(e, Options{}).Hold(ctx, p, Made{Plan: pl, Budget: with}, func(n News) {
			if n.Stage == On {
				cancel()
			}
		})
		if errors.As(err, &above) != c.above {
			t.Errorf("%+v: held until %v", c, err)
		}
		cancel()
	}
}

// dropping is a training that drops a layer in so many recordings under a plan: it saves fewer tensors, and
// holds half as much.
type dropping struct {
	drifting
	times int
}

func (e *dropping) Describe(ctx context.Context, number int64) (*traces.Trace, error) {
	e.heavy = number != 0 && e.times <= 0
	tr, err := e.drifting.Describe(ctx, number)
	if err != nil || number == 0 || e.heavy {
		return tr, err
	}
	e.times--
	with := *tr
	with.Ops = slices.DeleteFunc(slices.Clone(tr.Ops), func(op traces.Op) bool {
		return tr.Text(op.Name) == plan.SaveOp
	})
	return &with, nil
}

// A step that drops a layer is no measurement of a plan for a step with all of them.
func TestAStepThatSavesLessIsNotTakenForThePlannedOne(t *testing.T) {
	for times, describes := range []int{1, 2, 3, 3} {
		e := &dropping{drifting{tr: recording(t, triedCosts)}, times}
		p, pl := swapsAll(t, e.tr)
		m, err := NewTarget(e, Options{}).Run(t.Context(), p, pl, plan.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		described := 0
		for _, a := range e.asked {
			if a == "describe" {
				described++
			}
		}
		held, _ := p.PeakLive()
		if described != describes || (m.Footprint == held) != (times < peakTries) {
			t.Errorf("%d steps that drop a layer: described %d times, %d bytes of %d", times, described,
				m.Footprint, held)
		}
	}
}
