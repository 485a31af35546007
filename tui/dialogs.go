package tui

import (
	"fmt"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// chooser is the Model as what opens lists: help, palette, devices, files, themes.
type chooser struct{ *Model }

// help lists every key that does something now, those of the view in front first, then what else there is.
func (m chooser) help() tea.Cmd {
	entries := m.viewEntries()
	for i := range m.actions {
		entries = append(entries, m.actionEntry(&m.actions[i]))
	}
	l := newList("Keys", "type to search; enter does it", entries)
	l.footer = "mouse: click moves and selects, wheel zooms, drag pans; M gives the mouse to the terminal"
	return m.open(l)
}

// viewEntries are the bindings of the view in front.
func (m chooser) viewEntries() []entry {
	var entries []entry
	v := m.view()
	for _, b := range keyboard(m).bindings() {
		if keys := b.Keys(); b.Enabled() && len(keys) > 0 {
			entries = append(entries, entry{
				group: v.Name(), title: b.Help().Desc, key: b.Help().Key, enabled: true,
				run: func() tea.Cmd { return router(m).onKey(keyPress(keys[0])) },
			})
		}
	}
	return entries
}

func (m chooser) actionEntry(a *action) entry {
	return entry{group: a.group, title: a.binding.Help().Desc, key: a.binding.Help().Key, enabled: a.enabled(), run: a.do}
}

// palette lists everything that can be done by name: views, keys, devices, themes, exports.
func (m chooser) palette() tea.Cmd {
	entries := m.viewEntries()
	for i := range m.actions {
		if a := &m.actions[i]; a.name != "palette" && a.enabled() {
			entries = append(entries, m.actionEntry(a))
		}
	}
	entries = append(entries, m.deviceEntries()...)
	entries = append(entries, m.fileEntries()...)
	entries = append(entries, m.themeEntries()...)
	if m.ready() {
		entries = append(entries, sharer(m).exportEntries()...)
	}
	return m.open(newList("What next?", "type a few letters", entries))
}

func (m chooser) hasDevices() bool { return m.ready() && len(m.state.Timeline.Devices) > 1 }

func (m chooser) deviceEntries() []entry {
	if !m.hasDevices() {
		return nil
	}
	var entries []entry
	for _, d := range m.state.Timeline.Devices {
		entries = append(entries, entry{
			group: "Devices", title: DeviceName(d.Info), enabled: true,
			detail: "peak " + m.state.Units.Bytes(d.Totals.PeakAllocated),
			run:    func() tea.Cmd { return m.setDevice(d) },
		})
	}
	return entries
}

func (m chooser) pickDevice() tea.Cmd {
	return m.open(newList("Devices", "type to search", m.deviceEntries()))
}

// DeviceName says a device as a person would: GPU 0 with its name where it is known.
func DeviceName(d traces.Device) string {
	name := map[traces.DeviceKind]string{traces.DeviceGPU: "GPU"}[d.Kind]
	if name == "" {
		name = d.Kind.String()
	}
	name = fmt.Sprintf("%s %d", name, d.Ordinal)
	if d.Name != "" {
		name += " " + d.Name
	}
	return name
}

func (m chooser) hasFiles() bool {
	return m.loading == nil && m.failure == nil && (len(m.state.Timelines) > 1 || m.state.Run != nil)
}

func (m chooser) fileEntries() []entry {
	if !m.hasFiles() {
		return nil
	}
	var entries []entry
	for _, t := range m.state.Timelines {
		e := entry{group: "Open", title: leaf.Base(t.Trace.Source.Path), enabled: true, run: func() tea.Cmd { return m.setTimeline(t) }}
		if d := t.Main(); d != nil {
			e.detail = "peak " + m.state.Units.Bytes(d.Totals.PeakAllocated)
		}
		entries = append(entries, e)
	}
	if m.state.Run == nil {
		return entries
	}
	for i := range m.state.Run.Ranks {
		r := &m.state.Run.Ranks[i]
		e := entry{
			group: "Ranks", title: fmt.Sprintf("rank %d  %s", r.Rank, leaf.Base(r.Path)), enabled: r.Err == nil,
			detail: "peak " + m.state.Units.Bytes(r.Totals.PeakAllocated),
			run:    func() tea.Cmd { return opener(m).openRank(r.Path) },
		}
		if r.Err != nil {
			e.detail = r.Err.Error()
		}
		entries = append(entries, e)
	}
	return entries
}

func (m chooser) pickFile() tea.Cmd {
	return m.open(newList("Files and ranks", "type to search", m.fileEntries()))
}

func (m chooser) themeEntries() []entry {
	if !m.hasColors() {
		return nil
	}
	var entries []entry
	for _, name := range theme.Names {
		entries = append(entries, entry{
			group: "Themes", title: "theme " + name, enabled: true, run: func() tea.Cmd { return m.setTheme(name) },
		})
	}
	return entries
}

func (m chooser) setTheme(name string) tea.Cmd {
	th, ok := theme.ByName(name)
	if !ok {
		return nil
	}
	m.state.Theme, m.themeFixed = th, true
	return tea.Batch(m.changed(), m.say("theme "+name, false))
}

func (m chooser) nextTheme() tea.Cmd {
	for i, name := range theme.Names {
		if name == m.state.Theme.Name {
			return m.setTheme(theme.Names[(i+1)%len(theme.Names)])
		}
	}
	return m.setTheme(theme.Names[0])
}

// filterLine is the prompt of /: it filters while one types, says what does not parse, and esc takes the former filter back.
type filterLine struct {
	text   input
	before string
	err    error
}

func (m chooser) prompt() tea.Cmd {
	return m.open(&filterLine{text: newInput(m.state.QueryText), before: m.state.QueryText})
}

func (f *filterLine) hints() []key.Binding {
	return []key.Binding{bind("enter", "keep", "enter"), bind("esc", "as before", "esc"), bind("ctrl+u", "clear", "ctrl+u")}
}

func (f *filterLine) update(m *Model, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case closeMsg:
		return m.close()
	case tea.PasteMsg:
		f.text.insert(msg.Content)
		return f.apply(m)
	case tea.KeyPressMsg:
		switch msg.String() {
		case "enter":
			if f.err != nil {
				return nil
			}
			return m.close()
		case "esc":
			m.close()
			return m.setQuery(f.before)
		}
		if f.text.update(msg) {
			return f.apply(m)
		}
	}
	return nil
}

func (f *filterLine) apply(m *Model) tea.Cmd {
	_, f.err = parseQuery(f.text.String())
	if f.err != nil {
		return nil
	}
	return m.setQuery(f.text.String())
}

// filterTerms are what a filter can say, most useful first: as many as have room are shown.
var filterTerms = []string{
	"a word of stack, module or category", "size>1MiB", "life<5ms", "live", "cat:activation", "0x7f3a00001200, what holds an address", "leaked", "sort:-size",
}

// filterHelp returns the terms that fit into w cells.
func filterHelp(w int) string {
	text := filterTerms[0]
	for _, t := range filterTerms[1:] {
		if canvas.Width(text)+3+canvas.Width(t) > w {
			break
		}
		text += " · " + t
	}
	return text
}

func (f *filterLine) draw(m *Model, c *canvas.Canvas) {
	th := m.state.Theme
	w, h := c.Size()
	c.DropZones()
	row := canvas.Rect{Y: h - 2, W: w, H: 1}
	c.Fill(row, ' ', th.Dialog)
	x := 1 + c.Text(1, row.Y, th.OnDialog(th.Accent), "filter / ")
	start := x
	x += c.Text(x, row.Y, th.OnDialog(th.Strong), f.text.String())
	at := start + canvas.Width(string(f.text.runes[:f.text.at]))
	c.Set(at, row.Y, max(c.At(at, row.Y).Rune, ' '), c.Style(canvas.Style{Reverse: true}))
	switch {
	case f.err != nil:
		c.TextMax(x+2, row.Y, w-x-3, th.OnDialog(th.Bad), f.err.Error())
	case f.text.String() == "":
		c.TextMax(x+2, row.Y, w-x-3, th.OnDialog(th.Dim), filterHelp(w-x-3))
	case m.found.text == f.text.String():
		c.TextMax(x+3, row.Y, w-x-4, th.OnDialog(th.Dim), leaf.Count(int64(len(m.found.blocks)))+" blocks")
	}
}
