// Command samerun says whether two PyTorch snapshots are recordings of the same run: one made on a GPU and
// one made on the stand-in, say.
//
//	go run ./scripts/samerun THEIRS.pickle OURS.pickle
//
// It exits with 0 if the two made the same allocations and frees in the same order, and with 1 otherwise.
//
// Addresses differ from run to run, so blocks are named by the order of their allocation, and places by the
// segment's rank in address order and the offset in it. PyTorch keeps some tensors in hash tables ordered by
// host addresses, such as autocast's cache of casts; frees of such a table come in any order, on a GPU too. A
// difference only within runs of frees is reported as such. Sizes in events are what the program asked for;
// "allocated" rounds them up to 512 bytes, as the allocator does.
//
// Everything is linear in the number of events, except that finding a block's segment takes logarithmic time
// in the number of segments.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	same, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "samerun:", err)
		os.Exit(2)
	}
	if !same {
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (bool, error) {
	if len(args) != 2 {
		return false, fmt.Errorf("%d files given: name two snapshots", len(args))
	}
	var runs [2]*recording
	for i, path := range args {
		t, err := load.Open(ctx, path, load.Options{NoCache: true})
		if err != nil {
			return false, fmt.Errorf("reading %s: %w", path, err)
		}
		runs[i] = read(t)
	}
	c := compare(runs[0], runs[1])
	c.print(out)
	return c.same(), nil
}

// step is an event without its address. Block is the number of the allocation that made the block, -1 for a
// block from before the recording, and 0 for events of segments.
type step struct {
	action traces.Action
	size   int64
	stream traces.StreamID
	block  int
}

// place is where an allocation lies: its segment's rank in address order, and the offset in bytes.
type place struct {
	segment int
	offset  uint64
}

// recording is what one snapshot says about its busiest device. Bytes are those at the peak.
type recording struct {
	steps               []step
	places              []place
	allocated, reserved int64
	segments            int
}

func read(t *traces.Trace) *recording {
	r := &recording{}
	device := busiest(t)
	segments := map[uint64]int64{}
	var live, held int64 // at the end
	for _, s := range t.Final.Segments {
		if s.Device != device {
			continue
		}
		r.segments++
		segments[s.Address] = s.TotalSize
		live += s.AllocatedSize
		held += s.TotalSize
	}
	first, end := t.DeviceEvents(device)
	for i := first; i < end; i++ {
		e := t.Events.At(i)
		if e.Action == traces.SegmentAlloc || e.Action == traces.SegmentMap {
			segments[e.Addr] = max(segments[e.Addr], e.Size)
		}
	}
	starts := make([]uint64, 0, len(segments))
	for a := range segments {
		starts = append(starts, a)
	}
	slices.Sort(starts)

	var allocated, reserved, mostAllocated, mostReserved int64 // more than at the start
	blocks := map[uint64]int{}
	made := 0
	for i := first; i < end; i++ {
		e := t.Events.At(i)
		s := step{action: e.Action, size: e.Size, stream: e.Stream}
		switch e.Action {
		case traces.Alloc:
			s.block = made
			blocks[e.Addr] = made
			made++
			allocated += rounded(e.Size)
			r.places = append(r.places, find(starts, e.Addr))
		case traces.FreeRequested, traces.FreeCompleted, traces.Free:
			s.block = -1
			if b, ok := blocks[e.Addr]; ok {
				s.block = b
			}
			if e.Action.IsFreeCompletion() {
				delete(blocks, e.Addr)
				allocated -= rounded(e.Size)
			}
		case traces.SegmentAlloc, traces.SegmentMap:
			reserved += e.Size
		case traces.SegmentFree, traces.SegmentUnmap:
			reserved -= e.Size
		default: // notes on the recording itself
			continue
		}
		mostAllocated, mostReserved = max(mostAllocated, allocated), max(mostReserved, reserved)
		r.steps = append(r.steps, s)
	}
	r.allocated = live - allocated + mostAllocated
	r.reserved = held - reserved + mostReserved
	return r
}

func busiest(t *traces.Trace) traces.DeviceID {
	var best traces.DeviceID
	most := -1
	for d := range t.Devices {
		first, end := t.DeviceEvents(traces.DeviceID(d))
		if end-first > most {
			best, most = traces.DeviceID(d), end-first
		}
	}
	return best
}

// rounded returns what PyTorch's allocator gives for a request, by its default settings.
func rounded(size int64) int64 { return (&torchalloc.Rounding{}).Round(size) }

func find(starts []uint64, at uint64) place {
	i, exact := slices.BinarySearch(starts, at)
	if !exact {
		i--
	}
	if i < 0 {
		return place{segment: -1}
	}
	return place{i, at - starts[i]}
}

// comparison is what two recordings have in common.
type comparison struct {
	a, b      *recording
	differ    int // positions at which the steps differ
	first     int // the first of them, -1 for none
	freesOnly bool
	inPlace   int
}

func (c comparison) same() bool { return c.first < 0 || c.freesOnly }

func compare(a, b *recording) comparison {
	c := comparison{a: a, b: b, first: -1}
	for i := range max(len(a.steps), len(b.steps)) {
		if i >= len(a.steps) || i >= len(b.steps) || a.steps[i] != b.steps[i] {
			c.differ++
			if c.first < 0 {
				c.first = i
			}
		}
	}
	c.freesOnly = c.first >= 0 && slices.Equal(tidy(a.steps), tidy(b.steps))
	for i := range min(len(a.places), len(b.places)) {
		if a.places[i] == b.places[i] {
			c.inPlace++
		}
	}
	return c
}

// tidy sorts each run of frees.
func tidy(steps []step) []step {
	out := slices.Clone(steps)
	for i := 0; i < len(out); i++ {
		from := i
		for i < len(out) && (out[i].action.IsFreeRequest() || out[i].action.IsFreeCompletion()) {
			i++
		}
		slices.SortFunc(out[from:i], func(x, y step) int {
			return cmp.Or(cmp.Compare(x.action, y.action), cmp.Compare(x.size, y.size),
				cmp.Compare(x.stream, y.stream), cmp.Compare(x.block, y.block))
		})
	}
	return out
}

func (c comparison) print(out io.Writer) {
	fmt.Fprintf(out, "events          %d and %d\n", len(c.a.steps), len(c.b.steps))
	switch {
	case c.first < 0:
		fmt.Fprintln(out, "sequence        equal, and each free frees the same block")
	case c.freesOnly:
		fmt.Fprintf(out, "sequence        equal but for the order within runs of frees (%d events)\n",
			c.differ)
	default:
		fmt.Fprintf(out, "sequence        %d events differ, from event %d on: %s and %s\n", c.differ, c.first,
			describe(c.a.steps, c.first), describe(c.b.steps, c.first))
	}
	fmt.Fprintf(out, "peak allocated  %d and %d (%+.4f %%)\n", c.a.allocated, c.b.allocated,
		percent(c.a.allocated, c.b.allocated))
	fmt.Fprintf(out, "peak reserved   %d and %d (%+.4f %%)\n", c.a.reserved, c.b.reserved,
		percent(c.a.reserved, c.b.reserved))
	fmt.Fprintf(out, "segments        %d and %d\n", c.a.segments, c.b.segments)
	fmt.Fprintf(out, "same place      %d of %d allocations\n", c.inPlace, len(c.a.places))
}

func describe(steps []step, i int) string {
	if i >= len(steps) {
		return "the end"
	}
	return fmt.Sprintf("%s of %d bytes", steps[i].action, steps[i].size)
}

func percent(of, is int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(is-of) / float64(of) * 100
}
