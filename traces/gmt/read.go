package gmt

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/traces"
)

// Names of the losses that damage to a file leads to.
const (
	lossCut     = "recording_cut"
	lossDamaged = "chunk_damaged"
	lossUnknown = "rows_of_a_later_version"
)

// advice is what to do about a damaged file.
const advice = "gmemtop repair FILE keeps every whole chunk"

// Sniff reports whether head, the first bytes of a file (256 suffice), is that of a native file.
func Sniff(head []byte) bool {
	return len(head) >= 8 && bytes.Equal(head[:4], endMarker[:4]) &&
		bytes.Contains(head[:min(len(head), 512)], []byte(keyCRC))
}

// Read reads a native file that [Write] or a [Writer] wrote, or what is left of one.
//
// Read holds all of r in memory (about 5 bytes an event). If the file is cut or damaged, Read returns the
// sound part with a [*traces.FormatError] that says where, and the losses recording_cut and chunk_damaged say
// how much is missing: a damaged chunk of events loses its events, and one of definitions loses names and
// stacks, which become empty. The trace is nil if nothing is sound. Read allocates at most 512 MiB and 256
// times the file's size.
//
// progress, which may be nil, is called from one goroutine with the bytes done and the bytes in all.
func Read(ctx context.Context, r io.Reader, progress func(done, total int64)) (*traces.Trace, error) {
	if !littleEndian() {
		return nil, errBigEndian
	}
	data, err := slurp(ctx, r)
	if err != nil {
		return nil, err
	}
	l := scan(data)
	if len(l.chunks) == 0 && l.schema.end == 0 {
		return nil, firstError(l, nil, int64(len(data)))
	}
	d, err := newDecoder()
	if err != nil {
		return nil, fmt.Errorf("gmt: %w", err)
	}
	defer d.Close()
	rd := newReader(&decoder{data: data, zstd: d})
	if err := rd.read(ctx, l, progress); err != nil {
		return nil, err
	}
	t := rd.finish(l)
	if progress != nil {
		progress(int64(len(data)), int64(len(data)))
	}
	return t, firstError(l, rd.failures, int64(len(data)))
}

// slurp reads r to its end, in one allocation if its size is known.
func slurp(ctx context.Context, r io.Reader) ([]byte, error) {
	size := int64(0)
	switch x := r.(type) {
	case *os.File:
		if s, err := x.Stat(); err == nil && s.Mode().IsRegular() {
			size = s.Size()
		}
	case interface{ Len() int }:
		size = int64(x.Len())
	}
	if size > math.MaxInt-bytes.MinRead {
		return nil, fmt.Errorf("gmt: a file of %d bytes is too large for this machine", size)
	}
	var b bytes.Buffer
	b.Grow(int(size) + bytes.MinRead)
	_, err := b.ReadFrom(&ctxReader{ctx, r})
	if err != nil {
		return nil, fmt.Errorf("gmt: reading: %w", err)
	}
	return b.Bytes(), nil
}

// ctxReader is a reader that stops with its context.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p[:min(len(p), 8<<20)])
}

// failure is a chunk with a valid checksum but invalid content: another writer made it.
type failure struct {
	chunk *chunk
	first int // of its rows in the events, for a chunk of events
	err   error
}

// firstError returns the error about the first damage, nil for none.
func firstError(l layout, failures []failure, size int64) error {
	fe := &traces.FormatError{Format: formatName, Offset: math.MaxInt64, Advice: advice}
	for _, x := range l.damaged {
		if x.offset < fe.Offset {
			fe.Offset, fe.Err, fe.Reason = x.offset, x.err, "damaged chunk"
			if l.cut(x) {
				fe.Reason = "the recording was cut"
			}
		}
	}
	for _, x := range failures {
		if x.chunk.offset < fe.Offset {
			fe.Offset, fe.Err, fe.Reason = x.chunk.offset, x.err, "invalid chunk"
		}
	}
	if fe.Offset == math.MaxInt64 {
		if l.complete {
			return nil
		}
		fe.Offset, fe.Reason = size, "the recording was cut: it has no end marker"
	}
	if l.schema.end == 0 && len(l.chunks) == 0 {
		fe.Advice = ""
	}
	return fe
}

// reader fills a trace from chunks.
type reader struct {
	d        *decoder
	b        *traces.Builder
	t        *traces.Trace
	have     counts // rows of the stream so far, lost ones included
	lost     counts
	rows     rows
	budget   int64
	opInfos  []opInfo
	tied     []bool // counters whose samples have events
	events   gaps
	ops      gaps
	padding  int64
	unknown  int64
	final    row // the row that announces the final state
	hasFinal bool
	found    []traces.Loss // what this reading found missing
	ids      ids

	stop     int64 // offset of the chunk at which reading ended
	next     int   // row at which the next chunk's events begin
	mu       sync.Mutex
	failures []failure
}

func newReader(d *decoder) *reader {
	b := traces.NewBuilder()
	t := &b.T
	t.Strings, t.Streams, t.Details = nil, nil, nil
	return &reader{d: d, b: b, t: t, ids: ids{t: t}, stop: math.MaxInt64,
		budget: freeBytes + ratioLimit*int64(len(d.data))}
}

// job is a chunk of events to decompress.
type job struct {
	c     *chunk
	first int
	known tableSizes
}

// read takes the chunks in order. Definitions and records are read here; events go to other goroutines, for
// which nothing but the sizes of the tables matters. The error is that of ctx.
func (r *reader) read(ctx context.Context, l layout, progress func(done, total int64)) error {
	total := 0
	for i := range l.chunks {
		if c := &l.chunks[i]; c.class == classEvents {
			cost := int64(c.rows) * rowBytes
			if cost > r.budget || total+c.rows > math.MaxInt32 {
				r.stopAt(c, errExpands)
				l.chunks = l.chunks[:i]
				break
			}
			r.budget, total = r.budget-cost, total+c.rows
		}
	}
	if total > 0 {
		r.t.Events = traces.Events{
			Time: make([]int64, total), Addr: make([]uint64, total), Size: make([]int64, total),
			Stack: make([]traces.StackID, total), Stream: make([]traces.StreamID, total),
			Device: make([]traces.DeviceID, total), Action: make([]traces.Action, total),
		}
	}
	var wg sync.WaitGroup
	jobs := make(chan job, 4)
	for range min(max(2, runtime.GOMAXPROCS(0)), 1+total/maxRows) {
		wg.Go(func() { r.work(jobs) })
	}
	err := r.chunks(ctx, l.chunks, jobs, progress)
	close(jobs)
	wg.Wait()
	return err
}

func (r *reader) chunks(ctx context.Context, chunks []chunk, jobs chan<- job,
	progress func(done, total int64)) error {
	for i := range chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := &chunks[i]
		if err := r.advance(c); err != nil {
			r.stopAt(c, err)
			return nil
		}
		if c.class == classEvents {
			jobs <- job{c, r.next, tableSizes{r.t.Stacks.Len(), len(r.t.Details), len(r.t.Streams),
				len(r.t.Devices)}}
			r.next += c.rows
			r.have[tabEvents] += int64(c.rows)
		} else if err := r.readRows(c); err != nil {
			r.have = c.before
			r.stopAt(c, err)
			return nil
		}
		if progress != nil {
			progress(c.end, int64(len(r.d.data)))
		}
	}
	return nil
}

// readRows reads a chunk of definitions or records. An error in it ends the reading, since what follows may
// refer to it.
func (r *reader) readRows(c *chunk) error {
	if err := r.d.rows(c, &r.rows, &r.budget); err != nil {
		return err
	}
	r.have.add(c.class, r.rows.kind)
	if c.class == classDefinitions {
		return r.define()
	}
	return r.record()
}

// stopAt ends the reading at a chunk.
func (r *reader) stopAt(c *chunk, err error) {
	r.stop = c.offset
	r.fail(c, r.next, err)
}

func (r *reader) fail(c *chunk, first int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, failure{c, first, err})
}

// work decompresses chunks of events. The first chunk with a detail creates the column of details.
func (r *reader) work(jobs <-chan job) {
	var s scratch
	for j := range jobs {
		some, err := r.d.events(j.c, &r.t.Events, j.first, j.known, &s)
		if err != nil {
			r.fail(j.c, j.first, err)
			continue
		}
		if some {
			copy(r.details()[j.first:], s.detail)
		}
	}
}

func (r *reader) details() []traces.DetailID {
	r.mu.Lock()
	defer r.mu.Unlock()
	ev := &r.t.Events
	if ev.Detail == nil {
		ev.Detail = make([]traces.DetailID, ev.Len())
	}
	return ev.Detail
}

// advance moves to a chunk: rows that should have come before it are lost. Empty definitions replace lost
// ones, so that later ids keep their meaning; finish translates the numbers of events and ops.
func (r *reader) advance(c *chunk) error {
	for i, n := range c.before {
		lost := n - r.have[i]
		switch {
		case lost < 0:
			return fmt.Errorf("its row counts are %d behind", -lost)
		case lost == 0:
			continue
		case lost > math.MaxInt32:
			return fmt.Errorf("%d rows before it are missing", lost)
		}
		r.lost[i] += lost
		switch i {
		case tabEvents:
			r.events.add(r.have[i], lost)
		case tabOps:
			r.ops.add(r.have[i], lost)
		case tabRecords:
		default:
			if r.padding += lost; r.padding > maxPadding {
				return fmt.Errorf("%d definitions before it are missing", lost)
			}
			r.pad(i, int(lost))
		}
	}
	r.have = c.before
	return nil
}

// pad defines n empty rows of a table.
func (r *reader) pad(table, n int) {
	for range n {
		switch table {
		case tabStrings:
			r.t.Strings = append(r.t.Strings, "")
		case tabFrames:
			r.t.Frames = append(r.t.Frames, traces.Frame{})
		case tabStacks:
			r.t.Stacks.Offsets = append(r.t.Stacks.Offsets, int32(len(r.t.Stacks.IDs)))
		case tabDetails:
			r.t.Details = append(r.t.Details, traces.Detail{ForwardStack: traces.NoStack})
		case tabStreams:
			if len(r.t.Streams) < traces.MaxStreams {
				r.t.Streams = append(r.t.Streams, 0)
			}
		case tabDevices:
			if len(r.t.Devices) < traces.MaxDevices {
				r.t.Devices = append(r.t.Devices, traces.Device{Ordinal: len(r.t.Devices)})
			}
		case tabCounters:
			r.t.Counters = append(r.t.Counters, traces.Counter{})
			r.tied = append(r.tied, false)
		case tabOpInfos:
			r.opInfos = append(r.opInfos, opInfo{})
		}
	}
}

// gaps are lost rows of a table. Other rows still refer to the rest by the numbers from before the loss.
type gaps []gap

type gap struct{ first, n, lostBefore int64 }

func (g *gaps) add(first, n int64) {
	lost := int64(0)
	if k := len(*g); k > 0 {
		lost = (*g)[k-1].lostBefore + (*g)[k-1].n
	}
	*g = append(*g, gap{first, n, lost})
}

// find returns where row i is now; for a lost one, where it would be.
func (g gaps) find(i int64) (now int64, lost bool) {
	k, found := slices.BinarySearchFunc(g, i, func(x gap, i int64) int { return cmp.Compare(x.first, i) })
	if !found {
		k--
	}
	if k < 0 {
		return i, false
	}
	x := g[k]
	if i < x.first+x.n {
		return x.first - x.lostBefore, true
	}
	return i - x.lostBefore - x.n, false
}
