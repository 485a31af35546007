package pack

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// member is one way of searching: where to branch and in what order to try items.
type member struct {
	lowest  bool // branch only at the lowest floor, instead of at any valley
	weights bool // prefer sections that failed often
	order   string
}

// The members, in order of priority: an equal finish goes to the first. Each order is a list of keys, all
// descending: W the lifetime, S the number of sections, T the largest load met, A size times lifetime, Z the
// size.
var members = []member{
	{false, true, "WAT"},
	{true, true, "SZ"},
	{false, true, "AWT"},
	{true, false, "TAW"},
	{true, true, "WAT"},
	{false, true, "TAW"},
	{false, false, "WAT"},
	{true, true, "TZ"},
}

// outcome of a search under a capacity.
type outcome int

const (
	ranOut     outcome = iota // the work limit was reached
	packed                    // offsets were found
	impossible                // the search was exhausted
	cancelled                 // the context ended
)

// noWinner stands for a round that no member finished.
const noWinner = math.MaxInt32

// solveCore looks for a packing of one core within the capacity, spending at most work steps. It runs in
// rounds: each round gives every member twice the steps of the last, restarts it with what its sections have
// learned, and ends at a barrier. Members run on all processors, and the winner is the first in the list of
// those that finished in the round, so the answer does not depend on which was faster. A member after one
// that finished is stopped, because it can no longer win.
func solveCore(ctx context.Context, g *graph, capacity int64, seed uint64, work int64, k knobs) (
	offsets []int64, used int64, out outcome,
) {
	in := g.in
	keys := in.orderKeys()
	searchers := make([]*searcher, len(members))
	nodes := int64(len(in.size)) * 3 / 2
	for round := 0; ; round++ {
		active := min(2<<round, len(members))
		steps := max(1, (work-used)/int64(active))
		var winner atomic.Int32
		winner.Store(noWinner)
		outcomes := make([]outcome, len(members))
		spent := make([]int64, len(members))
		var next atomic.Int32
		var wg sync.WaitGroup
		for range min(runtime.GOMAXPROCS(0), active) {
			wg.Go(func() {
				for {
					m := next.Add(1) - 1
					if int(m) >= active || m > winner.Load() {
						return
					}
					s := searchers[m]
					if s == nil {
						mk := k
						mk.lowest, mk.weights = mk.lowest || members[m].lowest, mk.weights &&
							members[m].weights
						s = newSearcher(g, capacity, mk)
						searchers[m] = s
					}
					s.rerank(keys, members[m].order, seed, int(m), round)
					outcomes[m] = s.run(ctx, &winner, m, nodes, steps)
					spent[m] = s.steps()
					if outcomes[m] == packed || outcomes[m] == impossible {
						for w := winner.Load(); m < w && !winner.CompareAndSwap(w, m); w = winner.Load() {
						}
					}
				}
			})
		}
		wg.Wait()
		won := winner.Load()
		for m, n := range spent {
			if int32(m) <= won {
				used += n
			}
		}
		switch {
		case won != noWinner && outcomes[won] == packed:
			return slices.Clone(searchers[won].off), used, packed
		case won != noWinner:
			return nil, used, impossible
		case ctx.Err() != nil:
			return nil, used, cancelled
		case used >= work:
			return nil, used, ranOut
		}
		if active == len(members) || round > 0 {
			nodes *= 2
		}
	}
}

// run searches from the empty packing within the given nodes and steps, and stops early if a member before
// this one has won.
func (s *searcher) run(ctx context.Context, winner *atomic.Int32, self int32, nodes, steps int64) outcome {
	s.ctx, s.winner, s.self = ctx, winner, self
	s.nodes, s.scanned, s.nodeLimit, s.stepLimit = 0, 0, nodes, steps
	s.growTable()
	switch {
	case !s.reset():
		return impossible
	case s.solve(0, int32(s.in.sections)):
		return packed
	case !s.aborted:
		return impossible
	case ctx.Err() != nil:
		return cancelled
	}
	return ranOut
}

// orderKeys holds the figures that orders sort by, for each letter.
type orderKeys map[byte][]float64

// orderKeys computes the figures once; the searches share them.
func (in *instance) orderKeys() orderKeys {
	if in.keys != nil {
		return in.keys
	}
	n := len(in.size)
	k := orderKeys{}
	for _, letter := range []byte("WSTAZ") {
		k[letter] = make([]float64, n)
	}
	in.keys = k
	peak := newMaxTable(in.load)
	for i := range n {
		a, b := in.stretches(int32(i))
		sections := float64(a.hi - a.lo + b.hi - b.lo)
		width := in.width[i]
		top := peak.over(a)
		if b.lo < b.hi {
			top = max(top, peak.over(b))
		}
		k['W'][i], k['S'][i], k['Z'][i] = width, sections, float64(in.size[i])
		k['A'][i], k['T'][i] = width*float64(in.size[i]), float64(top)
	}
	return k
}

// maxTable answers the largest value over a run in O(1), after O(n log n).
type maxTable [][]int64

func newMaxTable(values []int64) maxTable {
	t := maxTable{values}
	for w := 1; 2*w <= len(values); w *= 2 {
		last := t[len(t)-1]
		row := make([]int64, len(values)-2*w+1)
		for i := range row {
			row[i] = max(last[i], last[i+w])
		}
		t = append(t, row)
	}
	return t
}

func (t maxTable) over(s span) int64 {
	level := 0
	for 2<<level <= int(s.hi-s.lo) {
		level++
	}
	return max(t[level][s.lo], t[level][int(s.hi)-1<<level])
}

// noise of a member's order in later rounds: the first key is multiplied by exp(noise * a normal draw).
var noise = [3]float64{0, 0.1, 0.4}

// rerank orders the items for a round: as the member says in the first, shaken in later ones.
func (s *searcher) rerank(keys orderKeys, order string, seed uint64, member, round int) {
	r := rand.New(rand.NewPCG(seed, uint64(round)<<8|uint64(member)))
	level := noise[(round+member*min(round, 1))%len(noise)]
	first := slices.Clone(keys[order[0]])
	if level > 0 {
		for i := range first {
			first[i] *= math.Exp(level * r.NormFloat64())
		}
	}
	sorted := s.in.indices()
	slices.SortFunc(sorted, func(a, b int32) int {
		if first[a] != first[b] {
			return cmp.Compare(first[b], first[a])
		}
		for _, c := range []byte(order[1:]) {
			if k := keys[c]; k[a] != k[b] {
				return cmp.Compare(k[b], k[a])
			}
		}
		return int(a - b)
	})
	for r, i := range sorted {
		s.rank[i] = int32(r)
	}
}
