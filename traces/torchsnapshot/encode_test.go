package torchsnapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
)

// pyPickler writes JSON text as the pickle that CPython's C pickler makes of the same objects: batches of a
// thousand, SETITEM and APPEND for single items, every string and container memoized, and equal stacks and
// strings shared where shared is set.
type pyPickler struct {
	bytes.Buffer
	protocol byte
	tuples   bool // pool ids as tuples, as PyTorch has them, rather than lists
	shared   bool
	memo     uint32
	entries  map[string]uint32
}

func pickleJSON(t testing.TB, text string, protocol byte, tuples, shared bool) []byte {
	t.Helper()
	p := &pyPickler{protocol: protocol, tuples: tuples, shared: shared, entries: map[string]uint32{}}
	p.Write([]byte{opProto, protocol})
	body := &pyPickler{protocol: protocol, tuples: tuples, shared: shared, entries: map[string]uint32{}}
	body.value(json.RawMessage(text), "")
	body.WriteByte(opStop)
	if protocol >= 4 {
		p.WriteByte(opFrame)
		p.Write(binary.LittleEndian.AppendUint64(nil, uint64(body.Len())))
	}
	p.Write(body.Bytes())
	return p.Bytes()
}

func (p *pyPickler) put() uint32 {
	i := p.memo
	p.memo++
	switch {
	case p.protocol >= 4:
		p.WriteByte(opMemoize)
	case i < 256:
		p.Write([]byte{opBinPut, byte(i)})
	default:
		p.WriteByte(opLongBinPut)
		p.Write(binary.LittleEndian.AppendUint32(nil, i))
	}
	return i
}

// known writes a reference to the object already written under that identity.
func (p *pyPickler) known(identity string) bool {
	i, ok := p.entries[identity]
	if !ok {
		return false
	}
	if i < 256 {
		p.Write([]byte{opBinGet, byte(i)})
	} else {
		p.WriteByte(opLongBinGet)
		p.Write(binary.LittleEndian.AppendUint32(nil, i))
	}
	return true
}

func (p *pyPickler) value(raw json.RawMessage, key string) {
	raw = bytes.TrimSpace(raw)
	switch raw[0] {
	case '{', '[':
		identity := "object " + string(raw)
		if share := p.shared && (key == "frames" || key == "frame"); share {
			if p.known(identity) {
				return
			}
			defer func(i uint32) { p.entries[identity] = i }(p.memo)
		}
		if raw[0] == '{' {
			p.dict(raw)
		} else {
			p.list(raw, key)
		}
	case '"':
		var s string
		must(json.Unmarshal(raw, &s))
		p.string(s)
	case 't':
		p.WriteByte(opNewTrue)
	case 'f':
		p.WriteByte(opNewFalse)
	case 'n':
		p.WriteByte(opNone)
	default:
		p.number(string(raw))
	}
}

func (p *pyPickler) string(s string) {
	if p.known("string " + s) {
		return
	}
	if p.protocol >= 4 && len(s) < 256 {
		p.Write([]byte{opShortBinUnicode, byte(len(s))})
	} else {
		p.WriteByte(opBinUnicode)
		p.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	}
	p.WriteString(s)
	p.entries["string "+s] = p.put()
}

func (p *pyPickler) number(s string) {
	x, ok := new(big.Int).SetString(s, 10)
	switch {
	case !ok:
		f, err := strconv.ParseFloat(s, 64)
		must(err)
		p.WriteByte(opBinFloat)
		p.Write(binary.BigEndian.AppendUint64(nil, math.Float64bits(f)))
	case x.IsInt64() && x.Int64() >= 0 && x.Int64() < 256:
		p.Write([]byte{opBinInt1, byte(x.Int64())})
	case x.IsInt64() && x.Int64() >= 0 && x.Int64() < 1<<16:
		p.Write([]byte{opBinInt2, byte(x.Int64()), byte(x.Int64() >> 8)})
	case x.IsInt64() && x.Int64() >= math.MinInt32 && x.Int64() <= math.MaxInt32:
		p.WriteByte(opBinInt)
		p.Write(binary.LittleEndian.AppendUint32(nil, uint32(x.Int64())))
	default:
		n := x.BitLen()/8 + 1
		y := new(big.Int).Set(x)
		if x.Sign() < 0 {
			y.Add(y, new(big.Int).Lsh(big.NewInt(1), 8*uint(n)))
		}
		b := y.FillBytes(make([]byte, n))
		p.Write([]byte{opLong1, byte(n)})
		for i := n - 1; i >= 0; i-- {
			p.WriteByte(b[i])
		}
	}
}

func (p *pyPickler) dict(raw json.RawMessage) {
	p.WriteByte(opEmptyDict)
	p.put()
	keys, values := members(raw)
	p.batches(len(keys), opSetItem, opSetItems, func(i int) {
		p.string(keys[i])
		p.value(values[i], keys[i])
	})
}

func (p *pyPickler) list(raw json.RawMessage, key string) {
	_, items := members(raw)
	if p.tuples && strings.HasSuffix(key, "pool_id") && len(items) == 2 {
		p.value(items[0], "")
		p.value(items[1], "")
		p.WriteByte(opTuple2)
		p.put()
		return
	}
	p.WriteByte(opEmptyList)
	p.put()
	child := ""
	if key == "frames" {
		child = "frame"
	}
	p.batches(len(items), opAppend, opAppends, func(i int) { p.value(items[i], child) })
}

func (p *pyPickler) batches(n int, one, many byte, write func(i int)) {
	for i := 0; i < n; {
		end := min(n, i+1000)
		if end-i == 1 {
			write(i)
			p.WriteByte(one)
			return
		}
		p.WriteByte(opMark)
		for ; i < end; i++ {
			write(i)
		}
		p.WriteByte(many)
	}
}

// members returns the keys, in order, and values of a JSON object, or the elements of an array.
func members(raw json.RawMessage) (keys []string, values []json.RawMessage) {
	d := json.NewDecoder(bytes.NewReader(raw))
	_, err := d.Token()
	must(err)
	for d.More() {
		if raw[0] == '{' {
			k, err := d.Token()
			must(err)
			keys = append(keys, k.(string))
		}
		var v json.RawMessage
		must(d.Decode(&v))
		values = append(values, v)
	}
	return keys, values
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// opcodeArgs says how assemble writes the argument of an opcode.
var opcodeArgs = map[string]struct {
	op   byte
	kind string
}{
	"MARK": {opMark, ""}, "STOP": {opStop, ""}, "POP": {opPop, ""}, "POP_MARK": {opPopMark, ""},
	"DUP": {opDup, ""}, "BINFLOAT": {opBinFloat, "float"}, "BININT": {opBinInt, "u32"},
	"BININT1": {opBinInt1, "u8"}, "BININT2": {opBinInt2, "u16"}, "NONE": {opNone, ""},
	"BINUNICODE": {opBinUnicode, "str4"}, "SHORT_BINUNICODE": {opShortBinUnicode, "str1"},
	"BINUNICODE8": {opBinUnicode8, "str8"}, "APPEND": {opAppend, ""}, "APPENDS": {opAppends, ""},
	"DICT": {opDict, ""}, "LIST": {opList, ""}, "EMPTY_DICT": {opEmptyDict, ""},
	"EMPTY_LIST": {opEmptyList, ""}, "BINGET": {opBinGet, "u8"}, "LONG_BINGET": {opLongBinGet, "u32"},
	"BINPUT": {opBinPut, "u8"}, "LONG_BINPUT": {opLongBinPut, "u32"}, "SETITEM": {opSetItem, ""},
	"SETITEMS": {opSetItems, ""}, "TUPLE": {opTuple, ""}, "EMPTY_TUPLE": {opEmptyTuple, ""},
	"TUPLE1": {opTuple1, ""}, "TUPLE2": {opTuple2, ""}, "TUPLE3": {opTuple3, ""}, "PROTO": {opProto, "u8"},
	"NEWTRUE": {opNewTrue, ""}, "NEWFALSE": {opNewFalse, ""}, "LONG1": {opLong1, "hex1"},
	"LONG4": {opLong4, "hex4"}, "MEMOIZE": {opMemoize, ""}, "FRAME": {opFrame, "u64"},
	"BINBYTES": {opBinBytes, "str4"}, "SHORT_BINBYTES": {opShortBinBytes, "str1"},
	"BINBYTES8": {opBinBytes8, "str8"}, "BYTE": {0, "u8"},
}

// assemble makes a pickle of lines such as "SHORT_BINUNICODE segments". The line "str TEXT" is short for
// SHORT_BINUNICODE, BYTE n is the byte n, RAW takes Go-quoted bytes, and a line that ends with "xN" after two
// spaces is repeated.
func assemble(t testing.TB, source string) []byte {
	t.Helper()
	var out []byte
	for line := range strings.Lines(source) {
		line = strings.TrimRight(line, "\n")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		line, times, repeated := strings.Cut(line, "  x")
		count := 1
		if repeated {
			n, err := strconv.Atoi(times)
			must(err)
			count = n
		}
		name, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		var one []byte
		switch {
		case name == "str":
			one = append([]byte{opShortBinUnicode, byte(len(arg))}, arg...)
		case name == "RAW":
			s, err := strconv.Unquote(arg)
			must(err)
			one = []byte(s)
		default:
			a, ok := opcodeArgs[name]
			if !ok {
				t.Fatalf("no opcode %q", name)
			}
			if name != "BYTE" {
				one = append(one, a.op)
			}
			one = append(one, argument(a.kind, arg)...)
		}
		out = append(out, bytes.Repeat(one, count)...)
	}
	return out
}

func argument(kind, arg string) []byte {
	le := binary.LittleEndian
	number := func() uint64 {
		n, err := strconv.ParseUint(arg, 0, 64)
		must(err)
		return n
	}
	switch kind {
	case "u8":
		return []byte{byte(number())}
	case "u16":
		return le.AppendUint16(nil, uint16(number()))
	case "u32":
		return le.AppendUint32(nil, uint32(number()))
	case "u64":
		return le.AppendUint64(nil, number())
	case "float":
		f, err := strconv.ParseFloat(arg, 64)
		must(err)
		return binary.BigEndian.AppendUint64(nil, math.Float64bits(f))
	case "str1":
		return append([]byte{byte(len(arg))}, arg...)
	case "str4":
		return append(le.AppendUint32(nil, uint32(len(arg))), arg...)
	case "str8":
		return append(le.AppendUint64(nil, uint64(len(arg))), arg...)
	case "hex1", "hex4":
		var b []byte
		_, err := fmt.Sscanf(arg, "%x", &b)
		must(err)
		if kind == "hex4" {
			return append(le.AppendUint32(nil, uint32(len(b))), b...)
		}
		return append([]byte{byte(len(b))}, b...)
	}
	return nil
}
