package headless

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// RankTable is the ranks of a run at a moment, as JSON and as text.
type RankTable struct {
	Run   string     `json:"run"`
	Ranks []rankLine `json:"ranks"`
}

// rankLine is a rank.
type rankLine struct {
	Rank maybe.Int `json:"rank"`
	Node string    `json:"node"`
	PID  int       `json:"pid"`
	Step maybe.Int `json:"step"`
	Time maybe.Int `json:"step_time_ns"`
	// Allocated and Resident are the newest that were measured, which need not be those of the newest step.
	Allocated maybe.Int `json:"allocated_bytes"`
	Peak      maybe.Int `json:"peak_allocated_bytes"`
	Resident  maybe.Int `json:"resident_bytes"`
	Lost      int64     `json:"steps_lost"`
	State     string    `json:"state"`
}

// RanksOf returns the ranks of a run as they are now.
func RanksOf(run string, j *job.Job) RankTable {
	lines := []rankLine{}
	for _, p := range j.Processes() {
		v := p.History.Snapshot()
		l := rankLine{Rank: v.Info.Rank, Node: v.Info.Host, PID: v.Info.PID, State: "runs"}
		if n := len(v.Steps); n > 0 {
			s := v.Steps[n-1]
			l.Step, l.Time = maybe.Known(s.Index), maybe.Known(s.End-s.Start)
			l.Peak = v.PeakAllocated()
			l.Allocated = newest(v.Steps, func(s *capture.Step) maybe.Int { return s.Allocated })
			l.Resident = newest(v.Steps, func(s *capture.Step) maybe.Int { return s.RSS })
		}
		for _, x := range v.Losses {
			if x.Name == "steps" {
				l.Lost += x.Count
			}
		}
		switch {
		case v.Ended && v.End == (capture.End{Reason: capture.Exited}): // and nobody knows how
			l.State = "ended"
		case v.Ended:
			l.State = "ended: " + feed.HowEnded(v.End)
		case v.Severed != "":
			l.State = v.Severed
		}
		lines = append(lines, l)
	}
	return RankTable{Run: run, Ranks: lines}
}

// newest returns a figure of the newest step that has it: some are measured only now and then.
func newest(steps []capture.Step, figure func(s *capture.Step) maybe.Int) maybe.Int {
	for i := range slices.Backward(steps) {
		if v := figure(&steps[i]); v.IsKnown() {
			return v
		}
	}
	return maybe.Int{}
}

// memoryTitle names the column that shows what a rank's allocator has given out or, for ranks that have none,
// the memory of their process.
func (r *RankTable) memoryTitle() string {
	for _, l := range r.Ranks {
		if !l.Allocated.IsKnown() && l.Resident.IsKnown() {
			return "memory"
		}
	}
	return "allocated"
}

// WriteText writes a line for each rank.
func (r *RankTable) WriteText(out io.Writer, units timeline.Units) error {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "rank\tnode\tstep\ttime\t%s\tpeak\tlost\t  state\n", r.memoryTitle())
	show := func(x maybe.Int, f func(int64) string) string {
		if v, ok := x.Value(); ok {
			return f(v)
		}
		return "-"
	}
	for _, l := range r.Ranks {
		fmt.Fprintf(t, "%v\t%s\t%v\t%s\t%s\t%s\t%d\t  %s\n", l.Rank, report.Printable(l.Node), l.Step,
			show(l.Time, timeline.Duration), show(maybe.First(l.Allocated, l.Resident), units.Bytes),
			show(l.Peak, units.Bytes), l.Lost, report.Printable(l.State))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Ranks) == 0 {
		fmt.Fprintf(out, "no node of run %s has sent a training step yet\n", report.Printable(r.Run))
	}
	return nil
}
