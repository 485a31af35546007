package main

import (
	"context"
	"errors"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/export"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/tui"
	"github.com/gmemtop/gmemtop/tui/live"
)

// errNoScreen is the error for a command that needs a screen.
var errNoScreen = errors.New("there is no terminal to show it on: gmemtop record writes a file instead")

// screen returns the options of every screen, with a planner for recordings.
func (a *app) screen() tui.Options {
	return tui.Options{
		Theme: a.flags.theme, Color: a.colorOfScreen(), ASCII: a.flags.ascii || a.OnlyASCII(),
		NoMouse: a.flags.noMouse, Links: !a.flags.noLinks && a.Env("TERM") != "linux",
		Units: a.flags.report.Units, Exporters: export.ForScreen(a.flags.report.Units), Environ: a.Environ,
		Input: a.Keyboard(), Planner: planner.New(),
	}
}

// showTraining shows a watched training until the user leaves the screen, and carries out in it the plans
// that the user chooses there.
func (a *app) showTraining(ctx context.Context, f live.Feed, training func() *crew.Crew) error {
	plans := planner.NewLive()
	defer plans.Watch(training)()
	o := a.screen()
	o.Feed, o.Planner = f, plans
	return tui.Run(ctx, o)
}

// colorOfScreen combines NO_COLOR, CLICOLOR_FORCE and --color into one word.
func (a *app) colorOfScreen() string {
	if a.flags.color == "auto" && !a.colored() {
		return "never"
	}
	return a.flags.color
}
