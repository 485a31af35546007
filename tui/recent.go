package tui

import (
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/dialog"
)

// recent remembers what was chosen in the palette, so that it stands first there the next time. Views are
// left out: they come next anyway.
type recent struct {
	chosen []command // the newest first
}

// command names an entry of the palette, whose message may change from frame to frame.
type command struct{ group, title string }

// mostRecent is how many commands stand first: few enough that the views stay in sight at 24 lines.
const mostRecent = 4

// chosenMsg is the message of an entry of the palette.
type chosenMsg struct {
	command command
	msg     tea.Msg
}

// take remembers a command that was chosen.
func (r *recent) take(c command) {
	if c.group == groupView {
		return
	}
	r.chosen = slices.DeleteFunc(r.chosen, func(old command) bool { return old == c })
	r.chosen = slices.Insert(r.chosen, 0, c)
	r.chosen = r.chosen[:min(len(r.chosen), mostRecent)]
}

// first returns the palette's entries with those chosen last in front, if they are available now. The others
// keep their places: nobody can learn a list that keeps changing.
func (r *recent) first(entries []dialog.Entry) []dialog.Entry {
	var front []dialog.Entry
	for i := range entries {
		e := &entries[i]
		e.Msg = chosenMsg{command{e.Group, e.Title}, e.Msg}
	}
	for _, c := range r.chosen {
		i := slices.IndexFunc(entries, func(e dialog.Entry) bool {
			return e.Group == c.group && e.Title == c.title && !e.Off
		})
		if i >= 0 {
			e := entries[i]
			e.Group = "Recent"
			front = append(front, e)
		}
	}
	return append(front, entries...)
}
