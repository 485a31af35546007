// Package packtest makes packing problems whose lowest top is known.
package packtest

import (
	"math/rand/v2"

	"github.com/gmemtop/gmemtop/managers/pack"
)

// Cuts describes a rectangle that is cut into pieces, each cut from edge to edge of one piece.
type Cuts struct {
	Pieces        int
	Width, Height int64 // of the rectangle: time, and bytes
	// Even cuts the larger of three random pieces each time; otherwise any piece may come next, so that
	// thousands of pieces are a unit wide or high and coincide by chance.
	Even bool
	Seed uint64
}

// Problem returns the pieces as items in random order. No top is lower than Height, which their cutting
// shows to be possible.
func (c Cuts) Problem() *pack.Problem {
	type rect struct{ x, w, h int64 }
	r := rand.New(rand.NewPCG(c.Seed, 0xc075))
	pieces := []rect{{0, c.Width, c.Height}}
	for len(pieces) < c.Pieces {
		k := r.IntN(len(pieces))
		for range 2 {
			if j := r.IntN(len(pieces)); c.Even && float64(pieces[j].w)*float64(pieces[j].h) >
				float64(pieces[k].w)*float64(pieces[k].h) {
				k = j
			}
		}
		whole, upright := pieces[k], r.IntN(2) == 0
		switch {
		case upright && whole.w > 1:
			at := 1 + r.Int64N(whole.w-1)
			pieces[k].w = at
			pieces = append(pieces, rect{whole.x + at, whole.w - at, whole.h})
		case !upright && whole.h > 1:
			at := 1 + r.Int64N(whole.h-1)
			pieces[k].h = at
			pieces = append(pieces, rect{whole.x, whole.w, whole.h - at})
		}
	}
	p := &pack.Problem{}
	for _, k := range r.Perm(len(pieces)) {
		q := pieces[k]
		p.Items = append(p.Items, pack.Item{Start: q.x, End: q.x + q.w, Size: q.h})
	}
	return p
}
