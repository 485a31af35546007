package gmt

import "encoding/binary"

// flat writes FlatBuffers tables front to back. In the format (https://flatbuffers.dev/internals/) offsets of
// children point forward and a vtable may be anywhere, so writing parents before children and patching
// offsets later is as valid as the usual back to front, and needs no runtime. The few tables of Arrow's
// Message.fbs and Schema.fbs that a stream of plain columns needs are written by schemaMessage and
// batchMessage; field numbers there are those of the Arrow schema files.
type flat struct{ b []byte }

func (f *flat) reset() { f.b = f.b[:0] }

func (f *flat) align(n int) {
	for len(f.b)%n != 0 {
		f.b = append(f.b, 0)
	}
}

// table appends a vtable and a zeroed table with fields of the given sizes in bytes (0: absent), and returns
// where the table and its fields are.
func (f *flat) table(sizes ...int) (at int, fields []int) {
	vt := 4 + 2*len(sizes)
	for (len(f.b)+vt)%8 != 0 {
		f.b = append(f.b, 0)
	}
	fields = make([]int, len(sizes))
	vtable := len(f.b)
	at = vtable + vt
	end := at + 4
	f.b = append(f.b, make([]byte, vt)...)
	for i, n := range sizes {
		if n == 0 {
			continue
		}
		end = (end + n - 1) / n * n
		fields[i] = end
		binary.LittleEndian.PutUint16(f.b[vtable+4+2*i:], uint16(end-at))
		end += n
	}
	binary.LittleEndian.PutUint16(f.b[vtable:], uint16(vt))
	binary.LittleEndian.PutUint16(f.b[vtable+2:], uint16(end-at))
	f.b = append(f.b, make([]byte, end-at)...)
	binary.LittleEndian.PutUint32(f.b[at:], uint32(vt))
	return at, fields
}

func (f *flat) put8(at int, v uint8)   { f.b[at] = v }
func (f *flat) put16(at int, v uint16) { binary.LittleEndian.PutUint16(f.b[at:], v) }
func (f *flat) put32(at int, v uint32) { binary.LittleEndian.PutUint32(f.b[at:], v) }
func (f *flat) put64(at int, v int64)  { binary.LittleEndian.PutUint64(f.b[at:], uint64(v)) }

// point sets the offset at from to point to to.
func (f *flat) point(from, to int) { f.put32(from, uint32(to-from)) }

// str appends a string, points from at it and returns where its bytes are.
func (f *flat) str(from int, s string) int {
	f.align(4)
	f.point(from, len(f.b))
	f.b = binary.LittleEndian.AppendUint32(f.b, uint32(len(s)))
	at := len(f.b)
	f.b = append(f.b, s...)
	f.b = append(f.b, 0)
	return at
}

// vector appends a vector of n zeroed elements of size bytes, aligned to align, points from at it and returns
// where its first element is.
func (f *flat) vector(from, n, size, align int) int {
	for (len(f.b)+4)%align != 0 || len(f.b)%4 != 0 {
		f.b = append(f.b, 0)
	}
	f.point(from, len(f.b))
	f.b = binary.LittleEndian.AppendUint32(f.b, uint32(n))
	at := len(f.b)
	f.b = append(f.b, make([]byte, n*size)...)
	return at
}

// keyValues appends a vector of KeyValue tables and returns where each value's bytes are.
func (f *flat) keyValues(from int, kv [][2]string) []int {
	at := make([]int, len(kv))
	v := f.vector(from, len(kv), 4, 4)
	for i, p := range kv {
		t, fields := f.table(4, 4)
		f.point(v+4*i, t)
		f.str(fields[0], p[0])
		at[i] = f.str(fields[1], p[1])
	}
	return at
}

// Numbers of Arrow's Message.fbs and Schema.fbs.
const (
	metadataV5        = 4
	headerSchema      = 1
	headerRecordBatch = 3
	typeInt           = 2
	typeUtf8          = 5
	codecZstd         = 1
)

// crcZeros is in the checksum's place while it is computed.
const crcZeros = "00000000"

// message appends a Message table without its header and returns where the header's offset goes and where the
// crc's digits are.
func (f *flat) message(header uint8, bodyLength int64, more ...[2]string) (headerField, crcAt int) {
	f.b = append(f.b, 0, 0, 0, 0)
	at, m := f.table(2, 1, 4, 8, 4)
	f.point(0, at)
	f.put16(m[0], metadataV5)
	f.put8(m[1], header)
	f.put64(m[3], bodyLength)
	values := f.keyValues(m[4], append([][2]string{{keyCRC, crcZeros}}, more...))
	return m[2], values[0]
}

// schemaMessage writes the metadata of the schema message.
func (f *flat) schemaMessage(kv [][2]string) (crcAt int) {
	f.reset()
	header, crcAt := f.message(headerSchema, 0)
	at, s := f.table(2, 4, 4)
	f.point(header, at)
	f.keyValues(s[2], kv)
	v := f.vector(s[1], numColumns, 4, 4)
	for i, c := range columns {
		at, fields := f.table(4, 1, 1, 4, 0, 4)
		f.point(v+4*i, at)
		f.str(fields[0], c.name)
		if c.width == 0 {
			f.put8(fields[2], typeUtf8)
			at, _ := f.table()
			f.point(fields[3], at)
		} else {
			f.put8(fields[2], typeInt)
			at, t := f.table(4, 1)
			f.point(fields[3], at)
			f.put32(t[0], uint32(8*c.width))
			if c.signed {
				f.put8(t[1], 1)
			}
		}
		f.vector(fields[5], 0, 4, 4)
	}
	f.align(8)
	return crcAt
}

// span is a buffer's place in a message's body.
type span struct{ offset, length int64 }

// batchMessage writes the metadata of a record batch message.
func (f *flat) batchMessage(n int, buffers []span, bodyLength int64, class batchClass,
	before string) (crcAt int) {
	f.reset()
	header, crcAt := f.message(headerRecordBatch, bodyLength, [2]string{keyBatch, classNames[class]},
		[2]string{keyBefore, before})
	at, r := f.table(8, 4, 4, 4)
	f.point(header, at)
	f.put64(r[0], int64(n))
	v := f.vector(r[1], numColumns, 16, 8)
	for i := range numColumns {
		f.put64(v+16*i, int64(n))
	}
	v = f.vector(r[2], len(buffers), 16, 8)
	for i, b := range buffers {
		f.put64(v+16*i, b.offset)
		f.put64(v+16*i+8, b.length)
	}
	at, c := f.table(1, 1)
	f.point(r[3], at)
	f.put8(c[0], codecZstd)
	f.align(8)
	return crcAt
}

// Limits of metadata.
const (
	maxKeyValues = 64
	maxString    = 1 << 12
)

// view reads FlatBuffers and checks every access: one outside the buffer reads as zero and sets bad.
// Malformed metadata then cannot cause a panic, nor be used, provided that callers check bad in the end.
// Nothing in it recurses.
type view struct {
	b    []byte
	bad  bool
	long bool // strings may have any length: pandas describes its columns in one
}

func (v *view) has(at, n int) bool {
	if at < 0 || n < 0 || at > len(v.b)-n {
		v.bad = true
		return false
	}
	return true
}

func (v *view) u8(at int) uint8 {
	if !v.has(at, 1) {
		return 0
	}
	return v.b[at]
}

func (v *view) u16(at int) uint16 {
	if !v.has(at, 2) {
		return 0
	}
	return binary.LittleEndian.Uint16(v.b[at:])
}

func (v *view) u32(at int) uint32 {
	if !v.has(at, 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(v.b[at:])
}

func (v *view) i64(at int) int64 {
	if !v.has(at, 8) {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(v.b[at:]))
}

// follow returns where the offset at at points to.
func (v *view) follow(at int) int {
	n := v.u32(at)
	if int64(at)+int64(n) > int64(len(v.b)) {
		v.bad = true
		return 0
	}
	return at + int(n)
}

// table is a table in a view.
type table struct {
	v              *view
	at, vt, fields int
}

func (v *view) table(at int) table {
	vt := int64(at) - int64(int32(v.u32(at)))
	if at <= 0 || vt < 0 || vt > int64(len(v.b)) {
		v.bad = true
		return table{v: v}
	}
	n := int(v.u16(int(vt)))
	if n < 4 || n%2 != 0 || !v.has(int(vt), n) {
		v.bad = true
		return table{v: v}
	}
	return table{v, at, int(vt), (n - 4) / 2}
}

// field returns where field i is, 0 if it is absent.
func (t table) field(i int) int {
	if i >= t.fields {
		return 0
	}
	off := int(t.v.u16(t.vt + 4 + 2*i))
	if off == 0 {
		return 0
	}
	return t.at + off
}

// ref returns where the child in field i is, 0 if it is absent.
func (t table) ref(i int) int {
	at := t.field(i)
	if at == 0 {
		return 0
	}
	return t.v.follow(at)
}

// vec returns the first element and the number of elements of the vector at at; a vector at 0 is empty.
func (v *view) vec(at, size int) (first, n int) {
	if at == 0 {
		return 0, 0
	}
	count := int64(v.u32(at))
	if count*int64(size) > int64(len(v.b)) || !v.has(at+4, int(count)*size) {
		v.bad = true
		return 0, 0
	}
	return at + 4, int(count)
}

// str returns the string at at. A longer one than any writer makes is malformed, so that metadata cannot make
// the reader copy the same megabyte again and again.
func (v *view) str(at int) string {
	first, n := v.vec(at, 1)
	if n > maxString && !v.long {
		v.bad = true
		return ""
	}
	return string(v.b[first : first+n])
}

// keyValues calls each with every pair of the vector at at and where its value's bytes are.
func (v *view) keyValues(at int, each func(key, value string, valueAt int)) {
	first, n := v.vec(at, 4)
	if n > maxKeyValues {
		v.bad = true
	}
	for i := 0; i < n && !v.bad; i++ {
		kv := v.table(v.follow(first + 4*i))
		key, value := kv.ref(0), kv.ref(1)
		each(v.str(key), v.str(value), value+4)
	}
}
