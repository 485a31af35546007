package tui

import (
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// Why an action can do nothing now.
const (
	noEvents     = "this recording shows a single moment: there is no other to go to"
	noIterations = "this recording has no iterations to go to"
	noMark       = "no moment is marked: c marks this one"
	noSearch     = "no search: / starts one"
)

// What there is to say where a move goes no further.
const (
	atStart  = "this is the start of the recording"
	atEnd    = "this is the end of the recording"
	atPeak   = "this is the peak"
	allShown = "the whole recording is in view already"
)

// newKeymap makes the table for a model.
func newKeymap(m *model) keymap {
	a := actionMaker{m}
	return slices.Concat(a.moving(), a.zooming(), a.comparing(), a.opening(), a.finding(), a.sharing(),
		a.following(), a.views(), a.absent(), a.app())
}

// actionMaker makes the root's actions on a model.
type actionMaker struct{ m *model }

func (a actionMaker) hasEvents() bool { return a.m.ready() && a.m.cursor.hasEvents() }

func (a actionMaker) hasIterations() bool { return a.m.ready() && a.m.cursor.hasIterations() }

func (a actionMaker) hasMark() bool { return a.m.ready() && a.m.cursor.HasMark }

func (a actionMaker) hasFilter() bool { return a.m.ready() && a.m.filter.QueryText != "" }

// when reports what can reports, and false while nothing is open.
func (a actionMaker) when(can func() bool) func() bool {
	return func() bool { return a.m.ready() && can() }
}

// walk moves the cursor or the window; do returns what there is to say about that, and still is what there is
// to say if nothing moved.
func (a actionMaker) walk(still string, do func() string) func() tea.Cmd {
	return func() tea.Cmd {
		before := a.m.state.Place
		said := do()
		switch {
		case said != "":
		case a.m.state.Place == before:
			said = still
		default:
			said = a.m.elsewhere(before)
		}
		return a.m.moved(said)
	}
}

// say posts a message.
func (a actionMaker) say(msg func() tea.Msg) func() tea.Cmd {
	return func() tea.Cmd {
		a.m.post(msg())
		return nil
	}
}

// open opens a dialog.
func (a actionMaker) open(d func() dialog.Dialog) func() tea.Cmd {
	return a.say(func() tea.Msg { return openMsg{d()} })
}

// show brings a view to the front.
func (a actionMaker) show(id leaf.ID) func() tea.Cmd {
	return a.say(func() tea.Msg { return leaf.ShowMsg{View: id} })
}

// showOnceLoaded brings a view to the front, if need be once what it shows has been read: what is typed ahead
// counts.
func (a actionMaker) showOnceLoaded(id leaf.ID) func() tea.Cmd {
	show := a.show(id)
	return func() tea.Cmd {
		if a.m.loader.opening() {
			a.m.loader.view = id
			return nil
		}
		return show()
	}
}

// match goes to the filter's next block, or to the one before it.
func (a actionMaker) match(by int) func() tea.Cmd {
	return func() tea.Cmd {
		m := a.m
		to, said := m.filter.next(m.state.Selected, by)
		m.post(said)
		if to == timeline.NoAlloc {
			return nil
		}
		return m.moved(m.cursor.toBlock(to))
	}
}

// moving are the moves of the cursor in time.
func (a actionMaker) moving() keymap {
	m, at := a.m, &a.m.cursor
	return keymap{
		{
			name: "left", group: groupMove, binding: bind("←", "one column back", "left", "h"),
			can: a.hasEvents, do: a.walk(atStart, func() string { return at.move(-1, m.screen.columns()) }),
		},
		{
			name: "right", group: groupMove, binding: bind("→", "one column forward", "right", "l"),
			can: a.hasEvents, do: a.walk(atEnd, func() string { return at.move(1, m.screen.columns()) }),
		},
		{
			name: "previous event", group: groupMove, binding: bind(",", "one event back", ","),
			can: a.hasEvents, do: a.walk(atStart, func() string { return at.step(-1) }),
		},
		{
			name: "next event", group: groupMove, binding: bind(".", "one event forward", "."),
			can: a.hasEvents, do: a.walk(atEnd, func() string { return at.step(1) }),
		},
		{
			name: "peak", group: groupMove, binding: bind("p", "to the peak", "p"),
			can: a.hasEvents, do: a.walk(atPeak, at.toPeak),
		},
		{
			name: "previous iteration", group: groupMove, binding: bind("[", "previous iteration", "["),
			can: a.hasIterations, lacks: noIterations,
			do: a.walk(atStart, func() string { return at.toIteration(-1) }),
		},
		{
			name: "next iteration", group: groupMove, binding: bind("]", "next iteration", "]"),
			can: a.hasIterations, lacks: noIterations,
			do: a.walk(atEnd, func() string { return at.toIteration(1) }),
		},
		{
			name: "previous peak", group: groupMove, binding: bind("{", "previous local peak", "{"),
			can: a.hasEvents, do: a.walk(atStart, func() string { return at.toLocalPeak(-1) }),
		},
		{
			name: "next peak", group: groupMove, binding: bind("}", "next local peak", "}"),
			can: a.hasEvents, do: a.walk(atEnd, func() string { return at.toLocalPeak(1) }),
		},
		{
			name: "start", group: groupMove, binding: bind("g", "to the start", "g", "home"),
			can: a.hasEvents, do: a.walk(atStart, func() string { return at.toEnd(-1) }),
		},
		{
			name: "end", group: groupMove, binding: bind("G", "to the end", "G", "end"),
			can: a.hasEvents, do: a.walk(atEnd, func() string { return at.toEnd(1) }),
		},
		{
			name: "page back", group: groupMove,
			binding: bind("pgup", "half a window back", "pgup", "ctrl+b", "ctrl+u"),
			can:     a.hasEvents, do: a.walk(atStart, func() string { return at.page(-1) }),
		},
		{
			name: "page on", group: groupMove,
			binding: bind("pgdn", "half a window forward", "pgdown", "ctrl+f", "ctrl+d"),
			can:     a.hasEvents, do: a.walk(atEnd, func() string { return at.page(1) }),
		},
	}
}

// zooming chooses the stretch of time that is shown, and what is counted along it.
func (a actionMaker) zooming() keymap {
	at := &a.m.cursor
	return keymap{
		{
			name: "zoom in", group: groupLook, binding: bind("+", "zoom in at the cursor", "+", "="),
			can: a.hasEvents, do: a.walk("the zoom goes no further", func() string { return at.zoom(1, 2) }),
		},
		{
			name: "zoom out", group: groupLook, binding: bind("-", "zoom out", "-", "_"),
			can: a.hasEvents, do: a.walk(allShown, func() string { return at.zoom(2, 1) }),
		},
		{
			name: "whole recording", group: groupLook, binding: bind("z", "the whole recording", "z"),
			can: a.hasEvents, do: a.walk(allShown, at.wholeWindow),
		},
		{
			name: "this iteration", group: groupLook, binding: bind("Z", "zoom to this iteration", "Z"),
			can: a.hasIterations, lacks: noIterations,
			do: a.walk("this iteration is in view already", at.windowIteration),
		},
		{
			name: "axis", group: groupLook, binding: bind("x", "time or event index along x", "x"),
			can: a.hasEvents, do: a.walk("", at.toggleAxis),
		},
	}
}

// comparing marks a moment and compares others with it.
func (a actionMaker) comparing() keymap {
	at := &a.m.cursor
	return keymap{
		{
			name: "mark", group: groupCompare,
			binding: bind("c", "compare: mark this moment, then d at another", "c"),
			can:     a.hasEvents, do: a.walk("", at.mark),
		},
		{
			name: "back to mark", group: groupCompare, binding: bind("'", "jump to the mark and back", "'"),
			can: a.hasMark, lacks: noMark, do: a.walk("this is the mark", at.toMark),
		},
		{
			name: "compare", group: groupCompare,
			binding: bind("d", "compare this moment with the marked one", "d"),
			can:     a.hasMark, lacks: noMark, do: a.show(leaf.Peak),
		},
	}
}

// opening goes to what else is open.
func (a actionMaker) opening() keymap {
	m, s := a.m, &a.m.state
	return keymap{
		{
			name: "device", group: groupView, binding: bind("D", "another device", "D"),
			can: a.when(func() bool { return hasDevices(s) }), lacks: "there is no other device",
			do: a.open(func() dialog.Dialog {
				return dialog.NewList("Devices", "type to search", deviceEntries(s))
			}),
		},
		{
			name: "file", group: groupView, binding: bind("w", "another file or rank", "w"),
			can:   func() bool { return m.loader.idle() && hasFiles(s) },
			lacks: "no other file or rank is open",
			do: a.open(func() dialog.Dialog {
				return dialog.NewList("Files and ranks", "type to search", fileEntries(s))
			}),
		},
	}
}

// finding searches blocks, and goes back.
func (a actionMaker) finding() keymap {
	m := a.m
	return keymap{
		{
			name: "filter", group: groupFind, first: true,
			binding: bind("/", "search blocks; Allocations lists them", "/"),
			can:     m.ready, do: a.open(func() dialog.Dialog { return m.filter.prompt() }),
		},
		{
			name: "next match", group: groupFind, binding: bind("n", "next block found", "n"),
			can: a.hasFilter, lacks: noSearch, do: a.match(1),
		},
		{
			name: "previous match", group: groupFind, binding: bind("N", "previous block found", "N"),
			can: a.hasFilter, lacks: noSearch, do: a.match(-1),
		},
		{
			name: "back", group: groupView,
			binding: bind("esc", "back: search, mark, zoom, view before", "esc"),
			can:     func() bool { return m.loader.idle() && undoable(m) != nothing }, do: m.back,
		},
	}
}

// sharing hands what is shown to other programs.
func (a actionMaker) sharing() keymap {
	m, s := a.m, &a.m.state
	return keymap{
		{
			name: "copy", group: groupShare, binding: bind("y", "copy what is selected", "y"),
			can: m.ready, do: a.say(func() tea.Msg { return copyOf(m.tabs.view(), s) }),
		},
		{
			name: "follow", group: groupShare, binding: bind("o", "open the source line in your editor", "o"),
			can: a.when(func() bool {
				file, _ := sourceOf(m.tabs.view(), s)
				return file != ""
			}),
			lacks: "what is selected has no source line here",
			do: a.say(func() tea.Msg {
				file, line := sourceOf(m.tabs.view(), s)
				return leaf.FollowMsg{File: file, Line: line}
			}),
		},
		{
			name: "export", group: groupShare, binding: bind("e", "export", "e"),
			can: m.ready, do: a.open(func() dialog.Dialog { return m.share.exports(s, m.shot()) }),
		},
	}
}

// following are the actions on a job that is watched; none if there is no job.
func (a actionMaker) following() keymap {
	m := a.m
	if m.follow.live == nil {
		return nil
	}
	return keymap{
		{
			name: "follow job", group: groupView,
			binding: bind("F", "follow the job, or stay on this step", "F"),
			can:     func() bool { return m.follow.shown != nil },
			do: func() tea.Cmd {
				m.follow.toggle()
				return nil
			},
		},
		{
			name: "rank", group: groupView, binding: bind("w", "another rank of the job", "w"),
			can: m.follow.hasRanks,
			do: func() tea.Cmd {
				m.follow.pickRank(m.state.Units)
				return nil
			},
		},
	}
}

// views are the keys of the views.
func (a actionMaker) views() keymap {
	var table keymap
	for _, v := range a.m.tabs.views {
		id := v.ID()
		table = append(table, action{
			name: viewAction(id), group: groupView, first: true,
			binding: bind(string(rune(id)), v.Name(), string(rune(id))),
			can:     func() bool { return a.m.loader.idle() || a.m.loader.opening() },
			do:      a.showOnceLoaded(id),
		})
	}
	return table
}

// viewAction is the name of the action that brings a view to the front.
func viewAction(id leaf.ID) string { return "view " + string(rune(id)) }

// absent are the keys of views that are not there, which say what would bring them.
func (a actionMaker) absent() keymap {
	if a.m.follow.live != nil {
		return nil
	}
	text := "a file has no Live view: gmemtop run or attach watches a job"
	if a.m.follow.machine != nil {
		text = "no Live view yet: P lists the processes, enter watches one"
	}
	return keymap{{
		name: "no job", group: groupView, first: true,
		binding: bind("L", "Live: only for a job that is watched", "L"),
		do:      a.say(func() tea.Msg { return leaf.ToastMsg{Text: text} }),
	}}
}

// app are the actions on gmemtop itself.
func (a actionMaker) app() keymap {
	m, s := a.m, &a.m.state
	return keymap{
		{
			name: "help", group: groupApp, first: true, binding: bind("?", "help", "?", "f1"),
			do: a.open(func() dialog.Dialog {
				return keysDialog(m.tabs.view(), m.tabs.bindings(s, m.loader.idle()), m.actions)
			}),
		},
		{
			name: "palette", group: groupApp, first: true,
			binding: bind(":", "command palette", ":", "ctrl+p"),
			do:      a.open(func() dialog.Dialog { return palette(m) }),
		},
		{
			name: "theme", group: groupApp, binding: bind("t", "next theme", "t"),
			can: m.screen.hasColors, lacks: "this terminal shows no colours",
			do: a.say(func() tea.Msg { return themeMsg{theme.After(s.Theme.Name)} }),
		},
		{
			name: "units", group: groupApp, binding: bind("u", "units: GiB, GB, bytes", "u"),
			do: func() tea.Cmd {
				m.display.nextUnits()
				return tea.Batch(m.open.analyse(s.Units), m.changed())
			},
		},
		{
			name: "mouse", group: groupApp, binding: bind("M", "mouse on or off (off: select text)", "M"),
			do: func() tea.Cmd {
				m.display.toggleMouse()
				return nil
			},
		},
		{
			name: "suspend", group: groupApp, first: true, binding: bind("ctrl+z", "suspend", "ctrl+z"),
			do: func() tea.Cmd { return tea.Suspend },
		},
		{
			name: "redraw", group: groupApp, first: true, binding: bind("ctrl+l", "redraw the screen",
				"ctrl+l"),
			do: func() tea.Cmd { return tea.ClearScreen },
		},
		{
			name: "quit", group: groupApp, first: true, binding: bind("q", "quit", "q", "ctrl+c"),
			do: func() tea.Cmd {
				m.stop()
				return tea.Quit
			},
		},
	}
}
