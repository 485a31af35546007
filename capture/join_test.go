package capture_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
)

// window reads rows of the recorder as a window that begins at epoch.
func window(t *testing.T, epoch, first int64, rows ...string) capture.Window {
	t.Helper()
	head := fmt.Sprintf(`{"gmemtop":"described","version":1,"torch":"2.9","pid":7,"rank":-1,"world_size":-1,"epoch_ns":%d,"steps":[[0,1000]]}`, epoch)
	tr, err := described.Read(context.Background(), strings.NewReader(head+"\n"+strings.Join(rows, "\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	return capture.Window{Trace: tr, First: first, Last: first, How: capture.HowOps, Bytes: capture.Size(tr)}
}

func alloc(id, addr, size, at int, category string) string {
	return fmt.Sprintf(`{"k":"alloc","id":%d,"addr":%d,"size":%d,"t":%d,"category":"%s","on":"cpu"}`, id, addr, size, at, category)
}

func free(id, at int) string { return fmt.Sprintf(`{"k":"free","id":%d,"t":%d}`, id, at) }

func op(at int, read, write string) string {
	return fmt.Sprintf(`{"k":"op","t":%d,"d":5,"name":"aten::mm","phase":"forward","module":"net","r":[%s],"w":[%s],"m":[],"rerun":true}`, at, read, write)
}

// rows prints a trace's events, accesses and marks in order.
func rows(tr *traces.Trace) string {
	var b strings.Builder
	acc := tr.Accesses
	for i := range tr.Events.Len() + 1 {
		for len(acc) > 0 && int(acc[0].Event) <= i {
			fmt.Fprintf(&b, "  op %d %s %d\n", acc[0].Op, acc[0].Mode, acc[0].Addr)
			acc = acc[1:]
		}
		if i < tr.Events.Len() {
			e, d := tr.Events.At(i), tr.DetailOf(i)
			fmt.Fprintf(&b, "%d %s %d %d %s %s\n", e.Time, e.Action, e.Addr, e.Size, tr.Text(d.Category), tr.Text(d.Op))
		}
	}
	for _, m := range tr.Marks {
		fmt.Fprintf(&b, "mark [%d, %d)\n", m.Start, m.End)
	}
	for _, l := range tr.Losses {
		fmt.Fprintf(&b, "loss %s %d\n", l.Name, l.Count)
	}
	return b.String()
}

func two(t *testing.T) []capture.Window {
	return []capture.Window{
		window(t, 5000, 3,
			alloc(0, 1000, 64, 0, "parameter"), alloc(1, 2000, 32, 0, "input"),
			alloc(2, 3000, 16, 10, "activation"), op(10, "0,1", "2"), free(2, 50)),
		window(t, 9000, 7,
			alloc(0, 1000, 64, 0, "parameter"), alloc(1, 4000, 32, 0, "optimizer_state"),
			alloc(2, 5000, 16, 10, "activation"), op(10, "0,1", "2"), free(2, 50)),
	}
}

func TestJoinStitchesWindowsAtTheirSeams(t *testing.T) {
	tr, err := capture.Join(two(t))
	if err != nil {
		t.Fatal(err)
	}
	const want = `0 alloc 1000 64 parameter 
0 alloc 2000 32 input 
10 alloc 3000 16 activation 
  op 0 read 1000
  op 0 read 2000
  op 0 write 3000
50 free 3000 16  
4000 free 2000 32 input between_windows
4000 alloc 4000 32 optimizer_state between_windows
4010 alloc 5000 16 activation 
  op 1 read 1000
  op 1 read 4000
  op 1 write 5000
4050 free 5000 16  
mark [0, 1000)
mark [4000, 5000)
loss between_windows 2
loss steps_between_windows 3
`
	if got := rows(tr); got != want {
		t.Errorf("%s", got)
	}
	if _, err := capture.Join(nil); err == nil {
		t.Error("nothing was joined without an error")
	}
}

// job is a pretended allocator whose recording is cut into windows.
type job struct {
	r    *rand.Rand
	live map[uint64]int64
	next uint64
}

// run takes n steps, recorded where b is given.
func (j *job) run(n int, b *traces.Builder, now *int64) {
	for range n {
		*now += int64(j.r.IntN(50))
		if addrs := slices.Sorted(maps.Keys(j.live)); len(addrs) > 0 && j.r.IntN(2) == 0 {
			addr := addrs[j.r.IntN(len(addrs))]
			if b != nil {
				b.Event(traces.Event{Time: *now, Addr: addr, Size: j.live[addr], Stack: traces.NoStack, Action: traces.FreeRequested})
				b.Event(traces.Event{Time: *now, Addr: addr, Size: j.live[addr], Stack: traces.NoStack, Action: traces.FreeCompleted})
			}
			delete(j.live, addr)
			continue
		}
		addr := uint64(1<<20 + 4096*j.r.IntN(20)) // an address that is used again
		if j.r.IntN(4) > 0 || j.live[addr] != 0 {
			addr, j.next = j.next, j.next+4096
		}
		j.live[addr] = int64(1 + j.r.IntN(8)*512)
		if b != nil {
			b.Event(traces.Event{Time: *now, Addr: addr, Size: j.live[addr], Stack: traces.NoStack, Action: traces.Alloc})
		}
	}
}

func (j *job) held() (sum int64) {
	for _, size := range j.live {
		sum += size
	}
	return sum
}

// history records n steps as torchsnapshot would read them.
func (j *job) history(n int, clock *int64) *traces.Trace {
	b := traces.NewBuilder()
	b.Device(traces.DeviceGPU, 0)
	b.T.Source.Format = "torch_snapshot"
	b.T.Clock.Epoch = 1 + *clock
	now := int64(0)
	j.run(n, b, &now)
	*clock += now
	b.T.Marks = []traces.Mark{{Start: 0, End: now, Kind: traces.MarkIteration}}
	f := &b.T.Final
	f.Known = true
	for _, addr := range slices.Sorted(maps.Keys(j.live)) {
		f.Blocks = append(f.Blocks, traces.Block{Address: addr, Size: (j.live[addr] + 511) &^ 511, Requested: j.live[addr], Stack: traces.NoStack, Count: 1, State: traces.BlockAllocated})
	}
	f.Segments = []traces.Segment{{Address: 1 << 20, TotalSize: 1 << 30, Stack: traces.NoStack, EndBlock: int32(len(f.Blocks))}}
	return b.Finish()
}

// TestTheLawClosesOverJoinedWindows cuts random recordings of an allocator into windows, loses what lies between them, and joins the rest:
// start + alloc - free = final, with the start and the final that the allocator really had, and nothing lives twice.
func TestTheLawClosesOverJoinedWindows(t *testing.T) {
	for seed := range uint64(60) {
		j := &job{r: rand.New(rand.NewPCG(seed, 1)), live: map[uint64]int64{}, next: 1<<20 + 4096*20}
		var windows []capture.Window
		clock, start := int64(0), int64(0)
		for w := range 4 {
			j.run(j.r.IntN(30), nil, &clock)
			if w == 0 {
				start = j.held()
			}
			windows = append(windows, capture.Window{Trace: j.history(j.r.IntN(60), &clock), First: int64(10 * w), Last: int64(10 * w)})
		}
		tr, err := capture.Join(windows)
		if err != nil {
			t.Fatal(err)
		}
		lives := map[uint64]bool{}
		for i := range tr.Events.Len() {
			e := tr.Events.At(i)
			if e.Action == traces.Alloc {
				if lives[e.Addr] {
					t.Fatalf("seed %d: event %d allocates %d, which lives", seed, i, e.Addr)
				}
				lives[e.Addr] = true
			} else if e.Action == traces.FreeCompleted {
				delete(lives, e.Addr)
			}
		}
		tl, err := timeline.Build(context.Background(), tr, nil)
		if err != nil {
			t.Fatal(err)
		}
		x := tl.Devices[0].Totals
		closes := x.LawAllocatedRequested == 0 && x.LawActiveRequested == 0 && x.LawReserved == 0
		if !closes || x.StartAllocatedRequested != start || x.EndAllocatedRequested != j.held() {
			t.Errorf("seed %d: from %d to %d requested bytes instead of %d to %d; the law is off by %d, %d and %d", seed,
				x.StartAllocatedRequested, x.EndAllocatedRequested, start, j.held(), x.LawAllocatedRequested, x.LawActiveRequested, x.LawReserved)
		}
		if x.LawAllocated != 0 || x.LawActive != 0 {
			t.Errorf("seed %d: the law is off by %d and %d rounded bytes", seed, x.LawAllocated, x.LawActive)
		}
	}
}
