package figure

import (
	"bytes"
	"context"
	"fmt"
	"image/color"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// SVG draws the usage of a device, or what is allocated at o.At, as an SVG image.
func SVG(ctx context.Context, w io.Writer, d *timeline.Device, o Options) error {
	if !o.At.IsZero() {
		m, err := newMoment(ctx, d, o)
		if err != nil {
			return err
		}
		_, err = w.Write(drawSVG(m, m.width, m.height, o.palette()))
		return err
	}
	width, height := o.size()
	c, err := newChart(ctx, d, width, o)
	if err != nil {
		return err
	}
	_, err = w.Write(c.svg(width, height, o.palette()))
	return err
}

// drawing is a figure that any canvas can show.
type drawing interface {
	// caption returns the title and the sentence below it.
	caption() (title, headline string)
	// categories returns those whose colours the figure has.
	categories() []timeline.Category
	// draw lays the figure out.
	draw(cv canvas, width, height int, p *palette)
}

func (c *chart) svg(width, height int, p *palette) []byte { return drawSVG(c, width, height, p) }

func drawSVG(f drawing, width, height int, p *palette) []byte {
	title, headline := f.caption()
	s := &svgCanvas{p: p}
	fmt.Fprintf(&s.buf, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" `+
		`height="%d" role="img" `+
		`font-family="ui-sans-serif, system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&s.buf, "<title>%s</title>\n<desc>%s</desc>\n", escapeXML(title), escapeXML(headline))
	s.patterns(f.categories())
	f.draw(s, width, height, p)
	s.buf.WriteString("</svg>\n")
	return s.buf.Bytes()
}

// svgCanvas writes SVG elements, coordinates to a tenth of a pixel.
type svgCanvas struct {
	buf bytes.Buffer
	p   *palette
}

// patterns defines the hatched categories' fills.
func (s *svgCanvas) patterns(order []timeline.Category) {
	s.buf.WriteString("<defs>\n")
	for _, c := range order {
		h := hatches[c]
		if h.spacing == 0 {
			continue
		}
		fmt.Fprintf(&s.buf, `<pattern id="hatch-%s" width="%d" height="%d" patternUnits="userSpaceOnUse" `+
			`patternTransform="rotate(%d)">`+
			`<rect width="%d" height="%d" fill="%s"/><path d="M0 0H%d" stroke="%s" `+
			`stroke-opacity=".35"/></pattern>`+"\n",
			c, h.spacing, h.spacing, h.angle, h.spacing, h.spacing, hex(s.p.category[c]), h.spacing,
			hex(s.p.paper))
	}
	s.buf.WriteString("</defs>\n")
}

func (s *svgCanvas) fillOf(c timeline.Category) string {
	if hatches[c].spacing == 0 {
		return hex(s.p.category[c])
	}
	return "url(#hatch-" + c.String() + ")"
}

func (s *svgCanvas) area(points []point, c timeline.Category) {
	fmt.Fprintf(&s.buf, `<path class="%s" fill="%s" d="%sZ"/>`+"\n", c, s.fillOf(c), path(points))
}

func (s *svgCanvas) fill(x, y, w, h float64, c color.RGBA) {
	fmt.Fprintf(&s.buf, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>`+"\n", coord(x), coord(y),
		coord(w),
		coord(h), hex(c))
}

func (s *svgCanvas) line(points []point, c color.RGBA, width float64, dashed bool) {
	dash := ""
	if dashed {
		dash = ` stroke-dasharray="2 3"`
	}
	fmt.Fprintf(&s.buf, `<path fill="none" stroke="%s" stroke-width="%s"%s d="%s"/>`+"\n", hex(c),
		coord(width), dash, path(points))
}

func (s *svgCanvas) text(x, y float64, text string, st textStyle) {
	extra := ""
	if st.bold {
		extra += ` font-weight="600"`
	}
	switch st.anchor {
	case anchorMiddle:
		extra += ` text-anchor="middle"`
	case anchorEnd:
		extra += ` text-anchor="end"`
	}
	fmt.Fprintf(&s.buf, `<text x="%s" y="%s" font-size="%s" fill="%s"%s>%s</text>`+"\n", coord(x), coord(y),
		coord(st.size),
		hex(st.color),
		extra, escapeXML(text))
}

// path writes a polyline with horizontal and vertical steps in their short form.
func path(points []point) string {
	var b strings.Builder
	var last [2]string
	for i, p := range points {
		x, y := coord(p.x), coord(p.y)
		switch {
		case i == 0:
			b.WriteString("M" + x + " " + y)
		case y == last[1] && x == last[0]:
		case y == last[1]:
			b.WriteString("H" + x)
		case x == last[0]:
			b.WriteString("V" + y)
		default:
			b.WriteString("L" + x + " " + y)
		}
		last = [2]string{x, y}
	}
	return b.String()
}

func coord(v float64) string {
	s := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(s, ".0")
}

// The longest name that a picture shows, and the most combining marks on one of its characters: a file may
// hold names that would cover the page.
const (
	maxName  = 600
	maxMarks = 8
)

// bounded shortens s in the middle, since names differ at either end, and removes excess marks.
func bounded(s string) string {
	marks, n := 0, 0
	s = strings.Map(func(r rune) rune {
		if !unicode.Is(unicode.M, r) {
			marks = 0
		} else if marks++; marks > maxMarks {
			return -1
		}
		n++
		return r
	}, s)
	if n <= maxName {
		return s
	}
	r := []rune(s)
	return string(r[:maxName/2]) + "…" + string(r[n-maxName/2+1:])
}

// escapeXML escapes text for SVG and HTML, bounds it, and drops characters that neither allows.
func escapeXML(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, report.Printable(bounded(strings.ToValidUTF8(s, "?"))))
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;").Replace(s)
}
