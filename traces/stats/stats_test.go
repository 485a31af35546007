package stats

import (
	"math"
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []int64
		want int64
	}{
		{nil, 0}, {[]int64{7}, 7}, {[]int64{9, 1}, 5}, {[]int64{3, 9, 1}, 3}, {[]int64{4, 1, 3, 2}, 2},
		{[]int64{math.MaxInt64, math.MaxInt64 - 2}, math.MaxInt64 - 1},
	} {
		before := slices.Clone(c.v)
		if got := Median(c.v); got != c.want || !slices.Equal(before, c.v) {
			t.Errorf("the median of %v is %d, not %d", before, got, c.want)
		}
	}
	if got := Median([]float64{1, 2}); got != 1.5 {
		t.Errorf("the median of 1 and 2 is %v", got)
	}
}

func TestPercentile(t *testing.T) {
	v := make([]int64, 100)
	for i := range v {
		v[i] = int64(100 - i)
	}
	for percent, want := range map[int]int64{0: 1, 1: 1, 50: 50, 95: 95, 100: 100} {
		if got := Percentile(v, percent); got != want {
			t.Errorf("%d of a hundred are up to %d, not %d", percent, want, got)
		}
	}
	if got := Percentile(v[:3], 95); got != 100 || Percentile(nil, 95) != 0 {
		t.Errorf("of three it is the largest, not %d, and 0 of none", got)
	}
}
