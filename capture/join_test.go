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
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// window makes a window that begins at epoch from rows as the agent writes them.
func window(t *testing.T, epoch, first int64, rows ...string) capture.Window {
	t.Helper()
	head := fmt.Sprintf(`{"gmemtop":"described","version":1,"torch":"2.9","pid":7,"rank":-1,"world_size":-1,`+
		`"epoch_ns":%d,"steps":[[0,1000]]}`, epoch)
	tr, err := described.Read(context.Background(),
		strings.NewReader(head+"\n"+strings.Join(rows, "\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	return capture.Window{Trace: tr, First: first, Last: first, How: capture.HowOps, Bytes: capture.Size(tr)}
}

func alloc(id, addr, size, at int, category string) string {
	return fmt.Sprintf(`{"k":"alloc","id":%d,"addr":%d,"size":%d,"t":%d,"category":"%s","on":"cpu"}`, id,
		addr, size, at, category)
}

func free(id, at int) string { return fmt.Sprintf(`{"k":"free","id":%d,"t":%d}`, id, at) }

func op(at int, read, write string) string {
	return fmt.Sprintf(`{"k":"op","t":%d,"d":5,"name":"aten::mm","phase":"forward","module":"net",`+
		`"r":[%s],"w":[%s],"m":[],"rerun":true}`, at, read, write)
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
			fmt.Fprintf(&b, "%d %s %d %d %s %s\n", e.Time, e.Action, e.Addr, e.Size, tr.Text(d.Category),
				tr.Text(d.Op))
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

// job is a mock allocator whose recording is cut into windows.
type job struct {
	r    *rand.Rand
	live map[uint64]int64
	next uint64
}

// run takes n steps, and records them if b is given.
func (j *job) run(n int, b *traces.Builder, now *int64) {
	for range n {
		*now += int64(j.r.IntN(50))
		if addrs := slices.Sorted(maps.Keys(j.live)); len(addrs) > 0 && j.r.IntN(2) == 0 {
			addr := addrs[j.r.IntN(len(addrs))]
			if b != nil {
				b.Event(traces.Event{Time: *now, Addr: addr, Size: j.live[addr], Stack: traces.NoStack,
					Action: traces.FreeRequested})
				b.Event(traces.Event{Time: *now, Addr: addr, Size: j.live[addr], Stack: traces.NoStack,
					Action: traces.FreeCompleted})
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
			b.Event(traces.Event{Time: *now, Addr: addr, Size: j.live[addr], Stack: traces.NoStack,
				Action: traces.Alloc})
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
		f.Blocks = append(f.Blocks, traces.Block{Address: addr, Size: (j.live[addr] + 511) &^ 511,
			Requested: maybe.Known(j.live[addr]), Stack: traces.NoStack, Count: 1,
			State: traces.BlockAllocated})
	}
	f.Segments = []traces.Segment{{Address: 1 << 20, TotalSize: 1 << 30, Stack: traces.NoStack,
		EndBlock: int32(len(f.Blocks))}}
	return b.Finish()
}

// TestTheLawClosesOverJoinedWindows cuts random recordings of an allocator into windows, drops what lies
// between them, and joins the rest: start + alloc - free = final, with the allocator's real start and final
// states, and no block is alive twice.
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
			windows = append(windows, capture.Window{Trace: j.history(j.r.IntN(60), &clock),
				First: int64(10 * w), Last: int64(10 * w)})
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
					t.Fatalf("seed %d: event %d allocates %d, which is still alive", seed, i, e.Addr)
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
		if !closes || x.StartAllocatedRequested != maybe.Known(start) ||
			x.EndAllocatedRequested != maybe.Known(j.held()) {
			t.Errorf("seed %d: from %v to %v requested bytes instead of %d to %d; the law is off by %d, "+
				"%d and %d", seed,
				x.StartAllocatedRequested, x.EndAllocatedRequested, start, j.held(), x.LawAllocatedRequested,
				x.LawActiveRequested, x.LawReserved)
		}
		if x.LawAllocated != 0 || x.LawActive != 0 {
			t.Errorf("seed %d: the law is off by %d and %d rounded bytes", seed, x.LawAllocated, x.LawActive)
		}
	}
}

// around prints, for each access in order, its time and its device's events just before and after it.
func around(tr *traces.Trace) string {
	var b strings.Builder
	name := func(e, first, end int) string {
		if e < first || e >= end {
			return "-"
		}
		return fmt.Sprintf("%s %d", tr.Events.Action[e], tr.Events.Addr[e])
	}
	for _, a := range tr.Accesses {
		first, end := tr.DeviceEvents(a.Device)
		fmt.Fprintf(&b, "op %d %s %d: %s | %s\n", a.Op, a.Mode, a.Addr, name(int(a.Event)-1, first, end),
			name(int(a.Event), first, end))
	}
	return b.String()
}

// A training on a GPU reads its batch from the CPU: each step touches the memory of both.
func TestAccessesToTwoDevicesStayInOrderWithTheirEvents(t *testing.T) {
	on := func(device, row string) string {
		return strings.Replace(row, `"on":"cpu"`, `"on":"`+device+`"`, 1)
	}
	w := func(epoch, first int64) capture.Window {
		return window(t, epoch, first,
			on("cuda:0", alloc(0, 1000, 64, 0, "parameter")), alloc(1, 2000, 32, 0, "input"),
			alloc(2, 2100, 32, 5, "input"),
			on("cuda:0", alloc(3, 3000, 32, 10, "input")), op(10, "2", "3"), free(2, 12),
			on("cuda:0", alloc(4, 4000, 16, 20, "activation")), op(20, "0,3", "4"),
			alloc(5, 2200, 8, 25, "temporary"), op(25, "1", "5"), free(5, 26),
			free(4, 30), on("cuda:0", alloc(6, 5000, 16, 40, "gradient")), op(40, "3", "6"), free(6, 50),
			free(3, 60))
	}
	one := w(5000, 3)
	tr, err := capture.Join([]capture.Window{one})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := around(tr), around(one.Trace); got != want {
		t.Errorf("joined:\n%sthe window alone:\n%s", got, want)
	}
	tr, err = capture.Join([]capture.Window{one, w(9000, 4)})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := timeline.Build(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tl.Devices {
		for a := range d.Allocs.Len() {
			for _, x := range d.AccessesOf(timeline.AllocID(a)) {
				if x.Addr != d.Allocs.Addr[a] {
					t.Errorf("block at %d is touched at %d", d.Allocs.Addr[a], x.Addr)
				}
			}
		}
		n := 0
		for a := range d.Allocs.Len() {
			n += len(d.AccessesOf(timeline.AllocID(a)))
		}
		want := map[traces.DeviceKind]int{traces.DeviceGPU: 2 * 6, traces.DeviceCPU: 2 * 3}[d.Info.Kind]
		if n != want {
			t.Errorf("%s: %d accesses touch a live block, want %d:\n%s", d.Label(), n, want, around(tr))
		}
	}
}

// A device that lags behind ends its steps later than the host, perhaps after the host has begun the next
// window.
func TestAWindowBeginsAfterThePreviousOneEnds(t *testing.T) {
	w := two(t)
	w[0].Trace.Marks[0].End = 4500 // and the second begins 4000 behind the first
	tr, err := capture.Join(w)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := tr.Marks[0], tr.Marks[1]; a.End != 4500 || b.Start != 4500 || b.End != 5500 {
		t.Errorf("steps [%d, %d) and [%d, %d)", a.Start, a.End, b.Start, b.End)
	}
	for i := range tr.Events.Len() {
		if e := tr.Events.At(i); e.Time > 50 && e.Time < 4500 {
			t.Errorf("%s at %d is between the two", e.Action, e.Time)
		}
	}
}
