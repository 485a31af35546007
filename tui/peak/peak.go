// Package peak shows what is alive at one moment, at first the peak: a table with a choice of groupings, an
// icicle by stack or module beside it, and the difference to a marked moment.
package peak

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/icicle"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// View is the peak view.
type View struct {
	by     sites.By
	device *timeline.Device // that by was chosen for
	groups leaf.Query[question, []leaf.Holder]
	marked leaf.Query[question, []leaf.Holder]
	tree   leaf.Query[question, *sites.Node]
	chart  icicle.Chart
	rows   []row
	built  built       // what rows were made from
	at     int         // chosen row
	top    int         // first visible row
	height int         // visible rows at the last draw
	loose  bool        // the wheel has scrolled: the chosen row may be out of sight
	list   canvas.Rect // the table at the last draw, in the view's cells
	inTree bool        // keys move in the icicle
	wide   bool        // the icicle stands beside the table
	keys   keyMap
}

type question struct {
	device *timeline.Device
	moment timeline.Moment
	by     sites.By
}

type built struct {
	now, then question
	marked    bool
	ok, okM   bool
}

// row is a group at the cursor and, when comparing, what it held at the mark.
type row struct {
	leaf.Holder
	before       int64
	beforeBlocks int
}

func (r *row) delta() int64 { return r.Bytes - r.before }

type keyMap struct {
	group, groupBack, rows, pages, open, tree, treeMove, out, unmark key.Binding
}

// New returns the peak view.
func New() *View {
	return &View{by: sites.BySite, keys: keyMap{
		group:     key.NewBinding(key.WithKeys("tab"), key.WithHelp("tab", "group by")),
		groupBack: key.NewBinding(key.WithKeys("shift+tab"), key.WithHelp("shift+tab", "previous grouping")),
		rows:      key.NewBinding(key.WithKeys("up", "down", "k", "j"), key.WithHelp("↑↓", "row")),
		pages: key.NewBinding(key.WithKeys("pgup", "ctrl+u", "ctrl+b", "pgdown", "ctrl+d", "ctrl+f",
			"home", "end"), key.WithHelp("pgup/pgdn", "page")),
		open: key.NewBinding(key.WithKeys("enter"), key.WithHelp("enter", "its blocks")),
		tree: key.NewBinding(key.WithKeys("i"), key.WithHelp("i", "icicle")),
		treeMove: key.NewBinding(key.WithKeys("left", "right", "up", "down", "h", "j", "k", "l"),
			key.WithHelp("←→↑↓", "box")),
		out:    key.NewBinding(key.WithKeys("esc", "backspace"), key.WithHelp("esc", "zoom out")),
		unmark: key.NewBinding(key.WithKeys("d"), key.WithHelp("d", "stop comparing")),
	}}
}

// ID implements leaf.View.
func (v *View) ID() leaf.ID { return leaf.Peak }

// Name implements leaf.View.
func (v *View) Name() string { return "Peak" }

// Available implements leaf.View.
func (v *View) Available(s *leaf.State) (bool, string) {
	switch {
	case s.Device == nil:
		return false, leaf.NoDevice
	case s.Device.Allocs.Len() == 0:
		return false, "The recording holds no allocation on this device. " + leaf.HowToRecord(s)
	}
	return true, ""
}

// Bindings implements leaf.View.
func (v *View) Bindings(s *leaf.State) []key.Binding {
	if v.inTree {
		tree, open := v.keys.tree, v.keys.open
		tree.SetHelp("i", "table")
		open.SetHelp("enter", "zoom")
		out := []key.Binding{v.keys.treeMove, open}
		if v.chart.Zoomed() {
			out = append(out, v.keys.out)
		} else {
			tree.SetKeys("i", "esc")
		}
		return append(out, tree, v.keys.group, v.keys.groupBack)
	}
	out := []key.Binding{v.keys.group, v.keys.rows, v.keys.open, v.keys.tree, v.keys.pages, v.keys.groupBack}
	if s.HasMark {
		out = append(out, v.keys.unmark)
	}
	return out
}

// Update implements leaf.View.
func (v *View) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case leaf.ChangedMsg:
		if v.device != s.Device && s.Device != nil {
			v.by = firstBy(s.Device, v.by)
			v.device = s.Device
		}
		return v.ask(s)
	case tea.KeyPressMsg:
		return v.onKey(s, msg)
	case pickMsg:
		again := v.at == msg.row && !v.inTree
		v.at, v.inTree = msg.row, false
		if again {
			return v.open(s)
		}
		return v.selectRow(s)
	case byMsg:
		return v.setBy(s, msg.by)
	case icicle.NodeMsg:
		v.inTree = true
		if v.chart.Chosen() == msg.Node {
			v.chart.Zoom()
			return nil
		}
		v.chart.Choose(msg.Node)
		return v.selectNode()
	case tea.MouseWheelMsg:
		v.onWheel(msg)
	default:
		if v.groups.Take(msg) || v.marked.Take(msg) {
			v.build(s)
		} else if v.tree.Take(msg) {
			_, root, ok := v.tree.Value()
			if ok {
				v.chart.SetRoot(root)
			}
		}
	}
	return nil
}

// pickMsg is a click on a row, byMsg one on the name of a grouping.
type (
	pickMsg struct{ row int }
	byMsg   struct{ by sites.By }
)

// firstBy returns the initial grouping: the current one if the recording has stacks, else one that does not
// need them.
func firstBy(d *timeline.Device, by sites.By) sites.By {
	switch by {
	case sites.BySite, sites.ByStack, sites.ByModule:
	default:
		return by
	}
	if d.Timeline().Places().Stacks.Len() > 0 {
		return by
	}
	for _, cat := range d.Allocs.Category[:min(len(d.Allocs.Category), 1000)] {
		if cat != timeline.Unknown {
			return sites.ByCategory
		}
	}
	return sites.BySize
}

func (v *View) treeBy() sites.By {
	if v.by == sites.ByModule {
		return sites.ByModule
	}
	return sites.ByStack
}

func (v *View) ask(s *leaf.State) tea.Cmd {
	d := s.Device
	if d == nil {
		return nil
	}
	breakdown := func(q question) func(context.Context) ([]leaf.Holder, error) {
		return func(context.Context) ([]leaf.Holder, error) { return leaf.Holders(d, q.moment, q.by), nil }
	}
	now := question{d, s.Cursor, v.by}
	tree := question{d, s.Cursor, v.treeBy()}
	cmds := []tea.Cmd{
		v.groups.Ask(now, breakdown(now)),
		v.tree.Ask(tree, func(context.Context) (*sites.Node, error) {
			return sites.Icicle(d, tree.moment, tree.by), nil
		}),
	}
	if s.HasMark {
		then := question{d, s.Mark, v.by}
		cmds = append(cmds, v.marked.Ask(then, breakdown(then)))
	}
	v.build(s)
	return tea.Batch(cmds...)
}

// build makes the table's rows from the answers so far. Groups of one grouping may share a name only if their
// stacks differ.
func (v *View) build(s *leaf.State) {
	now, groups, ok := v.groups.Value()
	then, before, okM := v.marked.Value()
	b := built{now, then, s.HasMark, ok, okM}
	if b == v.built {
		return
	}
	v.built = b
	v.rows = v.rows[:0]
	if !ok || now.device != s.Device || now.by != v.by {
		return
	}
	for _, g := range groups {
		v.rows = append(v.rows, row{Holder: g})
	}
	if s.HasMark && okM && then.by == v.by && then.device == s.Device {
		v.compare(before)
	}
	v.at = max(min(v.at, len(v.rows)-1), 0)
}

type groupKey struct {
	name     string
	stack    traces.StackID
	category timeline.Category
}

// keyOf returns what identifies a group at every moment: the stack of a call site is that of its largest
// block, which changes.
func keyOf(by sites.By, g *sites.Group) groupKey {
	k := groupKey{g.Name, g.Stack, g.Category}
	if by == sites.BySite {
		k.stack = traces.NoStack
	}
	return k
}

// compare adds what each group held at the mark and orders the rows by how much changed.
func (v *View) compare(before []leaf.Holder) {
	index := make(map[groupKey]int, len(v.rows))
	for i := range v.rows {
		index[keyOf(v.by, &v.rows[i].Group)] = i
	}
	for _, g := range before {
		i, ok := index[keyOf(v.by, &g.Group)]
		if !ok {
			i = len(v.rows)
			gone := g
			gone.Bytes, gone.Requested, gone.Blocks = 0, 0, 0
			v.rows = append(v.rows, row{Holder: gone})
		}
		v.rows[i].before, v.rows[i].beforeBlocks = g.Bytes, g.Blocks
	}
	slices.SortStableFunc(v.rows, func(a, b row) int {
		return cmp.Compare(max(b.delta(), -b.delta()), max(a.delta(), -a.delta()))
	})
}

func (v *View) setBy(s *leaf.State, by sites.By) tea.Cmd {
	v.by = (by + sites.NumBy) % sites.NumBy
	v.at, v.top, v.loose = 0, 0, false
	v.built = built{}
	return v.ask(s)
}

func (v *View) onKey(s *leaf.State, msg tea.KeyPressMsg) tea.Cmd {
	switch {
	case key.Matches(msg, v.keys.group):
		return v.setBy(s, v.by+1)
	case key.Matches(msg, v.keys.groupBack):
		return v.setBy(s, v.by+sites.NumBy-1)
	case key.Matches(msg, v.keys.tree):
		v.inTree = !v.inTree
		if v.inTree && v.chart.Chosen() == nil {
			v.chart.Move(0, 0)
		}
		return nil
	case v.inTree:
		return v.onTreeKey(msg)
	case key.Matches(msg, v.keys.rows) && (msg.String() == "up" || msg.String() == "k"):
		return v.move(s, -1)
	case key.Matches(msg, v.keys.rows):
		return v.move(s, 1)
	case key.Matches(msg, v.keys.pages):
		up, down := -v.height, v.height
		by := map[string]int{"pgup": up, "ctrl+u": up, "ctrl+b": up, "pgdown": down, "ctrl+d": down,
			"ctrl+f": down, "home": -len(v.rows), "end": len(v.rows)}
		return v.move(s, by[msg.String()])
	case key.Matches(msg, v.keys.open):
		return v.open(s)
	case s.HasMark && key.Matches(msg, v.keys.unmark):
		return leaf.Send(leaf.UnmarkMsg{})
	}
	return nil
}

func (v *View) onTreeKey(msg tea.KeyPressMsg) tea.Cmd {
	switch k := msg.String(); {
	case key.Matches(msg, v.keys.open):
		v.chart.Zoom()
	case key.Matches(msg, v.keys.out):
		if !v.chart.Out() && msg.String() == "esc" {
			v.inTree = false
			return nil
		}
	case k == "left" || k == "h":
		v.chart.Move(-1, 0)
	case k == "right" || k == "l":
		v.chart.Move(1, 0)
	case k == "up" || k == "k":
		v.chart.Move(0, -1)
	case k == "down" || k == "j":
		v.chart.Move(0, 1)
	}
	return v.selectNode()
}

// selectNode selects the largest block below the chosen box.
func (v *View) selectNode() tea.Cmd {
	if n := v.chart.Chosen(); n != nil && n.Largest != timeline.NoAlloc {
		return leaf.Send(leaf.SelectMsg{Alloc: n.Largest})
	}
	return nil
}

// onWheel scrolls the table and leaves the chosen row as it is.
func (v *View) onWheel(msg tea.MouseWheelMsg) {
	if v.list.Contains(msg.X, msg.Y) {
		switch msg.Button {
		case tea.MouseWheelUp:
			v.top, v.loose = v.top-3, true
		case tea.MouseWheelDown:
			v.top, v.loose = v.top+3, true
		}
	}
}

func (v *View) move(s *leaf.State, by int) tea.Cmd {
	v.loose = false
	v.at = max(min(v.at+by, len(v.rows)-1), 0)
	return v.selectRow(s)
}

// selectRow selects the largest block of the chosen row, in all views.
func (v *View) selectRow(*leaf.State) tea.Cmd {
	if v.at >= len(v.rows) {
		return nil
	}
	return leaf.Send(leaf.SelectMsg{Alloc: v.rows[v.at].Largest})
}

// open opens the blocks of the chosen row in the table of allocations.
func (v *View) open(s *leaf.State) tea.Cmd {
	if v.at >= len(v.rows) {
		return nil
	}
	text := queryFor(s, v.by, &v.rows[v.at])
	if text == "" {
		return leaf.Send(leaf.ToastMsg{Text: "the table of allocations cannot be filtered by " +
			v.by.String()})
	}
	return tea.Sequence(leaf.Send(leaf.QueryMsg{Text: text}), leaf.Send(leaf.ShowMsg{View: leaf.Allocations}))
}

// queryFor returns the filter that selects a row's blocks, "" if no filter can.
func queryFor(s *leaf.State, by sites.By, r *row) string {
	switch by {
	case sites.ByCategory:
		return "live cat:" + r.Category.String() + " sort:-size"
	case sites.BySite:
		return fmt.Sprintf("live site:%d sort:-size", r.Stack)
	case sites.ByStack:
		return fmt.Sprintf("live stack:%d sort:-size", r.Stack)
	case sites.ByModule:
		if r.Largest != timeline.NoAlloc && sites.Module(s.Device, s.Device.Origin(r.Largest)) != "" {
			return "live " + r.Name + " sort:-size"
		}
	case sites.BySize:
		if r.Largest == timeline.NoAlloc {
			return ""
		}
		low := int64(1)
		for low*2 <= s.Device.Allocs.Rounded[r.Largest] {
			low *= 2
		}
		return fmt.Sprintf("live size>=%d size<%d sort:-size", low, low*2)
	}
	return ""
}

// Status implements leaf.View.
func (v *View) Status(s *leaf.State) string {
	if n := v.chart.Chosen(); v.inTree && n != nil {
		name := n.Name
		if name == "" {
			name = "everything"
		}
		return fmt.Sprintf("%s: %s in %s, %s of what is held", name, s.Units.Bytes(n.Bytes),
			timeline.Counted(n.Blocks, "block"),
			leaf.Percent(n.Bytes, s.Device.Allocated.At(s.Cursor)))
	}
	if v.at < len(v.rows) && s.Selected == v.rows[v.at].Largest && s.Selected != timeline.NoAlloc {
		r := &v.rows[v.at]
		return fmt.Sprintf("%s: %s in %s (%s requested), the largest %s %s", name(r),
			s.Units.Bytes(r.Bytes), timeline.Counted(r.Blocks, "block"),
			s.Units.Bytes(r.Requested), s.Device.BlockName(r.Largest),
			s.Units.Bytes(s.Device.Allocs.Rounded[r.Largest]))
	}
	return leaf.CursorText(s)
}

// Copy implements leaf.Copier: y copies the table as tab-separated text.
func (v *View) Copy(s *leaf.State) (text, what string) {
	if len(v.rows) == 0 {
		return "", ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\tbytes\tblocks\n", v.by)
	for i := range v.rows {
		fmt.Fprintf(&b, "%s\t%d\t%d\n", name(&v.rows[i]), v.rows[i].Bytes, v.rows[i].Blocks)
	}
	return b.String(), fmt.Sprintf("%d rows by %s", len(v.rows), v.by)
}

func name(r *row) string {
	switch {
	case r.Name == "":
		return "unknown"
	case r.Logits:
		return leaf.LogitsMark + r.Name
	}
	return r.Name
}

// moment names the cursor's moment.
func moment(s *leaf.State) string {
	if s.Cursor == s.Device.Totals.PeakAt {
		return leaf.Title(leaf.AtPeak(s.Device))
	}
	return leaf.Title(leaf.At(s, s.Cursor))
}
