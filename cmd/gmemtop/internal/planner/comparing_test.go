package planner

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
)

func TestComparisonsThatContradictThemselvesAreRefused(t *testing.T) {
	one, two := []string{"a.gmt"}, []string{"a.gmt", "b.gmt"}
	for _, c := range []struct {
		asked Comparing
		live  bool
		why   string // "" for a comparison that can be made
	}{
		{asked: Comparing{Task: &Task{}, Paths: one, Target: "cuda"}},
		{asked: Comparing{Task: &Task{AtSequence: 512}, Paths: one}, why: "--at-sequence is for --max-batch"},
		{asked: Comparing{Task: &Task{AtSequence: 512, Network: "gpt2"}}},
		{asked: Comparing{Task: &Task{}, Paths: two}, why: `from "a.gmt" to "b.gmt"`},
		{asked: Comparing{Task: &Task{AtSequence: 512}, Paths: two, MaxBatch: true}},
		{asked: Comparing{Task: &Task{}, Paths: one, Folder: true, Target: "sim"}},
		{asked: Comparing{Task: &Task{}, Paths: one, Folder: true, Target: "sim", MaxBatch: true},
			why: "--max-batch is for one rank"},
		{asked: Comparing{Task: &Task{}, Paths: one, Folder: true, Target: "cuda"}, why: "on the simulator"},
		{asked: Comparing{Task: &Task{}, Target: "live:7"}, live: true},
		{asked: Comparing{Task: &Task{Iteration: "2"}, Target: "live:7"}, live: true, why: "leave out"},
		{asked: Comparing{Task: &Task{}, Target: "live:7", MaxBatch: true}, live: true, why: "leave out"},
	} {
		err := c.asked.Check()
		if c.live {
			err = c.asked.CheckLive()
		}
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%+v: %v", c.asked, err)
		case c.why != "" && (!exit.IsMistake(err) || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%+v: %v, want a mistake with %q", c.asked, err, c.why)
		}
	}
}
