package chart

import (
	"math"
	"strconv"

	"github.com/gmemtop/gmemtop/timeline"
)

// unitFor returns the unit in which an axis up to high is labelled and its size in bytes. Where sizes are
// written in bytes an axis still has larger units: its labels have room for four digits.
func unitFor(u timeline.Units, high int64) (string, float64) {
	base, names := 1024.0, []string{"B", "KiB", "MiB", "GiB", "TiB"}
	if u == timeline.SI {
		base, names = 1000, []string{"B", "kB", "MB", "GB", "TB"}
	}
	size := 1.0
	i := 0
	for i+1 < len(names) && float64(high) >= size*base*0.8 {
		size *= base
		i++
	}
	return names[i], size
}

// Unit returns the name of the unit in which an axis up to high is labelled.
func Unit(u timeline.Units, high int64) string {
	name, _ := unitFor(u, high)
	return name
}

// timeUnit returns the unit in which an axis up to ns is labelled and its size in nanoseconds.
func timeUnit(ns int64) (string, float64) {
	switch {
	case ns >= 600e9:
		return "min", 60e9
	case ns >= 1e9:
		return "s", 1e9
	case ns >= 1e6:
		return "ms", 1e6
	case ns >= 1e3:
		return "µs", 1e3
	}
	return "ns", 1
}

// niceStep returns the smallest 1, 2 or 5 times a power of ten that is at least v.
func niceStep(v float64, whole bool) float64 {
	if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	step := 10 * p
	for _, m := range []float64{1, 2, 5} {
		if m*p >= v*0.999 {
			step = m * p
			break
		}
	}
	if whole {
		return max(math.Round(step), 1)
	}
	return step
}

func ceilTo(v, step float64) float64 { return math.Ceil(v/step-1e-9) * step }

// decimals prints a tick with as many decimals as its step has.
func decimals(v, step float64) string {
	n := 0
	if step < 1 {
		n = int(math.Ceil(-math.Log10(step) - 1e-9))
	}
	if v == 0 {
		return "0"
	}
	return strconv.FormatFloat(v, 'f', n, 64)
}

// TimeTicks returns round times in [from, to), a step of which takes at least its n-th part, and their labels
// in one unit, which the first of them bears.
func TimeTicks(from, to int64, n int) (at []int64, labels []string) {
	unit, size := timeUnit(max(to, 1))
	step := niceStep(float64(to-from)/size/float64(max(n, 1)), false)
	for v := ceilTo(float64(from)/size, step); v*size < float64(to); v += step {
		label := decimals(v, step)
		if len(at) == 0 {
			label += " " + unit
		}
		at, labels = append(at, int64(math.Round(v*size))), append(labels, label)
	}
	return at, labels
}
