package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// Model is the only tea.Model. It is used through a pointer and never copied.
type Model struct {
	*clock
	loader loader
	toast  toaster
	cursor cursor
	filter filter
	follow follow
	tabs   tabs
	screen screen

	opts   Options
	state  leaf.State
	loaded Loaded

	themeFixed bool // the user chose the theme: the terminal's background does not
	mouse      bool
	dialogs    dialog.Stack
	inbox      []tea.Msg // messages that wait until the one in hand is done

	yank    string // what was copied last, for tests of the clipboard's text
	actions keymap
}

// New returns a Model that starts with opts.
func New(opts Options) *Model {
	now := &clock{now: time.Now, after: tea.Tick}
	m := &Model{
		clock: now, loader: loader{clock: now}, toast: toaster{clock: now},
		screen: newScreen(80, 24, opts.ASCII),
		opts:   opts, mouse: !opts.NoMouse,
	}
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
	m.state.Theme = theme.Dark()
	if th, ok := theme.ByName(opts.Theme); ok {
		m.state.Theme, m.themeFixed = th, true
	}
	if opts.Color == "never" {
		m.setProfile(canvas.NoColor)
	}
	m.state.Units = opts.Units
	m.state.Selected = timeline.NoAlloc
	m.cursor.Place, m.filter.Filter = &m.state.Place, &m.state.Filter
	m.actions = newKeymap(m)
	return m
}

// Init starts the load and asks for the terminal's background.
func (m *Model) Init() tea.Cmd {
	var cmds []tea.Cmd
	switch {
	case m.follow.watches():
		cmds = append(cmds, m.follow.begin())
	default:
		cmds = append(cmds, m.loader.start(m.opts.Loader, m.opts.Title, false))
	}
	if !m.themeFixed {
		cmds = append(cmds, tea.RequestBackgroundColor)
	}
	return tea.Batch(cmds...)
}

// State returns what the views share, for tests and for cmd's exporters.
func (m *Model) State() *leaf.State { return &m.state }

// stop ends what goes on in the background.
func (m *Model) stop() {
	m.loader.cancel()
	m.follow.end()
}

// ready reports whether there is a device to look at.
func (m *Model) ready() bool { return m.loader.idle() && m.state.Device != nil }

// setProfile takes the colours that the terminal knows; without any the theme is the one without colours.
func (m *Model) setProfile(p canvas.Profile) {
	m.screen.setProfile(p)
	if p == canvas.NoColor {
		m.state.Theme, m.themeFixed = theme.Mono(), true
	}
}

// changed bumps the state's version and tells the view in front.
func (m *Model) changed() tea.Cmd {
	m.state.Version++
	m.state.Width, m.state.Height = m.screen.layout.body.W, m.screen.layout.body.H
	v := m.tabs.view()
	if v == nil {
		return nil
	}
	if id := v.ID(); m.state.Timeline == nil && m.state.Run == nil && id != leaf.Live && id != leaf.Machine {
		return nil
	}
	if ok, _ := v.Available(&m.state); !ok {
		return nil
	}
	return v.Update(&m.state, leaf.ChangedMsg{})
}

// device brings a device to the front: its whole recording, the cursor at its peak.
func (m *Model) setDevice(d *timeline.Device) tea.Cmd {
	s := &m.state
	s.Device, s.Analysed, s.Headline = d, false, ""
	m.cursor.open(d)
	found := m.filter.open(d)
	if d == nil {
		return m.changed()
	}
	s.Timeline = d.Timeline()
	return tea.Batch(analyse(d, m.state.Units), found, m.changed())
}

// setTimeline brings a timeline to the front with its main device.
func (m *Model) setTimeline(t *timeline.Timeline) tea.Cmd {
	m.state.Timeline = t
	if t == nil {
		return m.setDevice(nil)
	}
	return m.setDevice(t.Main())
}

// showStep shows a captured step of the watched job, or that there is none.
func (m *Model) showStep(msg stepMsg) tea.Cmd {
	s := &m.state
	s.Timelines, s.UnderPlan, s.Basis, s.BasisName = nil, msg.underPlan, msg.basis, msg.basisName
	if msg.timeline != nil {
		s.Timelines = []*timeline.Timeline{msg.timeline}
	}
	cmd := m.setTimeline(msg.timeline)
	m.screen.arrange(m.banner() != "")
	return cmd
}
