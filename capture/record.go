package capture

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A recording is the joined trace of all windows (see joiner), written while it grows, and the figures of
// every step as counters. The native file is only appended to, a chunk at a write, and flushed about once a
// second: if the watched process, this one or the machine dies, what was flushed can be read back.
//
// With triggers, windows wait in memory, Before of them at most, and are written when one fires, together
// with After windows that come later; without, every window is written. Steps are always written: they are
// small, and show what led to a trigger.
//
// A file that reaches its size or its age is closed and the next begun: run.gmt, run.001.gmt, and so on. Each
// can be read by itself: the first window of a file lists what was already there.

// RecordOptions says what a Recorder keeps.
type RecordOptions struct {
	// Path is the file; an existing file is refused.
	Path string
	// MaxBytes and MaxAge close a file and begin the next; 0 for never. Keep is how many files to keep,
	// deleting the oldest first; 0 for all.
	MaxBytes int64
	MaxAge   time.Duration
	Keep     int
	// Triggers, if any, choose the windows that are kept.
	Triggers      []*Trigger
	Before, After int
	// Control, unless nil, is asked for the windows after a trigger.
	Control Controller
	// Fired, unless nil, is called for every trigger that fires, on the source's goroutine.
	Fired func(t *Trigger, s Step, why string)
	// Failed, unless nil, is called once with the error that ends the recording, when it happens. It must not
	// call the recorder.
	Failed func(err error)
	// now is the clock; tests set it.
	now func() time.Time
}

// Recorder is a Sink that writes a recording. Its methods are safe for concurrent use. The first disk error
// ends the recording, never the watching; Err and Close return it.
type Recorder struct {
	mu       sync.Mutex
	opt      RecordOptions
	info     Info
	file     *os.File
	count    *counted
	w        *gmt.Writer
	join     *joiner
	counters map[string]int
	began    time.Time
	flushed  time.Time
	files    []string
	windows  []Window // waiting for a trigger
	after    int      // number of windows still to be kept
	fired    bool     // a trigger has fired
	next     int64    // the step after the last one
	err      error
	stop     chan struct{}
	done     sync.WaitGroup
}

// NewRecorder creates the first file at once, so that an unwritable path is an error before anything is
// watched.
func NewRecorder(opt RecordOptions) (*Recorder, error) {
	if opt.now == nil {
		opt.now = time.Now
	}
	opt.Before = max(opt.Before, 1)
	r := &Recorder{opt: opt, stop: make(chan struct{})}
	if err := r.open(); err != nil {
		return nil, err
	}
	r.done.Go(r.tick)
	return r, nil
}

// tick flushes while nothing arrives.
func (r *Recorder) tick() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-t.C:
			r.mu.Lock()
			r.flush()
			r.mu.Unlock()
		}
	}
}

// counted counts the bytes written.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// name returns the path of the k-th file.
func (r *Recorder) name(k int) string {
	if k == 0 {
		return r.opt.Path
	}
	ext := filepath.Ext(r.opt.Path)
	return fmt.Sprintf("%s.%03d%s", strings.TrimSuffix(r.opt.Path, ext), k, ext)
}

func (r *Recorder) open() error {
	path := r.name(len(r.files))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("recording: %w; name a file that is not there yet, in a folder that can be written",
			err)
	}
	r.file, r.count = f, &counted{w: f}
	r.began, r.flushed = r.opt.now(), r.opt.now()
	r.counters, r.join = map[string]int{}, nil
	r.w, err = gmt.NewWriter(r.count, r.source(), r.process(),
		traces.Clock{HasTime: true, Resolution: 1, Epoch: r.began.UnixNano()})
	if err != nil {
		_ = f.Close()
		return err
	}
	r.join = newJoiner(r.w, r.began.UnixNano())
	r.files = append(r.files, path)
	if n := len(r.files) - r.opt.Keep; r.opt.Keep > 0 && n > 0 {
		_ = os.Remove(r.files[n-1])
	}
	return nil
}

func (r *Recorder) source() traces.Source {
	tool := "gmemtop"
	if r.info.Torch != "" {
		tool = "torch " + r.info.Torch
	}
	return traces.Source{Format: "capture", Tool: tool, SyntheticAddresses: true}
}

func (r *Recorder) process() traces.Process {
	t := &r.info
	p := traces.Process{Host: t.Host, Rank: t.Rank, WorldSize: t.WorldSize}
	if t.PID != 0 {
		p.PID = maybe.Known(int64(t.PID))
	}
	return p
}

// Files returns the files of the recording, oldest first, without those that were removed.
func (r *Recorder) Files() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opt.Keep > 0 && len(r.files) > r.opt.Keep {
		return append([]string(nil), r.files[len(r.files)-r.opt.Keep:]...)
	}
	return append([]string(nil), r.files...)
}

// Triggered reports whether a trigger has fired so far.
func (r *Recorder) Triggered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fired
}

// Err returns the error that ended the recording, nil while it goes on.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// do runs f with the writer, unless the recording has failed.
func (r *Recorder) do(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || r.w == nil {
		return
	}
	f()
	if r.opt.now().Sub(r.flushed) >= time.Second {
		r.flush()
	}
}

func (r *Recorder) flush() {
	if r.err != nil || r.w == nil {
		return
	}
	r.flushed = r.opt.now()
	r.fail(r.w.Flush())
	big := r.opt.MaxBytes > 0 && r.count.n >= r.opt.MaxBytes
	old := r.opt.MaxAge > 0 && r.flushed.Sub(r.began) >= r.opt.MaxAge
	if r.err == nil && (big || old) {
		r.fail(r.closeFile())
		if r.err == nil {
			r.fail(r.open())
		}
	}
}

func (r *Recorder) fail(err error) {
	if r.err == nil && err != nil {
		r.err = fmt.Errorf("recording %s: %w", r.files[max(len(r.files)-1, 0)], err)
		if r.opt.Failed != nil {
			r.opt.Failed(r.err)
		}
	}
}

func (r *Recorder) closeFile() error {
	err := r.w.Close(r.join.final)
	if e := r.file.Close(); err == nil {
		err = e
	}
	r.w = nil
	return err
}

// Close ends the recording and returns the first error that it met.
func (r *Recorder) Close() error {
	r.mu.Lock()
	select {
	case <-r.stop:
	default:
		close(r.stop)
	}
	if r.w != nil && r.err == nil {
		r.fail(r.closeFile())
	} else if r.w != nil {
		_ = r.file.Close()
		r.w = nil
	}
	err := r.err
	r.mu.Unlock()
	r.done.Wait()
	return err
}

// Begin implements Sink.
func (r *Recorder) Begin(t Info) {
	r.do(func() {
		r.info = t
		r.w.Describe(r.source(), r.process(),
			traces.Clock{HasTime: true, Resolution: 1, Epoch: r.began.UnixNano()})
	})
}

// Step implements Sink.
func (r *Recorder) Step(s Step) {
	r.do(func() {
		r.next = s.Index + 1
		r.samples(s)
		for _, t := range r.opt.Triggers {
			if fires, why := t.Step(s); fires {
				r.fire(t, s, why)
			}
		}
	})
}

// device returns where the process trains, with its name if known.
func (r *Recorder) device() traces.Device {
	d := deviceOf(r.info.Device)
	if k := slices.IndexFunc(r.info.GPUs, func(x traces.Device) bool {
		return x.Kind == d.Kind && x.Ordinal == d.Ordinal
	}); k >= 0 {
		return r.info.GPUs[k]
	}
	return d
}

// samples writes a step's figures as counters at the time it ended. The lengths of the step and of its phases
// are counters too, so that every column of the step list can be read back from the file.
func (r *Recorder) samples(s Step) {
	device := r.w.Device(r.device())
	end := s.End - r.began.UnixNano()
	skipped := int64(0)
	if s.Skipped {
		skipped = 1
	}
	for _, c := range []struct {
		name  string
		value maybe.Int
	}{
		{"step.index", maybe.Known(s.Index)}, {"step.time", maybe.Known(s.End - s.Start)},
		{"step.forward", s.Forward}, {"step.backward", s.Backward}, {"step.optimizer", s.Optimizer},
		{"step.allocated", s.Allocated}, {"step.reserved", s.Reserved},
		{"step.peak_allocated", s.PeakAllocated}, {"step.peak_reserved", s.PeakReserved},
		{"step.rss", s.RSS}, {"step.parameters", s.Parameters},
		{"step.gradients", s.Gradients}, {"step.optimizer_state", s.OptimizerState},
		{"step.cost", maybe.Known(int64(s.Cost))}, {"step.retries", s.Retries}, {"step.ooms", s.OOMs},
		{"step.skipped", maybe.Known(skipped)},
	} {
		if value, ok := c.value.Value(); ok {
			r.sample(c.name, device, end, value)
		}
	}
}

func (r *Recorder) sample(counter string, d traces.DeviceID, at, value int64) {
	n, ok := r.counters[counter]
	if !ok {
		n = r.w.Counter(r.w.String(counter), d)
		r.counters[counter] = n
	}
	r.w.Sample(n, at, value)
}

// Precede writes spans of steps that came before all others, as counters at the time each span ended.
func (r *Recorder) Precede(list []Span) {
	r.do(func() {
		device, names := r.w.Device(r.device()), SpanCounters()
		for i := range list {
			row := list[i].Row()
			for k, name := range names {
				r.sample(name, device, list[i].End-r.began.UnixNano(), row[k])
			}
		}
	})
}

func deviceOf(name string) traces.Device {
	kind, ordinal, _ := strings.Cut(name, ":")
	n := 0
	if _, err := fmt.Sscanf(ordinal, "%d", &n); err != nil || n < 0 {
		n = 0
	}
	if kind == "cpu" {
		return traces.Device{Kind: traces.DeviceCPU, Ordinal: n}
	}
	return traces.Device{Kind: traces.DeviceGPU, Ordinal: n}
}

// fire keeps the waiting windows and asks for those that follow.
func (r *Recorder) fire(t *Trigger, s Step, why string) {
	at := s.End - r.began.UnixNano()
	r.w.Mark(traces.Mark{Start: at, End: at, Name: r.w.String("trigger " + t.String() + ": " + why),
		Kind: traces.MarkAnnotation})
	for _, w := range r.windows {
		r.join.add(w)
	}
	r.windows = nil
	r.after, r.fired = max(r.after, r.opt.After), true
	r.flush()
	if r.opt.Control != nil && r.opt.After > 0 {
		control, n := r.opt.Control, r.opt.After
		r.done.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := control.Order(ctx, Order{Do: Describe, Steps: n}); err != nil {
				r.Lose("windows_after_trigger", int64(n), err.Error())
			}
		})
	}
	if r.opt.Fired != nil {
		r.opt.Fired(t, s, why)
	}
}

// Window implements Sink.
func (r *Recorder) Window(w Window) {
	r.do(func() {
		switch {
		case len(r.opt.Triggers) == 0:
			r.join.add(w)
		case r.after > 0:
			r.after -= int(max(w.Last-w.First+1, 1))
			r.join.add(w)
		default:
			r.windows = append(r.windows, w)
			if len(r.windows) > r.opt.Before {
				r.windows = append([]Window(nil), r.windows[1:]...)
			}
		}
	})
}

// Notice implements Sink: the file says what could not be seen.
func (r *Recorder) Notice(n Notice) {
	if n.State || n.Text == "" {
		return
	}
	r.do(func() { r.w.Lose("notice_"+n.Key, traces.Info, 1, n.Text) })
}

// Answer implements Sink: a recording holds no orders.
func (r *Recorder) Answer(Answer) {}

// Lose implements Sink.
func (r *Recorder) Lose(name string, n int64, detail string) {
	r.do(func() { r.w.Lose("capture_"+name, traces.DataLoss, n, detail) })
}

// Output implements Sink: a recording holds no output.
func (r *Recorder) Output([]byte) {}

// End implements Sink.
func (r *Recorder) End(e End) {
	r.do(func() {
		for _, t := range r.opt.Triggers {
			if fires, why := t.End(e); fires {
				r.fire(t, Step{Index: r.next, End: r.opt.now().UnixNano()}, why)
			}
		}
		if e.OutOfMemory {
			r.w.Lose(traces.LossOutOfMemory, traces.Info, 1,
				"the process died of an allocation that failed: "+e.Detail)
		}
		r.flush()
	})
}
