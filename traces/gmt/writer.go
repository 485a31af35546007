package gmt

import (
	"context"
	"errors"
	"io"

	"github.com/gmemtop/gmemtop/traces"
)

// Writer records: it interns what events refer to, collects rows, and appends a chunk whenever maxRows rows
// are pending or Flush is called. Call Flush about once a second: a recorder that is killed then loses at
// most that much. Each chunk is one Write of the underlying writer, so pass the file itself, unbuffered.
//
// Methods that add rows return nothing: the first error sticks and is returned by Flush and Close, and
// nothing is written after it. A Writer is not safe for concurrent use; a timer sends to the goroutine that
// owns it.
type Writer struct {
	enc      *encoder
	b        *traces.Builder // interns only: its tables of rows are emptied as they are written
	written  counts
	losses   []traces.Loss // as written
	counters []traces.Counter
	names    map[counterKey]int
	info     string
	events   int64
	ops      int64
	err      error
	closed   bool
}

type counterKey struct {
	name   traces.StringID
	device traces.DeviceID
}

// NewWriter writes the head of a recording to w. Where src.Format is empty it becomes "gmt".
func NewWriter(w io.Writer, src traces.Source, p traces.Process, c traces.Clock) (*Writer, error) {
	e, err := newEncoder(w)
	if err != nil {
		return nil, err
	}
	if err := e.out.schema(src.Tool); err != nil {
		return nil, err
	}
	x := &Writer{enc: e, b: traces.NewBuilder(), names: map[counterKey]int{}}
	x.Describe(src, p, c)
	return x, x.Flush()
}

// Describe replaces the source, process and clock given to NewWriter, such as when the rank becomes known
// later.
func (w *Writer) Describe(src traces.Source, p traces.Process, c traces.Clock) {
	if src.Format == "" {
		src.Format = formatName
	}
	text, err := recordingText(src, p, c)
	if err == nil && text != w.info {
		w.info = text
		err = w.enc.define(row{kind: kindRecording, stack: -1}, text)
	}
	w.keep(err)
}

// keep remembers the first error.
func (w *Writer) keep(err error) {
	if w.err == nil && err != nil {
		w.err = err
	}
}

// String interns s.
func (w *Writer) String(s string) traces.StringID { return w.b.String(s) }

// Bytes interns the string of p, without allocating if it is known already.
func (w *Writer) Bytes(p []byte) traces.StringID { return w.b.Bytes(p) }

// Frame interns a frame.
func (w *Writer) Frame(f traces.Frame) traces.FrameID { return w.b.Frame(f) }

// Stack interns a stack, innermost frame first; an empty one is NoStack.
func (w *Writer) Stack(ids []traces.FrameID) traces.StackID { return w.b.Stack(ids) }

// Detail interns d; its ForwardStack must be NoStack if there is none.
func (w *Writer) Detail(d traces.Detail) traces.DetailID { return w.b.Detail(d) }

// Stream returns the id of a raw stream handle.
func (w *Writer) Stream(handle uint64) traces.StreamID { return w.b.Stream(handle) }

// Device returns the id of the device with d's kind and ordinal. Its name and capacity are those of the first
// call.
func (w *Writer) Device(d traces.Device) traces.DeviceID {
	known := len(w.b.T.Devices)
	id := w.b.Device(d.Kind, d.Ordinal)
	if len(w.b.T.Devices) > known {
		w.b.T.Devices[id] = d
	}
	return id
}

// Counter returns the number of a counter for Sample, such as that of [traces.CounterAllocated] on one
// device.
func (w *Writer) Counter(name traces.StringID, device traces.DeviceID) int {
	key := counterKey{name, device}
	i, ok := w.names[key]
	if !ok {
		i = len(w.counters)
		w.names[key] = i
		w.counters = append(w.counters, traces.Counter{Name: name, Device: device})
	}
	return i
}

// Event adds a memory event. Its ids must come from the Writer.
func (w *Writer) Event(e traces.Event) {
	w.b.T.Events.Append(e)
	w.events++
	if w.b.T.Events.Len() >= maxRows {
		w.writeEvents()
	}
}

// Op adds an op and returns its id for the accesses that it makes.
func (w *Writer) Op(o traces.Op) traces.OpID {
	w.beforeRecord()
	if _, known := w.enc.opInfos[infoOf(o)]; !known {
		w.writeDefinitions() // its strings come before it
	}
	w.keep(w.enc.op(o))
	w.ops++
	return traces.OpID(w.ops - 1)
}

// Access adds an access; its Event is set to the number of events so far.
func (w *Writer) Access(a traces.Access) {
	w.beforeRecord()
	a.Event = int32(w.events)
	w.keep(w.enc.access(a))
}

// Mark adds a mark.
func (w *Writer) Mark(m traces.Mark) {
	w.beforeRecord()
	w.keep(w.enc.mark(m))
}

// Sample adds a sample of a counter.
func (w *Writer) Sample(counter int, time, value int64) {
	w.beforeRecord()
	w.keep(w.enc.sample(counter, time, value, 0))
}

// beforeRecord queues the definitions that the next record may refer to, if that record fills its chunk.
func (w *Writer) beforeRecord() {
	if w.enc.records.len() == maxRows-1 {
		w.writeDefinitions()
	}
}

// Lose counts n losses of one name, as [traces.Builder.Lose] does.
func (w *Writer) Lose(name string, s traces.Severity, n int64, detail string) {
	w.b.Lose(name, s, n, detail)
}

// Flush writes what is pending and returns the Writer's first error.
func (w *Writer) Flush() error {
	if w.closed {
		return errClosed
	}
	w.writeEvents()
	if w.err == nil {
		w.keep(w.enc.flushRecords())
	}
	return w.err
}

var errClosed = errors.New("gmt: the writer is closed")

// Close writes what is pending, the allocator's final state if final.Known is set, and the end marker. It
// does not close the underlying writer.
func (w *Writer) Close(final traces.State) error {
	if err := w.Flush(); err != nil {
		return err
	}
	w.closed = true
	if final.Known {
		w.keep(w.enc.defineState(&final))
		w.keep(w.enc.state(context.Background(), &final))
	}
	if w.err == nil {
		w.keep(w.enc.end())
	}
	return w.err
}

// writeDefinitions queues everything that was interned, counted or named since the last call.
func (w *Writer) writeDefinitions() {
	if w.err != nil {
		return
	}
	w.keep(w.enc.tables(context.Background(), &w.b.T, &w.written))
	for ; int(w.written[tabCounters]) < len(w.counters); w.written[tabCounters]++ {
		w.keep(w.enc.defineCounter(w.counters[w.written[tabCounters]]))
	}
	for i, l := range w.b.T.Losses {
		if i == len(w.losses) {
			w.losses = append(w.losses, traces.Loss{})
		}
		if w.losses[i] != l {
			w.losses[i] = l
			w.keep(w.enc.defineLoss(i, l))
		}
	}
}

// writeEvents writes the pending definitions and events.
func (w *Writer) writeEvents() {
	w.writeDefinitions()
	ev := &w.b.T.Events
	if w.err == nil {
		w.keep(w.enc.events(context.Background(), ev, 0, ev.Len()))
	}
	*ev = traces.Events{
		Time: ev.Time[:0], Addr: ev.Addr[:0], Size: ev.Size[:0], Stack: ev.Stack[:0],
		Stream: ev.Stream[:0], Device: ev.Device[:0], Action: ev.Action[:0],
	}
}
