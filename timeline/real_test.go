package timeline_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// eachSnapshot runs f on each device of the recorded snapshots in the folder that GMEMTOP_TRACES names,
// numbered by size.
func eachSnapshot(t *testing.T, f func(t *testing.T, d *timeline.Device)) {
	t.Helper()
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: recorded snapshots to check the laws on")
	}
	paths, err := filepath.Glob(filepath.Join(root, "torch_snapshot", "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("GMEMTOP_TRACES has no torch_snapshot folder: %v", err)
	}
	for i, p := range paths {
		t.Run(string(rune('a'+i)), func(t *testing.T) {
			file, err := os.Open(p)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			tr, err := torchsnapshot.Read(context.Background(), file, nil)
			if err != nil {
				t.Fatal(err)
			}
			tl, err := timeline.Build(context.Background(), tr, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range tl.Losses {
				t.Logf("loss %+v", l)
			}
			for _, d := range tl.Devices {
				f(t, d)
			}
		})
	}
}

func TestTheLawClosesOnRecordedSnapshots(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, d *timeline.Device) {
		tt := d.Totals
		t.Logf("%+v", tt)
		if tt.LawAllocated != 0 || tt.LawActive != 0 || tt.LawReserved != 0 ||
			tt.LawAllocatedRequested != 0 || tt.LawActiveRequested != 0 {
			t.Errorf("the laws are open by %d, %d, %d, in requested bytes by %d, %d: %s",
				tt.LawAllocated, tt.LawActive, tt.LawReserved, tt.LawAllocatedRequested,
				tt.LawActiveRequested, tt.Reason)
		}
		// Files of torch up to 2.2 lack the allocator's settings, so the sizes of freed blocks are inferred.
		if set := d.Timeline().Trace.Setting("roundup_power2_divisions") != ""; set &&
			tt.Exactness != timeline.Exact {
			t.Errorf("%s though the file has the settings: %s", tt.Exactness, tt.Reason)
		}
	})
}

func TestTwoRecordedSnapshotsBeginAtExactlyZero(t *testing.T) {
	empty := 0
	eachSnapshot(t, func(t *testing.T, d *timeline.Device) {
		if d.Totals.BeginsEmpty && d.Totals.Events > 10_000 {
			empty++
		}
	})
	if empty < 2 {
		t.Errorf("%d recordings begin empty", empty)
	}
}

func TestThePartsOfReservedAddUpOnRecordedSnapshots(t *testing.T) {
	ctx := context.Background()
	eachSnapshot(t, func(t *testing.T, d *timeline.Device) {
		for k := 0; k <= 200; k++ {
			m := timeline.Moment(d.Len()*k/200 - 1)
			s, err := timeline.StateAt(ctx, d, m)
			if err != nil {
				t.Fatal(err)
			}
			if !s.Known {
				continue
			}
			if sum := s.ActiveRequested + s.Internal + s.Stranded + s.Cached; sum != s.Reserved ||
				s.Reserved != d.Reserved.At(m) {
				t.Fatalf("at %d the parts add up to %d, segments to %d, the series says %d", m, sum,
					s.Reserved, d.Reserved.At(m))
			}
			if s.Unplaced != 0 || s.ActiveRequested+s.Internal != d.Active.At(m) {
				t.Fatalf("at %d active is %d, the series says %d; %s", m, s.ActiveRequested+s.Internal,
					d.Active.At(m), s.Reason)
			}
			if requested := d.RequestedActiveSeries(); s.ActiveRequested != requested.At(m) {
				t.Fatalf("at %d active is %d in requested bytes, the series says %d", m, s.ActiveRequested,
					requested.At(m))
			}
			if k == 200 && s.ActiveRequested+s.Internal != d.Totals.EndActive {
				t.Errorf("the last state has %d active, the final state %d", s.ActiveRequested+s.Internal,
					d.Totals.EndActive)
			}
		}
	})
}

func TestCategoriesOfRecordedSnapshots(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, d *timeline.Device) {
		for _, g := range sites.Breakdown(d, d.Totals.PeakAt, sites.ByCategory) {
			t.Logf("peak: %-16s %10s in %d blocks, largest at %s", g.Name, timeline.IEC.Bytes(g.Bytes),
				g.Blocks, sites.Name(d, d.Allocs.Stack[g.Largest]))
			if g.Name != "unknown" && !g.Inferred {
				t.Errorf("%s is not marked inferred, though the allocator records no category", g.Name)
			}
		}
		for i, g := range sites.Breakdown(d, d.Totals.PeakAt, sites.ByStack) {
			if i < 6 {
				t.Logf("  %10s %4d %s  [%s] %s", timeline.IEC.Bytes(g.Bytes), g.Blocks, g.Name,
					sites.Module(d, g.Stack), d.Allocs.Category[g.Largest])
			}
		}
	})
}

func TestTheRoundingRuleFindsTheSizesOfTheFinalState(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, d *timeline.Device) {
		checked, wrong := timeline.RoundingCheck(d)
		t.Logf("%d checked, %d wrong", checked, wrong)
		if wrong > 0 {
			t.Errorf("the rule misses %d of %d blocks", wrong, checked)
		}
	})
}
