package timeline

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Units says how sizes are printed.
type Units uint8

// The units of printed sizes.
const (
	IEC Units = iota // KiB, MiB, GiB: powers of 1024
	SI               // kB, MB, GB: powers of 1000
	Raw              // bytes
)

var unitNames = [...][]string{
	IEC: {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"},
	SI:  {"B", "kB", "MB", "GB", "TB", "PB", "EB"},
	Raw: {"B"},
}

func (u Units) base() float64 {
	if u == SI {
		return 1000
	}
	return 1024
}

// scale returns the power of the base in which n has at most three digits before the point.
func (u Units) scale(n float64) int {
	names := unitNames[u]
	if n < u.base() {
		return 0
	}
	k := 0
	for n >= 999.5 && k < len(names)-1 {
		n /= u.base()
		k++
	}
	return k
}

// Bytes prints n to three significant digits, such as 3.20 GiB. Below the first unit, and in Raw, it is
// exact.
func (u Units) Bytes(n int64) string {
	v := math.Abs(float64(n))
	k := u.scale(v)
	if k == 0 {
		return strconv.FormatInt(n, 10) + " B"
	}
	s := threeDigits(v/math.Pow(u.base(), float64(k))) + " " + unitNames[u][k]
	if n < 0 {
		return "-" + s
	}
	return s
}

// Delta prints n like Bytes, with its sign; zero has none.
func (u Units) Delta(n int64) string {
	if n > 0 {
		return "+" + u.Bytes(n)
	}
	return u.Bytes(n)
}

// Column returns one unit for a column whose largest figure is largest, and a function that prints a figure
// in that unit, without it: no decimals from 100 up, one from 10, else two.
func (u Units) Column(largest int64) (unit string, f func(int64) string) {
	k := u.scale(math.Abs(float64(largest)))
	if k == 0 {
		return "B", func(n int64) string { return strconv.FormatInt(n, 10) }
	}
	div := math.Pow(u.base(), float64(k))
	return unitNames[u][k], func(n int64) string {
		v := float64(n) / div
		switch a := math.Abs(v); {
		case n == 0:
			return "0"
		case a >= 99.95:
			return strconv.FormatFloat(v, 'f', 0, 64)
		case a >= 9.995:
			return strconv.FormatFloat(v, 'f', 1, 64)
		case a < 0.005:
			return "<0.01"
		default:
			return strconv.FormatFloat(v, 'f', 2, 64)
		}
	}
}

// threeDigits prints v, below 1000, to three significant digits.
func threeDigits(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.9995 || v == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
}

// Duration prints nanoseconds to three significant digits up to a minute (1.25 ms), then as minutes and
// seconds or hours and minutes.
func Duration(ns int64) string {
	if ns < 0 {
		if ns == math.MinInt64 {
			ns++
		}
		return "-" + Duration(-ns)
	}
	v := float64(ns)
	switch {
	case ns == 0:
		return "0 s"
	case ns < 1000:
		return strconv.FormatInt(ns, 10) + " ns"
	case v < 999.5e3:
		return threeDigits(v/1e3) + " µs"
	case v < 999.5e6:
		return threeDigits(v/1e6) + " ms"
	case ns < int64(time.Minute):
		return threeDigits(v/1e9) + " s"
	}
	d := time.Duration(ns).Round(time.Second)
	if d < time.Hour {
		return fmt.Sprintf("%dm %02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh %02dm", d/time.Hour, d%time.Hour/time.Minute)
}

// Roughly prints a time in nanoseconds that is only estimated, such as what is left of some work: in seconds
// up to ten, in tens of seconds up to two minutes, then in minutes and hours.
func Roughly(ns int64) string {
	d := time.Duration(max(ns, 0))
	switch {
	case d < 9500*time.Millisecond:
		return fmt.Sprintf("%d s", max(d.Round(time.Second)/time.Second, 1))
	case d < 115*time.Second:
		return fmt.Sprintf("%d s", d.Round(10*time.Second)/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d.Round(time.Minute)/time.Minute)
	}
	return fmt.Sprintf("%d h", d.Round(time.Hour)/time.Hour)
}

var byteSuffixes = map[string]float64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// ParseBytes reads a size such as 8GiB, 1.5g, 512k or 100. A bare letter is a power of 1024, as PyTorch users
// mean it; KB, MB and GB are powers of 1000.
func ParseBytes(s string) (int64, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	i := strings.IndexFunc(t, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i < 0 {
		i = len(t)
	}
	unit, ok := byteSuffixes[strings.TrimSpace(t[i:])]
	v, err := strconv.ParseFloat(t[:i], 64)
	if err != nil || !ok {
		return 0, fmt.Errorf("size %q: write a number and a unit, such as 8GiB or 512k", s)
	}
	if v *= unit; v >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q: larger than any memory", s)
	}
	return int64(math.Round(v)), nil
}

// LacksUnit reports whether a size of n bytes was written without a unit by somebody who hardly meant bytes:
// 12 for 12GiB. Larger numbers are bytes, as JSON has them.
func LacksUnit(text string, n int64) bool {
	_, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return err == nil && 0 < n && n < 1<<20
}

// ParseDuration reads a time such as 5ms, 1.5s or 2m, in nanoseconds.
func ParseDuration(s string) (int64, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("time %q: %w", s, errors.New("write a number and a unit, such as 5ms or 2s"))
	}
	return int64(d), nil
}

// Count prints a number with thousands separated: 1,234,567.
func Count(n int64) string {
	s, minus := strings.CutPrefix(strconv.FormatInt(n, 10), "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if minus {
		return "-" + s
	}
	return s
}

// Counted prints a number and what it counts, with an s where it is not one: 1 block, 2,345 blocks.
func Counted[T int | int64](n T, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return Count(int64(n)) + " " + word + "s"
}
