package joint

import (
	"iter"
	"slices"
)

// jagged is a list of lists, one after the other in one slice: the producers of each gap, the writes of each
// buffer. Make one with [newJagged], or with [groupBy].
//
// A slice of slices takes an allocation and a pointer for each list, and with 100,000 buffers the garbage
// collector would follow them all.
type jagged[T any] struct {
	starts []int32 // list i is values[starts[i]:starts[i+1]]
	values []T
}

// newJagged returns no lists yet, with room for n of them. Each is added by [jagged.add] for its values, then
// [jagged.end].
func newJagged[T any](n int) jagged[T] { return jagged[T]{starts: make([]int32, 1, n+1)} }

// add adds values to the list at hand.
func (j *jagged[T]) add(values ...T) { j.values = append(j.values, values...) }

// end ends the list at hand.
func (j *jagged[T]) end() { j.starts = append(j.starts, int32(len(j.values))) }

// of returns list i.
func (j *jagged[T]) of(i int32) []T { return j.values[j.starts[i]:j.starts[i+1]] }

// groupBy returns n lists of the values of a sequence: list i has those that come with key i, in their order.
// It goes through the sequence twice.
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
