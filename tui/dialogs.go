package tui

import (
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// goals are the views by what one wants to do, and what each shows.
var goals = []struct {
	want  string
	views []viewGoal
}{
	{"See memory", []viewGoal{
		{leaf.Overview, "the peak, and what holds it"},
		{leaf.Timeline, "every block over time"},
		{leaf.Peak, "who holds it, line by line"},
		{leaf.Segments, "what the allocator reserves, and its holes"},
		{leaf.Allocations, "every block in a table"},
	}},
	{"Find causes", []viewGoal{
		{leaf.OOM, "why it ran out, and what would help"},
		{leaf.Iterations, "which step differs; leaks"},
		{leaf.Ranks, "which rank differs"},
		{leaf.Diff, "what changed between two recordings"},
	}},
	{"Make it fit", []viewGoal{{leaf.Managers, "swap, recompute, choose addresses"}}},
	{"Your job", []viewGoal{
		{leaf.Live, "its steps as they come"},
		{leaf.Machine, "the processes of this machine"},
	}},
	{"The file", []viewGoal{{leaf.Trace, "what it holds, and what it lost"}}},
}

// viewGoal is a view and what it shows.
type viewGoal struct {
	id    leaf.ID
	shows string
}

// keysDialog lists every key that does something now, by what one wants to do: first the views, then what the
// view in front does, then the rest.
func keysDialog(v leaf.View, own []key.Binding, actions keymap) *dialog.List {
	var entries []dialog.Entry
	for _, goal := range goals {
		for _, to := range goal.views {
			a := actions.named(viewAction(to.id))
			if to.id == leaf.Live && a == nil {
				a = actions.named("no job")
			}
			if a == nil || !a.enabled() {
				continue
			}
			e := a.entry()
			e.Group = goal.want
			if a.name != "no job" {
				e.Detail = to.shows
			}
			entries = append(entries, e)
		}
	}
	entries = append(entries, viewEntries(v, own)...)
	for _, group := range []string{groupView, groupMove, groupLook, groupCompare, groupFind, groupShare,
		groupApp} {
		for i := range actions {
			a := &actions[i]
			if a.group == group && a.enabled() && !a.opensView() {
				if e, ok := a.entryBeside(own); ok {
					entries = append(entries, e)
				}
			}
		}
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

// opensView reports whether the action brings a view to the front, or says why it cannot.
func (a *action) opensView() bool { return strings.HasPrefix(a.name, "view ") || a.name == "no job" }

// entryBeside is entry in a view with keys of its own, which come before the root's: with the first key that
// is left; ok is false if none is.
func (a *action) entryBeside(own []key.Binding) (e dialog.Entry, ok bool) {
	e = a.entry()
	if a.first {
		return e, true
	}
	taken := func(k string) bool {
		return slices.ContainsFunc(own, func(b key.Binding) bool {
			return b.Enabled() && slices.Contains(b.Keys(), k)
		})
	}
	for i, k := range a.binding.Keys() {
		if taken(k) {
			continue
		}
		if i > 0 {
			e.Key = k
		}
		return e, true
	}
	return e, false
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
	name := fmt.Sprintf("%s %d", leaf.KindName(d.Kind), d.Ordinal)
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
