package torchsnapshot

import (
	"fmt"
	"unsafe"
)

// Limits on what we keep of an input; real snapshots stay far below each of them.
const (
	maxJSONBytes = 16 << 20  // of JSON made from containers under unknown keys, and what was read on top
	maxRows      = 1<<27 - 1 // of any table: a memo entry has 27 bits for it
)

// limitError says that an input asks for more than any real snapshot does.
type limitError string

func (e limitError) Error() string { return string(e) }

func limitf(format string, args ...any) error { return limitError(fmt.Sprintf(format, args...)) }

// The memory that an input takes is bounded by its size, so that a hostile input, with a few bytes for each
// row of a table, cannot cost more than a real snapshot, with a hundred. The check runs every roomBytes of
// input rather than for every row, and goes by the tables' capacities.
const (
	roomBytes = 256 << 10
	// freeBytes may be held for an input of any size, plus roomFactor times the input. JSON made from unknown
	// keys has a limit of its own (maxEncoded); both together stay within four times the input.
	freeBytes  = 24 << 20
	roomFactor = 3
)

func bytesOf[T any](s []T) int64 { return int64(cap(s)) * int64(unsafe.Sizeof(*new(T))) }
