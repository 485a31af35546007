package nvml

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// SamplerOptions are the choices of [NewSampler]; the zero value of each means its default.
type SamplerOptions struct {
	// Interval is the time between two readings of a device, 1 s by default.
	Interval time.Duration
	// History is how many readings are kept for each device and each process, 3600 by default.
	History int
	// Processes is how many ended processes are remembered, 64 by default; the first to end is forgotten
	// first.
	Processes int
}

// Sampler polls devices in the background and keeps a bounded history.
//
// A history is a slice of capacity 2×History. When it is full, its newer half is copied to a new slice. So
// what a [View] holds is never written again, a view copies no readings, and appending is O(1) amortised. A
// ring buffer was rejected: each view would have to copy it, or lock it while drawing.
type Sampler struct {
	source Source
	o      SamplerOptions

	mu      sync.Mutex
	devices []deviceTrack
	changed chan struct{}
}

type deviceTrack struct {
	DeviceHistory
	processes map[ProcessKey]*ProcessHistory
}

// ProcessKey distinguishes one process on a device from all others, even from a later one with the same
// number if the system tells when they started.
type ProcessKey struct {
	PID                                 int
	Start, GPUInstance, ComputeInstance maybe.Int
}

// DeviceHistory is what is known about one device. It is read-only.
type DeviceHistory struct {
	Device Device
	// Last is the newest reading, nil before the first.
	Last *Reading
	// Readings are the past readings and the newest, oldest first, without their lists of processes,
	// instances and absences.
	Readings []Reading
	// Err is why the last attempt failed, nil if it did not.
	Err error
	// Late counts the readings that were due while one was still under way.
	Late int64
	// Processes are ordered by memory now, most first; ended ones follow, the last to end first.
	Processes []ProcessHistory
}

// ProcessHistory is what is known about one process on one device. It is read-only.
type ProcessHistory struct {
	Key ProcessKey
	// Process is the newest entry.
	Process Process
	// Points are the past entries, oldest first.
	Points []ProcessPoint
	// Gone is when a reading first lacked the process, the zero time while it is there.
	Gone time.Time
}

// ProcessPoint is a process at one moment: its memory in bytes and its share of the SMs' time in %.
type ProcessPoint struct {
	Time     time.Time
	Used, SM maybe.Int
}

// View is the state of a Sampler at one moment. It is the caller's and never changes.
type View struct{ Devices []DeviceHistory }

// NewSampler returns a sampler of the source's devices; [Sampler.Run] makes it poll.
func NewSampler(source Source, o SamplerOptions) (*Sampler, error) {
	o.Interval = cmp.Or(max(o.Interval, 0), time.Second)
	o.History = cmp.Or(max(o.History, 0), 3600)
	o.Processes = cmp.Or(max(o.Processes, 0), 64)
	devices, err := source.Devices()
	if err != nil {
		return nil, err
	}
	s := &Sampler{source: source, o: o, changed: make(chan struct{}, 1)}
	for _, d := range devices {
		s.devices = append(s.devices, deviceTrack{DeviceHistory: DeviceHistory{Device: d, Err: d.Err},
			processes: map[ProcessKey]*ProcessHistory{}})
	}
	return s, nil
}

// Run polls until ctx is done, with a goroutine for each device, and then returns ctx.Err() at once: a device
// that hangs in its driver blocks only its own goroutine. A device that cannot be opened, or is lost, is not
// polled further; the view has its error.
func (s *Sampler) Run(ctx context.Context) error {
	for i := range s.devices {
		if s.devices[i].Device.Err == nil {
			go s.poll(ctx, i)
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *Sampler) poll(ctx context.Context, i int) {
	tick := time.NewTicker(s.o.Interval)
	defer tick.Stop()
	for due := time.Now(); ; {
		r, err := s.source.Read(s.devices[i].Device.Index)
		if ctx.Err() != nil {
			return
		}
		s.take(i, r, err, int64(max(time.Since(due)-1, 0)/s.o.Interval))
		if errors.Is(err, errLost) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case due = <-tick.C:
		}
	}
}

// take adds a reading of device i.
func (s *Sampler) take(i int, r Reading, err error, late int64) {
	s.mu.Lock()
	d := &s.devices[i]
	d.Late += late
	d.Err = err
	if err == nil {
		d.add(r, s.o)
	}
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (d *deviceTrack) add(r Reading, o SamplerOptions) {
	d.Last = &r
	past := r
	past.Processes, past.Instances, past.Absent = nil, nil, nil
	d.Readings = grown(d.Readings, o.History, past)
	seen := map[ProcessKey]bool{}
	for _, p := range r.Processes {
		key := ProcessKey{p.PID, p.Start, p.GPUInstance, p.ComputeInstance}
		seen[key] = true
		h := d.processes[key]
		if h == nil {
			h = &ProcessHistory{Key: key}
			d.processes[key] = h
		}
		h.Process, h.Gone = p, time.Time{}
		h.Points = grown(h.Points, o.History, ProcessPoint{r.Time, p.Used, p.SM})
	}
	if !r.ProcessesKnown { // an unknown list does not mean that they ended
		return
	}
	var gone []*ProcessHistory
	for key, h := range d.processes {
		if !seen[key] && h.Gone.IsZero() {
			h.Gone = r.Time
		}
		if !h.Gone.IsZero() {
			gone = append(gone, h)
		}
	}
	slices.SortFunc(gone, func(a, b *ProcessHistory) int { return order(*a, *b) })
	for _, h := range gone[min(len(gone), o.Processes):] {
		delete(d.processes, h.Key)
	}
}

// grown appends v to a history of n entries at least: see [Sampler].
func grown[T any](s []T, n int, v T) []T {
	if len(s) == cap(s) {
		keep := s
		if len(s) >= 2*n {
			keep = s[len(s)-n:]
		}
		s = append(make([]T, 0, min(2*n, max(16, 2*len(keep)))), keep...)
	}
	return append(s, v)
}

// newest returns the last n entries of a history, with no room to append over what the sampler writes next.
func newest[T any](s []T, n int) []T { return s[max(0, len(s)-n):len(s):len(s)] }

// order sorts running processes by memory, most first, before ended ones, the last to end first.
func order(a, b ProcessHistory) int {
	switch {
	case a.Gone.IsZero() != b.Gone.IsZero():
		if a.Gone.IsZero() {
			return -1
		}
		return 1
	case !a.Gone.Equal(b.Gone):
		return b.Gone.Compare(a.Gone)
	}
	return cmp.Or(cmp.Compare(b.Process.Used.Or(-1), a.Process.Used.Or(-1)),
		cmp.Compare(a.Key.PID, b.Key.PID),
		cmp.Compare(a.Key.Start.Or(-1), b.Key.Start.Or(-1)),
		cmp.Compare(a.Key.GPUInstance.Or(-1), b.Key.GPUInstance.Or(-1)),
		cmp.Compare(a.Key.ComputeInstance.Or(-1), b.Key.ComputeInstance.Or(-1)))
}

// View returns what is known now. Its cost grows with the number of devices and processes, not readings.
func (s *Sampler) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := View{Devices: make([]DeviceHistory, len(s.devices))}
	for i := range s.devices {
		d := &s.devices[i]
		h := d.DeviceHistory
		h.Readings = newest(h.Readings, s.o.History)
		h.Processes = make([]ProcessHistory, 0, len(d.processes))
		for _, p := range d.processes {
			q := *p
			q.Points = newest(q.Points, s.o.History)
			h.Processes = append(h.Processes, q)
		}
		slices.SortFunc(h.Processes, order)
		v.Devices[i] = h
	}
	return v
}
