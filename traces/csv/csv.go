// Package csv reads storage-allocation problems: MiniMalloc's CSV (google/minimalloc, src/converter.cc),
// which idealloc and others share.
//
// A problem is a list of buffers, each with a half-open lifetime [lower, upper) and a size, and in a solution
// with an offset. Each becomes an Alloc at lower and a Free at upper on one DeviceArena; at one time, frees
// come before allocs, and rows keep the file's order. The times are the problem's own unit, not nanoseconds:
// the trace's Clock has HasTime false, and an event's Time is the problem's figure.
//
// The columns may come in any order: id (buffer, buffer_id), lower (start, begin), upper, or end if the
// lifetime includes the last moment, size, and optionally offset. Further columns (alignment, gaps, hints)
// are kept in each event's Extra. A buffer with gaps counts as alive in them.
package csv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

const formatName = "minimalloc_csv"

// names maps a header's names to the columns that the reader needs.
var names = map[string]string{
	"id": "id", "buffer": "id", "buffer_id": "id", "lower": "lower", "start": "lower", "begin": "lower",
	"upper": "upper", "end": "end", "size": "size", "offset": "offset",
}

// Sniff reports whether head begins with the header of a problem.
func Sniff(head []byte) bool {
	line, _, _ := bytes.Cut(clean(head), []byte("\n"))
	if len(line) > 4096 {
		return false
	}
	_, err := parseHeader(strings.Split(strings.TrimSpace(string(line)), ","))
	return err == nil
}

func clean(head []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \r\n\t")
}

// header says where the columns are, -1 for a missing one.
type header struct {
	id, lower, upper, size, offset int
	// upper is the last moment of the lifetime instead of the first after it
	endInside bool
	others    []int
	names     []string
}

func parseHeader(fields []string) (header, error) {
	h := header{id: -1, lower: -1, upper: -1, size: -1, offset: -1}
	seen := map[string]bool{}
	for i, f := range fields {
		f = strings.ToLower(strings.TrimSpace(f))
		h.names = append(h.names, strings.Clone(f))
		column := names[f]
		if column == "" {
			h.others = append(h.others, i)
			continue
		}
		if seen[column] {
			return h, fmt.Errorf("the header names the column %s twice", column)
		}
		seen[column] = true
		switch column {
		case "id":
			h.id = i
		case "lower":
			h.lower = i
		case "upper", "end":
			h.upper, h.endInside = i, column == "end"
		case "size":
			h.size = i
		case "offset":
			h.offset = i
		}
	}
	if seen["upper"] && seen["end"] {
		return h, errors.New("the header names both upper and end")
	}
	if h.id < 0 || h.lower < 0 || h.upper < 0 || h.size < 0 {
		return h, errors.New("the header lacks one of the columns id, lower, upper, size")
	}
	return h, nil
}

// Limits of a problem: sums of sizes and times do not come near an overflow.
const maxFigure = 1 << 60

// buffer is one row.
type buffer struct {
	lower, upper, size, offset int64
	name                       traces.StringID
	extra                      traces.StringID
	line                       int
}

type reader struct {
	b       *traces.Builder
	h       header
	buffers []buffer
	total   int64
	unset   int64 // rows without an offset

	synthetic bool // the offsets contradict each other
}

// Read reads a problem. progress, if not nil, is called with the number of bytes read so far. Errors name the
// line; the rows before a damaged one make the trace that comes with the error.
func Read(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error) {
	in := csv.NewReader(&lineLimit{r: skipMark(r)})
	in.ReuseRecord, in.FieldsPerRecord, in.TrimLeadingSpace = true, -1, true
	fields, err := in.Read()
	if err != nil {
		return nil, lineError(in, "there is no header", err)
	}
	h, err := parseHeader(fields)
	if err != nil {
		return nil, lineError(in, err.Error(), nil)
	}
	p := &reader{b: traces.NewBuilder(), h: h}
	p.b.T.Source.Format = formatName
	p.b.T.Clock = traces.Clock{}
	err = p.rows(ctx, in, progress)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		p.b.Lose("torn_tail", traces.DataLoss, 1,
			"the file is cut or damaged; everything after that place is missing")
	}
	if clash := p.checkOffsets(ctx); clash != nil {
		p.b.Lose("offsets_clash", traces.Fault, 1, "two buffers share bytes at one time; no offset is used")
		p.synthetic, err = true, cmp.Or(err, clash)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(p.buffers) == 0 {
		if err == nil {
			err = &traces.FormatError{Format: formatName, Line: 1, Reason: "the problem has no buffers"}
		}
		return nil, err
	}
	p.emit()
	return p.b.Finish(), err
}

// maxLine is how long a line may be; encoding/csv would hold one of any length.
const maxLine = 1 << 20

// lineLimit fails if a line is longer than maxLine.
type lineLimit struct {
	r           io.Reader
	lines, open int // whole lines, and bytes of the line begun
}

func (l *lineLimit) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if i := bytes.LastIndexByte(p[:n], '\n'); i >= 0 {
		l.lines += bytes.Count(p[:n], []byte{'\n'})
		l.open = n - i - 1
	} else {
		l.open += n
	}
	if l.open > maxLine {
		return 0, &traces.FormatError{Format: formatName, Line: l.lines + 1,
			Reason: fmt.Sprintf("the line is longer than %d MiB",
				maxLine>>20), Advice: "each line needs id, lower, upper and size"}
	}
	return n, err
}

// skipMark drops a byte order mark.
func skipMark(r io.Reader) io.Reader {
	var head [3]byte
	n, err := io.ReadFull(r, head[:])
	start := bytes.TrimPrefix(head[:n], []byte("\xef\xbb\xbf"))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return io.MultiReader(bytes.NewReader(start), failing{err})
	}
	return io.MultiReader(bytes.NewReader(start), r)
}

// failing is a reader that only returns an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func lineError(in *csv.Reader, reason string, err error) error {
	var parse *csv.ParseError
	line := 1
	switch {
	case errors.As(err, &parse):
		line, err = parse.Line, parse.Err
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case err == nil:
		line, _ = in.FieldPos(0)
	default:
		err = nil
	}
	return &traces.FormatError{Format: formatName, Line: line, Reason: reason, Err: err,
		Advice: "each line needs id, lower, upper and size"}
}

func (p *reader) rows(ctx context.Context, in *csv.Reader, progress func(int64)) error {
	for n := 0; ; n++ {
		if n%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if progress != nil {
				progress(in.InputOffset())
			}
		}
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return lineError(in, "the line cannot be read", err)
		}
		if len(fields) == 1 && strings.TrimSpace(fields[0]) == "" {
			continue
		}
		line, _ := in.FieldPos(0)
		if err := p.row(fields, line); err != nil {
			return &traces.FormatError{Format: formatName, Line: line, Reason: err.Error()}
		}
	}
}

func (p *reader) row(fields []string, line int) error {
	if len(fields) != len(p.h.names) {
		return fmt.Errorf("there are %d fields where the header has %d", len(fields), len(p.h.names))
	}
	b := buffer{offset: -1, line: line}
	for _, f := range []struct {
		at   int
		into *int64
	}{{p.h.lower, &b.lower}, {p.h.upper, &b.upper}, {p.h.size, &b.size}} {
		if err := figure(fields[f.at], p.h.names[f.at], f.into); err != nil {
			return err
		}
	}
	if p.h.endInside {
		b.upper++
	}
	switch {
	case b.upper <= b.lower:
		return fmt.Errorf("the lifetime [%d, %d) is empty or negative", b.lower, b.upper)
	case b.size == 0:
		return errors.New("the size is 0")
	case b.size > maxFigure-p.total:
		return fmt.Errorf("the sizes up to here add up to more than %d bytes", int64(maxFigure))
	}
	if p.h.offset >= 0 && strings.TrimSpace(fields[p.h.offset]) != "" {
		if err := figure(fields[p.h.offset], "offset", &b.offset); err != nil {
			return err
		}
	} else {
		p.unset++
	}
	p.total += b.size
	b.name = p.b.String(strings.TrimSpace(fields[p.h.id]))
	b.extra = p.extra(fields)
	p.buffers = append(p.buffers, b)
	return nil
}

// figure parses a whole number of 0 to maxFigure.
func figure(s, name string, into *int64) error {
	s = strings.TrimSpace(s)
	v, err := strconv.ParseInt(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || v > maxFigure:
		return fmt.Errorf("%s %.30s is larger than %d", name, s, int64(maxFigure))
	case err != nil:
		return fmt.Errorf("%s %.30q is not a whole number", name, s)
	case v < 0:
		return fmt.Errorf("%s %d is negative", name, v)
	}
	*into = v
	return nil
}

// extra returns the columns that the reader does not use, as a JSON object.
func (p *reader) extra(fields []string) traces.StringID {
	if len(p.h.others) == 0 {
		return 0
	}
	m := map[string]string{}
	for _, i := range p.h.others {
		if v := strings.TrimSpace(fields[i]); v != "" {
			m[p.h.names[i]] = v
			if p.h.names[i] == "gaps" {
				p.b.Lose("gaps_ignored", traces.Info, 1, "buffers with gaps are taken to live through them")
			}
		}
	}
	if len(m) == 0 {
		return 0
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return 0
	}
	return p.b.String(string(raw))
}

// checkOffsets refuses a solution in which two buffers share bytes while both live. The live buffers are in a
// slice ordered by offset: O(n log n) comparisons, and each change moves at most as many entries as there are
// live buffers, few compared with n in real problems.
func (p *reader) checkOffsets(ctx context.Context) error {
	if p.h.offset < 0 || p.unset > 0 {
		return nil
	}
	var live []*buffer
	at := func(b *buffer) (int, bool) {
		return slices.BinarySearchFunc(live, b.offset,
			func(l *buffer, o int64) int { return cmp.Compare(l.offset, o) })
	}
	for n, e := range p.order() {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		b := &p.buffers[e.buffer]
		i, found := at(b)
		if e.free {
			live = slices.Delete(live, i, i+1)
			continue
		}
		clash := -1
		if found || i < len(live) && b.offset+b.size > live[i].offset {
			clash = i
		} else if i > 0 && live[i-1].offset+live[i-1].size > b.offset {
			clash = i - 1
		}
		if clash >= 0 {
			return &traces.FormatError{Format: formatName, Line: b.line,
				Advice: "remove the offset column to read the problem alone",
				Reason: fmt.Sprintf("the buffer shares bytes with the one of line %d, which is alive at "+
					"the same time", live[clash].line)}
		}
		live = slices.Insert(live, i, b)
	}
	return nil
}

// moment is the start or the end of a buffer's lifetime.
type moment struct {
	time   int64
	buffer int32
	free   bool
}

// order returns all starts and ends by time, ends first, otherwise in the file's order.
func (p *reader) order() []moment {
	out := make([]moment, 0, 2*len(p.buffers))
	for i := range p.buffers {
		b := &p.buffers[i]
		out = append(out, moment{b.lower, int32(i), false}, moment{b.upper, int32(i), true})
	}
	slices.SortStableFunc(out, func(a, b moment) int {
		if a.time == b.time && a.free != b.free {
			if a.free {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.time, b.time)
	})
	return out
}

func (p *reader) emit() {
	if p.synthetic || p.h.offset < 0 || p.unset > 0 {
		p.b.T.Source.SyntheticAddresses = true
		next := int64(0)
		for i := range p.buffers {
			p.buffers[i].offset = next
			next += p.buffers[i].size
		}
		if p.h.offset >= 0 && p.unset < int64(len(p.buffers)) {
			p.b.Lose("offsets_ignored", traces.Info, int64(len(p.buffers))-p.unset,
				"not every buffer has a sound offset, so none is used")
		}
	}
	device := p.b.Device(traces.DeviceArena, 0)
	p.b.T.Events.Grow(2 * len(p.buffers))
	for _, m := range p.order() {
		b := &p.buffers[m.buffer]
		e := traces.Event{Time: m.time, Addr: uint64(b.offset), Size: b.size, Stack: traces.NoStack,
			Device: device, Action: traces.Alloc}
		e.Detail = p.b.Detail(traces.Detail{UserMetadata: b.name, Extra: b.extra,
			ForwardStack: traces.NoStack})
		if m.free {
			e.Action = traces.Free
		}
		p.b.Event(e)
	}
}
