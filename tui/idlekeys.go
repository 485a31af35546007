package tui

import (
	"fmt"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/leaf"
)

// unanswered says why a key does nothing: what is missing, or in which views it works. It says nothing of
// keys such as esc, which people press without expecting anything.
func (m *model) unanswered(msg tea.KeyPressMsg) tea.Cmd {
	if msg.Text == "" || msg.Mod&^tea.ModShift != 0 || !m.loader.idle() {
		return nil
	}
	for i := range m.actions {
		if a := &m.actions[i]; key.Matches(msg, a.binding) && !a.enabled() {
			if why := m.lacks(a); why != "" {
				return m.toast.say(why, false)
			}
		}
	}
	if v, ok := m.tabs.view().(leaf.Lacking); ok {
		if why := v.Lacks(msg); why != "" {
			return m.toast.say(why, false)
		}
	}
	name := msg.Text
	if name == " " {
		name = "space"
	}
	var views []string
	for _, v := range m.tabs.views {
		if ok, _ := v.Available(&m.state); !ok || v == m.tabs.view() {
			continue
		}
		for _, b := range v.Bindings(&m.state) {
			if key.Matches(msg, b) {
				views = append(views, fmt.Sprintf("%s (%c)", v.Name(), v.ID()))
				break
			}
		}
	}
	if len(views) == 0 {
		return m.toast.say(name+" does nothing here; ? lists the keys that do", false)
	}
	return m.toast.say(name+" does nothing here; it works in "+strings.Join(views, ", "), false)
}

// lacks says why an action can do nothing now, "" if that is obvious. A recording of a single moment has
// neither iterations nor another moment to mark: that comes first.
func (m *model) lacks(a *action) string {
	switch a.group {
	case groupMove, groupLook, groupCompare:
		if m.cursor.atOneMoment() {
			return noEvents
		}
	}
	return a.lacks
}
