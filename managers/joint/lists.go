package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// lists keeps gaps by position, in the order in which they were given: a counting sort whose columns are used
// again.
//
// A schedule orders its copies by positions several times over. To sort them by comparison took a tenth of
// the planning time for 100,000 buffers; a list for each position takes O(positions + gaps), which the
// schedule takes in any case.
type lists struct {
	first []int32 // of each position, -1 where there is none
	next  []int32 // of each gap, -1 behind the last
}

func newLists(positions, gaps int) lists {
	return lists{first: make([]int32, positions+1), next: make([]int32, gaps)}
}

// sort rebuilds the lists of some gaps.
func (l *lists) sort(gaps []int32, at func(g int32) plan.OpID) {
	for i := range l.first {
		l.first[i] = -1
	}
	for k := len(gaps) - 1; k >= 0; k-- {
		g := gaps[k]
		p := at(g)
		l.next[g], l.first[p] = l.first[p], g
	}
}

// all writes the gaps of all lists into a slice that holds as many, position by position.
func (l *lists) all(into []int32) {
	k := 0
	for _, g := range l.first {
		for ; g >= 0; g = l.next[g] {
			into[k] = g
			k++
		}
	}
}
