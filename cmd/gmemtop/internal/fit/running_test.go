package fit

import (
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
)

func TestProgressIsThatOfTheSlowestProcess(t *testing.T) {
	for want, at := range map[string][]estimate.Place{
		"after 2 s: no process has imported torch yet": nil,
		"after 2 s: still importing torch":             {{Line: "/a/sitecustomize.py:30", Importing: true}},
		"after 2 s: 1 of 3 steps, now at train.py:7":   {{Steps: 1, Line: "train.py:7"}},
		"after 2 s: 1 of 3 steps, now at train.py:7 (rank 1, the slowest of 2)": {
			{Steps: 2, Line: "train.py:9"}, {Rank: 1, Steps: 1, Line: "train.py:7"}},
	} {
		if got := progress(2*time.Second, at, 3); got != want {
			t.Errorf("%+v: %q, not %q", at, got, want)
		}
	}
}

func TestASlowEstimateSaysHowLongAndWhatIsFaster(t *testing.T) {
	for _, c := range []struct {
		ran  time.Duration
		at   []estimate.Place
		want string
	}{
		{29 * time.Second, []estimate.Place{{Steps: 1}}, ""},
		{time.Minute, nil, ""},
		{time.Minute, []estimate.Place{{Importing: true}}, ""},
		{time.Minute, []estimate.Place{{Steps: 3}}, ""},
		{time.Minute, []estimate.Place{{}}, "no step has ended in 1m0s; "},
		{40 * time.Second, []estimate.Place{{Steps: 1}}, "about 1m20s more if "},
		{40 * time.Second, []estimate.Place{{Steps: 2}, {Steps: 1}}, "about 1m20s more if "},
	} {
		got := slow(c.ran, c.at, 3)
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("after %v at %+v: %q, not %q", c.ran, c.at, got, c.want)
		}
		if got != "" && !strings.Contains(got, "--allocator real") {
			t.Errorf("%q does not name the faster way", got)
		}
	}
}
