package tui

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/dialog"
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
	l := dialog.NewList("Keys", "type to search; enter does it", entries)
	l.Footer = "mouse: click moves and selects, wheel zooms, drag pans; M gives the mouse to the terminal"
	m.dialogs.Open(l)
	return nil
}

// viewEntries are the bindings of the view in front.
func (m chooser) viewEntries() []dialog.Entry {
	var entries []dialog.Entry
	v := m.tabs.view()
	for _, b := range keyboard(m).bindings() {
		if keys := b.Keys(); b.Enabled() && len(keys) > 0 {
			entries = append(entries, dialog.Entry{
				Group: v.Name(), Title: b.Help().Desc, Key: b.Help().Key, Msg: leaf.KeyMsg{Key: keys[0]},
			})
		}
	}
	return entries
}

func (m chooser) actionEntry(a *action) dialog.Entry {
	help := a.binding.Help()
	return dialog.Entry{Group: a.group, Title: help.Desc, Key: help.Key, Off: !a.enabled(), Msg: runMsg{a.name}}
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
	m.dialogs.Open(dialog.NewList("What next?", "type a few letters", entries))
	return nil
}

func (m chooser) hasDevices() bool { return m.ready() && len(m.state.Timeline.Devices) > 1 }

func (m chooser) deviceEntries() []dialog.Entry {
	if !m.hasDevices() {
		return nil
	}
	var entries []dialog.Entry
	for _, d := range m.state.Timeline.Devices {
		entries = append(entries, dialog.Entry{
			Group: "Devices", Title: DeviceName(d.Info),
			Detail: "peak " + m.state.Units.Bytes(d.Totals.PeakAllocated),
			Msg:    leaf.DeviceMsg{Device: d},
		})
	}
	return entries
}

func (m chooser) pickDevice() tea.Cmd {
	m.dialogs.Open(dialog.NewList("Devices", "type to search", m.deviceEntries()))
	return nil
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
	return m.loader.idle() && (len(m.state.Timelines) > 1 || m.state.Run != nil)
}

func (m chooser) fileEntries() []dialog.Entry {
	if !m.hasFiles() {
		return nil
	}
	var entries []dialog.Entry
	for _, t := range m.state.Timelines {
		e := dialog.Entry{Group: "Open", Title: leaf.Base(t.Trace.Source.Path), Msg: leaf.TimelineMsg{Timeline: t}}
		if d := t.Main(); d != nil {
			e.Detail = "peak " + m.state.Units.Bytes(d.Totals.PeakAllocated)
		}
		entries = append(entries, e)
	}
	if m.state.Run == nil {
		return entries
	}
	for i := range m.state.Run.Ranks {
		r := &m.state.Run.Ranks[i]
		e := dialog.Entry{
			Group: "Ranks", Title: fmt.Sprintf("rank %d  %s", r.Rank, leaf.Base(r.Path)), Off: r.Err != nil,
			Detail: "peak " + m.state.Units.Bytes(r.Totals.PeakAllocated),
			Msg:    leaf.OpenRankMsg{Path: r.Path},
		}
		if r.Err != nil {
			e.Detail = r.Err.Error()
		}
		entries = append(entries, e)
	}
	return entries
}

func (m chooser) pickFile() tea.Cmd {
	m.dialogs.Open(dialog.NewList("Files and ranks", "type to search", m.fileEntries()))
	return nil
}

func (m chooser) themeEntries() []dialog.Entry {
	if !m.hasColors() {
		return nil
	}
	var entries []dialog.Entry
	for _, name := range theme.Names {
		entries = append(entries, dialog.Entry{Group: "Themes", Title: "theme " + name, Msg: themeMsg{name}})
	}
	return entries
}

func (m chooser) setTheme(name string) tea.Cmd {
	th, ok := theme.ByName(name)
	if !ok {
		return nil
	}
	m.state.Theme, m.themeFixed = th, true
	return tea.Batch(m.changed(), m.toast.say("theme "+name, false))
}

func (m chooser) nextTheme() tea.Cmd {
	for i, name := range theme.Names {
		if name == m.state.Theme.Name {
			return m.setTheme(theme.Names[(i+1)%len(theme.Names)])
		}
	}
	return m.setTheme(theme.Names[0])
}
