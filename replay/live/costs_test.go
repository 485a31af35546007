package live

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// recording is two steps on a CPU: x -> a -> b -> c forward; a and b are saved and needed backward. Ops take
// 1 ms, with 1 ms between two ops.
func recording(t *testing.T, costs string) *traces.Trace {
	t.Helper()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cpu","pid":7,"rank":-1,"world_size":-1,"epoch_ns":1,"steps":[[0,40000000],[40000000,80000000]]%s}`, costs)
	line(`{"k":"alloc","id":1,"size":1048576,"addr":1048576,"t":0,"category":"parameter","on":"cpu"}`)
	for step := range 2 {
		at, id := step*40_000_000, step*10+10
		op := func(name, phase, module string, r, w string, rerun bool) {
			at += 2_000_000
			line(`{"k":"op","t":%d,"d":1000000,"name":%q,"phase":%q,"module":%q,"r":[%s],"w":[%s],"m":[],"rerun":%v}`, at, name, phase, module, r, w, rerun)
		}
		touch := func(name, phase, module string, id int) {
			line(`{"k":"op","t":%d,"d":0,"name":%q,"phase":%q,"module":%q,"r":[%d],"w":[],"m":[],"rerun":false}`, at+1_000_000, name, phase, module, id)
		}
		alloc := func(id int, category string) {
			line(`{"k":"alloc","id":%d,"size":1048576,"addr":%d,"t":%d,"category":%q,"on":"cpu"}`, id,
				(id+1)<<21, at+1_500_000, category)
		}
		free := func(id int) { line(`{"k":"free","id":%d,"t":%d}`, id, at+1_200_000) }
		for k := range 3 {
			from := "1"
			if k > 0 {
				from = fmt.Sprint(id+k-1, ",1")
			}
			alloc(id+k, "activation")
			op("aten::relu", "forward", "layer", from, fmt.Sprint(id+k), true)
			touch(plan.SaveOp, "forward", "layer", id+k)
		}
		for k := 2; k >= 0; k-- {
			touch(plan.LoadOp, "backward", "", id+k)
			op("aten::relu_backward", "backward", "", fmt.Sprint(id+k, ",1"), "", false)
			free(id + k)
		}
	}
	tr, err := described.Read(context.Background(), strings.NewReader(b.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// stand is a training: steps work 10 ms, hooks add 0.3 ms, a mode 0.6 ms more; copies out reach 1 GiB/s and
// copies back half of it; rerun ops take 0.3 ms more than was recorded.
type stand struct {
	tr      *traces.Trace
	words   []byte
	carried [][]byte
	numbers []int64
	refuse  string
	step    int64 // nanoseconds of a step, 0 for 30 ms
}

func (s *stand) Describe(context.Context, int64) (*traces.Trace, error) { return s.tr, nil }

func (s *stand) Carry(_ context.Context, o Order) error {
	s.words, s.carried, s.numbers = o.Plan, append(s.carried, o.Plan), append(s.numbers, o.Number)
	return nil
}

func (*stand) Larger(int64) ([]int64, int64) { return nil, 0 }

func (s *stand) Steps(_ context.Context, number int64, n int) ([]Step, error) {
	var e struct {
		Values []struct {
			Bytes int64
			How   string
		}
		Groups [][][]any
	}
	x, work := Step{Time: cmp.Or(s.step, 30_000_000)}, int64(10_000_000)
	if s.words != nil {
		if s.refuse != "" && strings.Contains(string(s.words), s.refuse) {
			return nil, errors.New("the plan was refused")
		}
		if err := json.Unmarshal(s.words, &e); err != nil {
			return nil, err
		}
		work += 300_000
		if len(e.Groups) > 0 {
			work += 600_000
		}
		for _, v := range e.Values {
			if v.How == "swap" {
				x.Out, x.In = x.Out+v.Bytes, x.In+v.Bytes
				x.OutTime, x.InTime = x.OutTime+v.Bytes*1e9>>30, x.InTime+v.Bytes*2e9>>30
			} else {
				x.Again += 1_300_000
			}
		}
	}
	steps := make([]Step, n)
	for i := range steps {
		steps[i] = x
		steps[i].Work = maybe.Known(work + int64(i%3)*5_000_000) // others on the machine
	}
	return steps, nil
}

const triedCosts = `,"costs":{"bytes":[4096,1052672],"out":[9000,1000000],"in":[7000,1000000],"again":20000}`

func TestATrainingOnACPUIsPlannedOnWhatItsStepsMeasured(t *testing.T) {
	s := &stand{tr: recording(t, triedCosts)}
	p, err := NewTarget(s, Options{}).Problem(context.Background(),
		Hardware{Hardware: plan.Hardware{Name: "a preset"}})
	if err != nil {
		t.Fatal(err)
	}
	h := p.Hardware
	if !h.NoEngines || !h.Measured {
		t.Fatalf("%+v", h)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if got < 0.98*want || got > 1.02*want {
			t.Errorf("%s is %.0f, want %.0f", what, got, want)
		}
	}
	near("the rate out", h.D2H.BytesPerSecond, 1<<30)
	near("the rate in", h.H2D.BytesPerSecond, 1<<29)
	near("a hook", float64(h.SaveTime), 300_000/3)
	near("an op that is looked at", float64(h.NoteTime), 600_000/3)
	near("an op that runs again", float64(h.AgainTime), 300_000)
	// Ops took 6 ms of a step, and the gaps between them have shrunk so that it works 10 ms.
	var all, host, ops int64
	for i := range p.Ops {
		if all += p.Ops[i].Duration; p.Ops[i].Name == plan.HostOp {
			host += p.Ops[i].Duration
		} else {
			ops += p.Ops[i].Duration
		}
	}
	near("the step", float64(all), 10_000_000)
	near("its ops", float64(ops), 6_000_000)
	if len(p.Notes) == 0 || !strings.Contains(strings.Join(p.Notes, "\n"),
		"of which the thread that trains works 10.0 ms") {
		t.Errorf("notes %q", p.Notes)
	}
	if last := s.carried[len(s.carried)-1]; last != nil {
		t.Errorf("the plan that was tried is left behind: %s", last)
	}
	if slices.Max(s.numbers) > 0 || slices.Min(s.numbers) == 0 {
		t.Errorf("the plans that were tried have numbers of plans to train with: %v", s.numbers)
	}

	// A swap of everything costs the step its copies and its hooks, in the simulation as in the training.
	words, err := swapping(p, mostTried)
	if err != nil || words == nil {
		t.Fatal(err)
	}
	var d plan.Decisions
	var bytes int64
	for _, g := range p.Gaps(1, 1) {
		d.Absences = append(d.Absences, plan.Absence{Buffer: g.Buffer, After: g.After, Release: g.After + 1,
			Fetch: g.Before, Before: g.Before, How: plan.Swap})
		bytes += p.Rounded(g.Buffer)
	}
	pl, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	pl.Executor = plan.TorchEager
	m, err := sim.Run(context.Background(), p, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := 10_000_000 + 300_000 + int64(len(d.Absences))*(h.D2H.Latency+h.H2D.Latency) + bytes*3e9>>30
	near("the simulated step", float64(m.StepTime), float64(want))
}

// A plan that moves everything may be more than the host has room for: then copies take what the agent tried
// by itself.
func TestATrialThatIsRefusedIsLeftOut(t *testing.T) {
	s := &stand{tr: recording(t, triedCosts), refuse: `"swap"`}
	p, err := NewTarget(s, Options{}).Problem(context.Background(), Hardware{})
	if err != nil {
		t.Fatal(err)
	}
	if h := p.Hardware; !h.NoEngines || h.SaveTime != 100_000 || h.D2H.BytesPerSecond < 1.05e9 ||
		h.D2H.BytesPerSecond > 1.06e9 {
		t.Errorf("%+v", h)
	}
}

// While costs are timed people are told how many steps that takes: one turn with few long steps, or three
// turns, and no more of a kind that was refused.
func TestItIsToldHowManyStepsAreTimed(t *testing.T) {
	for _, c := range []struct {
		step   int64
		refuse string
		want   [][2]int // of how many, at first and at last
	}{
		{2 * longStep, "", [][2]int{{0, 15}, {12, 15}}},
		{longStep, "", [][2]int{{0, 15}, {68, 73}}},
		{longStep, `"swap"`, [][2]int{{0, 15}, {58, 63}}}, // five steps were waited for before it was refused
	} {
		var told [][2]int
		s := &stand{tr: recording(t, triedCosts), step: c.step, refuse: c.refuse}
		if _, err := NewTarget(s, Options{Describing: func(n News) {
			if n.Time > 0 {
				told = append(told, [2]int{n.Timed, n.Time})
			}
		}}).Problem(t.Context(), Hardware{}); err != nil {
			t.Fatal(err)
		}
		if got := [][2]int{told[0], told[len(told)-1]}; !slices.Equal(got, c.want) {
			t.Errorf("steps of %d ns, %q refused: %v", c.step, c.refuse, told)
		}
		for i := 1; i < len(told); i++ {
			each := 1 + trialSteps
			if i == 1 || c.step > longStep { // steps may be long until one has been timed
				each = 1 + longTrialSteps
			}
			if told[i][0] != told[i-1][0]+each {
				t.Errorf("steps of %d ns: %v behind %v", c.step, told[i], told[i-1])
			}
		}
	}
}

func TestHardwareThatSomebodyChoseIsPlannedOn(t *testing.T) {
	s := &stand{tr: recording(t, triedCosts)}
	p, err := NewTarget(s, Options{}).Problem(context.Background(),
		Hardware{Hardware: plan.Hardware{Name: "a preset"}, Chosen: true})
	if err != nil {
		t.Fatal(err)
	}
	if p.Hardware.Name != "a preset" || p.Hardware.NoEngines || len(s.carried) > 0 {
		t.Errorf("%+v, %d plans were tried", p.Hardware, len(s.carried))
	}
}

func TestWithoutTriedCostsTheReportSaysSo(t *testing.T) {
	for _, costs := range []string{"", `,"costs":{"bytes":[4096,4096],"out":[1,2],"in":[1,2],"again":1}`,
		`,"costs":"none"`, `,"costs":{"bytes":[1,2],"out":[0,2],"in":[1,2],"again":1}`} {
		s := &stand{tr: recording(t, costs)}
		p, err := NewTarget(s, Options{}).Problem(context.Background(),
			Hardware{Hardware: plan.Hardware{Name: "a preset"}})
		if err != nil {
			t.Fatal(err)
		}
		if p.Hardware.NoEngines || !strings.Contains(strings.Join(p.Notes, "\n"), "was not measured") {
			t.Errorf("costs %q: %+v, notes %q", costs, p.Hardware, p.Notes)
		}
	}
}

func TestOpsShrinkWhereTheyAloneLastLongerThanAStepWorks(t *testing.T) {
	p := &plan.Problem{Ops: []plan.Op{{Name: "op", Duration: 600}, {Name: plan.HostOp, Duration: 300},
		{Name: "op", Duration: 200}}}
	asLong(p, 400)
	if p.Ops[0].Duration != 300 || p.Ops[1].Duration != 0 || p.Ops[2].Duration != 100 {
		t.Errorf("%+v", p.Ops)
	}
	asLong(p, 1000)
	if p.Ops[0].Duration != 300 {
		t.Errorf("a step that works longer was stretched: %+v", p.Ops)
	}
}

// seldom is a training that reports the memory of its process in one of every few steps.
type seldom struct {
	stand
	every, ran int
}

func (s *seldom) Steps(ctx context.Context, number int64, n int) ([]Step, error) {
	list, err := s.stand.Steps(ctx, number, n)
	for i := range list {
		if s.ran++; s.every > 0 && s.ran%s.every == 0 {
			list[i].Resident = maybe.Known(int64(s.ran))
		}
	}
	return list, err
}

func TestWhatTheProcessTakesIsWaitedForWhereFewStepsTellIt(t *testing.T) {
	p, err := NewTarget(&stand{tr: recording(t, "")}, Options{}).Problem(t.Context(), Hardware{Chosen: true})
	if err != nil {
		t.Fatal(err)
	}
	// never is not for ever
	for _, x := range []struct{ every, ran, want int }{{1, 20, 20}, {50, 60, 50}, {110, 120, 110},
		{0, 120, 0}} {
		s := &seldom{every: x.every}
		target := NewTarget(s, Options{Steps: 20})
		steps, err := s.Steps(t.Context(), 0, 20)
		if err != nil {
			t.Fatal(err)
		}
		if got := target.process(t.Context(), p, 0, steps); got != int64(x.want) || s.ran != x.ran {
			t.Errorf("told every %d steps: %d after %d, and %d after %d are expected", x.every, got, s.ran,
				x.want, x.ran)
		}
	}

	// Of a GPU's memory the kernel knows nothing.
	gpu := timeline.Device{Info: p.Source.Info}
	gpu.Info.Kind = traces.DeviceGPU
	s := &seldom{every: 1}
	steps, err := s.Steps(t.Context(), 0, 20)
	if err != nil {
		t.Fatal(err)
	}
	if got := NewTarget(s, Options{}).process(t.Context(), &plan.Problem{Source: &gpu}, 0, steps); got != 0 ||
		s.ran != 20 {
		t.Errorf("a training on a GPU takes %d of the host's memory, after %d steps", got, s.ran)
	}
}

func TestATrainingIsPlannedOnItsOwnGPUUnlessAnotherIsChosen(t *testing.T) {
	of := func(name string) (plan.Hardware, bool) {
		return plan.Hardware{Name: "of " + name}, name == "NVIDIA H100 80GB HBM3"
	}
	for _, x := range []struct {
		device traces.Device
		h      Hardware
		want   string
	}{
		{traces.Device{Kind: traces.DeviceGPU, Name: "NVIDIA H100 80GB HBM3"}, Hardware{Of: of},
			"of NVIDIA H100 80GB HBM3"},
		{traces.Device{Kind: traces.DeviceGPU, Name: "NVIDIA H100 80GB HBM3"}, Hardware{Of: of, Chosen: true},
			"otherwise"},
		{traces.Device{Kind: traces.DeviceGPU, Name: "NVIDIA H100 80GB HBM3"}, Hardware{}, "otherwise"},
		{traces.Device{Kind: traces.DeviceGPU, Name: "a card that nobody knows"}, Hardware{Of: of},
			"otherwise"},
		{traces.Device{Kind: traces.DeviceGPU}, Hardware{Of: of}, "otherwise"},
		{traces.Device{Kind: traces.DeviceCPU, Name: "NVIDIA H100 80GB HBM3"}, Hardware{Of: of}, "otherwise"},
	} {
		x.h.Hardware.Name = "otherwise"
		if got := x.h.on(&timeline.Device{Info: x.device}); got.Name != x.want {
			t.Errorf("%+v: planned on %q, not %q", x.device, got.Name, x.want)
		}
	}
}

// Steps without a plan that were timed with the costs need not be timed again, unless there are too few of
// them for a limit on what a plan may cost, or because steps are long.
func TestStepsThatWereTimedWithoutAPlanAreKept(t *testing.T) {
	for _, c := range []struct {
		step int64
		most float64
		want int
	}{
		{longStep, 0, longTrialSteps + (trialTurns-1)*trialSteps},
		{longStep, 0.1, 0},
		{2 * longStep, 0, 0},
	} {
		target := NewTarget(&stand{tr: recording(t, triedCosts), step: c.step}, Options{MostOverhead: c.most})
		if _, err := target.Problem(t.Context(), Hardware{}); err != nil {
			t.Fatal(err)
		}
		if got := len(target.without); got != c.want {
			t.Errorf("steps of %d ns, at most %g more: %d are kept, not %d", c.step, c.most, got, c.want)
		}
	}
}
