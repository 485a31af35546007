package pack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// plainFit is the rule of SmartPool word by word: each item looks at all items placed before.
func plainFit(in *instance, order []int32, rule fitRule) []int64 {
	offsets := slices.Repeat([]int64{-1}, len(in.size))
	var placed []int32
	meet := func(a, b span) bool { return a.lo < b.hi && b.lo < a.hi }
	overlap := func(i, k int32) bool {
		a, b := in.stretches(i)
		c, d := in.stretches(k)
		return meet(a, c) || meet(a, d) || meet(b, c) || meet(b, d)
	}
	for i, at := range in.fixed {
		if at >= 0 {
			offsets[i] = at
			placed = append(placed, int32(i))
		}
	}
	for _, i := range order {
		if offsets[i] >= 0 {
			continue
		}
		var taken []addrRange
		for _, k := range placed {
			if overlap(i, k) {
				taken = insertRange(taken, addrRange{offsets[k], offsets[k] + in.size[k]})
			}
		}
		best, at, below := int64(-1), int64(0), int64(0)
		for k, t := range taken {
			if gap := t.lo - below; gap >= in.size[i] && (best < 0 || gap < best && !rule.first) &&
				(k > 0 || !rule.quirk || len(taken) == 1) {
				best, at = gap, below
			}
			below = t.hi
		}
		if best < 0 {
			at = below
		}
		offsets[i] = at
		placed = append(placed, i)
	}
	return offsets
}

// nested draws a net's lifetimes: half of the items begin in order and end in the reverse order, a few of
// them absent in the middle; the others are short. Some wrap round the end.
func nested(n int, seed uint64) *Problem {
	r := rand.New(rand.NewPCG(seed, 2))
	p := &Problem{}
	sizes := []int64{1, 3, 8, 8, 64, 1 + r.Int64N(100)}
	for i := range int64(n) {
		it := Item{Start: i, End: 2*int64(n) - i, Size: sizes[r.IntN(len(sizes))]}
		if it.Size += r.Int64N(2); r.IntN(2) == 0 && it.End > it.Start+10 {
			p.Items = append(p.Items, Item{Start: it.End - 3, End: it.End, Size: it.Size})
			it.End = it.Start + 3
		}
		if r.IntN(9) == 0 {
			it.Start2, it.End2 = 2*int64(n)+i, 2*int64(n)+i+1+r.Int64N(int64(n))
		}
		p.Items = append(p.Items, it)
	}
	return p
}

func TestTheIndexOfRangesChoosesWhatAScanOfAllItemsWouldChoose(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	shifts := map[uint8]int{}
	long := 0
	for seed := range uint64(300) {
		var p *Problem
		switch seed % 4 {
		case 0:
			p = smallProblem(r, 30)
		case 1:
			p = nested(20+int(seed), seed)
		case 2:
			p = largerProblem(400, 3+int(seed), seed)
		default: // short ones under a few that last
			p = largerProblem(500, 2, seed)
			for k := range int64(20) {
				p.Items = append(p.Items, Item{Start: 10 * k, End: 100 + 20*k, Size: 1 + r.Int64N(3000)})
			}
		}
		in := compile(p)
		index := newRangeIndex(in)
		shifts[index.shift]++
		if index.some != nil {
			long++
		}
		for _, rule := range []fitRule{{}, {first: true}, {quirk: true}, {first: true, quirk: true}} {
			for _, keys := range []string{"Z", "WA", "TW"} {
				order := in.order(keys)
				got, err := in.fit(t.Context(), order, rule)
				if err != nil {
					t.Fatal(err)
				}
				if want := plainFit(in, order, rule); !slices.Equal(got, want) {
					i := slices.IndexFunc(order, func(i int32) bool { return got[i] != want[i] })
					t.Fatalf("seed %d, %+v, order %s: item %d of %d goes to %d, want %d", seed, rule, keys, i,
						len(order), got[order[i]], want[order[i]])
				}
			}
		}
	}
	if len(shifts) < 3 || long < 50 {
		t.Errorf("lengths of blocks %v, %d times a tree: the test shows too little", shifts, long)
	}
}

// BenchmarkFit packs 100,000 items by SmartPool's rule.
func BenchmarkFit(b *testing.B) {
	for _, c := range []struct {
		name string
		p    *Problem
	}{{"live10", largerProblem(100_000, 10, 1)}, {"live1000", largerProblem(100_000, 1000, 1)},
		{"nested", nested(70_000, 1)}} {
		b.Run(fmt.Sprint(c.name), func(b *testing.B) {
			for b.Loop() {
				if _, err := BestFit(b.Context(), c.p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// As published, the gap below the first range counts only if there is no second one: first fit must continue
// after it, and takes it in the end if there was nothing else.
func TestTheGapBelowTheFirstRangeCountsOnlyAlone(t *testing.T) {
	for _, c := range []struct {
		rule    fitRule
		gaps    []addrRange
		settled []bool
		at      int64
	}{
		{fitRule{first: true, quirk: true}, []addrRange{{0, 10}, {11, 30}}, []bool{false, true}, 11},
		{fitRule{quirk: true}, []addrRange{{0, 10}, {11, 30}, {40, 50}}, []bool{false, false, true}, 40},
		{fitRule{quirk: true}, []addrRange{{0, 10}}, []bool{false}, 0},
		{fitRule{first: true}, []addrRange{{0, 10}}, []bool{true}, 0},
		{fitRule{quirk: true}, []addrRange{{0, 10}, {12, 15}}, []bool{false, false}, 99},
	} {
		x := newChoice(c.rule, 10)
		for i, g := range c.gaps {
			if got := x.offer(g); got != c.settled[i] {
				t.Errorf("%+v: gap %d settles it: %v", c, i, got)
			}
		}
		if got := x.at(99); got != c.at {
			t.Errorf("%+v: taken is %d", c, got)
		}
	}
}
