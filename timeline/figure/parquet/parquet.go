// Package parquet writes a flat table as an Apache Parquet file.
//
// A file is row groups of plain-encoded columns, one zstd-compressed data page each, and a footer in Thrift
// (parquet-format: README.md, parquet.thrift). A writer of one flat table needs only a small part of that: no
// dictionaries (zstd finds the repetition), no statistics, no nesting. Rejected: parquet-go and arrow-go,
// which add 11 and 33 MB to a program of 11.
package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
)

// groupRows is how many rows a row group holds, and so how many are in memory at a time.
const groupRows = 1 << 17

// Kind is what a column holds.
type Kind uint8

// Kinds of columns.
const (
	Text Kind = iota
	Int
	Uint
	Float
	Bool
)

// The format's numbers for types and encodings.
const (
	typeBoolean   = 0
	typeInt64     = 2
	typeDouble    = 5
	typeByteArray = 6

	encodingPlain = 0
	encodingRLE   = 3
	codecZSTD     = 6

	convertedUTF8   = 0
	convertedUint64 = 14
	convertedNone   = -1
)

// types are the format's numbers for a kind: its physical type, and what it was converted from.
var types = map[Kind]struct{ physical, converted int32 }{
	Text: {typeByteArray, convertedUTF8}, Int: {typeInt64, convertedNone}, Uint: {typeInt64, convertedUint64},
	Float: {typeDouble, convertedNone}, Bool: {typeBoolean, convertedNone},
}

// Column is one column of a table.
type Column struct {
	Name string
	Kind Kind
	// Optional lets cells be null.
	Optional bool
}

// column is a column with the values of the current row group.
type column struct {
	Column
	values  []byte
	bits    []bool // of a Bool column
	present []bool // of an optional column
}

// chunk is one column of one row group as the footer lists it.
type chunk struct {
	offset, plain, stored int64
}

// Writer writes a table. Give each row's cells in the order of the columns, then call [Writer.Row]. The first
// error stays, and [Writer.Close] returns it.
type Writer struct {
	w       io.Writer
	at      int64
	name    string
	columns []*column
	next    int // the column of the next cell
	zstd    *zstd.Encoder
	filled  int64
	groups  [][]chunk
	rows    []int64 // of each group
	err     error
}

// NewWriter begins a table of the given name.
func NewWriter(w io.Writer, name string, columns []Column) (*Writer, error) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	p := &Writer{w: w, name: name, zstd: enc}
	for _, c := range columns {
		p.columns = append(p.columns, &column{Column: c})
	}
	p.write([]byte("PAR1"))
	return p, p.err
}

// cell returns the column that the next cell belongs to, nil if it is not of that kind.
func (p *Writer) cell(k Kind, null bool) *column {
	if p.err != nil {
		return nil
	}
	if p.next >= len(p.columns) {
		p.err = errors.New("parquet: a row has more cells than the table has columns")
		return nil
	}
	c := p.columns[p.next]
	switch {
	case null && !c.Optional:
		p.err = fmt.Errorf("parquet: column %s takes no nulls", c.Name)
	case !null && c.Kind != k:
		p.err = fmt.Errorf("parquet: column %s got a cell of another kind", c.Name)
	default:
		p.next++
		if c.Optional {
			c.present = append(c.present, !null)
		}
		return c
	}
	return nil
}

// Text writes a cell of text in UTF-8.
func (p *Writer) Text(s string) {
	if c := p.cell(Text, false); c != nil {
		c.values = binary.LittleEndian.AppendUint32(c.values, uint32(len(s)))
		c.values = append(c.values, s...)
	}
}

// Int writes a cell of a signed number.
func (p *Writer) Int(v int64) { p.word(Int, uint64(v)) }

// Uint writes a cell of an unsigned number.
func (p *Writer) Uint(v uint64) { p.word(Uint, v) }

// Float writes a cell of a real number.
func (p *Writer) Float(v float64) { p.word(Float, math.Float64bits(v)) }

func (p *Writer) word(k Kind, v uint64) {
	if c := p.cell(k, false); c != nil {
		c.values = binary.LittleEndian.AppendUint64(c.values, v)
	}
}

// Bool writes a cell that is true or false.
func (p *Writer) Bool(v bool) {
	if c := p.cell(Bool, false); c != nil {
		c.bits = append(c.bits, v)
	}
}

// Null writes an empty cell of an optional column.
func (p *Writer) Null() { p.cell(0, true) }

// Row ends a row.
func (p *Writer) Row() error {
	if p.err == nil && p.next != len(p.columns) {
		p.err = fmt.Errorf("parquet: a row has %d cells for %d columns", p.next, len(p.columns))
	}
	p.next = 0
	if p.filled++; p.err == nil && p.filled == groupRows {
		p.group()
	}
	return p.err
}

// Close writes what is left and the footer. It does not close the underlying writer.
func (p *Writer) Close() error {
	if p.err == nil && p.filled > 0 {
		p.group()
	}
	if p.err == nil {
		p.footer()
	}
	return p.err
}

func (p *Writer) write(b []byte) {
	if p.err == nil {
		var n int
		n, p.err = p.w.Write(b)
		p.at += int64(n)
	}
}

// group writes the columns' values as a row group and empties the columns.
func (p *Writer) group() {
	var chunks []chunk
	for _, c := range p.columns {
		body := c.page()
		stored := p.zstd.EncodeAll(body, nil)
		var h thrift
		h.begin()
		h.i32(1, 0) // DATA_PAGE
		h.i32(2, int32(len(body)))
		h.i32(3, int32(len(stored)))
		h.strct(5)
		h.i32(1, int32(p.filled))
		h.i32(2, encodingPlain)
		h.i32(3, encodingRLE)
		h.i32(4, encodingRLE)
		h.end()
		h.end()
		chunks = append(chunks, chunk{offset: p.at, plain: int64(len(h.b) + len(body)),
			stored: int64(len(h.b) + len(stored))})
		p.write(h.b)
		p.write(stored)
		c.values, c.bits, c.present = c.values[:0], c.bits[:0], c.present[:0]
	}
	p.groups = append(p.groups, chunks)
	p.rows = append(p.rows, p.filled)
	p.filled = 0
}

// page returns the uncompressed body of the column's data page: definition levels if the column is optional,
// then plain values.
func (c *column) page() []byte {
	var b []byte
	if c.Optional {
		levels := runs(c.present)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(levels)))
		b = append(b, levels...)
	}
	if c.Kind == Bool {
		packed := make([]byte, (len(c.bits)+7)/8)
		for i, bit := range c.bits {
			if bit {
				packed[i/8] |= 1 << (i % 8)
			}
		}
		return append(b, packed...)
	}
	return append(b, c.values...)
}

// runs run-length encodes one-bit levels: a varint of the length doubled, then the level in a byte.
func runs(levels []bool) []byte {
	var b []byte
	for i := 0; i < len(levels); {
		j := i
		for j < len(levels) && levels[j] == levels[i] {
			j++
		}
		b = binary.AppendUvarint(b, uint64(j-i)<<1)
		if levels[i] {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
		i = j
	}
	return b
}

func (p *Writer) footer() {
	total := int64(0)
	for _, n := range p.rows {
		total += n
	}
	var t thrift
	t.begin()
	t.i32(1, 1)
	t.list(2, thriftStruct, len(p.columns)+1)
	t.begin()
	t.text(4, p.name)
	t.i32(5, int32(len(p.columns)))
	t.end()
	for _, c := range p.columns {
		t.begin()
		t.i32(1, types[c.Kind].physical)
		repetition := int32(0)
		if c.Optional {
			repetition = 1
		}
		t.i32(3, repetition)
		t.text(4, c.Name)
		if converted := types[c.Kind].converted; converted != convertedNone {
			t.i32(6, converted)
		}
		t.end()
	}
	t.i64(3, total)
	t.list(4, thriftStruct, len(p.groups))
	for g := range p.groups {
		p.groupMeta(&t, g)
	}
	t.text(6, "gmemtop")
	t.end()
	p.write(t.b)
	p.write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(t.b))), "PAR1"...))
}

func (p *Writer) groupMeta(t *thrift, g int) {
	t.begin()
	t.list(1, thriftStruct, len(p.columns))
	size := int64(0)
	for i, c := range p.columns {
		x := p.groups[g][i]
		size += x.plain
		t.begin()
		t.i64(2, x.offset)
		t.strct(3)
		t.i32(1, types[c.Kind].physical)
		t.list(2, thriftI32, 2)
		t.b = binary.AppendVarint(t.b, encodingPlain)
		t.b = binary.AppendVarint(t.b, encodingRLE)
		t.list(3, thriftBinary, 1)
		t.rawText(c.Name)
		t.i32(4, codecZSTD)
		t.i64(5, p.rows[g])
		t.i64(6, x.plain)
		t.i64(7, x.stored)
		t.i64(9, x.offset)
		t.end()
		t.end()
	}
	t.i64(2, size)
	t.i64(3, p.rows[g])
	t.end()
}
