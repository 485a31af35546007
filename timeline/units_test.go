package timeline_test

import (
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/timeline"
)

func TestSizesHaveThreeSignificantDigits(t *testing.T) {
	for _, c := range []struct {
		units timeline.Units
		n     int64
		want  string
	}{
		{timeline.IEC, 0, "0 B"}, {timeline.IEC, 1023, "1023 B"}, {timeline.IEC, 1024, "1.00 KiB"},
		{timeline.IEC, 3435973837, "3.20 GiB"}, {timeline.IEC, 15 << 20, "15.0 MiB"},
		{timeline.IEC, 1023 << 10, "0.999 MiB"}, {timeline.IEC, 999 << 10, "999 KiB"},
		{timeline.IEC, -5 << 30, "-5.00 GiB"}, {timeline.IEC, 10234 << 10, "9.99 MiB"},
		{timeline.SI, 1000, "1.00 kB"}, {timeline.SI, 123456789, "123 MB"}, {timeline.SI, 999_499, "999 kB"},
		{timeline.SI, 999_500, "1.00 MB"}, {timeline.Raw, 123456789, "123456789 B"},
		{timeline.IEC, 1<<63 - 1, "8.00 EiB"}, {timeline.IEC, -1 << 63, "-8.00 EiB"},
	} {
		if got := c.units.Bytes(c.n); got != c.want {
			t.Errorf("%d is %q, want %q", c.n, got, c.want)
		}
	}
	if got := timeline.IEC.Delta(1 << 20); got != "+1.00 MiB" {
		t.Errorf("delta %q", got)
	}
	if got := timeline.IEC.Delta(-1 << 20); got != "-1.00 MiB" {
		t.Errorf("delta %q", got)
	}
}

func TestAColumnHasOneUnit(t *testing.T) {
	unit, f := timeline.IEC.Column(14 << 30)
	for n, want := range map[int64]string{14 << 30: "14.0", 1 << 30: "1.00", 100 << 20: "0.10", 0: "0",
		1: "<0.01", 2000 << 30: "2000"} {
		if got := f(n); got != want || unit != "GiB" {
			t.Errorf("%d is %q %s, want %q GiB", n, got, unit, want)
		}
	}
}

func TestWhatIsEstimatedHasNoMoreDigitsThanAreKnown(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{-1, "1 s"}, {0, "1 s"}, {1400 * time.Millisecond, "1 s"}, {9 * time.Second, "9 s"},
		{9900 * time.Millisecond, "10 s"}, {50100 * time.Millisecond, "50 s"}, {96 * time.Second, "100 s"},
		{119 * time.Second, "2 min"}, {150 * time.Second, "3 min"}, {119 * time.Minute, "119 min"},
		{130 * time.Minute, "2 h"}, {50 * time.Hour, "50 h"},
	} {
		if got := timeline.Roughly(c.d.Nanoseconds()); got != c.want {
			t.Errorf("%v is roughly %q, want %q", c.d, got, c.want)
		}
	}
}

func TestDurations(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 s", 999: "999 ns", 1250: "1.25 µs", 1_250_000: "1.25 ms", 999_600: "1.00 ms",
		12_000_000_000:  "12.0 s",
		125_000_000_000: "2m 05s", 3_725_000_000_000: "1h 02m", -1500: "-1.50 µs", -1 << 63: "-2562047h 47m",
	} {
		if got := timeline.Duration(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestSizesAreReadAsPeopleWriteThem(t *testing.T) {
	for s, want := range map[string]int64{
		"8GiB": 8 << 30, "1.5g": 3 << 29, "512k": 512 << 10, "100": 100, "8 GiB": 8 << 30, "2GB": 2e9,
		"7B": 7, "1tib": 1 << 40,
	} {
		if got, err := timeline.ParseBytes(s); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "GiB", "-1", "8 bananas", "1e400", "99999999tib", "1.2.3"} {
		if got, err := timeline.ParseBytes(s); err == nil {
			t.Errorf("%q is read as %d", s, got)
		}
	}
}
