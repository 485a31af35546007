package gmt

import (
	"encoding/binary"
	"encoding/hex"
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

// messages writes batches as messages, each compressed and in one Write.
type messages struct {
	w       io.Writer
	zstd    *zstd.Encoder
	meta    flat
	out     []byte // the message being written
	packed  []byte
	zero    map[int][]byte // compressed runs of zeros by length
	buffers []span
	before  counts
}

func newMessages(w io.Writer) (*messages, error) {
	if !littleEndian() {
		return nil, errBigEndian
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("gmt: %w", err)
	}
	return &messages{w: w, zstd: z, zero: map[int][]byte{}}, nil
}

// schema writes the first message.
func (m *messages) schema(tool string) error {
	if tool = escape(tool); len(tool) > maxString {
		tool = "" // the recording's row has all of it
	}
	crcAt := m.meta.schemaMessage([][2]string{{keyFormat, FormatVersion}, {keyTool, tool}})
	return m.send(crcAt, nil)
}

// send writes the message of m.meta and body, with its crc filled in.
func (m *messages) send(crcAt int, body []byte) error {
	m.out = frame(m.out[:0], m.meta.b, crcAt, body)
	return m.write(m.out)
}

func (m *messages) write(b []byte) error {
	if _, err := m.w.Write(b); err != nil {
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
func (m *messages) batch(d columnData) error {
	if d.n == 0 {
		return nil
	}
	m.packed, m.buffers = m.packed[:0], m.buffers[:0]
	for i, b := range d.fixed {
		m.buffers = append(m.buffers, span{offset: int64(len(m.packed))})
		m.buffer(b, d.n*columns[i].width)
	}
	m.buffers = append(m.buffers, span{offset: int64(len(m.packed))})
	m.buffer(bytesOf(d.offsets), 4*(d.n+1))
	m.buffer(d.text, len(d.text))
	text := make([]byte, 0, 96)
	for i, n := range m.before {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	crcAt := m.meta.batchMessage(d.n, m.buffers, int64(len(m.packed)), d.class, string(text))
	if err := m.send(crcAt, m.packed); err != nil {
		return err
	}
	m.before.add(d.class, d.kinds)
	return nil
}

// buffer appends one buffer to the body: the uncompressed length and the zstd frame, or -1 and the bytes if
// they do not shrink.
func (m *messages) buffer(b []byte, size int) {
	at := len(m.packed)
	if size > 0 {
		m.packed = binary.LittleEndian.AppendUint64(m.packed, uint64(size))
		if b == nil {
			m.packed = append(m.packed, m.zeroRun(size)...)
		} else {
			m.packed = m.zstd.EncodeAll(b, m.packed)
			if len(m.packed)-at-8 >= size {
				binary.LittleEndian.PutUint64(m.packed[at:], ^uint64(0))
				m.packed = append(m.packed[:at+8], b...)
			}
		}
	}
	m.buffers = append(m.buffers, span{int64(at), int64(len(m.packed) - at)})
	for len(m.packed)%8 != 0 {
		m.packed = append(m.packed, 0)
	}
}

// zeroRun returns n zeros, compressed. Most batches have several columns of them, so they are kept.
func (m *messages) zeroRun(n int) []byte {
	z, ok := m.zero[n]
	if !ok {
		z = m.zstd.EncodeAll(zeros[:n], nil)
		if len(m.zero) < 16 {
			m.zero[n] = z
		}
	}
	return z
}

// rows writes a buffer of rows as a batch and empties it.
func (m *messages) rows(r *rows, class batchClass) error {
	err := m.batch(columnData{
		n: r.len(), class: class, kinds: r.kind, offsets: r.offsets, text: r.text,
		fixed: [numColumns - 1][]byte{
			bytesOf(r.time), bytesOf(r.addr), bytesOf(r.size), bytesOf(r.value), r.kind, r.device,
			bytesOf(r.stream), bytesOf(r.stack), bytesOf(r.detail), bytesOf(r.ref),
		},
	})
	r.reset()
	return err
}
