package gmt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
)

// Programs that read Arrow can write a recording again: as a stream or as a file, uncompressed, with LZ4 or
// with zstd, in batches of any size. The rows and their order stay, but the checksums and row counts of our
// messages are lost. ReadArrow converts such a file to our own format in memory and reads that, so that rows
// are validated in one place.

var arrowMagic = []byte("ARROW1\x00\x00")

// Numbers of Arrow's Message.fbs and Schema.fbs that only other writers use.
const (
	metadataV4 = 3
	codecLZ4   = 0
	codecNone  = 0xff // ours, for no compression
)

// SniffArrow reports whether head is the start of a recording rewritten by another program.
func SniffArrow(head []byte) bool {
	head, isFile := bytes.CutPrefix(head, arrowMagic)
	return (isFile || bytes.HasPrefix(head, endMarker[:4])) && !Sniff(head) &&
		bytes.Contains(head, []byte(columns[colTime].name)) &&
		bytes.Contains(head, []byte(columns[colAddress].name)) &&
		bytes.Contains(head, []byte(columns[colDetail].name))
}

// ReadArrow reads a recording that another program rewrote as an Arrow stream or file. For damaged input it
// returns what was sound before the damage with a [*traces.FormatError].
func ReadArrow(ctx context.Context, r io.Reader, progress func(done, total int64)) (*traces.Trace, error) {
	data, err := slurp(ctx, r)
	if err != nil {
		return nil, err
	}
	var ours bytes.Buffer
	enc, err := newMessages(&ours)
	if err != nil {
		return nil, err
	}
	z, err := newDecoder()
	if err != nil {
		return nil, fmt.Errorf("gmt: %w", err)
	}
	defer z.Close()
	a := &arrow{ctx: ctx, data: data, d: decoder{data: data, zstd: z}, enc: enc,
		budget: freeBytes + ratioLimit*int64(len(data))}
	at, broken := a.rewrite()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(broken, traces.ErrUnsupported):
		return nil, fmt.Errorf("gmt: %w", broken)
	case broken != nil:
		broken = &traces.FormatError{Format: formatName, Offset: at, Err: broken,
			Reason: "the file is cut or damaged",
			Advice: "write it again, or open the .gmt that it was made of"}
	}
	if a.rows == 0 && broken != nil {
		return nil, broken
	}
	if err := enc.write(endMarker); err != nil {
		return nil, err
	}
	t, err := Read(ctx, &ours, progress)
	if broken == nil && err != nil && ctx.Err() == nil {
		broken = &traces.FormatError{Format: formatName, Offset: -1, Err: err,
			Reason: "the rows are not those of a recording",
			Advice: "keep all rows in their order, or open the .gmt that it was made of"}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return t, broken
}

// arrow writes the batches of a foreign stream again.
type arrow struct {
	ctx    context.Context
	data   []byte
	d      decoder
	enc    *messages
	budget int64
	rows   int64
}

// rewrite reads messages until the end or an error, and returns where it stopped.
func (a *arrow) rewrite() (at int64, err error) {
	// A file is a stream with an index behind it, which is not needed.
	if bytes.HasPrefix(a.data, arrowMagic) {
		at = int64(len(arrowMagic))
	}
	for first := true; ; first = false {
		if err := a.ctx.Err(); err != nil {
			return at, err
		}
		end, over, err := a.message(at, first)
		if err != nil || over {
			return at, err
		}
		at = end
	}
}

// message takes the message at pos; over says that it is the end of the stream.
func (a *arrow) message(pos int64, first bool) (end int64, over bool, err error) {
	rest := a.data[pos:]
	if len(rest) < 8 {
		return 0, false, errCut
	}
	if binary.LittleEndian.Uint32(rest) != continuation {
		return 0, false, errors.New("no message begins here")
	}
	n := int64(binary.LittleEndian.Uint32(rest[4:]))
	if n == 0 {
		return 0, true, nil
	}
	if n > maxMetadata || n > int64(len(rest))-8 {
		return 0, false, errCut
	}
	v := &view{b: rest[8 : 8+n], long: true}
	msg := v.table(v.follow(0))
	version, kind, header, body := v.u16(msg.field(0)), v.u8(msg.field(1)), msg.ref(2), int64(0)
	if at := msg.field(3); at != 0 {
		body = v.i64(at)
	}
	c := chunk{offset: pos, body: pos + 8 + n}
	switch {
	case v.bad || version != metadataV4 && version != metadataV5:
		return 0, false, errMetadata
	case body < 0 || body > int64(len(rest))-8-n:
		return 0, false, errCut
	case first != (kind == headerSchema):
		return 0, false, errNoSchema
	}
	c.end = c.body + body
	switch kind {
	case headerSchema:
		if err := parseColumns(v, header); err != nil {
			return 0, false, err
		}
		return c.end, false, a.enc.schema("")
	case headerRecordBatch:
		return c.end, false, a.batch(v, header, &c)
	}
	return 0, false, fmt.Errorf("a message of type %d, which a recording does not have", kind)
}

// batch reads a record batch and writes its rows again.
func (a *arrow) batch(v *view, header int, c *chunk) error {
	codec, err := parseForeignBatch(v, header, c)
	if err != nil || c.rows == 0 {
		return err
	}
	for _, b := range c.buffers {
		if b.offset < 0 || b.length < 0 || b.offset > c.end-c.body || b.length > c.end-c.body-b.offset {
			return errors.New("a buffer outside the body")
		}
	}
	// Check before allocating: rows of zeros take next to no room in the file.
	if a.budget -= int64(c.rows) * rowBytes; a.budget < 0 {
		return errExpands
	}
	n := c.rows
	var r rows
	r.time, r.addr, r.size, r.value = make([]int64, n), make([]uint64, n), make([]int64, n), make([]int64, n)
	r.kind, r.device, r.stream = make([]uint8, n), make([]uint8, n), make([]uint16, n)
	r.stack, r.detail, r.ref = make([]int32, n), make([]int32, n), make([]int32, n)
	r.offsets = make([]int32, n+1)
	for i, b := range [numColumns][]byte{bytesOf(r.time), bytesOf(r.addr), bytesOf(r.size), bytesOf(r.value),
		r.kind, r.device, bytesOf(r.stream), bytesOf(r.stack), bytesOf(r.detail), bytesOf(r.ref),
		bytesOf(r.offsets)} {
		if err := a.fill(b, c, dataBuffer(i), codec); err != nil {
			return fmt.Errorf("column %s: %w", columns[i].name, err)
		}
	}
	if r.offsets[0] < 0 || !slices.IsSorted(r.offsets) {
		return errors.New("column text: offsets out of order")
	}
	text := dataBuffer(colText) + 1
	size := c.buffers[text].length
	if codec != codecNone {
		if _, size, _, err = a.d.stored(c, text); err != nil {
			return fmt.Errorf("column text: %w", err)
		}
	}
	if a.budget -= size; a.budget < 0 {
		return errExpands
	}
	if int64(r.offsets[n]) > size {
		return errors.New("column text: offsets beyond the text")
	}
	r.text = make([]byte, size)
	if err := a.fill(r.text, c, text, codec); err != nil {
		return fmt.Errorf("column text: %w", err)
	}
	return a.write(&r)
}

// fill copies or decompresses buffer i of c into dst.
func (a *arrow) fill(dst []byte, c *chunk, i int, codec uint8) error {
	s := c.buffers[i]
	b := a.data[c.body+s.offset : c.body+s.offset+s.length]
	switch {
	case len(dst) == 0:
		return nil
	case codec == codecNone:
		if len(b) < len(dst) { // a longer one is padded
			return fmt.Errorf("a buffer of %d bytes instead of %d", len(b), len(dst))
		}
		copy(dst, b)
		return nil
	case codec == codecZstd:
		return a.d.into(dst, c, i)
	}
	b, n, raw, err := a.d.stored(c, i)
	switch {
	case err != nil:
		return err
	case n != int64(len(dst)):
		return fmt.Errorf("a buffer of %d bytes instead of %d", n, len(dst))
	case raw:
		copy(dst, b)
		return nil
	}
	return unpackLZ4(dst, b)
}

// write writes rows as batches of one class each.
func (a *arrow) write(r *rows) error {
	for i := 0; i < len(r.kind); {
		class := classOf(r.kind[i])
		j := i + 1
		for j < len(r.kind) && j-i < maxRows && classOf(r.kind[j]) == class {
			j++
		}
		offsets := slices.Clone(r.offsets[i : j+1])
		for k := range offsets {
			offsets[k] -= r.offsets[i]
		}
		err := a.enc.batch(columnData{n: j - i, class: class, kinds: r.kind[i:j], offsets: offsets,
			text: r.text[r.offsets[i]:r.offsets[j]],
			fixed: [numColumns - 1][]byte{
				bytesOf(r.time[i:j]), bytesOf(r.addr[i:j]), bytesOf(r.size[i:j]), bytesOf(r.value[i:j]),
				r.kind[i:j], r.device[i:j], bytesOf(r.stream[i:j]), bytesOf(r.stack[i:j]),
				bytesOf(r.detail[i:j]), bytesOf(r.ref[i:j]),
			}})
		if err != nil {
			return err
		}
		a.rows += int64(j - i)
		i = j
	}
	return nil
}

func classOf(kind uint8) batchClass {
	switch {
	case kind < kindOp:
		return classEvents
	case kind < kindDefinitions:
		return classRecords
	}
	return classDefinitions
}

// parseForeignBatch reads a RecordBatch table of any number of rows and any compression.
func parseForeignBatch(v *view, header int, c *chunk) (codec uint8, err error) {
	r := v.table(header)
	rows := int64(0)
	if at := r.field(0); at != 0 {
		rows = v.i64(at)
	}
	nodes, n := v.vec(r.ref(1), 16)
	if v.bad || rows < 0 || rows > maxForeignRows || n < numColumns {
		return 0, fmt.Errorf("a batch of %d rows and %d columns", rows, n)
	}
	c.rows = int(rows)
	for i := range numColumns {
		if v.i64(nodes+16*i) != rows || v.i64(nodes+16*i+8) != 0 {
			return 0, fmt.Errorf("column %s has another length or nulls", columns[i].name)
		}
	}
	codec = codecNone
	if at := r.ref(3); at != 0 {
		codec = codecLZ4 // which is 0, and a field that is 0 is left out
		if f := v.table(at).field(0); f != 0 {
			codec = v.u8(f)
		}
		if codec != codecLZ4 && codec != codecZstd {
			return 0, fmt.Errorf("a compression that is %w: write it uncompressed", traces.ErrUnsupported)
		}
	}
	buffers, n := v.vec(r.ref(2), 16)
	if v.bad || n < numBuffers {
		return 0, errMetadata
	}
	c.buffers = make([]span, numBuffers)
	for i := range c.buffers {
		c.buffers[i] = span{v.i64(buffers + 16*i), v.i64(buffers + 16*i + 8)}
	}
	if v.bad {
		return 0, errMetadata
	}
	return codec, nil
}

// maxForeignRows bounds the rows of one batch of another writer.
const maxForeignRows = 1 << 28
