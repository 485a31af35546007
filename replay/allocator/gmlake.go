package allocator

import (
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// GMLake (Guo et al., "GMLake: Efficient and Transparent GPU Memory Defragmentation for Large-scale DNN
// Training with Virtual Memory Stitching", ASPLOS 2024) answers fragmentation with the device's page tables:
// free blocks that lie apart are mapped side by side at new addresses, so that they serve one large request
// together.
//
// Physical memory comes in chunks of 2 MiB. A primary block (pBlock) is a run of chunks with addresses of its
// own; a stitched block (sBlock) has further addresses for the chunks of several pBlocks. A block is active
// while handed out. A pBlock is also active while any sBlock that contains it is, and an sBlock while any of
// its pBlocks is. A request is rounded up to 2 MiB and gets, in this order:
//
//	S1  exact match       an inactive block, primary or stitched, of just that size
//	S2  single block      the smallest inactive pBlock that is larger, split in two
//	S3  multiple blocks   inactive pBlocks, largest first, until they have the size, stitched; the last is
//	                      split if they have more
//	S4  insufficient      all inactive pBlocks and a new one for the missing bytes, stitched; without
//	                      inactive ones, only a new one
//	S5  out of memory     the device refuses: unused memory is released, S1 to S4 are tried again, then the
//	                      request fails
//
// Blocks never merge; stitching replaces merging. Freeing keeps an sBlock: a training step asks for the same
// sizes again, and finds it by S1 without touching the page tables. With Config.StitchedBytes, sBlocks used
// least recently are forgotten first (the paper's StitchFree). Requests below 2 MiB are left to the caching
// allocator, as in the paper.
//
// Our interpretation, where the paper's text was not available (its public code, a fork of torch 1.13,
// differs in places): S1 prefers a pBlock to an sBlock of the same size, because handing out an sBlock blocks
// all others that share its parts. All choices are within one stream, like the caching allocator's.
// Config.StitchFrom is the least size of a part and of a request that is stitched, which the code calls
// fragLimit and sets between 32 and 512 MiB; here it is 2 MiB unless set, which stitches most. The code
// stitches only after the device refused (defragLevel 1) and reuses an sBlock for requests somewhat smaller
// (reuseLimit); the paper's S1 to S4 do neither, nor does this.
//
// O(log n) for S1 and S2; stitching k parts is O(k log n), k times the sBlocks that share each part, and one
// mapping for each 2 MiB.

// gmLake is the stitching allocator for one device.
type gmLake struct {
	c       Config
	small   *Caching // requests below a chunk
	slab    slab     // pBlocks and sBlocks
	whole   set      // inactive pBlocks
	joined  set      // inactive sBlocks
	delayed delayed
	scratch []ref
	done    []ref
	stats   *Stats // the caching allocator's, too

	primaries []primary  // by block.segment - 1 of a pBlock
	stitched  []stitched // by block.segment - 1 of an sBlock
	freeP     []int32    // unused indices of primaries
	freeS     []int32    // unused indices of stitched
	members   [][]int32  // of a pBlock: the sBlocks that it is part of
	oldest    ref        // sBlocks by their last use, linked through prev and next
	newest    ref
	bytes     int64 // of addresses of sBlocks
}

const chunk = torchalloc.Granularity

// Values of block.pool here.
const (
	isPrimary int32 = iota
	isStitched
)

// primary is the range of addresses that a pBlock, or what it was split into, lies in.
type primary struct {
	addr    uint64
	live    int64    // bytes of pBlocks
	handles []Handle // by chunk
}

// stitched holds the parts of an sBlock.
type stitched struct {
	block ref
	parts []ref
	busy  int // active parts
}

// newGMLake returns a GMLake over c.Driver; c.Settings and c.Cap apply to the caching allocator for small
// requests.
func newGMLake(c Config) (*gmLake, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	if c.Cap > 0 {
		return nil,
			errors.New("allocator: gmlake has no cap of its own: give the driver the capacity instead")
	}
	c.StitchFrom = max(c.StitchFrom, chunk)
	small, err := NewCaching(c)
	if err != nil {
		return nil, err
	}
	g := &gmLake{c: c, small: small, stats: small.stats}
	g.delayed.events = c.Events
	return g, nil
}

// Malloc implements Allocator.
func (g *gmLake) Malloc(size int64, stream Stream) (Block, error) {
	if err := checkSize(size); err != nil {
		return Block{}, err
	}
	g.ProcessEvents()
	if size < chunk {
		b, err := g.small.Malloc(size, stream)
		if errors.Is(err, ErrOutOfMemory) {
			g.stats.OOMs--
			if err := g.EmptyCache(); err != nil {
				return Block{}, err
			}
			b, err = g.small.Malloc(size, stream)
		}
		b.small = true
		return b, err
	}
	rounded := roundUp(size, chunk)
	r, err := g.obtain(rounded, stream)
	if errors.Is(err, ErrOutOfMemory) { // S5
		if err := g.EmptyCache(); err != nil {
			return Block{}, err
		}
		g.stats.Retries++
		r, err = g.obtain(rounded, stream)
	}
	if err != nil {
		if errors.Is(err, ErrOutOfMemory) {
			g.stats.OOMs++
			err = fmt.Errorf("allocator: %d bytes wanted with %d allocated of %d reserved: %w",
				rounded, g.stats.Allocated, g.stats.Reserved, err)
		}
		return Block{}, err
	}
	g.activate(r, size)
	g.stats.gave(size, rounded)
	return g.slab.handle(r), nil
}

// obtain returns an inactive block of exactly the rounded size.
func (g *gmLake) obtain(rounded int64, stream Stream) (ref, error) {
	s := &g.slab
	k := key{stream: stream, size: rounded}
	r := g.whole.atLeast(s, k)
	if r != 0 && s.at(r).stream != stream {
		r = 0
	}
	if r != 0 && s.at(r).size == rounded { // S1
		return r, nil
	}
	if j := g.joined.atLeast(s, k); j != 0 && s.at(j).stream == stream && s.at(j).size == rounded { // S1
		g.touch(j)
		return j, nil
	}
	if r != 0 { // S2
		g.split(r, rounded)
		return r, nil
	}
	return g.stitch(rounded, stream)
}

// stitch makes an sBlock from inactive pBlocks and, if they are not enough, a new one (S3, S4).
func (g *gmLake) stitch(rounded int64, stream Stream) (ref, error) {
	s := &g.slab
	var parts []ref
	var total int64
	if rounded >= g.c.StitchFrom {
		for r := g.whole.below(s, key{stream: stream, size: rounded}); r != 0 && total < rounded; {
			b := s.at(r)
			if b.stream != stream || b.size < g.c.StitchFrom {
				break
			}
			parts = append(parts, r)
			total += b.size
			r = g.whole.below(s, g.whole.keyOf(b))
		}
	}
	if total < rounded {
		r, err := g.create(rounded-total, stream)
		if err != nil || len(parts) == 0 {
			return r, err
		}
		parts = append(parts, r)
	} else if over := total - rounded; over > 0 {
		last := parts[len(parts)-1]
		g.split(last, s.at(last).size-over)
	}
	return g.join(parts, rounded, stream)
}

// create makes an inactive pBlock of new chunks.
func (g *gmLake) create(size int64, stream Stream) (ref, error) {
	d := g.c.Driver
	if err := checkVast(d, size); err != nil {
		return 0, err
	}
	handles := make([]Handle, 0, size/chunk)
	undo := func(err error) (ref, error) {
		for _, h := range handles {
			err = errors.Join(err, d.Release(h))
		}
		return 0, err
	}
	for range size / chunk {
		h, err := d.Create(chunk)
		if err != nil {
			return undo(err)
		}
		handles = append(handles, h)
	}
	addr, err := d.Reserve(size)
	if err != nil {
		return undo(err)
	}
	for i, h := range handles {
		if err := d.Map(addr+uint64(i)*chunk, h); err != nil {
			return 0, err
		}
	}
	g.stats.Maps += int64(len(handles))
	g.stats.reserve(size)
	i := int32(len(g.primaries))
	if n := len(g.freeP); n > 0 {
		i, g.freeP = g.freeP[n-1], g.freeP[:n-1]
	} else {
		g.primaries = append(g.primaries, primary{})
	}
	g.primaries[i] = primary{addr: addr, live: size, handles: handles}
	r := g.add()
	b := g.slab.at(r)
	b.addr, b.size, b.stream, b.pool, b.segment = addr, size, stream, isPrimary, i+1
	g.whole.insert(&g.slab, r)
	g.c.emit(SegmentEvent{Action: SegmentMap, Addr: addr, Size: size, Stream: stream})
	return r, nil
}

// add returns a new block with room for its memberships.
func (g *gmLake) add() ref {
	r := g.slab.add()
	for len(g.members) <= int(r) {
		g.members = append(g.members, nil)
	}
	g.members[r] = g.members[r][:0]
	return r
}

// split cuts an inactive pBlock; sBlocks that contain it then have both parts.
func (g *gmLake) split(r ref, size int64) {
	s := &g.slab
	g.whole.erase(s, r)
	rest := g.add()
	b, c := s.at(r), s.at(rest)
	c.addr, c.size = b.addr+uint64(size), b.size-size
	c.stream, c.pool, c.segment = b.stream, b.pool, b.segment
	b.size = size
	g.whole.insert(s, r)
	g.whole.insert(s, rest)
	g.members[rest] = append(g.members[rest], g.members[r]...)
	for _, i := range g.members[r] {
		parts := g.stitched[i].parts
		at := 0
		for parts[at] != r {
			at++
		}
		parts = append(parts, 0)
		copy(parts[at+2:], parts[at+1:])
		parts[at+1] = rest
		g.stitched[i].parts = parts
	}
}

// join maps pBlocks side by side, and returns the inactive sBlock.
func (g *gmLake) join(parts []ref, size int64, stream Stream) (ref, error) {
	s, d := &g.slab, g.c.Driver
	addr, err := d.Reserve(size)
	if err != nil {
		return 0, err
	}
	at := addr
	for _, r := range parts {
		b := s.at(r)
		p := &g.primaries[b.segment-1]
		first := int64(b.addr-p.addr) / chunk
		for _, h := range p.handles[first : first+b.size/chunk] {
			if err := d.Map(at, h); err != nil {
				return 0, err
			}
			at += chunk
		}
	}
	g.stats.Maps += size / chunk
	g.stats.Stitches++
	i := int32(len(g.stitched))
	if n := len(g.freeS); n > 0 {
		i, g.freeS = g.freeS[n-1], g.freeS[:n-1]
	} else {
		g.stitched = append(g.stitched, stitched{})
	}
	for _, r := range parts {
		g.members[r] = append(g.members[r], i)
	}
	r := g.add()
	b := s.at(r)
	b.addr, b.size, b.stream, b.pool, b.segment = addr, size, stream, isStitched, i+1
	g.stitched[i] = stitched{block: r, parts: parts}
	g.joined.insert(s, r)
	g.link(r)
	g.bytes += size
	return r, g.forgetOld(r)
}
