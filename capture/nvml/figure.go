package nvml

import (
	"encoding/json"
	"math"
	"strconv"
)

// Figure is a number that may be unknown. The zero Figure is unknown.
type Figure struct {
	value int64
	known bool
}

// Known returns the figure v.
func Known(v int64) Figure { return Figure{value: v, known: true} }

// Value returns the number, and whether it is known; it is 0 if it is not.
func (f Figure) Value() (v int64, known bool) { return f.value, f.known }

// IsKnown reports whether there is a number.
func (f Figure) IsKnown() bool { return f.known }

// Or returns the number, or v where it is unknown.
func (f Figure) Or(v int64) int64 {
	if f.known {
		return f.value
	}
	return v
}

// Minus returns f − g, unknown if either is.
func (f Figure) Minus(g Figure) Figure {
	if !f.known || !g.known {
		return Figure{}
	}
	return Known(f.value - g.value)
}

// String returns the number in decimal, or "unknown".
func (f Figure) String() string {
	if !f.known {
		return "unknown"
	}
	return strconv.FormatInt(f.value, 10)
}

// MarshalJSON writes the number, or null where it is unknown.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.known {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, f.value, 10), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Figure) UnmarshalJSON(p []byte) error {
	var v *int64
	if err := json.Unmarshal(p, &v); err != nil {
		return err
	}
	*f = Figure{}
	if v != nil {
		*f = Known(*v)
	}
	return nil
}

// unsigned returns a figure of NVML's that is unknown if it is all ones (NVML_VALUE_NOT_AVAILABLE) or no
// int64.
func unsigned(v uint64) Figure {
	if v > math.MaxInt64 {
		return Figure{}
	}
	return Known(int64(v))
}

// unsigned32 is unsigned of a 32-bit figure, whose all-ones value means the same.
func unsigned32(v uint32) Figure {
	if v == math.MaxUint32 {
		return Figure{}
	}
	return Known(int64(v))
}

// scaled returns f times unit, unknown if that overflows.
func (f Figure) scaled(unit int64) Figure {
	if !f.known || f.value > math.MaxInt64/unit || f.value < math.MinInt64/unit {
		return Figure{}
	}
	return Known(f.value * unit)
}
