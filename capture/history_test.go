package capture_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
)

func TestAHistoryKeepsTheNewestStepsAndSnapshotsDoNotChange(t *testing.T) {
	s := capture.NewHistory(capture.Limits{Steps: 10})
	var views []capture.View
	for i := range int64(57) {
		s.Step(capture.Step{Index: i})
		views = append(views, s.Snapshot())
	}
	for n, v := range views {
		if len(v.Steps) < min(n+1, 10) || len(v.Steps) > 11 || v.Seen() != int64(n+1) {
			t.Fatalf("after %d steps there are %d", n+1, len(v.Steps))
		}
		for k, x := range v.Steps {
			if want := int64(n - len(v.Steps) + 1 + k); x.Index != want {
				t.Fatalf("the view after %d steps now has %d where it had %d", n+1, x.Index, want)
			}
		}
	}
}

func TestAHistoryKeepsWindowsUnderItsLimitAndAlwaysTheNewest(t *testing.T) {
	s := capture.NewHistory(capture.Limits{WindowBytes: 100})
	for i := range int64(8) {
		s.Window(capture.Window{First: i, Bytes: 40})
		v := s.Snapshot()
		if got := v.Windows[len(v.Windows)-1].First; got != i || len(v.Windows) > 2 {
			t.Fatalf("window %d of %d after window %d", got, len(v.Windows), i)
		}
	}
	s.Window(capture.Window{First: 8, Bytes: 1000})
	if v := s.Snapshot(); len(v.Windows) != 1 || v.Windows[0].First != 8 {
		t.Errorf("a window larger than the limit: %v", v.Windows)
	}
	s.Window(capture.Window{First: 9, Bytes: 40})
	if v := s.Snapshot(); len(v.Windows) != 1 || v.Windows[0].First != 9 {
		t.Errorf("the window after: %v", v.Windows)
	}
}

func TestAHistoryKeepsTheTailOfTheOutputAndCountsTheRest(t *testing.T) {
	s := capture.NewHistory(capture.Limits{Output: 100})
	all := ""
	for i := range 50 {
		p := strings.Repeat(string(rune('a'+i%26)), 1+i*7%60)
		all += p
		s.Output([]byte(p))
		v := s.Snapshot()
		if !strings.HasSuffix(all, string(v.Output)) || int64(len(v.Output))+v.OutputCut != int64(len(all)) ||
			len(v.Output) < min(100, len(all)) {
			t.Fatalf("after %d bytes: %d kept, %d cut", len(all), len(v.Output), v.OutputCut)
		}
	}
	s.Output(bytes.Repeat([]byte("z"), 1000))
	if v := s.Snapshot(); !bytes.HasSuffix(v.Output, bytes.Repeat([]byte("z"), 100)) {
		t.Errorf("%q", v.Output)
	}
}

func TestANoticeReplacesThePreviousOneAndLossesAddUp(t *testing.T) {
	s := capture.NewHistory(capture.Limits{})
	s.Notice(capture.Notice{Key: "state", Text: "waiting", State: true})
	s.Notice(capture.Notice{Key: "graphs", Text: "not seen"})
	s.Notice(capture.Notice{Key: "state", Text: "running", State: true})
	s.Lose("steps", 3, "late")
	s.Lose("steps", 4, "late")
	v := s.Snapshot()
	if len(v.Notices) != 2 || v.Notices[1].Text != "running" || len(v.Losses) != 1 || v.Losses[0].Count != 7 {
		t.Errorf("%+v", v)
	}
	s.Notice(capture.Notice{Key: "state"})
	if got := s.Snapshot(); len(got.Notices) != 1 || len(v.Notices) != 2 {
		t.Errorf("%v, and before %v", got.Notices, v.Notices)
	}
}

func TestAHistoryIsSafeToReadWhileItIsFed(t *testing.T) {
	s := capture.NewHistory(capture.Limits{Steps: 20, Output: 50, WindowBytes: 100})
	var work sync.WaitGroup
	work.Go(func() {
		for i := range int64(2000) {
			s.Begin(capture.Info{PID: int(i)})
			s.Step(capture.Step{Index: i})
			s.Output([]byte("hello"))
			s.Window(capture.Window{First: i, Bytes: 30})
			s.Notice(capture.Notice{Key: string(rune('a' + i%7)), Text: "x"})
			s.Lose("x", 1, "")
		}
		s.End(capture.End{Reason: capture.Exited})
	})
	work.Go(func() {
		for last := uint64(0); ; {
			v, err := s.Wait(t.Context(), last)
			if err != nil || v.Version <= last {
				t.Errorf("version %d after %d: %v", v.Version, last, err)
				return
			}
			last = v.Version
			for i := 1; i < len(v.Steps); i++ {
				if v.Steps[i].Index != v.Steps[i-1].Index+1 {
					t.Error("steps out of order")
				}
			}
			if v.Ended {
				return
			}
		}
	})
	work.Wait()
}
