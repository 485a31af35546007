package maybe_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

var unknown maybe.Int

func TestAnUnknownFigureIsNeverANumber(t *testing.T) {
	if v, ok := unknown.Value(); v != 0 || ok || unknown.IsKnown() || unknown.Or(-7) != -7 ||
		unknown.String() != "unknown" {
		t.Errorf("%d %v %v", v, ok, unknown)
	}
	for _, n := range []int64{0, -1, math.MaxInt64} {
		f := maybe.Known(n)
		if v, ok := f.Value(); v != n || !ok || !f.IsKnown() || f.Or(-7) != n || f == unknown {
			t.Errorf("%d: %d %v %v", n, v, ok, f)
		}
		if f.Minus(unknown).IsKnown() || unknown.Minus(f).IsKnown() {
			t.Errorf("%d: the difference to an unknown figure is known", n)
		}
	}
	if maybe.NonNegative(-1).IsKnown() || maybe.NonNegative(0) != maybe.Known(0) ||
		unknown.Times(3).IsKnown() {
		t.Error("want: -1 is unknown, 0 is a number, and three times unknown is unknown")
	}
}

// Functions of several figures use only the known ones, and are unknown without any.
func TestSumMaxAndFirstIgnoreUnknownFigures(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var all []maybe.Int
		var known []int64
		for range rng.IntN(5) {
			if n := rng.Int64N(21) - 10; rng.IntN(2) == 0 {
				all, known = append(all, maybe.Known(n)), append(known, n)
			} else {
				all = append(all, unknown)
			}
		}
		first, sum, most := unknown, unknown, unknown
		if len(known) > 0 {
			var total int64
			top := int64(math.MinInt64)
			for _, n := range known {
				total, top = total+n, max(top, n)
			}
			first, sum, most = maybe.Known(known[0]), maybe.Known(total), maybe.Known(top)
		}
		if maybe.First(all...) != first || maybe.Sum(all...) != sum || maybe.Max(all...) != most {
			t.Fatalf("%v: first %v, sum %v, most %v", all,
				maybe.First(all...), maybe.Sum(all...), maybe.Max(all...))
		}
	}
}

func TestAProductThatOverflowsIsUnknown(t *testing.T) {
	for _, c := range []struct{ f, want maybe.Int }{
		{maybe.Known(7), maybe.Known(7000)}, {maybe.Known(-7), maybe.Known(-7000)},
		{maybe.Known(1 << 60), unknown}, {maybe.Known(-1 << 60), unknown},
		{maybe.Known(math.MaxInt64 / 1000), maybe.Known(math.MaxInt64 / 1000 * 1000)},
	} {
		if got := c.f.Times(1000); got != c.want {
			t.Errorf("1000 times %v is %v, want %v", c.f, got, c.want)
		}
	}
}

func TestAnUnknownFigureIsNullInJSON(t *testing.T) {
	p, err := json.Marshal([]maybe.Int{{}, maybe.Known(0), maybe.Known(-3)})
	if err != nil || string(p) != "[null,0,-3]" {
		t.Fatalf("%s, %v", p, err)
	}
	back := []maybe.Int{maybe.Known(5), {}, {}}
	want := []maybe.Int{unknown, maybe.Known(0), maybe.Known(-3)}
	if err := json.Unmarshal(p, &back); err != nil || !slices.Equal(back, want) {
		t.Errorf("%v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`["3"]`), &back); err == nil {
		t.Error("a text was read as a figure")
	}
}
