package recompute_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// runnable returns the plan, with places, of those of pl's decisions that eager PyTorch can carry out.
func runnable(t *testing.T, p *plan.Problem, pl *plan.Plan, opt place.Options) *plan.Plan {
	t.Helper()
	d, notes, err := recompute.Eager(p, plan.Decisions{Absences: pl.Absences, Reruns: pl.Reruns,
		Variants: pl.Variants})
	if err != nil {
		t.Fatal(err)
	}
	out, err := place.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(t.Context(), p, out, opt); err != nil {
		t.Fatal(err)
	}
	out.Manager, out.Budget, out.Executor = pl.Manager, pl.Budget, plan.TorchEager
	out.Notes = append(out.Notes, notes...)
	return out
}

// TestWhatEagerPyTorchCanCarryOutIsAlwaysAValidPlanForIt tries decisions of every kind.
func TestWhatEagerPyTorchCanCarryOutIsAlwaysAValidPlanForIt(t *testing.T) {
	swaps, drops, lost := 0, 0, 0
	for seed := range uint64(200) {
		p := plantest.Random(seed, 10+int(seed%90))
		pl, err := plan.Assemble(p, plantest.RandomDecisions(p, seed, 1))
		if err != nil {
			t.Fatal(err)
		}
		pl.Manager = "random"
		out := runnable(t, p, pl, place.Options{Rule: place.FirstFit})
		if err := plan.Validate(p, out); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, x := range out.Absences {
			if x.How == plan.Swap {
				swaps++
			} else {
				drops++
			}
		}
		lost += len(pl.Absences) - len(out.Absences)
	}
	if swaps < 100 || drops < 30 || lost < 100 {
		t.Errorf("%d swaps, %d drops, %d lost: the law was hardly tried", swaps, drops, lost)
	}
}

// TestTheRunnablePartOfEveryManagersPlanIsValid does the same with the plans of this package, on a network
// with modules.
func TestTheRunnablePartOfEveryManagersPlanIsValid(t *testing.T) {
	for _, name := range []string{"GoogLeNet", "ResNet-50", "GPT-2 small"} {
		p := network(t, name)
		peak, _ := p.PeakLive()
		for _, m := range []plan.Manager{recompute.Sqrt(), recompute.DTR()} {
			pl, err := m.Plan(context.Background(), p, plan.Request{Budget: peak * 3 / 5})
			if err != nil {
				t.Fatal(err)
			}
			out := runnable(t, p, pl, place.Options{})
			if err := plan.Validate(p, out); err != nil {
				t.Fatal(err)
			}
			if len(out.Reruns) == 0 || len(out.Absences) > len(pl.Absences) {
				t.Errorf("%s on %s: %d reruns, %d absences of %d", m.Info().Name, name, len(out.Reruns),
					len(out.Absences), len(pl.Absences))
			}
			t.Logf("%s on %s: ideal %.3f, eager %.3f of the peak; %v", m.Info().Name, name,
				float64(pl.Footprint)/float64(peak), float64(out.Footprint)/float64(peak), out.Notes)
		}
	}
}

func TestARegionComesBackWholeAtItsFirstUse(t *testing.T) {
	// ops 1 to 6 make activations 1 to 6, backward op k needs activation 13-k
	p := plantest.Chain(6, 1<<20, 1000)
	// Activations 2 and 3 are dropped and, ideally, come back one by one.
	d := plan.Decisions{
		Absences: []plan.Absence{
			{Buffer: 2, After: 3, Before: 11, Release: 4, Fetch: 11, How: plan.Recompute},
			{Buffer: 3, After: 4, Before: 10, Release: 5, Fetch: 10, How: plan.Recompute},
		},
		Reruns: []plan.Rerun{{Before: 10, Ops: []plan.OpID{2, 3}}, {Before: 11, Ops: []plan.OpID{2}}},
	}
	if _, err := plan.Assemble(p, d); err != nil {
		t.Fatal(err)
	}
	out, notes, err := recompute.Eager(p, d)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Reruns) != 1 || out.Reruns[0].Before != 10 ||
		!slices.Equal(out.Reruns[0].Ops, []plan.OpID{2, 3}) {
		t.Errorf("reruns %+v, want ops 2 and 3 before op 10; %v", out.Reruns, notes)
	}
	for _, x := range out.Absences {
		if x.Fetch != 10 {
			t.Errorf("buffer %d comes back at %d, want 10", x.Buffer, x.Fetch)
		}
	}
}

// TestARegionRunsAgainWithoutTheOpsThatCannot drops everything that a forward pass saves. One op of it draws
// random numbers, and its result is freed before the backward pass.
func TestARegionRunsAgainWithoutTheOpsThatCannot(t *testing.T) {
	for _, c := range []struct {
		name     string
		reads    bool // something dropped is made from what was drawn
		ops      []plan.OpID
		absences int
		note     string
	}{
		{"nothing is made from it", false, []plan.OpID{1, 4, 5, 6}, 4, ""},
		{"something is made from it", true, []plan.OpID{1, 5, 6}, 3,
			"1 absences of 4 are kept in memory: their region holds an op that cannot run again."},
	} {
		b := plantest.New()
		all := func(ids ...plan.BufferID) []plan.BufferID { return ids }
		act := func(name string) plan.BufferID { return b.Buffer(name, 8, timeline.Activation) }
		in, first, drawn, twice, from, after, last := act("in"), act("first"), act("drawn"), act("twice"),
			act("from"), act("after"), act("last")
		b.Op("input", traces.PhaseForward, 1, nil, all(in))
		b.Op("first", traces.PhaseForward, 1, all(in), all(first))
		b.Op("draw", traces.PhaseForward, 1, all(in), all(drawn))
		b.Op("twice", traces.PhaseForward, 1, all(drawn), all(twice))
		source := first
		if c.reads {
			source = twice
		}
		b.Op("from", traces.PhaseForward, 1, all(source), all(from))
		b.Op("after", traces.PhaseForward, 1, all(from), all(after))
		b.Op("last", traces.PhaseForward, 1, all(after), all(last))
		b.Op("loss", traces.PhaseForward, 1, all(last, in), nil)
		use := b.Op("use", traces.PhaseBackward, 1, all(last, after, from, first, in), nil)
		b.P.Ops[0].Rerunnable, b.P.Ops[2].Rerunnable = false, false
		p := b.End()
		d := plan.Decisions{Reruns: []plan.Rerun{{Before: use}}}
		for _, x := range all(first, from, after, last) {
			touches := p.TouchesOf(x)
			at := touches[len(touches)-2].Op
			d.Absences = append(d.Absences, plan.Absence{Buffer: x, After: at, Release: at + 1, Fetch: use,
				Before: use, How: plan.Recompute})
		}
		out, notes, err := recompute.Eager(p, d)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Reruns) != 1 || !slices.Equal(out.Reruns[0].Ops, c.ops) ||
			len(out.Absences) != c.absences {
			t.Errorf("%s: %+v", c.name, out)
		}
		if c.note != "" && !slices.Contains(notes, c.note) || c.note == "" && len(notes) != 1 {
			t.Errorf("%s: %q", c.name, notes)
		}
		pl, err := place.Assemble(p, out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := place.Place(t.Context(), p, pl, place.Options{}); err != nil {
			t.Fatal(err)
		}
		pl.Executor = plan.TorchEager
		if err := plan.Validate(p, pl); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestWhatHooksCannotSeeIsKeptAndNamed(t *testing.T) {
	b := plantest.New()
	g, x := b.Buffer("grad", 8, timeline.Gradient), b.Buffer("x", 8, timeline.Activation)
	b.Op("make", traces.PhaseForward, 1, nil, []plan.BufferID{g, x})
	b.Op("nothing", traces.PhaseForward, 1, nil, nil)
	b.Op("early", traces.PhaseForward, 1, []plan.BufferID{x}, nil)
	b.Op("use", traces.PhaseBackward, 1, []plan.BufferID{g, x}, nil)
	p := b.End()
	out, notes, err := recompute.Eager(p, plan.Decisions{Absences: []plan.Absence{
		{Buffer: g, After: 0, Release: 1, Fetch: 3, Before: 3},
		{Buffer: x, After: 0, Release: 1, Fetch: 2, Before: 2},
	}})
	all := strings.Join(notes, "\n")
	if err != nil || len(out.Absences) != 0 ||
		!strings.Contains(all, "only tensors saved for backward can leave") ||
		!strings.Contains(all, "between a forward pass and its backward pass") {
		t.Errorf("%v, %v, %v", out, notes, err)
	}
}

// What one region reads may be dropped by another that is looked at later: it is kept for the first one's
// sake, and the other has nothing left to do.
func TestWhatAnEarlierRegionReadsIsKeptByALaterOne(t *testing.T) {
	b := plantest.New()
	in, z, y := b.Buffer("in", 8, timeline.Activation), b.Buffer("z", 8, timeline.Activation),
		b.Buffer("y", 8, timeline.Activation)
	b.Op("input", traces.PhaseForward, 1, nil, []plan.BufferID{in})
	b.P.Ops[0].Rerunnable = false
	b.Op("z", traces.PhaseForward, 1, []plan.BufferID{in}, []plan.BufferID{z})
	for range 20 { // so far apart that they are not rerun as one
		b.Op("between", traces.PhaseForward, 1, []plan.BufferID{in},
			[]plan.BufferID{b.Buffer("other", 8, timeline.Temporary)})
	}
	makesY := b.Op("y", traces.PhaseForward, 1, []plan.BufferID{z}, []plan.BufferID{y})
	readsY := b.Op("reads y", traces.PhaseBackward, 1, []plan.BufferID{y}, nil)
	readsZ := b.Op("reads z", traces.PhaseBackward, 1, []plan.BufferID{z, in}, nil)
	p := b.End()
	out, notes, err := recompute.Eager(p, plan.Decisions{Absences: []plan.Absence{
		{Buffer: z, After: makesY, Release: makesY + 1, Fetch: readsZ, Before: readsZ, How: plan.Recompute},
		{Buffer: y, After: makesY, Release: makesY + 1, Fetch: readsY, Before: readsY, How: plan.Recompute},
	}})
	if err != nil || len(out.Absences) != 1 || out.Absences[0].Buffer != y || len(out.Reruns) != 1 ||
		!slices.Equal(out.Reruns[0].Ops, []plan.OpID{makesY}) {
		t.Errorf("%+v, %v", out, err)
	}
	if all := strings.Join(notes, "\n"); !strings.Contains(all,
		"1 absences of 2 are kept in memory: a region that runs again reads them") {
		t.Errorf("notes %q", notes)
	}
}

// network returns a network at its smallest batch on a made-up device.
func network(t *testing.T, name string) *plan.Problem {
	t.Helper()
	n, err := networks.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.Problem(n.Batches[0], plan.Hardware{Name: "test", D2H: plan.Link{BytesPerSecond: 12e9},
		H2D: plan.Link{BytesPerSecond: 12e9}, Together: 1,
		FlopsPerSecond: 10e12, BytesPerSecond: 700e9}, networks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRegionsOfOneModuleStayApart: a checkpoint wraps a module, but a region that took in all of its module
// would become one with the other region there, and both would come back at once.
func TestRegionsOfOneModuleStayApart(t *testing.T) {
	p := plantest.Chain(8, 1<<20, 1000) // op i makes activation i, and op 17-i needs it
	for i := 1; i <= 6; i++ {
		p.Ops[i].Module = "block"
	}
	var d plan.Decisions
	drop := func(fetch plan.OpID, buffers ...plan.BufferID) {
		rerun := plan.Rerun{Before: fetch}
		for _, b := range buffers {
			at := plan.OpID(b) + 1
			d.Absences = append(d.Absences, plan.Absence{Buffer: b, After: at, Release: at + 1, Fetch: fetch,
				Before: 17 - plan.OpID(b), How: plan.Recompute})
			rerun.Ops = append(rerun.Ops, plan.OpID(b))
		}
		d.Reruns = append(d.Reruns, rerun)
	}
	drop(14, 1, 2, 3)
	drop(11, 5, 6)
	out, notes, err := recompute.Eager(p, d)
	if err != nil {
		t.Fatal(err)
	}
	want := []plan.Rerun{{Before: 11, Ops: []plan.OpID{5, 6}}, {Before: 14, Ops: []plan.OpID{1, 2, 3}}}
	if !reflect.DeepEqual(out.Reruns, want) || len(out.Absences) != 5 {
		t.Errorf("reruns %+v of %d absences, want %+v of 5; %v", out.Reruns, len(out.Absences), want, notes)
	}
}
