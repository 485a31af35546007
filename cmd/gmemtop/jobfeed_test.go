package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/tui/live"
)

// Run waits: the source is the test.
func (o *orders) Run(ctx context.Context, _ capture.Sink) error {
	<-ctx.Done()
	return ctx.Err()
}

// startJob makes the feed of a job whose source is the test.
func startJob(t *testing.T) *jobFeed {
	t.Helper()
	w := job.NewWatch(job.Options{})
	f := newJobFeed(job.New(w), "for the command to load torch")
	ctx, stop := context.WithCancel(context.Background())
	w.Run(ctx, &orders{})
	t.Cleanup(func() {
		stop()
		if err := f.job.Close(); err != nil {
			t.Error(err)
		}
		f.close()
	})
	return f
}

func rankOf(n int) capture.Target {
	return capture.Target{PID: 100 + n, Started: int64(7000 + n), Argv: []string{"python", "train.py"},
		Rank: n, WorldSize: 4, Device: "cpu"}
}

// untilJob waits for a look of which something holds.
func untilJob(t *testing.T, f *jobFeed, what string, ok func(l live.Look) bool) live.Look {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for l := f.Look(); ; l = f.Look() {
		if ok(l) {
			return l
		}
		if f.Wait(ctx, l.Version) != nil {
			t.Fatalf("never came: %s; ranks %+v, state %v %q", what, l.Ranks, l.State, l.Word)
		}
	}
}

// train has the first rank and n-1 others take steps. What the others are asked is in the orders of the same
// index.
func train(j *job.Job, n int, steps int64) ([]*job.Process, []*orders) {
	j.Begin(capture.Target{PID: 99, Rank: -1}) // torchrun itself
	j.Begin(rankOf(0))
	list, asked := []*job.Process{j.First()}, []*orders{nil}
	for r := 1; r < n; r++ {
		asked = append(asked, &orders{})
		p := j.Add(rankOf(r), asked[r])
		p.Begin(rankOf(r))
		list = append(list, p)
	}
	for i := range steps {
		j.Step(stepOf(i))
		for _, p := range list[1:] {
			p.Step(stepOf(i))
		}
	}
	return list, asked
}

func TestAJobOfOneProcessHasNoRanks(t *testing.T) {
	f := startJob(t)
	train(f.job, 1, 20)
	l := untilJob(t, f, "20 steps", func(l live.Look) bool { return len(l.Steps) == 20 })
	if l.Ranks != nil || l.Title != "train.py" {
		t.Errorf("%+v", l.Ranks)
	}
	f.job.End(capture.End{Reason: capture.Exited, Code: 3, Detail: "RuntimeError: boom"})
	l = untilJob(t, f, "the end", func(l live.Look) bool { return l.State == live.Ended })
	if l.Word != "exit code 3: RuntimeError: boom" || !l.Failed {
		t.Errorf("%q", l.Word)
	}
}

func TestEveryProcessThatStepsIsInTheListAndOneOfThemIsShown(t *testing.T) {
	f := startJob(t)
	list, asked := train(f.job, 4, 20)
	f.job.Add(rankOf(9), &orders{}).Begin(rankOf(9)) // imports torch and never steps
	list[2].Window(capture.Window{Trace: sampleTrace(t), First: 4, Last: 4, How: capture.HowOps})
	l := untilJob(t, f, "four ranks", func(l live.Look) bool {
		return len(l.Ranks) == 4 && len(l.Steps) == 20 && l.Ranks[2].Captured == 1 && l.Ranks[3].Step == 19
	})
	if l.Chosen != 0 || len(l.Windows) != 0 || l.Ranks[3].Rank != 3 || l.Ranks[3].PID != 103 ||
		l.Ranks[3].Typical.Duration != 40e6 {
		t.Errorf("%+v", l)
	}
	if err := f.Order(t.Context(), live.Order{Kind: live.Choose, Rank: l.Ranks[2].ID}); err != nil {
		t.Fatal(err)
	}
	if l = f.Look(); l.Chosen != l.Ranks[2].ID || len(l.Windows) != 1 || len(l.Steps) != 20 {
		t.Errorf("rank 2 was chosen and %d is shown with %d windows", l.Chosen, len(l.Windows))
	}
	if err := f.Order(t.Context(), live.Order{Kind: live.Describe, Steps: 1}); err != nil {
		t.Error(err)
	}
	if got := asked[2].got; len(got) != 1 || got[0] != "describe" {
		t.Errorf("rank 2 was asked %v", got)
	}
}

func TestOutputIsTheJobsWhicheverRankIsShown(t *testing.T) {
	f := startJob(t)
	list, _ := train(f.job, 2, 10)
	f.job.Output([]byte("epoch 1\n"))
	if err := f.Order(t.Context(), live.Order{Kind: live.Choose, Rank: list[1].ID}); err != nil {
		t.Fatal(err)
	}
	if l := f.Look(); len(l.Output) != 1 || l.Output[0] != "epoch 1" {
		t.Errorf("%q", l.Output)
	}
}

func TestARankThatDiesStaysInTheListAndSaysWhy(t *testing.T) {
	f := startJob(t)
	list, _ := train(f.job, 4, 20)
	list[1].End(capture.End{Reason: capture.Exited, Code: -1, Detail: "RuntimeError: boom"})
	l := untilJob(t, f, "rank 1 has died", func(l live.Look) bool {
		return len(l.Ranks) == 4 &&
			l.Ranks[1].State == live.Ended
	})
	if !l.Ranks[1].Failed || !strings.Contains(l.Ranks[1].Word, "boom") || l.State == live.Ended {
		t.Errorf("%+v", l.Ranks[1])
	}
	f.job.End(capture.End{Reason: capture.Exited, Code: 1, Detail: "the process is gone"})
	l = untilJob(t, f, "the end", func(l live.Look) bool {
		return l.State == live.Ended &&
			l.Ranks[3].State == live.Ended
	})
	if !l.Failed || !strings.HasPrefix(l.Word, "exit code 1; rank ") {
		t.Errorf("%q", l.Word)
	}
}

func TestTheJobsSinkPassesToAnotherRankWhenTheFirstHasEnded(t *testing.T) {
	f := startJob(t)
	train(f.job, 3, 20)
	untilJob(t, f, "three ranks", func(l live.Look) bool { return len(l.Ranks) == 3 })
	f.job.Begin(rankOf(1)) // the source says no more of rank 0 than that another takes its place
	f.job.Step(stepOf(20))
	l := untilJob(t, f, "rank 1 goes on", func(l live.Look) bool {
		return l.Ranks[1].Step == 20 &&
			l.Ranks[0].State == live.Ended
	})
	if l.Ranks[0].Step != 19 || l.Chosen != 0 {
		t.Errorf("%+v", l.Ranks)
	}
}

func TestTheEndOfTheFirstRankIsTakenWhereTheSourceSaysIt(t *testing.T) {
	f := startJob(t)
	train(f.job, 3, 20)
	f.job.Ended(rankOf(2), capture.End{Reason: capture.Exited, Code: -1, Detail: "of another"})
	f.job.Ended(rankOf(0), capture.End{Reason: capture.Exited, Code: -1, Detail: "RuntimeError: boom"})
	l := untilJob(t, f, "rank 0 has died", func(l live.Look) bool {
		return len(l.Ranks) == 3 &&
			l.Ranks[0].State == live.Ended
	})
	if l.Ranks[0].Word != "RuntimeError: boom" || l.Ranks[2].State == live.Ended {
		t.Errorf("%+v", l.Ranks)
	}
	f.job.End(capture.End{Reason: capture.Exited, Code: 1, Detail: "ChildFailedError"})
	l = untilJob(t, f, "the end", func(l live.Look) bool { return l.State == live.Ended })
	if l.Word != "exit code 1; rank 0: RuntimeError: boom" {
		t.Errorf("%q", l.Word)
	}
}

func TestScriptsInARowAreTwoProcessesAndTheOneThatRunsIsShown(t *testing.T) {
	f := startJob(t)
	train(f.job, 1, 20)
	second := capture.Target{PID: 300, Started: 9000, Argv: []string{"python", "finetune.py"}, Rank: -1}
	f.job.Begin(second)
	f.job.Step(stepOf(0))
	l := untilJob(t, f, "the second script", func(l live.Look) bool {
		return len(l.Ranks) == 2 &&
			l.Chosen != 0 && l.Ranks[0].State == live.Ended
	})
	if len(l.Steps) != 1 || l.Ranks[0].State != live.Ended || l.Ranks[0].Failed ||
		l.Ranks[1].Title != "finetune.py" {
		t.Errorf("%d steps, %+v", len(l.Steps), l.Ranks)
	}
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
	list, _ := train(f, 4, 20)
	for r, m := range list {
		if r == 0 {
			f.Window(capture.Window{Trace: sampleTrace(t), First: 4, Last: 4, How: capture.HowOps})
		} else {
			m.Window(capture.Window{Trace: sampleTrace(t), First: 4, Last: 4, How: capture.HowOps})
		}
	}
	f.End(capture.End{Reason: capture.Exited})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := list[2].Files(); err == nil || !strings.Contains(err.Error(),
		"run-rank2.gmt is there already") {
		t.Errorf("what is there was not kept: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "run-rank2.gmt")); err != nil {
		t.Fatal(err)
	}
	found, err := load.OpenRun(t.Context(), []string{dir}, load.Options{NoCache: true})
	if err != nil || len(found) != 3 {
		t.Fatalf("%d ranks: %v", len(found), err)
	}
	for i, want := range []int{0, 1, 3} {
		if found[i].Trace == nil || found[i].Trace.Process.Rank != want {
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

// TestARankThatIsNotRecordedAnyMoreIsToldOfAtOnce has the second file of a rank's recording refused, in the
// middle of the job.
func TestARankThatIsNotRecordedAnyMoreIsToldOfAtOnce(t *testing.T) {
	c, dir, said := recordingRun(t)
	c.live.maxBytes = "1B"
	w, err := c.watch()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "run-rank1.001.gmt"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := job.New(w)
	f.Record = c.recordRank(false)
	list, _ := train(f, 2, 3)
	m := list[1]
	for range 3 {
		m.Window(capture.Window{Trace: sampleTrace(t), First: 1, Last: 1, How: capture.HowOps})
	}
	m.End(capture.End{}) // which writes what it holds, as a second that goes by does
	b, err := os.ReadFile(said)
	if text := string(b); err != nil || strings.Count(text,
		"nothing is recorded any more: recording ") != 1 || !strings.Contains(text, "run-rank1.001.gmt") {
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

// TestATriggerIsToldOfInEveryRank has one that holds in both, where there is no screen.
func TestATriggerIsToldOfInEveryRank(t *testing.T) {
	c, _, said := recordingRun(t)
	c.live.triggers = []string{"iteration=2"}
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
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
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
		if r.Trace == nil || r.Trace.Process.Rank != i || r.Trace.Process.WorldSize != 2 {
			t.Errorf("recording %d is not of rank %d of 2", i, i)
		}
	}
}

func BenchmarkLookAt64Ranks(b *testing.B) {
	f := newJobFeed(job.New(job.NewWatch(job.Options{})), "")
	train(f.job, 64, 600)
	f.first.take(b.Context())
	for b.Loop() {
		if l := f.Look(); len(l.Ranks) != 64 {
			b.Fatal(len(l.Ranks))
		}
	}
	b.StopTimer()
	if err := f.job.Close(); err != nil {
		b.Fatal(err)
	}
	f.close()
}

func BenchmarkBringingAFeedUpToDate(b *testing.B) {
	w := job.NewWatch(job.Options{})
	f := newSessionFeed(w.Process, "")
	f.show(false)
	for i := range int64(600) {
		w.Step(stepOf(i))
	}
	for b.Loop() {
		f.take(b.Context())
	}
}
