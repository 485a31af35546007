package allocator

import (
	"slices"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// Where the stand-in GPU places memory and ranges of addresses, and how much its context takes.
const (
	contextBytes = 2 << 20
	firstMemory  = 0x5000_0000_0000
	firstRange   = 0x6000_0000_0000
)

// device is a simulated device with the stand-in GPU's addresses; other processes hold part of it.
type device struct {
	*SimDriver
	total  int64
	spans  []span // by address
	onFree func()
}

type span struct{ from, until uint64 }

// place returns the lowest address from base on with room for size bytes, and takes it.
func (d *device) place(base uint64, size int64) uint64 {
	at := base
	i, _ := slices.BinarySearchFunc(d.spans, base, func(s span, base uint64) int {
		if s.from < base {
			return -1
		}
		return 1
	})
	for ; i < len(d.spans) && d.spans[i].from < at+uint64(size); i++ {
		at = d.spans[i].until
	}
	d.spans = slices.Insert(d.spans, i, span{at, at + uint64(size)})
	return at
}

func (d *device) giveUp(addr uint64) {
	d.spans = slices.DeleteFunc(d.spans, func(s span) bool { return s.from == addr })
}

func (d *device) MemInfo() (free, total int64) {
	free, _ = d.SimDriver.MemInfo()
	return free, d.total
}

func (d *device) Alloc(size int64) (uint64, error) {
	size = roundUp(size, torchalloc.Granularity)
	addr := d.place(firstMemory, size)
	if err := d.AllocAt(addr, size); err != nil {
		d.giveUp(addr)
		return 0, err
	}
	return addr, nil
}

func (d *device) Free(addr uint64) error {
	if d.onFree != nil {
		d.onFree()
	}
	d.giveUp(addr)
	return d.SimDriver.Free(addr)
}

func (d *device) Reserve(size int64) (uint64, error) {
	addr := d.place(firstRange, size)
	return addr, d.ReserveAt(addr, size)
}

func (d *device) Unreserve(addr uint64) error {
	d.giveUp(addr)
	return d.SimDriver.Unreserve(addr)
}

// queues are the streams of a device on which an event is done only when something waits for it. They are
// Events.
type queues struct {
	given, done [16]int // events, by stream
	events      []queued
}

type queued struct {
	stream Stream
	at     int
}

func (q *queues) Record(stream Stream) Event {
	q.given[stream]++
	q.events = append(q.events, queued{stream, q.given[stream]})
	return Event(len(q.events))
}

func (q *queues) Done(e Event) bool {
	return q.events[e-1].at <= q.done[q.events[e-1].stream]
}

func (q *queues) Wait(e Event) {
	at := q.events[e-1]
	q.done[at.stream] = max(q.done[at.stream], at.at)
}

func (q *queues) sync(stream Stream) { q.done[stream] = q.given[stream] }
func (q *queues) syncAll()           { q.done = q.given }
