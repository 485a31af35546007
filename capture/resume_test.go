package capture

import (
	"fmt"
	"slices"
	"testing"
)

// TestASecondSourceContinuesTheFirst: nothing is reported twice, and what is missing is counted.
func TestASecondSourceContinuesTheFirst(t *testing.T) {
	for _, c := range []struct {
		name                string
		first, second, want []int64 // steps
		lost                int64
	}{
		{"where the first ended", []int64{0, 1, 2}, []int64{3, 4}, []int64{0, 1, 2, 3, 4}, 0},
		{"from its beginning", []int64{0, 1, 2}, []int64{0, 1, 2, 3}, []int64{0, 1, 2, 3}, 0},
		{"behind a gap", []int64{0, 1, 2}, []int64{6, 7}, []int64{0, 1, 2, 6, 7}, 3},
		{"of which nothing was seen", nil, []int64{5, 6}, []int64{5, 6}, 0},
	} {
		s := NewHistory(Limits{})
		for _, i := range c.first {
			s.Step(Step{Index: i})
			s.Window(Window{First: i, Last: i})
		}
		s.Lose("windows", 2, "before")
		again := Resume(s, s)
		again.Begin(Info{PID: 7})
		for _, i := range c.second {
			again.Step(Step{Index: i})
			again.Window(Window{First: i, Last: i})
		}
		again.Lose("windows", 2, "before") // repeated by a source that was there before
		again.Lose("windows", 1, "since")
		again.End(End{Reason: Exited})
		v := s.Snapshot()
		var steps, windows []int64
		for _, x := range v.Steps {
			steps = append(steps, x.Index)
		}
		for _, w := range v.Windows {
			windows = append(windows, w.First)
		}
		want := []Lost{{Name: "windows", Count: 3, Detail: "before"}}
		if c.lost > 0 {
			want = append(want, Lost{Name: "steps", Count: c.lost,
				Detail: "they ended while this viewer switched from one source to another"})
		}
		if !slices.Equal(steps, c.want) || !slices.Equal(windows, c.want) || v.Info.PID != 7 || !v.Ended ||
			fmt.Sprint(v.Losses) != fmt.Sprint(want) {
			t.Errorf("%s: steps %v and windows %v, not %v; losses %v, not %v", c.name, steps, windows, c.want,
				v.Losses, want)
		}
	}
}
