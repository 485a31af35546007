package joint

import (
	"iter"
	"slices"
)

// jagged is a list of lists, stored back to back in one slice: the producers of each gap, or the writes of
// each buffer. Make one with [newJagged] or [groupBy].
//
// A slice of slices would take an allocation and a pointer for each list. With 100,000 buffers the garbage
// collector would have to follow them all.
type jagged[T any] struct {
	starts []int32 // list i is values[starts[i]:starts[i+1]]
	values []T
}

// newJagged returns an empty jagged with room for n lists. Call [jagged.add] for the values of each list,
// then [jagged.end].
func newJagged[T any](n int) jagged[T] { return jagged[T]{starts: make([]int32, 1, n+1)} }

// add adds values to the current list.
func (j *jagged[T]) add(values ...T) { j.values = append(j.values, values...) }

// end ends the current list.
func (j *jagged[T]) end() { j.starts = append(j.starts, int32(len(j.values))) }

// of returns list i.
func (j *jagged[T]) of(i int32) []T { return j.values[j.starts[i]:j.starts[i+1]] }

// groupBy groups the values of a sequence into n lists by key, in their order. It iterates over the sequence
// twice.
func groupBy[T any](n int, pairs iter.Seq2[int32, T]) jagged[T] {
	starts := make([]int32, n+1)
	for key := range pairs {
		starts[key+1]++
	}
	for i := range n {
		starts[i+1] += starts[i]
	}
	j := jagged[T]{starts, make([]T, starts[n])}
	next := slices.Clone(starts)
	for key, value := range pairs {
		j.values[next[key]] = value
		next[key]++
	}
	return j
}
