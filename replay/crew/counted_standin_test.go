//go:build standin && linux && cgo

package crew

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// counted is what a step of testdata/counted.py printed about itself.
type counted struct {
	on                       int
	peak, reserved, ofDriver int64
}

// TestAPlanOnAStandinGPUTakesWhatIsPredicted compares the memory predicted for plans of a training on a GPU
// with the memory measured, and with the counts of torch and the driver inside the training: footprints are
// equal to the byte, and so is the whole process, context included. Each plan empties torch's cache once;
// nothing else does.
func TestAPlanOnAStandinGPUTakesWhatIsPredicted(t *testing.T) {
	for _, o := range inject.Check(os.Getpid()).Obstacles {
		if errors.Is(o, inject.ErrNotPermitted) || errors.Is(o, inject.ErrUnsupported) {
			t.Skip("needs the permission to trace a process of one's own: ", o)
		}
	}
	const context = int64(300 << 20)
	names := []string{"sqrt", "capuchin", "joint"}
	lib := standintest.Library(t)
	program := filepath.Join(t.TempDir(), "gmemtop")
	build := exec.Command("go", "build", "-o", program, "github.com/gmemtop/gmemtop/cmd/gmemtop")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	stop := filepath.Join(t.TempDir(), "stop")
	m := standin.Machine{Context: "300MiB", Board: filepath.Join(t.TempDir(), "board")}
	training, _ := standintest.Start(t, lib, m, standintest.Interpreter(t), "testdata/counted.py", stop)
	training.Env = append(training.Env, "CUBLAS_WORKSPACE_CONFIG=:16:8", "CUBLASLT_WORKSPACE_SIZE=128")
	training.Stdout = nil
	out, err := training.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := training.Start(); err != nil {
		t.Fatal(err)
	}
	begun, over := make(chan bool), make(chan []counted)
	go func() {
		var steps []counted
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var s counted
			if _, err := fmt.Sscanf(lines.Text(), "counted %d %d %d %d", &s.on, &s.peak, &s.reserved,
				&s.ofDriver); err == nil {
				if steps = append(steps, s); len(steps) == 5 {
					close(begun)
				}
			}
		}
		over <- steps
	}()
	select {
	case <-begun:
	case <-over:
		t.Fatalf("it ended before it trained: %v\n%s", training.Wait(), training.Stderr)
	}
	cmd, collect := standintest.Start(t, lib, m, program, "compare", "--target",
		fmt.Sprintf("live:%d", training.Process.Pid), "--budget", "75%", "--managers", strings.Join(names,
			","), "--json")
	did := collect(cmd.Run())
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	steps := <-over
	if err := training.Wait(); err != nil || did.Err != nil {
		t.Fatalf("%v, %v\n%s\n%s", err, did.Err, did.Stderr, training.Stderr)
	}
	var report struct {
		Results []struct {
			Manager, Target string
			Footprint       int64 `json:"footprint_bytes"`
			Predicted       int64 `json:"footprint_predicted_bytes"`
			Process         int64 `json:"process_bytes"`
			Before          int64 `json:"process_before_bytes"`
		}
	}
	if err := json.Unmarshal([]byte(did.Stdout), &report); err != nil {
		t.Fatal(err)
	}
	plans := 0
	for _, r := range report.Results {
		if r.Target != "live" {
			continue
		}
		plans++
		t.Logf("%s: %d bytes, predicted %d; the process %d, before %d", r.Manager, r.Footprint, r.Predicted,
			r.Process, r.Before)
		if r.Footprint != r.Predicted {
			t.Errorf("%s: %d bytes were predicted, and %d measured", r.Manager, r.Predicted, r.Footprint)
		}
		if !slices.ContainsFunc(steps, func(s counted) bool {
			return s.on == 1 && s.peak == r.Footprint &&
				s.ofDriver == r.Process
		}) {
			t.Errorf("%s: torch counted %d bytes, or the driver %d, in no step under a plan", r.Manager,
				r.Footprint, r.Process)
		}
		if !slices.ContainsFunc(steps, func(s counted) bool { return s.on == 0 && s.ofDriver == r.Before }) ||
			r.Before <= r.Process {
			t.Errorf("%s: the driver counted %d bytes in no step without a plan, or not more than the %d "+
				"with it", r.Manager, r.Before, r.Process)
		}
	}
	given := 0
	for i, s := range steps {
		if s.ofDriver != context+s.reserved {
			t.Fatalf("the driver counts %d bytes, and torch reserves %d", s.ofDriver, s.reserved)
		}
		if i > 0 && s.reserved < steps[i-1].reserved {
			given++
		}
	}
	if plans != len(names) || given != plans {
		t.Errorf("%d plans, %d of them carried out, and torch's cache emptied %d times", len(names),
			plans, given)
	}
}
