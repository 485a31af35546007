//go:build standin

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// TestPyTorchIsAskedAboutEachStep trains for six steps; the third needs 64 MiB more. The first and the last
// step each lack the event at one end.
func TestPyTorchIsAskedAboutEachStep(t *testing.T) {
	lib, python := standintest.Library(t), standintest.Interpreter(t)
	dir := t.TempDir()
	script, file := filepath.Join(dir, "train.py"), filepath.Join(dir, "steps")
	if err := os.WriteFile(script, []byte(`import sys, torch
w = torch.randn(1 << 20, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    more = torch.empty(64 << 20 if step == 2 else 0, dtype=torch.uint8, device="cuda")
    loss = w.square().sum()
    loss.backward()
    del more
    optimizer.step()
    loss.item()
print(sys.argv[1])
`), 0o666); err != nil {
		t.Fatal(err)
	}
	m := standin.Machine{Clock: standin.Program, Rates: rates(), Board: filepath.Join(dir, "board")}
	r := standintest.Run(t, lib, m, python, "counted.py", file, script, "its argument")
	r.Check(t)
	if !strings.Contains(r.Stdout, "its argument") {
		t.Errorf("the script printed %q", r.Stdout)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	steps, err := readSteps(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != 4 {
		t.Fatalf("%d steps were written down: %v", len(steps), steps)
	}
	for i, s := range steps {
		want := steps[0].peak
		if i == 1 {
			want += 64 << 20
		}
		if s.plan != 0 || s.peak != want || s.took <= 0 {
			t.Errorf("step %d: %+v, want a peak of %d and a time", i+2, s, want)
		}
	}
	if steps[2].took != steps[3].took {
		t.Errorf("two steps that do the same took %d and %d ns", steps[2].took, steps[3].took)
	}
}
