package segments

import (
	"image/color"
	"sort"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// kind is what a piece of the map is, apart from its category.
type kind uint8

const (
	kindUnmapped kind = iota
	kindStranded
	kindCached
	kindPending
	kindForeign // in use without an allocation in the recording
	kindInternal
	kindActive // of unknown category; with a category c it is kindActive + c
	numKinds   = kindActive + kind(timeline.NumCategories)
)

func kindOf(d *timeline.Device, p timeline.Piece, inUse bool) kind {
	switch {
	case p.State == traces.BlockPendingFree:
		return kindPending
	case p.State == traces.BlockAllocated && p.Alloc == timeline.NoAlloc:
		return kindForeign
	case p.State == traces.BlockAllocated:
		return kindActive + kind(d.Allocs.Category[p.Alloc])
	case inUse:
		return kindStranded
	}
	return kindCached
}

// palette caches the fills of a theme, so that drawing a cell needs no colour arithmetic.
type palette struct {
	th    *theme.Theme
	fills [numKinds][3]canvas.Fill
}

func (p *palette) of(th *theme.Theme, k kind, variant int) canvas.Fill {
	if p.th != th {
		p.th = th
		for k := range p.fills {
			for v := range p.fills[k] {
				p.fills[k][v] = fill(th, kind(k), v)
			}
		}
	}
	return p.fills[k][variant%len(p.fills[k])]
}

// paint draws one cell whose left and right halves look like l and r.
func paint(c *canvas.Canvas, x, y int, l, r canvas.Fill) {
	switch {
	case c.ASCII():
		c.Set(x, y, l.ASCII, 0)
	case l.Color == nil && r.Color == nil:
		c.Set(x, y, l.Mono, 0)
	case l == r:
		p := l.Pattern
		if p == 0 {
			p = ' '
		}
		c.Set(x, y, p, c.Style(canvas.Style{FG: l.Shade, BG: l.Color}))
	case l.Color == nil:
		c.Set(x, y, '▐', c.Style(canvas.Style{FG: r.Color}))
	default:
		c.Set(x, y, '▌', c.Style(canvas.Style{FG: l.Color, BG: r.Color}))
	}
}

// half is what half a cell shows: the kind that covers most of it, the parity of its largest piece, and
// whether that piece is the selected one.
type half struct {
	kind     kind
	odd      bool
	selected bool
}

func pick(sel bool, yes, no color.Color) color.Color {
	if sel {
		return yes
	}
	return no
}

// span is a piece, or a gap between runs, clipped to a line.
type span struct {
	from, to uint64
	kind     kind
	odd      bool
	selected bool
}

// pieces walks over the spans of a line.
type pieces struct {
	a        *atlas
	d        *timeline.Device
	row, run int
	k        int
	started  bool
	from, to uint64 // of the line
	inUse    bool
}

func (w *pieces) next() (span, bool) {
	r := &w.a.rows[w.row]
	for w.run < len(r.runs) {
		seg := &w.a.st.Segments[r.runs[w.run]]
		if !w.started {
			w.started, w.inUse = true, hasActive(seg)
			w.k = sort.Search(len(seg.Pieces), func(k int) bool {
				return seg.Pieces[k].Addr+uint64(seg.Pieces[k].Size) > w.from
			})
		}
		if seg.Addr >= w.to {
			return span{}, false
		}
		if w.k >= max(len(seg.Pieces), 1) || len(seg.Pieces) > 0 && w.k >= len(seg.Pieces) {
			w.run, w.started = w.run+1, false
			continue
		}
		p := timeline.Piece{Addr: seg.Addr, Size: seg.Size, Alloc: timeline.NoAlloc}
		if len(seg.Pieces) > 0 {
			p = seg.Pieces[w.k]
		}
		sel := w.a.selected == place{int32(w.row), int32(w.run), int32(w.k)}
		w.k++
		from, to := max(p.Addr, w.from), min(p.Addr+uint64(p.Size), w.to)
		if from >= to {
			if p.Addr >= w.to {
				return span{}, false
			}
			continue
		}
		return span{from, to, kindOf(w.d, p, w.inUse), w.k%2 == 0, sel}, true
	}
	return span{}, false
}

// fill returns the looks of a kind; neighbours in different variants can be told apart.
func fill(th *theme.Theme, k kind, variant int) canvas.Fill {
	switch k {
	case kindUnmapped:
		return canvas.Fill{Mono: ' ', ASCII: ' '}
	case kindStranded:
		return canvas.Fill{Color: th.Fade(th.Warn.FG, 200), Shade: th.Warn.FG, Pattern: '░', Mono: '-',
			ASCII: '-'}
	case kindCached:
		return canvas.Fill{Color: th.Fade(th.Dim.FG, 210), Shade: th.Fade(th.Dim.FG, 70), Pattern: '·',
			Mono: '~', ASCII: '~'}
	case kindPending:
		return canvas.Fill{Color: th.Fade(th.Bad.FG, 170), Shade: th.Bad.FG, Pattern: '╱', Mono: '/',
			ASCII: '/'}
	case kindForeign:
		return canvas.Fill{Color: th.Fade(th.Dim.FG, 120), Shade: th.Fade(th.Dim.FG, 30), Pattern: '?',
			Mono: '?', ASCII: '?'}
	case kindInternal:
		return canvas.Fill{Color: th.Fade(th.Accent.FG, 150), Shade: th.Accent.FG, Pattern: '▒', Mono: '+',
			ASCII: '+'}
	}
	return th.Shade(timeline.Category(k-kindActive), variant)
}

// drawBar draws the addresses [from, to) of row i into the bars, whose whole width represents across bytes.
//
// Each half cell shows the kind that covers most of its bytes, not the largest piece in it: ninety small
// blocks and one hole larger than each of them are blocks. The cost is the number of pieces on the line.
func (b *board) drawBar(s *leaf.State, c *canvas.Canvas, y, i int, from, to, across uint64) {
	halves := make([]half, 2*b.bars.W)
	scale := float64(len(halves)) / float64(max(across, 1))
	var cover [numKinds]float64
	r := &b.rows[i]
	run := sort.Search(len(r.runs), func(j int) bool {
		seg := &b.st.Segments[r.runs[j]]
		return seg.Addr+uint64(seg.Size) > from
	})
	walk := pieces{a: &b.atlas, d: s.Device, row: i, run: run, from: from, to: to}
	at, open := -1, half{}
	best := 0.0 // coverage of the largest piece so far of the half's kind
	settle := func() {
		if at < 0 {
			return
		}
		top := kindUnmapped
		for k := range cover {
			if cover[k] > cover[top] {
				top = kind(k)
			}
		}
		halves[at] = half{kind: top, odd: open.odd, selected: open.selected}
		cover = [numKinds]float64{}
		best = 0
	}
	for {
		p, ok := walk.next()
		if !ok {
			break
		}
		lo, hi := float64(p.from-from)*scale, float64(p.to-from)*scale
		first, last := int(lo), min(int(hi-1e-9), len(halves)-1)
		for h := max(first, 0); h <= last; h++ {
			if h != at {
				settle()
				at, open = h, half{}
			}
			part := min(hi, float64(h+1)) - max(lo, float64(h))
			cover[p.kind] += part
			if part > best {
				best, open.odd = part, p.odd
			}
			open.selected = open.selected || p.selected
		}
	}
	settle()
	end := min(int(float64(to-from)*scale+0.999), len(halves))
	for x := range b.bars.W {
		if 2*x >= end {
			break
		}
		b.drawCell(s, c, b.bars.X+x, y, i, halves[2*x], halves[2*x+1])
	}
}

func (b *board) drawCell(s *leaf.State, c *canvas.Canvas, x, y, row int, l, r half) {
	look := func(h half) canvas.Fill {
		variant := row & 1 // adjacent segments differ in shade, like neighbouring blocks
		if h.odd {
			variant++
		}
		if b.only != kindUnmapped && h.kind != b.only && h.kind != kindUnmapped {
			return s.Theme.Quiet()
		}
		return b.palette.of(s.Theme, h.kind, variant)
	}
	lf, rf := look(l), look(r)
	if s.Theme.Mono && l.kind == kindUnmapped {
		lf = rf
	}
	paint(c, x, y, lf, rf)
	if !l.selected && !r.selected {
		return
	}
	c.Restyle(canvas.Rect{X: x, Y: y, W: 1, H: 1}, func(st canvas.Style) canvas.Style {
		if s.Theme.Mono {
			st.Reverse = true
			return st
		}
		mark := func(sel bool, was color.Color) color.Color {
			if sel {
				return s.Theme.Cursor.FG
			}
			return was
		}
		if lf == rf || l.selected == r.selected {
			st.BG = s.Theme.Cursor.FG
			st.FG = s.Theme.Fade(s.Theme.Cursor.FG, 200)
			return st
		}
		return canvas.Style{FG: mark(l.selected, lf.Color), BG: mark(r.selected, rf.Color)}
	})
	if !s.Theme.Mono && l.selected != r.selected && lf == rf {
		mark := s.Theme.Cursor.FG
		c.Set(x, y, '▌', c.Style(canvas.Style{FG: pick(l.selected, mark, lf.Color),
			BG: pick(r.selected, mark, rf.Color)}))
	}
}
