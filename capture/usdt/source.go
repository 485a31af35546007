package usdt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Options are the choices of a [Source]; the zero value of each but PID means its default.
type Options struct {
	PID int
	// Probes is what to watch: PyTorch if it is loaded, otherwise the driver.
	Probes Probes
	// Window is how long a window lasts, 1 s by default.
	Window time.Duration
	// MaxEvents ends a window early, 1,000,000 by default: it bounds memory.
	MaxEvents int
	// Stacks records the native stack of each event; the kernel skips frames without frame pointers.
	Stacks bool
	// Wait waits for the library to be loaded, instead of failing.
	Wait bool
	// RingBytes is the size of the ring buffer, a power of two, 32 MiB by default. That holds two and a half
	// seconds of 100,000 pairs each.
	RingBytes int

	root string // of the proc file system, "" for /proc
	perf bool   // attach as on kernels before 6.10
}

func (o Options) withDefaults() Options {
	o.Window = cmp.Or(max(o.Window, 0), time.Second)
	o.MaxEvents = cmp.Or(max(o.MaxEvents, 0), 1_000_000)
	o.RingBytes = cmp.Or(max(o.RingBytes, 0), 32<<20)
	o.root = cmp.Or(o.root, "/proc")
	return o
}

// Source watches one process by probes. It implements [capture.Source]: its windows have the kind
// traces.Lifetimes.
//
// Probes see no training steps. A [capture.Step] of this source is an interval: it lasts as long as a window,
// or less if a window ends early, and is reported even if nothing happens. Its Allocated is how much of the
// memory allocated since the probes were attached is alive at the interval's end, its PeakAllocated the most
// during it; Reserved and PeakReserved are the same for the driver's segments, if those are watched. The
// target's capabilities have [intervals], so that no viewer calls an interval a step.
type Source struct{ o Options }

// intervals, as one of a process's capabilities, says that its Steps are intervals of time and not training
// steps.
const intervals = "intervals"

var _ capture.Source = (*Source)(nil)

// New returns a source; nothing happens before Run.
func New(o Options) *Source { return &Source{o.withDefaults()} }

// Check says why no process can be watched here, nil if one can.
func Check() error {
	if err := supported(); err != nil {
		return err
	}
	return thisHost("/proc").check()
}

// Try loads the kernel program for a moment and says why no process can be watched here. Check cannot know
// this: inside a container, or under a security module, only the kernel's answer tells. If it works, Try
// returns nil and the kernel's version.
func Try() (kernel string, err error) {
	if err := supported(); err != nil {
		return "", err
	}
	h := thisHost("/proc")
	if err := h.check(); err != nil {
		return h.release, err
	}
	return h.release, tryLoading(h)
}

// Plan returns where probes would be attached in a process, without attaching any.
func Plan(o Options) ([]Site, error) {
	o = o.withDefaults()
	if err := supported(); err != nil {
		return nil, err
	}
	return plan(o.root, o.PID, o.Probes)
}

// loss is a counter of the kernel program, by its index in the map.
type loss int

const (
	lossRing loss = iota
	lossCall
	lossRead
	lossStack
	lossKinds
)

var lossText = [lossKinds]struct {
	name     string
	severity traces.Severity
	detail   string
}{
	{"ring_full", traces.DataLoss, "events that came while the ring buffer was full; a larger one or a " +
		"less busy machine loses none"},
	{"calls_untracked", traces.DataLoss,
		"calls of the driver that could not be followed to their return: too many were under way"},
	{"arguments_unread", traces.DataLoss, "arguments whose memory could not be read; they are shown as 0"},
	{"stacks_missing", traces.Info, "stacks that could not be recorded; their events are there"},
}

// tracer is the set of probes attached to a process in the kernel.
type tracer interface {
	// read calls take with each event that comes within d, in order, and returns once there is a pause or
	// take returns false.
	read(d time.Duration, take func(event) bool) error
	// lost returns the counters so far.
	lost() [lossKinds]int64
	// alive reports whether the process still runs.
	alive() bool
	// resolver returns what turns the stack of an event into one of a trace, nil if stacks are not recorded.
	resolver() func(*traces.Builder, int32) traces.StackID
	close() error
}

// Run watches until ctx is done or the process ends, which is not an error.
func (s *Source) Run(ctx context.Context, sink capture.Sink) error {
	if err := Check(); err != nil {
		return err
	}
	info, err := s.target()
	if err != nil {
		return err
	}
	sink.Begin(info)
	sites, err := s.wait(ctx, sink)
	if err != nil {
		return err
	}
	t, err := attach(s.o, sites)
	if err != nil {
		return err
	}
	defer t.close()
	if again, err := s.target(); err != nil || again.Started != info.Started {
		return fmt.Errorf("%w: %d ended while attaching the probes", ErrNoProcess, s.o.PID)
	}
	return s.watch(ctx, sink, t, sites, info)
}

func (s *Source) target() (capture.Info, error) {
	lister := procs.Lister{Root: s.o.root}
	p, err := lister.Look(s.o.PID)
	if err != nil {
		return capture.Info{}, fmt.Errorf(
			"%w: %d; gmemtop attach without a number lists those that run PyTorch", ErrNoProcess, s.o.PID)
	}
	host, _ := os.Hostname()
	return capture.Info{PID: p.PID, Started: p.Started, Host: host, Argv: p.Argv,
		Capabilities: []string{"windows", intervals}}, nil
}

// wait plans, repeatedly if the library is still to be loaded.
func (s *Source) wait(ctx context.Context, sink capture.Sink) ([]Site, error) {
	const pause = 200 * time.Millisecond
	for {
		sites, err := plan(s.o.root, s.o.PID, s.o.Probes)
		if !s.o.Wait || !errors.Is(err, ErrNotLoaded) {
			sink.Notice(capture.Notice{Key: noticeWaiting})
			return sites, err
		}
		sink.Notice(capture.Notice{Key: noticeWaiting, State: true, Text: say.WaitsForCUDA.Text()})
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause): // nothing signals that a process has loaded a library
		}
	}
}

const (
	noticeWaiting   = "probes.waiting"
	noticePlan      = "probes.plan"
	noticeLimits    = "probes.limits"
	noticeIntervals = "probes.intervals"
)

// watch reads events into windows until the end.
func (s *Source) watch(ctx context.Context, sink capture.Sink, t tracer, sites []Site,
	info capture.Info) error {
	// Read the clocks before announcing the probes: whatever happens from then on comes later.
	now, clock := time.Now().UnixNano(), monotonic()
	what, unseen := Explain(sites)
	sink.Notice(capture.Notice{Key: noticePlan, Text: what})
	sink.Notice(capture.Notice{Key: noticeLimits, Text: unseen})
	sink.Notice(capture.Notice{Key: noticeIntervals, Text: say.ProbesRows.Text(lasting(s.o.Window))})
	w := newWindower(now-clock, watches(sites, blockAlloc))
	w.driverToo = watches(sites, driverAlloc)
	w.process = traces.Process{Host: info.Host, PID: maybe.Known(int64(info.PID))}
	w.settings = settings(sites)
	w.resolve = t.resolver()
	var lost [lossKinds]int64
	row := interval{start: clock}
	first, stop := int64(0), int64(math.MaxInt64) // the interval in which the window began
	w.open(clock)
	// flush ends the window, and the interval with it; an empty interval that was not reported counts as not
	// begun.
	flush := func(next int64) {
		for i, n := range t.lost() {
			if d := n - lost[i]; d > 0 {
				text := lossText[i]
				w.b.Lose(text.name, text.severity, d, text.detail)
				sink.Lose(text.name, d, text.detail)
				lost[i] = n
			}
		}
		if trace := w.close(); trace != nil {
			sink.Window(capture.Window{Trace: trace, First: first, Last: row.index, How: capture.HowProbes,
				Bytes: capture.Size(trace)})
			sink.Step(row.end(w, next))
		}
		first, row.start = row.index, next
		w.open(next)
	}
	take := func(e event) bool {
		if stop == math.MaxInt64 && ctx.Err() != nil {
			stop = monotonic()
		}
		// The first event past its end closes a window, so that a burst is cut by event times and not when it
		// is read.
		if e.time-w.start >= int64(s.o.Window) || w.events >= s.o.MaxEvents {
			flush(max(e.time-1, w.start))
		}
		w.take(e, sites[e.site].does)
		return e.time < stop
	}
	for {
		// Check before reading, so that what came before the end is still read.
		gone, leaving, pause := !t.alive(), ctx.Err() != nil, 20*time.Millisecond
		if leaving {
			stop, pause = min(stop, monotonic()), time.Millisecond
		}
		if err := t.read(pause, take); err != nil {
			return err
		}
		now := monotonic()
		switch {
		case leaving:
			flush(now)
			sink.End(capture.End{Reason: capture.Detached})
			return ctx.Err()
		case gone:
			flush(now)
			sink.End(capture.End{Reason: capture.Exited})
			return nil
		case now-row.start < int64(s.o.Window):
		case w.events > 0:
			flush(now)
		default: // an empty window goes on, but the interval is reported, to show that nothing happened
			sink.Step(row.end(w, now))
		}
	}
}

func watches(sites []Site, a action) bool {
	return slices.ContainsFunc(sites, func(s Site) bool { return s.does == a })
}

func lasting(d time.Duration) string {
	if d == time.Second {
		return "a second"
	}
	return d.String()
}

// interval is the row in progress.
type interval struct{ index, start int64 }

// end returns the interval as a row that ends at a moment of the events' clock, and begins the next.
func (i *interval) end(w *windower, at int64) capture.Step {
	s := capture.Step{Index: i.index, Start: w.epoch + i.start, End: w.epoch + at,
		Allocated: maybe.Known(w.allocated.now), PeakAllocated: maybe.Known(w.allocated.peak)}
	if w.driverToo {
		s.Reserved, s.PeakReserved = maybe.Known(w.reserved.now), maybe.Known(w.reserved.peak)
		s.OOMs = maybe.Known(w.ooms)
	}
	if !w.blocksToo {
		s.Allocated, s.PeakAllocated = s.Reserved, s.PeakReserved // each segment counts as one block
	}
	w.allocated.peak, w.reserved.peak = w.allocated.now, w.reserved.now
	i.index, i.start = i.index+1, at
	return s
}

// settings records in the trace where the probes were.
func settings(sites []Site) []traces.Setting {
	type place struct {
		Name     string `json:"name"`
		Library  string `json:"library"`
		Offset   uint64 `json:"offset"`
		Emulated bool   `json:"emulated"`
	}
	list := make([]place, 0, len(sites))
	for _, s := range sites {
		list = append(list, place{s.Name, s.Library, s.Offset, s.Emulated})
	}
	var text strings.Builder
	if err := json.NewEncoder(&text).Encode(list); err != nil {
		return nil // JSON can express every text, number and boolean here
	}
	return []traces.Setting{{Key: "probes", Value: strings.TrimSpace(text.String())}}
}
