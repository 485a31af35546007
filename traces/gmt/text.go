package gmt

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/traces"
)

// Arrow's utf8 columns must hold UTF-8, and other readers check that. A trace's strings are whatever the
// source had, and a file path need not be UTF-8. So bytes that are not UTF-8 are written as the private-use
// runes U+10FE00 + byte, and so are the bytes of such runes themselves; every other string is written
// unchanged.
const escapeBase = 0x10FE00

// escapeMark begins the UTF-8 of every escape rune, and of few others.
const escapeMark = "\xf4\x8f"

func escaped(r rune) bool { return r >= escapeBase && r < escapeBase+256 }

// escape returns s as valid UTF-8.
func escape(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, escapeMark) {
		return s
	}
	var out []byte
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if escaped(r) || (r == utf8.RuneError && n == 1) {
			for _, c := range []byte(s[i : i+n]) {
				out = utf8.AppendRune(out, escapeBase+rune(c))
			}
		} else {
			out = append(out, s[i:i+n]...)
		}
		i += n
	}
	return string(out)
}

// unescape undoes escape.
func unescape(s string) string {
	if !strings.Contains(s, escapeMark) {
		return s
	}
	var out []byte
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if escaped(r) {
			out = append(out, byte(r-escapeBase))
		} else {
			out = append(out, s[i:i+n]...)
		}
		i += n
	}
	return string(out)
}

// appendPair appends " key=v" to a list of pairs; zeros are not written.
func appendPair(p []byte, key string, v int64) []byte {
	if v == 0 {
		return p
	}
	if len(p) > 0 {
		p = append(p, ' ')
	}
	p = append(p, key...)
	p = append(p, '=')
	return strconv.AppendInt(p, v, 10)
}

// pairs calls each with every "key=number" of a text and reports whether the text is well formed. Unknown
// keys come from later versions and are not an error.
func pairs(text []byte, each func(key string, v int64)) bool {
	for len(text) > 0 {
		var p []byte
		p, text, _ = bytes.Cut(text, []byte{' '})
		k, n, ok := bytes.Cut(p, []byte{'='})
		if !ok || len(n) > 20 {
			return false
		}
		v, err := strconv.ParseInt(string(n), 10, 64)
		if err != nil {
			return false
		}
		each(string(k), v)
	}
	return true
}

// appendStack appends the frame ids of a stack, innermost first, in decimal with spaces between.
func appendStack(p []byte, ids []traces.FrameID) []byte {
	for i, id := range ids {
		if i > 0 {
			p = append(p, ' ')
		}
		p = strconv.AppendInt(p, int64(id), 10)
	}
	return p
}

// parseStack appends the frames of a stack's text to ids; ok is false unless the text is a list of ids below
// frames.
func parseStack(ids []traces.FrameID, text []byte, frames int) (_ []traces.FrameID, ok bool) {
	if len(text) == 0 {
		return ids, true
	}
	id, digits := int64(0), 0
	for i := 0; i <= len(text); i++ {
		if i == len(text) || text[i] == ' ' {
			if digits == 0 || id >= int64(frames) {
				return ids, false
			}
			ids = append(ids, traces.FrameID(id))
			id, digits = 0, 0
			continue
		}
		c := text[i] - '0'
		if c > 9 || digits == 10 {
			return ids, false
		}
		id = id*10 + int64(c)
		digits++
	}
	return ids, true
}
