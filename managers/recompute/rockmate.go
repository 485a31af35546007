package recompute

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Optimal inside blocks, and the chain's program across them.
//
// Problem: rotor holds either everything that stays inside a block of the network, or nothing. Inside a
// transformer block some tensors are large and cheap to recompute, others expensive. A program over single
// ops (checkmate) sees that, but cannot solve a whole network.
//
// Approach: Zhao, Le Hellard, Eyraud-Dubois, Gusak, Beaumont, "Rockmate: an efficient, fast, automatic and
// generic tool for re-materialization in PyTorch", ICML 2023. The network is cut into blocks. Each block is
// solved on its own for several amounts of memory. Every solution is one more way to run the block forward
// and backward: some bytes are held in between, and recomputing the rest takes some time. The dynamic program
// of rotor then chooses among these ways for each block, or runs it without holding anything. Blocks that
// look the same are solved once.
//
// Inside a block we try every set of tensors to hold, and recompute the others where the block's backward
// pass first needs them, from what is present then. Solutions that are worse than another in bytes held, in
// time and in the peak of the backward pass are dropped. Of the rest a few are taken, evenly spread over the
// bytes that they hold.
//
// What differs from the paper: it solves blocks by an integer program that may run an op more than once, in
// any order, and hold a tensor for a part of the backward pass; ours recomputes each tensor once for each
// use. Our blocks are the stages of rotor, found in the recording; the paper traces the PyTorch module and
// simplifies its graph. If a block has more than eight tensors, neighbours are grouped.
//
// Complexity: 2^groups chains for each distinct block, with eight groups or as few as the work allows; then
// rotor's, times the number of ways. Rejected: the integer program with HiGHS, which takes longer to start
// than trying all sets of a block.
type rockmate struct{}

// Info implements [plan.Manager].
func (rockmate) Info() plan.Info {
	return plan.Info{Name: "rockmate", After: "Zhao 2023", Family: plan.Recomputing, Needs: traces.Dataflow,
		Reading: "blocks are rotor's stages; inside one every set of tensors to hold is tried in place of " +
			"an integer program, and what is not held is made again where it is needed.",
		Summary: "Solves each block by itself for several amounts of memory, then picks one of these " +
			"solutions for each block by dynamic programming."}
}

const (
	// mostPieces bounds the tensors of a block that are decided on one by one.
	mostPieces = 8
	// mostHoldings bounds the solutions of a block: each takes as long as a cut in rotor's program.
	mostHoldings = 6
)

// Plan implements [plan.Manager]. Request.Work bounds the steps of the dynamic program, and the ops looked at
// while blocks are solved.
func (m rockmate) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	ways := 0
	pl, stages, err := staged(ctx, p, r, m.Info(), func(c *chains) decider {
		for _, s := range c.passes {
			if ctx.Err() == nil && r.Budget > 0 {
				ways += newBlocks(p, c.b, s, c.work).solve(ctx)
			}
		}
		return c.decide
	})
	if err == nil && r.Budget > 0 {
		pl.Note("%d blocks with %d ways to hold a part of one.", stages, ways)
	}
	return pl, err
}

// blocks are the stages of a chain while they are solved.
type blocks struct {
	p      *plan.Problem
	b      *chain.Builder
	c      *stageChain
	groups int // most groups of tensors in one
	known  map[string][][]int
}

func newBlocks(p *plan.Problem, b *chain.Builder, c *stageChain, work int64) *blocks {
	s := &blocks{p: p, b: b, c: c, groups: mostPieces, known: map[string][][]int{}}
	ops := int64(0)
	for i := range c.stages {
		ops += int64(c.stages[i].to - c.stages[i].from)
	}
	for s.groups > 1 && int64(s.groups)<<s.groups*ops > work {
		s.groups--
	}
	return s
}

// solve adds to each stage the ways to hold a part of it, and returns how many there are.
func (s *blocks) solve(ctx context.Context) (ways int) {
	s.c.each(s.b, func(i int, set *chain.Set) {
		st := &s.c.stages[i]
		if len(st.inner) == 0 || ctx.Err() != nil {
			return
		}
		key := s.key(i)
		chosen, ok := s.known[key]
		if !ok {
			chosen = s.choose(i, set)
			s.known[key] = chosen
		}
		for _, kept := range chosen {
			h := s.holding(i, set, kept)
			h.inside, h.all = s.c.again(s.b, set, i, h.kept)
			st.holdings = append(st.holdings, h)
		}
		ways += len(chosen)
	})
	return ways
}

// key is equal for stages that look the same: the same ops with tensors of the same sizes in the same places.
func (s *blocks) key(i int) string {
	st := &s.c.stages[i]
	var key []byte
	for x := st.from; x < st.to; x++ {
		op := &s.p.Ops[x]
		key = append(append(key, op.Name...), 0)
		key = binary.AppendVarint(key, op.Duration)
		key = binary.AppendVarint(key, int64(op.End-op.First))
	}
	for _, k := range st.inner {
		a := &s.c.acts[k]
		for _, v := range []int64{int64(a.made - st.from), int64(a.After - st.from),
			int64(a.Before - st.first)} {
			key = binary.AppendVarint(key, v)
		}
		key = binary.AppendVarint(key, a.bytes)
	}
	return string(key)
}

// choose tries every set of a stage's tensors, and returns which are worth holding, as positions in the list
// of those that stay inside. To hold all is not among them.
func (s *blocks) choose(i int, set *chain.Set) [][]int {
	groups := s.group(i)
	type tried struct {
		kept []int
		holding
	}
	var all []tried
	for mask := range 1<<len(groups) - 1 {
		var kept []int
		for g := range groups {
			if mask>>g&1 == 1 {
				kept = append(kept, groups[g]...)
			}
		}
		if h := s.holding(i, set, kept); h.late < math.MaxInt64/1024 {
			all = append(all, tried{kept, h})
		}
	}
	slices.SortStableFunc(all, func(x, y tried) int {
		return cmp.Or(cmp.Compare(x.bytes, y.bytes), cmp.Compare(x.late, y.late))
	})
	var good []tried
	for _, x := range all {
		beaten := slices.ContainsFunc(good, func(y tried) bool {
			return y.late <= x.late && y.holding.backward <= x.holding.backward
		})
		if !beaten {
			good = append(good, x)
		}
	}
	var chosen [][]int
	// evenly spread, the first and the last among them
	for n := min(len(good), mostHoldings); len(chosen) < n; {
		chosen = append(chosen, good[len(chosen)*(len(good)-1)/max(n-1, 1)].kept)
	}
	return chosen
}

// group returns the tensors that stay inside a stage in groups of neighbours of about equal bytes.
func (s *blocks) group(i int) [][]int {
	inner := s.c.stages[i].inner
	groups := make([][]int, 0, s.groups)
	var total, sum int64
	for _, k := range inner {
		total += s.c.acts[k].bytes
	}
	for at, k := range inner {
		if n := len(groups); n == 0 || n < s.groups && (len(inner) <= s.groups ||
			sum*int64(s.groups) >= total*int64(n)) {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], at)
		sum += s.c.acts[k].bytes
	}
	return groups
}

// holding returns the cost of holding a part of a stage and recomputing the rest where its backward pass
// needs it.
func (s *blocks) holding(i int, set *chain.Set, kept []int) holding {
	st := &s.c.stages[i]
	h := holding{}
	var rest []int32
	next := 0
	for at, k := range st.inner {
		if next < len(kept) && kept[next] == at {
			next++
			h.kept, h.bytes = append(h.kept, k), h.bytes+s.c.acts[k].bytes
			set.Remove(s.c.acts[k].Buffer, s.c.acts[k].After+1)
		} else {
			rest = append(rest, k)
		}
	}
	h.forward, h.backward = s.c.forward(i, h.kept), s.c.backward(i, h.kept)
	input, size := s.c.input(i)
	slices.SortFunc(rest, func(x, y int32) int { return cmp.Compare(s.c.acts[x].Before, s.c.acts[y].Before) })
	for len(rest) > 0 {
		at := s.c.acts[rest[0]].Before
		n := 1
		for n < len(rest) && s.c.acts[rest[n]].Before == at {
			n++
		}
		x := s.c.ask(s.b, set, i, at, rest[:n])
		h.late += x.time
		h.backward = max(h.backward, s.c.before[at]+s.c.heldAt(at, input, h.kept)-size+x.peak)
		rest = rest[n:]
	}
	for _, k := range h.kept {
		set.AddGap(s.c.acts[k].Gap, plan.Recompute)
	}
	return h
}
