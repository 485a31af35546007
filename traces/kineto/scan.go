package kineto

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gmemtop/gmemtop/traces"
)

// The profiler writes one JSON document of up to several gigabytes, and only a few fields of each event
// matter. encoding/json reads some 60 MB/s and needs a whole value in memory, so this file has its own
// scanner: a window over the input, and a cursor that parses one value in the window. If a value does not end
// in the window, the scanner reads more and parses that value again. Values are small compared with the
// window (a few kilobytes in 64), so almost nothing is parsed twice, and no state has to survive a refill.
// The cost is one pass over the bytes, with strings skipped by bytes.IndexByte.
//
// It checks the structure that it walks through, but not the grammar of what it skips: damage in an unused
// value goes unnoticed.
//
// Rejected: a token-level state machine that resumes anywhere (three times the code), and finding each
// event's end before parsing it (every byte looked at twice).

const (
	firstWindow = 64 << 10
	// maxValue bounds one event and one top-level value; a longer top-level value that is not needed is
	// skipped without being held in memory.
	maxValue = 64 << 20
)

// errShort says that the window ends inside a value.
var errShort = errors.New("value continues beyond the window")

// scanner is the window over the input.
type scanner struct {
	ctx      context.Context
	r        io.Reader
	progress func(done int64)
	buf      []byte // what was read and not yet given up
	pos      int    // start of what was not yet consumed, in buf
	base     int64  // offset of buf[0] in the input
	eof      bool
}

func newScanner(ctx context.Context, r io.Reader, progress func(int64)) *scanner {
	if progress == nil {
		progress = func(int64) {}
	}
	return &scanner{ctx: ctx, r: r, progress: progress, buf: make([]byte, 0, firstWindow)}
}

func (s *scanner) offset() int64 { return s.base + int64(s.pos) }

func (s *scanner) fail(reason string) error {
	return &traces.FormatError{Format: formatName, Offset: s.offset(), Reason: reason,
		Advice: "export the profile again; everything before this place was read"}
}

// more drops what was consumed and reads more; the window doubles only when one value fills it.
func (s *scanner) more() error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if s.eof {
		return s.fail("the file ends inside a value")
	}
	if s.pos > 0 {
		n := copy(s.buf, s.buf[s.pos:])
		s.buf, s.base, s.pos = s.buf[:n], s.base+int64(s.pos), 0
	}
	if len(s.buf) == cap(s.buf) {
		if cap(s.buf) >= maxValue {
			return s.fail(fmt.Sprintf("one value is longer than %d MiB", maxValue>>20))
		}
		s.buf = append(make([]byte, 0, 2*cap(s.buf)), s.buf...)
	}
	for tries := 0; ; tries++ {
		n, err := s.r.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			s.eof = true
		case err != nil:
			return err
		case n == 0 && tries < 100:
			continue
		case n == 0:
			return io.ErrNoProgress
		}
		s.progress(s.base + int64(len(s.buf)))
		return nil
	}
}

// parse lets f parse one value at the cursor, reads more until it is complete, and consumes it.
func (s *scanner) parse(f func(c *cursor) error) error {
	for {
		c := cursor{b: s.buf, i: s.pos}
		err := f(&c)
		if errors.Is(err, errShort) {
			if err := s.more(); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, traces.ErrUnsupported) {
			return err
		}
		if err != nil {
			at := *s
			at.pos = c.i
			return at.fail(err.Error())
		}
		s.pos = c.i
		return nil
	}
}

// peek returns the next byte that is not white space without consuming it; 0 at the end of the input.
func (s *scanner) peek() (byte, error) {
	for {
		c := cursor{b: s.buf, i: s.pos}
		b, err := c.peek()
		s.pos = c.i
		if err == nil {
			return b, nil
		}
		if s.eof {
			return 0, nil
		}
		if err := s.more(); err != nil {
			return 0, err
		}
	}
}

// take consumes b, which peek has seen.
func (s *scanner) take() { s.pos++ }

// key consumes a member's name and its colon.
func (s *scanner) key() (string, error) {
	var k string
	err := s.parse(func(c *cursor) error {
		b, err := c.key()
		k = string(b)
		return err
	})
	return k, err
}

// skip consumes one value of any length, and drops the window as it goes.
func (s *scanner) skip() error {
	if _, err := s.peek(); err != nil {
		return err
	}
	depth, inString := 0, false
	for {
		c := cursor{b: s.buf, i: s.pos}
		done, err := c.skipSome(&depth, &inString)
		s.pos = c.i
		if done || (errors.Is(err, errShort) && s.eof && depth == 0 && !inString) {
			return nil
		}
		if !errors.Is(err, errShort) {
			return s.fail(err.Error())
		}
		if err := s.more(); err != nil {
			return err
		}
	}
}

// cursor parses one value of the window b from i on. Its methods return errShort if b ends too early.
type cursor struct {
	b []byte
	i int
}

func (c *cursor) peek() (byte, error) {
	for ; c.i < len(c.b); c.i++ {
		switch b := c.b[c.i]; b {
		case ' ', '\n', '\r', '\t':
		default:
			return b, nil
		}
	}
	return 0, errShort
}

func (c *cursor) expect(want byte) error {
	b, err := c.peek()
	if err != nil {
		return err
	}
	if b != want {
		return fmt.Errorf("%q found where %q is expected", b, want)
	}
	c.i++
	return nil
}

// key takes a member's name and its colon.
func (c *cursor) key() ([]byte, error) {
	k, err := c.str()
	if err != nil {
		return nil, err
	}
	return k, c.expect(':')
}

// str takes a string and returns the text between its quotes, escapes as written.
func (c *cursor) str() ([]byte, error) {
	if err := c.expect('"'); err != nil {
		return nil, err
	}
	start := c.i
	for i := start; ; {
		q := bytes.IndexByte(c.b[i:], '"')
		if q < 0 {
			return nil, errShort
		}
		i += q
		if !escaped(c.b[start:i]) {
			c.i = i + 1
			return c.b[start:i], nil
		}
		i++
	}
}

// escaped reports whether the byte after p is escaped: p ends in an odd number of backslashes.
func escaped(p []byte) bool {
	n := 0
	for n < len(p) && p[len(p)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// scalar takes a string, number or word and returns its text without quotes; it skips a composite value and
// returns nil.
func (c *cursor) scalar() ([]byte, error) {
	b, err := c.peek()
	if err != nil {
		return nil, err
	}
	switch b {
	case '"':
		return c.str()
	case '{', '[':
		return nil, c.skip()
	}
	start := c.i
	for i := c.i; i < len(c.b); i++ {
		switch c.b[i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t', ':', '"', '{', '[':
			if i == start {
				return nil, fmt.Errorf("%q found where a value is expected", b)
			}
			c.i = i
			return c.b[start:i], nil
		}
	}
	return nil, errShort
}

// skip takes one value, whatever it is.
func (c *cursor) skip() error {
	if _, err := c.peek(); err != nil {
		return err
	}
	depth, inString := 0, false
	_, err := c.skipSome(&depth, &inString)
	return err
}

// skipSome continues skipping one value; depth and inString say how far an earlier window got. done says that
// the value ended. The cursor must not stand on white space before the value's start.
func (c *cursor) skipSome(depth *int, inString *bool) (done bool, err error) {
	for c.i < len(c.b) {
		if *inString {
			if !c.stringTail() {
				return false, errShort
			}
			*inString = false
			if *depth == 0 {
				return true, nil
			}
			continue
		}
		switch c.b[c.i] {
		case '"':
			*inString = true
		case '{', '[':
			*depth++
		case '}', ']':
			if *depth == 0 {
				return false, fmt.Errorf("%q found where a value is expected", c.b[c.i])
			}
			if *depth--; *depth == 0 {
				c.i++
				return true, nil
			}
		case ',', ':', ' ', '\n', '\r', '\t':
			if *depth == 0 {
				return false, fmt.Errorf("%q found where a value is expected", c.b[c.i])
			}
		default:
			if *depth == 0 {
				_, err := c.scalar()
				return err == nil, err
			}
		}
		c.i++
	}
	return false, errShort
}

// stringTail moves past the closing quote of the string at the cursor. It returns false if the window ends
// first, with the cursor before a trailing backslash, so that the next window has the whole escape.
func (c *cursor) stringTail() bool {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case '"':
			c.i++
			return true
		case '\\':
			if c.i+1 == len(c.b) {
				return false
			}
			c.i++
		}
		c.i++
	}
	return false
}

// eachMember calls f for each member of the object at the cursor; f takes the value.
func (c *cursor) eachMember(f func(key []byte) error) error {
	if err := c.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		b, err := c.peek()
		if err != nil {
			return err
		}
		if b == '}' {
			c.i++
			return nil
		}
		if !first {
			if err := c.expect(','); err != nil {
				return err
			}
		}
		k, err := c.key()
		if err != nil {
			return err
		}
		if err := f(k); err != nil {
			return err
		}
	}
}
