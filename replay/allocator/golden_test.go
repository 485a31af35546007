package allocator_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// The traces that SmartPool's authors published, against the CnMem-like arena: one arena, 512 bytes, best
// fit, split, coalesce, over the whole trace. The figures were computed by another program; each trace is
// identified by its number of events.
func TestTheArenaOfTheSmartPoolTraces(t *testing.T) {
	root := os.Getenv("GMEMTOP_TRACES")
	if root == "" {
		t.Skip("needs GMEMTOP_TRACES: SmartPool's traces")
	}
	paths, err := filepath.Glob(filepath.Join(root, "papers", "smartpool_*"))
	if err != nil || len(paths) != 3 {
		t.Fatalf("%d traces of SmartPool: %v", len(paths), err)
	}
	want := map[int]float64{3818: 189.134, 26258: 196.535, 21042: 668.909} // AlexNet, ResNet, VGG; MiB
	for _, path := range paths {
		tr, err := load.Open(context.Background(), path, load.Options{})
		if err != nil {
			t.Fatal(err)
		}
		a, err := allocator.NewArena(allocator.Config{Driver: allocator.NewDriver(0)})
		if err != nil {
			t.Fatal(err)
		}
		live := map[uint64]allocator.Block{}
		for i := range tr.Events.Len() {
			switch e := tr.Events.At(i); {
			case e.Action == traces.Alloc:
				if live[e.Addr], err = a.Malloc(e.Size, 0); err != nil {
					t.Fatal(err)
				}
			case e.Action.IsFreeRequest():
				if err := a.Free(live[e.Addr]); err != nil {
					t.Fatal(err)
				}
			}
		}
		mib := math.Round(float64(a.HighWater())/(1<<20)*1000) / 1000
		if mib != want[tr.Events.Len()] {
			t.Errorf("the trace of %d events needs %.3f MiB, want %.3f", tr.Events.Len(), mib,
				want[tr.Events.Len()])
		}
		delete(want, tr.Events.Len())
		if reserved := a.Stats().PeakReserved; reserved%torchalloc.Granularity != 0 ||
			reserved < a.HighWater() || reserved >= a.HighWater()+torchalloc.Granularity {
			t.Errorf("%d bytes are reserved for %d", reserved, a.HighWater())
		}
	}
	if len(want) > 0 {
		t.Errorf("not seen: %v", want)
	}
}

// One iteration of a program with a steady shape, repeated, as an allocator sees the replay of a recording.
func BenchmarkReplay(b *testing.B) {
	const blocks = 2000
	for _, policy := range allocator.Policies() {
		for _, conf := range []string{"", "expandable_segments:True"} {
			if conf != "" && policy != "caching" {
				continue
			}
			b.Run(fmt.Sprintf("%s/%s", policy, conf), func(b *testing.B) {
				settings, err := allocator.ParseSettings(conf)
				if err != nil {
					b.Fatal(err)
				}
				a, err := allocator.New(policy,
					allocator.Config{Driver: allocator.NewDriver(0), Settings: settings})
				if err != nil {
					b.Fatal(err)
				}
				live := make([]allocator.Block, blocks)
				used := make([]bool, blocks)
				seed := uint64(1)
				b.ReportAllocs()
				for b.Loop() {
					seed = seed*6364136223846793005 + 1442695040888963407
					i := int(seed>>33) % blocks
					if used[i] {
						if err := a.Free(live[i]); err != nil {
							b.Fatal(err)
						}
						used[i] = false
						continue
					}
					size := int64(1) << (9 + seed>>50%15)
					size += int64(seed >> 20 % uint64(size))
					if live[i], err = a.Malloc(size, 0); err != nil {
						b.Fatal(err)
					}
					used[i] = true
				}
			})
		}
	}
}
