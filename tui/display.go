package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// display is the theme, the units, and whether gmemtop uses the mouse.
type display struct {
	*leaf.Display
	post  func(tea.Msg)
	fixed bool // the user chose the theme, not the terminal's background
	mouse bool // gmemtop has the mouse, not the terminal
}

// themeMsg chooses a theme by name.
type themeMsg struct{ name string }

// open begins with a theme's name, "" for one that fits the terminal.
func (d *display) open(name string, u timeline.Units, mouse bool) {
	d.Units, d.mouse, d.Theme = u, mouse, theme.Dark()
	if th, ok := theme.ByName(name); ok {
		d.Theme, d.fixed = th, true
	}
}

// onBackground chooses the theme for a dark or a light terminal.
func (d *display) onBackground(dark bool) {
	if d.fixed {
		return
	}
	if d.Theme = theme.Light(); dark {
		d.Theme = theme.Dark()
	}
}

// colourless chooses the theme without colours, for terminals that have none.
func (d *display) colourless() { d.Theme, d.fixed = theme.Mono(), true }

// choose chooses a theme by name; unknown names change nothing.
func (d *display) choose(name string) {
	if th, ok := theme.ByName(name); ok {
		d.Theme, d.fixed = th, true
		d.say("theme " + name)
	}
}

// nextUnits takes the next units.
func (d *display) nextUnits() {
	d.Units = (d.Units + 1) % (timeline.Raw + 1)
	d.say("sizes in " + [...]string{"KiB, MiB, GiB (1024)", "kB, MB, GB (1000)", "bytes"}[d.Units])
}

// toggleMouse hands the mouse to the terminal, or takes it back.
func (d *display) toggleMouse() {
	if d.mouse = !d.mouse; d.mouse {
		d.say("gmemtop has the mouse again")
		return
	}
	d.say("the terminal has the mouse: select text; M takes it back")
}

func (d *display) say(text string) { d.post(leaf.ToastMsg{Text: text}) }

// mouseMode is the mouse mode to ask the terminal for.
func (d *display) mouseMode() tea.MouseMode {
	if d.mouse {
		return tea.MouseModeCellMotion
	}
	return tea.MouseModeNone
}
