package main

import (
	"cmp"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/export"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/tui"
)

// hasScreen reports whether standard output is a terminal with a movable cursor.
func (a *app) hasScreen() bool { return isTerminal(a.out) && a.env("TERM") != "dumb" }

// errNoScreen is the error for a command that needs a screen.
var errNoScreen = errors.New("there is no terminal to show it on: gmemtop record writes a file instead")

// screen returns the options of every screen, with a planner for recordings.
func (a *app) screen() tui.Options {
	return tui.Options{
		Theme: a.flags.theme, Color: a.colorOfScreen(), ASCII: a.flags.ascii || a.onlyASCII(),
		NoMouse: a.flags.noMouse, Links: !a.flags.noLinks && a.env("TERM") != "linux",
		Units: a.flags.report.Units, Exporters: export.ForScreen(a.flags.report.Units), Environ: a.environ,
		Input: keyboard(a.in), Planner: planner.New(),
	}
}

// colorOfScreen combines NO_COLOR, CLICOLOR_FORCE and --color into one word.
func (a *app) colorOfScreen() string {
	if a.flags.color == "auto" && !a.colored() {
		return "never"
	}
	return a.flags.color
}

// onlyASCII reports whether the terminal can show only ASCII: its locale names a character set other than
// UTF-8, or it is the Linux console, whose fonts lack chart characters. Without a locale it is assumed to
// show everything.
func (a *app) onlyASCII() bool {
	locale := cmp.Or(a.env("LC_ALL"), a.env("LC_CTYPE"), a.env("LANG"))
	utf8 := strings.Contains(strings.ToLower(strings.ReplaceAll(locale, "-", "")), "utf8")
	return locale != "" && !utf8 || a.env("TERM") == "linux"
}

// keyboard returns where to read keys from: the terminal if standard input is a trace, or nil for standard
// input.
func keyboard(in *os.File) io.Reader {
	if isTerminal(in) {
		return nil
	}
	if tty, err := os.Open("/dev/tty"); err == nil {
		return tty
	}
	return nil
}
