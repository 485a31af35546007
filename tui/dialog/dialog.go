// Package dialog has the dialogs that open above the views and take all keys while open: lists to choose from
// and lines to type in.
//
// A dialog owns its text, its rows and the choice among them. It knows no other component: Update returns the
// user's decision as a message. Dialogs are text, so Lip Gloss draws them and bubbles' text input edits it.
package dialog

import (
	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// Dialog is a list or a line.
type Dialog interface {
	// Update handles a key, a paste, the wheel, or a message of the dialog's own zones. A dialog that is done
	// is closed; msg, nil for none, is what it tells the component that opened it.
	Update(in tea.Msg) (done bool, msg tea.Msg)
	// Draw draws the dialog over what is drawn already; nothing below it can be clicked any more.
	Draw(th *theme.Theme, c *canvas.Canvas)
	// Hints are the keys that do something, most useful first.
	Hints() []key.Binding
}

// Messages of clickable zones.
type (
	// RowMsg picks a row of a list.
	RowMsg struct{ Row int }
	// CloseMsg closes the dialog.
	CloseMsg struct{}
	// stayMsg is sent by a click beside the rows, which does not count as a click outside.
	stayMsg struct{}
)

// Stack is the dialogs that are open; the top one has the keys. The zero Stack has none.
type Stack struct{ dialogs []Dialog }

// Len returns how many dialogs are open.
func (s *Stack) Len() int { return len(s.dialogs) }

// Open puts a dialog on top.
func (s *Stack) Open(d Dialog) { s.dialogs = append(s.dialogs, d) }

// Close takes the top dialog down.
func (s *Stack) Close() {
	if n := len(s.dialogs); n > 0 {
		s.dialogs = s.dialogs[:n-1]
	}
}

// Top returns the dialog on top, nil for none.
func (s *Stack) Top() Dialog {
	if len(s.dialogs) == 0 {
		return nil
	}
	return s.dialogs[len(s.dialogs)-1]
}

// Update passes a message to the top dialog and returns the dialog's own message, nil for none.
func (s *Stack) Update(in tea.Msg) tea.Msg {
	d := s.Top()
	if d == nil {
		return nil
	}
	done, msg := d.Update(in)
	if done {
		s.Close()
	}
	return msg
}

// Draw draws all dialogs, the top one last.
func (s *Stack) Draw(th *theme.Theme, c *canvas.Canvas) {
	for _, d := range s.dialogs {
		d.Draw(th, c)
	}
}

func bind(help, desc string, keys ...string) key.Binding {
	return key.NewBinding(key.WithKeys(keys...), key.WithHelp(help, desc))
}

// newInput returns a text input whose cursor does not blink.
func newInput(text string) textinput.Model {
	in := textinput.New()
	in.Prompt = ""
	in.KeyMap.Paste.SetEnabled(false) // the terminal pastes
	styles := in.Styles()
	styles.Cursor = textinput.CursorStyle{}
	in.SetStyles(styles)
	in.SetValue(text)
	in.Focus()
	return in
}

// viewInput draws a text input in at most w cells; longer text scrolls with the cursor.
func viewInput(in *textinput.Model, text, placeholder lipgloss.Style, w int) string {
	styles := in.Styles()
	styles.Focused.Text, styles.Focused.Placeholder = text, placeholder
	in.SetStyles(styles)
	in.SetWidth(max(w-1, 0)) // the cursor behind the text takes a cell
	in.SetCursor(in.Position())
	return in.View()
}

// glosses are the looks of a theme on the background of a dialog.
type glosses struct{ text, strong, dim, faint, accent, bad lipgloss.Style }

func onDialog(th *theme.Theme, c *canvas.Canvas) glosses {
	on := func(st canvas.Style) lipgloss.Style { return c.Gloss(th.OnDialog(st)).Inline(true) }
	return glosses{on(th.Text), on(th.Strong), on(th.Dim), on(th.Faint), on(th.Accent), on(th.Bad)}
}

func onSelected(th *theme.Theme, c *canvas.Canvas) glosses {
	on := func(st canvas.Style) lipgloss.Style { return c.Gloss(th.OnSelected(st)).Inline(true) }
	strong := on(th.Strong)
	return glosses{strong, strong, on(th.Dim), on(th.Faint), on(th.Accent), on(th.Bad)}
}
