package planner

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/managers/plan"
)

func called(list []plan.Manager) string {
	var names []string
	for _, m := range list {
		names = append(names, m.Info().Name)
	}
	return strings.Join(names, ",")
}

// Managers that only choose addresses get their own round in a training, with PyTorch's allocator, and only
// if they are named.
func TestATrainingComparesManagersInRounds(t *testing.T) {
	for names, want := range map[string]string{
		"joint,stalloc": "joint | pooled caching,expandable,stalloc",
		"stalloc":       "pooled caching,expandable,stalloc",
		"joint":         "joint",
	} {
		rounds, err := Rounds(names)
		var got []string
		for _, r := range rounds {
			text := called(r.Managers)
			if r.Pooled {
				text = "pooled " + text
			}
			got = append(got, text)
		}
		if strings.Join(got, " | ") != want || err != nil {
			t.Errorf("%s: %q, %v, want %s", names, got, err, want)
		}
	}
	if rounds, err := Rounds("all"); len(rounds) != 1 || rounds[0].Pooled || err != nil {
		t.Errorf("all: %d rounds, %v", len(rounds), err)
	}
	if _, err := Rounds("nonsense"); !exit.IsMistake(err) {
		t.Errorf("%v is no mistake", err)
	}
}

// What only a GPU carries out takes part if there is one to measure on.
func TestManagersOfAGPUComeWithATarget(t *testing.T) {
	for _, c := range []struct{ names, targets, want string }{
		{"joint", "sim", "joint"},
		{"joint", "cuda", "joint"},
		{"joint,async", "cuda:1", "joint,async"},
		{"async", "sim,cuda", "async"},
	} {
		list, err := Managers(c.names, c.targets)
		if got := called(list); got != c.want || err != nil {
			t.Errorf("%s on %s: %s, %v, want %s", c.names, c.targets, got, err, c.want)
		}
	}
	sim, err := Managers("", "sim")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := Managers("", "cuda")
	if err != nil || len(gpu) <= len(sim) {
		t.Errorf("%d managers on the simulator, %d on a GPU, %v", len(sim), len(gpu), err)
	}
	for _, c := range [][2]string{{"async", "sim"}, {"joint", "tpu"}} {
		if _, err := Managers(c[0], c[1]); !exit.IsMistake(err) {
			t.Errorf("%s: %v is no mistake", c, err)
		}
	}
}
