// Package stats has the order statistics that triggers, views and measurements share.
package stats

import "slices"

// Median returns the middle value of v, or the mean of the middle two; 0 if v is empty. It leaves v
// unchanged.
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

// Percentile returns a percentile of v by nearest rank: the smallest of its values that at least percent % of
// them do not exceed, 0 if v is empty. It leaves v unchanged.
func Percentile(v []int64, percent int) int64 {
	if len(v) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(v))[max((len(v)*percent+99)/100-1, 0)]
}
