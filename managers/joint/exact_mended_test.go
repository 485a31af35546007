package joint_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// TestJointPlansWhatTheExactSearchDid: problems that joint once lost to the exact search, by up to 5.3 %. The
// best time of each is the exact search's, for whole buffers.
func TestJointPlansWhatTheExactSearchDid(t *testing.T) {
	t.Parallel()
	ours, err := managers.Select("joint")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		seed         uint64
		budget, best int64 // MiB, units of time
	}{
		{"a copy out that can begin comes first", 50117, 11, 38},
		{"copies back wait only for memory that they take", 50078, 11, 55},
		{"only copies back wait for memory that nothing else takes", 50084, 11, 45},
		{"a value returns before one that is needed sooner", 50093, 10, 34},
	} {
		p := randomSmall(c.seed).problem()
		r := plan.Request{Budget: c.budget << 20, Seed: 1, Work: 1_000_000, Evaluator: sim.Simulator{}}
		pl, err := ours[0].Plan(t.Context(), p, r)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m, err := sim.Run(t.Context(), p, pl, sim.Options{})
		if err != nil || pl.Footprint > r.Budget || m.StepTime > c.best*1000 {
			t.Errorf("%s: %d ns in %d bytes (%v), and %d000 ns in %d are possible", c.name, m.StepTime,
				pl.Footprint, err, c.best, r.Budget)
		}
	}
}
