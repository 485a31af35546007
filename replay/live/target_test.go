package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// drifting is a training whose steps become slower over time, and are slow after every change. It records its
// orders.
type drifting struct {
	tr    *traces.Trace
	asked []string
	words []byte // the last plan
	under int64
	since int // steps since the last change
	ran   int
	slow  int64 // what a plan adds to a step, in nanoseconds
	base  int64 // what every step takes beyond a tenth of a second, in nanoseconds
	fail  error // what waiting for steps under a plan ends with
	// differ is how many of the tensors that are compared are others.
	differ int64
	// heavy is a step under a plan that holds as much as one without.
	heavy bool
	// sizes and larger are what a step saved that was larger than any before, and how many were.
	sizes  []int64
	larger int64
}

func (d *drifting) Describe(context.Context, int64) (*traces.Trace, error) {
	d.asked = append(d.asked, "describe")
	if d.under == 0 || d.heavy {
		return d.tr, nil
	}
	lean := *d.tr
	lean.Events.Size = slices.Clone(lean.Events.Size)
	for i := range lean.Events.Size {
		lean.Events.Size[i] /= 2
	}
	return &lean, nil
}

func (d *drifting) Carry(_ context.Context, o Order) error {
	if d.under, d.since = o.Number, 0; o.Number == 0 {
		d.asked = append(d.asked, "off")
	} else {
		d.asked = append(d.asked, "on")
	}
	if (o.Number == 0) != (o.Plan == nil) {
		return errors.New("a plan without words, or words without a plan")
	}
	if o.Plan != nil {
		d.words = o.Plan
	}
	return nil
}

// millisecond is in nanoseconds.
const millisecond = 1_000_000

func (d *drifting) Steps(ctx context.Context, number int64, n int) ([]Step, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if number != d.under {
		return nil, fmt.Errorf("steps under %d are waited for, and %d is on", number, d.under)
	}
	if number != 0 {
		d.asked = append(d.asked, fmt.Sprintf("%d with", n))
		if d.fail != nil {
			return nil, d.fail
		}
	} else {
		d.asked = append(d.asked, fmt.Sprintf("%d without", n))
	}
	steps := make([]Step, n)
	for i := range steps {
		x := Step{Time: d.base + 100*millisecond + int64(d.ran)*millisecond,
			Reserved: maybe.Known(5000 + int64(i))}
		if number != 0 {
			x.Time += d.slow
			x.Out, x.In, x.Again, x.Checked, x.Differ = 7, 6, 5, 4, d.differ
		}
		if d.since < 3 {
			x.Time += 1000 * millisecond
		}
		d.since++
		d.ran++
		steps[i] = x
	}
	return steps, nil
}

func (d *drifting) Larger(int64) ([]int64, int64) { return d.sizes, d.larger }

// swapsAll returns the recording's problem and a plan that swaps what it can.
func swapsAll(t *testing.T, tr *traces.Trace) (*plan.Problem, *plan.Plan) {
	t.Helper()
	p, err := NewTarget(&drifting{tr: tr}, Options{}).Problem(t.Context(),
		Hardware{Chosen: true, Hardware: plan.Hardware{Name: "any"}})
	if err != nil {
		t.Fatal(err)
	}
	var d plan.Decisions
	for _, g := range p.Gaps(1, 1) {
		d.Absences = append(d.Absences, plan.Absence{Buffer: g.Buffer, After: g.After, Release: g.After + 1,
			Fetch: g.Before, Before: g.Before, How: plan.Swap})
	}
	pl, err := plan.Assemble(p, d)
	if err != nil || len(d.Absences) == 0 {
		t.Fatal(len(d.Absences), err)
	}
	pl.Executor = plan.TorchEager
	return p, pl
}

// A plan is measured between two stretches of the same training without it: slow steps after each change do
// not count, and neither does a drift.
func TestAPlanIsMeasuredBetweenTwoStretchesWithoutIt(t *testing.T) {
	d := &drifting{tr: recording(t, triedCosts), slow: 50 * millisecond}
	p, pl := swapsAll(t, d.tr)
	counted := []int64{900, 700}
	target := NewTarget(d, Options{Used: func() (n int64, ok bool) {
		n, counted = counted[0], counted[1:]
		return n, true
	}})
	m, err := target.Run(t.Context(), p, pl, plan.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// the first three steps are long, and one more shows that the others are not
	want := []string{"3 without", "1 without", "19 without", "on", "3 with", "1 with", "19 with", "describe",
		"off", "3 without", "1 without", "19 without", "off"}
	if !slices.Equal(d.asked, want) {
		t.Errorf("the training was asked for %q, not %q", d.asked, want)
	}
	// Of 69 steps the first lasts 100 ms, and each a millisecond more: 20 of each stretch count, the 4th to
	// the 23rd.
	for _, x := range []struct {
		what      string
		got, want int64
	}{
		{"before", m.KeepAllBefore, 112_500}, {"with", m.StepTime, 185_500},
		{"the 95th percentile with", m.StepP95, 194_000},
		{"after", m.KeepAllAfter, 158_500}, {"without", m.KeepAll(), 135_500},
	} {
		if x.got != x.want*millisecond/1000 {
			t.Errorf("%s: a step takes %d ns, not %d µs", x.what, x.got, x.want)
		}
	}
	if m.Process != 700 || m.ProcessBefore != 900 || m.Reserved != 5018 ||
		m.PinnedPeak != slab(p, pl) || m.PinnedPeak == 0 ||
		m.SwappedOut != 7 || m.SwappedIn != 6 || m.RecomputeTime != 5 {
		t.Errorf("%+v", m)
	}
	if described, err := trainingDevice(t.Context(), d.tr); err != nil || !m.Allocated ||
		m.Footprint != described.Totals.PeakAllocated/2 {
		t.Errorf("the footprint is %d, and the step that was described under the plan holds %+v, %v",
			m.Footprint, described.Totals, err)
	}
	if !m.Verified {
		t.Error("tensors were compared and are the same, and it is not verified")
	}
	d.differ = 1
	target.opt.Used = nil
	if m, err = target.Run(t.Context(), p, pl, plan.RunOptions{}); err != nil || m.Verified || !strings.Contains(strings.Join(m.Notes, "\n"), "23 of 92 compared tensors came back different") {
		t.Errorf("where tensors return as others: %v, verified %v, %q", err, m.Verified, m.Notes)
	}
}

// A step that is larger than planned for does not end a plan, and what it was measured to hold above the
// budget is told even if nothing of it was predicted.
func TestWhatALargerStepHoldsAboveTheBudgetIsTold(t *testing.T) {
	d := &drifting{tr: recording(t, triedCosts), heavy: true, larger: 1}
	p, pl := swapsAll(t, d.tr)
	ctx, stop := context.WithCancel(t.Context())
	var last News
	budget, _ := pl.PeakLive()
	if err := NewTarget(d, Options{}).Hold(ctx, p, Made{Plan: pl, Budget: budget}, func(n News) {
		if last = n; n.Stage == On {
			stop()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if last.Stage != On || last.Above <= 0 || last.Above != last.Peak-budget {
		t.Errorf("of a budget of %d bytes, %+v", budget, last)
	}
}

// Where steps take seconds, fewer are timed, and it is told how many and of how many.
func TestFewLongStepsAreTimed(t *testing.T) {
	d := &drifting{tr: recording(t, triedCosts), slow: 50 * millisecond, base: 4000 * millisecond}
	p, pl := swapsAll(t, d.tr)
	ctx, stop := context.WithCancel(t.Context())
	var told []string
	err := NewTarget(d, Options{}).Hold(ctx, p, Made{Plan: pl, Budget: 1 << 40}, func(n News) {
		told = append(told, n.Doing()[0])
		if n.Stage == On {
			stop()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, with := range []string{"without", "with"} {
		doing := "timing steps " + with + " the plan"
		want = append(want, doing)
		for k := range leastTimed {
			want = append(want, fmt.Sprintf("%s: %d of %d steps", doing, k, leastTimed))
		}
	}
	want = append(want, MeasuringPeak.Doing(), On.Doing())
	if !slices.Equal(told, want) {
		t.Errorf("it is told\n%s\nnot\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}

// Whatever ends a measurement or a plan that is on, the training continues without it; only a plan that
// somebody else took away is not taken away again.
func TestAPlanIsTakenAwayWhateverEndsIt(t *testing.T) {
	tr := recording(t, triedCosts)
	p, pl := swapsAll(t, tr)
	lost := errors.New("the process is gone")
	for _, x := range []struct {
		what string
		d    drifting
		o    Options
		says string
		off  bool
	}{
		{"it costs more than it may", drifting{slow: 50 * millisecond}, Options{MostOverhead: 0.2}, "turned off: steps take ", true},
		{"it costs as much as it may", drifting{slow: 50 * millisecond}, Options{MostOverhead: 2}, "", true},
		{"the training is lost", drifting{fail: lost}, Options{}, lost.Error(), true},
		{"somebody took it away", drifting{fail: fmt.Errorf("rank 1: %w", ErrTakenAway)}, Options{}, ErrTakenAway.Error(), false},
	} {
		for _, holds := range []bool{false, true} {
			d := x.d
			d.tr = tr
			ctx, stop := context.WithCancel(t.Context())
			target, on := NewTarget(&d, x.o), 0
			var err error
			if holds {
				err = target.Hold(ctx, p, Made{Plan: pl}, func(n News) {
					if n.Stage == On {
						if on++; on == 3 {
							stop()
							d.fail = ctx.Err()
						}
					}
				})
			} else {
				_, err = target.Run(ctx, p, pl, plan.RunOptions{})
			}
			stop()
			if x.says == "" && err != nil || x.says != "" && (err == nil || !strings.Contains(err.Error(), x.says)) {
				t.Errorf("%s, held %v: it ended with %v", x.what, holds, err)
			}
			if holds && (on > 0) != (x.says == "") {
				t.Errorf("%s: it is said to be on %d times", x.what, on)
			}
			if off := d.under == 0; off != x.off {
				t.Errorf("%s, held %v: the plan is off: %v", x.what, holds, off)
			}
		}
	}
}

// A plan that was to lower the peak and does not is taken away, unless the training does not fit without one.
func TestAPlanWithoutAGainIsTakenAway(t *testing.T) {
	tr := recording(t, triedCosts)
	p, pl := swapsAll(t, tr)
	for _, never := range []bool{false, true} {
		d := drifting{tr: tr, heavy: true}
		ctx, stop := context.WithCancel(t.Context())
		err := NewTarget(&d, Options{NeverWithout: never}).Hold(ctx, p, Made{Plan: pl}, func(n News) {
			if n.Stage == On {
				stop()
				d.fail = ctx.Err()
			}
		})
		stop()
		if errors.Is(err, ErrNoGain) == never || d.under != 0 {
			t.Errorf("never without %v: it ended with %v, plan %d on", never, err, d.under)
		}
	}
}

// A plan that is predicted to exceed its budget is never on, and one that is measured to exceed it is turned
// off. The error says what it takes.
func TestAPlanAboveItsBudgetIsNotOn(t *testing.T) {
	tr := recording(t, triedCosts)
	p, pl := swapsAll(t, tr)
	planned, _ := pl.PeakLive()
	for _, x := range []struct {
		what            string
		budget          int64
		heavy           bool
		above, measured bool
		asked           int // how often a plan was turned on
	}{
		{"it fits", planned, false, false, false, 1},
		{"there is no budget", 0, true, false, false, 1},
		{"it is predicted to take more", planned - 1, false, true, false, 0},
		{"it takes more than predicted", planned, true, true, true, 1},
	} {
		for _, holds := range []bool{false, true} {
			d := drifting{tr: tr, heavy: x.heavy}
			target := NewTarget(&d, Options{NeverWithout: true})
			ctx, stop := context.WithCancel(t.Context())
			var m plan.Measurement
			var err error
			if holds {
				err = target.Hold(ctx, p, Made{Plan: pl, Budget: x.budget}, func(n News) {
					if n.Stage == On {
						stop()
						d.fail = ctx.Err()
					}
				})
			} else {
				m, err = target.Run(ctx, p, pl, plan.RunOptions{Cap: x.budget})
			}
			stop()
			var got *Above
			on := 0
			for _, asked := range d.asked {
				if asked == "on" {
					on++
				}
			}
			noted := slices.ContainsFunc(m.Notes, func(n string) bool {
				return strings.HasPrefix(n, "turned off: a step takes")
			})
			// a measurement is over by itself, and its figures are shown
			above := errors.As(err, &got) || noted
			if above != x.above || got != nil && (got.Measured != x.measured || got.Takes <= got.Budget) ||
				on != x.asked || d.under != 0 || !x.above && err != nil {
				t.Errorf("%s, held %v: %v, %q, turned on %d times, plan %d on", x.what, holds, err, m.Notes, on,
					d.under)
			}
		}
	}
	arena := &plan.Plan{Footprint: 100}
	if Fits(arena, true, 99) == nil || Fits(arena, true, 100) != nil || Fits(arena, false, 99) != nil {
		t.Error("what a plan that chooses addresses takes is its arena")
	}
}
