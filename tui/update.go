package tui

import (
	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	defer logPanic(m)
	var cmds []tea.Cmd
	m.post(msg)
	for msg, ok := m.next(); ok; msg, ok = m.next() {
		cmds = append(cmds, m.handle(msg))
	}
	return m, tea.Batch(cmds...)
}

func (m *model) handle(msg tea.Msg) tea.Cmd {
	if cmd, ok := m.onTerminal(msg); ok {
		return cmd
	}
	if cmd, ok := m.onOwn(msg); ok {
		return cmd
	}
	if cmd, ok := m.follow.update(msg); ok {
		return cmd
	}
	if cmd, ok := m.share.update(&m.state, msg); ok {
		return cmd
	}
	if cmd, ok := m.onLeaf(msg); ok {
		return cmd
	}
	return m.broadcast(msg)
}

// onTerminal handles messages from the terminal.
func (m *model) onTerminal(msg tea.Msg) (tea.Cmd, bool) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.resize(msg.Width, msg.Height)
		return m.changed(), true
	case tea.ColorProfileMsg:
		if m.opts.Color != "never" {
			m.paint(profileOf(msg.Profile))
		}
		return m.changed(), true
	case tea.BackgroundColorMsg:
		m.display.onBackground(msg.IsDark())
		return m.changed(), true
	case tea.KeyPressMsg:
		m.toast.dropNotice()
		m.trail.before = visited(m)
		return m.onKey(msg), true
	case tea.PasteMsg:
		m.post(m.dialogs.Update(msg))
		return nil, true
	case tea.MouseMsg:
		if _, click := msg.(tea.MouseClickMsg); click {
			m.toast.dropNotice()
			m.trail.before = visited(m)
		}
		return m.onMouse(msg), true
	case tea.ResumeMsg:
		return tea.ClearScreen, true
	case tea.KeyReleaseMsg, tea.FocusMsg, tea.BlurMsg, tea.EnvMsg, tea.KeyboardEnhancementsMsg,
		tea.ModeReportMsg:
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
func (m *model) onOwn(msg tea.Msg) (tea.Cmd, bool) {
	switch msg := msg.(type) {
	case tickMsg:
		return m.loader.onTick(msg), true
	case loadedMsg:
		return m.onLoaded(msg), true
	case analysedMsg:
		if msg.fault != nil && msg.device == m.state.Device {
			return m.failed(msg.fault, msg.stack), true
		}
		if !m.open.analysed(msg) {
			return nil, true
		}
		m.cursor.analysed = true
		return m.changed(), true
	case foundMsg:
		m.filter.take(msg)
		return nil, true
	case toastEndMsg:
		m.toast.end(msg)
		return nil, true
	case openMsg:
		m.dialogs.Open(msg.dialog)
		return nil, true
	case chosenMsg:
		m.recent.take(msg.command)
		m.post(msg.msg)
		return nil, true
	case runMsg:
		if a := m.actions.named(msg.action); a != nil && a.enabled() {
			return a.do(), true
		}
		return nil, true
	case stepMsg:
		m.open.step(msg)
		return m.look(), true
	case groupMsg:
		m.state.Group = msg.group
		return m.changed(), true
	case tempoMsg:
		m.state.StepTime = msg.step
		return m.changed(), true
	case jobMsg:
		m.state.Group = m.follow.group
		m.tabs.lead(m.follow.machine, m.follow.live)
		m.actions = newKeymap(m)
		return nil, true
	case themeMsg:
		m.display.choose(msg.name)
		return m.changed(), true
	case dialog.RowMsg, dialog.CloseMsg:
		m.post(m.dialogs.Update(msg))
		return nil, true
	}
	return nil, false
}

// onLeaf applies a view's request for all views.
func (m *model) onLeaf(msg tea.Msg) (tea.Cmd, bool) {
	switch msg := msg.(type) {
	case leaf.CursorMsg:
		m.follow.hold(m.tabs.front)
		return m.moved(m.cursor.moveTo(msg.To)), true
	case leaf.SelectMsg:
		m.follow.hold(m.tabs.front)
		m.cursor.choose(msg.Alloc)
	case leaf.WindowMsg:
		m.follow.hold(m.tabs.front)
		m.cursor.show(msg.Window)
	case leaf.QueryMsg:
		found, err := m.filter.set(msg.Text, m.state.Cursor)
		if err != nil {
			return m.toast.say(err.Error(), true), true
		}
		return tea.Batch(found, m.changed()), true
	case leaf.ShowMsg:
		if !m.show(msg.View) {
			return nil, true
		}
	case leaf.MarkMsg:
		m.cursor.setMark(msg.At)
	case leaf.UnmarkMsg:
		m.cursor.HasMark = false
	case leaf.DeviceMsg:
		m.open.bring(msg.Device)
		return m.look(), true
	case leaf.TimelineMsg:
		m.open.show(msg.Timeline)
		return m.look(), true
	case leaf.OpenRankMsg:
		return openRank(m, msg.Path), true
	case leaf.ToastMsg:
		return m.toast.say(msg.Text, msg.Error), true
	case leaf.PickMsg:
		m.dialogs.Open(dialog.Pick(msg))
		return nil, true
	case leaf.AskMsg:
		m.dialogs.Open(dialog.Ask(msg))
		return nil, true
	case leaf.ChangedMsg: // what the views show has changed
	case leaf.KeyMsg:
		return m.onKey(keyPress(msg.Key)), true
	default:
		return nil, false
	}
	return m.changed(), true
}

// failed reports that a command of ours panicked; the program goes on.
func (m *model) failed(fault any, stack []byte) tea.Cmd {
	return m.toast.say("internal error, written to "+writeCrash(m, fault, stack), true)
}

// broadcast sends the answer to a slow question to every view; each recognises its own.
func (m *model) broadcast(msg tea.Msg) tea.Cmd {
	var cmds []tea.Cmd
	if p, ok := msg.(leaf.Panicked); ok {
		if value, stack := p.Panic(); value != nil {
			cmds = append(cmds, m.failed(value, stack))
		}
	}
	for _, v := range m.tabs.views {
		if !m.open.nothing() || m.watching(v.ID()) {
			cmds = append(cmds, v.Update(&m.state, msg))
		}
	}
	return tea.Batch(cmds...)
}

// onKey sends a key to the dialog on top, else to the actions that mean the same everywhere, else to the
// view, else to navigation.
func (m *model) onKey(msg tea.KeyPressMsg) tea.Cmd {
	if msg.String() == "ctrl+c" {
		return m.actions.named("quit").do()
	}
	if m.dialogs.Len() > 0 {
		m.post(m.dialogs.Update(msg))
		return nil
	}
	if a := m.actions.actionFor(msg, true); a != nil {
		return a.do()
	}
	v := m.tabs.view()
	own := m.tabs.bindings(&m.state, m.loader.idle())
	for _, b := range own {
		if key.Matches(msg, b) {
			return v.Update(&m.state, msg)
		}
	}
	if a := m.actions.actionFor(msg, false); a != nil {
		if a.looksCloser() {
			m.follow.hold(m.tabs.front)
		}
		return a.do()
	}
	return m.unanswered(msg)
}

// onMouse sends the mouse to the dialog on top, else to the zone under it, else to the view.
func (m *model) onMouse(msg tea.MouseMsg) tea.Cmd {
	at := msg.Mouse()
	click, pressed := msg.(tea.MouseClickMsg)
	if pressed {
		m.screen.pressed = 0
	}
	if pressed && click.Button == tea.MouseLeft {
		if zone, ok := m.screen.canvas.Hit(at.X, at.Y); ok {
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
	if m.tabs.bindings(&m.state, m.loader.idle()) == nil {
		return nil
	}
	body := m.screen.layout.body
	if !body.Contains(at.X, at.Y) {
		if _, drag := msg.(tea.MouseMotionMsg); !drag {
			if _, up := msg.(tea.MouseReleaseMsg); !up {
				return nil
			}
		}
	}
	at.X, at.Y = at.X-body.X, at.Y-body.Y
	v := m.tabs.view()
	switch msg.(type) {
	case tea.MouseClickMsg:
		m.screen.pressed = m.tabs.front
		return v.Update(&m.state, tea.MouseClickMsg(at))
	case tea.MouseReleaseMsg:
		return v.Update(&m.state, tea.MouseReleaseMsg(at))
	case tea.MouseWheelMsg:
		return v.Update(&m.state, tea.MouseWheelMsg(at))
	case tea.MouseMotionMsg:
		if m.screen.pressed != m.tabs.front {
			return nil // the drag began on a button, in a dialog or in another view
		}
		return v.Update(&m.state, tea.MouseMotionMsg(at))
	}
	return nil
}
