package headless

import (
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestEachProcessOfAJobHasItsOwnFile(t *testing.T) {
	f := NewRankFiles("out/run.gmt")
	for _, c := range []struct {
		who  capture.Info
		want string
	}{
		{capture.Info{PID: 10, Rank: maybe.Known(int64(1))}, "out/run-rank1.gmt"},
		{capture.Info{PID: 11, Rank: maybe.Known(int64(2))}, "out/run-rank2.gmt"},
		{capture.Info{PID: 12, Rank: maybe.Known(int64(1))}, "out/run-pid12.gmt"}, // started again
		{capture.Info{PID: 13}, "out/run-pid13.gmt"},
	} {
		if got := f.Path(c.who); got != c.want {
			t.Errorf("process %d: %s, not %s", c.who.PID, got, c.want)
		}
	}
}
