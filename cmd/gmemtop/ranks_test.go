package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func rankOf(n int) capture.Info {
	return capture.Info{PID: 100 + n, Started: int64(7000 + n), Argv: []string{"python", "train.py"},
		Rank: maybe.Known(int64(n)), WorldSize: maybe.Known(4), Device: "cpu"}
}

// deaf accepts orders and ignores them.
type deaf struct{}

func (deaf) Order(context.Context, capture.Order) error { return nil }
func (deaf) Detach(context.Context) error               { return nil }

// train makes n ranks take steps.
func train(j *job.Job, n int, steps int64) []*job.Process {
	j.Begin(capture.Info{PID: 99}) // torchrun itself
	j.Begin(rankOf(0))
	list := []*job.Process{j.First()}
	for r := 1; r < n; r++ {
		p := j.Add(rankOf(r), deaf{})
		p.Begin(rankOf(r))
		list = append(list, p)
	}
	for i := range steps {
		j.Step(capture.Step{Index: i, Start: 1 + i, End: 2 + i, RSS: maybe.Known(2 << 30)})
		for _, p := range list[1:] {
			p.Step(capture.Step{Index: i, Start: 1 + i, End: 2 + i, RSS: maybe.Known(2 << 30)})
		}
	}
	return list
}

func TestEveryRankIsRecordedToAFileOfItsOwnAndTheyAreOneRun(t *testing.T) {
	dir := t.TempDir()
	c := runCommand{watcher: watcher{app: &app{}}}
	c.flags.output = filepath.Join(dir, "run.gmt")
	w, err := c.watch()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run-rank2.gmt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := job.New(w)
	f.Record = c.recordRank(false)
	list := train(f, 4, 20)
	for r, m := range list {
		if r == 0 {
			f.Window(capture.Window{Trace: timelinetest.Sample(t), First: 4, Last: 4, How: capture.HowOps})
		} else {
			m.Window(capture.Window{Trace: timelinetest.Sample(t), First: 4, Last: 4, How: capture.HowOps})
		}
	}
	f.End(capture.End{Reason: capture.Exited})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := list[2].Files(); err == nil || !strings.Contains(err.Error(),
		"run-rank2.gmt already exists") {
		t.Errorf("the existing file was not left alone: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "run-rank2.gmt")); err != nil {
		t.Fatal(err)
	}
	found, err := load.OpenRun(t.Context(), []string{dir}, load.Options{NoCache: true})
	if err != nil || len(found) != 3 {
		t.Fatalf("%d ranks: %v", len(found), err)
	}
	for i, want := range []int{0, 1, 3} {
		if found[i].Trace == nil || found[i].Trace.Process.Rank != maybe.Known(int64(want)) {
			t.Errorf("file %d is not of rank %d", i, want)
		}
	}
}

// recordingRun returns a run without a screen that records to run.gmt in a folder, and the file that holds
// what it says.
func recordingRun(t *testing.T) (c runCommand, dir, said string) {
	t.Helper()
	dir = t.TempDir()
	f, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	c.watcher = watcher{app: newApp(nil, f, f, nil)}
	c.flags.output = filepath.Join(dir, "run.gmt")
	return c, dir, f.Name()
}

// TestARankThatIsNoLongerRecordedIsReportedAtOnce makes creating the second file of a rank's recording fail
// in the middle of the job.
func TestARankThatIsNoLongerRecordedIsReportedAtOnce(t *testing.T) {
	c, dir, said := recordingRun(t)
	c.live.MaxSize = "1B"
	w, err := c.watch()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "run-rank1.001.gmt"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := job.New(w)
	f.Record = c.recordRank(false)
	list := train(f, 2, 3)
	m := list[1]
	for range 3 {
		m.Window(capture.Window{Trace: timelinetest.Sample(t), First: 1, Last: 1, How: capture.HowOps})
	}
	m.End(capture.End{}) // writes what it holds, as happens every second anyway
	b, err := os.ReadFile(said)
	if text := string(b); err != nil || strings.Count(text,
		"recording stopped: recording ") != 1 || !strings.Contains(text, "run-rank1.001.gmt") {
		t.Errorf("before the job has ended it is said: %q, %v", text, err)
	}
	f.End(capture.End{Reason: capture.Exited})
	if err := f.Close(); err == nil || !strings.Contains(err.Error(), "run-rank1.001.gmt") {
		t.Errorf("that of the second has the error %v", err)
	}
	if files, err := w.Files(); len(files) == 0 || err != nil {
		t.Errorf("the first is recorded: %v", err)
	}
}

// TestATriggerIsReportedInEveryRank uses a trigger that fires in two ranks, without a screen.
func TestATriggerIsReportedInEveryRank(t *testing.T) {
	c, _, said := recordingRun(t)
	c.live.Triggers = []string{"iteration=2"}
	w, err := c.watch()
	if err != nil {
		t.Fatal(err)
	}
	f := job.New(w)
	f.Record = c.recordRank(false)
	train(f, 2, 4)
	f.End(capture.End{Reason: capture.Exited})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(said)
	for _, want := range []string{"gmemtop: iteration=2: iteration 2 in step 2\n",
		"gmemtop: rank 1: iteration=2: iteration 2 in step 2\n"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%q is not said: %q, %v", want, text, err)
		}
	}
}

// ddp trains a line with two ranks over gloo, the second of which dawdles before its forward.
const ddp = `
import os, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(40):
    if dist.get_rank() == 1:
        time.sleep(0.03)
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
`

func TestRealRanksAreWatchedAndRecorded(t *testing.T) {
	python := torchtest.Python(t)
	dir := t.TempDir()
	script, said := filepath.Join(dir, "ddp.py"), filepath.Join(dir, "said")
	if err := os.WriteFile(script, []byte(ddp), 0o600); err != nil {
		t.Fatal(err)
	}
	runs := filepath.Join(dir, "runs")
	if err := os.Mkdir(runs, 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(said)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	none, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	ctx, cancel := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer cancel()
	code := newApp(none, log, log, os.Environ()).execute(ctx,
		[]string{"run", "--headless", "-o", filepath.Join(runs, "run.gmt"), "--",
			python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0",
			"--standalone",
			script})
	text, err := os.ReadFile(said)
	if code != 0 || err != nil {
		t.Fatalf("exit code %d, %v:\n%s", code, err, text)
	}
	if !strings.Contains(string(text), "2 processes trained, with steps: rank 0 40, rank 1 40") {
		t.Errorf("the summary leaves out ranks or steps:\n%s", text)
	}
	found, err := load.OpenRun(t.Context(), []string{runs}, load.Options{NoCache: true})
	if err != nil || len(found) != 2 {
		t.Fatalf("%d recordings: %v", len(found), err)
	}
	for i, r := range found {
		if r.Trace == nil || r.Trace.Process.Rank != maybe.Known(int64(i)) ||
			r.Trace.Process.WorldSize != maybe.Known(2) {
			t.Errorf("recording %d is not of rank %d of 2", i, i)
		}
	}
}
