package replay_test

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// outcome is a result of a manager that moves buffers.
func outcome(name string, e plan.Executor, footprint, step int64, fits bool) replay.Result {
	return replay.Result{
		Info: plan.Info{Name: name}, Executor: e, Target: "sim", Available: true, Valid: true, Fits: fits,
		Plan: &plan.Plan{Absences: []plan.Absence{{}}}, Overhead: float64(step)/100 - 1,
		Measurement: plan.Measurement{Footprint: footprint, PeakLive: footprint, StepTime: step},
	}
}

func TestTheAnswerIsTheFastestThatPyTorchCanRun(t *testing.T) {
	pool := outcome("pool", plan.Ideal, 60, 100, true)
	pool.Plan = &plan.Plan{}
	for name, c := range map[string]struct {
		results []replay.Result
		want    string
	}{
		"eager before a faster ideal": {[]replay.Result{
			outcome("a", plan.Ideal, 50, 100, true), outcome("a", plan.TorchEager, 50, 105, true),
		}, "a torch-eager"},
		"a pool moves nothing, so PyTorch can run it": {[]replay.Result{
			outcome("a", plan.Ideal, 50, 99, true), outcome("b", plan.TorchEager, 50, 105, true), pool,
		}, "pool ideal"},
		"ideal where no eager plan fits": {[]replay.Result{
			outcome("a", plan.Ideal, 50, 103, true), outcome("a", plan.TorchEager, 90, 100, false),
		}, "a ideal"},
		"the smaller of two equally fast": {[]replay.Result{
			outcome("a", plan.TorchEager, 50, 100, true), outcome("b", plan.TorchEager, 40, 100, true),
		}, "b torch-eager"},
		"nothing fits": {[]replay.Result{outcome("a", plan.TorchEager, 90, 100, false)}, ""},
	} {
		r, ok := (&replay.Comparison{Budget: 80, Net: 80, Results: c.results}).Answer()
		got := ""
		if ok {
			got = r.Info.Name + " " + r.Executor.String()
		}
		if got != c.want {
			t.Errorf("%s: the answer is %q, want %q", name, got, c.want)
		}
	}
}

// TestWhatWasMeasuredGoesBeforeWhatIsPredicted: b is predicted to be the fastest, and a was measured to be.
// Without a budget, the plan that was predicted to cost nothing was measured to cost 38 %.
func TestWhatWasMeasuredGoesBeforeWhatIsPredicted(t *testing.T) {
	ran := func(name string, footprint int64, overhead float64) replay.Result {
		r := outcome(name, plan.TorchEager, footprint, 0, true)
		r.Target, r.Overhead, r.Measurement.KeepAllBefore = "live", overhead, 100
		return r
	}
	c := &replay.Comparison{Budget: 80, Net: 80, Results: []replay.Result{
		outcome("a", plan.TorchEager, 50, 110, true), outcome("b", plan.TorchEager, 50, 105, true),
	}, Measured: []replay.Result{ran("b", 50, 0.5), ran("a", 50, 0.2)}}
	if r, _ := c.Answer(); r.Info.Name != "a" {
		t.Errorf("the answer is %q", r.Info.Name)
	}
	c.Measured = c.Measured[:1]
	if r, _ := c.Answer(); r.Info.Name != "b" {
		t.Errorf("where only b was measured the answer is %q", r.Info.Name)
	}
	free := told(t, 0)
	least, ok := free.Answer()
	if !ok || least.Overhead > 0 {
		t.Fatalf("without a budget the answer is %q, %v", least.Info.Name, least.Overhead)
	}
	free.Measured = []replay.Result{ran(least.Info.Name, least.Measurement.Footprint, 0.38)}
	if r, _ := free.Answer(); r.Info.Name == least.Info.Name {
		t.Errorf("without a budget the answer is %q, which was measured to cost 38 %%", r.Info.Name)
	}
}

// A setting of PyTorch's allocator is one environment variable. A plan that needs hardly less is not better
// advice, since gmemtop has to carry it out.
func TestASettingOfPyTorchIsAdvisedBeforeAPlanThatNeedsHardlyLess(t *testing.T) {
	const mib = 1 << 20
	p := told(t, 0).Problem
	live, _ := p.PeakLive()
	compared := func(caching, expandable, step int64) *replay.Comparison {
		allocator := func(name, settings string, footprint, step int64) replay.Result {
			r := outcome(name, plan.Ideal, footprint, step, true)
			r.Info.Family = plan.Baseline
			r.Plan = &plan.Plan{Policy: &plan.Policy{Name: "caching", Settings: settings}}
			return r
		}
		pool := outcome("exact", plan.Ideal, live+1000*mib, 100, true)
		pool.Info.Family, pool.Plan = plan.Pooling, &plan.Plan{}
		return &replay.Comparison{Problem: p, Results: []replay.Result{
			allocator("caching", "", caching, 100), pool,
			allocator("expandable", "expandable_segments:True", expandable, step),
		}}
	}
	high, low := live+1200*mib, live+1002*mib
	for _, c := range []struct {
		caching, expandable, step int64
		want                      []string
	}{
		{high, live + 1005*mib, 100, []string{"At no cost in step time, expandable needs ",
			" % below PyTorch's defaults (", " of it alive at the peak. ",
			" Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. " +
				"exact saves 5.00 MiB more. "}},
		{high, live + 1000*mib, 100, []string{"At no cost in step time, expandable needs ",
			"segments:True. Set a budget"}},
		{high, live + 900*mib, 100, []string{"At no cost in step time, expandable needs the least memory: "}},
		{high, live + 1100*mib, 100, []string{"At no cost in step time, exact needs the least memory: "}},
		{high, live + 1005*mib, 103, []string{"At no cost in step time, exact needs the least memory: "}},
		{low, low - 4096, 100, []string{"PyTorch's defaults need ",
			". At no cost in step time, no setting needs noticeably less; exact would need 2.00 MiB less. " +
				"Set"}},
		{live + 1008*mib, low, 100, []string{"At no cost in step time, expandable needs "}},
		{low, live + 1001*mib, 103, []string{"PyTorch's defaults need "}}, // expandable costs time
		{live + 1000*mib, live + 1000*mib, 100, []string{"no setting needs noticeably less. Set"}},
	} {
		text := compared(c.caching, c.expandable, c.step).Sentence(timeline.IEC)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("caching at %d, expandable at %d, step %d: %q lacks %q", c.caching, c.expandable,
					c.step, text, want)
			}
		}
	}
}

// TestAMeasurementReplacesThePrediction has a plan predicted to cost nothing and measured to cost 38 %.
func TestAMeasurementReplacesThePrediction(t *testing.T) {
	c := told(t, 70)
	answer, ok := c.Answer()
	if !ok {
		t.Fatal("nothing fits")
	}
	measured := func(name string, e plan.Executor, overhead float64, fits bool) replay.Result {
		base := int64(100e6)
		return replay.Result{
			Info: plan.Info{Name: name}, Executor: e, Target: "live", Available: true, Fits: fits,
			Overhead: overhead,
			Measurement: plan.Measurement{
				Footprint: 7 << 20, StepTime: int64((1 + overhead) * float64(base)), StepP95: 145e6,
				KeepAllBefore: base,
			},
		}
	}
	says := func(want string, not ...string) {
		t.Helper()
		s := c.Sentence(timeline.IEC)
		if !strings.Contains(s, want) {
			t.Errorf("%q lacks %q", s, want)
		}
		for _, x := range not {
			if strings.Contains(s, x) {
				t.Errorf("%q says %q", s, x)
			}
		}
	}
	predicted := replay.Percent(answer.Overhead)
	c.Measured = []replay.Result{measured(answer.Info.Name, answer.Executor, 0.38, true)}
	footprint := timeline.IEC.Bytes(answer.Measurement.Footprint)
	figures := answer.Info.Name + ": 7.00 MiB measured in the training (predicted " + footprint +
		"), step +38.0 % (predicted " + predicted + ")"
	says("the fastest measured is "+figures, "does not fit", "Of what")
	says(" Predicted to be faster, but not measured: ")
	for i := range c.Results { // all others are predicted to be slower than that
		if r := &c.Results[i]; r.Info.Name != answer.Info.Name {
			r.Overhead, r.Measurement.StepTime = 1, 2*answer.Measurement.StepTime
		}
	}
	says("the fastest is "+figures, "at no cost", "does not fit", "Of what", "Predicted to be faster")
	c.Measured[0].Fits = false
	says("which does not fit, step +38.0 %", "the fastest measured")
	c.Measured = []replay.Result{measured("other", plan.TorchEager, 0.38, true)}
	says("the fastest is predicted to be "+answer.Info.Name+": ", "both only")
	says("Of what was measured, other is the fastest: 7.00 MiB, step +38.0 %.")
	again := measured(answer.Info.Name, answer.Executor, 0.38, true)
	again.Plan = &plan.Plan{}
	replanned := outcome(answer.Info.Name, answer.Executor, 6<<20, 120, true)
	replanned.Plan = again.Plan
	c.Measured, c.Replanned = []replay.Result{again}, []replay.Result{replanned}
	says("(predicted 6.00 MiB), step +38.0 % (predicted +20.0 %)")
	c.Measured, c.Replanned, c.Trained = nil, nil, true // with another budget
	says("the fastest is predicted to be "+answer.Info.Name+": ", "both only")
	c.Budget = 0
	says("needs the least memory: ", "t no cost")
	says("both only predicted")
}

func TestWhatFitsAsItIsFitsForTheExitCodeToo(t *testing.T) {
	c := told(t, 150)
	for i := range c.Results {
		c.Results[i].Fits = false
	}
	if c.AnyFits() {
		t.Error("nothing fits a GPU, but it says that something does")
	}
	c.Problem.Source = &timeline.Device{Info: traces.Device{Kind: traces.DeviceCPU}}
	if s := c.Sentence(timeline.IEC); !c.AnyFits() || !strings.Contains(s, "fits in") {
		t.Errorf("on a CPU it fits as it is, but it says %q", s)
	}
	live, _ := c.Problem.PeakLive()
	if c.Net = live - 1; c.AnyFits() {
		t.Error("a step that holds more than the budget fits")
	}
}

func TestAPlanHasALineOfItsOwn(t *testing.T) {
	r := outcome("joint", plan.TorchEager, 3<<20, 104, true)
	r.Plan = &plan.Plan{}
	for timed, want := range map[bool]string{
		true: "joint: 3.00 MiB, step +4.0 %", false: "joint: 3.00 MiB",
	} {
		if got := r.Headline(&plan.Problem{HasTimes: timed}, timeline.IEC); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
