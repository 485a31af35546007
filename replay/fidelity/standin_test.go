//go:build standin

package fidelity_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// TestSnapshotsOfPyTorchsOwnAllocatorReplayInEveryDetail: given the same requests, the emulation does exactly
// what PyTorch's CUDA allocator did on the stand-in according to its own recorder: every block, every segment
// event, the final state. The release is the one that the recording names; without it the rules are found.
func TestSnapshotsOfPyTorchsOwnAllocatorReplayInEveryDetail(t *testing.T) {
	lib := standintest.Library(t)
	for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:24",
		"roundup_power2_divisions:4", "garbage_collection_threshold:0.5"} {
		t.Run(conf, func(t *testing.T) {
			dir := t.TempDir()
			r := standintest.Run(t, lib, standin.Machine{Model: "a100", Memory: "1536MiB"},
				standintest.Interpreter(t), "testdata/programs.py", dir, conf)
			r.Check(t)
			names := strings.Fields(r.Stdout)
			if len(names) != 6 {
				t.Fatalf("%q", r.Stdout)
			}
			troubles, emptied := 0, 0
			for _, name := range names {
				f, err := os.Open(filepath.Join(dir, name+".pickle"))
				if err != nil {
					t.Fatal(err)
				}
				tr, err := torchsnapshot.Read(context.Background(), f, nil)
				_ = f.Close()
				if err != nil {
					t.Fatal(err)
				}
				d := built(t, tr)
				troubles += d.Totals.OOMs
				rep, err := fidelity.Replay(context.Background(), d)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				emptied += rep.EmptiedCaches
				exactly(t, name, rep)
				if !rep.TorchRecorded || rep.Settings.Torch != allocator.TorchOf(tr.Setting) {
					t.Errorf("%s: the recorded release is not used: %+v", name, rep.Settings)
				}
				// A recording made without gmemtop names neither release nor device.
				tr.Settings = withoutOurs(tr.Settings)
				if rep, err = fidelity.Replay(context.Background(), built(t, tr)); err != nil {
					t.Fatalf("%s without its release: %v", name, err)
				}
				if rep.TorchRecorded {
					t.Errorf("%s: a release counts as recorded", name)
				}
				exactly(t, name+" without its release", rep)
			}
			if troubles < 2 || emptied == 0 {
				t.Errorf("%d requests failed, and the cache was emptied %d times", troubles, emptied)
			}
		})
	}
}

// exactly demands that nothing differs.
func exactly(t *testing.T, name string, rep *fidelity.Report) {
	t.Helper()
	if rep.Score() != 1 || rep.SegmentScore() != 1 || rep.FinalScore() != 1 || rep.PeakError() != 0 ||
		rep.First != nil || rep.Allocations < 50 {
		t.Errorf("%s: %s %+v", name, rep.Sentence(timeline.IEC), rep.First)
		return
	}
	t.Logf("%s: %s", name, rep.Sentence(timeline.IEC))
}

// built returns the timeline of a trace's GPU.
func built(t *testing.T, tr *traces.Trace) *timeline.Device {
	t.Helper()
	tl, err := timeline.Build(context.Background(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tl.Devices {
		if d.Info.Kind == traces.DeviceGPU {
			return d
		}
	}
	t.Fatal("no GPU")
	return nil
}

// withoutOurs drops the settings that PyTorch does not record.
func withoutOurs(list []traces.Setting) []traces.Setting {
	var theirs []traces.Setting
	for _, s := range list {
		if s.Key != allocator.TorchSetting && s.Key != allocator.DevicesSetting {
			theirs = append(theirs, s)
		}
	}
	return theirs
}
