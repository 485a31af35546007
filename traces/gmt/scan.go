package gmt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// chunk is one sound message of a file.
type chunk struct {
	offset, end int64
	class       batchClass
	rows        int
	before      counts
	body        int64 // where the body begins
	buffers     []span
}

// damage is a stretch of a file that is not a sound message.
type damage struct {
	offset, end int64
	err         error
}

// layout is the parts of a file, in order.
type layout struct {
	schema   chunk // its end is 0 if it is damaged
	chunks   []chunk
	damaged  []damage
	complete bool // it has the end marker
}

// cut reports whether a damage is the end of a cut file rather than a chunk with a damaged length.
func (l *layout) cut(x damage) bool {
	return errors.Is(x.err, errCut) && !l.complete && x.offset == l.damaged[len(l.damaged)-1].offset
}

var (
	errNoSchema = errors.New("the file does not begin as a gmemtop recording")
	errSchema   = errors.New("a second schema")
	errCut      = errors.New("the chunk is cut")
	errMetadata = errors.New("malformed metadata")
	errChecksum = errors.New("the checksum is wrong")
)

// scan finds the chunks of a file. After a damaged one it goes on at the next sound one. The schema may be
// damaged too, since there is only one.
func scan(data []byte) layout {
	var l layout
	size := int64(len(data))
	budget := 8*size + maxMetadata // bytes that the search for the next sound chunk may read
	for pos := int64(0); pos < size; {
		c, err := parseMessage(data, pos)
		switch first := pos == 0; {
		case err == nil && first && c.class != classSchema:
			err = errNoSchema
		case err == nil && !first && c.class == classSchema:
			err = errSchema
		case errors.Is(err, traces.ErrUnsupported):
			l.damaged = append(l.damaged, damage{pos, size, err})
			return l
		}
		if err != nil {
			next := resync(data, pos, &budget)
			l.damaged = append(l.damaged, damage{pos, next, err})
			pos = next
			continue
		}
		pos = c.end
		switch c.class {
		case classSchema:
			l.schema = c
		case classEnd:
			l.complete = true
			if pos < size {
				l.damaged = append(l.damaged, damage{pos, size, errors.New("bytes after the end marker")})
			}
			return l
		default:
			l.chunks = append(l.chunks, c)
		}
	}
	return l
}

// resync returns where the next sound message after the damaged one at pos begins, or the end of data.
func resync(data []byte, pos int64, budget *int64) int64 {
	size := int64(len(data))
	mark := endMarker[:4]
	for q := pos + 8; q+8 <= size; q += 8 {
		i := bytes.Index(data[q:], mark)
		if i < 0 {
			return size
		}
		q += int64(i+7) / 8 * 8
		if q+8 > size || !bytes.Equal(data[q:q+4], mark) {
			continue
		}
		if q+8 == size && bytes.Equal(data[q:], endMarker) {
			return q
		}
		c, cost, err := tryMessage(data, q)
		if *budget -= cost + 8; *budget < 0 {
			return size
		}
		if err == nil && c.class != classSchema && c.class != classEnd {
			return q
		}
	}
	return size
}

// parseMessage reads the message at pos and checks everything but the content of its buffers.
func parseMessage(data []byte, pos int64) (chunk, error) {
	c, _, err := tryMessage(data, pos)
	return c, err
}

// tryMessage is parseMessage that also returns how many bytes it read.
func tryMessage(data []byte, pos int64) (c chunk, cost int64, err error) {
	rest := data[pos:]
	if len(rest) < 8 {
		return c, 0, errCut
	}
	if binary.LittleEndian.Uint32(rest) != continuation {
		return c, 0, errors.New("no message begins here")
	}
	n := int64(binary.LittleEndian.Uint32(rest[4:]))
	if n == 0 {
		return chunk{offset: pos, end: pos + 8, class: classEnd}, 0, nil
	}
	if n > maxMetadata || n%8 != 0 {
		return c, 0, fmt.Errorf("metadata of %d bytes", n)
	}
	if n > int64(len(rest))-8 {
		return c, 0, errCut
	}
	c = chunk{offset: pos, body: pos + 8 + n}
	m, err := parseEnvelope(rest[8 : 8+n])
	if err != nil {
		return c, n, err
	}
	if m.bodyLength < 0 || m.bodyLength%8 != 0 {
		return c, n, fmt.Errorf("a body of %d bytes", m.bodyLength)
	}
	if m.bodyLength > int64(len(rest))-8-n {
		return c, n, errCut
	}
	c.end = c.body + m.bodyLength
	if sum(data[pos:c.end], 8+m.crcAt) != m.crc {
		return c, c.end - pos, errChecksum
	}
	if err := m.header(&c); err != nil {
		return c, c.end - pos, err
	}
	for _, b := range c.buffers {
		if b.offset < 0 || b.length < 0 || b.offset > m.bodyLength || b.length > m.bodyLength-b.offset {
			return c, c.end - pos, errors.New("a buffer outside the body")
		}
	}
	return c, c.end - pos, nil
}

// sum returns the crc32c of a message as the writer made it: without the continuation, and with zeros for its
// own digits.
func sum(message []byte, digits int) uint32 {
	s := crc32.Update(0, castagnoli, message[4:digits])
	s = crc32.Update(s, castagnoli, []byte(crcZeros))
	return crc32.Update(s, castagnoli, message[digits+len(crcZeros):])
}

// envelope is what a message says about itself. Nothing else in it is read before its checksum has been
// verified.
type envelope struct {
	v             *view
	bodyLength    int64
	crc           uint32
	crcAt         int
	class, before string
	kind          uint8
	at            int // of the header
}

// parseEnvelope reads a Message table.
func parseEnvelope(b []byte) (m envelope, err error) {
	v := &view{b: b}
	m.v = v
	msg := v.table(v.follow(0))
	if v.u16(msg.field(0)) != metadataV5 {
		return m, errors.New("not an Arrow message of metadata version 5")
	}
	if at := msg.field(3); at != 0 {
		m.bodyLength = v.i64(at)
	}
	digits := ""
	v.keyValues(msg.ref(4), func(key, value string, at int) {
		switch key {
		case keyCRC:
			digits, m.crcAt = value, at
		case keyBefore:
			m.before = value
		case keyBatch:
			m.class = value
		}
	})
	m.kind, m.at = v.u8(msg.field(1)), msg.ref(2)
	if v.bad {
		return m, errMetadata
	}
	m.crc, err = parseDigits(digits)
	return m, err
}

// header reads the table inside a Message.
func (m *envelope) header(c *chunk) (err error) {
	switch m.kind {
	case headerSchema:
		c.class = classSchema
		return parseSchema(m.v, m.at)
	case headerRecordBatch:
		if c.class, err = parseClass(m.class); err != nil {
			return err
		}
		if c.before, err = parseBefore(m.before); err != nil {
			return err
		}
		return parseBatch(m.v, m.at, c)
	}
	return fmt.Errorf("a message of type %d, which gmemtop does not write", m.kind)
}

// parseDigits reads the eight lower-case digits of a crc; a capital means a flipped bit.
func parseDigits(s string) (uint32, error) {
	if len(s) != len(crcZeros) || strings.ToLower(s) != s || s[0] == '+' {
		return 0, errors.New("no checksum")
	}
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil {
		return 0, errors.New("no checksum")
	}
	return uint32(n), nil
}

func parseClass(s string) (batchClass, error) {
	for c := classDefinitions; c <= classRecords; c++ {
		if classNames[c] == s {
			return c, nil
		}
	}
	return 0, fmt.Errorf("a batch of class %.20q, which this version does not know", s)
}

func parseBefore(s string) (c counts, err error) {
	f := strings.Fields(s)
	if len(f) < numTables {
		return c, errors.New("no row counts")
	}
	for i := range c {
		if c[i], err = strconv.ParseInt(f[i], 10, 64); err != nil || c[i] < 0 {
			return c, errors.New("malformed row counts")
		}
	}
	return c, nil
}

// parseSchema checks that the schema is one of ours, of this version.
func parseSchema(v *view, header int) error {
	s := v.table(header)
	format := formatOf(v, s)
	if _, n := v.vec(s.ref(1), 4); v.bad || n < numColumns {
		return errColumns
	}
	if format != FormatVersion {
		return versionError(format)
	}
	return parseColumns(v, header)
}

var errColumns = errors.New("the schema is not that of a gmemtop recording")

func versionError(format string) error {
	return fmt.Errorf("version %.20q of the format is %w by this gmemtop, which reads version %s: update "+
		"gmemtop",
		format, traces.ErrUnsupported, FormatVersion)
}

// formatOf returns the version of the format that a schema names, "" for none.
func formatOf(v *view, s table) (format string) {
	v.keyValues(s.ref(2), func(key, value string, _ int) {
		if key == keyFormat {
			format = value
		}
	})
	return format
}

// parseColumns checks that the columns are those of this version, in order; further ones may follow. Programs
// that write a recording again may lose the version.
func parseColumns(v *view, header int) error {
	s := v.table(header)
	format := formatOf(v, s)
	first, n := v.vec(s.ref(1), 4)
	if v.bad || n < numColumns {
		return errColumns
	}
	if format != "" && format != FormatVersion {
		return versionError(format)
	}
	for i, c := range columns {
		f := v.table(v.follow(first + 4*i))
		t := v.table(f.ref(3))
		ok := v.str(f.ref(0)) == c.name
		if c.width == 0 {
			ok = ok && v.u8(f.field(2)) == typeUtf8
		} else {
			signed := t.field(1) != 0 && v.u8(t.field(1)) == 1
			ok = ok && v.u8(f.field(2)) == typeInt && v.u32(t.field(0)) == uint32(8*c.width) &&
				signed == c.signed
		}
		if !ok || v.bad {
			return fmt.Errorf("column %d of the schema is not %s", i, c.name)
		}
	}
	return nil
}

// parseBatch reads a RecordBatch table: rows, no nulls, zstd, and the places of the buffers.
func parseBatch(v *view, header int, c *chunk) error {
	r := v.table(header)
	rows := int64(0)
	if at := r.field(0); at != 0 {
		rows = v.i64(at)
	}
	if v.bad || rows < 1 || rows > maxBatchRows {
		return fmt.Errorf("a batch of %d rows", rows)
	}
	c.rows = int(rows)
	nodes, n := v.vec(r.ref(1), 16)
	if n < numColumns {
		return fmt.Errorf("a batch of %d columns", n)
	}
	for i := range numColumns {
		if v.i64(nodes+16*i) != rows || v.i64(nodes+16*i+8) != 0 {
			return fmt.Errorf("column %s has another length or nulls", columns[i].name)
		}
	}
	buffers, n := v.vec(r.ref(2), 16)
	compression := v.table(r.ref(3))
	if v.bad || n < numBuffers || compression.field(0) == 0 || v.u8(compression.field(0)) != codecZstd {
		return errors.New("a batch that is not compressed with zstd")
	}
	c.buffers = make([]span, numBuffers)
	for i := range c.buffers {
		c.buffers[i] = span{v.i64(buffers + 16*i), v.i64(buffers + 16*i + 8)}
	}
	if v.bad {
		return errMetadata
	}
	return nil
}
