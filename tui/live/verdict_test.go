package live

import (
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
)

// At the threshold between steady and a leak the trend crosses it from look to look. The sentence does not
// flip with it: as long as that lasts, it says both.
func TestTheVerdictDoesNotFlip(t *testing.T) {
	_, v, _ := open(t, running(t, 160))
	first := v.look.sentence(timeline.IEC)
	if !strings.Contains(first, "no leak") {
		t.Fatalf("a steady job: %q", first)
	}
	look := func(after int64, leaking bool) string {
		l := running(t, 160)
		for i := range l.Steps {
			l.Steps[i].Index += after
		}
		l.Report.Trend.Leaking, l.Report.Trend.Slope = leaking, 1<<20
		if leaking {
			l.Alerts = append(l.Alerts, Alert{Kind: Leak, Step: 160 + after, Size: 1 << 20})
		}
		v.Take(l)
		return v.look.sentence(timeline.IEC)
	}
	for i := range int64(20) {
		text := look(1+i, i%2 == 0)
		if !strings.Contains(text, "too early to call it a leak") ||
			strings.Contains(text, "no leak") || strings.Contains(text, ": a leak") {
			t.Errorf("look %d, at the threshold: %q", i, text)
		}
		if leakNews(v) {
			t.Errorf("look %d is news in other views", i)
		}
	}
	if text := look(21+settling, false); !strings.Contains(text, "no leak") || v.look.unsettled {
		t.Errorf("%d steady steps later: %q", settling, text)
	}
	look(22+settling, true)
	if text := look(22+2*settling, true); !strings.Contains(text, ": a leak") {
		t.Errorf("a leak that goes on is not called one: %q", text)
	}
	if !leakNews(v) {
		t.Errorf("a leak that goes on is no news: %+v", v.news.unseen)
	}
}

// leakNews reports whether other views say that memory leaks.
func leakNews(v *View) bool {
	return slices.ContainsFunc(v.news.unseen, func(a about) bool { return a.Kind == Leak })
}

// What is detached from still runs, and no screen calls it ended.
func TestADetachedJobIsNotCalledEnded(t *testing.T) {
	l := running(t, 160)
	l.State, l.Detached, l.Word, l.Since = Ended, true, "detached; the job is still running", "since attach"
	text := l.sentence(timeline.IEC)
	if strings.Contains(text, "ended") || !strings.Contains(text, "still runs") ||
		!strings.Contains(text, "step 159 since attach") {
		t.Errorf("%q", text)
	}
}
