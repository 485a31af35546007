package replay_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/swap"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// decided is a manager whose plan moves or drops one buffer.
type decided struct{ d plan.Decisions }

func (decided) Info() plan.Info { return plan.Info{Name: "decided", Family: plan.Swapping} }

func (m decided) Plan(_ context.Context, p *plan.Problem, _ plan.Request) (*plan.Plan, error) {
	pl, err := plan.Assemble(p, m.d)
	if err == nil {
		at := make([]int64, len(pl.Instances))
		for i, end := 0, int64(0); i < len(at); i++ {
			at[i], end = end, end+pl.Instances[i].Size
		}
		pl.Place(at)
		pl.Order(p)
	}
	return pl, err
}

// TestAPlanThatPyTorchCannotCarryOutSaysWhatStaysAndWhatToChange: each reason names the op and the module
// of the largest tensor that stays, and comes with a change for that reason.
func TestAPlanThatPyTorchCannotCarryOutSaysWhatStaysAndWhatToChange(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(p *plan.Problem, b *plan.Buffer)
		how   plan.How
		want  string
	}{
		{"a gradient", func(_ *plan.Problem, b *plan.Buffer) { b.Category = timeline.Gradient }, plan.Swap,
			"zero_grad()"},
		{"optimizer state", func(_ *plan.Problem, b *plan.Buffer) { b.Category = timeline.OptimizerState },
			plan.Swap, "joint moves optimizer state"},
		{"made outside of modules", func(p *plan.Problem, b *plan.Buffer) {
			b.Saved, p.Ops[2].Module = false, ""
		}, plan.Swap, "what forward1 makes (8.00 MiB): autograd does not save it in a module's forward " +
			"pass; compute it in a module's forward, and call model(x) instead of model.forward(x)"},
		{"held by a variable", func(p *plan.Problem, b *plan.Buffer) {
			b.Held = plan.OpID(len(p.Ops) - 1)
		}, plan.Swap, "what forward1 makes in net.1 (8.00 MiB): the program itself holds it until the " +
			"backward pass needs it; delete the variable that refers to it (del)"},
		{"an op that cannot run again beside it", func(p *plan.Problem, _ *plan.Buffer) {
			p.Ops[3].Rerunnable = false
		}, plan.Recompute, "an op of that cannot; try autoswap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := plantest.Chain(6, 8<<20, 1_000_000)
			p.SavesKnown = true
			var moved plan.BufferID
			for i := range p.Buffers {
				p.Buffers[i].Saved = true
				if p.Buffers[i].Name == "act2" {
					moved = plan.BufferID(i)
				}
			}
			for i := range p.Ops {
				if p.Ops[i].Phase == traces.PhaseForward {
					p.Ops[i].Module = "net.1"
				}
			}
			touches := p.TouchesOf(moved)
			last, first := touches[len(touches)-2].Op, touches[len(touches)-1].Op
			d := plan.Decisions{Absences: []plan.Absence{{Buffer: moved, After: last, Release: last + 1,
				Fetch: first, Before: first, How: c.how}}}
			if c.how == plan.Recompute {
				d.Reruns = []plan.Rerun{{Before: first, Ops: []plan.OpID{touches[0].Op}}}
			}
			c.spoil(p, &p.Buffers[moved])
			nothing := func(context.Context, *plan.Problem, *plan.Plan) (*plan.Plan, error) {
				return nil, nil
			}
			device := replay.Device{Target: slowDevice{new(int), new([]string), nil}, Eager: true}
			of, err := replay.Compare(t.Context(), p, []plan.Manager{decided{d}},
				replay.Options{Parallel: 1, Eager: nothing, Devices: []replay.Device{device}})
			if err != nil {
				t.Fatal(err)
			}
			if len(of.Measured) != 1 {
				t.Fatalf("%d results of the training, want 1: %+v", len(of.Measured), of.Results)
			}
			got := of.Measured[0].Reason
			if !strings.HasPrefix(got, "PyTorch cannot carry out any part of its plan: all of the 8.00 MiB "+
				"that the plan would move or drop stay") || !strings.Contains(got, c.want) {
				t.Errorf("it says %q, without %q", got, c.want)
			}
		})
	}
}

// TestAStepThatIsOneOpSaysSo: where one op needs nearly all that a step holds, another manager is no advice.
func TestAStepThatIsOneOpSaysSo(t *testing.T) {
	nothing := func(_ context.Context, _ *plan.Problem, pl *plan.Plan) (*plan.Plan, error) {
		of := *pl
		of.Absences, of.Reruns, of.Executor = nil, nil, plan.TorchEager
		return &of, nil
	}
	for layers, want := range map[int]string{
		1: "no plan can lower the peak by much: what backward0 needs at once",
		6: "nothing leaves memory under its plan; at the step's peak, ",
	} {
		p := plantest.Chain(layers, 8<<20, 1_000_000)
		c, err := replay.Compare(t.Context(), p, []plan.Manager{decided{}}, replay.Options{Parallel: 1,
			Eager: nothing, Devices: []replay.Device{{Target: refusing{}, Eager: true}}})
		if err != nil || len(c.Measured) != 1 {
			t.Fatalf("%v, %v", c, err)
		}
		if got := c.Measured[0].Reason; !strings.HasPrefix(got, want) {
			t.Errorf("%d layers: it says %q, without %q", layers, got, want)
		}
	}
}

// TestWhatIsThereBeforeAStepMayBeItsPeak: all of it stays, and there is advice about none of it.
func TestWhatIsThereBeforeAStepMayBeItsPeak(t *testing.T) {
	p := plantest.Chain(2, 8<<20, 1_000_000)
	p.SavesKnown = true
	for i := range p.Buffers {
		p.Buffers[i].Life = plan.Persistent
	}
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := replay.Advice(p, pl, timeline.IEC); got != "" {
		t.Errorf("it says %q", got)
	}
}

// TestWhatOneBackwardPassMakesForAnotherIsNamed: a loss with derivatives in it takes most of its memory
// there.
func TestWhatOneBackwardPassMakesForAnotherIsNamed(t *testing.T) {
	const want = " 40.0 MiB of that a backward pass made for a later one (create_graph=True), and plans " +
		"move only what forward passes save: compute derivatives of derivatives on fewer samples at a time."
	for goesOn, want := range map[bool]string{false: "", true: want} {
		p := plantest.Chain(6, 8<<20, 1_000_000)
		p.SavesKnown = true
		for i := range p.Ops {
			p.Ops[i].Module = "net"
			if p.Ops[i].Phase == traces.PhaseForward && (i < 5 || !goesOn) {
				p.Ops[i].Phase = traces.PhaseBackward
			}
		}
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := replay.Advice(p, pl, timeline.IEC); got != want {
			t.Errorf("where the program goes on between them (%v): it says %q, not %q", goesOn, got, want)
		}
	}
}

// refusing is a training that carries no plan out.
type refusing struct{ replay.Simulated }

func (refusing) Run(context.Context, *plan.Problem, *plan.Plan, plan.RunOptions) (plan.Measurement, error) {
	return plan.Measurement{}, errors.New("it takes too much")
}

// TestAPlanThatExceedsTheBudgetSaysWhatIsStillThere: which tensors to make smaller is the next question.
func TestAPlanThatExceedsTheBudgetSaysWhatIsStillThere(t *testing.T) {
	reason := func(p *plan.Problem, budget int64) string {
		same := func(_ context.Context, _ *plan.Problem, pl *plan.Plan) (*plan.Plan, error) {
			of := *pl
			of.Executor = plan.TorchEager
			return &of, nil
		}
		c, err := replay.Compare(t.Context(), p, []plan.Manager{swap.All()[0]}, replay.Options{Parallel: 1,
			Eager: same, Budget: budget, Devices: []replay.Device{{Target: refusing{}, Eager: true}}})
		if err != nil || len(c.Measured) != 1 {
			t.Fatalf("%v, %v", c, err)
		}
		return c.Measured[0].Reason
	}
	p := plantest.Chain(6, 8<<20, 1_000_000)
	peak, _ := p.PeakLive()
	if got := reason(p, 2*peak); got != "it takes too much" {
		t.Errorf("a plan that fits: %q", got)
	}
	const want = "it takes too much; at its peak, "
	got := reason(p, 32<<20)
	if !strings.HasPrefix(got, want) || !strings.Contains(got, "there are still ") ||
		!strings.Contains(got, "(the largest: what ") || strings.HasSuffix(got, ".") {
		t.Errorf("a plan above the budget: %q", got)
	}
	// Autograd saves what an op reads before the op runs.
	b := plantest.New()
	weight := b.Persistent("weight", 64<<20, timeline.Parameter)
	b.Op(plan.SaveOp, traces.PhaseForward, 0, []plan.BufferID{weight}, nil)
	var made []plan.BufferID
	for range 4 {
		made = append(made, b.Buffer("made", 8<<20, timeline.Activation))
		b.Op("conv", traces.PhaseForward, 1_000_000, []plan.BufferID{weight}, made[len(made)-1:])
	}
	for _, x := range made {
		b.Op("backward", traces.PhaseBackward, 1_000_000, []plan.BufferID{weight, x}, nil)
	}
	p = b.End()
	for i := range p.Ops {
		p.Ops[i].Module = "net.1"
	}
	const largest = "(the largest: what conv reads in net.1, 64.0 MiB)"
	if got := reason(p, 73<<20); !strings.Contains(got, largest) {
		t.Errorf("a weight that is saved: %q", got)
	}
	// On a CPU a data set lies in the memory that is counted.
	p = plantest.Chain(6, 8<<20, 1_000_000)
	p.Buffers = append(p.Buffers, plan.Buffer{Name: "set", Size: 64 << 20, Life: plan.Persistent,
		Category: timeline.Input, Alloc: timeline.NoAlloc})
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	const set = "(the largest: a data set or another input that no op touches, 64.0 MiB)"
	if got := reason(p, 96<<20); !strings.Contains(got, set) {
		t.Errorf("beside a data set: %q", got)
	}
}

// TestWhatAnOptimizerMakesForAllParametersIsNamed: its foreach form is the default on GPUs, and what it makes
// for all parameters may be a step's peak.
func TestWhatAnOptimizerMakesForAllParametersIsNamed(t *testing.T) {
	const want = " The optimizer makes 16.0 MiB of that for all parameters at once: pass foreach=False to " +
		"it, or fused=True if it has that option."
	for name, want := range map[string]string{"aten::_foreach_sqrt": want, "aten::sqrt": ""} {
		b := plantest.New()
		weight := b.Persistent("weight", 16<<20, timeline.Parameter)
		var made []plan.BufferID
		for range 4 {
			made = append(made, b.Buffer("root", 4<<20, timeline.Temporary))
		}
		state := b.Buffer("back from the host", 8<<20, timeline.OptimizerState)
		b.Op(name, traces.PhaseOptimizer, 1_000_000, []plan.BufferID{weight}, append(made, state))
		b.Op("aten::_foreach_addcdiv_", traces.PhaseOptimizer, 1_000_000, append(made, state, weight), nil)
		p := b.End()
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := replay.Advice(p, pl, timeline.IEC); got != want {
			t.Errorf("made by %s: it says %q, not %q", name, got, want)
		}
	}
}

// TestWhatNoBackwardPassReadsIsNamed: a program adds up losses, and calls backward on the last one.
func TestWhatNoBackwardPassReadsIsNamed(t *testing.T) {
	for read, want := range map[bool]string{
		true: "",
		false: " Autograd saved 24.0 MiB of that, and no backward pass reads it: call detach() on the " +
			"losses and outputs that the step only looks at, or compute these under torch.no_grad().",
	} {
		b := plantest.New()
		weight := b.Persistent("weight", 8<<20, timeline.Parameter)
		var made []plan.BufferID
		for range 3 {
			x := b.Buffer("made", 8<<20, timeline.Activation)
			b.Op("aten::mm", traces.PhaseForward, 1_000_000, []plan.BufferID{weight}, []plan.BufferID{x})
			b.Op(plan.SaveOp, traces.PhaseForward, 0, []plan.BufferID{x}, nil)
			b.Op("aten::sum", traces.PhaseForward, 1_000_000, []plan.BufferID{x}, nil)
			made = append(made, x)
		}
		for _, x := range made {
			if read {
				b.Op(plan.LoadOp, traces.PhaseBackward, 0, []plan.BufferID{x}, nil)
				b.Op("aten::mul", traces.PhaseBackward, 1_000_000, []plan.BufferID{weight, x}, nil)
			}
		}
		gradient := b.Buffer("gradient", 8<<20, timeline.Gradient)
		b.Op("aten::mm", traces.PhaseBackward, 1_000_000, []plan.BufferID{weight}, []plan.BufferID{gradient})
		p := b.End()
		p.SavesKnown = true
		for i := range p.Ops {
			p.Ops[i].Module = "net"
		}
		for _, x := range made {
			p.Buffers[x].Saved, p.Buffers[x].End = true, plan.OpID(len(p.Ops))
		}
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := replay.Advice(p, pl, timeline.IEC); got != want {
			t.Errorf("read %v: it says %q, not %q", read, got, want)
		}
	}
}

// TestWhatTheProgramItselfRefersToIsNamed: hooks of a library that keep what goes into its modules keep it
// in memory, too.
func TestWhatTheProgramItselfRefersToIsNamed(t *testing.T) {
	for held, want := range map[bool]string{
		false: "",
		true: " 48.0 MiB of that autograd needs only later, but the program itself refers to them until " +
			"then, in a variable, a list or a hook of a module: delete that reference (del) after the " +
			"forward pass.",
	} {
		p := plantest.Chain(6, 8<<20, 1_000_000)
		p.SavesKnown = true
		for i := range p.Buffers {
			if b := &p.Buffers[i]; b.Category == timeline.Activation {
				if b.Saved = true; held {
					b.Held = plan.OpID(len(p.Ops) - 1)
				}
			}
		}
		for i := range p.Ops {
			p.Ops[i].Module = "net"
		}
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := replay.Advice(p, pl, timeline.IEC); got != want {
			t.Errorf("it says %q, not %q", got, want)
		}
	}
}

// TestAGraphKeptUntilTheNextStepIsNamedAsUnread: a program evaluates with gradients after each step and keeps
// the loss until the next evaluation, so a second such graph is made while the first is alive. A graph that a
// later step's backward pass reads is another thing.
func TestAGraphKeptUntilTheNextStepIsNamedAsUnread(t *testing.T) {
	const unread = " Autograd saved 16.0 MiB of that, and no backward pass reads it: "
	const before = " 8.00 MiB of that are left over from the step before: "
	for read, want := range map[bool][2]string{false: {unread, before}, true: {before, unread}} {
		b := plantest.New()
		weight := b.Persistent("weight", 8<<20, timeline.Parameter)
		kept := b.Persistent("kept", 8<<20, timeline.Activation)
		loss := b.Buffer("loss", 1<<20, timeline.Activation)
		gradient := b.Buffer("gradient", 8<<20, timeline.Gradient)
		if read {
			b.Op(plan.LoadOp, traces.PhaseBackward, 0, []plan.BufferID{kept}, nil)
		}
		b.Op("aten::mm", traces.PhaseForward, 1_000_000, []plan.BufferID{weight}, nil)
		b.Mutate(kept)
		b.Op(plan.SaveOp, traces.PhaseForward, 0, []plan.BufferID{kept}, nil)
		b.Op("aten::sum", traces.PhaseForward, 1_000_000, []plan.BufferID{kept}, []plan.BufferID{loss})
		b.Op("aten::mm", traces.PhaseBackward, 1_000_000, []plan.BufferID{weight, loss},
			[]plan.BufferID{gradient})
		p := b.End()
		p.SavesKnown = true
		first := &p.Buffers[kept]
		first.Saved, first.Alloc = true, 7
		second := *first
		second.Life, second.Start, second.End = plan.Inside, 0, plan.OpID(len(p.Ops))
		p.Buffers = append(p.Buffers, second)
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		got := replay.Advice(p, pl, timeline.IEC)
		if !strings.Contains(got, want[0]) || strings.Contains(got, want[1]) {
			t.Errorf("read %v: it says %q", read, got)
		}
	}
}

// TestNoAdviceWhereAStepFitsAsItIs: a plan that moves nothing is then what one wants.
func TestNoAdviceWhereAStepFitsAsItIs(t *testing.T) {
	p := plantest.Chain(6, 8<<20, 1_000_000)
	nothing := func(context.Context, *plan.Problem, *plan.Plan) (*plan.Plan, error) { return nil, nil }
	c, err := replay.Compare(t.Context(), p, []plan.Manager{decided{}}, replay.Options{Parallel: 1,
		Budget: 1 << 30, Eager: nothing, Devices: []replay.Device{{Target: refusing{}, Eager: true}}})
	if err != nil || len(c.Measured) != 1 {
		t.Fatalf("%v, %v", c, err)
	}
	const want = "nothing has to leave memory: a step fits in 1.00 GiB as it is"
	if got := c.Measured[0].Reason; got != want {
		t.Errorf("it says %q, not %q", got, want)
	}
}
