package pack

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// smallProblem draws a problem of at most n items, with second stretches of life, an alignment and fixed
// offsets now and then.
func smallProblem(r *rand.Rand, n int) *Problem {
	p := &Problem{}
	span := 2 + r.Int64N(8)
	for range 1 + r.IntN(n) {
		start := r.Int64N(span)
		it := Item{Start: start, End: start + 1 + r.Int64N(span), Size: r.Int64N(9)}
		if r.IntN(6) == 0 {
			it.Start2 = it.End + 1 + r.Int64N(3)
			it.End2 = it.Start2 + 1 + r.Int64N(3)
		}
		p.Items = append(p.Items, it)
	}
	if r.IntN(4) == 0 {
		p.Align = 1 + r.Int64N(4)
	}
	if r.IntN(4) == 0 {
		p.Fixed = slices.Repeat([]int64{-1}, len(p.Items))
		p.Fixed[r.IntN(len(p.Items))] = r.Int64N(6) * max(p.Align, 1)
	}
	return p
}

// largerProblem draws n items whose live set is about live.
func largerProblem(n, live int, seed uint64) *Problem {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &Problem{}
	for range n {
		start := r.Int64N(int64(n))
		p.Items = append(p.Items, Item{Start: start, End: start + 1 + int64(r.ExpFloat64()*float64(live)),
			Size: 1 + int64(r.ExpFloat64()*1000)})
	}
	return p
}

// bruteForce returns the lowest top: items put one by one on top of all earlier ones they overlap, in every
// order.
func bruteForce(p *Problem) int64 {
	best := int64(1) << 60
	offsets := make([]int64, len(p.Items))
	placed := make([]int, 0, len(p.Items))
	used := make([]bool, len(p.Items))
	var walk func(top int64)
	walk = func(top int64) {
		if top >= best {
			return
		}
		if len(placed) == len(p.Items) {
			best = top
			return
		}
		for i := range p.Items {
			if used[i] {
				continue
			}
			var at int64
			for _, k := range placed {
				if overlaps(p.Items[k], p.Items[i]) && p.alignedSize(k) > 0 {
					at = max(at, offsets[k]+p.alignedSize(k))
				}
			}
			size := p.alignedSize(i)
			if p.Fixed != nil && p.Fixed[i] >= 0 && size > 0 {
				if at > p.Fixed[i] {
					continue
				}
				at = p.Fixed[i]
			}
			end := top
			if size > 0 {
				end = max(top, at+size)
			}
			used[i], offsets[i] = true, at
			placed = append(placed, i)
			walk(end)
			placed = placed[:len(placed)-1]
			used[i] = false
		}
	}
	walk(0)
	return best
}

// overlaps reports whether two items live at one moment.
func overlaps(it, other Item) bool {
	if it.Start < other.End && other.Start < it.End {
		return true
	}
	if it.hasSecond() && it.Start2 < other.End && other.Start < it.End2 {
		return true
	}
	if !other.hasSecond() {
		return false
	}
	return it.Start < other.End2 && other.Start2 < it.End || it.hasSecond() && it.Start2 < other.End2 &&
		other.Start2 < it.End2
}

// topOf returns the largest offset + aligned size.
func topOf(p *Problem, offsets []int64) int64 {
	var top int64
	for i := range p.Items {
		if size := p.alignedSize(i); size > 0 {
			top = max(top, offsets[i]+size)
		}
	}
	return top
}

func checkResult(t *testing.T, p *Problem, res Result, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	if err := Validate(p, res.Offsets); err != nil {
		t.Fatalf("%+v: %v", p, err)
	}
	if res.Top != topOf(p, res.Offsets) || res.Top < res.LowerBound || res.LowerBound < LowerBound(p) {
		t.Fatalf("%+v: top %d, bound %d, offsets %v", p, res.Top, res.LowerBound, res.Offsets)
	}
	for i, at := range p.Fixed {
		if size := p.alignedSize(i); at >= 0 && size > 0 && LowerBound(p) < at+size {
			t.Fatalf("%+v: the bound %d is below the top of fixed item %d", p, LowerBound(p), i)
		}
	}
}

func TestEveryResultIsAPackingAndOptimalMeansWhatBruteForceFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	proved := 0
	for range 4000 {
		p := smallProblem(r, 7)
		want := bruteForce(p)
		for _, fit := range []func(context.Context, *Problem, ...FitOption) (Result, error){BestFit, FirstFit} {
			for _, opts := range [][]FitOption{nil, {ByClasses()}} {
				res, err := fit(t.Context(), p, opts...)
				checkResult(t, p, res, err)
				if res.Status == Optimal && res.Top != want || res.Top < want {
					t.Fatalf("%+v: a fit says %s %d, the lowest top is %d", p, res.Status, res.Top, want)
				}
			}
		}
		res, err := Exact(t.Context(), p, Options{Work: 20000})
		checkResult(t, p, res, err)
		if res.Status != Optimal || res.Top != want {
			t.Fatalf("%+v: %s %d, the lowest top is %d", p, res.Status, res.Top, want)
		}
		if want > LowerBound(p) {
			proved++
		}
	}
	if proved < 50 {
		t.Errorf("only %d problems had an optimum above their live sum; the test proves too little", proved)
	}
}

func TestByClassesWastesLessWhereSizesDifferByOrdersOfMagnitude(t *testing.T) {
	var descending, classes int64 // per mille of the bound
	for seed := range uint64(10) {
		p := largerProblem(2000, 100, seed)
		r := rand.New(rand.NewPCG(seed, 9))
		for i := range p.Items {
			p.Items[i].Size = int64(math.Exp(r.Float64() * math.Log(1e4)))
		}
		a, err := BestFit(t.Context(), p)
		checkResult(t, p, a, err)
		b, err := FirstFit(t.Context(), p, ByClasses())
		checkResult(t, p, b, err)
		descending, classes = descending+(a.Top-a.LowerBound)*1000/a.LowerBound,
			classes+(b.Top-b.LowerBound)*1000/b.LowerBound
	}
	if t.Logf("size descending wastes %d, by classes %d per mille", descending/10, classes/10); classes*10 > descending*9 {
		t.Errorf("by classes %d per mille are wasted, size descending %d", classes/10, descending/10)
	}
}

func TestACapacityIsMetExactlyWhereItCanBe(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for range 2000 {
		p := smallProblem(r, 7)
		want := bruteForce(p)
		for capacity := max(1, want-2); capacity <= want+2; capacity++ {
			res, err := Exact(t.Context(), p, Options{Capacity: capacity, Work: 20000})
			checkResult(t, p, res, err)
			if fits := res.Status == Optimal || res.Status == Feasible; fits != (want <= capacity) || fits && res.Top > capacity ||
				!fits && res.Status != Infeasible {
				t.Fatalf("%+v: %s %d under capacity %d, the lowest top is %d", p, res.Status, res.Top, capacity, want)
			}
		}
	}
}

func TestEverySearchWithAMechanismOffStillFindsTheOptimum(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 400 {
		p := smallProblem(r, 7)
		want := bruteForce(p)
		for name, k := range ablations() {
			in := compile(p)
			g := newGraph(in)
			if want > in.bound() {
				if _, _, out := solveCore(t.Context(), g, want-1, 1, 100000, k); out != impossible {
					t.Fatalf("%s: %+v: outcome %d under capacity %d", name, p, out, want-1)
				}
			}
			if offsets, _, out := solveCore(t.Context(), g, want, 1, 100000, k); len(in.size) > 0 && (out != packed || in.top(offsets) > want) {
				t.Fatalf("%s: %+v: outcome %d under capacity %d", name, p, out, want)
			}
		}
	}
}

// ablations are the search with one mechanism off, by name, and whole as "".
func ablations() map[string]knobs {
	with := func(off func(k *knobs)) knobs {
		k := allKnobs
		off(&k)
		return k
	}
	return map[string]knobs{
		"":                allKnobs,
		"valleys":         with(func(k *knobs) { k.lowest = true }),
		"release bound":   with(func(k *knobs) { k.jackson = false }),
		"failed states":   with(func(k *knobs) { k.table = false }),
		"support":         with(func(k *knobs) { k.support = false }),
		"learned weights": with(func(k *knobs) { k.weights = false }),
		"twins":           with(func(k *knobs) { k.twins = false }),
	}
}

func TestEqualSeedAndWorkGiveEqualAnswersOnAnyNumberOfProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for seed := range uint64(3) {
		p := largerProblem(200, 60, seed)
		var first Result
		for k, procs := range []int{1, 2, 4, 2} {
			runtime.GOMAXPROCS(procs)
			res, err := Exact(t.Context(), p, Options{Seed: seed, Work: 30000})
			checkResult(t, p, res, err)
			if k == 0 {
				first = res
			} else if !slices.Equal(first.Offsets, res.Offsets) || first.Work != res.Work || first.Status != res.Status {
				t.Errorf("seed %d: with %d processors %s %d after %d steps, with one %s %d after %d", seed, procs,
					res.Status, res.Top, res.Work, first.Status, first.Top, first.Work)
			}
		}
	}
}

func TestACancelledSearchReturnsItsBestAndTheContextsError(t *testing.T) {
	p := largerProblem(600, 200, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen int64
	res, err := Exact(ctx, p, Options{Work: 1 << 40, Progress: func(best, _ int64) {
		seen = best
		cancel()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v", err)
	}
	checkResult(t, p, res, nil)
	if res.Top > seen {
		t.Errorf("the result's top is %d, and %d had been reported", res.Top, seen)
	}
	res, err = Exact(ctx, p, Options{})
	if !errors.Is(err, context.Canceled) || res.Offsets != nil {
		t.Errorf("after cancellation: %v, %d offsets", err, len(res.Offsets))
	}
}

// An error says that the context ended too early, and nothing else: neither that the work ran out, nor that
// the context ended when there was nothing left to find.
func TestOnlyAnEndTooEarlyIsAnError(t *testing.T) {
	res, err := Exact(t.Context(), largerProblem(600, 200, 3), Options{Work: 1})
	if err != nil || res.Status != Feasible || res.Top <= res.LowerBound {
		t.Errorf("out of work: %v, top %d, bound %d: %v", res.Status, res.Top, res.LowerBound, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err = Exact(ctx, largerProblem(20, 8, 1), Options{Progress: func(best, bound int64) {
		if best == bound {
			cancel()
		}
	}})
	if err != nil || ctx.Err() == nil || res.Status != Optimal {
		t.Errorf("cancelled at the optimum: %v: %v", res.Status, err)
	}
}

func TestProgressOnlyImproves(t *testing.T) {
	best, bound := int64(1)<<60, int64(0)
	_, err := Exact(t.Context(), largerProblem(150, 60, 5), Options{Work: 30000, Progress: func(b, l int64) {
		if b > best || l < bound || b < l || b == best && l == bound {
			t.Errorf("progress went from %d, %d to %d, %d", best, bound, b, l)
		}
		best, bound = b, l
	}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMeaninglessProblemsAreRefusedWithTheItemsIndex(t *testing.T) {
	for want, p := range map[string]*Problem{
		"item 1: its size -1 is negative":                                           {Items: []Item{{End: 1}, {End: 1, Size: -1}}},
		"item 0: its size 281474976710657 is over 2^48; give it in bytes":           {Items: []Item{{End: 1, Size: 1<<48 + 1}}},
		"item 0: its lifetime [3, 3) is empty; the end has to come after the start": {Items: []Item{{Start: 3, End: 3}}},
		"item 0: its lifetimes [0, 4) and [3, 5) overlap; join them":                {Items: []Item{{End: 4, Start2: 3, End2: 5}}},
		"item 0: its fixed offset 3 is not a multiple of the alignment 2": {
			Items: []Item{{End: 1}}, Align: 2, Fixed: []int64{3}},
		"there are 2 fixed offsets for 1 items; give one for each item, -1 where it is free": {Items: []Item{{End: 1}}, Fixed: []int64{1, 2}},
		"the fixed offsets contradict each other: items 0 and 1 live at one moment and share an address": {
			Items: []Item{{End: 2, Size: 4}, {Start: 1, End: 3, Size: 1}}, Fixed: []int64{0, 3}},
	} {
		if err := p.Check(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, err := Exact(t.Context(), p, Options{}); err == nil {
			t.Errorf("Exact packs what Check refuses: %s", want)
		}
	}
	huge := &Problem{Items: slices.Repeat([]Item{{End: 1, Size: 1 << 48}}, 1<<14+1)}
	if err := huge.Check(); err == nil {
		t.Error("sizes that add up to more than 2^62 pass")
	}
	huge.Items = huge.Items[1:]
	if err := huge.Check(); err != nil {
		t.Errorf("sizes that add up to 2^62: %v", err)
	}
}

func TestValidateRefusesWhatIsNoPacking(t *testing.T) {
	p := &Problem{Items: []Item{{0, 2, 0, 0, 4}, {1, 3, 5, 6, 4}, {5, 6, 0, 0, 4}}, Align: 4}
	for _, offsets := range [][]int64{{0, 0, 4}, {0, 4, 4}, {0, 4, -4}, {0, 4}, {0, 6, 0}, {1, 8, 0}} {
		if Validate(p, offsets) == nil {
			t.Errorf("%v passes", offsets)
		}
	}
	if err := Validate(p, []int64{0, 4, 0}); err != nil {
		t.Error(err)
	}
	var clash *overlapError
	if err := Validate(p, []int64{0, 4, 4}); !errors.As(err, &clash) || *clash != (overlapError{1, 2}) {
		t.Errorf("got %v", err)
	}
	p.Fixed = []int64{-1, 8, -1}
	if Validate(p, []int64{0, 4, 0}) == nil {
		t.Error("an item moved from its fixed offset passes")
	}
}

func TestTheQuirkOfThePublishedRuleOnlyTriesTheFrontGapBelowOneRange(t *testing.T) {
	// What is taken ends at 12; in between are these gaps.
	choose := func(r fitRule, size int64, gaps ...addrRange) int64 {
		c := newChoice(r, size)
		for _, g := range gaps {
			if c.offer(g) {
				break
			}
		}
		return c.at(12)
	}
	front, inner := addrRange{0, 4}, addrRange{6, 9}
	for _, c := range []struct {
		rule fitRule
		size int64
		want int64
	}{{fitRule{}, 4, 0}, {fitRule{quirk: true}, 4, 12}, {fitRule{}, 3, 6}, {fitRule{first: true}, 3, 0}, {fitRule{quirk: true, first: true}, 3, 6}} {
		if got := choose(c.rule, c.size, front, inner); got != c.want {
			t.Errorf("%+v: size %d goes to %d, want %d", c.rule, c.size, got, c.want)
		}
	}
	if got := choose(fitRule{quirk: true}, 4, front); got != 0 {
		t.Errorf("with one range the gap below it is not tried: %d", got)
	}
}

func TestReducingLeavesProblemsThatStillMeetTheirCapacity(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	peeled, postponed := 0, 0
	for range 3000 {
		p := smallProblem(r, 7)
		want := bruteForce(p)
		in := compile(p)
		red := in.reduce(want)
		solved := make([][]int64, len(red.cores))
		left := 0
		for k, c := range red.cores {
			offsets, _, out := solveCore(t.Context(), newGraph(c.in), want-c.base, 1, 100000, allKnobs)
			if out != packed {
				t.Fatalf("%+v: a core of %d items does not fit %d", p, len(c.in.size), want-c.base)
			}
			solved[k] = offsets
			left += len(c.in.size)
		}
		postponed += len(red.later)
		peeled += len(in.size) - left - len(red.later)
		offsets := in.assemble(red, solved)
		if err := Validate(p, in.expand(p, offsets)); err != nil || in.top(offsets) > want {
			t.Fatalf("%+v: top %d over %d, %v", p, in.top(offsets), want, err)
		}
	}
	if peeled < 1000 || postponed < 1000 {
		t.Errorf("only %d items were peeled and %d postponed; the test shows too little", peeled, postponed)
	}
}

// TestAPackingOfBlocksIsOneOfTheirItems: merging changes neither the load nor what overlaps.
func TestAPackingOfBlocksIsOneOfTheirItems(t *testing.T) {
	merged := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 9))
		p := smallProblem(r, 40)
		in := compile(p)
		blocks, m := in.merge()
		merged += len(in.size) - len(blocks.size)
		if in.bound() != blocks.bound() {
			t.Fatalf("seed %d: the bound is %d, that of the blocks %d", seed, in.bound(), blocks.bound())
		}
		offsets, err := blocks.fit(t.Context(), blocks.order("Z"), fitRule{first: r.IntN(2) == 0})
		if err != nil {
			t.Fatal(err)
		}
		of := m.spread(len(in.size), blocks, offsets)
		if err := Validate(p, in.expand(p, of)); err != nil || in.top(of) != blocks.top(offsets) {
			t.Fatalf("seed %d: top %d, that of the blocks %d; %v", seed, in.top(of), blocks.top(offsets), err)
		}
	}
	if merged < 10_000 {
		t.Errorf("only %d items were merged", merged)
	}
}

func BenchmarkBestFit(b *testing.B) {
	for _, c := range [][2]int{{1000, 100}, {10000, 100}, {100000, 100}} {
		p := largerProblem(c[0], c[1], 1)
		b.Run(fmt.Sprintf("items=%d", c[0]), func(b *testing.B) {
			for b.Loop() {
				if _, err := BestFit(b.Context(), p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkExact(b *testing.B) {
	for _, c := range [][2]int{{100, 10}, {300, 30}, {1000, 30}} {
		p := largerProblem(c[0], c[1], 1)
		b.Run(fmt.Sprintf("items=%d", c[0]), func(b *testing.B) {
			for b.Loop() {
				if _, err := Exact(b.Context(), p, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLarge packs as many items as the largest trainings have buffers, 300 of them alive at once: in one
// pass, and by a search of eight steps an item.
func BenchmarkLarge(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		p := largerProblem(n, 300, 1)
		for name, pack := range map[string]func() (Result, error){
			"fit":   func() (Result, error) { return BestFit(b.Context(), p) },
			"exact": func() (Result, error) { return Exact(b.Context(), p, Options{Work: 8 * int64(n)}) },
		} {
			b.Run(fmt.Sprintf("%s/items=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					res, err := pack()
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(res.Top)/float64(res.LowerBound), "top/bound")
				}
			})
		}
	}
}
