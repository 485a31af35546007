package canvas

import (
	"fmt"
	"html"
	"image/color"
	"strings"
)

// A screen as a picture: text stays text (it can be selected and searched), while block elements and braille
// dots are drawn as rectangles, because fonts disagree on how much of a cell they fill and a chart made of
// them shows seams. Runs of one colour become one element. Rejected: a picture of pixels (large, blurred when
// scaled) and text for everything (the seams).

// cell sizes of the picture, in user units.
const (
	svgCellW = 8.4
	svgCellH = 17
	svgFont  = 14
	svgBase  = 13 // baseline below the cell's top
)

// SVG returns the whole grid as a self-contained picture on the given default colours.
func SVG(c *Canvas, fore, back color.Color) string {
	p := svgPicture{g: c.grid, fore: fore, back: back}
	return p.draw()
}

type svgPicture struct {
	g          *grid
	fore, back color.Color
	b          strings.Builder
}

func (p *svgPicture) draw() string {
	w, h := float64(p.g.w)*svgCellW, p.g.h*svgCellH
	fmt.Fprintf(&p.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 %.0f %d" `+
		`width="%.0f" height="%d" `+
		`font-family="ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace" font-size="%d">`+"\n",
		w+20, h+20, w+20, h+20, svgFont)
	fmt.Fprintf(&p.b, `<rect x="-10" y="-10" width="%.0f" height="%d" rx="6" fill="%s"/>`+"\n", w+20, h+20,
		hexOf(p.back))
	for y := range p.g.h {
		p.backgrounds(y)
		p.shapes(y)
		p.texts(y)
	}
	p.b.WriteString("</svg>\n")
	return p.b.String()
}

// look returns the colours of a cell as they are shown; ground is nil where it is the picture's own.
func (p *svgPicture) look(cell Cell) (ink string, ground color.Color, st Style) {
	st = p.g.StyleOf(cell.Style)
	fore, ground := st.FG, st.BG
	if fore == nil {
		fore = p.fore
	}
	if st.Reverse {
		if ground == nil {
			ground = p.back
		}
		fore, ground = ground, fore
	}
	return hexOf(fore), ground, st
}

func (p *svgPicture) row(y int) []Cell { return p.g.cells[y*p.g.w : (y+1)*p.g.w] }

func (p *svgPicture) rect(x, y, w, h float64, fill string) {
	fmt.Fprintf(&p.b, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>`, short(x), short(y), short(w),
		short(h), fill)
}

func (p *svgPicture) backgrounds(y int) {
	row := p.row(y)
	for x := 0; x < len(row); {
		_, ground, _ := p.look(row[x])
		end := x + 1
		for ; end < len(row); end++ {
			if _, g, _ := p.look(row[end]); g != ground {
				break
			}
		}
		if ground != nil {
			// A hair taller than the cell, so that no seam shows between rows when the picture is scaled.
			p.rect(float64(x)*svgCellW, float64(y*svgCellH), float64(end-x)*svgCellW, svgCellH+0.3,
				hexOf(ground))
		}
		x = end
	}
}

// part is a rectangle of a cell in eighths of its width and height.
type part struct{ x, y, w, h float64 }

// partsOf returns what a block element or a braille cell fills, and false for any other rune.
func partsOf(r rune) ([]part, bool) {
	switch {
	case r == '█':
		return []part{{0, 0, 8, 8}}, true
	case r == '▀':
		return []part{{0, 0, 8, 4}}, true
	case r >= '▁' && r <= '▇':
		n := float64(r - '▁' + 1)
		return []part{{0, 8 - n, 8, n}}, true
	case r >= '▉' && r <= '▏':
		return []part{{0, 0, float64('▏' - r + 1), 8}}, true
	case r > 0x2800 && r <= 0x28ff:
		var dots []part
		for i, at := range [8][2]float64{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {0, 3}, {1, 3}} {
			if (r-0x2800)>>i&1 != 0 {
				dots = append(dots, part{at[0]*4 + 0.8, at[1]*2 + 0.4, 2.4, 1.2})
			}
		}
		return dots, true
	}
	return nil, false
}

func (p *svgPicture) shapes(y int) {
	row := p.row(y)
	for x := 0; x < len(row); {
		parts, ok := partsOf(row[x].Rune)
		end := x + 1
		if !ok {
			x = end
			continue
		}
		if row[x].Rune < 0x2800 && parts[0].w == 8 { // what spans the cell's width joins its neighbours
			for end < len(row) && row[end].Rune == row[x].Rune && row[end].Style == row[x].Style {
				end++
			}
		}
		ink, _, _ := p.look(row[x])
		for _, q := range parts {
			p.rect((float64(x)+q.x/8)*svgCellW, (float64(y)+q.y/8)*svgCellH,
				q.w/8*svgCellW+float64(end-x-1)*svgCellW, q.h/8*svgCellH, ink)
		}
		x = end
	}
}

// texts writes what is neither blank nor a shape, one element for neighbours of one style.
func (p *svgPicture) texts(y int) {
	row := p.row(y)
	for x := 0; x < len(row); {
		if !isText(row[x].Rune) {
			x++
			continue
		}
		var text strings.Builder
		end, last := x, x
		for ; end < len(row) && row[end].Style == row[x].Style; end++ {
			cell := row[end]
			if _, shape := partsOf(cell.Rune); shape || cell.Rune == ' ' && end-last > 2 {
				break
			}
			if cell.Width == 0 {
				continue
			}
			text.WriteRune(cell.Rune)
			text.WriteString(p.g.marks[y*p.g.w+end])
			if cell.Rune != ' ' {
				last = end
			}
		}
		p.text(x, y, last+1, row[x], strings.TrimRight(text.String(), " "))
		x = last + 1
	}
	p.b.WriteByte('\n')
}

func isText(r rune) bool {
	_, shape := partsOf(r)
	return !shape && r != ' ' && r != 0 && r != 0x2800
}

func (p *svgPicture) text(x, y, end int, cell Cell, s string) {
	ink, _, st := p.look(cell)
	extra := ""
	if st.Bold {
		extra += ` font-weight="bold"`
	}
	if st.Italic {
		extra += ` font-style="italic"`
	}
	if st.Underline {
		extra += ` text-decoration="underline"`
	}
	if st.Faint {
		extra += ` opacity="0.6"`
	}
	fmt.Fprintf(&p.b, `<text x="%s" y="%d" textLength="%s" fill="%s"%s xml:space="preserve">%s</text>`,
		short(float64(x)*svgCellW), y*svgCellH+svgBase, short(float64(end-x)*svgCellW), ink, extra,
		html.EscapeString(s))
}

func hexOf(c color.Color) string {
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}

// short prints a coordinate with at most one decimal.
func short(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}
