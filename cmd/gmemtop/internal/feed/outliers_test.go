package feed

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestOutliersAreTheRanksUnlikeTheOthers(t *testing.T) {
	j := job.New(job.NewWatch(job.Options{}))
	defer j.Close()
	for r := range int64(8) {
		info := capture.Info{PID: 10 + int(r), Rank: maybe.Known(r), WorldSize: maybe.Known(int64(8))}
		p := j.Add(info, nil)
		p.Begin(info)
		for i := range int64(20) {
			s := capture.Step{Index: i, Start: i * 100e6, End: (i + 1) * 100e6,
				Forward: maybe.Known(int64(30e6)), Backward: maybe.Known(int64(60e6)),
				Optimizer: maybe.Known(int64(10e6)),
				Allocated: maybe.Known(int64(4 << 30))}
			switch r {
			case 5: // it works longer before the phase in which the others wait for it
				s.Forward, s.Backward = maybe.Known(int64(60e6)), maybe.Known(int64(30e6))
			case 2:
				s.Allocated = maybe.Known(int64(6 << 30))
			}
			p.Step(s)
		}
	}
	if got := Outliers(j); !slices.Equal(got, []int64{5, 2}) {
		t.Errorf("outliers: %v", got)
	}
}

// Without a GPU it is resident memory that tells ranks apart, as on the screen: parameters take the same in
// all.
func TestOutliersOnCPUsHoldMoreResidentMemory(t *testing.T) {
	j := job.New(job.NewWatch(job.Options{}))
	defer j.Close()
	for r := range int64(4) {
		info := capture.Info{PID: 10 + int(r), Rank: maybe.Known(r), WorldSize: maybe.Known(int64(4))}
		p := j.Add(info, nil)
		p.Begin(info)
		for i := range int64(20) {
			s := capture.Step{Index: i, Start: i * 100e6, End: (i + 1) * 100e6,
				Parameters: maybe.Known(int64(1 << 20)), Gradients: maybe.Known(int64(1 << 20)),
				OptimizerState: maybe.Known(int64(2 << 20))}
			if i%2 == 0 { // it is read now and then
				s.RSS = maybe.Known(int64(700<<20) + r/3*(400<<20))
			}
			p.Step(s)
		}
	}
	if got := Outliers(j); !slices.Equal(got, []int64{3}) {
		t.Errorf("outliers: %v", got)
	}
}
