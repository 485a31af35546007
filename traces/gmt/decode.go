package gmt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"github.com/klauspost/compress/zstd"

	"github.com/gmemtop/gmemtop/traces"
)

// zstdRatio is above the most that a zstd block can expand: 128 KiB from four bytes.
const zstdRatio = 1 << 15

func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(2*maxText))
}

// decoder turns chunks of one file back into columns.
type decoder struct {
	data []byte
	zstd *zstd.Decoder
}

// stored returns the stored bytes of buffer i of c and their uncompressed length; raw says that they are not
// compressed.
func (d *decoder) stored(c *chunk, i int) (b []byte, n int64, raw bool, err error) {
	s := c.buffers[i]
	b = d.data[c.body+s.offset : c.body+s.offset+s.length]
	if len(b) == 0 {
		return nil, 0, false, nil
	}
	if len(b) < 8 {
		return nil, 0, false, errors.New("a buffer without its length")
	}
	n = int64(binary.LittleEndian.Uint64(b))
	b = b[8:]
	if n == -1 {
		return b, int64(len(b)), true, nil
	}
	if n < 0 || n > maxText || n > (int64(len(b))+1)*zstdRatio {
		return nil, 0, false, fmt.Errorf("%d bytes that claim to be %d", len(b), n)
	}
	return b, n, false, nil
}

// into decompresses buffer i of c into dst, which must have exactly its length.
func (d *decoder) into(dst []byte, c *chunk, i int) error {
	b, n, raw, err := d.stored(c, i)
	if err != nil {
		return err
	}
	if n != int64(len(dst)) {
		return fmt.Errorf("a buffer of %d bytes instead of %d", n, len(dst))
	}
	if raw || n == 0 {
		copy(dst, b)
		return nil
	}
	out, err := d.zstd.DecodeAll(b, dst[:0:len(dst)])
	if err != nil {
		return err
	}
	if len(out) != len(dst) || &out[0] != &dst[0] {
		return fmt.Errorf("a buffer of %d bytes instead of %d", len(out), len(dst))
	}
	return nil
}

// tableSizes are how many rows of each table events may refer to.
type tableSizes struct{ stacks, details, streams, devices int }

// scratch is the memory that one goroutine needs besides the columns.
type scratch struct{ detail []traces.DetailID }

// events decompresses a chunk of events into the rows of ev from first on and checks that their ids are
// known. The details stay in s, since most traces have none; some says whether any is not empty.
func (d *decoder) events(c *chunk, ev *traces.Events, first int, known tableSizes,
	s *scratch) (some bool, err error) {
	end := first + c.rows
	if cap(s.detail) < c.rows {
		s.detail = make([]traces.DetailID, maxBatchRows)
	}
	s.detail = s.detail[:c.rows]
	dst := [...]struct {
		col int
		b   []byte
	}{
		{colTime, bytesOf(ev.Time[first:end])}, {colAddress, bytesOf(ev.Addr[first:end])},
		{colSize, bytesOf(ev.Size[first:end])},
		{colKind, bytesOf(ev.Action[first:end])}, {colDevice, bytesOf(ev.Device[first:end])},
		{colStream, bytesOf(ev.Stream[first:end])},
		{colStack, bytesOf(ev.Stack[first:end])}, {colDetail, bytesOf(s.detail)},
	}
	for _, x := range dst {
		if err := d.into(x.b, c, dataBuffer(x.col)); err != nil {
			return false, fmt.Errorf("column %s: %w", columns[x.col].name, err)
		}
	}
	// One unsigned maximum for each column: -1, the absent stack, is the largest number and wraps to 0 when 1
	// is added.
	switch {
	case maxOf(ev.Action[first:end]) >= kindOp:
		return false, errors.New("a row that is not an event among events")
	case int(maxOf(ev.Device[first:end])) >= known.devices:
		return false, unknownID("device")
	case int(maxOf(ev.Stream[first:end])) >= known.streams:
		return false, unknownID("stream")
	}
	worst := uint32(0)
	for _, id := range ev.Stack[first:end] {
		worst = max(worst, uint32(id)+1)
	}
	if int64(worst) > int64(known.stacks) {
		return false, unknownID("stack")
	}
	worst = 0
	for _, id := range s.detail {
		worst = max(worst, uint32(id))
	}
	if worst > 0 && int64(worst) >= int64(known.details) {
		return false, unknownID("detail")
	}
	return worst > 0, nil
}

func maxOf[T ~uint8 | ~uint16](s []T) T {
	var m T
	for _, x := range s {
		m = max(m, x)
	}
	return m
}

func unknownID(what string) error { return fmt.Errorf("a %s that is not defined before", what) }

// rows decompresses a chunk of definitions or records into r, which is overwritten; budget is how many bytes
// may still be decompressed.
func (d *decoder) rows(c *chunk, r *rows, budget *int64) error {
	n := c.rows
	*r = rows{
		time: resize(r.time, n), addr: resize(r.addr, n), size: resize(r.size, n), value: resize(r.value, n),
		kind: resize(r.kind, n), device: resize(r.device, n), stream: resize(r.stream, n),
		stack: resize(r.stack, n), detail: resize(r.detail, n), ref: resize(r.ref, n),
		offsets: resize(r.offsets, n+1), text: r.text,
	}
	dst := [numColumns][]byte{
		bytesOf(r.time), bytesOf(r.addr), bytesOf(r.size), bytesOf(r.value), r.kind, r.device,
		bytesOf(r.stream), bytesOf(r.stack), bytesOf(r.detail), bytesOf(r.ref), bytesOf(r.offsets),
	}
	for i, b := range dst {
		if err := d.into(b, c, dataBuffer(i)); err != nil {
			return fmt.Errorf("column %s: %w", columns[i].name, err)
		}
	}
	text := dataBuffer(colText) + 1
	_, size, _, err := d.stored(c, text)
	if err != nil {
		return fmt.Errorf("column text: %w", err)
	}
	if *budget -= size + int64(n)*rowBytes; *budget < 0 {
		return errExpands
	}
	r.text = resize(r.text, int(size))
	if err := d.into(r.text, c, text); err != nil {
		return fmt.Errorf("column text: %w", err)
	}
	last := int32(0)
	for i, o := range r.offsets {
		if o < last || int64(o) > size || (i == 0 && o != 0) {
			return errors.New("column text: offsets out of order")
		}
		last = o
	}
	return nil
}

// rowBytes is roughly the memory that a row takes.
const rowBytes = 64

var errExpands = fmt.Errorf("it expands to more than %d times its size: it is not a recording", ratioLimit)

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
