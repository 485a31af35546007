// Package paper reads the traces that the authors of SmartPool and AutoSwap published with their paper (Zhang
// et al., arXiv 1903.06631; repositories memInfoSwap and onlineColoring). Each line is one operation on a
// device block:
//
//	[index] <Malloc|Free|Read|Mutable|Layer> <address> [size] <timestamp>
//
// Some files have the index, and in some a Free has no size. Timestamps are Unix time, in nanoseconds in the
// traces with accesses and in milliseconds in the others; their magnitude tells which. Read is an access that
// reads, Mutable one that may write, Layer a use by a whole layer. No line says which operation of the
// network it belongs to, so a trace with accesses is of the kind Accesses.
//
// Some traces begin in the middle of training. A block that is used or freed before it is allocated is shown
// as allocated at the trace's start, if a line gives its size, and counted.
package paper

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/gmemtop/gmemtop/traces"
)

const formatName = "smartpool_text"

const maxLine = 1 << 16

// verb is a line's first word.
type verb uint8

const (
	verbNone verb = iota
	verbMalloc
	verbFree
	verbRead
	verbMutable
	verbLayer
)

func parseVerb(p []byte) verb {
	switch string(p) {
	case "Malloc":
		return verbMalloc
	case "Free":
		return verbFree
	case "Read":
		return verbRead
	case "Mutable":
		return verbMutable
	case "Layer":
		return verbLayer
	}
	return verbNone
}

// record is one line.
type record struct {
	time, size int64 // size is -1 where the line has none
	addr       uint64
	verb       verb
}

// Sniff reports whether head begins with a line of such a trace, or is a curve of one figure a line, which
// the same authors published beside their traces and which Read refuses by name.
func Sniff(head []byte) bool {
	line, rest, _ := bytes.Cut(bytes.TrimLeft(head, " \r\n\t"), []byte("\n"))
	if len(line) > 256 {
		return false
	}
	if _, err := parseLine(line); err == nil {
		return true
	}
	return isCurve(line, rest)
}

// isCurve reports whether the first four lines each hold one decimal number and nothing else.
func isCurve(line, rest []byte) bool {
	for range 4 {
		if _, err := strconv.ParseFloat(string(bytes.TrimSpace(line)), 64); err != nil || len(line) > 64 {
			return false
		}
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	return true
}

var errCurve = &traces.UnsupportedError{Reason: "this is a load curve, one figure a line, and no trace",
	Advice: "open the file of Malloc, Free, Read and Mutable lines that it was computed from"}

func parseLine(line []byte) (record, error) {
	var fields [6][]byte
	n := 0
	for f := range bytes.FieldsSeq(line) {
		if n == len(fields) {
			return record{}, errors.New("there are more than five fields")
		}
		fields[n] = f
		n++
	}
	f := fields[:n]
	if n > 0 && parseVerb(f[0]) == verbNone {
		if _, err := strconv.ParseUint(string(f[0]), 10, 63); err == nil {
			f = f[1:]
		}
	}
	if len(f) == 0 || parseVerb(f[0]) == verbNone {
		return record{}, errors.New("the line does not begin with Malloc, Free, Read, Mutable or Layer")
	}
	r := record{verb: parseVerb(f[0]), size: -1}
	if len(f) != 4 && (len(f) != 3 || r.verb != verbFree) {
		return record{}, fmt.Errorf("%s needs an address, a size and a time", f[0])
	}
	var err error
	if r.addr, err = strconv.ParseUint(string(f[1]), 0, 64); err != nil {
		return record{}, fmt.Errorf("%.30q is not an address", f[1])
	}
	if r.time, err = strconv.ParseInt(string(f[len(f)-1]), 10, 64); err != nil || r.time < 0 {
		return record{}, fmt.Errorf("%.30q is not a time", f[len(f)-1])
	}
	if len(f) == 4 {
		if r.size, err = strconv.ParseInt(string(f[2]), 10, 64); err != nil || r.size < 0 || r.size > 1<<50 {
			return record{}, fmt.Errorf("%.30q is not a size", f[2])
		}
	}
	return r, nil
}

// Read reads a trace. progress, if not nil, is called with the number of bytes read so far. Errors name the
// line; the lines before a damaged one make the trace that comes with the error.
func Read(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error) {
	records, err := readRecords(ctx, r, progress)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(records) == 0 {
		if err == nil {
			err = &traces.FormatError{Format: formatName, Line: 1, Reason: "the trace has no lines"}
		}
		return nil, err
	}
	w := newWriter(records)
	if err != nil {
		w.b.Lose("torn_tail", traces.DataLoss, 1,
			"the file is cut or damaged; everything after that place is missing")
	}
	w.older(records)
	for _, r := range records {
		w.add(r)
	}
	return w.b.Finish(), err
}

func readRecords(ctx context.Context, r io.Reader, progress func(int64)) ([]record, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, maxLine), maxLine)
	var records []record
	done := int64(0)
	for n := 1; in.Scan(); n++ {
		line := in.Bytes()
		done += int64(len(line)) + 1
		if n%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if progress != nil {
				progress(done)
			}
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		rec, err := parseLine(line)
		if err != nil {
			if _, number := strconv.ParseFloat(string(bytes.TrimSpace(line)), 64); number == nil &&
				len(records) == 0 {
				return nil, errCurve
			}
			return records, &traces.FormatError{Format: formatName, Line: n, Reason: err.Error()}
		}
		records = append(records, rec)
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		return records, &traces.FormatError{Format: formatName, Offset: done,
			Reason: "a line is longer than 64 KiB"}
	}
	return records, in.Err()
}

// writer turns records into a trace.
type writer struct {
	b      *traces.Builder
	zero   int64
	scale  int64 // nanoseconds of a tick
	device traces.DeviceID
	live   map[uint64]int64 // size of each live block
}

func newWriter(records []record) *writer {
	w := &writer{b: traces.NewBuilder(), zero: records[0].time, live: map[uint64]int64{}}
	w.b.T.Source.Format = formatName
	w.scale = tick(w.zero)
	w.b.T.Clock = traces.Clock{HasTime: true, Resolution: w.scale}
	if w.zero <= math.MaxInt64/w.scale && w.zero*w.scale > 1e18 {
		w.b.T.Clock.Epoch = w.zero * w.scale
	}
	w.device = w.b.Device(traces.DeviceGPU, 0)
	return w
}

// tick guesses the unit of a Unix time from its magnitude: a time of this century has 10 digits in seconds,
// 13 in milliseconds, 16 in microseconds and 19 in nanoseconds.
func tick(t int64) int64 {
	switch {
	case t >= 1e17:
		return 1
	case t >= 1e14:
		return 1000
	case t >= 1e11:
		return 1e6
	}
	return 1
}

// older allocates at the trace's start the blocks that lines use before their Malloc.
func (w *writer) older(records []record) {
	const born = -1
	first := map[uint64]int64{} // size, or born
	var order []uint64
	for _, r := range records {
		if _, known := first[r.addr]; known {
			continue
		}
		switch {
		case r.verb == verbMalloc:
			first[r.addr] = born
		case r.size > 0:
			first[r.addr] = r.size
			order = append(order, r.addr)
		}
	}
	for _, addr := range order {
		if first[addr] == born {
			continue
		}
		w.b.Lose("blocks_preexisting", traces.Info, 1,
			"blocks older than the recording are shown as allocated at its start")
		w.event(traces.Alloc, 0, addr, first[addr])
		w.live[addr] = first[addr]
	}
}

func (w *writer) event(a traces.Action, t int64, addr uint64, size int64) {
	w.b.Event(traces.Event{Time: t, Addr: addr, Size: size, Stack: traces.NoStack, Device: w.device,
		Action: a})
}

func (w *writer) add(r record) {
	t := w.at(r.time)
	size, live := w.live[r.addr]
	switch r.verb {
	case verbMalloc:
		if live {
			w.b.Lose("frees_missing", traces.DataLoss, 1,
				"blocks allocated again without a Free are taken as freed at that time")
			w.event(traces.Free, t, r.addr, size)
		}
		w.event(traces.Alloc, t, r.addr, r.size)
		w.live[r.addr] = r.size
	case verbFree:
		if r.size < 0 {
			if !live {
				w.b.Lose("frees_unmatched", traces.DataLoss, 1,
					"frees of a block that the trace never showed")
				return
			}
			r.size = size
		}
		w.event(traces.Free, t, r.addr, r.size)
		delete(w.live, r.addr)
	default:
		w.b.T.Accesses = append(w.b.T.Accesses,
			traces.Access{Time: t, Addr: r.addr, Size: r.size, Op: traces.NoOp,
				Event: int32(w.b.T.Events.Len()), Device: w.device, Mode: modeOf(r.verb)})
	}
}

func modeOf(v verb) traces.AccessMode {
	switch v {
	case verbRead:
		return traces.Read
	case verbMutable:
		return traces.Mutate
	}
	return traces.Use
}

// at converts a timestamp to nanoseconds from the trace's start; it saturates on overflow.
func (w *writer) at(t int64) int64 {
	d := t - w.zero // both are at least 0
	if d > math.MaxInt64/w.scale {
		return math.MaxInt64
	}
	if d < math.MinInt64/w.scale {
		return math.MinInt64 + 1
	}
	return d * w.scale
}
