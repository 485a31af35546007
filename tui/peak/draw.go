package peak

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/block"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Draw implements leaf.View.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	y := leaf.Sentence(s, c, v.sentence(s))
	drawGroupings(s, c, y, v.by)
	body := canvas.Rect{X: 1, Y: y + 2, W: w - 2, H: h - y - 2}
	v.wide, v.list = w >= 110, canvas.Rect{}
	if !v.wide {
		if v.inTree {
			v.drawTree(s, c.Sub(body))
			return
		}
		var below canvas.Rect
		if free := body.H - len(v.rows) - 2; free >= 5 { // rows left by the table
			body, below = body.CutTop(body.H - free)
		}
		v.list = body
		v.drawTable(s, c.Sub(body))
		v.drawBlock(s, c.Sub(below))
		return
	}
	left := min(max(body.W/2, nameColumn+2+longestName(v.rows)), body.W*3/5)
	v.list = canvas.Rect{X: 1, Y: body.Y, W: left, H: body.H}
	v.drawTable(s, c.Sub(v.list))
	x := left + 3
	c.Fill(canvas.Rect{X: x - 1, Y: body.Y, W: 1, H: body.H}, '│', s.Theme.Faint)
	right := canvas.Rect{X: x + 1, Y: body.Y, W: w - x - 2, H: body.H}
	top, rest := right.CutTop(max(right.H*3/5, 3))
	v.drawTree(s, c.Sub(top))
	v.drawBlock(s, c.Sub(rest))
}

// longestName returns the width of the longest name.
func longestName(rows []row) (longest int) {
	for i := range rows {
		longest = max(longest, canvas.Width(name(&rows[i])))
	}
	return longest
}

// nameColumn is where names begin in a table without bars.
const nameColumn = 24

// drawBlock shows where the selected block comes from or, without one, the largest block of the chosen row.
func (v *View) drawBlock(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	if h < 4 {
		return
	}
	id, title := s.Selected, "selected"
	if id == timeline.NoAlloc && v.at < len(v.rows) {
		id, title = v.rows[v.at].Largest, "its largest block"
	}
	if id == timeline.NoAlloc {
		return
	}
	leaf.Rule(s, c, 0, 0, w, title)
	block.Draw(s, c.Sub(canvas.Rect{Y: 1, W: w, H: h - 1}), id)
}

// sentence says how much is held and which group holds most of it; when comparing, what changed most.
func (v *View) sentence(s *leaf.State) string {
	held := s.Units.Bytes(s.Device.Allocated.At(s.Cursor))
	if len(v.rows) == 0 || v.built.now.moment != s.Cursor {
		return fmt.Sprintf("%s %s are allocated: grouping …", moment(s), held)
	}
	r := &v.rows[0]
	if s.HasMark && v.built.okM {
		d := s.Device.Allocated.At(s.Cursor) - s.Device.Allocated.At(s.Mark)
		than := "as much is allocated as at the mark"
		switch {
		case d > 0:
			than = s.Units.Bytes(d) + " more is allocated than at the mark"
		case d < 0:
			than = s.Units.Bytes(-d) + " less is allocated than at the mark"
		}
		if r.delta() == 0 {
			return fmt.Sprintf("%s, %s (%s), with the same bytes in every row.", moment(s), than,
				leaf.When(s, s.Mark))
		}
		return fmt.Sprintf("%s, %s (%s): the largest change is %s, %s.", moment(s), than,
			leaf.When(s, s.Mark), name(r), s.Units.Delta(r.delta()))
	}
	blocks, requested := 0, int64(0)
	for i := range v.rows {
		blocks += v.rows[i].Blocks
		requested += v.rows[i].Requested
	}
	beside, of := "", "of it"
	if r := s.Units.Bytes(requested); s.Device.RequestedKnown() && r != held {
		beside = " (" + r + " requested)"
	}
	if u := s.Device.Totals.Unattributed; u > 0 { // no block that is known holds these
		all := s.Device.Allocated.At(s.Cursor)
		held = s.Units.Bytes(all-u) + ", and " + s.Units.Bytes(u) + " are not in the recording"
		of = "of the whole " + s.Units.Bytes(all)
		if r.Largest == timeline.NoAlloc && len(v.rows) > 1 {
			r = &v.rows[1]
		}
	}
	hold := "hold"
	if blocks == 1 {
		hold = "holds"
	}
	text := fmt.Sprintf("%s, %s %s %s%s: ", moment(s), timeline.Counted(blocks, "block"), hold, held, beside)
	share := leaf.Percent(r.Bytes, s.Device.Allocated.At(s.Cursor))
	switch v.by {
	case sites.ByCategory:
		return text + fmt.Sprintf("%s is %s.", share, name(r))
	case sites.BySite, sites.ByStack, sites.ByModule:
		if words, ok := unplaced[r.Name]; ok {
			return text + share + " " + of + " " + words + "."
		}
		if sum, calls, then := v.logits(); calls > 1 && sum > r.Bytes {
			text += fmt.Sprintf("the largest part is the logits, from %d call sites", calls)
			if then == nil {
				return text + "."
			}
			share = leaf.Percent(then.Bytes, s.Device.Allocated.At(s.Cursor))
			return text + fmt.Sprintf("; %s comes from %s.", share, name(then))
		}
		return text + fmt.Sprintf("%s %s comes from %s.", share, of, name(r))
	}
	return text + fmt.Sprintf("%s %s in %s.", share, of, name(r))
}

// unplaced describes blocks without a call site, by the names that timeline gives their groups.
var unplaced = map[string]string{
	"":                               "has no recorded stack",
	"no stack":                       "has no recorded stack",
	"recorded without a stack":       "has no recorded stack",
	"allocated before the recording": "was allocated before the recording",
	"not in the recording":           "is not in the recording",
	"outside of modules":             "lies outside of modules",
}

// drawGroupings draws the names of the groupings, marking the current one; each can be clicked.
func drawGroupings(s *leaf.State, c *canvas.Canvas, y int, now sites.By) {
	x := 1 + c.Text(1, y, s.Theme.Dim, "by ")
	for by := sites.By(0); by < sites.NumBy; by++ {
		st, text := s.Theme.Dim, " "+by.String()+" "
		if by == now {
			st = s.Theme.OnSelected(s.Theme.Strong)
		}
		n := c.Text(x, y, st, text)
		c.Zone(canvas.Rect{X: x, Y: y, W: n, H: 1}, byMsg{by})
		x += n + 1
	}
}

func (v *View) drawTable(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	if h < 2 {
		return
	}
	if len(v.rows) == 0 {
		if v.groups.Pending() {
			leaf.Working(s, c, "grouping")
		} else {
			c.Text(0, 0, s.Theme.Dim, "nothing is allocated at this moment")
		}
		return
	}
	total := max(s.Device.Allocated.At(s.Cursor), 1)
	largest := int64(1)
	for i := range v.rows {
		largest = max(largest, v.rows[i].Bytes, v.rows[i].before)
	}
	unit, size := s.Units.Column(largest)
	t := table{s: s, size: size, unit: unit, total: total, largest: largest, comparing: s.HasMark &&
		v.built.okM}
	t.fit(w, longestName(v.rows))
	t.head(c, v.by)
	v.height = h - 1
	if !v.loose {
		v.top = max(min(v.top, v.at), v.at-v.height+1)
	}
	v.top = max(min(v.top, len(v.rows)-v.height), 0)
	for y := 0; y < v.height && v.top+y < len(v.rows); y++ {
		i := v.top + y
		t.row(c, y+1, &v.rows[i], v.by, i == v.at && !v.inTree)
		c.Zone(canvas.Rect{Y: y + 1, W: w, H: 1}, pickMsg{i})
	}
}

// table is the geometry of the table of groups. If there is too little room, columns are dropped in this
// order: bar, blocks, share.
type table struct {
	s              *leaf.State
	size           func(int64) string
	unit           string
	total, largest int64
	comparing      bool
	w              int
	bytes, delta   int // right edges
	blocks, share  int // right edges, 0 if there is no room
	bar, barW      int
	name           int
}

func (t *table) fit(w, longest int) {
	t.w = w
	x := max(8, canvas.Width(t.size(t.largest)))
	t.bytes = x
	if t.comparing {
		x += max(11, canvas.Width(t.s.Units.Delta(t.largest))+1)
		t.delta = x
	}
	if w >= 44 {
		x += 8
		t.blocks = x
	}
	if w >= 36 && !t.comparing {
		x += 6
		t.share = x
	}
	if w >= 64 && !t.comparing {
		bar := min((w-x)/6, 16)
		if w < 90 { // too little room: names come first
			bar = min(bar, w-x-6-longest)
		}
		if bar >= 3 {
			t.bar, t.barW = x+2, bar
			x += 2 + bar
		}
	}
	t.name = x + 2
}

func (t *table) head(c *canvas.Canvas, by sites.By) {
	st := t.s.Theme.Header
	c.TextRight(t.bytes, 0, st, t.unit)
	if t.comparing {
		c.TextRight(t.delta, 0, st, "since mark")
	}
	if t.blocks > 0 {
		c.TextRight(t.blocks, 0, st, "blocks")
	}
	if t.share > 0 {
		c.TextRight(t.share, 0, st, "share")
	}
	c.Text(t.name+2, 0, st, by.String())
}

func (t *table) row(c *canvas.Canvas, y int, r *row, by sites.By, chosen bool) {
	th := t.s.Theme
	text, dim := th.Text, th.Dim
	if chosen {
		text, dim = th.OnSelected(th.Strong), th.OnSelected(th.Dim)
		c.Fill(canvas.Rect{Y: y, W: t.w, H: 1}, ' ', text)
	}
	cat := r.Category
	if by != sites.ByCategory {
		cat = timeline.Unknown
		if r.Largest != timeline.NoAlloc {
			cat = t.s.Device.Allocs.Category[r.Largest]
		}
	}
	c.TextRight(t.bytes, y, text, t.size(r.Bytes))
	if t.comparing {
		st := th.Dim
		switch d := r.delta(); {
		case d > 0:
			st = th.Warn
		case d < 0:
			st = th.Good
		}
		if chosen {
			st = th.OnSelected(st)
		}
		text := "="
		if r.delta() != 0 {
			text = t.s.Units.Delta(r.delta())
		}
		c.TextRight(t.delta, y, st, text)
	}
	if t.blocks > 0 {
		c.TextRight(t.blocks, y, dim, leaf.Count(int64(r.Blocks)))
	}
	if t.share > 0 {
		c.TextRight(t.share, y, dim, leaf.Percent(r.Bytes, t.total))
	}
	if t.barW > 0 {
		c.Bar(t.bar, y, t.barW, r.Bytes, t.largest, th.Fill(cat))
	}
	glyph := th.Category(cat)
	if chosen {
		glyph = th.OnSelected(glyph)
	}
	c.Text(t.name, y, glyph, th.Glyph(cat))
	label := name(r)
	if r.Inferred && by == sites.ByCategory {
		label = "~" + label
	}
	if by == sites.ByStack && r.Stack == traces.NoStack {
		label = "recorded without a stack"
	}
	if by == sites.BySite || by == sites.ByStack {
		text = leaf.Linked(t.s, t.s.Device, r.Stack, text)
	}
	c.TextMax(t.name+2, y, t.w-t.name-2, text, label)
}

func (v *View) drawTree(s *leaf.State, c *canvas.Canvas) {
	w, _ := c.Size()
	k, root, ok := v.tree.Value()
	if !ok || root == nil || k.device != s.Device {
		if v.tree.Pending() {
			leaf.Working(s, c, "building the icicle")
		}
		return
	}
	title := "by " + k.by.String()
	if v.inTree {
		title += ", arrows move, enter zooms"
	} else {
		title += ", i or a click enters"
	}
	leaf.Rule(s, c, 0, 0, w, title)
	v.chart.Draw(s, c.Sub(canvas.Rect{Y: 1, W: w, H: c.Height() - 1}))
}

// logits sums the rows that are logits, which the Overview counts as one holder. It also returns how many
// there are, and the largest other row.
func (v *View) logits() (bytes int64, rows int, other *row) {
	for i := range v.rows {
		switch r := &v.rows[i]; {
		case r.Logits:
			bytes, rows = bytes+r.Bytes, rows+1
		case other == nil && r.Largest != timeline.NoAlloc:
			other = r
		}
	}
	return bytes, rows, other
}
