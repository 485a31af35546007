package feed

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/live"
)

// bigger is the step of a rank that holds a GiB more in its optimizer from step 30 on.
func bigger(i int64) capture.Step {
	s := stepOf(i)
	if i >= 30 {
		s.RSS, s.OptimizerState = maybe.Known(3<<30), maybe.Known(1<<30+2<<20)
	}
	return s
}

func TestTheRanksOfAJobAreCompared(t *testing.T) {
	f := startJob(t)
	f.job.Begin(rankOf(0))
	list := []*job.Process{f.job.First()}
	for r := 1; r < 5; r++ {
		info := rankOf(r)
		info.Device, info.Remote, info.Host = "cuda:1", true, "node1"
		info.GPUs = []traces.Device{{Kind: traces.DeviceGPU, Ordinal: 1, TotalBytes: 80 << 30}}
		info.Axes = []traces.Axis{{Name: traces.Data, At: int64(r), Of: 5}}
		p := f.job.Add(info, nil)
		p.Begin(info)
		list = append(list, p)
	}
	for i := range int64(60) {
		for r, p := range list {
			s := stepOf(i)
			if r == 3 {
				s = bigger(i)
			}
			if r == 1 && i == 50 {
				s.End += 5e6
			}
			p.Step(s)
		}
	}
	list[1].History.Sever("late: nothing from node1 for 7s", false)
	list[2].History.Sever("nothing from node1 for 40s", true)
	list[4].End(capture.End{Reason: capture.Exited, Code: maybe.Known(1), Detail: "RuntimeError: boom"})
	l := until(t, f, "a comparison", func(l live.Look) bool {
		return l.Group != nil && len(l.Group.Ranks) == 5 && l.Group.First == 3 &&
			l.Group.Ranks[4].Is == runs.Failed && l.Group.Ranks[2].Is == runs.Missing
	})
	g := l.Group
	w := g.Why
	if w.Entry != runs.EntryOptimizer || w.EntryBytes != 1<<30 || w.Since != maybe.Known(30) || w.Always {
		t.Errorf("why: %+v", w)
	}
	latest := slices.MaxFunc(g.Skews, func(a, b runs.Skew) int { return cmp.Compare(a.By, b.By) })
	if len(g.Skews) != 60 || latest.Step != 50 || latest.By != 5e6 || latest.Rank != 1 {
		t.Errorf("%d skews, the largest %+v", len(g.Skews), latest)
	}
	m := g.Ranks
	if m[1].Is != runs.Late || m[3].Is != runs.Steps || m[3].Room != maybe.Known(80<<30) ||
		m[0].Room.IsKnown() || len(m[3].Axes) != 1 || !strings.Contains(m[4].Word, "boom") {
		t.Errorf("%+v", m)
	}
}

// A jump makes a slope for as long as it is among the steps looked at; nobody runs out of memory by it.
func TestAJumpIsNoGrowth(t *testing.T) {
	for name, c := range map[string]struct {
		bytes func(i int64) int64
		grows bool
	}{
		"flat":            {func(int64) int64 { return 2 << 30 }, false},
		"a jump long ago": {func(i int64) int64 { return 2<<30 + min(max(i-60, 0), 1)<<30 }, false},
		"it grows":        {func(i int64) int64 { return 2<<30 + i<<22 }, true},
	} {
		w := job.NewWatch(job.Options{})
		f := NewProcess(w.Process, "")
		w.Begin(capture.Info{Device: "cuda:0"})
		for i := range int64(200) {
			s := stepOf(i)
			s.Allocated = maybe.Known(c.bytes(i))
			w.Step(s)
		}
		f.take(t.Context())
		if got := f.growth(); got > 0 != c.grows {
			t.Errorf("%s: %v bytes a step", name, got)
		}
	}
}

// capturer captures at once what it is given, and fails for ranks without a trace.
func capturer(ranks map[int64]*traces.Trace) Capturer {
	return func(_ context.Context, list []*job.Process, _ int, tell func(string)) (out []job.Taken) {
		tell("capturing")
		for _, p := range list {
			x := job.Taken{Process: p, Err: errors.New("no memory")}
			if tr := ranks[p.Info().Rank.Or(-1)]; tr != nil {
				x.Window, x.Err = capture.Window{Trace: tr, First: 7, Last: 7, How: capture.HowOps}, nil
			}
			out = append(out, x)
		}
		return out
	}
}

func TestTheSameStepOfSeveralRanksComesWithTheLook(t *testing.T) {
	tr := timelinetest.Sample(t)
	j := job.New(job.NewWatch(job.Options{}))
	f := NewJob(j, "", JobOptions{Capture: capturer(map[int64]*traces.Trace{0: tr, 2: tr})})
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		f.Close()
	}()
	list, _ := train(j, 3, 20)
	until(t, f, "the ranks", func(l live.Look) bool { return len(l.Ranks) == 3 && l.Capture.Single })
	ids := []int{list[2].ID, list[0].ID, list[1].ID}
	if err := f.Order(t.Context(), live.Order{Kind: live.Same, Steps: 1, IDs: ids}); err != nil {
		t.Fatal(err)
	}
	l := until(t, f, "the capture", func(l live.Look) bool { return l.Together.Done })
	x := l.Together
	if x.ID != 1 || x.Word != "capturing" || x.Failed != "rank 1 was not captured: no memory" ||
		len(x.Windows) != 2 || x.Ranks[0].Rank != maybe.Known(2) || x.Windows[0].ID == x.Windows[1].ID {
		t.Errorf("%+v", x)
	}
	for i, w := range x.Windows {
		if p := w.Timeline.Trace.Process; p.Rank != x.Ranks[i].Rank {
			t.Errorf("the trace of %s says that it is of rank %v", x.Ranks[i].Name(), p.Rank)
		}
	}
	if tr.Process.Rank != timelinetest.Sample(t).Process.Rank {
		t.Error("the trace that others share was changed")
	}
	if err := f.Order(t.Context(), live.Order{Kind: live.Same, Steps: 1, IDs: []int{99}}); err == nil {
		t.Error("a rank that is not there was accepted")
	}
}

// BenchmarkFirstFrameOf1024Ranks is from a run of 1,024 ranks with 512 steps each, as a hub has them, to the
// first look with all ranks and their comparison.
func BenchmarkFirstFrameOf1024Ranks(b *testing.B) {
	var worst time.Duration
	for b.Loop() {
		b.StopTimer()
		j := job.New(job.NewWatch(job.Options{Keep: capture.Limits{Steps: 512}}))
		train(j, 1024, 512)
		b.StartTimer()
		begun := time.Now()
		f := NewJob(j, "", JobOptions{})
		l := f.Look()
		for ; len(l.Ranks) < 1024 || l.Group == nil || len(l.Group.Ranks) < 1024; l = f.Look() {
			if err := f.Wait(b.Context(), l.Version); err != nil {
				b.Fatal(err)
			}
		}
		worst = max(worst, time.Since(begun))
		b.StopTimer()
		if err := j.Close(); err != nil {
			b.Fatal(err)
		}
		f.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(worst.Milliseconds()), "ms-worst")
}
