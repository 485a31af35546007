package planner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/replay/emit"
)

// A plan on standard output has no name and nothing beside it.
func TestAPlanOnAStreamNeedsNoFileBesideIt(t *testing.T) {
	for _, path := range []string{"", "-", os.DevNull} {
		x := Python{Path: path}
		module, err := x.module()
		beside, wrong := x.Runtime()
		if x.IsFile() || module != "" || err != nil || beside != "" || wrong != nil {
			t.Errorf("%q: module %q (%v), beside it %q (%v)", path, module, err, beside, wrong)
		}
	}
}

func TestTheFileOfRulesIsWrittenUnlessItIsThere(t *testing.T) {
	dir := t.TempDir()
	x := Python{Path: filepath.Join(dir, "less_memory.py")}
	if module, err := x.module(); module != "less_memory" || err != nil {
		t.Errorf("module %q, %v", module, err)
	}
	bad := Python{Path: filepath.Join(dir, "less-memory.py")}
	if _, err := bad.module(); !exit.IsMistake(err) {
		t.Errorf("%s: %v, want a mistake", bad.Path, err)
	}
	rules := filepath.Join(dir, emit.Runtime)
	look := func(when, want string, refused bool) {
		t.Helper()
		if got, err := x.Runtime(); got != want || (err != nil) != refused {
			t.Errorf("%s: %q, %v", when, got, err)
		}
	}
	look("without it", rules, false)
	if err := os.WriteFile(rules, []byte("# another version\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	look("beside another version", "", true)
	x.Force = true
	look("beside another version with -f", rules, false)
	if err := os.WriteFile(rules, []byte(emit.RuntimeSource()), 0o600); err != nil {
		t.Fatal(err)
	}
	look("with it", "", false)
}
