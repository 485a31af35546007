package allocator

// Best fit needs the free blocks in order of (stream, size, age of the segment, address), as in the std::set
// of PyTorch's BlockPool, with insertion, removal, lower bound and iteration. This set is a treap threaded
// through the blocks themselves: no memory of its own, O(log n) expected for each operation, and the same
// shape for the same calls because a block's priority is a hash of its slot.
//
// Rejected: a sorted slice (copying 8 bytes for each of n blocks is faster up to some thousand blocks, and
// quadratic beyond), a B-tree (a dependency, or four times this code, for half the time at best; the replay
// is not dominated by it), and segregated lists by size class (not PyTorch's order, so not its decisions).

// key orders a set.
type key struct {
	stream Stream
	size   int64
	born   int64
	addr   uint64
}

// set is an ordered set of blocks of one slab, by (stream, size, born, address), or by (stream, address).
type set struct {
	root      ref
	n         int
	byAddress bool
}

func (t *set) keyOf(b *block) key {
	if t.byAddress {
		return key{stream: b.stream, addr: b.addr}
	}
	return key{b.stream, b.size, b.born, b.addr}
}

func (k key) less(o key) bool {
	if k.stream != o.stream {
		return k.stream < o.stream
	}
	if k.size != o.size {
		return k.size < o.size
	}
	if k.born != o.born {
		return k.born < o.born
	}
	return k.addr < o.addr
}

// insert adds a block that is in no set. Keys are unique because addresses are.
func (t *set) insert(s *slab, r ref) {
	b := s.at(r)
	k := t.keyOf(b)
	at := &t.root
	for *at != 0 && s.at(*at).priority >= b.priority {
		if n := s.at(*at); k.less(t.keyOf(n)) {
			at = &n.left
		} else {
			at = &n.right
		}
	}
	b.left, b.right = t.divide(s, *at, k)
	*at = r
	t.n++
}

// divide splits the tree at root into the keys below k and the others.
func (t *set) divide(s *slab, root ref, k key) (below, others ref) {
	low, high := &below, &others
	for root != 0 {
		if n := s.at(root); t.keyOf(n).less(k) {
			*low, low, root = root, &n.right, n.right
		} else {
			*high, high, root = root, &n.left, n.left
		}
	}
	*low, *high = 0, 0
	return below, others
}

// erase removes a block that is in the set.
func (t *set) erase(s *slab, r ref) {
	b := s.at(r)
	k := t.keyOf(b)
	at := &t.root
	for *at != r {
		if n := s.at(*at); k.less(t.keyOf(n)) {
			at = &n.left
		} else {
			at = &n.right
		}
	}
	low, high := b.left, b.right
	for low != 0 && high != 0 {
		l, h := s.at(low), s.at(high)
		if l.priority >= h.priority {
			*at, at, low = low, &l.right, l.right
		} else {
			*at, at, high = high, &h.left, h.left
		}
	}
	*at = low | high // one of them is 0
	b.left, b.right = 0, 0
	t.n--
}

// atLeast returns the first block whose key is not below k, 0 for none.
func (t *set) atLeast(s *slab, k key) ref {
	var found ref
	for r := t.root; r != 0; {
		if n := s.at(r); t.keyOf(n).less(k) {
			r = n.right
		} else {
			found, r = r, n.left
		}
	}
	return found
}

// below returns the last block whose key is below k, 0 for none.
func (t *set) below(s *slab, k key) ref {
	var found ref
	for r := t.root; r != 0; {
		if n := s.at(r); t.keyOf(n).less(k) {
			found, r = r, n.right
		} else {
			r = n.left
		}
	}
	return found
}

// after returns the block after r in order, 0 for none; r need not be in the set any more.
func (t *set) after(s *slab, r ref) ref {
	k := t.keyOf(s.at(r))
	k.addr++ // no other block begins within the same byte
	return t.atLeast(s, k)
}

// first returns the lowest block, 0 for none.
func (t *set) first(s *slab) ref {
	r := t.root
	for r != 0 && s.at(r).left != 0 {
		r = s.at(r).left
	}
	return r
}
