package parquet

import "encoding/binary"

// thrift encodes structs in Thrift's compact protocol (thrift-compact-protocol.md of Apache Thrift), as far
// as Parquet's footer and page headers need it: integers, strings, lists and structs. A field's header byte
// is delta<<4 | type, the delta counted from the field before in the same struct; integers are zigzag
// varints; a struct ends with a zero byte.
type thrift struct {
	b    []byte
	last []int16 // previous field number, one entry for each open struct
}

// types of the compact protocol.
const (
	thriftI32    = 5
	thriftI64    = 6
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

func (t *thrift) begin() { t.last = append(t.last, 0) }

func (t *thrift) end() {
	t.b = append(t.b, 0)
	t.last = t.last[:len(t.last)-1]
}

func (t *thrift) field(n int16, kind byte) {
	last := &t.last[len(t.last)-1]
	t.b = append(t.b, byte(n-*last)<<4|kind)
	*last = n
}

func (t *thrift) i32(n int16, v int32) {
	t.field(n, thriftI32)
	t.b = binary.AppendVarint(t.b, int64(v))
}

func (t *thrift) i64(n int16, v int64) {
	t.field(n, thriftI64)
	t.b = binary.AppendVarint(t.b, v)
}

func (t *thrift) text(n int16, s string) {
	t.field(n, thriftBinary)
	t.rawText(s)
}

func (t *thrift) rawText(s string) {
	t.b = binary.AppendUvarint(t.b, uint64(len(s)))
	t.b = append(t.b, s...)
}

// list opens a list of n elements of a kind; the elements follow without headers.
func (t *thrift) list(field int16, kind byte, n int) {
	t.field(field, thriftList)
	if n < 15 {
		t.b = append(t.b, byte(n)<<4|kind)
		return
	}
	t.b = append(t.b, 0xf0|kind)
	t.b = binary.AppendUvarint(t.b, uint64(n))
}

// strct opens a struct field.
func (t *thrift) strct(n int16) {
	t.field(n, thriftStruct)
	t.begin()
}
