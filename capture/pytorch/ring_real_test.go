package pytorch_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// byProcess is a sink that keeps what each process of a job sends.
type byProcess struct {
	capture.Sink // of the process that is shown
	mu           sync.Mutex
	pid          int
	seen         map[int]*capture.History
}

func (b *byProcess) Begin(t capture.Info) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pid = t.PID
	if b.seen[b.pid] == nil {
		b.seen[b.pid] = capture.NewHistory(capture.Limits{})
	}
	b.Sink = b.seen[b.pid]
	b.Sink.Begin(t)
}

func (b *byProcess) Ended(t capture.Info, e capture.End) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[t.PID].End(e)
}

func (b *byProcess) Severed(capture.Info, error) {}

// TestStepsOfAKilledProcess: every step whose end a program saw is shown, whenever SIGKILL ends it. The
// viewer reads those that were not sent from the ring. It mostly does so before it learns of the end, since
// the kernel first frees the memory of a killed process and then closes its connection.
func TestStepsOfAKilledProcess(t *testing.T) {
	t.Parallel()
	const rounds = 4
	folder := t.TempDir()
	seen := &byProcess{seen: map[int]*capture.History{}}
	job, err := pytorch.Start(pytorch.Launch{Argv: []string{python(t), "testdata/killed.py", "1",
		strconv.Itoa(rounds), folder}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer cancel()
	if err := job.Run(ctx, seen); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != rounds {
		t.Fatalf("%d processes trained, %v", len(files), err)
	}
	for _, f := range files {
		pid, _ := strconv.Atoi(f.Name())
		said, err := os.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil || seen.seen[pid] == nil {
			t.Fatalf("process %d was not watched: %v", pid, err)
		}
		v := seen.seen[pid].Snapshot()
		// A forked process counts steps from its third one, and may have been killed before it said that the
		// last one has ended.
		ended := len(said) - 2
		if n := len(v.Steps); n < ended || n > ended+1 || len(v.Losses) > 0 {
			t.Errorf("process %d ended %d steps, and %d are shown; losses %+v", pid, ended, n, v.Losses)
		}
		for i, x := range v.Steps {
			if x.Index != int64(i) || !x.Parameters.IsKnown() || i > 0 && x.Start != v.Steps[i-1].End {
				t.Fatalf("process %d, step %d: %+v", pid, i, x)
			}
		}
		t.Logf("%d steps, %v of them recovered", len(v.Steps), v.End.Recovered)
	}
}
