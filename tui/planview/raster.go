package planview

import (
	"cmp"
	"context"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
)

// Drawing a plan of any size.
//
// Problem: draw fifty thousand residencies of buffers in a map of two hundred columns by sixty rows, at any
// zoom, without any frame taking longer than the others. Approach: a raster of the window at the size of
// the map, two rows a cell, in which each point belongs to the box that covers most of it; boxes do not
// overlap, so filling it costs O(boxes in the window + points). It is made off the event loop, and while one
// for another window is in progress the old one is drawn in its place. Rejected: drawing boxes as they come
// (the last of a thousand in a cell would win, whatever its size); one row a cell (half the resolution for
// nothing).

// key identifies a raster.
type key struct {
	from, to int64
	top      int64 // bytes at the upper edge
	w, h     int   // cells
}

// lane is what queues do in one column, as shares of its time from 0 to 255.
type lane struct{ run, again, out, in, stall uint8 }

// Points that belong to no box.
const (
	nothing = int32(-1)
	// stacked is the point of category 0 in a stack; other categories have lower values.
	stacked = int32(-2)
)

// raster is a scene in one window. Points go row by row from the highest address down, two rows a cell.
type raster struct {
	key
	points []int32 // an index into the scene's boxes, nothing, or a category
	lanes  []lane
	held   []int64 // the most memory held in each column
}

// category returns the category of a point of a stack; ok is false for other points.
func category(point int32) (timeline.Category, bool) {
	return timeline.Category(stacked - point), point <= stacked
}

func (s *scene) raster(ctx context.Context, k key) (*raster, error) {
	r := &raster{key: k, points: make([]int32, k.w*k.h*2), lanes: make([]lane, k.w), held: make([]int64, k.w)}
	for i := range r.points {
		r.points[i] = nothing
	}
	if k.w == 0 || k.to <= k.from {
		return r, nil
	}
	r.queues(s)
	r.most(s)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.placed {
		return r, r.place(ctx, s)
	}
	r.stack(s)
	return r, ctx.Err()
}

// column returns the place of a time in columns, unclipped.
func (k *key) column(t int64) float64 {
	return float64(t-k.from) / float64(k.to-k.from) * float64(k.w)
}

func (r *raster) queues(s *scene) {
	busy := make([][5]float64, r.w)
	add := func(list []stretch, which func(x *stretch) int) {
		for i := range list {
			x := &list[i]
			a, b := max(r.column(x.from), 0), min(r.column(x.to), float64(r.w))
			for c := int(a); c < r.w && float64(c) < b; c++ {
				busy[c][which(x)] += min(b, float64(c+1)) - max(a, float64(c))
			}
		}
	}
	add(s.compute, func(x *stretch) int {
		if x.again {
			return 1
		}
		return 0
	})
	add(s.out, func(*stretch) int { return 2 })
	add(s.in, func(*stretch) int { return 3 })
	add(s.stalls, func(*stretch) int { return 4 })
	share := func(x float64) uint8 {
		if x <= 0 {
			return 0
		}
		return uint8(max(min(x, 1)*255, 1))
	}
	for c := range busy {
		b := &busy[c]
		r.lanes[c] = lane{share(b[0]), share(b[1]), share(b[2]), share(b[3]), share(b[4])}
	}
}

// most finds the most memory held in each column.
func (r *raster) most(s *scene) {
	var held int64
	from := 0
	for _, u := range s.usage {
		c := r.column(u.Time)
		to := int(min(max(c, 0), float64(r.w)))
		for i := from; i < min(to+1, r.w); i++ {
			r.held[i] = max(r.held[i], held)
		}
		held, from = u.Bytes, min(to, r.w-1)
		if c >= float64(r.w) {
			return
		}
	}
	for i := from; i < r.w; i++ {
		r.held[i] = max(r.held[i], held)
	}
}

// place gives each point to the box that covers most of it.
func (r *raster) place(ctx context.Context, s *scene) error {
	rows := r.h * 2
	cover := make([]float32, len(r.points))
	for i := range s.boxes {
		b := &s.boxes[i]
		if i&4095 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if b.from >= r.to {
			break
		}
		if b.to <= r.from {
			continue
		}
		x0, x1 := max(r.column(b.from), 0), min(r.column(b.to), float64(r.w))
		scale := float64(rows) / float64(max(r.top, 1))
		y0, y1 := float64(b.offset)*scale, min(float64(b.offset+b.size)*scale, float64(rows))
		for y := int(y0); y < rows && float64(y) < y1; y++ {
			tall := min(y1, float64(y+1)) - max(y0, float64(y))
			line := (rows - 1 - y) * r.w
			for x := int(x0); x < r.w && float64(x) < x1; x++ {
				c := float32(tall * (min(x1, float64(x+1)) - max(x0, float64(x))))
				if c > cover[line+x] {
					cover[line+x], r.points[line+x] = c, int32(i)
				}
			}
		}
	}
	return nil
}

// stack stacks the categories as they are at each column's maximum.
func (r *raster) stack(s *scene) {
	type change struct {
		at  int64
		by  int64
		cat timeline.Category
	}
	sums := make([][timeline.NumCategories]int64, r.w)
	var now [timeline.NumCategories]int64
	var total int64
	best := make([]int64, r.w)
	see := func(from, to int) {
		for c := max(from, 0); c <= min(to, r.w-1); c++ {
			if total > best[c] {
				best[c], sums[c] = total, now
			}
		}
	}
	ends := make([]change, 0, len(s.boxes))
	begins := make([]change, 0, len(s.boxes))
	for i := range s.boxes {
		b := &s.boxes[i]
		cat := s.p.Buffers[b.buffer].Category
		begins = append(begins, change{b.from, b.size, cat})
		ends = append(ends, change{b.to, -b.size, cat})
	}
	slices.SortFunc(ends, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	last, i, j := 0, 0, 0
	for i < len(begins) || j < len(ends) {
		var c change
		if j < len(ends) && (i == len(begins) || ends[j].at <= begins[i].at) {
			c = ends[j]
			j++
		} else {
			c = begins[i]
			i++
		}
		col := int(min(max(r.column(c.at), -1), float64(r.w)))
		see(last, col)
		now[c.cat] += c.by
		total += c.by
		last = col
		see(col, col)
	}
	see(last, r.w-1)
	rows := r.h * 2
	for x := range r.w {
		var below int64
		y := 0
		for _, cat := range timeline.StackOrder {
			below += sums[x][cat]
			for to := int(float64(below)/float64(max(r.top, 1))*float64(rows) + 0.5); y < min(to, rows); y++ {
				r.points[(rows-1-y)*r.w+x] = stacked - int32(cat)
			}
		}
	}
}
