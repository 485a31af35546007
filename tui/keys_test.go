package tui

import (
	"testing"

	tea "charm.land/bubbletea/v2"
)

func TestAKeyIsReadFromItsName(t *testing.T) {
	for name, want := range map[string]tea.KeyPressMsg{
		"p":               {Code: 'p', Text: "p"},
		"space":           {Code: tea.KeySpace, Text: " "},
		"ctrl+p":          {Code: 'p', Mod: tea.ModCtrl},
		"shift+tab":       {Code: tea.KeyTab, Mod: tea.ModShift},
		"alt+shift+left":  {Code: tea.KeyLeft, Mod: tea.ModAlt | tea.ModShift},
		"ctrl+shift+left": {Code: tea.KeyLeft, Mod: tea.ModCtrl | tea.ModShift},
		"+":               {Code: '+', Text: "+"},
		"ctrl++":          {Code: '+', Mod: tea.ModCtrl},
	} {
		if got := keyPress(name); got != want {
			t.Errorf("%s is %+v", name, got)
		}
	}
}
