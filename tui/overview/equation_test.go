package overview

import (
	"fmt"
	"testing"
)

// However narrow the line is, its terms add up to what is reserved.
func TestTheTermsOfTheSumAddUp(t *testing.T) {
	terms := func() []term {
		return []term{{"allocated", 2320}, {"pending free", 56}, {"fragmented", 36}, {"cached", 27}}
	}
	merged := false
	for room := 1; room < 100; room++ {
		var sum int64
		size := func(n int64) string { return fmt.Sprintf("%.2f", float64(n)/100) }
		for _, x := range fitting(terms(), room, size) {
			sum += x.bytes
			merged = merged || x.name == "other"
		}
		if sum != 2439 {
			t.Errorf("in %d columns the terms add up to %d of 2439", room, sum)
		}
	}
	if !merged {
		t.Error("all terms fit into every width: the law was not tried")
	}
}
