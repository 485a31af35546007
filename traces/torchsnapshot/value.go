package torchsnapshot

import (
	"math"
)

// kind is the kind of a value. The containers of a snapshot have their own kinds: their content is folded
// into rows of tables as it comes, and only the row's number stays. A container that this version does not
// know is kept as a plain object.
type kind uint8

const (
	kAbsent kind = iota // the memo's empty entry; never a value

	// Scalars: n holds the value, ref the text if there is one.
	kNone
	kBool
	kInt   // n is an int64
	kUint  // n is a uint64 above the int64s
	kBig   // ref is the decimal text of an integer beyond 64 bits
	kFloat // n is the bits of a float64
	kText
	kBytes
	kPool // ref indexes fold.pools: a tuple of two integers

	// Plain containers: ref indexes fold.objects.
	kList
	kDict
	kTuple

	// The snapshot's own containers: ref is a row or an index of fold's tables.
	kRoot        // dict
	kSegments    // list; ref 0 for a device's, 1 for the host's
	kSegment     // dict
	kBlocks      // list
	kBlock       // dict
	kTraces      // list; ref as in kSegments
	kTrace       // list
	kEvent       // dict; on the stack also the run of entries that ends with it
	kStack       // list
	kFrame       // dict
	kAnnotations // list
	kAnnotation  // dict
)

var kindNames = [...]string{
	"nothing", "None", "a boolean", "an integer", "an integer", "an integer", "a float", "a string", "bytes",
	"a pair", "a list", "a dict", "a tuple", "a snapshot", "a list of segments", "a segment",
	"a list of blocks", "a block", "a list of traces", "a trace", "a trace entry", "a stack", "a frame",
	"a list of annotations", "an annotation",
}

func (k kind) String() string { return kindNames[k] }

func (k kind) isList() bool {
	switch k {
	case kList, kSegments, kBlocks, kTraces, kTrace, kStack, kAnnotations:
		return true
	}
	return false
}

func (k kind) isDict() bool {
	switch k {
	case kDict, kRoot, kSegment, kBlock, kEvent, kFrame, kAnnotation:
		return true
	}
	return false
}

// value is 16 bytes without a pointer, so that the garbage collector skips the stack and the memo.
type value struct {
	n    uint64
	ref  uint32
	kind kind
}

func intValue(n int64) value     { return value{n: uint64(n), kind: kInt} }
func floatValue(f float64) value { return value{n: math.Float64bits(f), kind: kFloat} }
func textValue(t text) value     { return value{ref: uint32(t), kind: kText} }

func boolValue(b bool) value {
	if b {
		return value{n: 1, kind: kBool}
	}
	return value{kind: kBool}
}

func (v value) text() text { return text(v.ref) }

// object is a plain container: the items of a list or tuple, or the alternating keys and values of a dict.
type object struct {
	items []value
	// as is the snapshot container made from the object when a place needed one, kAbsent before.
	as value
}

// asInt returns the integer value of v; a whole float counts, since JSON writers make some.
func (v value) asInt() (int64, bool) {
	switch v.kind {
	case kInt, kBool:
		return int64(v.n), true
	case kFloat:
		f := math.Float64frombits(v.n)
		if f == math.Trunc(f) && math.Abs(f) < 1<<62 {
			return int64(f), true
		}
	}
	return 0, false
}

// asAddress returns v as a 64-bit pattern: newer writers cast addresses to int64, so that high ones are
// negative.
func (v value) asAddress() (uint64, bool) {
	if v.kind == kUint {
		return v.n, true
	}
	n, ok := v.asInt()
	return uint64(n), ok
}
