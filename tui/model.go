package tui

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	"github.com/gmemtop/gmemtop/tui/machine"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// Model is the only tea.Model. It is used through a pointer and never copied.
type Model struct {
	*clock
	loader loader
	toast  toaster
	cursor cursor
	filter filter

	opts   Options
	state  leaf.State
	loaded Loaded
	views  []leaf.View
	front  leaf.ID

	width, height int
	layout        layout
	canvas        *canvas.Canvas
	profile       canvas.Profile
	ascii         bool
	themeFixed    bool // the user chose the theme: the terminal's background does not
	mouse         bool
	dialogs       dialog.Stack
	inbox         []tea.Msg // messages that wait until the one in hand is done

	machine *machine.View // nil where the machine is not looked at
	feed    live.Feed     // nil where no job is watched
	live    *live.View
	window  int64 // the window of the job that the views show, -1 for none
	held    bool  // and they stay there
	rank    int   // the process of the job that they show, by its ID in the feed
	// watching is done when the job is not watched any more; bubbletea has no context of its own to hand to commands.
	watching context.Context
	leave    context.CancelFunc // lets go of the process that was chosen
	unwatch  context.CancelFunc // lets go of all that is watched

	yank    string // what was copied last, for tests of the clipboard's text
	actions []action
}

// New returns a Model that starts with opts.
func New(opts Options) *Model {
	now := &clock{now: time.Now, after: tea.Tick}
	m := &Model{
		clock: now, loader: loader{clock: now}, toast: toaster{clock: now},
		opts: opts, width: 80, height: 24, profile: canvas.TrueColor, ascii: opts.ASCII, mouse: !opts.NoMouse,
		front: leaf.Overview, window: -1,
	}
	if opts.Machine != nil {
		m.machine, m.front = machine.New(), leaf.Machine
	}
	if opts.Feed != nil {
		m.feed, m.live, m.front = opts.Feed, live.New(opts.Feed), leaf.Live
	}
	m.views = newViews(opts.Planner, m.machine, m.live)
	if opts.View != 0 {
		m.front = opts.View
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
	m.canvas = canvas.New(m.width, m.height, m.profile, m.ascii)
	m.layout = layoutFor(m.width, m.height, false)
	m.actions = keyboard{m}.newActions()
	return m
}

// Init starts the load and asks for the terminal's background.
func (m *Model) Init() tea.Cmd {
	var cmds []tea.Cmd
	switch {
	case m.feed != nil || m.machine != nil:
		cmds = append(cmds, follower{m}.begin())
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

// view returns the view in front.
func (m *Model) view() leaf.View { return m.viewOf(m.front) }

func (m *Model) viewOf(id leaf.ID) leaf.View {
	for _, v := range m.views {
		if v.ID() == id {
			return v
		}
	}
	return nil
}

// stop ends what goes on in the background.
func (m *Model) stop() {
	m.loader.cancel()
	if m.unwatch != nil {
		m.unwatch()
	}
}

// ready reports whether there is a device to look at.
func (m *Model) ready() bool { return m.loader.idle() && m.state.Device != nil }

// setProfile takes the colours that the terminal knows; without any the theme is the one without colours.
func (m *Model) setProfile(p canvas.Profile) {
	m.profile = p
	if m.canvas != nil {
		m.canvas.SetProfile(p)
	}
	if p == canvas.NoColor {
		m.state.Theme, m.themeFixed = theme.Mono(), true
	}
}

// changed bumps the state's version and tells the view in front.
func (m *Model) changed() tea.Cmd {
	m.state.Version++
	m.state.Width, m.state.Height = m.layout.body.W, m.layout.body.H
	v := m.view()
	if v == nil || m.state.Timeline == nil && m.state.Run == nil && v.ID() != leaf.Live && v.ID() != leaf.Machine {
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
