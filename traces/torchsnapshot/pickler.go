package torchsnapshot

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"
)

// pickler writes the opcodes of protocol 4 without frames, which readers accept. It numbers memo entries by
// PUT rather than MEMOIZE, so that keys, which are written millions of times, get the indices that fit one
// byte; only what is shared (keys, strings, frames, stacks) has an entry.
type pickler struct {
	w    *bufio.Writer
	next uint32 // the next free memo index
	seen [firstFree]bool
	tmp  [16]byte
}

// firstFree is the first memo index after the texts of known keys and values.
const firstFree = 96

func newPickler(w io.Writer) *pickler {
	return &pickler{w: bufio.NewWriterSize(w, 256<<10), next: firstFree}
}

func (p *pickler) op(c byte) { p.w.WriteByte(c) } // the writer's error stays until Flush

func (p *pickler) uint32(op byte, n uint32) {
	p.tmp[0] = op
	binary.LittleEndian.PutUint32(p.tmp[1:], n)
	p.w.Write(p.tmp[:5])
}

func (p *pickler) get(i uint32) {
	if i < 256 {
		p.op(opBinGet)
		p.op(byte(i))
		return
	}
	p.uint32(opLongBinGet, i)
}

func (p *pickler) put(i uint32) {
	if i < 256 {
		p.op(opBinPut)
		p.op(byte(i))
		return
	}
	p.uint32(opLongBinPut, i)
}

// shared writes the value of a table's row: by reference if it was written before, otherwise by write, which
// it notes.
func (p *pickler) shared(entry *uint32, write func()) {
	if *entry != 0 {
		p.get(*entry)
		return
	}
	*entry = p.next
	p.next++
	write()
}

// key writes a known name, which has its own memo index.
func (p *pickler) key(t text) {
	if p.seen[t] {
		p.get(uint32(t))
		return
	}
	p.seen[t] = true
	p.string(name(t))
	p.put(uint32(t))
}

// name returns the string of a known text.
func name(t text) string {
	if t >= tFirstAction {
		return (firstAction + actionOf(t)).String()
	}
	return knownTexts[t]
}

func (p *pickler) string(s string) {
	if len(s) < 256 {
		p.op(opShortBinUnicode)
		p.op(byte(len(s)))
	} else {
		p.uint32(opBinUnicode, uint32(len(s)))
	}
	p.w.WriteString(s)
}

func (p *pickler) bool(b bool) {
	if b {
		p.op(opNewTrue)
		return
	}
	p.op(opNewFalse)
}

func (p *pickler) int(n int64) {
	switch {
	case n >= 0 && n < 256:
		p.op(opBinInt1)
		p.op(byte(n))
	case n >= 0 && n < 1<<16:
		p.op(opBinInt2)
		p.op(byte(n))
		p.op(byte(n >> 8))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		p.uint32(opBinInt, uint32(n))
	default:
		size := 8
		for size > 5 && n<<(72-8*size)>>(72-8*size) == n { // one byte less still holds the value and its sign
			size--
		}
		p.tmp[0], p.tmp[1] = opLong1, byte(size)
		binary.LittleEndian.PutUint64(p.tmp[2:], uint64(n))
		p.w.Write(p.tmp[:2+size])
	}
}

// uint writes an unsigned integer, which takes nine bytes from 2^63 on.
func (p *pickler) uint(n uint64) {
	if n <= math.MaxInt64 {
		p.int(int64(n))
		return
	}
	p.tmp[0], p.tmp[1], p.tmp[10] = opLong1, 9, 0
	binary.LittleEndian.PutUint64(p.tmp[2:], n)
	p.w.Write(p.tmp[:11])
}

func (p *pickler) float(x float64) {
	p.tmp[0] = opBinFloat
	binary.BigEndian.PutUint64(p.tmp[1:], math.Float64bits(x))
	p.w.Write(p.tmp[:9])
}

// big writes an integer beyond 64 bits as its two's complement.
func (p *pickler) big(x *big.Int) {
	size := x.BitLen()/8 + 1
	y := x
	if x.Sign() < 0 {
		y = new(big.Int).Add(x, new(big.Int).Lsh(big.NewInt(1), 8*uint(size)))
	}
	b := y.FillBytes(make([]byte, size))
	slices.Reverse(b)
	p.uint32(opLong4, uint32(size))
	p.w.Write(b)
}

// errExtra is the error for malformed JSON in a trace.
var errExtra = errors.New("an extra value of the trace is not JSON")

// json writes a JSON value as an object.
func (p *pickler) json(s string) error {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	tok, err := d.Token()
	if err != nil {
		return errExtra
	}
	return p.token(d, tok)
}

// members writes the keys and values of a JSON object into the open dict, except the key skip.
func (p *pickler) members(s string) error {
	if s == "" {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return errExtra
	}
	return p.rest(d)
}

// rest writes the rest of the container that d is in, including its end.
func (p *pickler) rest(d *json.Decoder) error {
	for {
		tok, err := d.Token()
		if err != nil {
			return errExtra
		}
		if tok == json.Delim('}') || tok == json.Delim(']') {
			return nil
		}
		if err := p.token(d, tok); err != nil {
			return err
		}
	}
}

func (p *pickler) token(d *json.Decoder, tok json.Token) error {
	switch v := tok.(type) {
	case json.Delim:
		open, end := byte(opEmptyDict), byte(opSetItems)
		if v == '[' {
			open, end = opEmptyList, opAppends
		}
		p.op(open)
		p.op(opMark)
		if err := p.rest(d); err != nil {
			return err
		}
		p.op(end)
	case string:
		p.string(v)
	case bool:
		p.bool(v)
	case json.Number:
		x, ok := new(big.Int).SetString(v.String(), 10)
		switch f, err := v.Float64(); {
		case ok && x.IsInt64():
			p.int(x.Int64())
		case ok && x.IsUint64():
			p.uint(x.Uint64())
		case ok:
			p.big(x)
		case err != nil:
			return errExtra
		default:
			p.float(f)
		}
	default:
		p.op(opNone)
	}
	return nil
}
