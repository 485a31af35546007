package tui

import (
	"fmt"

	"charm.land/bubbles/v2/key"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// keysDialog lists every key that does something now, by what one wants to do. What the view in front does
// comes first: the keys of views are on the screen anyway.
func keysDialog(v leaf.View, own []key.Binding, actions keymap) *dialog.List {
	entries := viewEntries(v, own)
	for _, group := range []string{groupView, groupMove, groupLook, groupCompare, groupFind, groupShare,
		groupApp} {
		entries = append(entries, actions.entries(group)...)
	}
	l := dialog.NewList("Keys", "type to search; enter runs it", entries)
	l.Footer = "mouse: click selects, again opens; wheel scrolls or zooms; drag pans"
	return l
}

// entries are the actions of a group that do something now.
func (k keymap) entries(group string) []dialog.Entry {
	var entries []dialog.Entry
	for i := range k {
		if k[i].group == group && k[i].enabled() {
			entries = append(entries, k[i].entry())
		}
	}
	return entries
}

// viewEntries are what a view binds.
func viewEntries(v leaf.View, own []key.Binding) []dialog.Entry {
	var entries []dialog.Entry
	for _, b := range own {
		if keys := b.Keys(); b.Enabled() && len(keys) > 0 {
			entries = append(entries, dialog.Entry{
				Group: "In this view", Title: b.Help().Desc, Key: b.Help().Key,
				Msg: leaf.KeyMsg{Key: keys[0]},
			})
		}
	}
	return entries
}

func (a *action) entry() dialog.Entry {
	help := a.binding.Help()
	return dialog.Entry{Group: a.group, Title: help.Desc, Key: help.Key, Off: !a.enabled(),
		Msg: runMsg{a.name}}
}

// palette lists what can be done by name, what one does most often first: to go somewhere, what the view in
// front does, to find and to compare, then what to take along, and how gmemtop looks. What was chosen last
// comes first.
func palette(m *model) *dialog.List {
	idle, s := m.loader.idle(), &m.state
	var entries []dialog.Entry
	group := func(names ...string) {
		for _, name := range names {
			for _, e := range m.actions.entries(name) {
				if e.Msg != (runMsg{"palette"}) {
					entries = append(entries, e)
				}
			}
		}
	}
	group(groupView)
	entries = append(entries, viewEntries(m.tabs.view(), m.tabs.bindings(s, idle))...)
	group(groupFind, groupCompare, groupLook, groupMove)
	if m.ready() {
		entries = append(entries, deviceEntries(s)...)
	}
	if idle {
		entries = append(entries, fileEntries(s)...)
	}
	group(groupShare)
	if m.ready() {
		entries = append(entries, m.share.entries(s, m.shot())...)
	}
	group(groupApp)
	if m.screen.hasColors() {
		entries = append(entries, themeEntries()...)
	}
	return dialog.NewList("What next?", "type a few letters", m.recent.first(entries))
}

func hasDevices(s *leaf.State) bool { return len(s.Timeline.Devices) > 1 }

func deviceEntries(s *leaf.State) []dialog.Entry {
	if !hasDevices(s) {
		return nil
	}
	var entries []dialog.Entry
	for _, d := range s.Timeline.Devices {
		entries = append(entries, dialog.Entry{
			Group: "Devices", Title: deviceName(d.Info),
			Detail: "peak " + s.Units.Bytes(d.Totals.PeakAllocated),
			Msg:    leaf.DeviceMsg{Device: d},
		})
	}
	return entries
}

// deviceName names a device for people: GPU 0, with its model if known.
func deviceName(d traces.Device) string {
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

func hasFiles(s *leaf.State) bool { return len(s.Timelines) > 1 || s.Run != nil }

func fileEntries(s *leaf.State) []dialog.Entry {
	if !hasFiles(s) {
		return nil
	}
	var entries []dialog.Entry
	for _, t := range s.Timelines {
		e := dialog.Entry{Group: "Open", Title: leaf.Base(t.Trace.Source.Path),
			Msg: leaf.TimelineMsg{Timeline: t}}
		if d := t.Main(); d != nil {
			e.Detail = "peak " + s.Units.Bytes(d.Totals.PeakAllocated)
		}
		entries = append(entries, e)
	}
	if s.Run == nil {
		return entries
	}
	for i := range s.Run.Ranks {
		r := &s.Run.Ranks[i]
		title := leaf.Base(r.Path)
		if r.Rank.IsKnown() {
			title = r.Name() + "  " + title
		}
		e := dialog.Entry{
			Group: "Ranks", Title: title, Off: r.Err != nil,
			Detail: "peak " + s.Units.Bytes(r.Totals.PeakAllocated),
			Msg:    leaf.OpenRankMsg{Path: r.Path},
		}
		if r.Err != nil {
			e.Detail = r.Err.Error()
		}
		entries = append(entries, e)
	}
	return entries
}

func themeEntries() []dialog.Entry {
	var entries []dialog.Entry
	for _, name := range theme.Names {
		entries = append(entries, dialog.Entry{Group: "Themes", Title: "theme " + name, Msg: themeMsg{name}})
	}
	return entries
}
