package joint

import "testing"

// Whatever margin addresses need, the search closes in on it from both sides, and ends with one that is
// enough and at most the tolerance larger.
func TestACutClosesInOnTheLeastMarginThatDoes(t *testing.T) {
	const tolerance = 3 * 512
	par := defaults()
	for need := int64(512); need < 500*512; need += 512 {
		for _, seed := range []int64{0, 20 * 512, need, 400 * 512} {
			c := cut{step: 16 * 512, tolerance: tolerance, seed: seed,
				limit: 1 << 30, rounds: 60, params: &par}
			known, ended := false, false
			for round := 0; round < 40 && !ended; round++ {
				miss := max(need-c.margin, 0)
				known = known || miss == 0
				ended = c.next(round, miss, false, known, false) == stop
			}
			if got := c.found(); !ended || got < need || got > need+tolerance {
				t.Fatalf("a margin of %d is needed, %d did for the neighbours: found %d, ended %t", need,
					seed, got, ended)
			}
		}
	}
}
