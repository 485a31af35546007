package pprof_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/pprof"
)

// TestEachBackendIsNamedAndHasNoReserve: a profile says what is alive, on a TPU, a GPU or a CPU, but not what
// an allocator holds or that anything failed, however much is alive.
func TestEachBackendIsNamedAndHasNoReserve(t *testing.T) {
	for _, c := range []struct{ label, name string }{
		{"TPU_0(process=0,(0,0,0,0))", "TPU 0"},
		{"cuda:0", "GPU 0"}, {"gpu:0", "GPU 0"}, {"TFRT_CPU_0", "the CPU"},
	} {
		t.Run(c.label, func(t *testing.T) {
			p := memoryProfile()
			p.Sample = []*profile.Sample{
				{Value: []int64{1, 1 << 20}, Label: map[string][]string{"kind": {"executable"}}},
				{Value: []int64{9, 20 << 30}, Location: p.Location[:1],
					Label: map[string][]string{"kind": {"buffer"}, "device": {c.label}}},
			}
			tr, err := pprof.Read(t.Context(), bytes.NewReader(encode(t, p)), nil)
			if err != nil {
				t.Fatal(err)
			}
			tl, err := timeline.Build(t.Context(), tr, nil)
			if err != nil || len(tl.Devices) != 1 {
				t.Fatalf("%d devices: %v", len(tl.Devices), err)
			}
			d := tl.Devices[0]
			if d.Label() != c.name || d.Totals.PeakAllocated != 20<<30+1<<20 {
				t.Errorf("%s holds %d bytes at the peak", d.Label(), d.Totals.PeakAllocated)
			}
			if r := d.Totals; r.StartReserved.IsKnown() || r.EndReserved.IsKnown() ||
				r.PeakReserved.IsKnown() || r.Segments != 0 {
				t.Errorf(
					"reserved are %+v in %d segments",
					[]maybe.Int{r.StartReserved, r.PeakReserved, r.EndReserved},
					r.Segments,
				)
			}
			a, err := autopsy.Of(t.Context(), d, timeline.IEC)
			if err != nil {
				t.Fatal(err)
			}
			if a.OOM || a.Inferred || len(a.Levers) > 0 || len(a.Causes) > 0 {
				t.Errorf("an out-of-memory is seen: %t, %t; levers %v, causes %v: %s", a.OOM, a.Inferred,
					fmt.Sprint(a.Levers), a.Causes, a.Sentence)
			}
		})
	}
}
