package fleet

import (
	"slices"
	"testing"
)

func TestRanksAreNamedByNumberOrByWhatSetsThemApart(t *testing.T) {
	running, outliers := []int64{0, 1, 2, 3, 8, 9}, []int64{9, 2}
	for text, want := range map[string][]int64{
		"0": {0}, "outliers,0": {0, 2, 9}, "outliers": {2, 9}, "all": running, "1-3,8": {1, 2, 3, 8},
		"2-100":  {2, 3, 8, 9},
		" 3 , 0": {0, 3}, "7,0": {0, 7},
	} {
		c, err := ParseRanks(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, err := c.Of(running, outliers); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v, not %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "3-1", "1-", "0,,1", "99999999999999999999",
		"0-2147483648"} {
		if c, err := ParseRanks(text); err == nil {
			t.Errorf("%q is %+v", text, c)
		}
	}
	c, _ := ParseRanks("outliers")
	if got, err := c.Of(running, nil); err == nil {
		t.Errorf("without outliers: %v", got)
	}
}
