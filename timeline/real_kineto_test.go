package timeline_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/kineto"
)

func TestRecordedProfilesAgreeWithTheirOwnTotals(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: recorded profiles to compare with their own totals")
	}
	paths, err := filepath.Glob(filepath.Join(root, "kineto", "*.gz"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("GMEMTOP_TRACES has no kineto folder: %v", err)
	}
	without := 0
	for i, p := range paths {
		t.Run(string(rune('a'+i)), func(t *testing.T) {
			packed, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			z, err := gzip.NewReader(bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := kineto.Read(context.Background(), bytes.NewReader(plain), nil)
			if errors.Is(err, traces.ErrUnsupported) { // it has no memory events
				without++
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tl, err := timeline.Build(context.Background(), tr, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range tl.Losses {
				t.Logf("loss %+v", l)
				if l.Name == "counter_differs" || l.Name == "counter_contradicts" {
					t.Errorf("%d samples: %s", l.Count, l.Detail)
				}
			}
			for _, d := range tl.Devices {
				t.Logf("%s%d: %+v", d.Info.Kind, d.Info.Ordinal, d.Totals)
				if d.Totals.StartAllocated < 0 || d.Totals.PeakAllocated < d.Totals.StartAllocated {
					t.Errorf("start %d, peak %d", d.Totals.StartAllocated, d.Totals.PeakAllocated)
				}
				for i, g := range sites.Breakdown(d, d.Totals.PeakAt, sites.ByModule) {
					if i < 4 {
						t.Logf("   %s %s %d", timeline.IEC.Bytes(g.Bytes), g.Name, g.Blocks)
					}
				}
			}
		})
	}
	if without != 1 {
		t.Errorf("%d profiles without memory events, want 1", without)
	}
}
