package torchsnapshot

import (
	"math"
	"math/big"

	"github.com/gmemtop/gmemtop/traces"
)

// values holds what the front ends deliver besides table rows: texts, plain objects, pools, frames and
// stacks. It turns them into JSON and counts what was lost.
type values struct {
	losses
	texts     *texts
	offset    func() int64
	objects   []object
	kept      int64 // bytes of objects
	largest   int64 // bytes of the largest object
	encoded   int64 // bytes of JSON made from containers
	pools     []traces.Pool
	poolIndex map[traces.Pool]uint32
	stacks    stackTable
	frames    frameTable
}

// openObject keeps a plain container with a copy of items.
func (vs *values) openObject(k kind, items []value) (value, error) {
	if err := vs.keep(48 + 16*int64(len(items))); err != nil {
		return value{}, err
	}
	vs.objects = append(vs.objects, object{items: append([]value(nil), items...)})
	return value{kind: k, ref: uint32(len(vs.objects) - 1)}, nil
}

// keep counts n more bytes of plain objects.
func (vs *values) keep(n int64) error {
	vs.kept += n
	if vs.kept > freeBytes+roomFactor*vs.offset() || len(vs.objects) == maxRows {
		return limitf("unknown keys hold more than %d MiB of objects", vs.kept>>20)
	}
	return nil
}

func (vs *values) addToObject(target value, items []value) error {
	o := &vs.objects[target.ref]
	before := bytesOf(o.items)
	o.items = append(o.items, items...)
	after := bytesOf(o.items)
	vs.largest = max(vs.largest, after)
	return vs.keep(after - before)
}

// pair returns the value of a tuple of two integers.
func (vs *values) pair(a, b value) value {
	p := traces.Pool{First: int64(a.n), Second: int64(b.n)}
	if n := len(vs.pools); n > 0 && vs.pools[n-1] == p {
		return value{kind: kPool, ref: uint32(n - 1)}
	}
	i, ok := vs.poolIndex[p]
	if !ok {
		i = uint32(len(vs.pools))
		vs.pools = append(vs.pools, p)
		vs.poolIndex[p] = i
	}
	return value{kind: kPool, ref: i}
}

// asPool returns the pool that a tuple or a list of two integers names.
func (vs *values) asPool(v value) (traces.Pool, bool) {
	switch v.kind {
	case kPool:
		return vs.pools[v.ref], true
	case kList, kTuple:
		items := vs.objects[v.ref].items
		if len(items) != 2 {
			break
		}
		a, okA := items[0].asInt()
		b, okB := items[1].asInt()
		return traces.Pool{First: a, Second: b}, okA && okB
	}
	return traces.Pool{}, false
}

// integer returns the value of an integer of any size.
func (vs *values) integer(x *big.Int) (value, error) {
	switch {
	case x.IsInt64():
		return intValue(x.Int64()), nil
	case x.IsUint64():
		return value{kind: kUint, n: x.Uint64()}, nil
	}
	t, err := vs.texts.intern([]byte(x.String()))
	return value{kind: kBig, ref: uint32(t)}, err
}

// word interns s, or returns the empty string if the table is full.
func (vs *values) word(s string) value {
	t, err := vs.texts.intern([]byte(s))
	if err != nil {
		t = tEmpty
	}
	return textValue(t)
}

// maxBytes is more than any device has; sums of such sizes do not come near an overflow.
const maxBytes = 1 << 50

// size returns v as a number of bytes; an impossible one is counted as a loss and becomes 0.
func (vs *values) size(v value) (int64, bool) {
	n, ok := v.asInt()
	if v.kind == kUint || v.kind == kBig {
		n, ok = math.MaxInt64, true
	}
	if ok && (n < 0 || n > maxBytes) {
		vs.lose("sizes_out_of_range", traces.Fault, 1, "sizes below zero or above 1 PiB were taken as 0")
		n = 0
	}
	return n, ok
}

// micros returns v as microseconds since 1970, traces.NoTime if it cannot be.
func (vs *values) micros(v value) (int64, bool) {
	if v.kind == kNone {
		return traces.NoTime, true
	}
	n, ok := v.asInt()
	if ok && n >= 0 && n <= math.MaxInt64/1000 {
		return n, true
	}
	if ok || v.kind == kUint || v.kind == kBig {
		vs.lose("times_out_of_range", traces.Fault, 1,
			"times before 1970 or after the year 2262 were taken as absent")
		ok = true
	}
	return traces.NoTime, ok
}
