package swap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// AutoSwap's own arithmetic (Zhang et al., "Efficient Memory Management for GPU-based Deep Learning Systems",
// arXiv 1903.06631): how many nanoseconds of an iteration a memory limit costs, by a score. It uses a
// recording of three iterations and plans for the middle one. It exists to be compared with the authors'
// published curves, number by number; the manager of this package, which uses a [plan.Problem], is separate
// (autoswap.go).
//
// Approach: each departure of the published program from the paper's text is a switch of its own, so that one
// can see the effect of each:
//   - [QuirkScores]: DOA does not subtract the copy in (a line break ends the statement before it); AOA is
//     made of that DOA; WDOA sums not the load during the absence but the load at the op whose number is the
//     candidate's; WDOA and SWDOA do not subtract the limit;
//   - [QuirkCandidates]: an absence may begin after a Malloc; blocks are numbered in the alphabetical order
//     of their addresses, which breaks ties and feeds the quirk of WDOA;
//   - [QuirkSchedule]: if the limit forces a copy out to finish earlier, its bytes are subtracted twice at
//     one op; copies in are compared with the clock of the iteration before, so that they hardly ever seem to
//     begin early, to take memory or to cost anything.
//
// Our reading: "load less limit", summed over an absence, is the load above the limit; counting ops below it
// as negative makes WDOA prefer short absences (1,020 ms instead of 9 on the authors' VGG at 300 MiB).
//
// Complexity: candidates x ops per limit, and candidates² x ops for SWDOA, as published. The manager does
// better; this need not.
//
// Rejected: one function with the quirks built in (then nobody can tell their effects); repairing them
// silently (then nothing can be compared).

// OpKind is the kind of an operation on a block in the authors' recordings.
type OpKind uint8

// The kinds of operation.
const (
	OpMalloc OpKind = iota
	OpFree
	OpRead
	OpLayer
	OpMutable
)

// BlockOp is one operation on a block.
type BlockOp struct {
	Kind OpKind
	Addr uint64
	Size int64 // bytes
	Time int64 // nanoseconds from the first one
}

// Recording is three iterations of a training, back to back.
type Recording struct {
	// Period is the number of ops of an iteration; Ops has three times as many.
	Period int
	Ops    []BlockOp
	// Load is the bytes allocated at each op. The authors published theirs to six digits along with the
	// recording.
	Load []int64
}

// Score names one of AutoSwap's orders of candidates.
type Score uint8

// The scores: duration of absence minus transfers, area of absence, weighted duration of absence, and the
// last with the load corrected for earlier choices.
const (
	DOA Score = iota
	AOA
	WDOA
	SWDOA
)

// String returns the paper's name.
func (s Score) String() string { return [...]string{"DOA", "AOA", "WDOA", "SWDOA"}[min(s, SWDOA)] }

// Quirks says where to follow the published program instead of the paper.
type Quirks uint8

// The quirks.
const (
	QuirkScores Quirks = 1 << iota
	QuirkCandidates
	QuirkSchedule
	// AsDescribed follows the paper in everything, AsPublished the program.
	AsDescribed Quirks = 0
	AsPublished        = QuirkScores | QuirkCandidates | QuirkSchedule
)

// smallestBlock is AutoSwap's least size of a candidate, in bytes.
const smallestBlock = 1 << 20

// The authors' transfer model: pinned host memory, PCIe x16; nanoseconds, bytes.
func paperOut(size int64) float64 { return 0.0756*float64(size) + 47200 }
func paperIn(size int64) float64  { return 0.0823*float64(size) + 9700 }

// candidate is a block with its absence: ops [r, d), counted from the middle iteration's start.
type candidate struct {
	addr   uint64
	size   int64
	r, d   int
	score  float64
	outEnd int // the op at which its copy out was charged as done
	inFrom int
}

// Peak returns the highest load of the middle iteration and its op.
func (r *Recording) Peak() (bytes int64, at int) {
	for i, v := range r.middle() {
		if v > bytes {
			bytes, at = v, i
		}
	}
	return bytes, at
}

func (r *Recording) middle() []int64 { return r.Load[r.Period : 2*r.Period] }

func (r *Recording) check() error {
	if r.Period < 1 || len(r.Ops) != 3*r.Period || len(r.Load) != 3*r.Period {
		return fmt.Errorf("recording of %d ops and %d loads: three iterations of %d are needed", len(r.Ops),
			len(r.Load), r.Period)
	}
	for i := 1; i < len(r.Ops); i++ {
		if r.Ops[i].Time < r.Ops[i-1].Time {
			return fmt.Errorf("op %d is earlier than the one before it", i)
		}
	}
	return nil
}

// candidates finds the blocks with two consecutive ops on either side of the peak.
func (r *Recording) candidates(q Quirks) []candidate {
	order := make([]int, len(r.Ops))
	for i := range order {
		order[i] = i
	}
	if q&QuirkCandidates != 0 {
		name := map[uint64]string{}
		for _, o := range r.Ops {
			if name[o.Addr] == "" {
				name[o.Addr] = strconv.FormatUint(o.Addr, 16)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(name[r.Ops[a].Addr], name[r.Ops[b].Addr])
		})
	} else {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(r.Ops[a].Addr, r.Ops[b].Addr) })
	}
	_, peak := r.Peak()
	var out []candidate
	for k := 1; k < len(order); k++ {
		x, y := &r.Ops[order[k-1]], &r.Ops[order[k]]
		rIdx, dIdx := order[k-1]-r.Period, order[k]-r.Period
		if x.Addr != y.Addr || y.Kind == OpMalloc || x.Size < smallestBlock || rIdx >= peak || dIdx <= peak {
			continue
		}
		if q&QuirkCandidates == 0 && (x.Kind == OpMalloc || x.Kind == OpFree || y.Kind == OpFree) {
			continue
		}
		out = append(out, candidate{addr: x.Addr, size: x.Size, r: rIdx, d: dIdx})
	}
	return out
}

func (r *Recording) time(i int) float64 { return float64(r.Ops[i+r.Period].Time) }

func (r *Recording) add(load []int64, from, to int, size int64) {
	for i := max(from+r.Period, 0); i < min(to+r.Period, len(load)); i++ {
		load[i] += size
	}
}

// rank scores candidates and sorts them, best first. WDOA and SWDOA as described depend on the limit: what
// counts is the load above it.
func (r *Recording) rank(ctx context.Context, c []candidate, s Score, q Quirks, limit int64) error {
	quirk := q&QuirkScores != 0
	if quirk {
		limit = 0
	}
	switch s {
	case SWDOA:
		return r.rankSubmodular(ctx, c, limit)
	case WDOA:
		for i := range c {
			x := &c[i]
			x.score = 0
			for j := x.r; j < x.d; j++ {
				k := j + r.Period
				if quirk {
					k = i
				}
				x.score += float64(max(r.Load[k]-limit, 0))
			}
		}
	default:
		for i := range c {
			x := &c[i]
			x.score = r.time(x.d) - r.time(x.r) - paperOut(x.size)
			if !quirk {
				x.score -= paperIn(x.size)
			}
			switch {
			case s == AOA && x.score >= 0:
				x.score *= float64(x.size)
			case s == AOA:
				x.score /= float64(x.size)
			}
		}
	}
	slices.SortStableFunc(c, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	return nil
}

// rankSubmodular repeatedly takes the candidate with the most load during its absence, and subtracts its
// bytes from that load.
func (r *Recording) rankSubmodular(ctx context.Context, c []candidate, limit int64) error {
	load := slices.Clone(r.Load)
	for k := range c {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for i := k; i < len(c); i++ {
			c[i].score = 0
			for j := c[i].r; j < c[i].d; j++ {
				c[i].score += float64(max(load[j+r.Period]-limit, 0))
			}
		}
		slices.SortStableFunc(c[k:], func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
		r.add(load, c[k].r, c[k].d, -c[k].size)
	}
	return nil
}

// Curve returns, for each limit in bytes, the overhead in nanoseconds of an iteration that AutoSwap's
// arithmetic charges when candidates are taken in the order of a score until the load stays within the limit,
// on the authors' links.
func Curve(ctx context.Context, r *Recording, s Score, limits []int64, q Quirks) ([]int64, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if s > SWDOA {
		return nil, errors.New("unknown score")
	}
	c := r.candidates(q)
	out := make([]int64, len(limits))
	for k, limit := range limits {
		if k == 0 || q&QuirkScores == 0 {
			if err := r.rank(ctx, c, s, q, limit); err != nil {
				return nil, err
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		chosen := r.choose(c, limit)
		if q&QuirkSchedule != 0 {
			out[k] = int64(math.Round(r.publishedOverhead(chosen, limit)))
		} else {
			out[k] = int64(math.Round(r.overhead(chosen, limit)))
		}
	}
	return out, nil
}

// choose takes candidates in order until the middle iteration's load is within the limit. At least one is
// taken, as published.
func (r *Recording) choose(c []candidate, limit int64) []candidate {
	load := slices.Clone(r.Load)
	for k := range c {
		r.add(load, c[k].r, c[k].d, -c[k].size)
		if slices.Max(load[r.Period:2*r.Period]) <= limit {
			return slices.Clone(c[:k+1])
		}
	}
	return slices.Clone(c)
}

// firstOver returns the first op of the middle iteration above the limit, -1 if there is none.
func (r *Recording) firstOver(load []int64, limit int64) int {
	return slices.IndexFunc(load[r.Period:2*r.Period], func(v int64) bool { return v > limit })
}

// lastOver returns the last op up to the middle iteration's end, inclusive, above the limit; -1 if there is
// none.
func (r *Recording) lastOver(load []int64, limit int64, behind int) int {
	for i := r.Period; i > behind; i-- {
		if load[i+r.Period] > limit {
			return i
		}
	}
	return -1
}

// publishedOverhead is the "stick-to-limit" schedule of the published program.
func (r *Recording) publishedOverhead(c []candidate, limit int64) float64 {
	load := slices.Clone(r.Load)
	var sum float64
	slices.SortStableFunc(c, func(a, b candidate) int { return cmp.Compare(a.r, b.r) })
	for i := range c {
		x := &c[i]
		at := x.r
		if i > 0 {
			at = max(at, c[i-1].outEnd)
		}
		end := r.time(at) + paperOut(x.size)
		for at+r.Period < len(r.Ops)-1 && end > r.time(at) {
			at++
		}
		at = min(at, x.d-1)
		r.add(load, at, x.d, -x.size)
		if a := r.firstOver(load, limit); a > 0 && a <= at {
			r.add(load, a-1, at+1, -x.size)
			at = a - 1
		}
		x.outEnd = at
		sum += max(end-r.time(at), 0)
	}
	slices.SortStableFunc(c, func(a, b candidate) int { return cmp.Compare(b.d, a.d) })
	for i := range c {
		x := &c[i]
		need := x.d
		if i > 0 {
			need = min(need, c[i-1].inFrom)
		}
		start := r.time(need) - paperIn(x.size)
		for need > 0 && start < float64(r.Ops[need].Time) { // the clock of the iteration before
			need--
		}
		need = max(need, x.r)
		r.add(load, need, x.d, x.size)
		if b := r.lastOver(load, limit, max(r.firstOver(load, limit), 0)) - 1; b >= 0 && b >= need {
			r.add(load, need, b+1, -x.size)
			sum += r.time(b) - start
		}
		x.inFrom = need
	}
	return sum
}

// overhead is the schedule as the paper describes it: one copy at a time each way. If the limit requires a
// copy out to finish earlier, or lets a copy in begin only later, the iteration is delayed by the difference;
// the copies that follow are then counted from there.
func (r *Recording) overhead(c []candidate, limit int64) float64 {
	load := slices.Clone(r.Load)
	over := func(i int, more int64) bool { return i >= 0 && i < r.Period && load[i+r.Period]+more > limit }
	var sum float64
	free := math.Inf(-1)
	slices.SortStableFunc(c, func(a, b candidate) int { return cmp.Compare(a.r, b.r) })
	for i := range c {
		x := &c[i]
		end := max(r.time(x.r), free) + paperOut(x.size)
		at := x.r + 1
		for at < x.d && r.time(at) < end && !over(at, 0) {
			at++
		}
		r.add(load, at, x.d, -x.size)
		sum += max(end-r.time(at), 0)
		x.outEnd, free = at, min(end, r.time(at))
	}
	free = math.Inf(1)
	slices.SortStableFunc(c, func(a, b candidate) int { return cmp.Compare(b.d, a.d) })
	for i := range c {
		x := &c[i]
		start := min(r.time(x.d), free) - paperIn(x.size)
		from := x.d
		for from > x.outEnd && r.time(from) > start && !over(from-1, x.size) {
			from--
		}
		r.add(load, from, x.d, x.size)
		sum += max(r.time(from)-start, 0)
		x.inFrom, free = from, max(start, r.time(from))
	}
	return sum
}
