package torchalloc

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestRoundingOfKnownSizes(t *testing.T) {
	none, four := Rounding{}, Rounding{}
	for i := range four {
		four[i] = 4
	}
	for _, c := range []struct {
		rule      *Rounding
		size, got int64
	}{
		{&none, 0, 0}, {&none, 1, 512}, {&none, 512, 512}, {&none, 513, 1024},
		{&none, 1<<20 + 1, 1<<20 + 512},
		{&none, 5_000_000_001, 5_000_000_512},
		{&four, 1200, 1536}, {&four, 2049, 2560}, {&four, 1 << 20, 1 << 20},
		{&four, 1<<20 + 1, 1<<20 + 1<<18},
		{&four, 5_000_000_001, 5 << 30},
		{&none, math.MaxInt64, math.MaxInt64}, {&four, math.MaxInt64, math.MaxInt64}, {&none, -1, -1},
	} {
		if got := c.rule.Round(c.size); got != c.got {
			t.Errorf("Round(%d) with %d divisions is %d, want %d", c.size, c.rule[0], got, c.got)
		}
	}
}

func TestRoundedSizesHoldTheirRequestsAndAreMonotonic(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		var rule Rounding
		for i := range rule {
			rule[i] = 1 << rng.IntN(6)
		}
		size := 1 + rng.Int64N(1<<(10+rng.IntN(53)))
		rounded := rule.Round(size)
		if size <= maxRounded && (rounded < size || rounded%MinBlock != 0) || rounded < 0 {
			t.Fatalf("Round(%d) is %d", size, rounded)
		}
		if less := rule.Round(size - 1); size > 1 && less > rounded && size <= maxRounded {
			t.Fatalf("Round(%d) is %d and Round(%d) %d", size-1, less, size, rounded)
		}
	}
}
