package tui

import (
	"strings"
	"unicode/utf8"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
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
	// lacks says why it can do nothing now, "" if that is obvious.
	lacks string
	do    func() tea.Cmd
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
	"enter":     tea.KeyEnter,
	"tab":       tea.KeyTab,
	"esc":       tea.KeyEscape,
	"backspace": tea.KeyBackspace,
	"delete":    tea.KeyDelete,
	"up":        tea.KeyUp,
	"down":      tea.KeyDown,
	"left":      tea.KeyLeft,
	"right":     tea.KeyRight,
	"home":      tea.KeyHome,
	"end":       tea.KeyEnd,
	"pgup":      tea.KeyPgUp,
	"pgdown":    tea.KeyPgDown,
	"space":     tea.KeySpace,
	"f1":        tea.KeyF1,
}

var modifiers = []struct {
	prefix string
	mod    tea.KeyMod
}{
	{"ctrl+", tea.ModCtrl},
	{"shift+", tea.ModShift},
	{"alt+", tea.ModAlt},
}

// keyPress returns the message for a key by its name, such as "p", "ctrl+p", "shift+tab" or "enter".
func keyPress(name string) tea.KeyPressMsg {
	var k tea.Key
	for found := true; found; { // in any order
		found = false
		for _, m := range modifiers {
			if rest, ok := strings.CutPrefix(name, m.prefix); ok && rest != "" {
				k.Mod |= m.mod
				name, found = rest, true
			}
		}
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
