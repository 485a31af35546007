// Package stats has the order statistics that triggers, views and measurements share.
package stats

import "slices"

// Median returns the middle value of v, the mean of the two middle ones where there are two; 0 for none. It
// leaves v as it is.
func Median[T int | int64 | float64](v []T) T {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n%2 == 0 {
		return s[n/2-1] + (s[n/2]-s[n/2-1])/2
	}
	return s[n/2]
}

// Percentile returns the value of v that percent of a hundred of its values do not exceed, by nearest rank; 0
// for none. It leaves v as it is.
func Percentile(v []int64, percent int) int64 {
	if len(v) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(v))[max((len(v)*percent+99)/100-1, 0)]
}
