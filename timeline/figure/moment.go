package figure

import (
	"context"
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
)

// moment is the picture of what is allocated at one moment: boxes as wide as their share, categories on top
// and the code that allocated below them.
type moment struct {
	title, headline string
	width, height   int
	held            report.Breakdown
	root            *sites.Node
	order           []timeline.Category
	units           timeline.Units
	rows            int     // how many rows of boxes there are room for
	box             float64 // height of a row
	deeper          bool
}

const (
	// leastRow and mostRow bound the height of a row; text takes rowText of it.
	leastRow, mostRow, rowText = 42.0, 66.0, 36.0
	// narrowest is the least width of a box; narrower ones are left out.
	narrowest = 1.5
)

// newMoment prepares the picture of the moment that o.At names. Without o.Height it is as high as its rows
// need, within bounds.
func newMoment(ctx context.Context, d *timeline.Device, o Options) (*moment, error) {
	at, err := momentOf(d, o)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	top := o.Top
	if top == 0 {
		top = 20
	}
	m := &moment{title: o.Title, held: report.BreakdownAt(d, at, top), root: sites.CategoryIcicle(d, at),
		units: o.Units}
	if m.title == "" {
		m.title = baseName(d.Timeline().Trace.Source.Path)
	}
	if len(d.Timeline().Devices) > 1 {
		m.title += " · " + report.DeviceName(d.Info)
	}
	m.headline = m.sentence(d, at)
	for _, row := range m.held.ByCategory {
		m.order = append(m.order, categoryOf(row.Name))
	}
	fold(m.root)
	m.width, m.height = o.size()
	depth := depthOf(m.root)
	const around = headHeight + footHeight
	if o.Height <= 0 {
		m.height = min(max(m.height, int(around+float64(depth)*leastRow)), 1200)
	}
	room := float64(m.height) - around
	m.box = min(max(room/float64(depth), leastRow), mostRow)
	m.rows = max(int(room/m.box), 1)
	m.deeper = depth > m.rows
	return m, ctx.Err()
}

// sentence says when the moment is, and how much is allocated by whom.
func (m *moment) sentence(d *timeline.Device, at timeline.Moment) string {
	when := steps.When(d, at)
	if d.Len() < 2 {
		when = "when the snapshot was taken"
	}
	bytes := d.Allocated.At(at)
	if bytes == 0 {
		return "Nothing is allocated " + when + "."
	}
	blocks := 0
	for _, row := range m.held.ByCategory {
		blocks += row.Blocks
	}
	s := fmt.Sprintf("%s allocated in %s, %s.", m.units.Bytes(bytes), timeline.Counted(blocks, "block"), when)
	if peak := d.Totals.PeakAllocated; bytes == peak {
		s += " This is the peak."
	} else {
		s += fmt.Sprintf(" That is %s of the peak, %s.", report.Percent(bytes, peak), m.units.Bytes(peak))
	}
	if len(m.held.BySite) > 0 {
		x := &m.held.BySite[0]
		s += fmt.Sprintf(" Largest holder: %s, %s.", x.Site, m.units.Bytes(x.Bytes))
	}
	return s
}

// fold leaves out frames that only pass on what one other frame below them allocated, so that the boxes show
// where stacks part. The root and the categories stay.
func fold(root *sites.Node) {
	for _, category := range root.Children {
		for i := range category.Children {
			category.Children[i] = folded(category.Children[i])
		}
	}
}

func folded(n *sites.Node) *sites.Node {
	for len(n.Children) == 1 && n.Children[0].Bytes == n.Bytes {
		n = n.Children[0]
	}
	for i := range n.Children {
		n.Children[i] = folded(n.Children[i])
	}
	return n
}

// depthOf returns how many rows of boxes the tree needs.
func depthOf(n *sites.Node) int {
	deepest := 0
	for _, c := range n.Children {
		deepest = max(deepest, depthOf(c))
	}
	return deepest + 1
}

func (m *moment) caption() (title, headline string) { return m.title, m.headline }

func (m *moment) categories() []timeline.Category { return m.order }

func (m *moment) draw(cv canvas, w, h int, p *palette) {
	width, height := float64(w), float64(h)
	head(cv, m, width, height, p)
	f := frame{24, headHeight, width - 24 - marginRight, height - headHeight - footHeight}
	if width >= widthWithPanel {
		f.w -= panelWidth
		panel{"By category", &m.held, nil, m.units}.draw(cv,
			frame{f.x + f.w + 28, f.y, panelWidth - 28, f.h}, p)
	}
	if m.root.Bytes > 0 {
		cv.fill(f.x, f.y, f.w, m.box-rowText, p.faint)
		text := f.y + m.box - rowText
		cv.text(f.x, text+14, "everything", textStyle{12, true, anchorStart, p.ink})
		cv.text(f.x, text+28, m.units.Bytes(m.root.Bytes), textStyle{10, false, anchorStart, p.faint})
		x := f.x
		for _, c := range m.root.Children {
			wide := f.w * float64(c.Bytes) / float64(m.root.Bytes)
			m.boxes(cv, p, c, categoryOf(c.Name), x, wide, f.y, 1)
			x += wide
		}
	}
	cv.text(24, height-12, m.footer(), textStyle{11, false, anchorStart, p.faint})
}

// boxes draws a node with its children below it. A stripe has the category's colour, so that the text lies on
// plain paper.
func (m *moment) boxes(cv canvas, p *palette, n *sites.Node, c timeline.Category, x, wide, top float64,
	row int,
) {
	if wide < narrowest || row >= m.rows {
		return
	}
	y, right := top+float64(row)*m.box, x+max(wide-1, 1)
	text := y + m.box - rowText
	cv.area([]point{{x, y}, {right, y}, {right, text}, {x, text}}, c)
	if name := clip(n.Name, wide-6, 12); len([]rune(name)) >= min(4, len([]rune(n.Name))) {
		cv.text(x+1, text+14, name, textStyle{12, row == 1, anchorStart, p.ink})
		if size := m.units.Bytes(n.Bytes); clip(size, wide-6, 10) == size {
			cv.text(x+1, text+28, size, textStyle{10, false, anchorStart, p.faint})
		}
	}
	for _, child := range n.Children {
		w := wide * float64(child.Bytes) / float64(max(n.Bytes, 1))
		m.boxes(cv, p, child, c, x, w, top, row+1)
		x += w
	}
}

// footer tells the reader how to interpret the picture.
func (m *moment) footer() string {
	s := "allocated bytes: each box is as wide as its share, with what it called below it"
	if m.deeper {
		s += " · deeper calls are left out"
	}
	for _, row := range m.held.ByCategory {
		if row.Inferred {
			s += " · ~ categories inferred from stacks"
			break
		}
	}
	return s + " · gmemtop"
}
