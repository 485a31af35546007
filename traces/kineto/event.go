package kineto

import (
	"errors"
	"math"
	"strconv"
)

// event is the part of a traceEvents element that matters for memory. Its slices point into the scanner's
// window and are valid until the next event is parsed.
type event struct {
	// Chrome's ph: X complete, i instant, B and E begin and end, M metadata, s and f flows
	phase          byte
	cat, name      []byte
	pid, tid       []byte
	ts, dur        []byte
	bytes, addr    []byte
	deviceType     []byte
	deviceID       []byte
	allocated      []byte
	reserved       []byte
	callStack      []byte
	sequence       []byte
	forwardThread  []byte
	stream, device []byte
}

// parse reads the event object at the cursor.
func (e *event) parse(c *cursor) error {
	*e = event{}
	return c.eachMember(func(k []byte) (err error) {
		switch string(k) {
		case "ph":
			var ph []byte
			if ph, err = c.scalar(); err == nil && len(ph) == 1 {
				e.phase = ph[0]
			}
		case "cat":
			e.cat, err = c.scalar()
		case "name":
			e.name, err = c.scalar()
		case "pid":
			e.pid, err = c.scalar()
		case "tid":
			e.tid, err = c.scalar()
		case "ts":
			e.ts, err = c.scalar()
		case "dur":
			e.dur, err = c.scalar()
		case "args":
			err = e.parseArgs(c)
		default:
			err = c.skip()
		}
		return err
	})
}

func (e *event) parseArgs(c *cursor) error {
	if b, err := c.peek(); err != nil || b != '{' {
		if err != nil {
			return err
		}
		return c.skip()
	}
	return c.eachMember(func(k []byte) (err error) {
		switch string(k) {
		case "Bytes":
			e.bytes, err = c.scalar()
		case "Addr":
			e.addr, err = c.scalar()
		case "Device Type":
			e.deviceType, err = c.scalar()
		case "Device Id":
			e.deviceID, err = c.scalar()
		case "Total Allocated":
			e.allocated, err = c.scalar()
		case "Total Reserved":
			e.reserved, err = c.scalar()
		case "Call stack":
			e.callStack, err = c.scalar()
		case "Sequence number":
			e.sequence, err = c.scalar()
		case "Fwd thread id":
			e.forwardThread, err = c.scalar()
		case "stream":
			e.stream, err = c.scalar()
		case "device":
			e.device, err = c.scalar()
		default:
			err = c.skip()
		}
		return err
	})
}

// integer parses p, with ok false if p is not a 64-bit integer.
func integer(p []byte) (v int64, ok bool) {
	if len(p) == 0 {
		return 0, false
	}
	digits, negative := p, false
	if p[0] == '-' {
		digits, negative = p[1:], true
	}
	if len(digits) == 0 || len(digits) > 18 {
		v, err := strconv.ParseInt(string(p), 10, 64)
		return v, err == nil
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		v = v*10 + int64(d-'0')
	}
	if negative {
		v = -v
	}
	return v, true
}

// address parses an address. Old writers print one with the top bit set as a negative number.
func address(p []byte) (uint64, bool) {
	if v, ok := integer(p); ok {
		return uint64(v), true
	}
	v, err := strconv.ParseUint(string(p), 10, 64)
	return v, err == nil
}

// nanoseconds converts a decimal number of microseconds exactly: a float64 would lose the nanoseconds of a
// Unix time. Digits beyond the third decimal are cut.
func nanoseconds(p []byte) (ns int64, fractional, ok bool) {
	i := 0
	for i < len(p) && p[i] != '.' && p[i] != 'e' && p[i] != 'E' {
		i++
	}
	whole, valid := integer(p[:i])
	if i < len(p) && p[i] != '.' || !valid {
		return floatNanoseconds(p)
	}
	if whole > math.MaxInt64/1000-1 || whole < math.MinInt64/1000+1 {
		return 0, false, false
	}
	ns = whole * 1000
	if i == len(p) {
		return ns, false, true
	}
	scale, part := int64(100), int64(0)
	for _, d := range p[i+1:] {
		if d < '0' || d > '9' {
			return floatNanoseconds(p)
		}
		part += int64(d-'0') * scale
		scale /= 10
	}
	if p[0] == '-' {
		part = -part
	}
	return ns + part, true, true
}

func floatNanoseconds(p []byte) (int64, bool, bool) {
	f, err := strconv.ParseFloat(string(p), 64)
	if f *= 1000; err != nil || math.IsNaN(f) || math.Abs(f) > 9e18 {
		return 0, false, false
	}
	return int64(f), true, true
}

// text decodes a JSON string's content. It returns p itself if there are no escapes, which are rare.
func text(p []byte) []byte {
	for _, b := range p {
		if b == '\\' {
			return unescape(p)
		}
	}
	return p
}

func unescape(p []byte) []byte {
	out := make([]byte, 0, len(p))
	for i := 0; i < len(p); i++ {
		if p[i] != '\\' || i+1 == len(p) {
			out = append(out, p[i])
			continue
		}
		i++
		switch p[i] {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b', 'f':
			out = append(out, ' ')
		case 'u':
			r, err := codePoint(p[i+1:])
			if err != nil {
				out = append(out, '\\', 'u')
				continue
			}
			out = append(out, string(r)...)
			i += 4
		default: // quote, backslash, slash
			out = append(out, p[i])
		}
	}
	return out
}

var errEscape = errors.New("invalid escape")

// codePoint reads four hexadecimal digits; halves of a surrogate pair become the replacement character.
func codePoint(p []byte) (rune, error) {
	if len(p) < 4 {
		return 0, errEscape
	}
	v, err := strconv.ParseUint(string(p[:4]), 16, 32)
	return rune(v), err
}
