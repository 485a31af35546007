package combine

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// After HOME (He, Chen, Chen, Li, Yang, Chen, Shou: "HOME: A Holistic GPU Memory Management Framework for
// Deep Learning", IEEE Transactions on Computers 72(3), 2023).
//
// Of HOME we know only its abstract: it considers the whole model, decides for each tensor with a particle
// swarm, and reduces the search space. Its encoding, reduction rule, fitness and constants are not public,
// and neither is its code. What follows is ours, in its spirit, and allows no conclusion about the original.
//
// Search space. A gene is a group of idle intervals with one fate: keep, swap or recompute. Three steps
// reduce the space: intervals that do not lie where the load is above the limit are kept, since their absence
// saves nothing; so are the smallest ones, which together make up a fiftieth of the bytes; neighbours in time
// that leave after ops of one module share a gene, and if there would still be more than mostGenes, further
// neighbours share one.
//
// From genes to decisions. A timetable gives swaps their time on the link; one that the link cannot hide is
// swapped for all of its interval, at the price of a stall. Where the load is still too high, swapped buffers
// leave earlier and return later. Recomputed ones get their chains, whose by-products stay where the limit
// allows; one whose chain would be too long is kept, as a checkpoint for those after it.
//
// Fitness is the evaluator's step time, plus a penalty on each live byte over the limit. (Live bytes stand in
// for the footprint: placing every candidate would cost more than everything else. Addresses are assigned at
// the end, and if holes take them over the budget the swarm continues under a tighter limit.) Exceeding the
// limit by a twentieth costs as much as another keep-all step.
//
// The swarm. A particle has three coordinates per gene, the largest of which is the gene's fate; velocities
// follow the particle's own best and the swarm's best with the constants of Clerc and Kennedy (2002). It
// begins with keep-all, a vDNN-like swap of everything, AutoSwap-like picks (the largest products of size and
// idle time first), a Capuchin-like greedy and a DELTA-like run, and with noise around these. The unreduced
// decisions of the last two count as found before the swarm starts, so the result is hardly ever worse (its
// addresses may be). Work counts evaluations; the answer is the best so far whenever it stops.
//
// Complexity: O(work x (ops + accesses + absences log absences)). Rejected: one coordinate per gene cut at
// thresholds, which puts swap between keep and recompute as if it were half of each.

const (
	mostGenes = 256
	particles = 16
	// inertia and pull are the constants with which a swarm neither explodes nor stagnates (Clerc and
	// Kennedy: "The particle swarm: explosion, stability, and convergence in a multidimensional complex
	// space", 2002).
	inertia, pull = 0.7298, 1.49618
)

// home is the manager; the fields switch mechanisms off for tests.
type home struct {
	noReduction, noSeeds bool
}

// Info implements [plan.Manager].
func (home) Info() plan.Info {
	return plan.Info{Name: "home", After: "He 2023", Family: plan.Combining, Needs: traces.Dataflow,
		Reading: "After HOME, whose internals are not public: encoding, reduction, fitness and constants " +
			"are ours, and nothing here speaks of the original's results.",
		Summary: "Chooses between keep, swap and recompute for groups of tensors with a particle swarm, " +
			"which the simulator judges and simpler methods' plans seed."}
}

// Plan implements [plan.Manager].
func (m home) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	w := &swarm{home: m, ctx: ctx, r: r, most: r.Work}
	if w.most <= 0 {
		w.most = evaluations(int64(len(p.Ops) + len(p.Buffers) + 1))
	}
	pl, err := run(ctx, p, r, m.Info(), func(v *view) error {
		if r.Budget <= 0 { // nothing will be decided
			return nil
		}
		at, _, err := measure(ctx, v.p, r.Evaluator, plan.Decisions{})
		if err == nil {
			w.work++
			w.v, w.s = v, newSelection(v, at)
			w.s.longest = 4*len(p.Ops) + 1024
		}
		return err
	}, func(_ *view, limit int64) (plan.Decisions, error) {
		if limit <= 0 {
			return plan.Decisions{}, ctx.Err()
		}
		return w.decide(limit)
	})
	if err != nil {
		return nil, err
	}
	pl.Work += w.work
	switch {
	case r.Budget > 0 && pl.Footprint > r.Budget:
		pl.Note("No particle met the budget.")
	case w.name != "":
		pl.Note("The swarm did not improve on its seed: %s.", w.name)
	}
	return pl, nil
}

// evaluations is the default number of candidates to judge for a problem with that many ops and buffers:
// fewer for large ones, so that planning ends.
func evaluations(n int64) int64 {
	if n > 10_000 {
		return max(8, 300_000/n)
	}
	return min(600, 500_000/n)
}

// swarm is the state of a search; it continues from its best under each tighter limit.
type swarm struct {
	home
	ctx        context.Context
	s          *selection
	v          *view
	r          plan.Request
	work, most int64
	rounds     int
	fine       float64 // nanoseconds a byte over the limit

	genes   [][]int32 // gaps of each gene
	name    string    // the seed that is the best so far, "" if the swarm has found better
	best    plan.Decisions
	over    int64              // its live bytes over the limit
	fastest int64              // its step time
	known   map[string]float64 // fitness of the assignments tried

	place, speed [][]float64 // of each particle, three a gene
	own, all     [][]float64 // the best places of each particle; all has the swarm's
	ownFitness   []float64
	rng          *rand.Rand
}

// decide searches under a limit on live bytes.
func (w *swarm) decide(limit int64) (plan.Decisions, error) {
	w.s.reset(limit)
	if w.s.fits() {
		w.best = plan.Decisions{}
		w.name = "keep everything"
		return w.best, w.ctx.Err()
	}
	w.fine = 20 * float64(w.s.at.step) / float64(limit)
	w.over, w.fastest = math.MaxInt64, math.MaxInt64
	w.known = map[string]float64{}
	last := w.best
	w.best = plan.Decisions{}
	until := w.most
	if w.rounds++; w.rounds > 1 { // a tighter limit after placing
		until = w.work + max(8, w.most/8)
	}
	err := w.start(limit, last, until)
	for err == nil && w.work < until && len(w.genes) > 0 {
		before := w.work
		err = w.step(limit, until)
		if w.work == before {
			break // every particle is at a place visited before
		}
	}
	if err != nil && (w.ctx.Err() == nil || w.over == math.MaxInt64) {
		return plan.Decisions{}, err
	}
	return w.best, nil
}

// start makes the genes and the particles.
func (w *swarm) start(limit int64, last plan.Decisions, until int64) error {
	s := w.s
	w.reduce(limit)
	w.rng = rand.New(rand.NewPCG(w.r.Seed, uint64(w.rounds)))
	type seed struct {
		name  string
		fates []choice
	}
	seeds := []seed{{"keep everything", make([]choice, len(w.genes))}}
	if !w.noSeeds {
		d, live, err := capuchin{}.choose(w.ctx, s, limit)
		if err != nil {
			return err
		}
		greedy := slices.Clone(s.how)
		if _, err := w.judge("a Capuchin-like greedy", d, live, limit); err != nil {
			return err
		}
		d, _, err = delta{}.decide(w.ctx, w.v, limit)
		if err != nil {
			return err
		}
		peak := s.chains.PeakLive(d.Absences, d.Reruns)
		if _, err := w.judge("a DELTA-like run", d, peak, limit); err != nil {
			return err
		}
		online := w.fates(d)
		all := make([]choice, len(w.genes))
		for k := range all {
			all[k] = swap
		}
		seeds = append(seeds,
			seed{"a Capuchin-like greedy on groups", w.project(greedy)},
			seed{"a DELTA-like run on groups", w.project(online)},
			seed{"AutoSwap-like picks", w.project(w.picks(limit))},
			seed{"swap everything", all})
		if len(last.Absences) > 0 {
			seeds = append(seeds, seed{"the plan for a looser limit", w.project(w.fates(last))})
		}
	}
	n := len(w.genes)
	count := min(particles, max(len(seeds), int(until-w.work)))
	w.place, w.speed, w.own = rows(count, 3*n), rows(count, 3*n), rows(count, 3*n)
	w.all, w.ownFitness = rows(1, 3*n), make([]float64, count)
	swarmBest := math.Inf(1)
	for i := range count {
		from := seeds[i%len(seeds)]
		for k := range n {
			for c := range 3 {
				x := 0.0
				if choice(c) == from.fates[k] {
					x = 1
				}
				if i >= len(seeds) { // noise around a seed
					x = 0.5*x + w.rng.Float64()
				}
				w.place[i][3*k+c], w.speed[i][3*k+c] = x, w.rng.Float64()-0.5
			}
		}
		name := ""
		if i < len(seeds) {
			name = from.name
		}
		f, err := w.fitness(w.place[i], name, limit, until)
		if err != nil {
			return err
		}
		copy(w.own[i], w.place[i])
		if w.ownFitness[i] = f; f < swarmBest {
			swarmBest = f
			copy(w.all[0], w.place[i])
		}
	}
	return nil
}

func rows(n, length int) [][]float64 {
	all := make([]float64, n*length)
	r := make([][]float64, n)
	for i := range r {
		r[i] = all[i*length : (i+1)*length]
	}
	return r
}

// step moves every particle once.
func (w *swarm) step(limit, until int64) error {
	for i := range w.place {
		if w.work >= until {
			return nil
		}
		x, v := w.place[i], w.speed[i]
		for k := range x {
			own := pull * w.rng.Float64() * (w.own[i][k] - x[k])
			all := pull * w.rng.Float64() * (w.all[0][k] - x[k])
			v[k] = inertia*v[k] + own + all
			v[k] = min(1, max(-1, v[k]))
			x[k] = min(2, max(-1, x[k]+v[k]))
		}
		f, err := w.fitness(x, "", limit, until)
		if err != nil {
			return err
		}
		if f < w.ownFitness[i] {
			w.ownFitness[i] = f
			copy(w.own[i], x)
			if f <= slices.Min(w.ownFitness) {
				copy(w.all[0], x)
			}
		}
	}
	return nil
}

// fitness decodes a place and measures it, unless the same fates have been measured before.
func (w *swarm) fitness(x []float64, name string, limit, until int64) (float64, error) {
	fates := make([]byte, len(w.genes))
	for k := range fates {
		c := keep
		for d := swap; d <= recompute; d++ {
			if x[3*k+int(d)] > x[3*k+int(c)] {
				c = d
			}
		}
		fates[k] = byte(c)
	}
	if f, ok := w.known[string(fates)]; ok {
		return f, nil
	}
	if w.work >= until {
		return math.Inf(1), nil
	}
	if err := w.decode(fates, limit); err != nil {
		return 0, err
	}
	d, live := w.s.decisions()
	f, err := w.judge(name, d, live, limit)
	if err == nil {
		w.known[string(fates)] = f
	}
	return f, err
}

// judge measures decisions, keeps them if they are the best, and returns their fitness.
func (w *swarm) judge(name string, d plan.Decisions, live, limit int64) (float64, error) {
	at, _, err := measure(w.ctx, w.s.p, w.r.Evaluator, d)
	if err != nil {
		return 0, err
	}
	w.work++
	w.r.Report(w.work, max(w.most, w.work))
	over := max(0, live-limit)
	if over < w.over || over == w.over && at.step < w.fastest { // a plan that fits beats all that do not
		w.best, w.over, w.fastest, w.name = d, over, at.step, name
	}
	return float64(at.step) + w.fine*float64(over), nil
}

// reduce makes the genes for a limit.
func (w *swarm) reduce(limit int64) {
	s := w.s
	s.reset(limit)
	var ids []int32
	var bytes int64
	for g := range s.gaps {
		if x := &s.gaps[g]; !x.Dead && (w.noReduction || s.helps(x.After+1, x.Before)) {
			ids = append(ids, int32(g))
			bytes += s.size(int32(g))
		}
	}
	if !w.noReduction {
		slices.SortFunc(ids, func(a, b int32) int {
			return cmp.Or(cmp.Compare(s.size(b), s.size(a)), cmp.Compare(a, b))
		})
		var sum int64
		for k, g := range ids {
			if sum += s.size(g); sum >= bytes-bytes/50 {
				ids = ids[:k+1]
				break
			}
		}
	}
	slices.SortFunc(ids, func(a, b int32) int {
		return cmp.Or(cmp.Compare(s.gaps[a].After, s.gaps[b].After), cmp.Compare(a, b))
	})
	w.genes = w.genes[:0]
	module := func(g int32) string { return s.p.Ops[s.gaps[g].After].Module }
	for k := 0; k < len(ids); {
		end := k + 1
		for !w.noReduction && end < len(ids) && module(ids[end]) == module(ids[k]) && module(ids[k]) != "" {
			end++
		}
		w.genes = append(w.genes, ids[k:end])
		k = end
	}
	if n := len(w.genes); n > mostGenes && !w.noReduction {
		merged := make([][]int32, mostGenes)
		for k := range merged {
			for _, gene := range w.genes[k*n/mostGenes : (k+1)*n/mostGenes] {
				merged[k] = append(merged[k], gene...)
			}
		}
		w.genes = merged
	}
}

// project gives each gene the fate that most of its bytes have.
func (w *swarm) project(how []choice) []choice {
	fates := make([]choice, len(w.genes))
	for k, gene := range w.genes {
		var bytes [4]int64
		for _, g := range gene {
			bytes[how[g]] += w.s.size(g)
		}
		for c := swap; c <= recompute; c++ {
			if bytes[c] > bytes[fates[k]] {
				fates[k] = c
			}
		}
	}
	return fates
}

// fates returns the choices that decisions speak of.
func (w *swarm) fates(d plan.Decisions) []choice {
	how := make([]choice, len(w.s.gaps))
	for i := range d.Absences {
		x := &d.Absences[i]
		chosen := [...]choice{plan.Swap: swap, plan.Recompute: recompute, plan.Discard: discard}
		how[w.s.gapAt(x.Buffer, x.Before)] = chosen[x.How]
	}
	return how
}

// picks swaps, like AutoSwap, the intervals with the largest products of size and length until the limit
// holds.
func (w *swarm) picks(limit int64) []choice {
	s := w.s
	s.reset(limit)
	order := s.byFreeTime()
	area := func(g int32) float64 {
		x := &s.gaps[g]
		return float64(s.size(g)) * float64(s.at.begin[x.Before]-s.at.end[x.After])
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(area(b), area(a)), cmp.Compare(a, b))
	})
	for _, g := range order {
		if x := &s.gaps[g]; !s.fits() && !x.Dead && s.helps(x.After+1, x.Before) {
			s.leave(g, swap, x.After+1, x.Before)
		}
	}
	return slices.Clone(s.how)
}

// decode makes the choices for given fates. The bound on chains makes it linear.
func (w *swarm) decode(fates []byte, limit int64) error {
	s := w.s
	s.reset(limit)
	s.discards(s.byFreeTime())
	most := min(longestChain, 8+1_000_000/(1+len(s.gaps)))
	var swaps []int32
	for k, gene := range w.genes {
		for _, g := range gene {
			switch c := choice(fates[k]); {
			case c == recompute && s.recomputable(g):
				one := [1]plan.BufferID{s.gaps[g].Buffer}
				if _, err := s.chains.AtMost(s.gaps[g].Before, one[:], s.away, most); err == nil {
					s.why[g] = "the swarm's choice"
					s.leave(g, recompute, s.gaps[g].After+1, s.gaps[g].Before)
				}
			case c != keep:
				swaps = append(swaps, g)
			}
		}
	}
	s.schedule(swaps, "the swarm's choice")
	s.stretch()
	return s.together(w.ctx)
}

// schedule swaps gaps by the timetable, and those that the link cannot hide for all of their length.
func (s *selection) schedule(swaps []int32, why string) {
	kept := swaps[:0]
	for _, g := range swaps {
		if x := &s.gaps[g]; s.pinnable(g) {
			kept = append(kept, g)
			if s.pinned != nil {
				s.pinned.Add(int(x.After), int(x.Before)+1, s.size(g))
			}
		}
	}
	s.timetable(kept)
	for _, g := range kept {
		release, fetch := s.release[g], s.fetch[g]
		if fetch < release {
			release, fetch = s.gaps[g].After+1, s.gaps[g].Before
		}
		s.why[g] = why
		s.leave(g, swap, release, fetch)
	}
}
