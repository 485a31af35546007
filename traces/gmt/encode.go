package gmt

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"unsafe"

	"github.com/klauspost/compress/zstd"

	"github.com/gmemtop/gmemtop/traces"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// continuation begins every message; with a length of zero it is the end marker.
const continuation = 0xFFFFFFFF

var endMarker = []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}

// errBigEndian is returned on machines whose byte order is not the file's.
var errBigEndian = fmt.Errorf("gmt: big-endian machines are %w", traces.ErrUnsupported)

func littleEndian() bool {
	one := uint16(1)
	return *(*byte)(unsafe.Pointer(&one)) == 1
}

// bytesOf returns the memory of a column. On little-endian machines the file's columns are those in memory;
// other machines are refused.
func bytesOf[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// zeros is the content of columns for which a batch has no values.
var zeros [8*maxRows + 8]byte

// encoder turns rows into messages. Each message is one Write.
type encoder struct {
	w       io.Writer
	zstd    *zstd.Encoder
	meta    flat
	out     []byte // the message being written
	packed  []byte
	zero    map[int][]byte // compressed runs of zeros by length
	buffers []span
	before  counts
	defs    rows
	records rows
	opInfos map[opInfo]int32
}

func newEncoder(w io.Writer) (*encoder, error) {
	if !littleEndian() {
		return nil, errBigEndian
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("gmt: %w", err)
	}
	return &encoder{w: w, zstd: z, zero: map[int][]byte{}, opInfos: map[opInfo]int32{}}, nil
}

// schema writes the first message.
func (e *encoder) schema(tool string) error {
	if tool = escape(tool); len(tool) > maxString {
		tool = "" // the recording's row has all of it
	}
	crcAt := e.meta.schemaMessage([][2]string{{keyFormat, FormatVersion}, {keyTool, tool}})
	return e.send(crcAt, nil)
}

// send writes the message of e.meta and body, with its crc filled in.
func (e *encoder) send(crcAt int, body []byte) error {
	e.out = frame(e.out[:0], e.meta.b, crcAt, body)
	return e.write(e.out)
}

func (e *encoder) write(b []byte) error {
	if _, err := e.w.Write(b); err != nil {
		return fmt.Errorf("gmt: writing: %w", err)
	}
	return nil
}

// frame appends an encapsulated message and fills in its crc, which covers the length word, the metadata with
// the digits as zeros, and the body.
func frame(b, meta []byte, crcAt int, body []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, continuation)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(meta)))
	b = append(b, meta...)
	b = append(b, body...)
	sum := crc32.Checksum(b[4:], castagnoli)
	hex.Encode(b[8+crcAt:], binary.BigEndian.AppendUint32(nil, sum))
	return b
}

// columnData is a batch to be written: a nil column is all zeros, nil offsets are n empty texts.
type columnData struct {
	n       int
	class   batchClass
	fixed   [numColumns - 1][]byte
	kinds   []uint8
	offsets []int32
	text    []byte
}

// batch compresses and writes one batch.
func (e *encoder) batch(d columnData) error {
	if d.n == 0 {
		return nil
	}
	e.packed, e.buffers = e.packed[:0], e.buffers[:0]
	for i, b := range d.fixed {
		e.buffers = append(e.buffers, span{offset: int64(len(e.packed))})
		e.buffer(b, d.n*columns[i].width)
	}
	e.buffers = append(e.buffers, span{offset: int64(len(e.packed))})
	e.buffer(bytesOf(d.offsets), 4*(d.n+1))
	e.buffer(d.text, len(d.text))
	text := make([]byte, 0, 96)
	for i, n := range e.before {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	crcAt := e.meta.batchMessage(d.n, e.buffers, int64(len(e.packed)), d.class, string(text))
	if err := e.send(crcAt, e.packed); err != nil {
		return err
	}
	e.before.add(d.class, d.kinds)
	return nil
}

// buffer appends one buffer to the body: the uncompressed length and the zstd frame, or -1 and the bytes if
// they do not shrink.
func (e *encoder) buffer(b []byte, size int) {
	at := len(e.packed)
	if size > 0 {
		e.packed = binary.LittleEndian.AppendUint64(e.packed, uint64(size))
		if b == nil {
			e.packed = append(e.packed, e.zeroRun(size)...)
		} else {
			e.packed = e.zstd.EncodeAll(b, e.packed)
			if len(e.packed)-at-8 >= size {
				binary.LittleEndian.PutUint64(e.packed[at:], ^uint64(0))
				e.packed = append(e.packed[:at+8], b...)
			}
		}
	}
	e.buffers = append(e.buffers, span{int64(at), int64(len(e.packed) - at)})
	for len(e.packed)%8 != 0 {
		e.packed = append(e.packed, 0)
	}
}

// zeroRun returns n zeros, compressed. Most batches have several columns of them, so they are kept.
func (e *encoder) zeroRun(n int) []byte {
	z, ok := e.zero[n]
	if !ok {
		z = e.zstd.EncodeAll(zeros[:n], nil)
		if len(e.zero) < 16 {
			e.zero[n] = z
		}
	}
	return z
}

// flush writes the rows of one of the two row buffers.
func (e *encoder) flush(r *rows, class batchClass) error {
	err := e.batch(columnData{
		n: r.len(), class: class, kinds: r.kind, offsets: r.offsets, text: r.text,
		fixed: [numColumns - 1][]byte{
			bytesOf(r.time), bytesOf(r.addr), bytesOf(r.size), bytesOf(r.value), r.kind, r.device,
			bytesOf(r.stream), bytesOf(r.stack), bytesOf(r.detail), bytesOf(r.ref),
		},
	})
	r.reset()
	return err
}

// chunkText is the amount of text at which a batch of definitions is written even with fewer than maxRows
// rows.
const chunkText = 4 << 20

// define adds a definition.
func (e *encoder) define(x row, text string) error {
	if err := checkText(len(text)); err != nil {
		return err
	}
	if len(e.defs.text)+len(text) > chunkText {
		if err := e.flush(&e.defs, classDefinitions); err != nil {
			return err
		}
	}
	e.defs.add(x, text)
	if e.defs.len() == maxRows {
		return e.flush(&e.defs, classDefinitions)
	}
	return nil
}

// record adds a record that is not an event. Pending definitions go first.
func (e *encoder) record(x row, text string) error {
	e.records.add(x, text)
	if e.records.len() < maxRows {
		return nil
	}
	return e.flushRecords()
}

func (e *encoder) flushRecords() error {
	if err := e.flush(&e.defs, classDefinitions); err != nil {
		return err
	}
	return e.flush(&e.records, classRecords)
}

// events writes the rows [first, end) of ev in chunks. Pending definitions go first.
func (e *encoder) events(ctx context.Context, ev *traces.Events, first, end int) error {
	if err := e.flush(&e.defs, classDefinitions); err != nil {
		return err
	}
	for i := first; i < end; i += maxRows {
		if err := ctx.Err(); err != nil {
			return err
		}
		j := min(i+maxRows, end)
		for k, a := range ev.Action[i:j] {
			if a >= kindOp {
				return fmt.Errorf("gmt: event %d: action %d cannot be written: the file has room for 0 to 99",
					i+k, a)
			}
		}
		d := columnData{n: j - i, class: classEvents, kinds: bytesOf(ev.Action[i:j])}
		d.fixed[colTime], d.fixed[colAddress], d.fixed[colSize] = bytesOf(ev.Time[i:j]),
			bytesOf(ev.Addr[i:j]), bytesOf(ev.Size[i:j])
		d.fixed[colKind], d.fixed[colDevice], d.fixed[colStream] = d.kinds, bytesOf(ev.Device[i:j]),
			bytesOf(ev.Stream[i:j])
		d.fixed[colStack] = bytesOf(ev.Stack[i:j])
		if ev.Detail != nil {
			d.fixed[colDetail] = bytesOf(ev.Detail[i:j])
		}
		if err := e.batch(d); err != nil {
			return err
		}
	}
	return nil
}

// end writes what is pending and the end marker.
func (e *encoder) end() error {
	if err := e.flushRecords(); err != nil {
		return err
	}
	return e.write(endMarker)
}

var errTextTooLong = errors.New("gmt: a text of more than 512 MiB cannot be written; shorten it")

func checkText(n int) error {
	if n > maxText/2 {
		return errTextTooLong
	}
	return nil
}
