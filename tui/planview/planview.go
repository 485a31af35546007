package planview

import (
	"context"
	"slices"
	"strings"

	bkey "charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// View shows one plan or two on one clock. It is used from Update and Draw only.
type View struct {
	p      *plan.Problem
	budget int64
	panes  []*pane
	front  int // the pane that keys and the table refer to

	cursor   int64
	from, to int64
	begun    bool // cursor and window are set

	table    *table.Table
	states   []state // what the table lists
	away     int64
	onHost   int64
	listed   listing
	selected plan.BufferID

	drag drag

	w, h   int // of the last Draw
	layout layout
	keys   keymap
}

// drag is a pan with the mouse: where the button went down, and what was on the screen then.
type drag struct {
	down         bool
	fromX, width int
	window       timeline.Window
}

// listing is what the table's rows were made for.
type listing struct {
	scene  *scene
	cursor int64
}

// pane is one plan.
type pane struct {
	plan   Plan
	scene  leaf.Query[int, *scene]
	raster leaf.Query[key, *raster]
	lanes  canvas.Rect // of the last Draw
	plot   canvas.Rect
	text   string // what the plan does, once the scene is known
}

type keymap struct {
	move, op, rows, tab, zoom, whole, peak, stall, leave bkey.Binding
}

// The columns of the table.
const (
	colBuffer = iota
	colSize
	colState
	colWhy
	colUntil
)

// New looks into plans of one problem; budget is the line drawn in the maps, 0 for none.
func New(p *plan.Problem, budget int64, plans []Plan) *View {
	bind := func(help, desc string, ks ...string) bkey.Binding {
		return bkey.NewBinding(bkey.WithKeys(ks...), bkey.WithHelp(help, desc))
	}
	v := &View{
		p: p, selected: plan.NoBuffer,
		table: table.New(
			table.Column{Title: "buffer", Width: 20, Max: 30},
			table.Column{Title: "size", Width: 9, Right: true},
			table.Column{Title: "is", Width: 11},
			table.Column{Title: "why", Width: 30, Max: 80, Drop: 1},
			table.Column{Title: "until", Width: 18, Max: 36},
		),
		keys: keymap{
			move: bind("←→", "time", "left", "right", "h", "l"), op: bind(", .", "op", ",", "."),
			rows: bind("↑↓", "buffer", "up", "down", "k", "j"),
			tab:  bind("tab", "other plan", "tab", "shift+tab"),
			zoom: bind("+−", "zoom", "+", "=", "-", "_"), whole: bind("z", "whole step", "z"),
			peak: bind("p", "peak", "p"), stall: bind("n", "next stall", "n"),
			leave: bind("esc", "back", "esc"),
		},
	}
	if budget > 0 {
		v.budget = max(budget-p.Outside, 0)
	}
	for _, x := range plans {
		v.panes = append(v.panes, &pane{plan: x})
	}
	return v
}

// Take takes an answer to one of the view's own questions, and reports whether msg was one.
func (v *View) Take(msg tea.Msg) (tea.Cmd, bool) {
	for _, p := range v.panes {
		switch {
		case p.scene.Take(msg):
			if _, sc, ok := p.scene.Value(); ok {
				p.text = summary(sc)
			}
			v.begin()
			v.list()
			return v.rasters(), true
		case p.raster.Take(msg):
			return nil, true
		}
	}
	return nil, false
}

// Ask asks for what to draw in the given room.
func (v *View) Ask(s *leaf.State) tea.Cmd {
	if s.Width > 0 && s.Height > 0 {
		v.w, v.h = s.Width, s.Height
	}
	var cmds []tea.Cmd
	for i, p := range v.panes {
		problem, of := v.p, p.plan
		cmds = append(cmds, p.scene.Ask(i+1, func(ctx context.Context) (*scene, error) {
			return newScene(ctx, problem, of)
		}))
	}
	return tea.Batch(append(cmds, v.rasters())...)
}

// scenes returns the scenes, nil until all are known.
func (v *View) scenes() []*scene {
	var list []*scene
	for _, p := range v.panes {
		_, s, ok := p.scene.Value()
		if !ok {
			return nil
		}
		list = append(list, s)
	}
	return list
}

// begin sets the window to all of it and the cursor to the first plan's peak, once the scenes are known.
func (v *View) begin() {
	list := v.scenes()
	if v.begun || list == nil {
		return
	}
	v.begun = true
	v.from, v.to = 0, v.span()
	v.cursor = list[0].peakAt
}

// span is the length of the clock that the plans share: that of the slower one.
func (v *View) span() int64 {
	var n int64 = 1
	for _, s := range v.scenes() {
		n = max(n, s.span)
	}
	return n
}

// top is the bytes at the upper edge of the maps, the same for both so that heights compare.
func (v *View) top() int64 {
	var n int64 = 1
	for _, s := range v.scenes() {
		n = max(n, s.top)
	}
	if v.budget > n && v.budget < 2*n {
		n = v.budget
	}
	return n + n/32
}

// rasters asks for the rasters of the window in view.
func (v *View) rasters() tea.Cmd {
	list := v.scenes()
	if list == nil || !v.begun {
		return nil
	}
	l := v.place(v.w, v.h)
	var cmds []tea.Cmd
	for i, p := range v.panes {
		k := key{v.from, v.to, v.top(), l.plots[i].W, l.plots[i].H}
		sc := list[i]
		cmds = append(cmds, p.raster.Ask(k, func(ctx context.Context) (*raster, error) {
			return sc.raster(ctx, k)
		}))
	}
	return tea.Batch(cmds...)
}

// list makes the table's rows for the cursor.
func (v *View) list() {
	sc := v.current()
	if sc == nil || !v.begun {
		return
	}
	if v.listed == (listing{sc, v.cursor}) {
		return
	}
	v.listed = listing{sc, v.cursor}
	v.states, v.away, v.onHost = sc.statesAt(v.cursor)
	v.table.SetRows(len(v.states))
	for i := range v.states {
		if v.states[i].buffer == v.selected {
			v.table.Select(i)
			return
		}
	}
	v.table.Select(0)
}

// current returns the scene in front, nil until it is known.
func (v *View) current() *scene {
	if list := v.scenes(); list != nil {
		return list[v.front]
	}
	return nil
}

// Update handles a message; leave means that the user wants to go back.
func (v *View) Update(s *leaf.State, msg tea.Msg) (cmd tea.Cmd, leave bool) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		if bkey.Matches(msg, v.keys.leave) {
			return nil, true
		}
		return mover{v}.onKey(msg), false
	case tea.MouseMsg:
		return mover{v}.onMouse(msg), false
	}
	return nil, false
}

// Bindings are the keys that do something now.
func (v *View) Bindings() []bkey.Binding {
	k := &v.keys
	if v.current() == nil {
		return []bkey.Binding{k.leave}
	}
	list := []bkey.Binding{k.leave, k.move, k.op, k.rows, k.zoom, k.peak, k.stall, k.whole}
	if len(v.panes) > 1 {
		list = slices.Insert(list, 1, k.tab)
	}
	return list
}

// Status gives the list's selected row in full.
func (v *View) Status(s *leaf.State) string {
	sc, i := v.current(), v.table.Selected()
	if sc == nil || i < 0 || i >= len(v.states) {
		return ""
	}
	x := &v.states[i]
	text := sc.bufferName(x.buffer)
	if id := sc.identity(x.buffer); id != text {
		text += " · " + id
	}
	text += " · " + s.Units.Bytes(x.size) + " · " + stateCell(s, x).Text
	if x.why != "" {
		text += " · " + x.why
	}
	if x.until != "" {
		text += " until " + x.until
	}
	return text
}

// summary describes a plan in one clause.
func summary(sc *scene) string {
	m := &sc.plan.Result.Measurement
	var swaps, drops, discards int
	for i := range sc.gone {
		switch sc.gone[i].How {
		case plan.Swap:
			swaps++
		case plan.Recompute:
			drops++
		default:
			discards++
		}
	}
	switch {
	case swaps+drops+discards == 0 && !sc.placed:
		return "keeps everything and lets the allocator choose addresses as it runs"
	case swaps+drops+discards == 0:
		return "keeps everything, each buffer at a planned address"
	}
	var parts []string
	if swaps > 0 {
		parts = append(parts, "swaps "+counted(swaps))
	}
	if drops > 0 {
		again := "drops " + counted(drops)
		if m.RecomputeTime > 0 && sc.clock {
			again += " and recomputes them in " + timeline.Duration(m.RecomputeTime)
		} else {
			again += " and recomputes them"
		}
		parts = append(parts, again)
	}
	if discards > 0 {
		parts = append(parts, "discards "+counted(discards)+" that are never read again")
	}
	text := strings.Join(parts, ", ")
	if sc.clock {
		if m.Stall > 0 {
			text += "; compute waits " + timeline.Duration(m.Stall) + " for copies"
		} else if swaps > 0 {
			text += "; no copy delays compute"
		}
	}
	return text
}

func counted(n int) string {
	if n == 1 {
		return "one buffer"
	}
	return leaf.Count(int64(n)) + " buffers"
}

// title is the line above a pane.
func (p *pane) title(s *leaf.State) string {
	m := &p.plan.Result.Measurement
	text := s.Units.Bytes(m.Footprint)
	if _, sc, ok := p.scene.Value(); ok && sc.clock {
		text += ", step " + timeline.Duration(m.StepTime) + " (" + replay.Percent(p.plan.Result.Overhead) +
			")"
	}
	return text
}
