package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// A recording is the allocations and frees of a few iterations in order, cut where steps end. Planners get it
// as a trace; package replay/live turns their plans into the table that the process serves from.
//
// What was alive before the recording is not in it: parameters and optimizer states keep their memory, and a
// plan does not place them.
//
// Complexity: O(events). Rejected: numbering blocks by address: an address is used again.

// leastSize is the size in bytes below which an allocation is left to torch: there are many such, but they
// take little memory.
const leastSize = 512

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

// Event is one event that the shim recorded. On the wire it is [kind, size, stream, thread, address,
// nanoseconds].
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
	// Thread is the training thread. Allocations of other threads (such as a data loader's) come in another
	// order and are not planned; 0 plans all.
	Thread uint64
	Events []Event
	// Lost counts events that did not fit.
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
		now = max(now+1, e.Time) // a moment for each, so that a mark separates the events before and after it
		switch e.Kind {
		case Step:
			steps++
			b.T.Marks = append(b.T.Marks, traces.Mark{Start: began, End: now,
				Name: b.String("step " + strconv.Itoa(steps)), Kind: traces.MarkIteration, Device: device})
			began = now
		case Alloc:
			if e.Size <= 0 || e.Size > maxSize {
				return nil,
					fmt.Errorf("event %d of the recording allocates %d bytes: record again", i, e.Size)
			}
			if old, ok := live[e.Address]; ok {
				b.Lose("frees_missed", traces.DataLoss, 1,
					"an address was given out again that had not been seen freed")
				b.Event(traces.Event{Time: now, Addr: e.Address, Size: old.size, Stack: traces.NoStack,
					Stream: old.stream, Device: device, Action: traces.Free})
				delete(live, e.Address)
			}
			if e.Size < leastSize || r.Thread != 0 && e.Thread != r.Thread {
				continue
			}
			x := block{e.Size, b.Stream(e.Stream)}
			live[e.Address] = x
			b.Event(traces.Event{Time: now, Addr: e.Address, Size: x.size, Stack: traces.NoStack,
				Stream: x.stream, Device: device, Action: traces.Alloc})
		case Free:
			if x, ok := live[e.Address]; ok { // else it is not planned
				delete(live, e.Address)
				b.Event(traces.Event{Time: now, Addr: e.Address, Size: x.size, Stack: traces.NoStack,
					Stream: x.stream, Device: device, Action: traces.Free})
			}
		}
	}
	if r.Lost > 0 {
		b.Lose("events_lost", traces.DataLoss, r.Lost,
			"there was no room for more events: record fewer steps")
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
	return 0, 0, fmt.Errorf("a recording of the device %q: the pool supports cpu and cuda", name)
}
