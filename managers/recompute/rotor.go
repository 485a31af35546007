package recompute

import (
	"context"
	"math"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Optimal checkpointing of chains.
//
// Problem: a network is a chain of stages, and memory holds few of their results. Which results should stay
// in which sweep, so that the fewest ops are rerun? Segments (sqrt) rerun each stage at most once. With less
// memory than that takes, a stage runs several times, from checkpoints that are themselves recomputed.
//
// Approach: for identical stages, Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26, 2000; for
// stages of any sizes and times Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for
// heterogeneous chains: how to train deep neural networks with limited memory", 2019, arXiv 1911.13214, whose
// dynamic program has Revolve's as a special case. C(s, t, m) is the least time to run stages s to t backward
// within m bytes when the input of s is held. Either stages s to j run forward and only the result of j is
// held,
//
//	C(s, t, m) = forward(s..j) + C(j+1, t, m - result of j) + C(s, j, m),
//
// or stage s runs forward and everything that its backward pass needs is held,
//
//	C(s, t, m) = forward(s) + C(s+1, t, m - result of s - inside of s) + backward(s).
//
// The first sweep is the forward pass itself and costs nothing. Both ways need memory for what runs. It is
// taken from the iteration: what else is alive at that moment, including the scratch of the ops. That decides
// where results are held. Package chain determines which ops are rerun for that, and may find fewer.
//
// Our reading. Stages lie between the places at which sqrt may cut, and a result is what crosses a cut; if
// several tensors cross, they are one result. We leave out cuts whose stages' backward passes are not in the
// opposite order and, if there are too many, those that make the smallest stages. Sizes are counted in units
// of their greatest common divisor or, if that gives too many, in larger ones, rounded up. The program's
// memory figure is then checked, and we take its largest budget whose plan meets the real one.
//
// Complexity: O(stages^3 x units) time and O(stages^2 x units) memory, O(stages^2 x units) time if all stages
// except the first and the last are alike. Both are kept within Request.Work by using fewer stages and larger
// units. Rejected: the closed form of Revolve (memory differs between the first sweep and later ones, when
// gradients are held, so it is off by a slot); schedules that give up a checkpoint before its stage has run
// backward, which the paper's authors show can be better, by little, and which no program of this size finds.
type rotor struct{}

// Rotor returns the manager "rotor": optimal checkpointing of chains.
func Rotor() plan.Manager { return rotor{} }

// Info implements [plan.Manager].
func (rotor) Info() plan.Info {
	return plan.Info{Name: "rotor", After: "Beaumont 2019", Family: plan.Recomputing, Needs: traces.Dataflow,
		Reading: "stages are what lies between places where one activation crosses; " +
			"tensors that cross together are held together.",
		Summary: "Chooses by dynamic programming which results each sweep keeps " +
			"(Revolve where all stages are alike)."}
}

// rotorWork is the default bound on counted work: steps of the dynamic program.
const rotorWork = 10_000_000

// Plan implements [plan.Manager]. Request.Work bounds the steps of the dynamic program.
func (m rotor) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	pl, stages, err := staged(ctx, p, r, m.Info(), func(c *chains) decider { return c.decide })
	if err == nil && r.Budget > 0 {
		pl.Note("%d stages.", stages)
	}
	return pl, err
}

// decider returns what to drop within a limit on live bytes, 0 for none, and the work done.
type decider func(ctx context.Context, limit int64) (plan.Decisions, int64, error)

// staged makes the plan that a decider chooses for the chains of the iteration, and says how many stages they
// have.
func staged(
	ctx context.Context, p *plan.Problem, r plan.Request, info plan.Info, by func(*chains) decider,
) (*plan.Plan, int, error) {
	work := r.Work
	if work <= 0 {
		work = rotorWork
	}
	var c chains
	pl, err := run(ctx, p, r, info, func(b *chain.Builder) func(int64) (plan.Decisions, int64, error) {
		c = newChains(p, b, work)
		decide := by(&c)
		return func(limit int64) (plan.Decisions, int64, error) { return decide(ctx, limit) }
	})
	return pl, c.stages(), err
}

// chains are the chains of an iteration, one for each forward pass.
type chains struct {
	b      *chain.Builder
	passes []*stageChain
	work   int64 // for each pass
	// the maximum number of ops that may be rerun in all; what would take more is kept
	mostOps int
}

// manyOps is the number of ops that may be rerun in any case, in all. If a large network is no chain,
// dropping everything would take millions.
const manyOps = 300_000

func newChains(p *plan.Problem, b *chain.Builder, work int64) chains {
	c := chains{b: b}
	for _, pair := range pairs(p) {
		acts := activations(p, b, pair)
		if len(acts) == 0 {
			continue
		}
		c.passes = append(c.passes, newStageChain(p, b, pair, acts, work))
	}
	c.work = work / int64(max(len(c.passes), 1))
	c.mostOps = min(b.DefaultMaxOps(), max(mostReruns*len(p.Ops), manyOps))
	return c
}

// stages returns how many stages the passes have together.
func (c *chains) stages() (n int) {
	for _, s := range c.passes {
		n += len(s.stages)
	}
	return n
}

// decide returns the decisions with the least time within the limit on live bytes, as far as the program can
// tell, or those with the least memory.
func (c *chains) decide(ctx context.Context, limit int64) (plan.Decisions, int64, error) {
	if limit <= 0 {
		return plan.Decisions{}, 0, nil
	}
	var work int64
	programs := make([]*rotorProgram, len(c.passes))
	top := 0
	for k, s := range c.passes {
		if ctx.Err() != nil {
			return plan.Decisions{}, work, ctx.Err()
		}
		g := newRotorProgram(s, limit, c.work)
		if err := g.solve(ctx); err != nil {
			return plan.Decisions{}, work, err
		}
		programs[k] = g
		work += g.work
		top = max(top, g.top)
	}
	best := tightest(ctx, top, limit, func(less int) attempt {
		var drops []chain.Drop
		for _, g := range programs {
			drops = append(drops, g.drops(g.top-less)...)
		}
		r, _ := c.b.PlanPossible(drops, nil, c.mostOps)
		work += int64(len(r.Absences) + r.Ops)
		return attempt{plan.Decisions{Absences: r.Absences, Reruns: r.Reruns},
			c.b.PeakLive(r.Absences, r.Reruns), r.Time}
	})
	return best.Decisions, work, nil
}

// attempt is the result of a program with one of its budgets: the peak of live bytes, and the time by the
// program's own account.
type attempt struct {
	plan.Decisions
	peak, time int64
}

// better reports whether an attempt is preferred within a limit: it fits and is faster, or otherwise it is
// smaller.
func (a *attempt) better(b *attempt, limit int64) bool {
	fits, did := a.peak <= limit, b.peak <= limit
	smaller := a.peak < b.peak
	return fits && (!did || a.time < b.time || a.time == b.time && smaller) || !fits && !did && smaller
}

// tightest returns the best attempt. A program's memory is rounded, and it knows chains only from outside, so
// tightest looks for the program budget, in units below top, whose plan just meets the limit.
func tightest(ctx context.Context, top int, limit int64, make func(less int) attempt) attempt {
	best := attempt{peak: math.MaxInt64, time: math.MaxInt64}
	try := func(less int) bool {
		a := make(less)
		if a.better(&best, limit) {
			best = a
		}
		return a.peak <= limit
	}
	// Fewer units take less memory: unless rounding gets in the way, the first budget that fits lies between
	// these, and then the next ones are worth a look.
	lo, hi := 0, top
	for lo < hi && ctx.Err() == nil {
		if mid := (lo + hi) / 2; try(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	for less := max(lo-2, 0); less <= min(lo+2, top) && ctx.Err() == nil; less++ {
		try(less)
	}
	return best
}
