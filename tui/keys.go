package tui

import (
	"unicode/utf8"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// keymap is the only place that knows the root's keys; help, palette and hints are made from it.
type keymap []action

// action is something that a key does.
type action struct {
	name    string // its name in messages
	group   string // its heading in help
	binding key.Binding
	// first actions mean the same in every view and come before the view's own keys.
	first bool
	// can reports whether it does something now; nil means always.
	can func() bool
	do  func() tea.Cmd
}

func bind(help, desc string, keys ...string) key.Binding {
	return key.NewBinding(key.WithKeys(keys...), key.WithHelp(help, desc))
}

// The headings of help, in order.
const (
	groupView    = "Go to"
	groupMove    = "Move in time"
	groupLook    = "Zoom"
	groupCompare = "Compare"
	groupFind    = "Find blocks"
	groupShare   = "Copy, export"
	groupApp     = "gmemtop"
)

// newKeymap makes the table for a model.
func newKeymap(m *model) keymap {
	ready, at, s := m.ready, &m.cursor, &m.state
	when := func(can func() bool) func() bool { return func() bool { return m.ready() && can() } }
	walk := func(do func() string) func() tea.Cmd { return func() tea.Cmd { return m.moved(do()) } }
	say := func(msg func() tea.Msg) func() tea.Cmd {
		return func() tea.Cmd {
			m.post(msg())
			return nil
		}
	}
	open := func(d func() dialog.Dialog) func() tea.Cmd {
		return say(func() tea.Msg { return openMsg{d()} })
	}
	show := func(id leaf.ID) func() tea.Cmd {
		return say(func() tea.Msg { return leaf.ShowMsg{View: id} })
	}
	match := func(by int) func() tea.Cmd {
		return func() tea.Cmd {
			to, said := m.filter.next(m.state.Selected, by)
			m.post(said)
			if to == timeline.NoAlloc {
				return nil
			}
			return m.moved(at.toBlock(to))
		}
	}
	hasEvents, hasIterations := when(at.hasEvents), when(at.hasIterations)
	hasMark := when(func() bool { return at.HasMark })
	hasFilter := when(func() bool { return m.filter.QueryText != "" })
	table := keymap{
		{
			name: "left", group: groupMove, binding: bind("←", "one column back", "left", "h"),
			can: hasEvents, do: walk(func() string { return at.move(-1, m.screen.columns()) }),
		},
		{
			name: "right", group: groupMove, binding: bind("→", "one column forward", "right", "l"),
			can: hasEvents, do: walk(func() string { return at.move(1, m.screen.columns()) }),
		},
		{
			name: "previous event", group: groupMove, binding: bind(",", "one event back", ","),
			can: hasEvents, do: walk(func() string { return at.step(-1) }),
		},
		{
			name: "next event", group: groupMove, binding: bind(".", "one event forward", "."),
			can: hasEvents, do: walk(func() string { return at.step(1) }),
		},
		{
			name: "peak", group: groupMove, binding: bind("p", "to the peak", "p"),
			can: hasEvents, do: walk(at.toPeak),
		},
		{
			name: "previous iteration", group: groupMove, binding: bind("[", "previous iteration", "["),
			can: hasIterations, do: walk(func() string { return at.toIteration(-1) }),
		},
		{
			name: "next iteration", group: groupMove, binding: bind("]", "next iteration", "]"),
			can: hasIterations, do: walk(func() string { return at.toIteration(1) }),
		},
		{
			name: "previous peak", group: groupMove, binding: bind("{", "previous local peak", "{"),
			can: hasEvents, do: walk(func() string { return at.toLocalPeak(-1) }),
		},
		{
			name: "next peak", group: groupMove, binding: bind("}", "next local peak", "}"),
			can: hasEvents, do: walk(func() string { return at.toLocalPeak(1) }),
		},
		{
			name: "start", group: groupMove, binding: bind("g", "to the start", "g", "home"),
			can: hasEvents, do: walk(func() string { return at.toEnd(-1) }),
		},
		{
			name: "end", group: groupMove, binding: bind("G", "to the end", "G", "end"),
			can: hasEvents, do: walk(func() string { return at.toEnd(1) }),
		},
		{
			name: "page back", group: groupMove,
			binding: bind("pgup", "half a window back", "pgup", "ctrl+b", "ctrl+u"),
			can:     hasEvents, do: walk(func() string { return at.page(-1) }),
		},
		{
			name: "page on", group: groupMove,
			binding: bind("pgdn", "half a window forward", "pgdown", "ctrl+f", "ctrl+d"),
			can:     hasEvents, do: walk(func() string { return at.page(1) }),
		},

		{
			name: "zoom in", group: groupLook, binding: bind("+", "zoom in at the cursor", "+", "="),
			can: hasEvents, do: walk(func() string { return at.zoom(1, 2) }),
		},
		{
			name: "zoom out", group: groupLook, binding: bind("-", "zoom out", "-", "_"),
			can: hasEvents, do: walk(func() string { return at.zoom(2, 1) }),
		},
		{
			name: "whole recording", group: groupLook, binding: bind("z", "the whole recording", "z"),
			can: hasEvents, do: walk(at.wholeWindow),
		},
		{
			name: "this iteration", group: groupLook, binding: bind("Z", "zoom to this iteration", "Z"),
			can: hasIterations, do: walk(at.windowIteration),
		},
		{
			name: "axis", group: groupLook, binding: bind("x", "time or event index along x", "x"),
			can: hasEvents, do: walk(at.toggleAxis),
		},
		{
			name: "mark", group: groupCompare,
			binding: bind("c", "compare: mark this moment, then d at another", "c"),
			can:     hasEvents, do: walk(at.mark),
		},
		{
			name: "back to mark", group: groupCompare, binding: bind("'", "jump to the mark and back", "'"),
			can: hasMark, do: walk(at.toMark),
		},
		{
			name: "compare", group: groupCompare,
			binding: bind("d", "compare this moment with the marked one", "d"),
			can:     hasMark, do: show(leaf.Peak),
		},
		{
			name: "device", group: groupView, binding: bind("D", "another device", "D"),
			can: when(func() bool { return hasDevices(s) }),
			do: open(func() dialog.Dialog {
				return dialog.NewList("Devices", "type to search", deviceEntries(s))
			}),
		},
		{
			name: "file", group: groupView, binding: bind("w", "another file or rank", "w"),
			can: func() bool { return m.loader.idle() && hasFiles(s) },
			do: open(func() dialog.Dialog {
				return dialog.NewList("Files and ranks", "type to search", fileEntries(s))
			}),
		},

		{
			name: "filter", group: groupFind, first: true,
			binding: bind("/", "search blocks; Allocations lists them", "/"),
			can:     ready, do: open(func() dialog.Dialog { return m.filter.prompt() }),
		},
		{
			name: "next match", group: groupFind, binding: bind("n", "next block found", "n"),
			can: hasFilter, do: match(1),
		},
		{
			name: "previous match", group: groupFind, binding: bind("N", "previous block found", "N"),
			can: hasFilter, do: match(-1),
		},
		{
			name: "back", group: groupView,
			binding: bind("esc", "back: search, mark, zoom, view before", "esc"),
			can:     func() bool { return m.loader.idle() && m.next() != nothing }, do: m.back,
		},

		{
			name: "copy", group: groupShare, binding: bind("y", "copy what is selected", "y"),
			can: ready, do: say(func() tea.Msg { return copyOf(m.tabs.view(), s) }),
		},
		{
			name: "follow", group: groupShare, binding: bind("o", "open the source line in your editor", "o"),
			can: when(func() bool {
				file, _ := sourceOf(m.tabs.view(), s)
				return file != ""
			}),
			do: say(func() tea.Msg {
				file, line := sourceOf(m.tabs.view(), s)
				return leaf.FollowMsg{File: file, Line: line}
			}),
		},
		{
			name: "export", group: groupShare, binding: bind("e", "export", "e"),
			can: ready, do: open(func() dialog.Dialog { return m.share.exports(s, m.shot()) }),
		},
	}
	if m.follow.live != nil {
		table = append(table, action{
			name: "follow job", group: groupView,
			binding: bind("F", "follow the job: the newest captured step, or hold this one", "F"),
			can:     func() bool { return m.follow.shown != nil },
			do: func() tea.Cmd {
				m.follow.toggle()
				return nil
			},
		}, action{
			name: "rank", group: groupView, binding: bind("w", "another rank of the job", "w"),
			can: m.follow.hasRanks,
			do: func() tea.Cmd {
				m.follow.pickRank(s.Units)
				return nil
			},
		})
	}
	for _, v := range m.tabs.views {
		id := v.ID()
		table = append(table, action{
			name: "view " + string(rune(id)), group: groupView, first: true,
			binding: bind(string(rune(id)), v.Name(), string(rune(id))),
			can:     m.loader.idle, do: show(id),
		})
	}
	table = append(table, absent(m)...)
	return append(table,
		action{
			name: "help", group: groupApp, first: true, binding: bind("?", "help", "?", "f1"),
			do: open(func() dialog.Dialog {
				return keysDialog(m.tabs.view(), m.tabs.bindings(s, m.loader.idle()), m.actions)
			}),
		},
		action{
			name: "palette", group: groupApp, first: true,
			binding: bind(":", "command palette", ":", "ctrl+p"),
			do:      open(func() dialog.Dialog { return palette(m) }),
		},
		action{
			name: "theme", group: groupApp, binding: bind("t", "next theme", "t"),
			can: m.screen.hasColors,
			do:  say(func() tea.Msg { return themeMsg{theme.After(s.Theme.Name)} }),
		},
		action{
			name: "units", group: groupApp, binding: bind("u", "units: GiB, GB, bytes", "u"),
			do: func() tea.Cmd {
				m.display.nextUnits()
				return tea.Batch(m.open.analyse(s.Units), m.changed())
			},
		},
		action{
			name: "mouse", group: groupApp, binding: bind("M", "mouse on or off (off: select text)", "M"),
			do: func() tea.Cmd {
				m.display.toggleMouse()
				return nil
			},
		},
		action{
			name: "suspend", group: groupApp, first: true, binding: bind("ctrl+z", "suspend", "ctrl+z"),
			do: func() tea.Cmd { return tea.Suspend },
		},
		action{
			name: "redraw", group: groupApp, first: true, binding: bind("ctrl+l", "redraw the screen",
				"ctrl+l"),
			do: func() tea.Cmd { return tea.ClearScreen },
		},
		action{
			name: "quit", group: groupApp, first: true, binding: bind("q", "quit", "q", "ctrl+c"),
			do: func() tea.Cmd {
				m.stop()
				return tea.Quit
			},
		},
	)
}

// absent are the keys of views that are not there, which say what would bring them.
func absent(m *model) []action {
	say := func(text string) func() tea.Cmd {
		return func() tea.Cmd {
			m.post(leaf.ToastMsg{Text: text})
			return nil
		}
	}
	var list []action
	if m.follow.live == nil {
		text := "no Live view of a file: gmemtop run or attach watches a job"
		if m.follow.machine != nil {
			text = "no Live view yet: P lists the processes, enter watches one"
		}
		list = append(list, action{
			name: "no job", group: groupView, first: true,
			binding: bind("L", "Live: only for a job that is watched", "L"), do: say(text),
		})
	}
	return list
}

// looksCloser reports whether the action looks at a part of what is shown, which must then stay.
func (a *action) looksCloser() bool {
	return a.group == groupMove || a.group == groupLook || a.group == groupCompare || a.name == "device" ||
		a.name == "file"
}

func (a *action) enabled() bool { return a.can == nil || a.can() }

// actionFor returns the action that a key runs now, among those with first as given, nil for none.
func (k keymap) actionFor(msg tea.KeyPressMsg, first bool) *action {
	for i := range k {
		a := &k[i]
		if a.first == first && key.Matches(msg, a.binding) && a.enabled() {
			return a
		}
	}
	return nil
}

// named returns the action of a name, nil for none.
func (k keymap) named(name string) *action {
	for i := range k {
		if k[i].name == name {
			return &k[i]
		}
	}
	return nil
}

var namedKeys = map[string]rune{
	"enter": tea.KeyEnter, "tab": tea.KeyTab, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace,
	"delete": tea.KeyDelete,
	"up":     tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft, "right": tea.KeyRight, "home": tea.KeyHome,
	"end":  tea.KeyEnd,
	"pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "space": tea.KeySpace, "f1": tea.KeyF1,
}

// keyPress returns the message for a key by its name, such as "p", "ctrl+p", "shift+tab" or "enter".
func keyPress(name string) tea.KeyPressMsg {
	var k tea.Key
	for {
		switch {
		case len(name) > 5 && name[:5] == "ctrl+":
			k.Mod |= tea.ModCtrl
			name = name[5:]
			continue
		case len(name) > 6 && name[:6] == "shift+":
			k.Mod |= tea.ModShift
			name = name[6:]
			continue
		case len(name) > 4 && name[:4] == "alt+":
			k.Mod |= tea.ModAlt
			name = name[4:]
			continue
		}
		break
	}
	if code, ok := namedKeys[name]; ok {
		if k.Code = code; name == "space" && k.Mod == 0 {
			k.Text = " "
		}
		return tea.KeyPressMsg(k)
	}
	k.Code, _ = utf8.DecodeRuneInString(name)
	if k.Mod == 0 {
		k.Text = name
	}
	return tea.KeyPressMsg(k)
}

// hintNames are the root's actions that follow the view's own in the bottom line, most useful first.
var hintNames = []string{
	"follow job", "rank", "peak", "zoom in", "next iteration", "filter", "mark", "compare", "back",
	"next match", "follow", "device", "file",
}

// stayingHints are those that the bottom line has in every view.
var stayingHints = []string{"export", "palette"}
