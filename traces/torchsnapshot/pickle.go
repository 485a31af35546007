package torchsnapshot

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
)

// Limits of one pickle.
const (
	maxString = 64 << 20 // bytes of one string
	maxLong   = 1 << 10  // bytes of one integer
	// opRoom is more than any opcode with a fixed argument takes.
	opRoom = 32
)

// unpickler is a pickle machine for data only. It has no opcode that calls, imports or builds anything.
type unpickler struct {
	machine
	w       *window
	scratch []byte
	at      int64 // offset of the opcode being run
}

var errTruncated = errors.New("the file ends in the middle of the snapshot")

// run executes the pickle up to STOP and passes the top level to fold.
func (u *unpickler) run() error {
	u.stack = make([]value, 0, 256)
	u.f.machine = func() int64 { return 2*bytesOf(u.stack) + int64(len(u.memo.pages))*memoPage*4 }
	for {
		if u.w.end-u.w.pos <= opRoom && !u.w.atEnd {
			u.w.refill()
			continue
		}
		if u.w.pos >= u.w.end {
			u.at = u.w.offset()
			return errTruncated
		}
		if err := u.f.room(); err != nil {
			u.at = u.w.offset()
			return err
		}
		done, err := u.runWindow()
		if over := u.w.pos > u.w.end; over {
			u.at = u.w.base + int64(u.w.end)
			return errTruncated
		}
		if err != nil || done {
			return err
		}
	}
}

// runWindow runs opcodes until the window has too few bytes left for one, or the pickle stops.
func (u *unpickler) runWindow() (done bool, err error) {
	w := u.w
	buf, p, limit := w.buf, w.pos, w.limit()
	var op byte
	start := p
	for p < limit {
		start = p
		op = buf[p]
		p++
		switch op {
		case opBinGet:
			err = u.get(uint32(buf[p]))
			p++
		case opMemoize:
			err = u.memoize(u.memo.count)
		case opBinInt1:
			err = u.push(intValue(int64(buf[p])))
			p++
		case opBinInt:
			err = u.push(intValue(int64(int32(binary.LittleEndian.Uint32(buf[p:])))))
			p += 4
		case opLongBinGet:
			err = u.get(binary.LittleEndian.Uint32(buf[p:]))
			p += 4
		case opBinInt2:
			err = u.push(intValue(int64(binary.LittleEndian.Uint16(buf[p:]))))
			p += 2
		case opLong1:
			n := int(buf[p])
			p++
			if n <= 8 {
				err = u.push(intValue(shortLong(buf[p:], n)))
				p += n
				break
			}
			w.pos = p
			err = u.long(n)
			buf, p, limit = w.buf, w.pos, w.limit()
		case opMark:
			err = u.mark()
		case opEmptyDict:
			err = u.open(true)
		case opEmptyList:
			err = u.open(false)
		case opSetItems:
			err = u.setItems()
		case opAppends:
			err = u.appends()
		case opShortBinUnicode:
			n := int(buf[p])
			p++
			if p+n > w.end {
				w.pos = p
				err = u.text(n, kText)
				buf, p, limit = w.buf, w.pos, w.limit()
				break
			}
			var t text
			t, err = u.f.texts.intern(buf[p : p+n])
			p += n
			if err == nil {
				err = u.push(textValue(t))
			}
		case opBinFloat:
			err = u.push(floatValue(math.Float64frombits(binary.BigEndian.Uint64(buf[p:]))))
			p += 8
		case opNone:
			err = u.push(value{kind: kNone})
		case opNewTrue:
			err = u.push(boolValue(true))
		case opNewFalse:
			err = u.push(boolValue(false))
		case opBinPut:
			err = u.memoize(uint32(buf[p]))
			p++
		case opLongBinPut:
			err = u.memoize(binary.LittleEndian.Uint32(buf[p:]))
			p += 4
		case opFrame:
			p += 8
		case opStop:
			w.pos, u.at = p, w.base+int64(start)
			return true, u.finish()
		default:
			w.pos, u.at = p, w.base+int64(start)
			if err = u.rare(op); err != nil {
				return false, err
			}
			buf, p, limit = w.buf, w.pos, w.limit()
		}
		if err != nil {
			break
		}
	}
	w.pos = p
	if err != nil {
		u.at = w.base + int64(start)
	}
	return false, err
}

// limit returns the place in buf up to which an opcode may begin without a refill.
func (w *window) limit() int {
	if w.atEnd {
		return w.end
	}
	return w.end - opRoom
}

// rare runs the opcodes that are rare in large snapshots. w.pos is after the opcode, and after its argument
// when rare returns.
func (u *unpickler) rare(op byte) error {
	arg := u.w.buf[u.w.pos:]
	switch op {
	case opProto:
		u.w.pos++
		if v := arg[0]; v < 2 || v > 5 {
			return limitf("pickle protocol %d; gmemtop reads 2 to 5", v)
		}
		return nil
	case opBinUnicode, opBinBytes:
		u.w.pos += 4
		return u.text(int(binary.LittleEndian.Uint32(arg)), textKind(op))
	case opBinUnicode8, opBinBytes8:
		u.w.pos += 8
		return u.text(int(min(binary.LittleEndian.Uint64(arg), math.MaxInt64)), textKind(op))
	case opShortBinBytes:
		u.w.pos++
		return u.text(int(arg[0]), kBytes)
	case opLong4:
		u.w.pos += 4
		return u.long(int(int32(binary.LittleEndian.Uint32(arg))))
	case opSetItem:
		return u.setItem()
	case opAppend:
		return u.appendOne()
	case opEmptyTuple:
		return u.tuple(len(u.stack))
	case opTuple1, opTuple2, opTuple3:
		return u.tuple(len(u.stack) - int(op-opTuple1) - 1)
	case opTuple:
		base, err := u.popMark()
		if err != nil {
			return err
		}
		return u.tuple(base)
	case opList, opDict:
		return u.collect(op)
	case opPop:
		return u.pop()
	case opPopMark:
		base, err := u.popMark()
		if err == nil {
			u.stack = u.stack[:base]
		}
		return err
	case opDup:
		if len(u.stack) == u.base() || u.stack[len(u.stack)-1].kind == kEvent {
			return limitf("DUP of nothing")
		}
		return u.push(u.stack[len(u.stack)-1])
	}
	return refusal(op)
}

func textKind(op byte) kind {
	if op == opBinBytes || op == opBinBytes8 {
		return kBytes
	}
	return kText
}

// refusal says why an opcode is not run.
func refusal(op byte) error {
	name, ok := refused[op]
	switch {
	case !ok:
		return limitf("0x%02x is not an opcode of a pickle", op)
	case strings.IndexByte(runsCode, op) >= 0:
		return limitf("opcode %s, which makes Python run code; a real snapshot never holds it, and gmemtop "+
			"never runs it", name)
	}
	return limitf("opcode %s; a real snapshot never holds it", name)
}

// text pushes the string of the next n bytes, which may reach beyond the window.
func (u *unpickler) text(n int, k kind) error {
	if n < 0 || n > maxString {
		return limitf("a string of %d bytes; gmemtop takes %d MiB", n, maxString>>20)
	}
	p := u.w.take(n, &u.scratch)
	if len(p) < n {
		u.w.pos = u.w.end + 1 // run notices
		return nil
	}
	t, err := u.f.texts.intern(p)
	if err != nil {
		return err
	}
	return u.push(value{kind: k, ref: uint32(t)})
}

// shortLong reads a little-endian two's complement integer of n <= 8 bytes; p has at least 8.
func shortLong(p []byte, n int) int64 {
	if n == 0 {
		return 0
	}
	shift := 64 - 8*uint(n)
	return int64(binary.LittleEndian.Uint64(p)<<shift) >> shift
}

// long pushes the integer of the next n bytes.
func (u *unpickler) long(n int) error {
	if n < 0 || n > maxLong {
		return limitf("an integer of %d bytes", n)
	}
	p := u.w.take(n, &u.scratch)
	if len(p) < n {
		u.w.pos = u.w.end + 1
		return nil
	}
	if n <= 8 {
		var b [8]byte
		copy(b[:], p)
		return u.push(intValue(shortLong(b[:], n)))
	}
	if n == 9 && p[8] == 0 { // an address at or above 2^63
		return u.push(value{kind: kUint, n: binary.LittleEndian.Uint64(p)})
	}
	be := slices.Clone(p)
	slices.Reverse(be)
	x := new(big.Int).SetBytes(be)
	if p[n-1] >= 0x80 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), 8*uint(n)))
	}
	return u.integer(x)
}

// integer pushes an integer of any size.
func (u *unpickler) integer(x *big.Int) error {
	v, err := u.f.integer(x)
	if err != nil {
		return err
	}
	return u.push(v)
}

// finish takes the pickle's one value.
func (u *unpickler) finish() error {
	if len(u.stack) != 1 || len(u.marks) != 0 {
		return limitf("the pickle stops with %d values instead of one", len(u.stack))
	}
	return u.f.end(u.stack[0])
}
