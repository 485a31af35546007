package swap

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// What each mechanism is worth: switched off, it makes a named problem worse.

func problemText(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("testdata/convnet.txtar")
	if err != nil {
		t.Fatal(err)
	}
	return string(txtar.Parse(data).Files[0].Data)
}

func convnet(t testing.TB) *plan.Problem {
	t.Helper()
	return parseProblem(t, problemText(t))
}

func TestTheWindowKeepsPrefetchesFromComingTooEarly(t *testing.T) {
	// Pooling that keeps the size: what comes back a layer too early takes as much as anything else.
	p := parseProblem(t, strings.NewReplacer("buffer p1 16", "buffer p1 64", "buffer p2 16",
		"buffer p2 64").Replace(problemText(t)))
	a, with := run(t, vdnn{policy: offloadConv}, p, plan.Request{})
	b, without := run(t, vdnn{policy: offloadConv, noWindow: true}, p, plan.Request{})
	live := func(pl *plan.Plan) (bytes int64) {
		for _, x := range pl.Absences {
			bytes += p.Rounded(x.Buffer) * int64(x.Before-x.Fetch)
		}
		return bytes
	}
	if live(b) <= live(a) || without.Footprint <= with.Footprint {
		t.Errorf("prefetched inputs wait for %d byte-ops without the window, %d with it; footprint %d and %d",
			live(b), live(a), without.Footprint, with.Footprint)
	}
}

func TestPrefetchingHidesCopiesThatDemandDoesNot(t *testing.T) {
	_, with := run(t, vdnn{policy: offloadConv}, convnet(t), plan.Request{})
	_, without := run(t, vdnn{policy: offloadConv, noPrefetch: true}, convnet(t), plan.Request{})
	if with.StepTime >= without.StepTime {
		t.Errorf("step time %d ns with prefetching, %d on demand", with.StepTime, without.StepTime)
	}
}

func TestWaitingAtTheEndOfEachLayerCostsTime(t *testing.T) {
	p := parseProblem(t, `
persistent w 1
buffer x 8
buffer y 64
buffer a 4
buffer b 4
buffer g 4
buffer h 64
buffer scratch 64
op input forward other 10 writes x
op first forward conv 90 reads x w writes y scratch
op pool forward pool 10 reads y writes a b
op second forward conv 90 reads a w mutates b
op loss backward loss 200 reads b writes g
op second.backward backward conv 90 reads g a w
op pool.backward backward pool 90 reads g y writes h
op first.backward backward conv 90 reads h x w
`)
	// The last feature-extraction layer is the second convolution; the copy out of y takes longer than the
	// pooling, and nobody needs its memory.
	_, with := run(t, vdnn{policy: offloadAll}, p, plan.Request{})
	_, without := run(t, vdnn{policy: offloadAll, noSync: true}, p, plan.Request{})
	if with.StepTime <= without.StepTime {
		t.Errorf("step time %d ns as vDNN waits, %d without: its own price does not show", with.StepTime,
			without.StepTime)
	}
}

func TestDynIsFasterThanTheStaticSettingThatFits(t *testing.T) {
	p := convnet(t)
	pl, all := run(t, vdnn{policy: offloadAll}, p, plan.Request{})
	_, dyn := run(t, vdnn{policy: dynamic}, p, plan.Request{Budget: pl.Footprint})
	if dyn.Footprint > pl.Footprint || dyn.StepTime >= all.StepTime {
		t.Errorf("vdnn-dyn takes %d bytes and %d ns, vdnn-all %d and %d", dyn.Footprint, dyn.StepTime,
			pl.Footprint, all.StepTime)
	}
}

func TestAStaticSettingThatMustFitIsGivenUp(t *testing.T) {
	p := convnet(t)
	pl, _ := run(t, vdnn{policy: offloadAll}, p, plan.Request{})
	live, _ := pl.PeakLive()
	ask := func(budget int64, mustFit bool) error {
		r := plan.Request{Budget: budget, MustFit: mustFit}
		_, err := vdnn{policy: offloadAll}.Plan(t.Context(), p, r)
		return err
	}
	if err := ask(live-1, true); !errors.Is(err, plan.ErrBeaten) {
		t.Errorf("%d bytes alive within one less: %v", live, err)
	}
	if err := errors.Join(ask(live, true), ask(live-1, false)); err != nil {
		t.Error(err)
	}
}

func TestStickingToTheLimitIsWhatKeepsIt(t *testing.T) {
	broken, peak := 0, int64(0)
	for seed := range uint64(40) {
		p := plantest.Random(seed, 60)
		peak, _ = p.PeakLive()
		floor := p.MustReside().Total()
		limit := floor + (peak-floor)*3/4
		with := newSwapper(p, autoswap{order: order(DOA), smallest: 1})
		without := newSwapper(p, autoswap{order: order(DOA), smallest: 1, noStick: true})
		a, _, err := with.decide(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := without.decide(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		if live(t, p, a) <= limit && live(t, p, b) > limit {
			broken++
		}
	}
	if broken < 5 {
		t.Errorf("only %d of 40 problems pass the limit when the schedule does not stick to it", broken)
	}
}

// live is the most bytes alive at once under decisions.
func live(t testing.TB, p *plan.Problem, d plan.Decisions) int64 {
	t.Helper()
	pl, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	bytes, _ := pl.PeakLive()
	return bytes
}

// underLimits calls f with random problems and limits between what must stay and what is alive at the peak.
func underLimits(f func(p *plan.Problem, limit int64)) {
	for seed := range uint64(200) {
		p := plantest.Random(seed, 40+int(seed%40))
		peak, _ := p.PeakLive()
		floor := p.MustReside().Total()
		for _, share := range []int64{40, 60, 80} {
			f(p, floor+(peak-floor)*share/100)
		}
	}
}

func TestCorrectingForWhatWasTakenMovesLess(t *testing.T) {
	var plain, corrected int64
	better, worse := 0, 0
	underLimits(func(p *plan.Problem, limit int64) {
		moved := func(s Score) int64 {
			x := newSwapper(p, autoswap{order: order(s), smallest: 1})
			y, _, err := x.best(t.Context(), limit)
			if err != nil {
				t.Fatal(err)
			}
			return y.moved
		}
		w, s := moved(WDOA), moved(SWDOA)
		plain, corrected = plain+w, corrected+s
		switch {
		case s < w:
			better++
		case s > w:
			worse++
		}
	})
	if corrected >= plain || better <= worse {
		t.Errorf("SWDOA moves %d bytes, WDOA %d; less in %d problems, more in %d", corrected, plain, better,
			worse)
	}
}

// Taken in the order of a score, candidates move less in sum, and wait less in more problems than they wait
// more, than taken as they come.
func TestEveryScoreIsBetterThanNone(t *testing.T) {
	for s := DOA; s <= SWDOA; s++ {
		var moved [2]int64
		better, worse := 0, 0
		underLimits(func(p *plan.Problem, limit int64) {
			var at [2]schedule
			for k, none := range []bool{false, true} {
				y, _, err := newSwapper(p, autoswap{order: order(s), smallest: 1, noOrder: none}).best(
					t.Context(), limit)
				if err != nil {
					t.Fatal(err)
				}
				at[k] = y
				moved[k] += y.moved
			}
			switch {
			case at[0].charged < at[1].charged:
				better++
			case at[0].charged > at[1].charged:
				worse++
			}
		})
		t.Logf("%s moves %d bytes, no order %d; it is charged less in %d, more in %d", s, moved[0], moved[1],
			better, worse)
		if moved[0] >= moved[1] || better <= worse {
			t.Errorf("%s moves %d bytes, no order %d; it is charged less in %d problems, more in %d", s,
				moved[0], moved[1], better, worse)
		}
	}
}

func TestTheSearchFindsMixesBetterThanEveryScore(t *testing.T) {
	gained, lost := 0, 0
	for seed := range uint64(60) {
		p := plantest.Random(seed, 90)
		peak, _ := p.PeakLive()
		floor := p.MustReside().Total()
		limit := floor + (peak-floor)/2
		charged := func(a autoswap) int64 {
			a.smallest = 1
			x := newSwapper(p, a)
			x.report = func(int64, int64) {}
			y, _, err := x.best(t.Context(), limit)
			if err != nil {
				t.Fatal(err)
			}
			return y.charged
		}
		with, without := charged(autoswap{order: byMix}), charged(autoswap{order: byMix, noSearch: true})
		switch {
		case with < without:
			gained++
		case with > without:
			lost++
		}
	}
	if gained == 0 || lost > 0 {
		t.Errorf("the search gains in %d problems and loses in %d", gained, lost)
	}
	t.Logf("the search gains in %d of 60 problems", gained)
}

// wide is a chain of a few large activations, with a budget for which a part of one is enough.
func wide(t testing.TB) (*plan.Problem, plan.Request) {
	p := plantest.Chain(8, 64<<20, 40e6)
	peak, _ := p.PeakLive()
	return p, plan.Request{Budget: peak - 80<<20, Evaluator: sim.Simulator{}}
}

func TestSectionsMoveNoMoreThanTheBudgetAsksFor(t *testing.T) {
	p, r := wide(t)
	_, with := run(t, tvdnn{}, p, r)
	_, without := run(t, tvdnn{whole: true}, p, r)
	if with.SwappedOut >= without.SwappedOut || with.Footprint > r.Budget {
		t.Errorf("%d bytes moved in sections, %d whole; footprint %d of %d", with.SwappedOut,
			without.SwappedOut, with.Footprint, r.Budget)
	}
}

func TestTheFarthestNextUseIsABetterVictimThanTheLeastRecent(t *testing.T) {
	better, worse := 0, 0
	for seed := range uint64(60) {
		p := plantest.Random(seed, 80)
		peak, _ := p.PeakLive()
		floor := p.MustReside().Total()
		moved := func(v tvdnn) (bytes int64) {
			q, size, err := v.sectioned(p)
			if err != nil {
				t.Fatal(err)
			}
			s := &sections{tvdnn: v, link: newLink(q), size: size}
			c, _, err := s.heuristic(t.Context(), floor+(peak-floor)/2)
			if err != nil {
				t.Fatal(err)
			}
			for i := range c {
				bytes += c[i].size
			}
			return bytes
		}
		switch farthest, recent := moved(tvdnn{section: 2048}), moved(tvdnn{section: 2048, recent: true}); {
		case farthest < recent:
			better++
		case farthest > recent:
			worse++
		}
	}
	if better <= 2*worse {
		t.Errorf("Belady's rule moves less in %d problems and more in %d", better, worse)
	}
}

func TestSectionsThatComeBackOnDemandHoldTheIterationUp(t *testing.T) {
	p, r := wide(t)
	_, with := run(t, tvdnn{}, p, r)
	_, without := run(t, tvdnn{onDemand: true}, p, r)
	if with.StepTime >= without.StepTime {
		t.Errorf("%d ns with prefetching, %d on demand", with.StepTime, without.StepTime)
	}
}

// tight is a chain whose copies take longer than its ops, so that their times matter.
func tight(t testing.TB) (*plan.Problem, plan.Request) {
	p := plantest.Chain(10, 64<<20, 40e6)
	for i := range p.Ops {
		p.Ops[i].Duration = 20e6 + int64(i*7%5)*15e6
	}
	peak, _ := p.PeakLive()
	floor := p.MustReside().Total()
	return p, plan.Request{Budget: floor + (peak-floor)*2/5, Evaluator: sim.Simulator{}}
}

func TestTheIntegerProgramIsNeverWorseThanTheHeuristicAndSometimesBetter(t *testing.T) {
	better := 0
	check := func(p *plan.Problem, r plan.Request, section int64) {
		t.Helper()
		_, h := run(t, tvdnn{section: section}, p, r)
		_, i := run(t, tvdnn{section: section, ilp: true}, p, r)
		switch fits := h.Footprint <= r.Budget; {
		case fits && (i.Footprint > r.Budget || i.StepTime > h.StepTime), !fits && i.Footprint > h.Footprint:
			t.Errorf("the program takes %d bytes and %d ns, the heuristic %d and %d", i.Footprint, i.StepTime,
				h.Footprint, h.StepTime)
		case i.StepTime < h.StepTime:
			better++
		}
	}
	p, r := tight(t)
	check(p, r, 0)
	for seed := range uint64(8) {
		p := plantest.Random(seed, 50)
		peak, _ := p.PeakLive()
		floor := p.MustReside().Total()
		check(p, plan.Request{Budget: floor + (peak-floor)/2, Evaluator: sim.Simulator{}, Work: 8000}, 4096)
	}
	if better == 0 {
		t.Error("the program is never better than the heuristic")
	}
	t.Logf("better in %d of 9", better)
}
