package pack

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// MiniMalloc's CSV (google/minimalloc, src/converter.cc), shared by idealloc and others: a header line that
// names the columns in any order, then one item a row. id (buffer, buffer_id) is any text; lower (start,
// begin) and upper (end, where the last moment is inside the lifetime) are the half-open lifetime; size is
// bytes; offset, where present and not empty or negative, is the item's place; lower2 and upper2, ours, are a
// second stretch of life. Unknown columns are skipped, except alignment and gaps, which would change the
// problem and are refused where they are set.

// Table is a problem as in a file: with ids, and with offsets if the file has them.
type Table struct {
	Problem
	IDs     []string // One for each item, as written.
	Offsets []int64  // Nil, or for each item its offset, -1 if the row has none.
}

// ParseError reports a malformed CSV by line.
type ParseError struct {
	Line int // From 1.
	Err  error
}

// Error implements error.
func (e *ParseError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the cause.
func (e *ParseError) Unwrap() error { return e.Err }

const (
	maxLine = 1 << 20 // bytes of one line
	maxTime = 1 << 62 // the largest time, so that the last moment's successor exists
)

// columns of the table; names that mean the same share one.
const (
	colID = iota
	colLower
	colUpper
	colSize
	colOffset
	colLower2
	colUpper2
	colAlignment
	colGaps
	numColumns
)

var columnOf = map[string]int{
	"id": colID, "buffer": colID, "buffer_id": colID, "lower": colLower, "start": colLower, "begin": colLower,
	"upper": colUpper,
	"end":   colUpper, "size": colSize, "offset": colOffset, "lower2": colLower2, "upper2": colUpper2,
	"alignment": colAlignment, "gaps": colGaps,
}

// header says which field holds each column, -1 if there is none.
type header struct {
	field     [numColumns]int
	endInside bool // the upper column is the last moment inside the lifetime
}

func parseHeader(fields []string) (header, error) {
	var h header
	for i := range h.field {
		h.field[i] = -1
	}
	for i, name := range fields {
		name = strings.ToLower(strings.TrimSpace(name))
		col, known := columnOf[name]
		if !known {
			continue
		}
		if h.field[col] >= 0 {
			return h, fmt.Errorf("the header names the column %q a second time", name)
		}
		h.field[col] = i
		h.endInside = h.endInside || name == "end"
	}
	for _, col := range []int{colID, colLower, colUpper, colSize} {
		if h.field[col] < 0 {
			return h, errors.New("the header lacks one of the columns id, lower, upper, size")
		}
	}
	if (h.field[colLower2] < 0) != (h.field[colUpper2] < 0) {
		return h, errors.New("the header has only one of the columns lower2, upper2")
	}
	return h, nil
}

// ReadCSV reads a problem. A malformed row is a *ParseError with its line; the problem is checked as by
// Check, and its Fixed is nil: offsets in the file go to Offsets.
func ReadCSV(r io.Reader) (*Table, error) {
	in := csv.NewReader(&lineGuard{r: r})
	in.ReuseRecord, in.FieldsPerRecord, in.TrimLeadingSpace = true, -1, true
	fields, err := in.Read()
	if err == io.EOF {
		return nil, &ParseError{1, errors.New("there is no header; the first line has to name the columns " +
			"id, lower, upper, size")}
	}
	if err != nil {
		return nil, csvError(err)
	}
	fields[0] = strings.TrimPrefix(fields[0], "\ufeff")
	h, err := parseHeader(fields)
	if err != nil {
		return nil, &ParseError{1, err}
	}
	t := &Table{}
	var total int64
	for {
		fields, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, csvError(err)
		}
		line, _ := in.FieldPos(0)
		if err := t.addRow(h, fields); err != nil {
			return nil, &ParseError{line, err}
		}
		if total += t.Items[len(t.Items)-1].Size; total > maxTotal {
			return nil, &ParseError{line, errors.New("the sizes add up to more than 2^62")}
		}
	}
	return t, t.Check()
}

func csvError(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return &ParseError{parse.Line, parse.Err}
	}
	return fmt.Errorf("reading the problem: %w", err)
}

func (t *Table) addRow(h header, fields []string) error {
	text := func(col int) string {
		if k := h.field[col]; k >= 0 && k < len(fields) {
			return strings.TrimSpace(fields[k])
		}
		return ""
	}
	var bad error
	number := func(name string, col int) int64 {
		v, err := strconv.ParseInt(text(col), 10, 64)
		if err == nil && (v > maxTime || v < -maxTime) {
			err = strconv.ErrRange
		}
		if err != nil {
			bad = cmp.Or(bad, fmt.Errorf("the %s %.40q is not a whole number below 2^62", name, text(col)))
		}
		return v
	}
	it := Item{Start: number("lower", colLower), End: number("upper", colUpper),
		Size: number("size", colSize)}
	if text(colLower2) != "" || text(colUpper2) != "" {
		it.Start2, it.End2 = number("lower2", colLower2), number("upper2", colUpper2)
	}
	if h.endInside {
		it.End++
	}
	offset := int64(-1)
	if text(colOffset) != "" {
		offset = max(number("offset", colOffset), -1)
	}
	if a := text(colAlignment); a != "" && a != "0" && a != "1" {
		bad = cmp.Or(bad, fmt.Errorf("an alignment of its own (%.40q) is not supported; give "+
			"one for the whole problem", a))
	}
	if g := text(colGaps); g != "" {
		bad = cmp.Or(bad, fmt.Errorf("gaps in a lifetime (%.40q) are not supported; use "+
			"lower2 and upper2 for one", g))
	}
	if bad = cmp.Or(bad, it.check()); bad != nil {
		return bad
	}
	if offset >= 0 && t.Offsets == nil {
		t.Offsets = make([]int64, len(t.Items), cap(t.Items))
		for i := range t.Offsets {
			t.Offsets[i] = -1
		}
	}
	if t.Offsets != nil {
		t.Offsets = append(t.Offsets, offset)
	}
	t.Items = append(t.Items, it)
	t.IDs = append(t.IDs, strings.Clone(text(colID)))
	return nil
}

// WriteCSV writes a problem as ReadCSV reads it. It writes the offset column if t.Offsets is not nil, and
// lower2 and upper2 if an item has a second stretch of life.
func WriteCSV(w io.Writer, t *Table) error {
	if len(t.IDs) != len(t.Items) || t.Offsets != nil && len(t.Offsets) != len(t.Items) {
		return fmt.Errorf("a table of %d items has %d ids and %d offsets; give one for each", len(t.Items),
			len(t.IDs), len(t.Offsets))
	}
	two := false
	for _, it := range t.Items {
		two = two || it.hasSecond()
	}
	row := []string{"id", "lower", "upper", "size"}
	if t.Offsets != nil {
		row = append(row, "offset")
	}
	if two {
		row = append(row, "lower2", "upper2")
	}
	out := csv.NewWriter(w)
	if err := out.Write(row); err != nil {
		return fmt.Errorf("writing the problem: %w", err)
	}
	for i, it := range t.Items {
		row = append(row[:0], t.IDs[i], decimal(it.Start), decimal(it.End), decimal(it.Size))
		switch {
		case t.Offsets != nil && t.Offsets[i] >= 0:
			row = append(row, decimal(t.Offsets[i]))
		case t.Offsets != nil:
			row = append(row, "")
		}
		switch {
		case it.hasSecond():
			row = append(row, decimal(it.Start2), decimal(it.End2))
		case two:
			row = append(row, "", "")
		}
		if err := out.Write(row); err != nil {
			return fmt.Errorf("writing the problem: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing the problem: %w", err)
	}
	return nil
}

func decimal(v int64) string { return strconv.FormatInt(v, 10) }

// lineGuard fails on a line longer than maxLine, which encoding/csv would hold in memory whatever its length.
type lineGuard struct {
	r           io.Reader
	lines, open int // whole lines, and the bytes since
}

// Read implements io.Reader.
func (g *lineGuard) Read(b []byte) (int, error) {
	n, err := g.r.Read(b)
	if k := bytes.LastIndexByte(b[:n], '\n'); k >= 0 {
		g.lines += bytes.Count(b[:n], []byte{'\n'})
		g.open = n - k - 1
	} else {
		g.open += n
	}
	if g.open > maxLine {
		return 0, &ParseError{g.lines + 1, errors.New(
			"the line is longer than 1 MiB; each row needs id, lower, upper and size")}
	}
	return n, err
}
