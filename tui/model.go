package tui

import (
	"cmp"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// model is the only tea.Model: it passes each message to the component whose state it changes, and draws the
// frame. Use it through a pointer and never copy it.
type model struct {
	*clock
	inbox
	loader  loader
	toast   toaster
	open    recordings
	cursor  cursor
	filter  filter
	follow  follow
	tabs    tabs
	trail   trail
	display display
	share   sharing
	screen  screen
	dialogs dialog.Stack
	recent  recent

	opts    Options
	state   leaf.State
	actions keymap
}

// newModel returns a model that starts with opts.
func newModel(opts Options) *model {
	now := &clock{now: time.Now, after: tea.Tick}
	m := &model{clock: now, toast: toaster{clock: now}, screen: newScreen(80, 24, opts.ASCII), opts: opts}
	m.loader = loader{clock: now, post: m.post}
	m.display.post = m.post
	m.share = sharing{post: m.post, editor: opts.editor(), exporters: opts.Exporters}
	m.follow = newFollow(now, &opts, m.post)
	m.tabs = newTabs(opts.Planner)
	m.tabs.lead(m.follow.machine, m.follow.live)
	switch {
	case opts.View != 0:
		m.tabs.front = opts.View
	case opts.Feed != nil:
		m.tabs.front = leaf.Live
	case opts.Machine != nil:
		m.tabs.front = leaf.Machine
	}
	s := &m.state
	m.open.Open, m.cursor.Place, m.filter.Filter, m.display.Display = &s.Open, &s.Place, &s.Filter, &s.Display
	m.display.open(opts.Theme, opts.Units, !opts.NoMouse)
	s.Links = opts.Links && opts.Color != "never"
	if opts.Color == "never" {
		m.paint(canvas.NoColor)
	}
	s.Selected = timeline.NoAlloc
	m.actions = newKeymap(m)
	return m
}

// Init starts the load and asks for the terminal's background.
func (m *model) Init() tea.Cmd {
	var cmds []tea.Cmd
	switch {
	case m.follow.watches():
		cmds = append(cmds, m.follow.begin())
	default:
		cmds = append(cmds, m.loader.start(m.opts.Loader, m.opts.Title, false))
	}
	if !m.display.fixed {
		cmds = append(cmds, tea.RequestBackgroundColor)
	}
	return tea.Batch(cmds...)
}

// stop ends all work in the background.
func (m *model) stop() {
	m.loader.cancel()
	m.follow.end()
}

// ready reports whether there is a device to look at.
func (m *model) ready() bool { return m.loader.idle() && m.state.Device != nil }

// paint sets the colours that the terminal supports.
func (m *model) paint(p canvas.Profile) {
	m.screen.setProfile(p)
	if p == canvas.NoColor {
		m.display.colourless()
	}
}

// watching reports whether a view has something to show although no recording is open.
func (m *model) watching(id leaf.ID) bool {
	return id == leaf.Live || id == leaf.Machine || id == leaf.Ranks && m.state.Group != nil
}

// changed bumps the state's version, and tells the view in front and the one that was in front before.
func (m *model) changed() tea.Cmd {
	m.screen.arrange(m.warning() != "")
	s := &m.state
	s.Version++
	s.Width, s.Height = m.screen.layout.body.W, m.screen.layout.body.H
	var left tea.Cmd
	if was := m.tabs.takeLeft(); was != nil {
		left = was.Update(s, leaf.LeftMsg{})
	}
	v := m.tabs.view()
	if v == nil {
		return left
	}
	if m.open.nothing() && !m.watching(v.ID()) {
		return left
	}
	if ok, _ := v.Available(s); !ok {
		return left
	}
	return tea.Batch(left, v.Update(s, leaf.ChangedMsg{}))
}

// warning is the line above the view: what is incomplete or lost, "" for nothing.
func (m *model) warning() string { return cmp.Or(m.loader.warning(), m.open.warning()) }

// look tells the components which device is in view now.
func (m *model) look() tea.Cmd {
	d := m.state.Device
	m.cursor.open(d)
	return tea.Batch(m.open.analyse(m.state.Units), m.filter.open(d), m.changed())
}

// elsewhere says where to see that the cursor or the window moved, in a view that does not show it; "" in one
// that does.
func (m *model) elsewhere(before leaf.Place) string {
	const where = "Overview (1) and Timeline (2)"
	switch m.tabs.view().ID() {
	case leaf.Overview, leaf.Timeline, leaf.Peak, leaf.Segments:
		return ""
	case leaf.Allocations:
		if m.state.Selected != before.Selected {
			return ""
		}
	}
	if m.state.Cursor != before.Cursor {
		return fmt.Sprintf("the cursor is at %s now, in %s",
			momentText(m.cursor.device, m.state.Window.Axis, m.state.Cursor), where)
	}
	return "changed in " + where
}

// moved tells the other components that the cursor moved.
func (m *model) moved(say string) tea.Cmd {
	if say != "" {
		m.post(leaf.ToastMsg{Text: say})
	}
	return tea.Batch(m.filter.at(m.state.Cursor), m.changed())
}
