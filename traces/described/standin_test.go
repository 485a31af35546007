//go:build standin

package described_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/traces/described"
)

// TestQuickLateGPUWorkCountsForItsStep: two equal steps have the same ops, however far the GPU is behind the
// host.
func TestQuickLateGPUWorkCountsForItsStep(t *testing.T) {
	lib := standintest.Library(t)
	path := filepath.Join(t.TempDir(), "steps.jsonl")
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", here)
	machine := standin.Machine{Order: standin.Late, Board: "private", Compute: true}
	cmd := exec.Command(standintest.Interpreter(t), "testdata/lagging.py", path)
	cmd.Env = append(lib.Environ(machine), "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := described.Read(context.Background(), bytes.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	var steps [2][]string
	for _, op := range tr.Ops {
		for k, m := range tr.Marks {
			if m.Start <= op.Start && op.Start < m.End {
				steps[k] = append(steps[k], tr.Text(op.Name))
			}
		}
	}
	if len(steps[0]) < 20 || !slices.Equal(steps[0], steps[1]) || len(steps[0])+len(steps[1]) != len(tr.Ops) {
		t.Errorf("%d ops, of which the first step has %d and the second %d", len(tr.Ops), len(steps[0]),
			len(steps[1]))
	}
	for k := range steps {
		if m := tr.Marks[k]; k > 0 && m.Start < tr.Marks[k-1].End {
			t.Errorf("step %d begins at %d, before the previous one ends at %d",
				k, m.Start, tr.Marks[k-1].End)
		}
	}
}
