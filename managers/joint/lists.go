package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// lists keeps gaps by position, in the order in which they were given: a counting sort that reuses its
// columns.
//
// A schedule orders its copies by position several times. Sorting them by comparison took a tenth of the
// planning time for 100,000 buffers. A list per position takes O(positions + gaps), which the schedule takes
// anyway.
type lists struct {
	first []int32     // the first gap of each position, or none
	next  []int32     // the gap after each gap, none after the last
	used  []plan.OpID // the positions that have gaps
}

func newLists(positions, gaps int) lists {
	l := lists{first: make([]int32, positions+1), next: make([]int32, gaps)}
	for i := range l.first {
		l.first[i] = none
	}
	return l
}

// sort rebuilds the lists from the given gaps.
func (l *lists) sort(gaps []int32, at func(g int32) plan.OpID) {
	for _, p := range l.used {
		l.first[p] = none
	}
	l.used = l.used[:0]
	for k := len(gaps) - 1; k >= 0; k-- {
		g := gaps[k]
		p := at(g)
		if l.first[p] < 0 {
			l.used = append(l.used, p)
		}
		l.next[g], l.first[p] = l.first[p], g
	}
}

// order sorts each position's gaps by a key, and keeps the order of equals. Most positions have one gap or
// none, and most others have theirs in order.
func (l *lists) order(key func(g int32) plan.OpID) {
	for _, p := range l.used {
		head, tail := l.first[p], l.first[p]
		for g := l.next[head]; g >= 0; {
			next, at := l.next[g], key(g)
			switch {
			case key(tail) <= at:
				l.next[tail], tail = g, g
			case at < key(head):
				l.next[g], head = head, g
			default:
				k := head
				for key(l.next[k]) <= at {
					k = l.next[k]
				}
				l.next[g], l.next[k] = l.next[k], g
			}
			g = next
		}
		l.next[tail], l.first[p] = none, head
	}
}

// all writes the gaps of all lists, position by position, into a slice of their number.
func (l *lists) all(into []int32) {
	k := 0
	for _, g := range l.first {
		for ; g >= 0; g = l.next[g] {
			into[k] = g
			k++
		}
	}
}
