package fit

import (
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
)

func TestProgressIsThatOfTheSlowestProcess(t *testing.T) {
	for want, at := range map[string][]estimate.Place{
		"2s: no process has imported torch yet": nil,
		"2s: it still imports torch":            {{Line: "/a/sitecustomize.py:30", Importing: true}},
		"2s: 1 of 3 steps, at train.py:7":       {{Steps: 1, Line: "train.py:7"}},
		"2s: 1 of 3 steps, at train.py:7 (rank 1, the slowest of 2)": {{Steps: 2, Line: "train.py:9"},
			{Rank: 1, Steps: 1, Line: "train.py:7"}},
	} {
		if got := Progress(2*time.Second, at, 3); got != want {
			t.Errorf("%+v: %q, not %q", at, got, want)
		}
	}
}
