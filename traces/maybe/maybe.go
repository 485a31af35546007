// Package maybe has the type of a figure that may be unknown.
//
// A figure that a driver, an allocator or a file does not give is not 0, and a number such as -1 in its place
// is sooner or later added up, compared or drawn. An [Int] has no operators: code that computes with one must
// say what happens if it is unknown, with [Int.Value], [Int.Or] or a function below.
//
// Wires and files that write -1 for unknown are read with [NonNegative] and written with Or(-1).
package maybe

import (
	"encoding/json"
	"math"
	"strconv"
)

// Int is an integer that may be unknown. The zero Int is unknown. Two are == if both are unknown or both are
// the same number.
type Int struct {
	value int64
	known bool
}

// Known returns the figure v.
func Known(v int64) Int { return Int{value: v, known: true} }

// NonNegative returns the figure v, or an unknown one if v is negative. It is for sources that write -1 for
// unknown.
func NonNegative(v int64) Int {
	if v < 0 {
		return Int{}
	}
	return Known(v)
}

// Value returns the number, and whether it is known; it is 0 if it is not.
func (i Int) Value() (v int64, known bool) { return i.value, i.known }

// IsKnown reports whether there is a number.
func (i Int) IsKnown() bool { return i.known }

// Or returns the number, or v if it is unknown.
func (i Int) Or(v int64) int64 {
	if i.known {
		return i.value
	}
	return v
}

// Minus returns i − j, unknown if either is.
func (i Int) Minus(j Int) Int {
	if !i.known || !j.known {
		return Int{}
	}
	return Known(i.value - j.value)
}

// Times returns i × unit, which must be positive; unknown if i is or if the product overflows.
func (i Int) Times(unit int64) Int {
	if !i.known || i.value > math.MaxInt64/unit || i.value < math.MinInt64/unit {
		return Int{}
	}
	return Known(i.value * unit)
}

// First returns the first figure that is known, unknown if none is.
func First(figures ...Int) Int {
	for _, f := range figures {
		if f.known {
			return f
		}
	}
	return Int{}
}

// Sum adds up the figures that are known; it is unknown if none is. Where one that is missing makes the sum
// wrong rather than low, use [Int.Value].
func Sum(figures ...Int) Int {
	var sum Int
	for _, f := range figures {
		if f.known {
			sum = Known(sum.value + f.value)
		}
	}
	return sum
}

// Max returns the largest of the figures that are known, unknown if none is.
func Max(figures ...Int) Int {
	var most Int
	for _, f := range figures {
		if f.known && (!most.known || f.value > most.value) {
			most = f
		}
	}
	return most
}

// String returns the number in decimal, or "unknown".
func (i Int) String() string {
	if !i.known {
		return "unknown"
	}
	return strconv.FormatInt(i.value, 10)
}

// MarshalJSON writes the number, or null if it is unknown.
func (i Int) MarshalJSON() ([]byte, error) {
	if !i.known {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, i.value, 10), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (i *Int) UnmarshalJSON(p []byte) error {
	var v *int64
	if err := json.Unmarshal(p, &v); err != nil {
		return err
	}
	*i = Int{}
	if v != nil {
		*i = Known(*v)
	}
	return nil
}
