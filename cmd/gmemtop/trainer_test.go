package main

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
)

// Steps are numbered from 100 and last as many nanoseconds as their number; a letter says what was done in each: plain, described or under a plan.
func TestPlainStepsAreTheNewestThatNothingMadeLonger(t *testing.T) {
	for _, x := range []struct {
		steps     string
		behind, n int
		want      []int64
	}{
		{"", 1, 2, nil},
		{"..", 3, 2, nil}, // what was before the first is not known
		{"......", 1, 3, []int64{103, 104, 105}},
		{"......d", 1, 3, []int64{103, 104, 105}},
		{"......d.", 1, 3, []int64{103, 104, 105}},
		{"......d..", 1, 3, []int64{104, 105, 108}},
		{"...ppp.d....", 2, 3, []int64{102, 110, 111}},
		{"ppppp", 1, 3, nil},
	} {
		var v capture.View
		for i, c := range x.steps {
			s := capture.Step{Index: int64(100 + i), Start: 1000, End: 1000 + int64(100+i)}
			switch c {
			case 'd':
				v.Windows = append(v.Windows, capture.Window{First: s.Index, Last: s.Index})
			case 'p':
				s.Carried.Plan = 7
			}
			v.Steps = append(v.Steps, s)
		}
		var got []int64
		for _, s := range plain(&v, x.behind, x.n) {
			got = append(got, s.Time)
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%q, %d of them: %v, not %v", x.steps, x.n, got, x.want)
		}
	}
}
