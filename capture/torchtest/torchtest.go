// Package torchtest helps tests that need a real PyTorch: it finds the interpreter and its version, and has a
// training that checks whether a visitor left anything behind.
package torchtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Python returns the interpreter with torch, which GMEMTOP_TORCH names. Without it the test is skipped.
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

// Needs skips the test if torch is older than least, because it lacks what.
func Needs(t testing.TB, least int, what string) {
	t.Helper()
	if Version(t) < least {
		text, _ := version()
		t.Skipf("needs torch %d.%d: %s; this is %s", least/100, least%100, what, text)
	}
}

// Folder returns a folder for the test. Unlike t.TempDir's, its path is short enough for a socket, and other
// users can be let into it.
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

// Torchrun is the command of a training on two GPUs, one rank each, over NCCL: cmd/gmemtop's
// testdata/ranks.py, wrapped in ddp or fsdp, for the given number of steps.
func Torchrun(t testing.TB, script, wrap string, steps int) []string {
	t.Helper()
	return []string{Python(t), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
		script, wrap, fmt.Sprint(steps)}
}

// LearnedAlone runs such a command without gmemtop and returns what its two ranks learned.
func LearnedAlone(t testing.TB, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, trouble.Bytes())
	}
	learned := Learned(out)
	if strings.Count(learned, "\n") != 4 {
		t.Fatalf("two ranks learned\n%s", learned)
	}
	return learned
}
