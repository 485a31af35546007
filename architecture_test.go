// Package gmemtop_test holds what is true of the tree as a whole.
package gmemtop_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gmemtop/gmemtop/"

// floors lists the packages from the ground up: a package may import its own floor's sub-packages only where
// allowed, and no package of a floor above. Longer prefixes win.
var floors = []struct {
	prefix string
	floor  int
}{
	{"capture/torchtest", 0}, {"capture/await", 0}, {"capture/standin", 0}, {"capture/standin/", 0},
	{"examples", 0},
	{"traces/maybe", 0}, {"traces/wholefile", 0}, {"traces/load", 2}, {"traces/", 1}, {"traces", 0},
	{"capture/pytorch/agent", 0}, {"capture/pytorch/inject", 0}, {"capture/procs", 0}, {"capture/nvml", 0},
	{"capture/say", 0},
	{"capture", 2}, {"capture/", 3},
	{"timeline/frames", 2}, {"timeline", 3},
	{"timeline/sites", 4}, {"timeline/steps", 4}, {"timeline/timelinetest", 4}, {"timeline/", 5},
	{"managers/plan/", 5}, {"managers/plan", 5}, {"managers/pack", 5}, {"managers/milp", 5},
	{"managers/place", 6}, {"managers/chain", 6}, {"managers/", 7}, {"managers", 8},
	{"replay/crew", 8}, {"replay/emit", 8}, {"replay/", 6}, {"replay", 7},
	{"tui/", 9}, {"tui", 10},
	{"cmd/", 11}, {"scripts/", 11},
}

func floorOf(path string) (int, bool) {
	rel, ok := strings.CutPrefix(path, module)
	if !ok {
		return 0, false
	}
	for _, f := range floors {
		if rel == f.prefix || strings.HasSuffix(f.prefix, "/") && strings.HasPrefix(rel, f.prefix) {
			return f.floor, true
		}
	}
	return -1, true
}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		switch err := dec.Decode(&l); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, l)
	}
}

func TestArrowsBetweenPackagesOnlyPointDown(t *testing.T) {
	for _, p := range list(t) {
		from, ours := floorOf(p.ImportPath)
		if !ours || p.ImportPath == strings.TrimSuffix(module, "/") {
			continue
		}
		if from < 0 {
			t.Errorf("%s stands on no floor: give it one in this test", p.ImportPath)
			continue
		}
		for _, dep := range p.Deps {
			if to, ours := floorOf(dep); ours && to > from {
				t.Errorf("%s (floor %d) reaches up to %s (floor %d)", p.ImportPath, from, dep, to)
			}
		}
	}
}

func TestTheTerminalNeverCapturesAndTheTimelineKnowsNoTerminal(t *testing.T) {
	all := list(t)
	// our packages that use cgo; the standard library's own use of it is not ours to forbid
	usesC := map[string]bool{}
	for _, p := range all {
		usesC[p.ImportPath] = slices.Contains(p.Imports, "C")
	}
	for _, p := range all {
		rel := strings.TrimPrefix(p.ImportPath, module)
		for _, dep := range append(p.Deps, p.ImportPath) {
			switch {
			case strings.HasPrefix(rel, "tui") && (dep != module+"capture/say" && // words alone
				strings.HasPrefix(dep, module+"capture") || usesC[dep]):
				t.Errorf("%s reaches %s", p.ImportPath, dep)
			case strings.HasPrefix(rel, "capture") && strings.HasPrefix(dep, module+"timeline"):
				t.Errorf("%s reaches %s: a source makes traces", p.ImportPath, dep)
			case strings.HasPrefix(rel, "timeline") && strings.HasPrefix(dep, "charm.land/"):
				t.Errorf("%s reaches %s", p.ImportPath, dep)
			case strings.HasPrefix(rel, "managers") && strings.HasPrefix(dep, module+"replay"):
				t.Errorf("%s reaches %s: a planner is handed an Evaluator", p.ImportPath, dep)
			case strings.HasPrefix(rel, "replay") && strings.HasPrefix(dep, module+"managers") &&
				!strings.HasPrefix(dep, module+"managers/plan"):
				t.Errorf("%s reaches %s: a target knows plans, not planners", p.ImportPath, dep)
			case !strings.HasPrefix(rel, "cmd/") && !strings.HasPrefix(rel, "tui") &&
				strings.HasPrefix(dep, module+"tui"):
				t.Errorf("%s reaches %s", p.ImportPath, dep)
			}
		}
	}
}
