package pack

import "testing"

// A search stops where its work is spent: it finishes the greedy pass that it is at, and no more. Searches on
// several processors share the work.
func TestASearchSpendsItsWorkAndAtMostOnePassMore(t *testing.T) {
	const n = 300
	ranOut := 0
	for seed := range uint64(3) {
		p := largerProblem(n, 80, seed)
		best, err := FirstFit(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, work := range []int64{1, 700, 3000, 6000, 12000, 24000} {
			for _, capacity := range []int64{0, best.LowerBound} {
				res, err := Exact(t.Context(), p, Options{Work: work, Capacity: capacity, Seed: seed})
				if err != nil {
					t.Fatal(err)
				}
				if res.Work > work+fitSteps(n) {
					t.Errorf("seed %d, capacity %d: %d steps of %d", seed, capacity, res.Work, work)
				}
				if res.Status == Feasible || res.Status == Unknown {
					if ranOut++; res.Work < work {
						t.Errorf("seed %d, capacity %d: %v after %d steps of %d", seed, capacity, res.Status,
							res.Work, work)
					}
				}
			}
		}
	}
	if ranOut < 10 {
		t.Errorf("only %d searches ran out", ranOut)
	}
}
