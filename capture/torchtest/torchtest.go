// Package torchtest is what tests share that need a real PyTorch: the interpreter that has it, its version,
// and a training that says itself whether a visitor left anything behind. It imports nothing of ours.
package torchtest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Python returns the interpreter that has torch, which GMEMTOP_TORCH names; where it names none the test is
// skipped.
func Python(t testing.TB) string {
	t.Helper()
	p := os.Getenv("GMEMTOP_TORCH")
	if p == "" {
		t.Skip("needs GMEMTOP_TORCH: a Python interpreter that has torch")
	}
	return p
}

// version asks the interpreter for torch's version without importing it, which takes seconds.
var version = sync.OnceValues(func() (string, error) {
	out, err := exec.Command(os.Getenv("GMEMTOP_TORCH"), "-c",
		"import importlib.metadata as m; print(m.version('torch'))").Output()
	return strings.TrimSpace(string(out)), err
})

// Version returns the version of torch that the interpreter has: 206 is 2.6.
func Version(t testing.TB) int {
	t.Helper()
	p := Python(t)
	text, err := version()
	var major, minor int
	if _, scan := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil || scan != nil {
		t.Fatalf("the version of torch in %s: %q, %v, %v", p, text, err, scan)
	}
	return 100*major + minor
}

// Needs skips a test that a torch older than least cannot run, for want of what.
func Needs(t testing.TB, least int, what string) {
	t.Helper()
	if Version(t) < least {
		text, _ := version()
		t.Skipf("needs torch %d.%d: %s; this is %s", least/100, least%100, what, text)
	}
}

// Folder returns a folder for a test, which is gone with it. Unlike that of t.TempDir its path is short
// enough for a socket's, and other users can be let into it.
func Folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Learned returns the lines of a training's output that say what it learned.
func Learned(out []byte) string {
	var lines []string
	for l := range strings.Lines(string(out)) {
		if strings.HasPrefix(l, "losses") || strings.HasPrefix(l, "digest") {
			lines = append(lines, l)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
