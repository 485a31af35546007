package allocations

import (
	"context"
	"math/bits"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
)

// result is the result of a search, with the figures for the sentence and the plots, counted once.
type result struct {
	ids     []timeline.AllocID
	bytes   int64 // requested, of all
	largest timeline.AllocID
	leaked  int
	sizes   histogram
	lives   histogram
	// padded means that a block of the device was rounded up, streams that its blocks are on several streams.
	padded, streams bool
}

const buckets = 48

// histogram holds requested bytes by bucket and category.
type histogram struct {
	bytes       [buckets][timeline.NumCategories]int64
	first, last int // buckets in use; first > last where there are none
}

func (h *histogram) add(bucket int, c timeline.Category, n int64) {
	bucket = min(max(bucket, 0), buckets-1)
	h.bytes[bucket][c] += n
	h.first, h.last = min(h.first, bucket), max(h.last, bucket)
}

func (h *histogram) sum(bucket int) (n int64) {
	for _, b := range h.bytes[bucket] {
		n += b
	}
	return n
}

// sizeBucket returns the power of two that is the bucket of a size: [2^b, 2^(b+1)).
func sizeBucket(n int64) int { return bits.Len64(uint64(max(n, 1))) - 1 }

// Lifetimes fall into the buckets 1, 2, 5 of each decade from a microsecond on; never is the bucket of blocks
// that were not freed.
const never = buckets - 1

func lifeBucket(ns int64) int {
	b, decade := 0, int64(1000)
	for ns >= 10*decade && b+3 < never {
		decade *= 10
		b += 3
	}
	switch {
	case ns >= 5*decade:
		b += 2
	case ns >= 2*decade:
		b++
	}
	return min(b, never-1)
}

// lifeOf returns the shortest lifetime of a bucket in nanoseconds.
func lifeOf(bucket int) int64 {
	n := int64(1000)
	for range bucket / 3 {
		n *= 10
	}
	return n * [...]int64{1, 2, 5}[bucket%3]
}

func search(ctx context.Context, d *timeline.Device, q sites.Query) (*result, error) {
	ids, err := sites.Search(ctx, d, q)
	if err != nil {
		return nil, err
	}
	r := &result{ids: ids, largest: timeline.NoAlloc}
	r.sizes.first, r.lives.first, r.sizes.last, r.lives.last = buckets, buckets, -1, -1
	al := &d.Allocs
	for i := range al.Len() {
		r.padded = r.padded || al.Rounded[i] != al.Size[i]
		r.streams = r.streams || al.Stream[i] != al.Stream[0]
	}
	for i, a := range ids {
		if i&0xffff == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		size, cat := al.Rounded[a], al.Category[a]
		r.bytes += size
		if r.largest == timeline.NoAlloc || size > al.Rounded[r.largest] {
			r.largest = a
		}
		r.sizes.add(sizeBucket(size), cat, size)
		if al.Requested[a] == timeline.Never {
			r.leaked++
			r.lives.add(never, cat, size)
			continue
		}
		from, to := d.Lifetime(a)
		r.lives.add(lifeBucket(to-from), cat, size)
	}
	return r, nil
}
