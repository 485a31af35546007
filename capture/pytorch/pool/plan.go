package pool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// From what was recorded to a plan that is served.
//
// A recording is the allocations and frees of a few iterations in the order in which they happened, cut where steps end. A planner is given it as
// a trace, and answers with places for the blocks of one iteration or two. The table is all allocations of those iterations in order, those that have no
// place included: the process matches what comes by order and size, and an allocation that is known to be torch's is then not mistaken for a planned one
// of equal size that comes later.
//
// What was alive before the recording began is not in it: parameters and optimizer states keep their memory, and a plan has no room for them.
//
// Complexity: O(events log events). Rejected: numbering blocks by address (an address is used again) and matching by call site (that costs a stack an
// allocation, in training).

// Least is the size in bytes below which an allocation is left to torch: there are many, and together they are nothing.
const Least = 512

// EventKind says what happened.
type EventKind uint8

// The kinds of event.
const (
	// Alloc is an allocation.
	Alloc EventKind = iota
	// Free is a block's end.
	Free
	// Step is the end of an iteration.
	Step
)

// Event is one thing that the shim wrote down. On the wire it is [kind, size, stream, thread, address, nanoseconds].
type Event struct {
	Kind    EventKind
	Size    int64
	Stream  uint64
	Thread  uint64
	Address uint64
	Time    int64
}

// UnmarshalJSON reads the six numbers of an event.
func (e *Event) UnmarshalJSON(text []byte) error {
	var n []json.Number
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	if len(n) != 6 {
		return fmt.Errorf("an event has 6 numbers, this one %d", len(n))
	}
	var unsigned [6]uint64
	var signed [6]int64
	for i := range n {
		var err error
		if i == 1 || i == 5 {
			signed[i], err = strconv.ParseInt(string(n[i]), 10, 64)
		} else {
			unsigned[i], err = strconv.ParseUint(string(n[i]), 10, 64)
		}
		if err != nil {
			return fmt.Errorf("an event's number %d: %w", i+1, err)
		}
	}
	if unsigned[0] > uint64(Step) {
		return fmt.Errorf("an event of kind %d: kinds are 0, 1 and 2", unsigned[0])
	}
	*e = Event{EventKind(unsigned[0]), signed[1], unsigned[2], unsigned[3], unsigned[4], signed[5]}
	return nil
}

// Recording is what Pool.events returns in the training process.
type Recording struct {
	// Device is cpu, or cuda and a number.
	Device string
	// Thread is the one that trains. Allocations of others (a data loader's) follow an order of their own and are not planned; 0 plans all.
	Thread uint64
	Events []Event
	// Lost counts events for which there was no room.
	Lost int64
}

// Beyond these a recording is damaged.
const (
	maxSize = int64(1) << 48 // bytes
	maxTime = int64(1) << 62 // nanoseconds
)

// FromEvents makes a trace of a recording: lifetimes, with a mark for each iteration that was recorded whole.
func FromEvents(r Recording) (*traces.Trace, error) {
	kind, ordinal, err := deviceOf(r.Device)
	if err != nil {
		return nil, err
	}
	b := traces.NewBuilder()
	b.T.Source = traces.Source{Format: "pool", Tool: "gmemtop"}
	device := b.Device(kind, ordinal)
	type block struct {
		size   int64
		stream traces.StreamID
	}
	live := map[uint64]block{}
	var now, began int64
	steps := 0
	for i, e := range r.Events {
		if e.Time < 0 || e.Time > maxTime {
			return nil, fmt.Errorf("event %d of the recording is at %d ns: record again", i, e.Time)
		}
		if i == 0 {
			began, now = e.Time, e.Time
		}
		now = max(now+1, e.Time) // a moment each, so that a mark tells on which side of it an event is
		switch e.Kind {
		case Step:
			steps++
			b.T.Marks = append(b.T.Marks, traces.Mark{Start: began, End: now, Name: b.String("step " + strconv.Itoa(steps)), Kind: traces.MarkIteration, Device: device})
			began = now
		case Alloc:
			if e.Size <= 0 || e.Size > maxSize {
				return nil, fmt.Errorf("event %d of the recording allocates %d bytes: record again", i, e.Size)
			}
			if old, ok := live[e.Address]; ok {
				b.Lose("frees_missed", traces.DataLoss, 1, "an address was given out again that had not been seen freed")
				b.Event(traces.Event{Time: now, Addr: e.Address, Size: old.size, Stack: traces.NoStack, Stream: old.stream, Device: device, Action: traces.Free})
				delete(live, e.Address)
			}
			if e.Size < Least || r.Thread != 0 && e.Thread != r.Thread {
				continue
			}
			x := block{e.Size, b.Stream(e.Stream)}
			live[e.Address] = x
			b.Event(traces.Event{Time: now, Addr: e.Address, Size: x.size, Stack: traces.NoStack, Stream: x.stream, Device: device, Action: traces.Alloc})
		case Free:
			if x, ok := live[e.Address]; ok { // else it is not planned
				delete(live, e.Address)
				b.Event(traces.Event{Time: now, Addr: e.Address, Size: x.size, Stack: traces.NoStack, Stream: x.stream, Device: device, Action: traces.Free})
			}
		}
	}
	if r.Lost > 0 {
		b.Lose("events_lost", traces.DataLoss, r.Lost, "there was no room for more events: record fewer steps")
	}
	if steps == 0 {
		return nil, errors.New("the recording holds no whole step: record until one has ended")
	}
	return b.Finish(), nil
}

func deviceOf(name string) (traces.DeviceKind, int, error) {
	kind, number, _ := strings.Cut(name, ":")
	ordinal, err := strconv.Atoi(number)
	if number == "" {
		ordinal, err = 0, nil
	}
	switch {
	case err != nil || ordinal < 0 || ordinal >= traces.MaxDevices:
	case kind == "cpu":
		return traces.DeviceCPU, ordinal, nil
	case kind == "cuda":
		return traces.DeviceGPU, ordinal, nil
	}
	return 0, 0, fmt.Errorf("a recording of the device %q: the pool knows cpu and cuda", name)
}

// Plan is what Pool.arm takes in the training process.
type Plan struct {
	Device string `json:"device"`
	// Arena is what is taken of torch, in bytes.
	Arena int64 `json:"arena"`
	// Steps is how many iterations the entries span.
	Steps   int     `json:"steps"`
	Entries []Entry `json:"entries"`
}

// Entry is an allocation that is expected. On the wire it is [size, offset, stream].
type Entry struct {
	Size int64
	// Offset is its place in the arena, -1 for an allocation that torch serves.
	Offset int64
	Stream uint64
}

// MarshalJSON writes the three numbers of an entry.
func (e Entry) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%d,%d]", e.Size, e.Offset, e.Stream), nil
}

// UnmarshalJSON reads the three numbers of an entry.
func (e *Entry) UnmarshalJSON(text []byte) error {
	n := [3]json.Number{}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&n); err != nil {
		return err
	}
	var err [3]error
	e.Size, err[0] = strconv.ParseInt(string(n[0]), 10, 64)
	e.Offset, err[1] = strconv.ParseInt(string(n[1]), 10, 64)
	e.Stream, err[2] = strconv.ParseUint(string(n[2]), 10, 64)
	return errors.Join(err[:]...)
}

// PlannedBytes returns how many bytes of an iteration's allocations have a place, and how many there are.
func (p *Plan) PlannedBytes() (planned, all int64) {
	for _, e := range p.Entries {
		all += e.Size
		if e.Offset >= 0 {
			planned += e.Size
		}
	}
	return planned, all
}

// Table returns the plan of a device's allocations: offsets has the places that a planner chose, by the row of the allocation in the trace's events, and
// iterations how many iterations it planned as one (plan.Problem.Iterations). Of the trace's marked iterations, those are taken in which most of these rows
// lie; a row of another is a block that was there before, and is left out, as are those below [Least].
func Table(tr *traces.Trace, device traces.DeviceID, offsets map[int]int64, iterations int) (Plan, error) {
	iterations = max(iterations, 1)
	var marks []traces.Mark
	for _, m := range tr.Marks {
		if m.Kind == traces.MarkIteration && m.Start != traces.NoTime && m.End != traces.NoTime {
			marks = append(marks, m)
		}
	}
	if len(marks) < iterations {
		return Plan{}, fmt.Errorf("the recording has %d whole iterations and the plan spans %d: record more steps", len(marks), iterations)
	}
	first, end := tr.DeviceEvents(device)
	time := tr.Events.Time[first:end]
	cut := func(at int64) int { return first + sort.Search(len(time), func(i int) bool { return time[i] > at }) }
	rows := make([]int, 0, len(offsets))
	for row := range offsets {
		rows = append(rows, row)
	}
	slices.Sort(rows)
	inside := func(a, b int) int {
		x, _ := slices.BinarySearch(rows, a)
		y, _ := slices.BinarySearch(rows, b)
		return y - x
	}
	from, to := 0, 0
	for i := range len(marks) - iterations + 1 {
		a, b := cut(marks[i].Start), cut(marks[i+iterations-1].End)
		if inside(a, b) > inside(from, to) {
			from, to = a, b
		}
	}
	info := tr.Devices[device]
	p := Plan{Device: info.Kind.String(), Steps: iterations}
	if info.Kind == traces.DeviceGPU {
		p.Device = "cuda:" + strconv.Itoa(info.Ordinal)
	}
	placed := false
	for row := from; row < to; row++ {
		size := tr.Events.Size[row]
		if tr.Events.Action[row] != traces.Alloc || size < Least {
			continue
		}
		e := Entry{Size: size, Offset: -1, Stream: tr.Streams[tr.Events.Stream[row]]}
		if at, ok := offsets[row]; ok && at >= 0 {
			e.Offset, placed = at, true
			p.Arena = max(p.Arena, at+size)
		}
		p.Entries = append(p.Entries, e)
	}
	if !placed {
		return Plan{}, errors.New("the plan has no place for any allocation of an iteration: record again, over three steps")
	}
	return p, nil
}
