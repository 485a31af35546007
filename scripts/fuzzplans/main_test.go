package main

import "testing"

func TestSeedsAreOneOrARange(t *testing.T) {
	for seeds, want := range map[string][2]uint64{"7": {7, 7}, "1:50": {1, 50}} {
		o := options{seeds: seeds}
		if first, last, err := o.span(); err != nil || [2]uint64{first, last} != want {
			t.Errorf("%s: %d to %d, %v", seeds, first, last, err)
		}
	}
	for _, seeds := range []string{"", "a:3", "3:"} {
		o := options{seeds: seeds}
		if _, _, err := o.span(); err == nil {
			t.Errorf("%q is no range, and was taken", seeds)
		}
	}
}
