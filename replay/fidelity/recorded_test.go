package fidelity_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// outcome is the expected result for a recorded snapshot.
type outcome struct {
	allocations, same       int
	segments, sameSegments  int
	finalBlocks, sameBlocks int
	restored, rests         int
	refused                 fidelity.Reason
}

// Snapshots recorded by others, identified by their number of events and, if that is equal, of segments. A
// figure that falls is a fault of the emulation; one that rises should be updated here.
func TestRecordedSnapshots(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: recorded snapshots to check the emulated allocator against")
	}
	paths, err := filepath.Glob(filepath.Join(root, "torch_snapshot", "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("GMEMTOP_TRACES has no torch_snapshot folder: %v", err)
	}
	// Allocations, segment events and final blocks, each as the recorded number and the number that agrees;
	// then restored blocks and inferred sizes.
	want := map[string]outcome{
		"5163 events, 216 segments":  {1721, 1721, 0, 0, 455, 455, 229, 0, 0},
		"11480 events, 83 segments":  {3907, 3907, 83, 83, 224, 224, 0, 0, 0},
		"12976 events, 88 segments":  {4404, 4404, 88, 88, 229, 229, 0, 0, 0},
		"22332 events, 400 segments": {7591, 7591, 1, 1, 1041, 1041, 664, 3, 0},
		"1 events, 112 segments":     {refused: fidelity.NoAllocations},
		"1 events, 176 segments":     {refused: fidelity.NoAllocations},
		"23105 events, 61 segments":  {7946, 7946, 61, 61, 468, 468, 0, 0, 0},
		"6486 events, 96 segments":   {2162, 2162, 0, 0, 550, 550, 447, 5, 0},
		"6654 events, 2 segments":    {2218, 2218, 0, 0, 297, 297, 294, 0, 0},
		"19464 events, 999 segments": {6488, 6488, 0, 0, 1987, 1987, 1313, 109, 0},
		"0 events, 127 segments":     {refused: fidelity.NoAllocations},
	}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := torchsnapshot.Read(context.Background(), file, nil)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		d := build(t, tr)
		role := fmt.Sprintf("%d events, %d segments", d.Totals.Events, d.Totals.Segments)
		t.Run(role, func(t *testing.T) {
			w, known := want[role]
			if !known {
				t.Fatalf("no outcome was recorded")
			}
			delete(want, role)
			if w.refused != 0 {
				if r := refusal(t, d); r.Reason != w.refused {
					t.Errorf("refused for %s, want %s", r.Reason, w.refused)
				}
				return
			}
			rep, err := fidelity.Replay(context.Background(), d)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(rep.Sentence(timeline.IEC))
			got := outcome{
				rep.Allocations, rep.SamePlace, rep.SegmentEvents, rep.SameSegments, rep.FinalBlocks,
				rep.SameFinal, rep.Restored, rep.Rests, 0,
			}
			if got != w {
				t.Errorf("got %+v, want %+v", got, w)
			}
			if rep.PeakError() != 0 {
				t.Errorf("reserved peaks at %d, emulated %d", rep.PeakReserved, rep.EmulatedPeakReserved)
			}
		})
	}
	if len(want) > 0 {
		t.Errorf("not seen: %v", want)
	}
}

func BenchmarkReplay(b *testing.B) {
	r := newRecorder(b, "", 0, 1)
	r.program(100_000)
	d := r.device(0)
	for b.Loop() {
		if _, err := fidelity.Replay(context.Background(), d); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(d.Len()), "events")
}
