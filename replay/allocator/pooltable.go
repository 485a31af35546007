package allocator

import (
	"math/bits"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
)

// PyTorch keeps unused private pools in a hash table (ska::flat_hash_map) and releases them in the table's
// order. That order shows in recordings, as the order of segment_free, so it is reproduced here: Robin Hood
// hashing with the Fibonacci hash, at most half full, erased by shifting the followers back. Pools are few;
// nothing here is for speed.
//
// Source: M. Skarupke, "I Wrote The Fastest Hashtable" (2017), which describes the table; the order was
// checked against PyTorch.

// poolTable is a set of pools in the order of PyTorch's table.
type poolTable struct {
	slots []poolSlot // buckets, followed by room for entries displaced from theirs
	size  int        // buckets, a power of two, 0 at first
	n     int
}

type poolSlot struct {
	pool     traces.Pool
	distance int // from the slot that the hash gives
	used     bool
}

// leastBuckets is how many buckets a table begins with, and how far from its own slot an entry may lie in
// small tables.
const leastBuckets = 4

// bucket returns the slot that a pool's hash gives.
func (t *poolTable) bucket(p traces.Pool) int {
	hash := p.First
	if hash == 0 {
		hash = p.Second
	}
	return int(uint64(hash) * 11400714819323198485 >> (64 - bits.Len(uint(t.size-1))))
}

// next returns the first used slot after i, -1 for none.
func (t *poolTable) next(i int) int {
	for i++; i < len(t.slots); i++ {
		if t.slots[i].used {
			return i
		}
	}
	return -1
}

// find returns the slot of a pool, -1 for none.
func (t *poolTable) find(p traces.Pool) int {
	return slices.IndexFunc(t.slots, func(s poolSlot) bool { return s.used && s.pool == p })
}

// insert adds a pool that is not in the table.
func (t *poolTable) insert(p traces.Pool) {
	if 2*(t.n+1) > t.size || !t.put(p) {
		t.grow()
		t.insert(p)
		return
	}
	t.n++
}

// put places a pool and reports whether there was room near its slot. If not, nothing has changed.
func (t *poolTable) put(p traces.Pool) bool {
	before := slices.Clone(t.slots)
	limit := max(leastBuckets, bits.Len(uint(t.size))-1)
	e := poolSlot{pool: p, used: true}
	for i := t.bucket(p); e.distance < limit; i++ {
		if !t.slots[i].used {
			t.slots[i] = e
			return true
		}
		if t.slots[i].distance < e.distance {
			t.slots[i], e = e, t.slots[i]
		}
		e.distance++
	}
	t.slots = before
	return false
}

func (t *poolTable) grow() {
	old := t.slots
	for t.size = max(leastBuckets, 2*t.size); ; t.size *= 2 {
		t.slots = make([]poolSlot, t.size+max(leastBuckets, bits.Len(uint(t.size))-1))
		if !slices.ContainsFunc(old, func(s poolSlot) bool { return s.used && !t.put(s.pool) }) {
			return
		}
	}
}

// erase removes the pool in slot i and returns the used slot that follows it in order, -1 for none.
func (t *poolTable) erase(i int) int {
	t.n--
	k := i
	for ; k+1 < len(t.slots) && t.slots[k+1].used && t.slots[k+1].distance > 0; k++ {
		t.slots[k] = t.slots[k+1]
		t.slots[k].distance--
	}
	t.slots[k] = poolSlot{}
	return t.next(i - 1)
}
