package recompute

import (
	"container/heap"
	"math/rand/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// evictable is what the online policy may evict, and the components of what it has evicted.
//
// The members are a list in which the last member fills a hole, so that their order depends only on what
// happened, and a sample is a walk with a random start. Components are a union-find forest over fresh nodes:
// a buffer that comes back and leaves again gets a new node, since nodes cannot leave a component.
type evictable struct {
	o       *online
	members []plan.BufferID
	at      []int32 // of each buffer, its index in members plus one
	rand    *rand.Rand

	node   []int32 // of each buffer, its node while evicted
	parent []int32
	weight []int64 // of each root, the cost of its component

	heap    scored
	partial bool    // the heap holds a sample
	roots   []int32 // of one evaluation
}

func newEvictable(o *online, seed uint64) evictable {
	n := len(o.p.Buffers)
	return evictable{o: o, at: make([]int32, n), node: make([]int32, n),
		rand: rand.New(rand.NewPCG(seed, 2021))}
}

func (q *evictable) add(b plan.BufferID) {
	if q.at[b] == 0 {
		q.members = append(q.members, b)
		q.at[b] = int32(len(q.members))
	}
}

func (q *evictable) remove(b plan.BufferID) {
	if i := q.at[b]; i != 0 {
		last := q.members[len(q.members)-1]
		q.members[i-1], q.at[last] = last, i
		q.members, q.at[b] = q.members[:len(q.members)-1], 0
	}
}

// begin scores the members for a shortage at position i: a sample of them if there are many and all is false.
func (q *evictable) begin(i plan.OpID, all bool) {
	q.heap = q.heap[:0]
	n, from, stride := len(q.members), 0, 1
	look := n
	q.partial = n > exhaustive && !all
	if q.partial { // the stride spreads the sample over the whole list
		look = sampled
		from, stride = q.rand.IntN(n), n/sampled
	}
	for k := range look {
		b := q.members[(from+k*stride)%n]
		if q.o.locked[b] != i+1 && q.o.held[b] < i {
			q.heap = append(q.heap, score{q.h(b), b})
		}
	}
	heap.Init(&q.heap)
}

// least removes and returns the member with the smallest h; ok is false if none is left.
func (q *evictable) least() (b plan.BufferID, ok bool) {
	for len(q.heap) > 0 {
		s := &q.heap[0]
		if h := q.h(s.b); h > s.h { // a neighbour went meanwhile
			s.h = h
			heap.Fix(&q.heap, 0)
			continue
		}
		b = s.b
		heap.Pop(&q.heap)
		q.remove(b)
		return b, true
	}
	return 0, false
}

// end forgets the scores.
func (q *evictable) end() { q.heap = q.heap[:0] }

// h is the paper's heuristic.
func (q *evictable) h(b plan.BufferID) float64 {
	o := q.o
	o.work++
	c := o.cost[b]
	if !o.m.withoutNeighbours {
		q.neighbours(b, func(x plan.BufferID) {
			r := q.root(q.node[x])
			for _, seen := range q.roots {
				if seen == r {
					return
				}
			}
			q.roots = append(q.roots, r)
			c += q.weight[r]
		})
		q.roots = q.roots[:0]
	}
	s := float64(1)
	if !o.m.withoutStaleness {
		s = float64(max(o.now-o.last[b], 1))
	}
	return float64(c) / (float64(o.p.Rounded(b)) * s)
}

// neighbours calls f for the evicted buffers that b was made from or that were made from b, at most degree of
// them looked at.
func (q *evictable) neighbours(b plan.BufferID, f func(plan.BufferID)) {
	o, left := q.o, degree
	touches := o.p.TouchesOf(b)
	for k := int(o.next[b]) - 1; k >= 0 && left > 0; k-- {
		made := touches[k].Mode.Writes()
		for _, a := range o.p.AccessesOf(touches[k].Op) {
			if left--; left < 0 {
				return
			}
			if a.Buffer != b && a.Mode.Writes() != made && o.evicted[a.Buffer] {
				f(a.Buffer)
			}
		}
		if touches[k].Mode == plan.Write {
			return // its earlier contents were another tensor
		}
	}
}

// join makes a buffer that was evicted a component, with its evicted neighbours.
func (q *evictable) join(b plan.BufferID) {
	id := int32(len(q.parent))
	q.parent, q.weight = append(q.parent, id), append(q.weight, q.o.cost[b])
	q.node[b] = id
	q.neighbours(b, func(x plan.BufferID) {
		if r, me := q.root(q.node[x]), q.root(id); r != me {
			q.parent[me] = r
			q.weight[r] += q.weight[me]
		}
	})
}

// leave takes the cost of a buffer that is back out of its component.
func (q *evictable) leave(b plan.BufferID) {
	r := q.root(q.node[b])
	q.weight[r] = max(q.weight[r]-q.o.cost[b], 0)
}

func (q *evictable) root(n int32) int32 {
	for q.parent[n] != n {
		q.parent[n] = q.parent[q.parent[n]]
		n = q.parent[n]
	}
	return n
}

// score is a member with its h when it was last computed.
type score struct {
	h float64
	b plan.BufferID
}

// scored is a heap of scores; ties go to the lower buffer.
type scored []score

// Len implements [heap.Interface].
func (s scored) Len() int { return len(s) }

// Less implements [heap.Interface].
func (s scored) Less(i, j int) bool { return s[i].h < s[j].h || s[i].h == s[j].h && s[i].b < s[j].b }

// Swap implements [heap.Interface].
func (s scored) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

// Push implements [heap.Interface].
func (s *scored) Push(x any) { *s = append(*s, x.(score)) }

// Pop implements [heap.Interface].
func (s *scored) Pop() any {
	x := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return x
}
