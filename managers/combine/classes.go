package combine

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// classes are the buffers that may be released, by size: one list per size, the least recently used buffer
// first. So the stalest buffer of every size is found at once.
type classes struct {
	size       []int64 // of each class, descending
	filled     []int32 // the classes that have a buffer, ascending
	head, tail []plan.BufferID
	class      []int32 // of each buffer
	next, prev []plan.BufferID
	in         []bool
}

func newClasses(p *plan.Problem) classes {
	nb := len(p.Buffers)
	c := classes{class: make([]int32, nb), next: make([]plan.BufferID, nb), prev: make([]plan.BufferID, nb),
		in: make([]bool, nb)}
	for b := range nb {
		if p.Buffers[b].Life != plan.Persistent {
			c.size = append(c.size, p.Rounded(plan.BufferID(b)))
		}
	}
	slices.SortFunc(c.size, func(x, y int64) int { return cmp.Compare(y, x) })
	c.size = slices.Compact(c.size)
	for b := range nb {
		k, _ := slices.BinarySearchFunc(c.size, p.Rounded(plan.BufferID(b)), func(x, y int64) int {
			return cmp.Compare(y, x)
		})
		c.class[b] = int32(k)
	}
	c.head, c.tail = make([]plan.BufferID, len(c.size)), make([]plan.BufferID, len(c.size))
	for k := range c.size {
		c.head[k], c.tail[k] = plan.NoBuffer, plan.NoBuffer
	}
	return c
}

// append puts a buffer that has just been used at the end of its list.
func (c *classes) append(b plan.BufferID) {
	c.remove(b)
	k := c.class[b]
	c.in[b], c.prev[b], c.next[b] = true, c.tail[k], plan.NoBuffer
	if c.tail[k] == plan.NoBuffer {
		at, _ := slices.BinarySearch(c.filled, k)
		c.filled = slices.Insert(c.filled, at, k)
		c.head[k] = b
	} else {
		c.next[c.tail[k]] = b
	}
	c.tail[k] = b
}

// remove takes a buffer out of its list, if it is in it.
func (c *classes) remove(b plan.BufferID) {
	if !c.in[b] {
		return
	}
	k := c.class[b]
	if c.prev[b] == plan.NoBuffer {
		c.head[k] = c.next[b]
	} else {
		c.next[c.prev[b]] = c.next[b]
	}
	if c.next[b] == plan.NoBuffer {
		c.tail[k] = c.prev[b]
	} else {
		c.prev[c.next[b]] = c.prev[b]
	}
	if c.in[b] = false; c.head[k] == plan.NoBuffer {
		at, _ := slices.BinarySearch(c.filled, k)
		c.filled = slices.Delete(c.filled, at, at+1)
	}
}
