package whatif_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gmemtop/gmemtop/replay/whatif"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// longRun records a training of about n events that keeps 1 MiB of each step until the device is full: forty
// layers that save a block for backward and use one for a moment.
func longRun(t testing.TB, n int) *timeline.Device {
	r := newRecorder()
	run := func(format string, args ...any) {
		if err := r.run(fmt.Sprintf(format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	const layers = 40
	steps := n / (layers * 6)
	run("capacity %dm", 300+steps)
	for step := 0; len(r.refused) == 0; step++ {
		for i := 0; i < layers && len(r.refused) == 0; i++ {
			run("at layer%d", i)
			run("malloc saved%d 5m", i)
			if len(r.refused) == 0 {
				run("malloc used %dk", 64*(1+i%7))
				run("free used")
			}
		}
		if len(r.refused) == 0 {
			run("at keep")
			run("malloc kept%d 1m", step)
		}
		for i := layers - 1; i >= 0 && len(r.refused) == 0; i-- {
			run("free saved%d", i)
		}
	}
	tl, err := timeline.Build(context.Background(), r.trace(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Devices[0]
}

// BenchmarkExplain is the whole of gmemtop oom but reading the file.
func BenchmarkExplain(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000, 10_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := longRun(b, n)
			var r *report.OOM
			var err error
			for b.Loop() {
				if r, err = report.NewOOM(b.Context(), d.Timeline(), report.Options{}); err != nil {
					b.Fatal(err)
				}
				for range 8 { // as many as a report has at most, none of which is enough
					r.Devices[0].Levers = append(r.Devices[0].Levers, report.Lever{Name: "a_lever",
						Effect: autopsy.Effect{Changes: less(d, 5<<20, 0.001, 0)}})
				}
				l := whatif.Listener{Skipped: func(_ *timeline.Device, why error) { b.Fatal(why) }}
				err = whatif.Explain(b.Context(), d.Timeline(), r, timeline.IEC, l)
				if err != nil {
					b.Fatal(err)
				}
			}
			tried := 0
			for _, l := range r.Devices[0].Levers {
				b.Log(l.Name, l.Tried.Outcome, l.Tried.Reason)
				if l.Tried.Outcome != report.NotTried {
					tried++
				}
			}
			b.ReportMetric(float64(d.Len()), "events")
			b.ReportMetric(float64(tried), "levers")
		})
	}
}
