package torchsnapshot

import (
	"bytes"
	"errors"
	"math/big"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonReader is the other front end: a snapshot as JSON, which memory_viz accepts and some tools write. It
// reads tokens from the window. It is simpler than the pickle machine: a container's role is known from above
// and, without a memo, nothing outlives its parent, so the parts of a trace entry are freed when the entry is
// complete.
type jsonReader struct {
	w     *window
	f     *fold
	stack []value
	str   []byte
	at    int64
}

// batch is how many elements are collected before they are passed on.
const batch = 512

func (j *jsonReader) run() error {
	j.stack = make([]value, 0, 256)
	if j.w.end-j.w.pos >= 3 && string(j.w.buf[j.w.pos:j.w.pos+3]) == "\ufeff" {
		j.w.pos += 3
	}
	v, err := j.value(value{}, tSegments, 0)
	if err == nil {
		err = j.f.end(v)
	}
	j.at = j.w.offset()
	return err
}

// peek returns the next byte without taking it; ok is false at the end.
func (j *jsonReader) peek() (c byte, ok bool) {
	w := j.w
	if w.pos == w.end && !w.refill() {
		return 0, false
	}
	return w.buf[w.pos], true
}

// token returns the next byte that is no space, without taking it.
func (j *jsonReader) token() (byte, error) {
	w := j.w
	for {
		for ; w.pos < w.end; w.pos++ {
			switch c := w.buf[w.pos]; c {
			case ' ', '\t', '\r', '\n':
			default:
				return c, nil
			}
		}
		if !w.refill() {
			return 0, errTruncated
		}
	}
}

// expect takes the token c.
func (j *jsonReader) expect(c byte) error {
	got, err := j.token()
	if err != nil {
		return err
	}
	if got != c {
		return limitf("%q where %q should be", got, c)
	}
	j.w.pos++
	return nil
}

func (j *jsonReader) value(parent value, key text, depth int) (value, error) {
	c, err := j.token()
	if err != nil {
		return value{}, err
	}
	if depth > maxMarks {
		return value{}, limitf("nested deeper than %d", maxMarks)
	}
	switch {
	case c == '{':
		return j.dict(parent, key, depth)
	case c == '[':
		return j.list(parent, key, depth)
	case c == '"':
		t, err := j.text()
		return textValue(t), err
	case c == '-' || c >= '0' && c <= '9':
		return j.number()
	}
	return j.literal()
}

// mark is the height of the tables that hold a container's parts.
type mark struct {
	objects, lists, frames int
	kept                   int64
}

func (j *jsonReader) mark() mark {
	f := j.f
	return mark{len(f.objects), len(f.stacks.lists), len(f.frames.objects), f.kept}
}

func (j *jsonReader) release(m mark) {
	f := j.f
	clear(f.objects[m.objects:])
	f.objects, f.kept = f.objects[:m.objects], m.kept
	f.stacks.lists, f.frames.objects = f.stacks.lists[:m.lists], f.frames.objects[:m.frames]
}

func (j *jsonReader) dict(parent value, key text, depth int) (value, error) {
	if err := j.f.room(); err != nil {
		return value{}, err
	}
	j.w.pos++
	k := kRoot
	if depth > 0 {
		k = childOf(parent.kind, key, true)
	}
	v, err := j.f.open(k, parent, key)
	if err != nil {
		return v, err
	}
	m, base := j.mark(), len(j.stack)
	flush := func() error {
		err := j.f.set(v, j.stack[base:])
		j.stack = j.stack[:base]
		if k == kEvent || k == kSegment || k == kBlock || k == kAnnotation {
			j.release(m)
		}
		return err
	}
	for first := true; ; first = false {
		if more, err := j.more('}', first); err != nil {
			return v, err
		} else if !more {
			return v, flush()
		}
		if err := j.pair(v, depth); err != nil {
			return v, err
		}
		if len(j.stack)-base >= 2*batch {
			if err := flush(); err != nil {
				return v, err
			}
		}
	}
}

// more goes to the next item of an object or an array, behind its comma unless it is the first, and reports
// whether there is one: false behind the closing bracket.
func (j *jsonReader) more(closing byte, first bool) (bool, error) {
	c, err := j.token()
	switch {
	case err != nil:
		return false, err
	case c == closing:
		j.w.pos++
		return false, nil
	case !first:
		return true, j.expect(',')
	}
	return true, nil
}

// pair pushes a key and its value.
func (j *jsonReader) pair(parent value, depth int) error {
	if c, err := j.token(); err != nil {
		return err
	} else if c != '"' {
		return limitf("%q where a key should be", c)
	}
	name, err := j.text()
	if err != nil {
		return err
	}
	if err := j.expect(':'); err != nil {
		return err
	}
	j.stack = append(j.stack, textValue(name))
	v, err := j.value(parent, name, depth+1)
	j.stack = append(j.stack, v)
	return err
}

func (j *jsonReader) list(parent value, key text, depth int) (value, error) {
	j.w.pos++
	k := kSegments
	if depth > 0 {
		k = childOf(parent.kind, key, false)
	}
	v, err := j.f.open(k, parent, key)
	if err != nil {
		return v, err
	}
	base := len(j.stack)
	flush := func() error {
		err := j.f.append(v, j.stack[base:])
		j.stack = j.stack[:base]
		return err
	}
	for first := true; ; first = false {
		if more, err := j.more(']', first); err != nil {
			return v, err
		} else if !more {
			return v, flush()
		}
		x, err := j.value(v, tEmpty, depth+1)
		if err != nil {
			return v, err
		}
		if j.stack = append(j.stack, x); len(j.stack)-base >= batch {
			if err := flush(); err != nil {
				return v, err
			}
		}
	}
}

// text takes a string. One without escapes that lies within the window is not copied.
func (j *jsonReader) text() (text, error) {
	w := j.w
	w.pos++
	if n := bytes.IndexByte(w.buf[w.pos:w.end], '"'); n >= 0 {
		p := w.buf[w.pos : w.pos+n]
		if bytes.IndexByte(p, '\\') < 0 {
			w.pos += n + 1
			return j.f.texts.intern(p)
		}
	}
	j.str = j.str[:0]
	for len(j.str) <= maxString {
		c, ok := j.peek()
		if !ok {
			return 0, errTruncated
		}
		w.pos++
		switch c {
		case '"':
			return j.f.texts.intern(j.str)
		case '\\':
			if err := j.escape(); err != nil {
				return 0, err
			}
		default:
			j.str = append(j.str, c)
		}
	}
	return 0, limitf("a string of more than %d MiB", maxString>>20)
}

// escape takes what follows a backslash.
func (j *jsonReader) escape() error {
	c, ok := j.peek()
	if !ok {
		return errTruncated
	}
	j.w.pos++
	switch c {
	case '"', '\\', '/':
		j.str = append(j.str, c)
	case 'b':
		j.str = append(j.str, '\b')
	case 'f':
		j.str = append(j.str, '\f')
	case 'n':
		j.str = append(j.str, '\n')
	case 'r':
		j.str = append(j.str, '\r')
	case 't':
		j.str = append(j.str, '\t')
	case 'u':
		r, err := j.hex4()
		if err != nil {
			return err
		}
		j.str = appendUnit(j.str, r)
	default:
		return limitf("escape \\%c in a string", c)
	}
	return nil
}

func (j *jsonReader) hex4() (rune, error) {
	r := rune(0)
	for range 4 {
		c, ok := j.peek()
		if !ok {
			return 0, errTruncated
		}
		j.w.pos++
		n, err := strconv.ParseUint(string(c), 16, 8)
		if err != nil {
			return 0, limitf("%q in a \\u escape", c)
		}
		r = r<<4 | rune(n)
	}
	return r, nil
}

// appendUnit appends a UTF-16 code unit. The first of a surrogate pair is appended as the three bytes it
// would have by itself, and joined when the second comes; alone it is not UTF-8 and texts replaces it.
func appendUnit(p []byte, r rune) []byte {
	if r >= 0xDC00 && r < 0xE000 && len(p) >= 3 && p[len(p)-3] == 0xED && p[len(p)-2] >= 0xA0 &&
		p[len(p)-2] < 0xB0 {
		high := 0xD000 | rune(p[len(p)-2]&0x3F)<<6 | rune(p[len(p)-1]&0x3F)
		return utf8.AppendRune(p[:len(p)-3], utf16.DecodeRune(high, r))
	}
	if utf16.IsSurrogate(r) {
		return append(p, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0xBF, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(p, r)
}

// number takes an integer of any size or a float.
func (j *jsonReader) number() (value, error) {
	p := j.word()
	if len(p) <= 18 {
		n, digits, negative := int64(0), p, p[0] == '-'
		if negative {
			digits = p[1:]
		}
		for i, c := range digits {
			if c < '0' || c > '9' {
				break
			}
			if n = 10*n + int64(c-'0'); i == len(digits)-1 {
				if negative {
					n = -n
				}
				return intValue(n), nil
			}
		}
	}
	if bytes.ContainsAny(p, ".eE") || string(p) == "-Infinity" {
		x, err := strconv.ParseFloat(string(p), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return value{}, limitf("%.40q is not a number", p)
		}
		return floatValue(x), nil
	}
	if len(p) > maxLong {
		return value{}, limitf("an integer of more than %d digits", maxLong)
	}
	x, ok := new(big.Int).SetString(string(p), 10)
	if !ok {
		return value{}, limitf("%.40q is not a number", p)
	}
	return j.f.integer(x)
}

// word takes the bytes up to the one that ends a number or a literal, and keeps only the first few.
func (j *jsonReader) word() []byte {
	j.str = j.str[:0]
	for {
		c, ok := j.peek()
		switch {
		case !ok, c == ',', c == ']', c == '}', c == ':', c == ' ', c == '\n', c == '\r', c == '\t',
			len(j.str) > maxLong:
			return j.str
		}
		j.str = append(j.str, c)
		j.w.pos++
	}
}

func (j *jsonReader) literal() (value, error) {
	switch p := j.word(); string(p) {
	case "null":
		return value{kind: kNone}, nil
	case "true":
		return boolValue(true), nil
	case "false":
		return boolValue(false), nil
	case "NaN", "Infinity": // Python writes these
		x, err := strconv.ParseFloat(string(p), 64)
		return floatValue(x), err
	default:
		if len(p) < 5 && j.w.atEnd && j.w.pos == j.w.end {
			return value{}, errTruncated
		}
		return value{}, limitf("%.40q is not a value", p)
	}
}
