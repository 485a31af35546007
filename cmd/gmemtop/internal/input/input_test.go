package input

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui"
)

// twoDevices has twelve events on GPU 0, four in each of three iterations, and two on GPU 1.
const twoDevices = `
mark iteration 0 4000 s0
mark iteration 4000 8000 s1
mark iteration 8000 12000 s2
repeat 6
+ a$i 1k
- a$i
end
gpu 1
+ b 1m
- b
`

func TestFromToAndDeviceChooseWhatTheScreenOpensAt(t *testing.T) {
	tl := timelinetest.Script(t, twoDevices)
	second := steps.Of(tl.Devices[0]).List[1]
	for _, c := range []struct{ device, from, to, want string }{
		{"", "", "", "main device, whole"},
		{"1", "", "", "main device, whole"},
		{"0", "", "", "device 0, whole"},
		{"0", "2", "6", "device 0, events 2 to 6"},
		{"0", "it1", "it2", fmt.Sprintf("device 0, events %d to %d", second.First, second.End)},
		{"", "1", "2", "main device, events 1 to 2"},
		{"0", "6", "2", "refused"},
		{"0", "it9", "", "refused"},
		{"7", "", "", "refused"},
	} {
		l := tui.Loaded{Timelines: []*timeline.Timeline{tl}}
		var o report.Options
		var errs [4]error
		o.Devices, errs[0] = report.ParseDevices(c.device)
		o.From, errs[1] = report.ParsePosition(c.from)
		o.To, errs[2] = report.ParsePosition(c.to)
		errs[3] = Choose(&l, o)
		got := "main device"
		if l.Device != nil {
			got = fmt.Sprintf("device %d", l.Device.Info.Ordinal)
		}
		switch {
		case errors.Join(errs[:]...) != nil:
			got = "refused"
		case l.End == 0:
			got += ", whole"
		default:
			got += fmt.Sprintf(", events %d to %d", l.First, l.End)
		}
		if got != c.want {
			t.Errorf("--device %q --from %q --to %q: %s, want %s", c.device, c.from, c.to, got, c.want)
		}
	}
}

// written writes a trace of one rank into a folder and returns its path.
func written(t *testing.T, dir string, rank int, script string) string {
	t.Helper()
	tr := timelinetest.Script(t, fmt.Sprintf("rank %d 3\n%s", rank, script)).Trace
	var b bytes.Buffer
	if err := gmt.Write(context.Background(), &b, tr); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fmt.Sprintf("rank%d.gmt", rank))
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOneAndTwoFilesAreTimelinesAndMoreAreARun(t *testing.T) {
	dir := t.TempDir()
	a, b := written(t, dir, 0, "+ a 1k"), written(t, dir, 1, "+ a 2k")
	c := written(t, dir, 2, "+ a 3k")
	damaged := filepath.Join(dir, "cut.gmt")
	text, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		paths []string
		want  string
	}{
		{[]string{a}, "timelines 1"},
		{[]string{a, b}, "timelines 2"},
		{[]string{a, damaged}, "timelines 1, failed"},
		{[]string{a, b, c}, "timelines 1, ranks 3"},
		{[]string{dir}, "timelines 1, ranks 3"},
		{[]string{filepath.Join(dir, "none")}, "timelines 0, failed"},
	} {
		if x.paths[len(x.paths)-1] == damaged { // no longer there when the folder is read
			if err := os.WriteFile(damaged, text[:8], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		told := false
		l, err := Load(context.Background(), x.paths, load.Options{NoCache: true},
			func(string, int64, int64) { told = true })
		os.Remove(damaged)
		got := fmt.Sprintf("timelines %d", len(l.Timelines))
		if l.Run != nil {
			got += fmt.Sprintf(", ranks %d", len(l.Run.Ranks))
		}
		if err != nil {
			got += ", failed"
		}
		if got != x.want || !told && err == nil {
			t.Errorf("%q: %s, want %s (%v)", x.paths, got, x.want, err)
		}
	}
}

func TestARunOpensAtTheRankThatStandsOut(t *testing.T) {
	dir := t.TempDir()
	for rank, script := range []string{"+ a 1g", "+ a 1g", "+ a 9g"} {
		written(t, dir, rank, script)
	}
	l, err := Load(context.Background(), []string{dir}, load.Options{NoCache: true},
		func(string, int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Timelines[0].Trace.Process.Rank; got != maybe.Known(2) ||
		l.Run.Ranks[0].Rank != maybe.Known(2) {
		t.Errorf("rank %v opens, and rank %v comes first", got, l.Run.Ranks[0].Rank)
	}
}
