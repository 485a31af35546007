package overview

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// columns are the widths of the tables side by side, 0 for a table that is not shown.
type columns struct{ categories, holders, iterations int }

// divide gives the tables their columns. From 150 columns on, or without iterations to compare, the holders
// stand beside the other tables; otherwise below them, if there are rows left.
func divide(s *leaf.State, w int) columns {
	iterations := s.Analysed && len(steps.Of(s.Device).List) > 1
	switch {
	case w >= 150 && iterations:
		left, right := min(w*3/10, 60), min(w*3/10, 62)
		return columns{left, w - left - right - 6, right}
	case w >= 150 || !iterations:
		left := min(w*9/20, 70)
		return columns{left, w - left - 3, 0}
	}
	left := w * 9 / 20
	return columns{left, 0, w - left - 3}
}

// How many rows a table of iterations or of holders should show, if it has as many.
const (
	mostIterations = 8
	mostHolders    = 12
)

// tableRows is how many rows the tables can fill, including the holders below the others.
func (v *View) tableRows(s *leaf.State, w int) int {
	d, e, ok := v.most.Value()
	if !ok || d != s.Device {
		e = extent{int(timeline.NumCategories), mostHolders}
	}
	cols := divide(s, w)
	rows := max(1+e.categories, iterationRows(s, cols))
	if cols.holders > 0 {
		most := mostHolders
		if instant(s.Device) { // no chart needs the room
			most = max(most, s.Height/3)
		}
		return max(rows, 1+min(e.sites, most))
	}
	return rows + 2 + min(e.sites, mostHolders/2)
}

// iterationRows is how many rows the table of iterations can fill.
func iterationRows(s *leaf.State, cols columns) int {
	if cols.iterations == 0 {
		return 0
	}
	its := steps.Of(s.Device)
	rows := 2 + min(len(its.List), mostIterations)
	if trend(s, its) != "" {
		rows++
	}
	return rows
}

// drawTables draws what is held at the cursor by category and by call site, and how the iterations compare.
// If there is too little room the holders go first; the categories always stay.
func (v *View) drawTables(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	if h < 2 {
		return
	}
	cols := divide(s, w)
	if cols.holders == 0 {
		h = v.drawHoldersBelow(s, c)
	}
	v.drawCategories(s, c.Sub(canvas.Rect{W: cols.categories, H: h}))
	x := cols.categories + 3
	if cols.holders > 0 {
		v.drawHolders(s, c.Sub(canvas.Rect{X: x, W: cols.holders, H: h}))
		x += cols.holders + 3
	}
	if cols.iterations > 0 {
		v.drawIterations(s, c.Sub(canvas.Rect{X: x, W: cols.iterations, H: h}))
	}
}

// drawHoldersBelow draws the holders at full width in the rows that the other tables leave, and returns how
// many rows those keep.
func (v *View) drawHoldersBelow(s *leaf.State, c *canvas.Canvas) int {
	w, h := c.Size()
	categories := 1 + len(v.rows())
	if len(v.elsewhere(s)) > 0 {
		categories++
	}
	above := max(categories, iterationRows(s, divide(s, w)))
	rest := h - above
	if rest > 3 { // a blank row, a rule, two holders
		rest--
	}
	if rest < 3 {
		return h
	}
	v.drawHolders(s, c.Sub(canvas.Rect{Y: h - rest, W: w, H: rest}))
	return above
}

// moment names the moment that the tables show.
func moment(s *leaf.State) string {
	if s.Cursor == s.Device.Totals.PeakAt {
		return leaf.Title(leaf.AtPeak(s.Device))
	}
	if s.Device.Len() < 2 {
		return leaf.Title(leaf.When(s, s.Cursor))
	}
	return "At the cursor, " + leaf.When(s, s.Cursor)
}

// categoryName names a row of the breakdown by category.
func categoryName(g *sites.Group) string {
	name := g.Category.String()
	if g.Largest == timeline.NoAlloc {
		name = g.Name // bytes without a block
	}
	if g.Inferred {
		name = "~" + name
	}
	return name
}

func (v *View) drawCategories(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	total := s.Device.Allocated.At(s.Cursor)
	key, groups, ok := v.parts.Value()
	title := moment(s) + "  " + s.Units.Bytes(total)
	if ok && key.device == s.Device && s.Device.RequestedKnown() {
		requested := int64(0)
		for _, g := range groups {
			requested += g.Requested
		}
		beside := "  requested " + s.Units.Bytes(requested)
		if requested != total && canvas.Width(title+beside)+4 <= w {
			title += beside
		}
	}
	leaf.Rule(s, c, 0, 0, w, title)
	if !ok || key.device != s.Device {
		return
	}
	largest := int64(1)
	for _, g := range groups {
		largest = max(largest, g.Bytes)
	}
	unit, size := s.Units.Column(largest)
	nameW, sizeW := 18, 8
	if w < 38 { // no bars: move the unit closer
		sizeW = 7
	}
	sizeW = max(sizeW, canvas.Width(size(largest)))
	for _, g := range v.rows() { // bytes that are in no block have a longer name than categories
		if n := canvas.Width(categoryName(&g)) + 2; w >= 46 && n > nameW {
			nameW = n
		}
	}
	for i, g := range v.rows() {
		y := 1 + i
		if y >= h {
			break
		}
		st := s.Theme.Text
		if i == v.picked {
			c.Fill(canvas.Rect{Y: y, W: w, H: 1}, ' ', s.Theme.OnSelected(st))
			st = s.Theme.OnSelected(st)
		}
		glyph := s.Theme.Category(g.Category)
		if i == v.picked {
			glyph = s.Theme.OnSelected(glyph)
		}
		c.Text(0, y, glyph, s.Theme.Glyph(g.Category))
		name := categoryName(&g)
		if g.Largest == timeline.NoAlloc && canvas.Width(name) > nameW-2 {
			name = "unrecorded" // in a narrow window
		}
		c.TextMax(2, y, nameW-2, st, name)
		if i == 0 && w >= nameW+sizeW+10 {
			c.Text(nameW+sizeW+1, y, st.Fg(s.Theme.Dim.FG), unit)
		}
		if w >= nameW+sizeW+6 {
			c.TextRight(nameW+sizeW, y, st, size(g.Bytes))
		}
		pct := leaf.Percent(g.Bytes, total)
		room := w - nameW - sizeW - 5 - 6
		if room >= 4 {
			c.Bar(nameW+sizeW+5, y, room, g.Bytes, max(total, 1), s.Theme.Fill(g.Category))
		}
		c.TextRight(w, y, st, pct)
		c.Zone(canvas.Rect{Y: y, W: w, H: 1}, pickMsg{i})
	}
	v.drawElsewhere(s, c, 1+len(v.rows()))
}

// elsewhere are the categories that the chart shows and that hold nothing at the cursor, the largest first.
func (v *View) elsewhere(s *leaf.State) []timeline.Category {
	shown := v.usage.Shown(s)
	for _, g := range v.rows() {
		shown[g.Category] = 0
	}
	var list []timeline.Category
	for cat, bytes := range shown {
		if bytes > 0 {
			list = append(list, timeline.Category(cat))
		}
	}
	slices.SortStableFunc(list, func(a, b timeline.Category) int { return cmp.Compare(shown[b], shown[a]) })
	return list
}

// drawElsewhere names in row y the colours of the chart that hold nothing at the cursor, as many as have
// room.
func (v *View) drawElsewhere(s *leaf.State, c *canvas.Canvas, y int) {
	w, h := c.Size()
	if y >= h {
		return
	}
	x := 0
	for _, cat := range v.elsewhere(s) {
		name := cat.String()
		if x+2+canvas.Width(name) > w {
			continue
		}
		c.Text(x, y, s.Theme.Category(cat), s.Theme.Glyph(cat))
		x += 2 + c.Text(x+2, y, s.Theme.Dim, name) + 2
	}
	if note := "none here"; x > 0 && x+canvas.Width(note) <= w {
		c.Text(x, y, s.Theme.Faint, note)
	}
}

func (v *View) drawHolders(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	key, groups, ok := v.holders.Value()
	if !ok || key.device != s.Device || len(groups) == 0 {
		leaf.Rule(s, c, 0, 0, w, "Largest holders")
		return
	}
	unit, size := s.Units.Column(groups[0].Bytes)
	leaf.Rule(s, c, 0, 0, w, "Largest holders, "+unit)
	sizeW := max(6, canvas.Width(size(groups[0].Bytes)))
	nameX := sizeW + 4
	for i, g := range groups {
		y := 1 + i
		if y >= h {
			break
		}
		row := canvas.Rect{Y: y, W: w, H: 1}
		if y == h-1 && i+1 < len(groups) {
			var rest int64
			for _, g := range groups[i:] {
				rest += g.Bytes
			}
			c.TextRight(sizeW, y, s.Theme.Dim, size(rest))
			c.TextMax(nameX, y, w-nameX, s.Theme.Dim,
				fmt.Sprintf("%s more call sites", leaf.Count(int64(len(groups)-i))))
			c.Zone(row, leaf.ShowMsg{View: leaf.Peak})
			break
		}
		c.TextRight(sizeW, y, s.Theme.Text, size(g.Bytes))
		if g.Largest != timeline.NoAlloc {
			cat := s.Device.Allocs.Category[g.Largest]
			c.Text(sizeW+2, y, s.Theme.Category(cat), s.Theme.Glyph(cat))
		}
		blocks := ""
		if g.Blocks > 1 {
			blocks = "×" + leaf.Count(int64(g.Blocks))
		}
		name := g.Name
		if name == "" {
			name = "no stack recorded"
		}
		if g.Logits {
			name = leaf.LogitsMark + name
		}
		st := leaf.Linked(s, s.Device, g.Stack, s.Theme.Text)
		c.TextMax(nameX, y, w-nameX-canvas.Width(blocks)-1, st, name)
		c.TextRight(w, y, s.Theme.Dim, blocks)
		c.Zone(row, leaf.SelectMsg{Alloc: g.Largest})
	}
}

// column is a column of the table of iterations.
type column struct {
	head  string
	width int
	text  func(i int) string
}

// drawIterations draws the iterations around the cursor's. If there is too little room, columns are dropped
// from the right: new sites, growth, churn.
func (v *View) drawIterations(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	its := steps.Of(s.Device)
	list := its.List
	title := "Across iterations"
	switch its.Source {
	case steps.FromOptimizer:
		title += "  ~ by optimizer step"
	case steps.FromPeriodicity:
		title += "  ~ by repetition"
	}
	leaf.Rule(s, c, 0, 0, w, title)
	cols := iterationColumns(s, list, w)
	x := 0
	for _, col := range cols {
		x += col.width
		c.TextRight(x, 1, s.Theme.Header, col.head)
	}
	here := sort.Search(len(list), func(i int) bool { return list[i].First > s.Cursor }) - 1
	foot := trend(s, its)
	if here >= 0 && list[here].Why(s.Units) != "" {
		foot = list[here].Name + ": " + list[here].Why(s.Units)
	}
	room := h - 2
	if foot != "" && room > 2 {
		room = min(room-1, len(list))
		c.TextMax(0, 2+room, w, s.Theme.Dim, foot)
	}
	from := max(min(here-room/2, len(list)-room), 0)
	for i := from; i < len(list) && i-from < room; i++ {
		it := &list[i]
		y := 2 + i - from
		st := s.Theme.Text
		if it.Odd {
			st = s.Theme.Warn
		}
		if i == here {
			st = s.Theme.OnSelected(st)
			c.Fill(canvas.Rect{Y: y, W: w, H: 1}, ' ', st)
		}
		x := 0
		for _, col := range cols {
			x += col.width
			c.TextRight(x, y, st, col.text(i))
		}
		if it.Why(s.Units) != "" && w-x-2 >= 16 {
			c.TextMax(x+2, y, w-x-2, st, it.Why(s.Units))
		}
		c.Zone(canvas.Rect{Y: y, W: w, H: 1}, leaf.CursorMsg{To: it.PeakAt})
	}
}

func iterationColumns(s *leaf.State, list []steps.Iteration, w int) []column {
	var peak, churn, growth int64 = 1, 1, 1
	for i := range list {
		peak, churn, growth = max(peak, list[i].PeakAllocated), max(churn, list[i].Churn),
			max(growth, list[i].Growth, -list[i].Growth)
	}
	peakUnit, peakText := s.Units.Column(peak)
	churnUnit, churnText := s.Units.Column(churn)
	cols := []column{
		{"iter", 5, func(i int) string { return ordinal(list, i) }},
		{"peak " + peakUnit, max(10, canvas.Width(peakText(peak))+2),
			func(i int) string { return peakText(list[i].PeakAllocated) }},
	}
	if s.Timeline.Trace.Clock.HasTime {
		cols = append(cols, column{"step", 10, func(i int) string {
			return timeline.Duration(list[i].Finish - list[i].Start)
		}})
	}
	for _, col := range []column{
		{"allocs " + churnUnit, max(12, canvas.Width(churnText(churn))+2),
			func(i int) string { return churnText(list[i].Churn) }},
		{"growth", max(12, canvas.Width(s.Units.Delta(growth))+2),
			func(i int) string { return s.Units.Delta(list[i].Growth) }},
		{"new sites", 11, func(i int) string { return "+" + leaf.Count(int64(list[i].NewSites)) }},
	} {
		used := 0
		for _, c := range cols {
			used += c.width
		}
		if used+col.width <= w {
			cols = append(cols, col)
		}
	}
	return cols
}

// ordinal is the number in iteration i's name or, if that is long, its position in the recording.
func ordinal(list []steps.Iteration, i int) string {
	if n := steps.IterationNumber(list[i].Name); len(n) <= 4 {
		return n
	}
	return leaf.Count(int64(i + 1))
}

// trend says in half a sentence whether the steady iterations grow.
func trend(s *leaf.State, its *steps.Iterations) string {
	t := its.Trend
	switch {
	case t.Points < 3:
		return ""
	case t.Leaking:
		return fmt.Sprintf("grows %s an iteration (%s to %s): 5 shows where",
			s.Units.Delta(int64(t.Slope)), s.Units.Delta(int64(t.Low)), s.Units.Delta(int64(t.High)))
	}
	if t.Unseen {
		return "a leak would not show: only blocks that the next step uses are followed"
	}
	if t.Slope == 0 && t.High == t.Low {
		return "no leak: memory does not grow"
	}
	return fmt.Sprintf("steady: no leak (%s ± %s an iteration)", s.Units.Delta(int64(t.Slope)),
		s.Units.Bytes(int64((t.High-t.Low)/2)))
}
