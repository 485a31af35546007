package usdt

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

var actionsByName = map[string]action{"alloc": blockAlloc, "free": blockFree, "driver_alloc": driverAlloc,
	"driver_free": driverFree, "map": driverMap,
	"unmap": driverUnmap, "create": physicalAlloc, "release": physicalFree, "pin": pinnedAlloc,
	"unpin": pinnedFree}

// Cases are text: what the kernel reports, with "window" where one ends and the next begins, and the windows'
// rows.
func TestWindows(t *testing.T) {
	data, err := os.ReadFile("testdata/windows.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files := txtar.Parse(data).Files
	for i := 0; i+1 < len(files); i += 2 {
		name := strings.TrimSuffix(files[i].Name, ".in")
		t.Run(name, func(t *testing.T) {
			w := newWindower(1_000_000, strings.Contains(string(files[i].Data), "\nalloc") ||
				strings.HasPrefix(string(files[i].Data), "alloc"))
			w.open(100)
			var out strings.Builder
			for line := range strings.Lines(string(files[i].Data)) {
				f := strings.Fields(line)
				var e event
				if f[0] == "window" {
					show(&out, w.close())
					fmt.Sscan(f[1], &e.time)
					w.open(e.time)
					continue
				}
				e.stack = -1
				for _, field := range f[1:] {
					key, value, _ := strings.Cut(field, "=")
					to, known := map[string]any{"t": &e.time, "addr": &e.addr, "size": &e.size,
						"stream": &e.stream, "device": &e.device, "result": &e.result}[key]
					if n, err := fmt.Sscan(value, to); !known || n != 1 {
						t.Fatalf("%q: %v", field, err)
					}
				}
				does, known := actionsByName[f[0]]
				if !known {
					t.Fatalf("action %q", f[0])
				}
				w.take(e, does)
			}
			show(&out, w.close())
			if got, want := out.String(), string(files[i+1].Data); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func show(out *strings.Builder, tr *traces.Trace) {
	if tr == nil {
		out.WriteString("nothing\n")
		return
	}
	fmt.Fprintf(out, "window at %d, %s\n", tr.Clock.Epoch, tr.Kind())
	for i := range tr.Events.Len() {
		e := tr.Events.At(i)
		d := tr.Devices[e.Device]
		fmt.Fprintf(out, "%d %s %d %d %s%d stream %d\n", e.Time, e.Action, int64(e.Addr), e.Size, d.Kind,
			d.Ordinal, tr.Streams[e.Stream])
	}
	for _, c := range tr.Counters {
		fmt.Fprintf(out, "%s %v %v\n", tr.Text(c.Name), c.Time, c.Value)
	}
	for _, l := range tr.Losses {
		fmt.Fprintf(out, "lost %s %d\n", l.Name, l.Count)
	}
}

func TestAWindowBeginsWithTheBlocksStillAliveWhateverTheEvents(t *testing.T) {
	type block struct {
		device traces.Device
		addr   uint64
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		w := newWindower(0, rng.IntN(2) == 0)
		clock := int64(100)
		w.open(clock)
		end := map[block]int64{} // what the last window left alive
		for range 1 + rng.IntN(6) {
			for range rng.IntN(60) {
				clock += rng.Int64N(5) - 1
				does := action(rng.IntN(int(pinnedFree) + 1))
				if !w.blocksToo && does <= blockFree {
					continue // that probe is not there
				}
				e := event{time: clock, addr: uint64(does/2)<<20 + uint64(rng.IntN(12))*512,
					size: uint64(rng.IntN(4)) * 512, stack: -1,
					device: int32(rng.IntN(4) - 1), stream: rng.Uint64N(2)}
				if rng.IntN(20) == 0 {
					e.size = math.MaxUint64
				}
				if rng.IntN(20) == 0 {
					e.result = int32(1 + rng.IntN(3))
				}
				w.take(e, does)
			}
			tr := w.close()
			w.open(clock)
			if tr == nil {
				continue
			}
			live, given := map[block]int64{}, map[block]int64{}
			for d := range tr.Devices {
				first, last := tr.DeviceEvents(traces.DeviceID(d))
				for i := first; i < last; i++ {
					e := tr.Events.At(i)
					key := block{traces.Device{Kind: tr.Devices[d].Kind, Ordinal: tr.Devices[d].Ordinal},
						e.Addr}
					if e.Size < 0 || e.Time < 0 || i > first && e.Time < tr.Events.Time[i-1] {
						t.Fatalf("event %+v", e)
					}
					had, known := live[key]
					switch e.Action {
					case traces.Alloc:
						if known {
							t.Fatalf("%+v is allocated twice", e)
						}
						live[key] = e.Size
						if e.Time == 0 {
							given[key] = e.Size
						}
					case traces.Free:
						if before := e.Addr>>20 == uint64(driverMap/2); !known && !before ||
							known && had != e.Size {
							t.Fatalf("%+v is freed, which has %d bytes, known %v", e, had, known)
						}
						delete(live, key)
					}
				}
			}
			if !maps.Equal(given, end) {
				t.Fatalf("a window begins with %v, but the previous one ended with %v", given, end)
			}
			end = live
			var held int64 // a size of all ones wraps around, and back when it is freed
			var rule torchalloc.Rounding
			for key, size := range live {
				switch {
				case key.device.Kind != traces.DeviceGPU:
				case w.blocksToo:
					held += rule.Round(size)
				default:
					held += size
				}
			}
			if counted := w.allocated.now; w.blocksToo && counted != held ||
				!w.blocksToo && w.reserved.now != held {
				t.Fatalf("%d bytes are alive, but the counts are %+v and %+v", held, w.allocated, w.reserved)
			}
		}
	}
}

// BenchmarkTake is the reader's work for an event, with as many blocks alive as a large model has tensors.
func BenchmarkTake(b *testing.B) {
	w := newWindower(0, true)
	w.open(0)
	for i := range uint64(20_000) {
		w.take(event{time: 1, addr: 1<<40 + i<<9, size: 512, stack: -1}, blockAlloc)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if w.events >= 1_000_000 {
			w.close()
			w.open(int64(i))
		}
		w.take(event{time: int64(i), addr: uint64(i/2%1000+1) << 9, size: 512, stack: -1}, action(i&1))
	}
}
