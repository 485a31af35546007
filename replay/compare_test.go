package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/combine"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/csv"
)

// broken is a planner that panics; lying is one whose plan is not valid.
type broken struct{}

func (broken) Info() plan.Info { return plan.Info{Name: "broken", Needs: traces.Lifetimes} }
func (broken) Plan(context.Context, *plan.Problem, plan.Request) (*plan.Plan, error) {
	panic("index out of range")
}

type lying struct{}

func (lying) Info() plan.Info { return plan.Info{Name: "lying", Needs: traces.Lifetimes} }
func (lying) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	pl, err := pool.Exact().Plan(ctx, p, r)
	if err == nil {
		pl.Footprint /= 2
	}
	return pl, err
}

func compared(t *testing.T, p *plan.Problem, budget int64) *replay.Comparison {
	t.Helper()
	list := append(append(pool.All(), combine.All()...), broken{}, lying{})
	c, err := replay.Compare(context.Background(), p, list, replay.Options{Budget: budget, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A manager whose only plan costs time has planned all the same.
func TestWhereEveryPlanCostsTimeTheSmallestIsNamed(t *testing.T) {
	p := plantest.Chain(12, 8<<20, 4_000_000)
	c, err := replay.Compare(t.Context(), p, recompute.All(), replay.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Results {
		c.Results[i].Overhead = max(c.Results[i].Overhead, 0.1)
	}
	if s := c.Sentence(timeline.IEC); !strings.HasPrefix(s, "Every plan costs time; ") {
		t.Errorf("the sentence: %s", s)
	}
	c.Results = nil
	if s := c.Sentence(timeline.IEC); s != "No manager can plan from this recording." {
		t.Errorf("without results: %s", s)
	}
}

func TestAComparisonShowsValidPlansAndReportsInvalidOnes(t *testing.T) {
	p := plantest.Chain(12, 8<<20, 4_000_000)
	peak, _ := p.PeakLive()
	c := compared(t, p, peak*7/10)
	by := map[string]replay.Result{}
	for _, r := range c.Results {
		by[r.Info.Name] = r
	}
	if r := by["broken"]; r.Available || !r.Defective {
		t.Errorf("a planner that panics: %+v", r)
	}
	if r := by["lying"]; r.Available || r.Valid || r.Plan != nil || !strings.Contains(r.Reason, "not valid") {
		t.Errorf("a plan that is not valid is shown: %+v", r)
	}
	if r := by["exact"]; !r.Available || r.Fits || r.Measurement.Footprint != peak {
		t.Errorf("exact: %+v", r.Measurement)
	}
	best, ok := c.Fastest(plan.Ideal, "sim")
	if !ok || best.Measurement.Footprint > c.Net {
		t.Fatalf("nothing fits: %v", best.Info.Name)
	}
	for _, r := range c.Results {
		if r.Available && r.Fits && r.Measurement.StepTime < best.Measurement.StepTime {
			t.Errorf("%s is faster than the fastest, %s", r.Info.Name, best.Info.Name)
		}
	}
	if s := c.Sentence(timeline.IEC); !strings.HasPrefix(s, "To fit in ") ||
		!strings.Contains(s, best.Info.Name) {
		t.Errorf("the sentence: %s", s)
	}
	var text, js bytes.Buffer
	if err := c.WriteText(&text, replay.TextOptions{Notes: true}); err != nil ||
		!strings.Contains(text.String(), "capuchin") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := c.WriteJSON(&js, timeline.IEC); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		SchemaVersion int `json:"schema_version"`
		Results       []struct {
			Manager   string
			Available bool
			Footprint int64 `json:"footprint_bytes"`
		}
	}
	if err := json.Unmarshal(js.Bytes(), &doc); err != nil || doc.SchemaVersion != 2 ||
		len(doc.Results) != len(c.Results) {
		t.Errorf("JSON: %v, %d results", err, len(doc.Results))
	}
}

func TestAnImpossibleBudgetPlansNothing(t *testing.T) {
	p := plantest.Chain(4, 1<<20, 1000)
	_, err := replay.Compare(context.Background(), p, pool.All(),
		replay.Options{Budget: p.MustReside().Persistent - 1})
	var small *plan.TooSmall
	if !errors.Is(err, replay.ErrTooSmall) || !errors.As(err, &small) ||
		small.Need != p.MustReside().Persistent {
		t.Errorf("%v", err)
	}
	_, err = replay.Compare(context.Background(), p, pool.All(),
		replay.Options{Budget: 1 << 20, Margin: 2 << 20})
	if !errors.Is(err, replay.ErrTooSmall) {
		t.Errorf("a margin above the budget: %v", err)
	}
}

func TestARecordingWithoutDataFlowSaysWhatRecordsIt(t *testing.T) {
	p := *plantest.Chain(4, 1<<20, 1000)
	p.Kind = traces.Lifetimes
	c := compared(t, &p, 0)
	found := false
	for _, r := range c.Results {
		if r.Info.Name == "delta" {
			found = !r.Available && strings.Contains(r.Reason, "gmemtop describe")
		}
	}
	if !found {
		t.Error("delta does not say what is missing")
	}
}

// A storage-allocation problem comes from no training, so the advice must not be to record one.
func TestAStorageAllocationProblemIsAdvisedToPack(t *testing.T) {
	tr, err := csv.Read(t.Context(),
		strings.NewReader("id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,5\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if tr.Missing() != traces.PackingOnly {
		t.Errorf("the trace says %q", tr.Missing())
	}
	tl, err := timeline.Build(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.FromDevice(t.Context(), tl.Devices[0], plan.BuildOptions{Iteration: plan.SteadyIteration})
	if err != nil {
		t.Fatal(err)
	}
	c := compared(t, p, 0)
	if text := c.Sentence(timeline.IEC); !strings.HasSuffix(text, "No packing needs less.") {
		t.Errorf("without a budget: %q", text)
	}
	for _, r := range c.Results {
		if r.Info.Name == "delta" && (r.Available || r.Reason != traces.PackingOnly) {
			t.Errorf("delta: %q", r.Reason)
		}
	}
	if text := compared(t, p, 5).Sentence(timeline.IEC); strings.Contains(text, "describe") ||
		!strings.HasSuffix(text, "No packing needs less than 13 B.") {
		t.Errorf("with too small a budget: %q", text)
	}
}

// What the step before left, and the program still refers to, is named with what to do about it: an output
// until the next one replaces it, gradients until they are cleared.
func TestWhatTheStepBeforeLeftIsNamed(t *testing.T) {
	const del = " of that are left over from the step before: if the program does not need them, delete " +
		"the variables that refer to them (del) before the forward pass"
	for _, c := range []struct {
		name   string
		output bool      // is there twice while the next one is made
		until  plan.OpID // before which gradients are cleared
		want   string
	}{
		{"an output until the next one", true, 0, " 1.00 MiB" + del + "."},
		{"gradients until they are cleared", false, 2, " 4.00 MiB of that are left over from the step " +
			"before: call optimizer.zero_grad() before the forward pass."},
		{"both", true, 2, " 5.00 MiB" + del + ", and call optimizer.zero_grad() there."},
		{"gradients that are cleared in time", false, 0, ""},
	} {
		b := plantest.New()
		weights := b.Persistent("weights", 4<<20, timeline.Parameter)
		saved := b.Buffer("saved", 8<<20, timeline.Activation)
		work := b.Buffer("work", 8<<20, timeline.Temporary) // for a peak in the forward pass
		output := b.Persistent("output", 1<<20, timeline.Activation)
		grads := b.Buffer("grads", 4<<20, timeline.Gradient)
		all := func(ids ...plan.BufferID) []plan.BufferID { return ids }
		b.Op("layer", traces.PhaseForward, 10, all(weights), all(saved))
		b.Op("head", traces.PhaseForward, 10, all(saved), all(work, output))
		b.Op("backward", traces.PhaseBackward, 10, all(saved, output), all(grads))
		b.Op("step", traces.PhaseOptimizer, 10, all(grads, weights), nil)
		b.P.Buffers[grads].Life, b.P.Buffers[grads].Start, b.P.Buffers[grads].End = plan.Carried, 2, c.until
		if c.output {
			b.P.Buffers[output].Alloc = 7
			second := b.Buffer("output (the iteration's before)", 1<<20, timeline.Activation)
			b.P.Buffers[second].Start, b.P.Buffers[second].End, b.P.Buffers[second].Alloc = 1, 2, 7
		}
		p := b.End()
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := replay.Advice(p, pl, timeline.IEC); got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

// What a program computes outside of modules, autograd saves where no plan sees it.
func TestWhatIsSavedOutsideOfModulesIsNamed(t *testing.T) {
	const want = " 8.00 MiB of that were computed outside of modules and are kept for the backward pass, " +
		"where no plan can move them: compute them in a module's forward, and call model(x) instead of " +
		"model.forward(x)."
	for _, c := range []struct {
		name, module, want string
		size               int64
		saved, known       bool
		reader             traces.Phase
	}{
		{"outside", "", want, 8 << 20, false, true, traces.PhaseBackward},
		{"in a module", "head", "", 8 << 20, false, true, traces.PhaseBackward},
		{"a hook saw it", "", "", 8 << 20, true, true, traces.PhaseBackward},
		{"the recording does not show what is saved", "", "", 8 << 20, false, false, traces.PhaseBackward},
		{"nothing in the backward pass reads it", "", "", 8 << 20, false, true, traces.PhaseForward},
		{"a loss, which is small", "", "", 1 << 20, false, true, traces.PhaseBackward},
	} {
		b := plantest.New()
		weights := b.Persistent("weights", 4<<20, timeline.Parameter)
		kept := b.Buffer("kept", c.size, timeline.Activation)
		work := b.Buffer("work", 8<<20, timeline.Temporary)
		all := func(ids ...plan.BufferID) []plan.BufferID { return ids }
		made := b.Op("made", traces.PhaseForward, 10, all(weights), all(kept))
		b.Op("peak", traces.PhaseForward, 10, all(kept), all(work))
		b.Op("read", c.reader, 10, all(kept), nil)
		b.P.Ops[made].Module, b.P.SavesKnown, b.P.Buffers[kept].Saved = c.module, c.known, c.saved
		p := b.End()
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := replay.Advice(p, pl, timeline.IEC); got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

// Where nothing fits, the sentence names what is still there at the peak of the smallest plan.
func TestWhatIsStillThereAtThePeakIsNamed(t *testing.T) {
	p := plantest.Random(3, 40)
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Buffers {
		p.Buffers[i].Category = timeline.Activation
	}
	live, at := pl.PeakLive()
	text, where := replay.Remains(p, pl, timeline.IEC)
	if want := timeline.IEC.Bytes(live) + " of activations"; text != want {
		t.Errorf("%q, not %q", text, want)
	}
	var runs []plan.OpID // from the peak on
	for _, s := range pl.Steps[at+1:] {
		if s.Kind == plan.Run {
			runs = append(runs, s.Op)
		}
	}
	if want := "where " + p.Ops[runs[0]].Name + " runs"; where != want {
		t.Errorf("the peak is %q, not %q", where, want)
	}
	// between two ops the next one is named, and not what gmemtop calls the time in between
	p.Ops[runs[0]].Name = plan.HostOp
	_, where = replay.Remains(p, pl, timeline.IEC)
	if want := "right before " + p.Ops[runs[1]].Name + " runs"; where != want {
		t.Errorf("the peak is %q, not %q", where, want)
	}
	for i := range p.Buffers {
		p.Buffers[i].Category = timeline.Unknown
	}
	text, _ = replay.Remains(p, pl, timeline.IEC)
	if want := timeline.IEC.Bytes(live) + " of unknown category"; text != want {
		t.Errorf("%q, not %q", text, want)
	}
}

// Room that a plan leaves for larger steps is no tensor of the program's.
func TestRoomForLargerStepsIsNamed(t *testing.T) {
	b := plantest.New()
	weight := b.Persistent("weight", 1<<20, timeline.Parameter)
	b.Persistent(plan.RoomName, 3<<20, timeline.Unknown)
	x := b.Buffer("made", 1<<20, timeline.Activation)
	b.Op("aten::mm", traces.PhaseForward, 1_000_000, []plan.BufferID{weight}, []plan.BufferID{x})
	p := b.End()
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "; at its peak, where aten::mm runs, there are still 1.00 MiB of parameters, 1.00 MiB of " +
		"activations and 3.00 MiB of room for larger steps (the largest: room for larger steps, 3.00 MiB)"
	if got := replay.StillThere(p, pl); got != want {
		t.Errorf("it says %q, not %q", got, want)
	}
}
