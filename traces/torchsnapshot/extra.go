package torchsnapshot

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/traces"
)

// Limits of one value kept as JSON, since an object that is shared under unknown keys is written out in each
// place.
const (
	maxJSONDepth = 64
	maxJSONValue = 1 << 20
)

// keyText returns a dict's key as text; Python allows numbers, JSON does not.
func (f *fold) keyText(k value) string {
	switch k.kind {
	case kText, kBytes, kBig:
		return f.texts.string(k.text())
	case kNone, kBool, kInt, kUint, kFloat:
		return string(f.appendScalar(nil, k))
	}
	return "?"
}

// json returns v as JSON, null where it is too large.
func (f *fold) json(v value) string { return string(f.appendJSON(nil, v)) }

// extra is a JSON object of unknown keys under construction; its zero value is empty.
type extra []byte

// add adds a member.
func (f *fold) add(x *extra, k, v value) {
	c := byte(',')
	if len(*x) == 0 {
		c = '{'
	}
	p := append(appendString(append(*x, c), []byte(f.keyText(k))), ':')
	*x = f.appendJSON(p, v)
}

// join returns the object of old's members, if there are any, and x's.
func (f *fold) join(old traces.StringID, x extra) traces.StringID {
	if len(x) == 0 {
		return old
	}
	p := x
	if before := f.texts.at(text(old)); len(before) > 0 { // rare: an object's items come in one piece
		if f.encoded += int64(len(before)); f.encoded > f.maxEncoded() {
			f.tooLarge()
			return old
		}
		p = slices.Concat(before[:len(before)-1], []byte{','}, x[1:])
	}
	t, err := f.texts.intern(append(p, '}'))
	if err != nil {
		f.tooLarge()
		return old
	}
	return traces.StringID(t)
}

// maxEncoded bounds the bytes of JSON made from containers: what the file shares is written out in each
// place.
func (f *fold) maxEncoded() int64 { return maxJSONBytes + f.offset() }

func (f *fold) tooLarge() {
	f.lose("unknown_keys_dropped", traces.DataLoss, 1,
		"values under unknown keys that are too large were dropped")
}

func (f *fold) appendJSON(p []byte, v value) []byte {
	switch v.kind {
	case kNone, kBool, kInt, kUint, kBig, kFloat, kText, kBytes:
		return f.appendScalar(p, v)
	}
	start := len(p)
	if q, ok := f.appendContainer(p, v, start, 0); ok {
		f.encoded += int64(len(q) - start)
		return q
	}
	f.tooLarge()
	return append(p[:start], "null"...)
}

func (f *fold) appendContainer(p []byte, v value, start, depth int) ([]byte, bool) {
	if depth > maxJSONDepth || len(p)-start > maxJSONValue || f.encoded+int64(len(p)-start) > f.maxEncoded() {
		return p, false
	}
	ok := true
	switch v.kind {
	case kPool:
		p = strconv.AppendInt(append(p, '['), f.pools[v.ref].First, 10)
		p = strconv.AppendInt(append(p, ','), f.pools[v.ref].Second, 10)
		return append(p, ']'), true
	case kList, kTuple:
		p = append(p, '[')
		for i, x := range f.objects[v.ref].items {
			if i > 0 {
				p = append(p, ',')
			}
			if p, ok = f.appendContainer(p, x, start, depth+1); !ok {
				return p, false
			}
		}
		return append(p, ']'), true
	case kDict:
		p = append(p, '{')
		items := f.objects[v.ref].items
		for i := 0; i+1 < len(items); i += 2 {
			if i > 0 {
				p = append(p, ',')
			}
			p = append(appendString(p, []byte(f.keyText(items[i]))), ':')
			if p, ok = f.appendContainer(p, items[i+1], start, depth+1); !ok {
				return p, false
			}
		}
		return append(p, '}'), true
	case kStack:
		s, err := f.stacks.resolve(v.ref)
		if err != nil {
			return p, false
		}
		p = append(p, '[')
		for i, id := range f.stacks.at(s) {
			if i > 0 {
				p = append(p, ',')
			}
			if p = f.appendFrame(p, f.frames.list[id]); len(p)-start > maxJSONValue {
				return p, false
			}
		}
		return append(p, ']'), true
	case kFrame:
		if id := f.frames.objects[v.ref]; id >= 0 {
			return f.appendFrame(p, f.frames.list[id]), true
		}
		return append(p, "{}"...), true
	}
	return f.appendScalar(p, v), true
}

func (f *fold) appendFrame(p []byte, fr traces.Frame) []byte {
	p = appendString(append(p, `{"filename":`...), f.texts.at(text(fr.File)))
	p = strconv.AppendInt(append(p, `,"line":`...), int64(fr.Line), 10)
	p = appendString(append(p, `,"name":`...), f.texts.at(text(fr.Func)))
	if extra := f.texts.at(text(fr.Extra)); len(extra) > 2 {
		p = append(append(p, ','), extra[1:len(extra)-1]...)
	}
	return append(p, '}')
}

func (f *fold) appendScalar(p []byte, v value) []byte {
	switch v.kind {
	case kBool:
		return strconv.AppendBool(p, v.n != 0)
	case kInt:
		return strconv.AppendInt(p, int64(v.n), 10)
	case kUint:
		return strconv.AppendUint(p, v.n, 10)
	case kBig:
		return append(p, f.texts.at(v.text())...)
	case kFloat:
		return appendFloat(p, math.Float64frombits(v.n))
	case kText, kBytes:
		return appendString(p, f.texts.at(v.text()))
	}
	return append(p, "null"...) // None, and rows of tables that stand under an unknown key
}

// appendFloat writes x so that it reads back as a float, even if it is whole; JSON has no infinities.
func appendFloat(p []byte, x float64) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return append(p, "null"...)
	}
	start := len(p)
	p = strconv.AppendFloat(p, x, 'g', -1, 64)
	if !bytes.ContainsAny(p[start:], ".e") {
		p = append(p, ".0"...)
	}
	return p
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string; s is UTF-8.
func appendString(p, s []byte) []byte {
	p = append(p, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			p = append(p, '\\', c)
		case c == '\n':
			p = append(p, '\\', 'n')
		case c < 0x20 || c == 0x7f:
			p = append(p, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			p = append(p, c)
		default:
			_, n := utf8.DecodeRune(s[i:])
			p = append(p, s[i:i+n]...)
			i += n
			continue
		}
		i++
	}
	return append(p, '"')
}
