package figure

import (
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// point is a place on a canvas, in CSS pixels from its top left corner.
type point struct{ x, y float64 }

// canvas is a surface to draw on: SVG text or pixels.
type canvas interface {
	// area fills a closed polygon with a category's colour and hatch.
	area(points []point, c timeline.Category)
	// fill fills a rectangle with a plain colour.
	fill(x, y, w, h float64, c color.RGBA)
	// line strokes a polyline.
	line(points []point, c color.RGBA, width float64, dashed bool)
	// text writes one line with its baseline at y.
	text(x, y float64, s string, st textStyle)
}

type textStyle struct {
	size   float64
	bold   bool
	anchor anchor
	color  color.RGBA
}

type anchor uint8

const (
	anchorStart anchor = iota
	anchorMiddle
	anchorEnd
)

// frame is the rectangle for the data.
type frame struct{ x, y, w, h float64 }

func (f frame) px(fraction float64) float64 { return f.x + f.w*fraction }

const (
	marginLeft  = 76.0
	marginRight = 24.0
	panelWidth  = 330.0
	// widthWithPanel is the least width at which the breakdown fits beside the chart.
	widthWithPanel = 900.0
	headHeight     = 112.0
	footHeight     = 72.0
)

func (c *chart) caption() (title, headline string) { return c.Title, c.Headline }

func (c *chart) categories() []timeline.Category { return c.Order }

// head draws the paper, the title and the sentence below it.
func head(cv canvas, f drawing, width, height float64, p *palette) {
	title, headline := f.caption()
	cv.fill(0, 0, width, height, p.paper)
	cv.text(24, 36, clip(title, width-48, 20), textStyle{20, true, anchorStart, p.ink})
	for i, line := range wrap(headline, int((width-48)/7.3), 2) {
		cv.text(24, 62+18*float64(i), line, textStyle{14, false, anchorStart, p.ink})
	}
}

// draw lays the whole figure out on cv.
func (c *chart) draw(cv canvas, w, h int, p *palette) {
	width, height := float64(w), float64(h)
	head(cv, c, width, height, p)
	f := c.plotFrame(width, height)
	if width >= widthWithPanel {
		panel{"At the peak", &c.Device.Peak, c.elsewhere(), c.units}.draw(cv,
			frame{f.x + f.w + 28, f.y, panelWidth - 28, f.h}, p)
	}
	c.plot(cv, f, p)
	cv.text(24, height-12, c.footer(), textStyle{11, false, anchorStart, p.faint})
}

// plotFrame returns the rectangle for the data in a figure of the given size.
func (c *chart) plotFrame(width, height float64) frame {
	f := frame{marginLeft, headHeight, width - marginLeft - marginRight, height - headHeight - footHeight}
	if width >= widthWithPanel {
		f.w -= panelWidth
	}
	return f
}

// footer tells the reader how to interpret the figure.
func (c *chart) footer() string {
	s := "allocated bytes by category, each column its maximum"
	if c.HasCache {
		s += "; line: reserved"
	}
	s += " · " + strings.ReplaceAll(c.Device.Exactness, "_", " ")
	for _, cat := range c.Device.Peak.ByCategory {
		if cat.Inferred {
			s += " · ~ categories inferred from stacks"
			break
		}
	}
	return s + " · gmemtop"
}

// plot draws axes, bands, reserved line, iterations and peak.
func (c *chart) plot(cv canvas, f frame, p *palette) {
	if len(c.Columns) == 0 || c.Top == 0 {
		cv.text(f.x, f.y+24, "no events: this trace is one moment, see the breakdown",
			textStyle{14, false, anchorStart, p.faint})
		return
	}
	scale := f.h / (float64(c.Top) * 1.04)
	y := func(v int64) float64 { return f.y + f.h - float64(v)*scale }
	unit, format := c.units.Column(c.Top)
	for _, v := range ticks(c.Top, c.units) {
		cv.line([]point{{f.x, y(v)}, {f.x + f.w, y(v)}}, p.grid, 1, false)
		cv.text(f.x-8, y(v)+4, format(v), textStyle{11, false, anchorEnd, p.faint})
	}
	cv.text(f.x-8, f.y-10, unit, textStyle{11, false, anchorEnd, p.faint})
	c.bands(cv, f, y)
	if c.HasCache {
		cv.line(stairs(f, len(c.Columns), func(i int) float64 {
			return y(c.Columns[i].Reserved)
		}), p.ink, 1.2, false)
	}
	c.marks(cv, f, p)
	for _, v := range roundSteps(c.From, c.To, 6) {
		x := f.px(float64(v-c.From) / float64(c.To-c.From))
		cv.text(x, f.y+f.h+18, c.at(v), textStyle{11, false, anchorMiddle, p.faint})
	}
	cv.line([]point{{f.x, f.y + f.h}, {f.x + f.w, f.y + f.h}}, p.faint, 1, false)
	c.peak(cv, f, y, p)
}

// bands draws the stacked categories, each as one outline with equal neighbours merged.
func (c *chart) bands(cv canvas, f frame, y func(int64) float64) {
	n := len(c.Columns)
	below := make([]int64, n)
	for _, cat := range c.Order {
		any := false
		above := make([]int64, n)
		for i := range c.Columns {
			above[i] = below[i] + c.Columns[i].By[cat]
			any = any || above[i] > below[i]
		}
		if any {
			top := stairs(f, n, func(i int) float64 { return y(above[i]) })
			bottom := stairs(f, n, func(i int) float64 { return y(below[i]) })
			for i := len(bottom) - 1; i >= 0; i-- {
				top = append(top, bottom[i])
			}
			cv.area(top, cat)
		}
		below = above
	}
}

// stairs returns the outline of n columns, without the points between neighbours of equal height.
func stairs(f frame, n int, y func(i int) float64) []point {
	pts := []point{{f.x, y(0)}}
	for i := 1; i < n; i++ {
		if y(i) != pts[len(pts)-1].y {
			x := f.px(float64(i) / float64(n))
			pts = append(pts, point{x, pts[len(pts)-1].y}, point{x, y(i)})
		}
	}
	return append(pts, point{f.x + f.w, pts[len(pts)-1].y})
}

func (c *chart) marks(cv canvas, f frame, p *palette) {
	last := -1000.0
	for _, m := range c.Marks {
		x := f.px(m.X)
		if x-last < 3 {
			continue // hundreds of iterations: lines would hide the data
		}
		cv.line([]point{{x, f.y}, {x, f.y + f.h}}, p.faint, 0.6, true)
		if x-last > 44 || last < 0 {
			cv.text(x+3, f.y+f.h+34, m.Label, textStyle{10, false, anchorStart, p.faint})
			last = x
		}
	}
}

func (c *chart) peak(cv canvas, f frame, y func(int64) float64, p *palette) {
	if c.Peak < 0 || c.Device.PeakAllocated == nil {
		return
	}
	x, top := f.px((float64(c.Peak)+0.5)/float64(len(c.Columns))), y(*c.Device.PeakAllocated)
	cv.line([]point{{x - 5, top - 9}, {x, top - 2}, {x + 5, top - 9}, {x - 5, top - 9}}, p.accent, 2, false)
	st := textStyle{12, true, anchorStart, p.accent}
	dx := 9.0
	if x > f.x+f.w*0.7 {
		st.anchor, dx = anchorEnd, -9
	}
	label, at := "peak "+c.units.Bytes(*c.Device.PeakAllocated), max(top-6, f.y-2)
	left, wide := x+dx, float64(len(label))*letter*st.size
	if st.anchor == anchorEnd {
		left -= wide
	}
	cv.fill(left, at-11, wide, 14, p.paper) // no line of the grid runs through it
	cv.text(x+dx, at, label, st)
}

// panel is the breakdown of one moment beside a chart, which is also its legend.
type panel struct {
	title     string
	held      *report.Breakdown
	elsewhere []timeline.Category // those of the chart that hold nothing at that moment
	units     timeline.Units
}

// draw draws the categories, then the call sites.
func (c panel) draw(cv canvas, f frame, p *palette) {
	y := f.y + 4
	total := int64(0)
	for _, row := range c.held.ByCategory {
		total += row.Bytes
	}
	cv.text(f.x, y, c.title, textStyle{14, true, anchorStart, p.ink})
	y += 24
	for _, row := range c.held.ByCategory {
		cat, name := categoryOf(row.Name), row.Name
		if row.Inferred {
			name = "~" + name
		}
		cv.area([]point{{f.x, y - 10}, {f.x + 12, y - 10}, {f.x + 12, y + 1}, {f.x, y + 1}}, cat)
		cv.text(f.x+20, y, name, textStyle{12, false, anchorStart, p.ink})
		cv.text(f.x+f.w-52, y, c.units.Bytes(row.Bytes), textStyle{12, false, anchorEnd, p.ink})
		cv.text(f.x+f.w, y, report.Percent(row.Bytes, total), textStyle{12, false, anchorEnd, p.faint})
		if w := f.w * float64(row.Bytes) / float64(max(total, 1)); w >= 1 {
			cv.area([]point{{f.x, y + 5}, {f.x + w, y + 5}, {f.x + w, y + 9}, {f.x, y + 9}}, cat)
		}
		y += 26
	}
	for _, cat := range c.elsewhere {
		cv.area([]point{{f.x, y - 10}, {f.x + 12, y - 10}, {f.x + 12, y + 1}, {f.x, y + 1}}, cat)
		cv.text(f.x+20, y, cat.String(), textStyle{12, false, anchorStart, p.ink})
		cv.text(f.x+f.w, y, "not at the peak", textStyle{12, false, anchorEnd, p.faint})
		y += 20
	}
	y += 12
	cv.text(f.x, y, "Largest call sites", textStyle{14, true, anchorStart, p.ink})
	y += 22
	for _, row := range c.held.BySite {
		if y > f.y+f.h-14 {
			break
		}
		cv.text(f.x, y, c.units.Bytes(row.Bytes), textStyle{12, true, anchorStart, p.ink})
		cv.text(f.x+f.w, y, share(row, total), textStyle{11, false, anchorEnd, p.faint})
		cv.text(f.x, y+15, clipLeft(row.Site, f.w, 11), textStyle{11, false, anchorStart, p.faint})
		y += 36
	}
}

// elsewhere returns the categories that the chart draws and that hold nothing at the peak.
func (c *chart) elsewhere() []timeline.Category {
	var list []timeline.Category
	for _, cat := range c.Order {
		atPeak := slices.ContainsFunc(c.Device.Peak.ByCategory, func(row report.CategoryRow) bool {
			return categoryOf(row.Name) == cat
		})
		drawn := slices.ContainsFunc(c.Columns, func(col column) bool { return col.By[cat] > 0 })
		if drawn && !atPeak {
			list = append(list, cat)
		}
	}
	return list
}

// ticks returns at most ten round values from 0, in the unit of the labels.
func ticks(top int64, u timeline.Units) []int64 {
	base := 1000.0
	if u == timeline.IEC {
		base = 1024
	}
	unit := 1.0
	for float64(top) >= unit*base && u != timeline.Raw {
		unit *= base
	}
	step := roundStep(float64(top) / unit / 8)
	var out []int64
	for v := 0.0; v*unit <= float64(top) && len(out) < 10; v += step {
		out = append(out, int64(math.Round(v*unit)))
	}
	return out
}

// roundStep returns the smallest 1, 2 or 5 times a power of ten that is at least raw.
func roundStep(raw float64) float64 {
	pow := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if m*pow >= raw {
			return m * pow
		}
	}
	return 10 * pow
}

// roundSteps returns about n round values in [from, to].
func roundSteps(from, to int64, n int) []int64 {
	step := max(int64(roundStep(float64(to-from)/float64(n))), 1)
	var out []int64
	for v := (from + step - 1) / step * step; v <= to && len(out) < 2*n; v += step {
		out = append(out, v)
	}
	return out
}

// letter is the width of a letter by its size, in a wide typeface.
const letter = 0.6

// clip cuts s to about width pixels of text of the given size.
func clip(s string, width, size float64) string {
	n := int(width / (size * letter))
	if r := []rune(s); len(r) > n {
		return string(r[:max(n-1, 0)]) + "…"
	}
	return s
}

// clipLeft cuts the beginning and keeps the end of a path.
func clipLeft(s string, width, size float64) string {
	n := int(width / (size * letter))
	if r := []rune(s); len(r) > n {
		return "…" + string(r[len(r)-max(n-1, 0):])
	}
	return s
}

// sized matches a blank between a number and its unit.
var sized = regexp.MustCompile(`(\d) ([KMGTPE]?i?B|[mµn]?s|%)(\W|$)`)

// wrap breaks s at spaces into at most n lines of about width characters. A number stays beside its unit.
func wrap(s string, width, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.FieldsFunc(sized.ReplaceAllString(s, "$1\u00a0$2$3"),
		func(r rune) bool { return r == ' ' || r == '\n' }) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	lines = append(lines, line)
	if len(lines) > n {
		lines = lines[:n]
		lines[n-1] += " …"
	}
	return lines
}

func share(row report.StackRow, total int64) string {
	if row.Blocks == 0 {
		return report.Percent(row.Bytes, total)
	}
	return fmt.Sprintf("%s in %d", report.Percent(row.Bytes, total), row.Blocks)
}

// categoryOf returns the category that colours a row of the breakdown: unknown for a row without one, as in
// the chart.
func categoryOf(name string) timeline.Category {
	c, _ := timeline.ParseCategory(name)
	return c
}
