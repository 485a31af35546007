package feed

import (
	"context"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/live"
)

// Run waits: the source is the test.
func (o *orders) Run(ctx context.Context, _ capture.Sink) error {
	<-ctx.Done()
	return ctx.Err()
}

// startJob makes the feed of a job whose source is the test.
func startJob(t *testing.T) *Job {
	t.Helper()
	w := job.NewWatch(job.Options{})
	f := NewJob(job.New(w), "for the command to load torch", JobOptions{})
	ctx, stop := context.WithCancel(context.Background())
	w.Run(ctx, &orders{})
	t.Cleanup(func() {
		stop()
		if err := f.job.Close(); err != nil {
			t.Error(err)
		}
		f.Close()
	})
	return f
}

func rankOf(n int) capture.Info {
	return capture.Info{PID: 100 + n, Started: int64(7000 + n), Argv: []string{"python", "train.py"},
		Rank: maybe.Known(int64(n)), WorldSize: maybe.Known(4), Device: "cpu"}
}

// train makes n ranks take steps. orders[i] holds what rank i was asked.
func train(j *job.Job, n int, steps int64) ([]*job.Process, []*orders) {
	j.Begin(capture.Info{PID: 99}) // torchrun itself
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
	l := until(t, f, "20 steps", func(l live.Look) bool { return len(l.Steps) == 20 })
	if l.Ranks != nil || l.Title != "train.py" {
		t.Errorf("%+v", l.Ranks)
	}
	f.job.End(capture.End{Reason: capture.Exited, Code: maybe.Known(3), Detail: "RuntimeError: boom"})
	l = until(t, f, "the end", func(l live.Look) bool { return l.State == live.Ended })
	if l.Word != "exit code 3: RuntimeError: boom" || !l.Failed {
		t.Errorf("%q", l.Word)
	}
}

// gmemtop run follows the command to its end, also after it was detached from.
func TestACommandThatWasDetachedFromIsShownAsDetachedUntilItEnds(t *testing.T) {
	for _, steps := range []int64{0, 20} {
		f := startJob(t)
		list, _ := train(f.job, 1, steps)
		f.job.Ended(list[0].Info(), capture.End{Reason: capture.Detached})
		l := until(t, f, "detached", func(l live.Look) bool { return l.Detached })
		if l.State == live.Ended || l.Capture.Connected {
			t.Errorf("after %d steps: the command has not ended, and takes no orders: %+v", steps, l.Capture)
		}
		f.job.End(capture.End{Reason: capture.Exited, Code: maybe.Known(3)})
		l = until(t, f, "the end", func(l live.Look) bool { return l.State == live.Ended })
		if l.Detached || l.Word != "exit code 3" {
			t.Errorf("after %d steps: detached %v, %q", steps, l.Detached, l.Word)
		}
	}
}

func TestEveryProcessThatStepsIsInTheListAndOneOfThemIsShown(t *testing.T) {
	f := startJob(t)
	list, asked := train(f.job, 4, 20)
	f.job.Add(rankOf(9), &orders{}).Begin(rankOf(9)) // imports torch and never steps
	list[2].Window(capture.Window{Trace: timelinetest.Sample(t), First: 4, Last: 4, How: capture.HowOps})
	l := until(t, f, "four ranks", func(l live.Look) bool {
		return len(l.Ranks) == 4 && len(l.Steps) == 20 && l.Ranks[2].Captured == 1 &&
			l.Ranks[3].Step == maybe.Known(19)
	})
	if l.Chosen != 0 || len(l.Windows) != 0 || l.Ranks[3].Rank != maybe.Known(3) || l.Ranks[3].PID != 103 ||
		l.Ranks[3].Typical.Duration != maybe.Known(40e6) {
		t.Errorf("%+v", l)
	}
	if err := f.Order(t.Context(), live.Order{Kind: live.Choose, Rank: l.Ranks[2].ID}); err != nil {
		t.Fatal(err)
	}
	if l = f.Look(); l.Chosen != l.Ranks[2].ID || len(l.Windows) != 1 || len(l.Steps) != 20 {
		t.Errorf("rank 2 was chosen and %d is shown with %d windows", l.Chosen, len(l.Windows))
	}
	// A rank that starts again is a process more, and no rank more.
	again := f.job.Add(rankOf(3), nil)
	again.Begin(rankOf(3))
	again.Step(stepOf(0))
	until(t, f, "five processes and four ranks", func(l live.Look) bool {
		return len(l.Ranks) == 5 && l.Among() == "of 4"
	})
	if err := f.Order(t.Context(), live.Order{Kind: live.Describe, Steps: 1}); err != nil {
		t.Error(err)
	}
	if got := asked[2].taken(); got != "describe" {
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
	list[1].End(capture.End{Reason: capture.Exited, Detail: "RuntimeError: boom"})
	l := until(t, f, "rank 1 has died", func(l live.Look) bool {
		return len(l.Ranks) == 4 &&
			l.Ranks[1].State == live.Ended
	})
	if !l.Ranks[1].Failed || !strings.Contains(l.Ranks[1].Word, "boom") || l.State == live.Ended {
		t.Errorf("%+v", l.Ranks[1])
	}
	f.job.End(capture.End{Reason: capture.Exited, Code: maybe.Known(1), Detail: "the process is gone"})
	l = until(t, f, "the end", func(l live.Look) bool {
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
	until(t, f, "three ranks", func(l live.Look) bool { return len(l.Ranks) == 3 })
	f.job.Begin(rankOf(1)) // the source says no more of rank 0 than that another takes its place
	f.job.Step(stepOf(20))
	l := until(t, f, "rank 1 goes on", func(l live.Look) bool {
		return l.Ranks[1].Step == maybe.Known(20) &&
			l.Ranks[0].State == live.Ended
	})
	if l.Ranks[0].Step != maybe.Known(19) || l.Chosen != 0 {
		t.Errorf("%+v", l.Ranks)
	}
}

func TestTheEndOfTheFirstRankIsTakenWhereTheSourceSaysIt(t *testing.T) {
	f := startJob(t)
	train(f.job, 3, 20)
	f.job.Ended(rankOf(2), capture.End{Reason: capture.Exited, Detail: "of another"})
	f.job.Ended(rankOf(0), capture.End{Reason: capture.Exited, Detail: "RuntimeError: boom"})
	l := until(t, f, "rank 0 has died", func(l live.Look) bool {
		return len(l.Ranks) == 3 &&
			l.Ranks[0].State == live.Ended
	})
	if l.Ranks[0].Word != "RuntimeError: boom" || l.Ranks[2].State == live.Ended {
		t.Errorf("%+v", l.Ranks)
	}
	f.job.End(capture.End{Reason: capture.Exited, Code: maybe.Known(1), Detail: "ChildFailedError"})
	l = until(t, f, "the end", func(l live.Look) bool { return l.State == live.Ended })
	if l.Word != "exit code 1; rank 0: RuntimeError: boom" {
		t.Errorf("%q", l.Word)
	}
}

func TestScriptsInARowAreTwoProcessesAndTheOneThatRunsIsShown(t *testing.T) {
	f := startJob(t)
	train(f.job, 1, 20)
	second := capture.Info{PID: 300, Started: 9000, Argv: []string{"python", "finetune.py"}}
	f.job.Begin(second)
	f.job.Step(stepOf(0))
	l := until(t, f, "the second script", func(l live.Look) bool {
		return len(l.Ranks) == 2 &&
			l.Chosen != 0 && l.Ranks[0].State == live.Ended && len(l.Steps) > 0
	})
	if len(l.Steps) != 1 || l.Ranks[0].State != live.Ended || l.Ranks[0].Failed ||
		l.Ranks[1].Title != "finetune.py" {
		t.Errorf("%d steps, %+v", len(l.Steps), l.Ranks)
	}
}

func BenchmarkLookAt64Ranks(b *testing.B) {
	f := NewJob(job.New(job.NewWatch(job.Options{})), "", JobOptions{})
	train(f.job, 64, 600)
	f.First.take(b.Context())
	for b.Loop() {
		if l := f.Look(); len(l.Ranks) != 64 {
			b.Fatal(len(l.Ranks))
		}
	}
	b.StopTimer()
	if err := f.job.Close(); err != nil {
		b.Fatal(err)
	}
	f.Close()
}

func BenchmarkBringingAFeedUpToDate(b *testing.B) {
	w := job.NewWatch(job.Options{})
	f := NewProcess(w.Process, "")
	f.show(false)
	for i := range int64(600) {
		w.Step(stepOf(i))
	}
	for b.Loop() {
		f.take(b.Context())
	}
}
