package chain_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// check assembles, places and validates decisions, and returns the plan.
func check(t *testing.T, p *plan.Problem, d plan.Decisions) *plan.Plan {
	t.Helper()
	pl, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatalf("assemble: %v", err)
	}
	pl.Manager = "test"
	if _, err := place.Place(context.Background(), p, pl, place.Options{Rule: place.FirstFit}); err != nil {
		t.Fatalf("place: %v", err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatalf("validate: %v", err)
	}
	return pl
}

// TestAnyCombinationOfRecomputableGapsCanBeDropped is the promise of Recomputable, and that of Plan.
func TestAnyCombinationOfRecomputableGapsCanBeDropped(t *testing.T) {
	dropped, joint, again := 0, 0, 0
	for seed := range uint64(600) {
		p := problems(seed, 10+int(seed%120))
		b := chain.New(p)
		gaps := b.Gaps(1, 1)
		r := rand.New(rand.NewPCG(seed, 5))
		share := float64(1+seed%4) / 4
		var chosen []plan.Gap
		for _, g := range gaps {
			if r.Float64() < share {
				chosen = append(chosen, g)
			}
		}
		res, err := b.Plan(chosen)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		pl := check(t, p, plan.Decisions{Absences: res.Absences, Reruns: res.Reruns})
		if live, _ := pl.PeakLive(); live != b.PeakLive(res.Absences, res.Reruns) {
			t.Fatalf("seed %d: the peak is %d and was said to be %d", seed, live,
				b.PeakLive(res.Absences, res.Reruns))
		}
		dropped += len(chosen)
		again += res.Ops
		for _, x := range res.Reruns {
			if len(x.Ops) > 1 {
				joint++
			}
		}
	}
	if dropped < 2000 || joint < 200 {
		t.Errorf("only %d gaps dropped, %d chains of several ops: the law was hardly tried", dropped, joint)
	}
	t.Logf("%d gaps, %d ops again, %d longer chains", dropped, again, joint)
}

// TestDropsWithPositionsAndSwapsAroundThemAreValidOrRefused mixes everything, whether or not it can be done:
// what is not refused is valid.
func TestDropsWithPositionsAndSwapsAroundThemAreValidOrRefused(t *testing.T) {
	refused, done, swapped := 0, 0, 0
	for seed := range uint64(600) {
		p := problems(seed, 10+int(seed%90))
		b := chain.New(p)
		r := rand.New(rand.NewPCG(seed, 6))
		var drops []chain.Drop
		var others []plan.Absence
		for _, g := range p.Gaps(1, 1) {
			if p.Buffers[g.Buffer].Life != plan.Inside {
				continue
			}
			room := int(g.Before - g.After)
			release := g.After + 1 + plan.OpID(r.IntN(room))
			fetch := release + plan.OpID(r.IntN(int(g.Before-release)+1))
			switch r.IntN(4) {
			case 0:
				others = append(others, plan.Absence{Buffer: g.Buffer, After: g.After, Before: g.Before,
					Release: release, Fetch: fetch, Paced: true})
			case 1, 2:
				drops = append(drops, chain.Drop{Gap: g, Release: release, Fetch: fetch})
			}
		}
		if res, err := b.PlanDrops(drops, others, 0); err == nil {
			check(t, p, plan.Decisions{Absences: slices.Concat(others, res.Absences), Reruns: res.Reruns})
		} else if no := (*chain.Impossible)(nil); !errors.As(err, &no) {
			t.Fatal(err)
		}
		res, kept := b.PlanPossible(drops, others, 0)
		d := plan.Decisions{Absences: slices.Concat(others, res.Absences), Reruns: res.Reruns}
		pl := check(t, p, d)
		if live, _ := pl.PeakLive(); live != b.PeakLive(d.Absences, d.Reruns) {
			t.Fatalf("seed %d: the peak is %d and was said to be %d", seed, live,
				b.PeakLive(d.Absences, d.Reruns))
		}
		refused += len(drops) - len(kept)
		done += len(kept)
		swapped += len(others)
	}
	if refused < 500 || done < 2000 || swapped < 2000 {
		t.Errorf("%d refused, %d done, %d swapped: the law was hardly tried", refused, done, swapped)
	}
}

// TestARefusalIsJustified tries by force what At refuses: no chain of one re-run of any ops in issue order
// would do.
func TestARefusalIsJustified(t *testing.T) {
	tried := 0
	for seed := range uint64(300) {
		p := problems(seed, 9)
		b := chain.New(p)
		for _, g := range p.Gaps(1, 1) {
			if p.Buffers[g.Buffer].Life != plan.Inside || g.Dead {
				continue
			}
			_, err := b.At(g.Before, []plan.BufferID{g.Buffer}, b.NewSet())
			possible := false
			for mask := 1; mask < 1<<g.Before && !possible; mask++ {
				x := plan.Absence{Buffer: g.Buffer, After: g.After, Before: g.Before, Release: g.After + 1,
					Fetch: g.Before, How: plan.Recompute}
				run := plan.Rerun{Before: g.Before}
				for i := range int(g.Before) {
					if mask>>i&1 == 1 {
						run.Ops = append(run.Ops, plan.OpID(i))
					}
				}
				pl, aerr := plan.Assemble(p, plan.Decisions{Absences: []plan.Absence{x},
					Reruns: []plan.Rerun{run}})
				if aerr != nil {
					continue
				}
				if _, perr := place.Place(context.Background(), p, pl, place.Options{Rule: place.FirstFit}); perr == nil && plan.Validate(p, pl) == nil {
					possible = true
				}
			}
			if possible != (err == nil) {
				t.Fatalf("seed %d, buffer %d before op %d: possible %v, and At says %v", seed, g.Buffer, g.Before, possible, err)
			}
			tried++
		}
	}
	if tried < 300 {
		t.Errorf("only %d gaps tried", tried)
	}
}

func ids(b ...plan.BufferID) []plan.BufferID { return b }

// convRelu is two layers, each a convolution and an activation in place, whose result the backward pass
// reads.
func convRelu() (*plan.Problem, [3]plan.BufferID) {
	b := plantest.New()
	var x [3]plan.BufferID
	x[0] = b.Buffer("x0", 100, timeline.Activation)
	b.Op("input", traces.PhaseForward, 10, nil, ids(x[0]))
	b.P.Ops[0].Rerunnable = false
	for i := 1; i < 3; i++ {
		x[i] = b.Buffer("x", 100, timeline.Activation)
		b.Op("conv", traces.PhaseForward, 10, ids(x[i-1]), ids(x[i]))
		b.Op("relu", traces.PhaseForward, 1, nil, nil)
		b.Mutate(x[i])
	}
	grad := b.Buffer("grad", 100, timeline.Gradient)
	b.Op("loss", traces.PhaseBackward, 10, ids(x[2]), ids(grad))
	b.Op("backward2", traces.PhaseBackward, 10, ids(x[1], x[2], grad), nil)
	b.Op("backward1", traces.PhaseBackward, 10, ids(x[0], x[1], grad), nil)
	return b.End(), x
}

func TestAnActivationInPlaceRunsAgainBehindItsConvolution(t *testing.T) {
	p, x := convRelu()
	b := chain.New(p)
	s := b.NewSet()
	s.Add(plan.Absence{Buffer: x[1], Release: 4, Fetch: 6, Before: 6, How: plan.Recompute})
	c, err := b.At(6, ids(x[1]), s)
	if err != nil || !slices.Equal(c.Ops, []plan.OpID{1, 2}) || c.Time != 11 || c.Scratch != 0 || c.Peak != 100 {
		t.Errorf("got %+v, %v", c, err)
	}
	c, err = b.At(5, ids(x[2]), s) // x1 is away: it becomes scratch
	if err != nil || !slices.Equal(c.Ops, []plan.OpID{1, 2, 3, 4}) || c.Time != 22 || c.Scratch != 100 || c.Peak != 200 {
		t.Errorf("got %+v, %v", c, err)
	}
	c, err = b.At(5, ids(x[1], x[2]), s) // together: nothing is scratch
	if err != nil || !slices.Equal(c.Ops, []plan.OpID{1, 2, 3, 4}) || c.Scratch != 0 || c.Peak != 200 {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestAnInputThatChangedSinceIsInTheWay(t *testing.T) {
	b := plantest.New()
	x, y, g := b.Buffer("x", 10, timeline.Activation), b.Buffer("y", 10, timeline.Activation), b.Buffer("g", 10, timeline.Gradient)
	b.Op("make x", traces.PhaseForward, 1, nil, ids(x))
	b.Op("make y", traces.PhaseForward, 1, ids(x), ids(y))
	b.Op("change x", traces.PhaseForward, 1, nil, nil)
	b.Mutate(x)
	b.Op("use", traces.PhaseBackward, 1, ids(x, y), ids(g))
	p := b.End()
	c := chain.New(p)
	gap := plan.Gap{Buffer: y, After: 1, Before: 3}
	if _, _, ok := c.Cost(gap, c.NewSet()); ok {
		t.Error("x has changed since, and y is said to be makeable")
	}
	if ok, why := c.Recomputable(gap); ok || !strings.Contains(why, "overwritten") {
		t.Errorf("got %v, %q", ok, why)
	}
	_, err := c.Plan([]plan.Gap{gap})
	if no := (*chain.Impossible)(nil); !errors.As(err, &no) || no.Buffer != y || !strings.Contains(no.Reason, "has changed since") {
		t.Errorf("got %v", err)
	}
}

func TestAnOpOfSeveralOutputsMayRunAgainOverAnEqualValueOnly(t *testing.T) {
	for _, changed := range []bool{false, true} {
		b := plantest.New()
		x, y, z, g := b.Buffer("x", 10, timeline.Activation), b.Buffer("y", 10, timeline.Activation), b.Buffer("z", 10, timeline.Activation), b.Buffer("g", 10, timeline.Gradient)
		b.Op("make x", traces.PhaseForward, 1, nil, ids(x))
		b.Op("split", traces.PhaseForward, 1, ids(x), ids(y, z))
		b.Op("between", traces.PhaseForward, 1, ids(z), nil)
		if changed {
			b.Mutate(z)
		}
		b.Op("use", traces.PhaseBackward, 1, ids(x, y, z), ids(g))
		p := b.End()
		c := chain.New(p)
		gap := plan.Gap{Buffer: y, After: 1, Before: 3}
		ns, scratch, ok := c.Cost(gap, c.NewSet())
		if ok == changed || ok && (ns != 1 || scratch != 0) {
			t.Errorf("changed %v: %d ns, %d bytes, %v", changed, ns, scratch, ok)
		}
		if safe, _ := c.Recomputable(gap); safe == changed {
			t.Errorf("changed %v: recomputable %v", changed, safe)
		}
		if !changed {
			r, err := c.Plan([]plan.Gap{gap})
			if err != nil {
				t.Fatal(err)
			}
			check(t, p, plan.Decisions{Absences: r.Absences, Reruns: r.Reruns})
		}
	}
}

func TestChainsTooLongTogetherAreRefusedAndCutShort(t *testing.T) {
	p := plantest.Chain(200, 1<<20, 1000)
	b := chain.New(p)
	gaps := b.Gaps(1, 1)
	drops := make([]chain.Drop, len(gaps))
	for i := range gaps {
		drops[i].Gap = gaps[i]
	}
	if _, err := b.PlanDrops(drops, nil, 1000); !errors.Is(err, chain.ErrLong) {
		t.Errorf("got %v", err)
	}
	r, kept := b.PlanPossible(drops, nil, 1000)
	if r.Ops > 1000 || len(kept) == 0 || len(kept) == len(drops) {
		t.Errorf("%d ops, %d of %d kept", r.Ops, len(kept), len(drops))
	}
	check(t, p, plan.Decisions{Absences: r.Absences, Reruns: r.Reruns})
}

func TestTheSetForgetsWhatIsRemoved(t *testing.T) {
	p := plantest.Chain(4, 8, 1)
	s := chain.New(p).NewSet()
	s.Add(plan.Absence{Buffer: 1, Release: 2, Fetch: 5, Before: 5})
	s.Add(plan.Absence{Buffer: 1, Release: 7, Fetch: 9, Before: 9, How: plan.Recompute})
	if !s.Away(1, 4) || s.Away(1, 5) || s.Away(1, 6) || !s.Away(1, 9) || s.Away(0, 4) {
		t.Error("away at the wrong positions")
	}
	if !s.Remove(1, 2) || s.Remove(1, 2) || s.Away(1, 4) || !s.Away(1, 8) {
		t.Error("removing took the wrong one")
	}
	if s.Reset(); s.Away(1, 8) {
		t.Error("reset left something")
	}
}

func BenchmarkPlanSegments(b *testing.B) {
	p := plantest.Chain(50_000, 1<<20, 1000)
	b.ReportAllocs()
	for b.Loop() {
		c := chain.New(p)
		gaps := c.Gaps(1, 1)
		drops := make([]chain.Drop, 0, len(gaps))
		for k, g := range gaps { // segments of 100 layers come back at the first need
			if k%100 != 0 {
				drops = append(drops, chain.Drop{Gap: g, Fetch: gaps[min(k-k%100+99, len(gaps)-1)].Before})
			}
		}
		if _, err := c.PlanDrops(drops, nil, 0); err != nil {
			b.Fatal(err)
		}
	}
}
