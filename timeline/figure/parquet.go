package figure

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"github.com/klauspost/compress/zstd"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// Allocations as Parquet: row groups of plain-encoded columns, one zstd-compressed data page each, and a
// footer in Thrift. The format is Apache Parquet's (parquet-format: README.md, parquet.thrift), and a writer
// of one flat table needs only a small part of it: no dictionaries (zstd finds the repetition), no
// statistics, no nesting. Rejected: parquet-go and arrow-go, which add 11 and 33 MB to a program of 11.

// parquetRows is how many allocations a row group holds, and so how many are in memory at a time.
const parquetRows = 1 << 17

// Parquet's numbers for types and encodings.
const (
	parquetBoolean   = 0
	parquetInt64     = 2
	parquetByteArray = 6

	parquetPlain = 0
	parquetRLE   = 3
	parquetZSTD  = 6

	convertedUTF8   = 0
	convertedUint64 = 14
	convertedNone   = -1
)

// parquetColumn is one column of the table: its name, its type, and the values of the current row group.
type parquetColumn struct {
	name      string
	kind      int32
	converted int32
	optional  bool
	add       func(c *parquetColumn, r *allocation)

	values  []byte
	bits    []bool // for a boolean column
	present []bool // for an optional column
}

func textColumn(name string, of func(r *allocation) string) *parquetColumn {
	return &parquetColumn{name: name, kind: parquetByteArray, converted: convertedUTF8, add: func(c *parquetColumn, r *allocation) {
		s := of(r)
		c.values = binary.LittleEndian.AppendUint32(c.values, uint32(len(s)))
		c.values = append(c.values, s...)
	}}
}

func intColumn(name string, converted int32, of func(r *allocation) int64) *parquetColumn {
	return &parquetColumn{name: name, kind: parquetInt64, converted: converted, add: func(c *parquetColumn, r *allocation) {
		c.values = binary.LittleEndian.AppendUint64(c.values, uint64(of(r)))
	}}
}

func optionalColumn(name string, of func(r *allocation) *int64) *parquetColumn {
	return &parquetColumn{name: name, kind: parquetInt64, converted: convertedNone, optional: true,
		add: func(c *parquetColumn, r *allocation) {
			v := of(r)
			c.present = append(c.present, v != nil)
			if v != nil {
				c.values = binary.LittleEndian.AppendUint64(c.values, uint64(*v))
			}
		}}
}

// parquetColumns are the columns of the csv table; an address is a number here.
func parquetColumns() []*parquetColumn {
	return []*parquetColumn{
		textColumn("name", func(r *allocation) string { return r.Name }),
		textColumn("device", func(r *allocation) string { return r.Device }),
		intColumn("address", convertedUint64, func(r *allocation) int64 {
			n, _ := strconv.ParseUint(r.Address, 0, 64) // rowsOf wrote it
			return int64(n)
		}),
		intColumn("bytes", convertedNone, func(r *allocation) int64 { return r.Bytes }),
		intColumn("requested_bytes", convertedNone, func(r *allocation) int64 { return r.Requested }),
		intColumn("stream", convertedUint64, func(r *allocation) int64 { return int64(r.Stream) }),
		optionalColumn("start_ns", func(r *allocation) *int64 { return r.StartNs }),
		optionalColumn("free_requested_ns", func(r *allocation) *int64 { return r.FreedNs }),
		optionalColumn("end_ns", func(r *allocation) *int64 { return r.EndNs }),
		optionalColumn("start_event", func(r *allocation) *int64 { return r.Start }),
		optionalColumn("free_requested_event", func(r *allocation) *int64 { return r.Freed }),
		optionalColumn("end_event", func(r *allocation) *int64 { return r.End }),
		textColumn("category", func(r *allocation) string { return r.Category }),
		{name: "category_inferred", kind: parquetBoolean, converted: convertedNone, add: func(c *parquetColumn, r *allocation) {
			c.bits = append(c.bits, r.Inferred)
		}},
		textColumn("module", func(r *allocation) string { return r.Module }),
		textColumn("site", func(r *allocation) string { return r.Site }),
		intColumn("stack", convertedNone, func(r *allocation) int64 { return int64(r.stackText) }),
	}
}

// parquetChunk is one column of one row group as the footer lists it.
type parquetChunk struct {
	offset, plain, stored int64
}

type parquetWriter struct {
	w       io.Writer
	at      int64
	columns []*parquetColumn
	zstd    *zstd.Encoder
	groups  [][]parquetChunk
	rows    []int64 // of each group
}

// Parquet writes every allocation as a row of an Apache Parquet file, with the columns of [CSV]; times
// outside of the recording are null.
func Parquet(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
	span, err := report.Resolve(d, o.From, o.To)
	if err != nil {
		return err
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	p := &parquetWriter{w: w, columns: parquetColumns(), zstd: enc}
	if err := p.write([]byte("PAR1")); err != nil {
		return err
	}
	filled := int64(0)
	err = rowsOf(ctx, d, span, func(r *allocation) error {
		for _, c := range p.columns {
			c.add(c, r)
		}
		if filled++; filled < parquetRows {
			return nil
		}
		n := filled
		filled = 0
		return p.group(n)
	})
	if err != nil {
		return err
	}
	if filled > 0 {
		if err := p.group(filled); err != nil {
			return err
		}
	}
	return p.footer()
}

func (p *parquetWriter) write(b []byte) error {
	n, err := p.w.Write(b)
	p.at += int64(n)
	return err
}

// group writes the columns' values as a row group and empties the columns.
func (p *parquetWriter) group(rows int64) error {
	var chunks []parquetChunk
	for _, c := range p.columns {
		body := c.page()
		stored := p.zstd.EncodeAll(body, nil)
		var h thrift
		h.begin()
		h.i32(1, 0) // DATA_PAGE
		h.i32(2, int32(len(body)))
		h.i32(3, int32(len(stored)))
		h.strct(5)
		h.i32(1, int32(rows))
		h.i32(2, parquetPlain)
		h.i32(3, parquetRLE)
		h.i32(4, parquetRLE)
		h.end()
		h.end()
		chunk := parquetChunk{offset: p.at, plain: int64(len(h.b) + len(body)), stored: int64(len(h.b) + len(stored))}
		if err := p.write(h.b); err != nil {
			return err
		}
		if err := p.write(stored); err != nil {
			return err
		}
		chunks = append(chunks, chunk)
		c.values, c.bits, c.present = c.values[:0], c.bits[:0], c.present[:0]
	}
	p.groups = append(p.groups, chunks)
	p.rows = append(p.rows, rows)
	return nil
}

// page returns the uncompressed body of the column's data page: definition levels if the column is optional,
// then plain values.
func (c *parquetColumn) page() []byte {
	var b []byte
	if c.optional {
		levels := runs(c.present)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(levels)))
		b = append(b, levels...)
	}
	if c.kind == parquetBoolean {
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

func (p *parquetWriter) footer() error {
	total := int64(0)
	for _, n := range p.rows {
		total += n
	}
	var t thrift
	t.begin()
	t.i32(1, 1)
	t.list(2, thriftStruct, len(p.columns)+1)
	t.begin()
	t.text(4, "allocations")
	t.i32(5, int32(len(p.columns)))
	t.end()
	for _, c := range p.columns {
		t.begin()
		t.i32(1, c.kind)
		repetition := int32(0)
		if c.optional {
			repetition = 1
		}
		t.i32(3, repetition)
		t.text(4, c.name)
		if c.converted != convertedNone {
			t.i32(6, c.converted)
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
	if err := p.write(t.b); err != nil {
		return err
	}
	return p.write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(t.b))), "PAR1"...))
}

func (p *parquetWriter) groupMeta(t *thrift, g int) {
	t.begin()
	t.list(1, thriftStruct, len(p.columns))
	size := int64(0)
	for i, c := range p.columns {
		chunk := p.groups[g][i]
		size += chunk.plain
		t.begin()
		t.i64(2, chunk.offset)
		t.strct(3)
		t.i32(1, c.kind)
		t.list(2, thriftI32, 2)
		t.b = binary.AppendVarint(t.b, parquetPlain)
		t.b = binary.AppendVarint(t.b, parquetRLE)
		t.list(3, thriftBinary, 1)
		t.rawText(c.name)
		t.i32(4, parquetZSTD)
		t.i64(5, p.rows[g])
		t.i64(6, chunk.plain)
		t.i64(7, chunk.stored)
		t.i64(9, chunk.offset)
		t.end()
		t.end()
	}
	t.i64(2, size)
	t.i64(3, p.rows[g])
	t.end()
}
