package tui

import (
	"fmt"
	"strconv"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// router is the Model as what sends each message where it belongs.
type router struct{ *Model }

// Update implements tea.Model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	defer m.logPanic()
	var cmds []tea.Cmd
	for m.post(msg); len(m.inbox) > 0; {
		msg, m.inbox = m.inbox[0], m.inbox[1:]
		cmds = append(cmds, router{m}.handle(msg))
	}
	return m, tea.Batch(cmds...)
}

// post has a message handled after the one in hand and before the next that comes from outside.
func (m *Model) post(msg tea.Msg) {
	if msg != nil {
		m.inbox = append(m.inbox, msg)
	}
}

func (m router) handle(msg tea.Msg) tea.Cmd {
	if cmd, ok := m.onTerminal(msg); ok {
		return cmd
	}
	if cmd, ok := m.onOwn(msg); ok {
		return cmd
	}
	if cmd, ok := follower(m).on(msg); ok {
		return cmd
	}
	if cmd, ok := m.onLeaf(msg); ok {
		return cmd
	}
	return m.broadcast(msg)
}

// onTerminal handles what the terminal says.
func (m router) onTerminal(msg tea.Msg) (tea.Cmd, bool) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		return m.resize(msg.Width, msg.Height), true
	case tea.ColorProfileMsg:
		if m.opts.Color != "never" {
			m.setProfile(profileOf(msg.Profile))
		}
		return m.changed(), true
	case tea.BackgroundColorMsg:
		if !m.themeFixed {
			m.state.Theme = theme.Light()
			if msg.IsDark() {
				m.state.Theme = theme.Dark()
			}
		}
		return m.changed(), true
	case tea.KeyPressMsg:
		m.toast.dropNotice()
		return m.onKey(msg), true
	case tea.PasteMsg:
		m.post(m.dialogs.Update(msg))
		return nil, true
	case tea.MouseMsg:
		if _, click := msg.(tea.MouseClickMsg); click {
			m.toast.dropNotice()
		}
		return m.onMouse(msg), true
	case tea.ResumeMsg:
		return tea.ClearScreen, true
	case tea.KeyReleaseMsg, tea.FocusMsg, tea.BlurMsg, tea.EnvMsg, tea.KeyboardEnhancementsMsg, tea.ModeReportMsg:
		return nil, true
	}
	return nil, false
}

func profileOf(p colorprofile.Profile) canvas.Profile {
	switch p {
	case colorprofile.TrueColor:
		return canvas.TrueColor
	case colorprofile.ANSI256:
		return canvas.ANSI256
	case colorprofile.ANSI:
		return canvas.ANSI16
	}
	return canvas.NoColor
}

// onOwn handles the results of the root's own commands.
func (m router) onOwn(msg tea.Msg) (tea.Cmd, bool) {
	switch msg := msg.(type) {
	case tickMsg:
		return m.loader.onTick(msg), true
	case loadedMsg:
		return m.onLoaded(msg), true
	case analysedMsg:
		if msg.device != m.state.Device {
			return nil, true
		}
		if msg.fault != nil {
			return m.toast.say("internal error, written to "+writeCrash(m.Model, msg.fault, msg.stack), true), true
		}
		m.state.Analysed, m.state.Headline = true, msg.headline
		return m.changed(), true
	case foundMsg:
		if msg.text == m.state.QueryText && msg.device == m.state.Device {
			m.found = msg
		}
		return nil, true
	case toastEndMsg:
		m.toast.end(msg)
		return nil, true
	case followedMsg:
		if msg.err != nil {
			return m.toast.say("the editor failed: "+msg.err.Error(), true), true
		}
		return tea.ClearScreen, true
	case exportedMsg:
		return sharer(m).onExported(msg), true
	case existsMsg:
		return sharer(m).confirmOverwrite(msg.job), true
	case saveMsg:
		return export(msg.job), true
	case runMsg:
		if a := keyboard(m).actionNamed(msg.action); a != nil && a.enabled() {
			return a.do(), true
		}
		return nil, true
	case themeMsg:
		return chooser(m).setTheme(msg.name), true
	case dialog.RowMsg, dialog.CloseMsg:
		m.post(m.dialogs.Update(msg))
		return nil, true
	}
	return nil, false
}

// onLeaf applies what a view asked for, for all views.
func (m router) onLeaf(msg tea.Msg) (tea.Cmd, bool) {
	s := &m.state
	var hold tea.Cmd
	switch msg := msg.(type) {
	case leaf.CursorMsg:
		return tea.Batch(follower(m).hold(), walker(m).setCursor(msg.To)), true
	case leaf.SelectMsg:
		hold = follower(m).hold()
		s.Selected = msg.Alloc
		if s.Device == nil || msg.Alloc < 0 || int(msg.Alloc) >= s.Device.Allocs.Len() { // sent before another device came to the front
			s.Selected = timeline.NoAlloc
		}
	case leaf.WindowMsg:
		hold = follower(m).hold()
		if s.Device != nil {
			s.Window = leaf.Pan(msg.Window, s.Device.Full(msg.Window.Axis), 0)
		}
	case leaf.QueryMsg:
		return m.setQuery(msg.Text), true
	case leaf.ShowMsg:
		return m.show(msg.View), true
	case leaf.MarkMsg:
		s.Mark, s.HasMark, m.lastMark = msg.At, true, msg.At
	case leaf.UnmarkMsg:
		s.HasMark = false
	case leaf.DeviceMsg:
		return m.setDevice(msg.Device), true
	case leaf.TimelineMsg:
		return m.setTimeline(msg.Timeline), true
	case leaf.OpenRankMsg:
		return m.openRank(msg.Path), true
	case leaf.ToastMsg:
		return m.toast.say(msg.Text, msg.Error), true
	case leaf.CopyMsg:
		return sharer(m).copyText(msg.Text, msg.What), true
	case leaf.FollowMsg:
		return sharer(m).followTo(msg.File, msg.Line), true
	case leaf.PickMsg:
		m.dialogs.Open(dialog.Pick(msg))
		return nil, true
	case leaf.AskMsg:
		m.dialogs.Open(dialog.Ask(msg))
		return nil, true
	case leaf.SaveMsg:
		return sharer(m).askPath(msg), true
	case leaf.KeyMsg:
		return m.onKey(keyPress(msg.Key)), true
	default:
		return nil, false
	}
	return tea.Batch(hold, m.changed()), true
}

// broadcast gives the result of a slow question to every view; each knows its own.
func (m router) broadcast(msg tea.Msg) tea.Cmd {
	if p, ok := msg.(leaf.Panicked); ok {
		if value, stack := p.Panic(); value != nil {
			m.toast.say("internal error, written to "+writeCrash(m.Model, value, stack), true)
		}
	}
	if m.state.Timeline == nil && m.state.Run == nil {
		var cmds []tea.Cmd
		if m.live != nil {
			cmds = append(cmds, m.live.Update(&m.state, msg))
		}
		if m.machine != nil {
			cmds = append(cmds, m.machine.Update(&m.state, msg))
		}
		return tea.Batch(cmds...)
	}
	var cmds []tea.Cmd
	for _, v := range m.views {
		if cmd := v.Update(&m.state, msg); cmd != nil {
			cmds = append(cmds, cmd)
		}
	}
	return tea.Batch(cmds...)
}

func (m *Model) resize(w, h int) tea.Cmd {
	m.width, m.height = w, h
	m.canvas.Resize(w, h)
	m.layout = layoutFor(w, h, painter{m}.bannerText() != "")
	return m.changed()
}

// onKey sends a key to the dialog on top, else to what means the same everywhere, else to the view, else to navigation.
func (m router) onKey(msg tea.KeyPressMsg) tea.Cmd {
	if msg.String() == "ctrl+c" {
		return m.quit()
	}
	if m.dialogs.Len() > 0 {
		m.post(m.dialogs.Update(msg))
		return nil
	}
	if a := keyboard(m).actionFor(msg, true); a != nil {
		return a.do()
	}
	v := m.view()
	own := keyboard(m).bindings()
	for _, b := range own {
		if key.Matches(msg, b) {
			return v.Update(&m.state, msg)
		}
	}
	if a := keyboard(m).actionFor(msg, false); a != nil {
		if a.group == groupMove || a.group == groupLook {
			return tea.Batch(follower(m).hold(), a.do())
		}
		return a.do()
	}
	if own != nil {
		return v.Update(&m.state, msg)
	}
	return nil
}

// onMouse sends the mouse to the dialog on top, else to the zone under it, else to the view.
func (m router) onMouse(msg tea.MouseMsg) tea.Cmd {
	at := msg.Mouse()
	if click, ok := msg.(tea.MouseClickMsg); ok && click.Button == tea.MouseLeft {
		if zone, ok := m.canvas.Hit(at.X, at.Y); ok {
			m.post(zone)
			return nil
		}
		if m.dialogs.Len() > 0 {
			m.dialogs.Close()
			return nil
		}
	}
	if m.dialogs.Len() > 0 {
		m.post(m.dialogs.Update(msg))
		return nil
	}
	if keyboard(m).bindings() == nil {
		return nil
	}
	body := m.layout.body
	if !body.Contains(at.X, at.Y) {
		if _, drag := msg.(tea.MouseMotionMsg); !drag {
			if _, up := msg.(tea.MouseReleaseMsg); !up {
				return nil
			}
		}
	}
	at.X, at.Y = at.X-body.X, at.Y-body.Y
	v := m.view()
	switch msg.(type) {
	case tea.MouseClickMsg:
		return v.Update(&m.state, tea.MouseClickMsg(at))
	case tea.MouseReleaseMsg:
		return v.Update(&m.state, tea.MouseReleaseMsg(at))
	case tea.MouseWheelMsg:
		return v.Update(&m.state, tea.MouseWheelMsg(at))
	case tea.MouseMotionMsg:
		return v.Update(&m.state, tea.MouseMotionMsg(at))
	}
	return nil
}

// setQuery puts a filter in force for all views; what does not parse is said and not applied.
func (m *Model) setQuery(text string) tea.Cmd {
	q, err := parseQuery(text)
	if err != nil {
		return m.toast.say(err.Error(), true)
	}
	q.LiveAt = m.state.Cursor
	m.state.Query, m.state.QueryText = q, text
	return tea.Batch(m.find(), m.changed())
}

// parseQuery reads a filter; beside timeline's terms it knows site:N and stack:N, which views make when a call site or one of its
// stacks is opened: N is a stack, -1 for what has none.
func parseQuery(text string) (timeline.Query, error) {
	var rest []string
	var of timeline.Query
	for _, term := range strings.Fields(text) {
		kind, n, _ := strings.Cut(term, ":")
		if kind != "site" && kind != "stack" {
			rest = append(rest, term)
			continue
		}
		id, err := strconv.ParseInt(n, 10, 32)
		if err != nil {
			return timeline.Query{}, fmt.Errorf("%s is not the number of a stack", term)
		}
		of.Stack, of.BySite, of.ByStack = traces.StackID(id), kind == "site", kind == "stack"
	}
	q, err := timeline.ParseQuery(strings.Join(rest, " "))
	q.Stack, q.BySite, q.ByStack = of.Stack, of.BySite, of.ByStack
	return q, err
}
