package recompute

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Sublinear memory by segments.
//
// Problem: a network of n layers keeps n activations for its backward pass.
//
// Approach: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174,
// 2016. Cut the forward pass into k segments; keep what crosses a cut and drop the rest; when the backward
// pass first needs anything of a segment, run the segment's ops once and keep all of its results from then
// on. Memory is k checkpoints and one segment, which is least at k = sqrt(n) for equal layers, and the price
// is less than one more forward pass.
//
// Cuts are made where one activation crosses, at the articulation points of the forward graph as far as
// activations are concerned (between residual blocks, not within them). Values that cannot be recomputed,
// such as the input, are kept anyway and do not count. A segment ends at the first such place after its share
// of the bytes: the paper's Algorithm 3, whose budget b is here total/k. A tensor that crosses and is freed
// before the backward pass counts twice, because no checkpoint holds it.
//
// Our reading, where the paper leaves freedom. If a step has several forward passes, each with its own
// backward pass, each is cut into k segments. Which k? Without a budget sqrt(n), with n the number of places
// to cut. With a budget, the number that fits and reruns the least: the fewest segments if layers are alike,
// since k segments rerun (k-1)/k of the forward pass. The last segment, whose backward pass follows at once,
// is kept, as in torch.utils.checkpoint_sequential. If fewer than sqrt(forward ops) places have one
// activation crossing, the smallest number of crossings that yields so many is allowed (networks with long
// skip connections have next to no articulation points).
//
// Complexity: O(n log n) for each k tried; all k up to 16, then in steps of a quarter: O(log n) of them.
// Rejected: the paper's recursive O(log n) memory scheme, whose time grows by a factor of log n and which no
// framework offers; the paper's search over b on a grid around sqrt(xy): trying every k costs as much and
// misses less.
type sqrt struct {
	// whole drops without segments: every buffer is recomputed on its own, where it is needed. For the
	// ablation.
	whole bool
}

// Sqrt returns the manager "sqrt": Chen's sublinear memory.
func Sqrt() plan.Manager { return sqrt{} }

// Info implements [plan.Manager].
func (sqrt) Info() plan.Info {
	return plan.Info{Name: "sqrt", After: "Chen 2016", Family: plan.Recomputing, Needs: traces.Dataflow,
		Reading: "without a budget sqrt(n) segments, with one those that fit and run the least again; " +
			"the last segment is kept.",
		Summary: "Cuts the forward pass into segments, keeps what crosses the cuts, and recomputes each " +
			"segment once, when its backward pass begins."}
}

// Plan implements [plan.Manager].
func (m sqrt) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	var s segmenter
	pl, err := run(ctx, p, r, m.Info(), func(b *chain.Builder) func(int64) (plan.Decisions, int64, error) {
		s = newSegmenter(p, b)
		s.whole = m.whole
		return func(limit int64) (plan.Decisions, int64, error) { return s.decide(ctx, limit) }
	})
	if err != nil {
		return nil, err
	}
	pl.Note("%d segments, cut at %d of %d places.", s.chosen, max(s.chosen-1, 0), s.places())
	return pl, nil
}

// Segments cuts the forward passes of a problem as "sqrt" does.
type Segments struct{ s segmenter }

// NewSegments finds the places to cut.
func NewSegments(p *plan.Problem) *Segments { return &Segments{newSegmenter(p, chain.New(p))} }

// Counts returns the numbers of segments worth trying, ascending: none if nothing can be dropped.
func (s *Segments) Counts() []int {
	if len(s.s.passes) == 0 {
		return nil
	}
	return s.s.counts()
}

// Cut returns the decisions of that many segments.
func (s *Segments) Cut(k int) (plan.Decisions, error) {
	r, err := s.s.result(k)
	return plan.Decisions{Absences: r.Absences, Reruns: r.Reruns}, err
}

// segmenter tries numbers of segments on one problem.
type segmenter struct {
	b     *chain.Builder
	whole bool

	passes []forwardPass
	tried  []trial
	chosen int
}

// forwardPass is one that is cut into segments, independently of others.
type forwardPass struct {
	acts []activation
	cuts []plan.OpID // possible cuts, ascending
}

// trial is the result of a number of segments.
type trial struct {
	k    int
	peak int64
	time int64
}

func newSegmenter(p *plan.Problem, b *chain.Builder) segmenter {
	s := segmenter{b: b}
	for _, pair := range pairs(p) {
		if acts := activations(p, b, pair); len(acts) > 0 {
			s.passes = append(s.passes, forwardPass{acts, places(acts, crossings(p, acts, pair.Turn))})
		}
	}
	return s
}

// places returns the number of places to cut in the forward pass with the most of them.
func (s *segmenter) places() (most int) {
	for i := range s.passes {
		most = max(most, len(s.passes[i].cuts))
	}
	return most
}

// crossings returns how many activations cross each position up to the turn: made before it and touched by
// forward ops after it. One that crosses but is gone by the backward pass counts twice: it cannot be kept
// there, so rerunning one side would rerun the other as well.
func crossings(p *plan.Problem, acts []activation, turn plan.OpID) []int32 {
	crossing := make([]int32, turn+2) // first as differences
	for i := range acts {
		if a := &acts[i]; a.After > a.made {
			crossing[a.made+1]++
			crossing[a.After+1]--
		}
	}
	for i := range p.Buffers {
		if t := p.TouchesOf(plan.BufferID(i)); p.Buffers[i].Life == plan.Inside && len(t) > 0 &&
			p.Buffers[i].End <= turn {
			crossing[t[0].Op+1] += 2
			crossing[t[len(t)-1].Op+1] -= 2
		}
	}
	for i := plan.OpID(1); i <= turn; i++ {
		crossing[i] += crossing[i-1]
	}
	return crossing[:turn+1]
}

// between returns one position between each two ops that make activations: the latest of those where the
// fewest tensors cross, so that changes in place stay with the op that they follow.
func between(acts []activation, crossing []int32) []plan.OpID {
	var cuts []plan.OpID
	for i := 1; i < len(acts); i++ {
		lo, hi := acts[i-1].made, acts[i].made
		if lo == hi {
			continue
		}
		best := hi
		for x := hi; x > lo; x-- {
			if crossing[x] < crossing[best] {
				best = x
			}
		}
		cuts = append(cuts, best)
	}
	return cuts
}

// places returns the positions at which few activations cross: one if that yields enough, see above.
func places(acts []activation, crossing []int32) []plan.OpID {
	cuts := between(acts, crossing)
	count := make([]int, slices.Max(crossing)+1)
	for _, i := range cuts {
		count[crossing[i]]++
	}
	allowed, sum := int32(0), 0
	for c := range count {
		allowed = int32(c)
		if sum += count[c]; c >= 1 && float64(sum) >= math.Sqrt(float64(len(cuts)+1)) {
			break
		}
	}
	return slices.DeleteFunc(cuts, func(i plan.OpID) bool { return crossing[i] > allowed })
}

// choose returns those of the places that cut the activations into at most k segments of about equal bytes: a
// segment ends at the first place after its share of the rest.
func choose(acts []activation, places []plan.OpID, k int) []plan.OpID {
	var left int64
	for i := range acts {
		left += acts[i].bytes
	}
	var chosen []plan.OpID
	var sum int64
	next := 0
	for i := range acts {
		for next < len(places) && places[next] <= acts[i].made {
			if more := int64(k - len(chosen)); more > 1 && sum > 0 && sum >= left/more {
				chosen = append(chosen, places[next])
				left -= sum
				sum = 0
			}
			next++
		}
		sum += acts[i].bytes
	}
	return chosen
}

// drops returns what k segments of each forward pass drop.
func (s *segmenter) drops(k int) (all []chain.Drop) {
	for i := range s.passes {
		all = append(all, s.passes[i].drops(k, !s.whole)...)
	}
	return all
}

// drops returns what k segments drop; a segment that runs as one brings back all of it at its first use.
func (s *forwardPass) drops(k int, asOne bool) []chain.Drop {
	cuts := choose(s.acts, s.cuts, k)
	first := make([]plan.OpID, len(cuts)+1) // of each segment, its first backward use
	var drops []chain.Drop
	var owner []int32
	for i := range s.acts {
		a := &s.acts[i]
		seg := segmentOf(cuts, a.made)
		// the last segment is kept, and so is what crosses a cut
		if seg == len(cuts) || segmentOf(cuts, a.After) != seg {
			continue
		}
		if first[seg] == 0 || a.Before < first[seg] {
			first[seg] = a.Before
		}
		drops = append(drops, chain.Drop{Gap: a.Gap, Why: "inside a segment"})
		owner = append(owner, int32(seg))
	}
	if asOne {
		for i := range drops {
			drops[i].Fetch = first[owner[i]]
		}
	}
	return drops
}

func segmentOf(cuts []plan.OpID, i plan.OpID) int {
	k, at := slices.BinarySearch(cuts, i)
	if at {
		k++
	}
	return k
}

func (s *segmenter) result(k int) (chain.Result, error) {
	drops := s.drops(k)
	if s.whole {
		r, _ := s.b.PlanPossible(drops, nil, 0)
		return r, nil
	}
	return s.b.PlanDrops(drops, nil, 0)
}

// counts returns the numbers of segments worth trying, ascending.
func (s *segmenter) counts() []int {
	most := s.places() + 1
	var ks []int
	for k := 1; k <= most; k += max(1, (k-12)/4) {
		ks = append(ks, k)
	}
	ks = append(ks, s.root(), most)
	slices.Sort(ks)
	return slices.Compact(ks)
}

// root is sqrt(n).
func (s *segmenter) root() int { return max(1, int(math.Round(math.Sqrt(float64(s.places()+1))))) }

// decide returns the decisions of the segments that rerun the least while live bytes stay within the limit,
// otherwise of those with the smallest peak. The work is the number of segmentations tried.
func (s *segmenter) decide(ctx context.Context, limit int64) (plan.Decisions, int64, error) {
	var work int64
	s.chosen = s.root()
	if limit > 0 {
		if s.tried == nil {
			for _, k := range s.counts() {
				if ctx.Err() != nil {
					return plan.Decisions{}, work, ctx.Err()
				}
				r, err := s.result(k)
				if err != nil {
					return plan.Decisions{}, work, fmt.Errorf("%d segments: %w", k, err)
				}
				work++
				s.tried = append(s.tried, trial{k: k, peak: s.b.PeakLive(r.Absences, r.Reruns), time: r.Time})
			}
		}
		best := -1
		for i, t := range s.tried {
			switch {
			case best < 0:
				best = i
			case t.peak <= limit && s.tried[best].peak <= limit: // uneven segments: more may rerun less
				if t.time < s.tried[best].time {
					best = i
				}
			case t.peak < s.tried[best].peak && s.tried[best].peak > limit:
				best = i
			}
		}
		s.chosen = s.tried[best].k
	}
	r, err := s.result(s.chosen)
	return plan.Decisions{Absences: r.Absences, Reruns: r.Reruns}, work + 1, err
}
