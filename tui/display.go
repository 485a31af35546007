package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// display is the theme, the units, and who has the mouse.
type display struct {
	*leaf.Display
	post  func(tea.Msg)
	fixed bool // the user chose the theme: the terminal's background does not
	mouse bool // the program has it, and not the terminal
}

// themeMsg takes a theme by its name.
type themeMsg struct{ name string }

// open begins with a theme's name, "" for one that fits the terminal.
func (d *display) open(name string, u timeline.Units, mouse bool) {
	d.Units, d.mouse, d.Theme = u, mouse, theme.Dark()
	if th, ok := theme.ByName(name); ok {
		d.Theme, d.fixed = th, true
	}
}

// ground takes the theme for a terminal whose background is dark, or light.
func (d *display) ground(dark bool) {
	if d.fixed {
		return
	}
	if d.Theme = theme.Light(); dark {
		d.Theme = theme.Dark()
	}
}

// colourless takes the theme without colours, for a terminal that has none.
func (d *display) colourless() { d.Theme, d.fixed = theme.Mono(), true }

// choose takes a theme by its name; a name that is none changes nothing.
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

// mode is the mouse mode to ask the terminal for.
func (d *display) mode() tea.MouseMode {
	if d.mouse {
		return tea.MouseModeCellMotion
	}
	return tea.MouseModeNone
}
