package plan_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// made returns a placed plan of random decisions.
func made(t testing.TB, seed uint64, n int, share float64) (*plan.Problem, *plan.Plan) {
	t.Helper()
	p := plantest.Random(seed, n)
	pl, err := plan.Assemble(p, plantest.RandomDecisions(p, seed, share))
	if err != nil {
		t.Fatal(err)
	}
	pl.Manager = "random"
	if _, err := place.Place(context.Background(), p, pl, place.Options{Rule: place.BestFit}); err != nil {
		t.Fatal(err)
	}
	return p, pl
}

// TestAPlanWithOneThingWrongIsRefused breaks sound plans in one place each and expects Validate to say what
// is wrong.
func TestAPlanWithOneThingWrongIsRefused(t *testing.T) {
	find := func(pl *plan.Plan, k plan.StepKind) int {
		return slices.IndexFunc(pl.Steps, func(s plan.Step) bool { return s.Kind == k })
	}
	for _, c := range []struct {
		name, want string
		breaks     func(p *plan.Problem, pl *plan.Plan) bool // false where the plan has nothing to break
	}{
		{"two buffers at one address", "share bytes", func(_ *plan.Problem, pl *plan.Plan) bool {
			for i := range pl.Instances {
				for j := range i {
					a, b := &pl.Instances[i], &pl.Instances[j]
					if a.Size > 0 && b.Size > 0 && a.From < b.To && b.From < a.To && a.Offset > b.Offset {
						a.Offset = b.Offset
						pl.Footprint = 0
						for _, x := range pl.Instances {
							if x.Size > 0 {
								pl.Footprint = max(pl.Footprint, x.Offset+x.Size)
							}
						}
						return true
					}
				}
			}
			return false
		}},
		{"a smaller footprint than it has", "the footprint is", func(_ *plan.Problem, pl *plan.Plan) bool {
			pl.Footprint--
			return true
		}},
		{"an op left out", "op ", func(_ *plan.Problem, pl *plan.Plan) bool {
			s := find(pl, plan.Run)
			pl.Steps[s].Kind = plan.Again
			return true
		}},
		{"a copy that never came out", "never copied out", func(_ *plan.Problem, pl *plan.Plan) bool {
			s := find(pl, plan.Out)
			if s < 0 {
				return false
			}
			run := int32(find(pl, plan.Run))
			pl.Steps[s] = plan.Step{Kind: plan.Wait, Queue: 0, On: run}
			for i := range pl.Steps {
				if pl.Steps[i].Kind == plan.Wait && pl.Steps[i].On == int32(s) {
					pl.Steps[i].On = run
				}
			}
			return true
		}},
		{"a copy in on the wrong engine", "on queue", func(p *plan.Problem, pl *plan.Plan) bool {
			s := find(pl, plan.In)
			if s < 0 {
				return false
			}
			pl.Steps[s].Queue = p.OutQueue()
			return true
		}},
		{"an op run again that may not", "not known to give the same bytes",
			func(p *plan.Problem, pl *plan.Plan) bool {
				s := find(pl, plan.Again)
				if s < 0 {
					return false
				}
				p.Ops[pl.Steps[s].Op].Rerunnable = false
				return true
			}},
		{"a wait for what is to come", "waits for step", func(_ *plan.Problem, pl *plan.Plan) bool {
			s := find(pl, plan.Wait)
			if s < 0 {
				return false
			}
			pl.Steps[s].On = int32(s) + 1
			return true
		}},
		{"more pinned memory than there is", "pinned host memory", func(p *plan.Problem, pl *plan.Plan) bool {
			peak, _ := pl.PinnedPeak(p)
			p.Hardware.PinnedBytes = peak - 1
			return peak > 1
		}},
		{"two ops in another order", "is due", func(_ *plan.Problem, pl *plan.Plan) bool {
			a := &pl.Steps[find(pl, plan.Run)]
			for s := range pl.Steps {
				if b := &pl.Steps[s]; b != a && b.Kind == plan.Run && b.Queue == a.Queue {
					a.Op, b.Op = b.Op, a.Op
					return true
				}
			}
			return false
		}},
		{"memory given back before its last use", "which is not in memory",
			func(p *plan.Problem, pl *plan.Plan) bool {
				for s := 1; s < len(pl.Steps); s++ {
					run, free := pl.Steps[s-1], pl.Steps[s]
					if run.Kind != plan.Run || free.Kind != plan.Free {
						continue
					}
					x := &pl.Instances[free.Instance]
					if !slices.ContainsFunc(p.AccessesOf(run.Op), func(a plan.Access) bool {
						return a.Buffer == x.Buffer
					}) {
						continue
					}
					pl.Steps[s-1], pl.Steps[s], x.To = free, run, int32(s-1)
					for i := range pl.Steps {
						if pl.Steps[i].Kind == plan.Wait && pl.Steps[i].On == int32(s-1) {
							pl.Steps[i].On = int32(s)
						}
					}
					return true
				}
				return false
			}},
		{"a buffer that ends the iteration elsewhere than it began it", "and ends it at",
			func(p *plan.Problem, pl *plan.Plan) bool {
				for i := range pl.Instances {
					x := &pl.Instances[i]
					if x.Size > 0 && x.From >= 0 && int(x.To) == len(pl.Steps) &&
						p.Buffers[x.Buffer].Life != plan.Inside {
						x.Offset = pl.Footprint
						pl.Footprint += x.Size
						return true
					}
				}
				return false
			}},
		{"an instance that is never freed", "has no end", func(_ *plan.Problem, pl *plan.Plan) bool {
			for i := range pl.Instances {
				if x := &pl.Instances[i]; int(x.To) == len(pl.Steps) {
					x.To--
					return true
				}
			}
			return false
		}},
		{"an instance of another size", "not the problem's", func(_ *plan.Problem, pl *plan.Plan) bool {
			pl.Instances[0].Size++
			return true
		}},
		{"an instance that there is not", "no instance", func(_ *plan.Problem, pl *plan.Plan) bool {
			pl.Steps[find(pl, plan.Alloc)].Instance = plan.InstanceID(len(pl.Instances))
			return true
		}},
		{"a place off the alignment", "is at offset", func(p *plan.Problem, pl *plan.Plan) bool {
			for i := range pl.Instances {
				if x := &pl.Instances[i]; x.Size > 0 && p.Align > 1 {
					x.Offset++
					return true
				}
			}
			return false
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			broken := 0
			for seed := range uint64(40) {
				p, pl := made(t, seed, 40, 0.7)
				if err := plan.Validate(p, pl); err != nil {
					t.Fatal(err)
				}
				if !c.breaks(p, pl) {
					continue
				}
				broken++
				err := plan.Validate(p, pl)
				if !errors.Is(err, plan.ErrInvalid) {
					t.Errorf("seed %d: it is accepted (%v)", seed, err)
				} else if !strings.Contains(err.Error(), c.want) {
					t.Errorf("seed %d: %q does not say %q", seed, err, c.want)
				}
			}
			if broken == 0 {
				t.Error("no plan had anything to break")
			}
		})
	}
}

// TestAStaleValueIsRefused drops a buffer, re-runs its op after an input was changed in place, and expects
// Validate to see that the bytes differ.
func TestAStaleValueIsRefused(t *testing.T) {
	build := func(mutated bool) error {
		b := plantest.New()
		x := b.Buffer("x", 100, timeline.Activation)
		y := b.Buffer("y", 100, timeline.Activation)
		z := b.Buffer("z", 100, timeline.Gradient)
		b.Op("make x", traces.PhaseForward, 10, nil, []plan.BufferID{x})
		b.Op("make y", traces.PhaseForward, 10, []plan.BufferID{x}, []plan.BufferID{y})
		b.Op("touch x", traces.PhaseForward, 10, nil, nil)
		if mutated {
			b.Mutate(x)
		}
		b.Op("use both", traces.PhaseBackward, 10, []plan.BufferID{x, y}, []plan.BufferID{z})
		p := b.End()
		pl, err := plan.Assemble(p, plan.Decisions{
			Absences: []plan.Absence{{Buffer: y, After: 1, Release: 2, Fetch: 3, Before: 3,
				How: plan.Recompute}},
			Reruns: []plan.Rerun{{Before: 3, Ops: []plan.OpID{1}}},
		})
		if err != nil {
			return err
		}
		if _, err := place.Place(context.Background(), p, pl, place.Options{}); err != nil {
			return err
		}
		return plan.Validate(p, pl)
	}
	if err := build(false); err != nil {
		t.Errorf("a sound recompute is refused: %v", err)
	}
	if err := build(true); !errors.Is(err, plan.ErrInvalid) || !strings.Contains(err.Error(), "version") {
		t.Errorf("a recompute from a changed input is accepted: %v", err)
	}
}

// TestARerunMayWriteOverItsOwnScratchOnly: a buffer that held two values in turn may do so again within one
// rerun, but not while one of them is still wanted.
func TestARerunMayWriteOverItsOwnScratchOnly(t *testing.T) {
	build := func(wanted bool, chain ...plan.OpID) error {
		b := plantest.New()
		buf := func(x ...plan.BufferID) []plan.BufferID { return x }
		x := b.Buffer("x", 100, timeline.Activation)
		s := b.Buffer("scratch", 100, timeline.Activation)
		y, z := b.Buffer("y", 100, timeline.Activation), b.Buffer("z", 100, timeline.Activation)
		b.Op("make x", traces.PhaseForward, 10, nil, buf(x))
		b.Op("first value", traces.PhaseForward, 10, buf(x), buf(s))
		b.Op("make y", traces.PhaseForward, 10, buf(s), buf(y))
		b.Op("second value", traces.PhaseForward, 10, buf(x), buf(s))
		b.Op("make z", traces.PhaseForward, 10, buf(s), buf(z))
		reads := buf(x, y, z)
		if wanted {
			reads = append(reads, s)
		}
		b.Op("use", traces.PhaseBackward, 10, reads, nil)
		p := b.End()
		pl, err := plan.Assemble(p, plan.Decisions{
			Absences: []plan.Absence{
				{Buffer: y, After: 2, Release: 3, Fetch: 5, Before: 5, How: plan.Recompute},
				{Buffer: z, After: 4, Release: 5, Fetch: 5, Before: 5, How: plan.Recompute}},
			Reruns: []plan.Rerun{{Before: 5, Ops: chain}},
		})
		if err != nil {
			return err
		}
		if _, err := place.Place(context.Background(), p, pl, place.Options{}); err != nil {
			return err
		}
		return plan.Validate(p, pl)
	}
	if err := build(false, 1, 2, 3, 4); err != nil {
		t.Errorf("a chain that writes over its own scratch is refused: %v", err)
	}
	if err := build(true, 1, 2, 3, 4); !errors.Is(err, plan.ErrInvalid) ||
		!strings.Contains(err.Error(), "overwrite") {
		t.Errorf("a chain that writes over a value of the iteration is accepted: %v", err)
	}
	if err := build(false, 1, 3, 2, 4); !errors.Is(err, plan.ErrInvalid) ||
		!strings.Contains(err.Error(), "version") {
		t.Errorf("a chain that writes over its scratch before it is read is accepted: %v", err)
	}
}

func TestBadProblemsAreRefusedWithASentence(t *testing.T) {
	good := func() plan.Problem {
		return plan.Problem{Align: 512, Streams: 1, Kind: traces.Dataflow,
			Ops: []plan.Op{{Name: "a", First: 0, End: 1, Workspace: plan.NoBuffer},
				{Name: "b", First: 1, End: 2, Workspace: plan.NoBuffer}},
			Accesses: []plan.Access{{Buffer: 0, Mode: plan.Write}, {Buffer: 0, Mode: plan.Read}},
			Buffers:  []plan.Buffer{{Name: "x", Size: 100, Start: 0, End: 2}}}
	}
	p := good()
	if err := p.Finish(); err != nil {
		t.Fatalf("the sound one is refused: %v", err)
	}
	if p.Iterations != 1 {
		t.Errorf("a problem that does not say how often its iteration ran is of %d iterations", p.Iterations)
	}
	for _, c := range []struct {
		name, want string
		spoil      func(p *plan.Problem)
	}{
		{"negative size", "not 0 to 2^48", func(p *plan.Problem) { p.Buffers[0].Size = -1 }},
		{"size above 2^48", "not 0 to 2^48", func(p *plan.Problem) { p.Buffers[0].Size = 1<<48 + 1 }},
		{"negative lifetime", "empty or negative", func(p *plan.Problem) {
			p.Buffers[0].Start, p.Buffers[0].End = 2, 1
		}},
		{"lifetime outside", "outside of the iteration", func(p *plan.Problem) { p.Buffers[0].End = 3 }},
		{"touched when dead", "touches buffer 0", func(p *plan.Problem) { p.Buffers[0].End = 1 }},
		{"longer than an iteration", "longer than an iteration", func(p *plan.Problem) {
			p.Buffers[0] = plan.Buffer{Name: "x", Size: 1, Life: plan.Carried, Start: 0, End: 1}
		}},
		{"no such buffer", "touches buffer 7", func(p *plan.Problem) { p.Accesses[0].Buffer = 7 }},
		{"no such stream", "stream", func(p *plan.Problem) { p.Ops[0].Stream = 4 }},
		{"alignment", "not a power of two", func(p *plan.Problem) { p.Align = 500 }},
		{"workspace", "workspace of op 0", func(p *plan.Problem) { p.Ops[0].Workspace = 0 }},
		{"more bytes than addresses", "pass 2^62", func(p *plan.Problem) {
			p.Buffers = append(p.Buffers, slices.Repeat([]plan.Buffer{{Size: 1 << 48, End: 2}}, 1<<14)...)
		}},
	} {
		p := good()
		c.spoil(&p)
		if err := p.Finish(); !errors.Is(err, plan.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v does not say %q", c.name, err, c.want)
		}
	}
}

func TestABlockOfNoBytesTakesNoPlace(t *testing.T) {
	pl := plan.Plan{Instances: []plan.Instance{{Size: 0}, {Size: 10}}}
	if pl.Place([]int64{100, 5}); pl.Footprint != 15 {
		t.Errorf("a footprint of %d, not 15", pl.Footprint)
	}
}

// What an iteration reads before it writes comes from the one before; what it reads after that, from its
// write.
func TestACarriedBufferHasAProducerFromItsWriteOn(t *testing.T) {
	p := plan.Problem{Align: 512, Streams: 1, Kind: traces.Dataflow,
		Ops: []plan.Op{{Name: "reads", First: 0, End: 1, Workspace: plan.NoBuffer},
			{Name: "writes", First: 1, End: 2, Workspace: plan.NoBuffer},
			{Name: "reads again", First: 2, End: 3, Workspace: plan.NoBuffer}},
		Accesses: []plan.Access{{Buffer: 0, Mode: plan.Read}, {Buffer: 0, Mode: plan.Write},
			{Buffer: 0, Mode: plan.Read}},
		Buffers: []plan.Buffer{{Name: "x", Size: 100, Life: plan.Carried, Start: 1, End: 1}}}
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	if ops, ok := p.Producer(0, 0); ok {
		t.Errorf("before the write it is made by %v", ops)
	}
	if ops, ok := p.Producer(0, 2); !ok || !slices.Equal(ops, []plan.OpID{1}) {
		t.Errorf("after the write it is made by %v (%v)", ops, ok)
	}
}

func TestAVariantThatAnOpLacksIsRefused(t *testing.T) {
	p := plantest.Chain(3, 1000, 10)
	p.Ops[1].Variants = make([]plan.Variant, 2)
	for v, sound := range map[uint8]bool{0: true, 1: true, 2: false} {
		variants := make([]uint8, len(p.Ops))
		variants[1] = v
		_, err := plan.Assemble(p, plan.Decisions{Variants: variants})
		if sound != (err == nil) || !sound && !strings.Contains(err.Error(), "op 1 has no variant 2") {
			t.Errorf("variant %d of two: %v", v, err)
		}
	}
}

func TestDecisionsThatContradictThemselvesAreRefused(t *testing.T) {
	p := plantest.Chain(3, 1000, 10)
	for _, c := range []struct {
		name, want string
		d          plan.Decisions
	}{
		{"absent in the wrong order", "not in this order",
			plan.Decisions{Absences: []plan.Absence{{Buffer: 0, After: 4, Release: 3, Fetch: 5, Before: 6}}}},
		{"fetched before it is released", "not in this order",
			plan.Decisions{Absences: []plan.Absence{{Buffer: 0, After: 1, Release: 3, Fetch: 2, Before: 6}}}},
		{"a parameter absent", "persists and cannot be absent",
			plan.Decisions{Absences: []plan.Absence{{Buffer: 4, After: 1, Release: 2, Fetch: 5, Before: 6}}}},
		{"no such buffer", "absence of buffer 99",
			plan.Decisions{Absences: []plan.Absence{{Buffer: 99, After: 1, Release: 2, Fetch: 5,
				Before: 6}}}},
		{"absent while it is used", "touches buffer 1 (act1), which is not there",
			plan.Decisions{Absences: []plan.Absence{{Buffer: 1, After: 1, Release: 2, Fetch: 5, Before: 6}}}},
		{"a cycle: two buffers re-made from each other",
			"run again before op 6, reads buffer 0 (act0), which is not there", plan.Decisions{
				Absences: []plan.Absence{{Buffer: 1, After: 2, Release: 3, Fetch: 6, Before: 6,
					How: plan.Recompute}, {Buffer: 0, After: 1, Release: 2, Fetch: 7, Before: 7,
					How: plan.Recompute}},
				Reruns: []plan.Rerun{{Before: 6, Ops: []plan.OpID{1}}}}},
		{"recomputed and never made", "touches buffer 0 (act0), which is not there",
			plan.Decisions{Absences: []plan.Absence{{Buffer: 0, After: 1, Release: 2, Fetch: 7, Before: 7,
				How: plan.Recompute}}}},
		{"an op that is none", "op 77 of 8 is to run again",
			plan.Decisions{Reruns: []plan.Rerun{{Before: 3, Ops: []plan.OpID{77}}}}},
		{"the op behind the last", "op 8 of 8 is to run again",
			plan.Decisions{Reruns: []plan.Rerun{{Before: 3, Ops: []plan.OpID{8}}}}},
	} {
		if _, err := plan.Assemble(p, c.d); !errors.Is(err, plan.ErrInvalid) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v does not say %q", c.name, err, c.want)
		}
	}
}

func TestABudgetBelowWhatMustResideIsNotPossible(t *testing.T) {
	p := plantest.Chain(4, 1<<20, 1000)
	m := p.MustReside()
	if m.Persistent != 4*(1<<17) || m.Operands != 3<<20 {
		t.Errorf("must reside: %+v", m)
	}
	var small *plan.TooSmall
	if err := p.CheckBudget(m.Persistent - 1); !errors.As(err, &small) || small.Need != m.Persistent ||
		!strings.Contains(err.Error(), "parameters alone") {
		t.Errorf("below the parameters: %v", err)
	}
	if err := p.CheckBudget(m.Total() - 1); !errors.As(err, &small) || small.Need != m.Total() {
		t.Errorf("below the operands: %v", err)
	}
	if err := p.CheckBudget(m.Total()); err != nil {
		t.Errorf("at the floor: %v", err)
	}
}

func TestSectionsTileTheirBuffer(t *testing.T) {
	for seed := range uint64(50) {
		p := plantest.Random(seed, 30)
		q, err := p.Sectioned(3000)
		if err != nil {
			t.Fatal(err)
		}
		var whole, parts int64
		for i := range p.Buffers {
			whole += p.Buffers[i].Size
		}
		for i := range q.Buffers {
			parts += q.Buffers[i].Size
		}
		before, _ := p.PeakLive()
		after, _ := q.PeakLive()
		if whole != parts || after < before || after > before+int64(len(q.Buffers))*p.Align {
			t.Errorf("seed %d: %d bytes in %d, peak %d becomes %d", seed, whole, parts, before, after)
		}
	}
}

// A gap has at least one op in it, even if the caller asks for fewer, and as many as the caller asks for.
func TestGapsHaveAsManyOpsAsAsked(t *testing.T) {
	b := plantest.New()
	x := b.Buffer("x", 1, timeline.Activation)
	y := b.Buffer("y", 1, timeline.Activation)
	b.Op("write", traces.PhaseForward, 1, nil, []plan.BufferID{x, y})
	b.Op("next", traces.PhaseForward, 1, []plan.BufferID{x}, nil) // no op between
	b.Op("one", traces.PhaseForward, 1, []plan.BufferID{y}, nil)
	b.Op("two", traces.PhaseForward, 1, nil, nil)
	b.Op("last", traces.PhaseForward, 1, []plan.BufferID{x, y}, nil) // two and one
	p := b.End()
	for minOps, want := range []int{3, 3, 1, 0} {
		if got := p.Gaps(1, minOps); len(got) != want {
			t.Errorf("%d gaps of %d ops and more, want %d: %v", len(got), minOps, want, got)
		}
	}
}
