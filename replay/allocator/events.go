package allocator

import (
	"cmp"
	"fmt"
	"slices"
)

// A block that other streams used may be handed out again only when their work on it is done. PyTorch records
// an event on each of those streams at the free, keeps a queue of (event, block) for each stream, asks at
// every request whether the front of each queue is done, and frees a block with its last event
// (insert_events, process_events). It is the same here. Events decides when work is done: by a simulator's
// clock, a device's events, or a recording's free_completed. A queue stops at its first event that is not
// done, since later ones on the same stream cannot be.

// Event is a point in a stream's order of work, numbered by the Events that made it.
type Event int64

// Events marks points in the work of streams and knows which are done.
type Events interface {
	// Record marks the end of the work given to a stream so far (cudaEventRecord).
	Record(stream Stream) Event
	// Done reports whether the work up to e is done (cudaEventQuery).
	Done(e Event) bool
	// Wait waits until it is (cudaEventSynchronize); Done(e) holds afterwards.
	Wait(e Event)
}

// instantly are Events that are done as soon as they are recorded: every stream keeps up with the host.
type instantly struct{}

func (instantly) Record(Stream) Event { return 0 }
func (instantly) Done(Event) bool     { return true }
func (instantly) Wait(Event)          {}

// ManualEvents are Events that are done when Complete says so, or when an allocator waits for them. The zero
// value is ready.
type ManualEvents struct {
	streams []Stream // of event i+1
	done    []bool
}

// Record marks a point in a stream's work and returns its number, from 1.
func (m *ManualEvents) Record(stream Stream) Event {
	m.streams, m.done = append(m.streams, stream), append(m.done, false)
	return Event(len(m.done))
}

// Done reports whether e was completed or waited for.
func (m *ManualEvents) Done(e Event) bool { return m.done[e-1] }

// Wait completes e.
func (m *ManualEvents) Wait(e Event) {
	m.Complete(e)
}

// Complete marks e as done.
func (m *ManualEvents) Complete(e Event) { m.done[e-1] = true }

// Last returns the number of the newest event, 0 for none.
func (m *ManualEvents) Last() Event { return Event(len(m.done)) }

// delayed holds the blocks used on other streams: their streams while allocated, their events once freed.
type delayed struct {
	events Events
	uses   map[ref][]Stream
	queues []queue // by stream
	n      int     // events outstanding
}

type queue struct {
	stream Stream
	items  []delayedFree
	head   int
}

type delayedFree struct {
	event Event
	block ref
}

// note notes a use of a block on a stream.
func (d *delayed) note(s *slab, r ref, stream Stream) {
	if s.at(r).stream == stream {
		return // its own stream's order is enough
	}
	s.at(r).used = true
	if d.uses == nil {
		d.uses = map[ref][]Stream{}
	}
	streams := d.uses[r]
	if i, known := slices.BinarySearch(streams, stream); !known {
		d.uses[r] = slices.Insert(streams, i, stream)
	}
}

// free records the events of a block being freed, and reports whether there are any.
func (d *delayed) free(s *slab, r ref) bool {
	b := s.at(r)
	if !b.used {
		return false
	}
	b.used = false
	for _, stream := range d.uses[r] {
		i, known := slices.BinarySearchFunc(d.queues, stream,
			func(q queue, s Stream) int { return cmp.Compare(q.stream, s) })
		if !known {
			d.queues = slices.Insert(d.queues, i, queue{stream: stream})
		}
		d.queues[i].items = append(d.queues[i].items, delayedFree{d.events.Record(stream), r})
		b.events++
		d.n++
	}
	delete(d.uses, r)
	return b.events > 0
}

// poll appends the blocks whose last event is done to dst; with wait, all blocks, waiting for each event.
func (d *delayed) poll(s *slab, dst []ref, wait bool) []ref {
	if d.n == 0 {
		return dst
	}
	for i := range d.queues {
		q := &d.queues[i]
		for ; q.head < len(q.items); q.head++ {
			item := q.items[q.head]
			if wait {
				d.events.Wait(item.event)
			} else if !d.events.Done(item.event) {
				break
			}
			d.n--
			if b := s.at(item.block); b.events > 1 {
				b.events--
			} else {
				b.events = 0
				dst = append(dst, item.block)
			}
		}
		if q.head == len(q.items) {
			q.items, q.head = q.items[:0], 0
		} else if q.head > 64 && q.head*2 > len(q.items) {
			q.items, q.head = append(q.items[:0], q.items[q.head:]...), 0
		}
	}
	return dst
}

func blockError(what string, b Block) error {
	return fmt.Errorf("allocator: %s %#x: %w: was it freed before?", what, b.Addr, errBlock)
}
