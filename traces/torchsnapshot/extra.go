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
func (vs *values) keyText(k value) string {
	switch k.kind {
	case kText, kBytes, kBig:
		return vs.texts.string(k.text())
	case kNone, kBool, kInt, kUint, kFloat:
		return string(vs.appendScalar(nil, k))
	}
	return "?"
}

// json returns v as JSON, null where it is too large.
func (vs *values) json(v value) string { return string(vs.appendJSON(nil, v)) }

// extra is a JSON object of unknown keys under construction; its zero value is empty.
type extra []byte

// add adds a member.
func (vs *values) add(x *extra, k, v value) {
	c := byte(',')
	if len(*x) == 0 {
		c = '{'
	}
	p := append(appendString(append(*x, c), []byte(vs.keyText(k))), ':')
	*x = vs.appendJSON(p, v)
}

// join returns the object of old's members, if there are any, and x's.
func (vs *values) join(old traces.StringID, x extra) traces.StringID {
	if len(x) == 0 {
		return old
	}
	p := x
	if before := vs.texts.at(text(old)); len(before) > 0 { // rare: an object's items come in one piece
		if vs.encoded += int64(len(before)); vs.encoded > vs.maxEncoded() {
			vs.tooLarge()
			return old
		}
		p = slices.Concat(before[:len(before)-1], []byte{','}, x[1:])
	}
	t, err := vs.texts.intern(append(p, '}'))
	if err != nil {
		vs.tooLarge()
		return old
	}
	return traces.StringID(t)
}

// maxEncoded bounds the bytes of JSON made from containers: what the file shares is written out in each
// place.
func (vs *values) maxEncoded() int64 { return maxJSONBytes + vs.offset() }

func (vs *values) tooLarge() {
	vs.lose("unknown_keys_dropped", traces.DataLoss, 1,
		"values under unknown keys that are too large were dropped")
}

func (vs *values) appendJSON(p []byte, v value) []byte {
	switch v.kind {
	case kNone, kBool, kInt, kUint, kBig, kFloat, kText, kBytes:
		return vs.appendScalar(p, v)
	}
	start := len(p)
	if q, ok := vs.appendContainer(p, v, start, 0); ok {
		vs.encoded += int64(len(q) - start)
		return q
	}
	vs.tooLarge()
	return append(p[:start], "null"...)
}

func (vs *values) appendContainer(p []byte, v value, start, depth int) ([]byte, bool) {
	if depth > maxJSONDepth || len(p)-start > maxJSONValue ||
		vs.encoded+int64(len(p)-start) > vs.maxEncoded() {
		return p, false
	}
	ok := true
	switch v.kind {
	case kPool:
		p = strconv.AppendInt(append(p, '['), vs.pools[v.ref].First, 10)
		p = strconv.AppendInt(append(p, ','), vs.pools[v.ref].Second, 10)
		return append(p, ']'), true
	case kList, kTuple:
		p = append(p, '[')
		for i, x := range vs.objects[v.ref].items {
			if i > 0 {
				p = append(p, ',')
			}
			if p, ok = vs.appendContainer(p, x, start, depth+1); !ok {
				return p, false
			}
		}
		return append(p, ']'), true
	case kDict:
		p = append(p, '{')
		items := vs.objects[v.ref].items
		for i := 0; i+1 < len(items); i += 2 {
			if i > 0 {
				p = append(p, ',')
			}
			p = append(appendString(p, []byte(vs.keyText(items[i]))), ':')
			if p, ok = vs.appendContainer(p, items[i+1], start, depth+1); !ok {
				return p, false
			}
		}
		return append(p, '}'), true
	case kStack:
		s, err := vs.stacks.resolve(v.ref)
		if err != nil {
			return p, false
		}
		p = append(p, '[')
		for i, id := range vs.stacks.at(s) {
			if i > 0 {
				p = append(p, ',')
			}
			if p = vs.appendFrame(p, vs.frames.list[id]); len(p)-start > maxJSONValue {
				return p, false
			}
		}
		return append(p, ']'), true
	case kFrame:
		if id := vs.frames.objects[v.ref]; id >= 0 {
			return vs.appendFrame(p, vs.frames.list[id]), true
		}
		return append(p, "{}"...), true
	}
	return vs.appendScalar(p, v), true
}

func (vs *values) appendFrame(p []byte, fr traces.Frame) []byte {
	p = appendString(append(p, `{"filename":`...), vs.texts.at(text(fr.File)))
	p = strconv.AppendInt(append(p, `,"line":`...), int64(fr.Line), 10)
	p = appendString(append(p, `,"name":`...), vs.texts.at(text(fr.Func)))
	if extra := vs.texts.at(text(fr.Extra)); len(extra) > 2 {
		p = append(append(p, ','), extra[1:len(extra)-1]...)
	}
	return append(p, '}')
}

func (vs *values) appendScalar(p []byte, v value) []byte {
	switch v.kind {
	case kBool:
		return strconv.AppendBool(p, v.n != 0)
	case kInt:
		return strconv.AppendInt(p, int64(v.n), 10)
	case kUint:
		return strconv.AppendUint(p, v.n, 10)
	case kBig:
		return append(p, vs.texts.at(v.text())...)
	case kFloat:
		return appendFloat(p, math.Float64frombits(v.n))
	case kText, kBytes:
		return appendString(p, vs.texts.at(v.text()))
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
