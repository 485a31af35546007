// Package segments is the view of the allocator's map at the cursor: each segment with its blocks and holes
// to scale, and how the reserved bytes divide.
package segments

import (
	"context"
	"fmt"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// view shows the segments. It implements leaf.View.
type view struct {
	state leaf.Query[moment, *timeline.AllocatorState]
	keys  keyMap

	board
	followed timeline.AllocID // the shared selection that selected was made from
	drag     bool
}

type moment struct {
	d  *timeline.Device
	at timeline.Moment
}

// flowKey is what the lines depend on.
type flowKey struct {
	st     *timeline.AllocatorState
	order  order
	scale  bool
	zoom   int
	w, h   int
	filled bool
}

// legendMsg brings a kind out, or no longer: it is a click on its name in the legend.
type legendMsg struct{ kind kind }

type keyMap struct {
	move, piece, page, ends, order, scale, zoomIn, zoomOut, hole, open key.Binding
}

func bind(help, desc string, keys ...string) key.Binding {
	return key.NewBinding(key.WithKeys(keys...), key.WithHelp(help, desc))
}

// New returns the view.
func New() leaf.View {
	return &view{
		board: board{atlas: atlas{selected: nowhere}}, followed: timeline.NoAlloc,
		keys: keyMap{
			move:    bind("↑↓", "segment", "up", "k", "down", "j"),
			piece:   bind("←→", "block", "left", "h", "right", "l"),
			page:    bind("pgup/pgdn", "page", "pgup", "ctrl+u", "ctrl+b", "pgdown", "ctrl+d", "ctrl+f"),
			ends:    bind("g/G", "first, last segment", "g", "home", "G", "end"),
			order:   bind("s", "order", "s"),
			scale:   bind("f", "one scale for all", "f"),
			zoomIn:  bind("+", "larger", "+", "="),
			zoomOut: bind("-", "smaller", "-", "_"),
			hole:    bind("U", "largest hole", "U"),
			open:    bind("enter", "in the timeline", "enter"),
		},
	}
}

// ID implements leaf.View.
func (v *view) ID() leaf.ID { return leaf.Segments }

// Name implements leaf.View.
func (v *view) Name() string { return "Segments" }

// Available implements leaf.View.
func (v *view) Available(s *leaf.State) (bool, string) {
	switch {
	case s.Device == nil:
		return false, leaf.NoDevice
	case s.Device.Info.Kind == traces.DeviceArena:
		return false, "This is a storage-allocation problem: no allocator holds segments for it. How its " +
			"buffers can be packed is in Managers (m)."
	case s.Device.Totals.Segments == 0 && s.Device.Totals.PeakReserved.Or(0) <= 0:
		return false, leaf.NoSegments(s)
	}
	return true, ""
}

// Update implements leaf.View.
func (v *view) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	if v.state.Take(msg) {
		v.settle(s)
		return nil
	}
	switch msg := msg.(type) {
	case leaf.ChangedMsg:
		if s.Device == nil {
			return nil
		}
		if v.of.d != s.Device {
			v.forget()
		}
		v.follow(s)
		d, at := s.Device, s.Cursor
		return v.state.Ask(moment{d, at}, func(ctx context.Context) (*timeline.AllocatorState, error) {
			return timeline.StateAt(ctx, d, at)
		})
	case tea.KeyPressMsg:
		return v.key(s, msg)
	case tea.MouseMsg:
		return v.mouse(s, msg)
	case legendMsg:
		if v.only == msg.kind {
			msg.kind = kindUnmapped
		}
		v.only = msg.kind
	}
	return nil
}

func (v *view) forget() {
	v.only = kindUnmapped
	v.st, v.rows, v.selected, v.top, v.of = nil, nil, nowhere, 0, moment{}
	v.followed, v.chosen = timeline.NoAlloc, false
}

// settle takes a new state: it makes the rows again, and keeps selection and scroll position if it can.
func (v *view) settle(s *leaf.State) {
	of, st, ok := v.state.Value()
	if !ok || st == nil || of.d != s.Device || st == v.st {
		return
	}
	var keep uint64
	if v.selected != nowhere && v.st != nil {
		keep = v.piece(v.selected).Addr
	}
	v.st, v.of = st, of
	v.rows = gather(st)
	sortRows(v.rows, v.order)
	v.figures = count(s.Device, st, v.rows)
	if !v.chosen { // few segments have room to be drawn to one scale
		room := v.area.H
		if room == 0 {
			room = 18
		}
		v.scale, v.chosen = len(v.rows) <= room/4, true
	}
	v.hole = largestHole(st, v.rows)
	v.flowed = flowKey{}
	v.selected = nowhere
	v.followed = timeline.NoAlloc
	v.follow(s)
	if v.selected == nowhere && keep != 0 {
		v.selected = v.locate(keep)
	}
	if v.selected == nowhere && len(v.rows) > 0 {
		v.selected = place{0, 0, 0}
	}
}

// follow selects what was selected in another view.
func (v *view) follow(s *leaf.State) {
	if v.st == nil || s.Selected == v.followed {
		return
	}
	v.followed = s.Selected
	if s.Selected == timeline.NoAlloc {
		return
	}
	if p := find(v.st, v.rows, s.Selected); p != nowhere {
		v.selected = p
		v.reveal()
	}
}

func (v *view) ready() bool { return v.st != nil && len(v.rows) > 0 && v.selected != nowhere }

func (v *view) key(s *leaf.State, msg tea.KeyPressMsg) tea.Cmd {
	if !v.ready() {
		return nil
	}
	k, page := msg.String(), max(v.area.H-1, 1)
	switch {
	case key.Matches(msg, v.keys.move):
		if k == "up" || k == "k" {
			return v.moveLines(s, -1)
		}
		return v.moveLines(s, 1)
	case key.Matches(msg, v.keys.piece):
		return v.choose(s, step(v.st, v.rows, v.selected, k == "right" || k == "l"))
	case key.Matches(msg, v.keys.page):
		if k == "pgup" || k == "ctrl+u" || k == "ctrl+b" {
			page = -page
		}
		return v.moveLines(s, page)
	case key.Matches(msg, v.keys.ends):
		if k == "g" || k == "home" {
			return v.choose(s, place{0, 0, 0})
		}
		return v.choose(s, place{int32(len(v.rows) - 1), 0, 0})
	case key.Matches(msg, v.keys.order):
		v.reorder((v.order + 1) % numOrders)
	case key.Matches(msg, v.keys.scale):
		v.scale, v.zoom, v.chosen = !v.scale, 0, true
		v.reflow()
		v.reveal()
	case v.scale && key.Matches(msg, v.keys.zoomIn):
		v.rescale(1)
	case v.scale && key.Matches(msg, v.keys.zoomOut):
		v.rescale(-1)
	case key.Matches(msg, v.keys.hole):
		if v.hole != nowhere {
			return v.choose(s, v.hole)
		}
	case key.Matches(msg, v.keys.open):
		if v.piece(v.selected).Alloc != timeline.NoAlloc {
			return leaf.Send(leaf.ShowMsg{View: leaf.Timeline})
		}
	}
	return nil
}

// moveLines selects the piece n lines below, at the same place across.
func (v *view) moveLines(s *leaf.State, n int) tea.Cmd {
	v.reflow()
	if v.lines.len() == 0 {
		return nil
	}
	at := v.piece(v.selected).Addr
	line := v.lines.lineOf(v.rows, int(v.selected.row), at)
	_, from, to := v.lines.at(v.rows, line)
	share := float64(at-min(from, at)) / float64(max(to-from, 1))
	line = min(max(line+n, 0), v.lines.len()-1)
	i, from, to := v.lines.at(v.rows, line)
	if i == int(v.selected.row) && v.lines.bytes == 0 {
		return nil
	}
	addr := from + uint64(share*float64(to-from))
	p := pieceAt(v.st, v.rows, i, addr)
	// A piece that began on an earlier line would move the view back there.
	if got := v.lines.lineOf(v.rows, i, v.piece(p).Addr); got != line && n > 0 {
		if next := step(v.st, v.rows, p, true); next != p {
			p = next
		}
	}
	return v.choose(s, p)
}

// choose selects a piece here, and its block everywhere.
func (v *view) choose(s *leaf.State, p place) tea.Cmd {
	if p == nowhere || p == v.selected {
		return nil
	}
	v.selected = p
	v.reveal()
	a := v.piece(p).Alloc
	if a == s.Selected {
		return nil
	}
	v.followed = a
	return leaf.Send(leaf.SelectMsg{Alloc: a})
}

const maxZoom = 24

func (v *view) mouse(s *leaf.State, msg tea.MouseMsg) tea.Cmd {
	m := msg.Mouse()
	switch msg.(type) {
	case tea.MouseReleaseMsg:
		v.drag = false
	case tea.MouseMotionMsg:
		if v.drag && m.Button == tea.MouseLeft {
			v.dragTo(m.Y)
		}
	case tea.MouseWheelMsg:
		return v.wheel(m)
	case tea.MouseClickMsg:
		v.drag = false // the release may have gone to another view
		if m.Button != tea.MouseLeft || !v.ready() || !v.area.Contains(m.X, m.Y) {
			return nil
		}
		if v.lines.len() > v.area.H && m.X == v.area.X+v.area.W-1 {
			v.drag = true
			v.dragTo(m.Y)
			return nil
		}
		return v.clickLine(s, m)
	}
	return nil
}

func (v *view) clickLine(s *leaf.State, m tea.Mouse) tea.Cmd {
	line := v.top + m.Y - v.area.Y
	if line >= v.lines.len() {
		return nil
	}
	i, from, to := v.lines.at(v.rows, line)
	x := min(max(m.X-v.bars.X, 0), max(v.bars.W-1, 0))
	across := to - from
	if v.lines.bytes > 0 {
		across = uint64(v.lines.bytes)
	}
	addr := from + uint64((float64(x)+0.25)/float64(max(v.bars.W, 1))*float64(across))
	p := pieceAt(v.st, v.rows, i, min(addr, to-1))
	if p == v.selected && v.piece(p).Alloc != timeline.NoAlloc {
		return leaf.Send(leaf.ShowMsg{View: leaf.Timeline})
	}
	return v.choose(s, p)
}

// Bindings implements leaf.View.
func (v *view) Bindings(*leaf.State) []key.Binding {
	if !v.ready() {
		return nil
	}
	k := v.keys
	next := (v.order + 1) % numOrders
	k.order.SetHelp("s", "by "+next.String())
	list := []key.Binding{k.move, k.piece, k.order}
	if v.hole != nowhere {
		list = append(list, k.hole)
	}
	if v.scale {
		k.scale.SetHelp("f", "each fills its line")
	}
	list = append(list, k.scale)
	if v.scale {
		list = append(list, k.zoomIn, k.zoomOut)
	}
	if v.piece(v.selected).Alloc != timeline.NoAlloc {
		list = append(list, k.open)
	}
	return append(list, k.page, k.ends)
}

// Status implements leaf.View.
func (v *view) Status(s *leaf.State) string {
	if !v.ready() {
		return ""
	}
	p, seg := v.piece(v.selected), v.segment(v.selected)
	parts := []string{fmt.Sprintf("0x%x  %s", p.Addr, s.Units.Bytes(p.Size)), v.what(s, p, seg)}
	if seg.Pool != (traces.Pool{}) {
		parts = append(parts, poolName(seg.Pool))
	}
	if seg.Stream != 0 {
		parts = append(parts, fmt.Sprintf("stream %d", seg.Stream))
	}
	return strings.Join(parts, " · ")
}

// Copy implements leaf.Copier.
func (v *view) Copy(s *leaf.State) (text, what string) {
	if !v.ready() {
		return "", ""
	}
	p := v.piece(v.selected)
	if p.Alloc != timeline.NoAlloc {
		return s.Device.UniqueName(p.Alloc), "the block's name"
	}
	return fmt.Sprintf("0x%x", p.Addr), "the address"
}

func poolName(p traces.Pool) string {
	switch {
	case p == traces.Pool{}:
		return "default"
	case p.First != 0:
		return fmt.Sprintf("graph pool %d", p.First)
	}
	return fmt.Sprintf("pool %d", p.Second)
}
