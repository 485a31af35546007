package dialog

import (
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// line is the second lowest row, where the user types.
type line struct {
	label string
	text  textinput.Model
}

// draw draws the row: the label, the text, and a note in the remaining cells, which is an error if bad is
// set.
func (l *line) draw(th *theme.Theme, c *canvas.Canvas, whole, bad bool, note func(w int) string) {
	w, h := c.Size()
	c.DropZones()
	g := onDialog(th, c)
	label := " " + l.label + " "
	room := max(w-canvas.Width(label), 0)
	text := canvas.Width(l.text.Value())
	row := g.accent.Render(label) + viewInput(&l.text, g.strong.Reverse(whole), g.dim, min(text+1, room))
	st := g.dim
	if bad {
		st = g.bad
	}
	if left := room - text - 3; left > 0 {
		row += st.Render(" " + canvas.Truncate(canvas.Plain(note(left)), left))
	}
	c.Print(0, h-2, lipgloss.PlaceHorizontal(w, lipgloss.Left, row, lipgloss.WithWhitespaceStyle(g.text)))
}

// Question is a dialog in which one types an answer: a budget, a file's name.
type Question struct {
	line
	ask leaf.AskMsg
	// answer is the message that the text stands for, nil if it is invalid: err says why.
	answer tea.Msg
	err    error
	// whole means that all of the text is selected, as a proposal: typing replaces it, moving the cursor
	// keeps it.
	whole bool
	// touched means that a key changed the text; until then an invalid text is not an error.
	touched bool
}

// Ask returns the dialog of a question.
func Ask(ask leaf.AskMsg) *Question {
	q := &Question{line: line{canvas.Plain(ask.Title), newInput(ask.Text)}, ask: ask, whole: ask.Text != ""}
	q.read()
	return q
}

func (q *Question) read() { q.answer, q.err = q.ask.Answer(strings.TrimSpace(q.text.Value())) }

// Hints implements Dialog.
func (q *Question) Hints() []key.Binding {
	return []key.Binding{
		bind("enter", "ok", "enter"), bind("esc", "cancel", "esc"), bind("ctrl+u", "clear", "ctrl+u"),
	}
}

// Update implements Dialog.
func (q *Question) Update(in tea.Msg) (done bool, msg tea.Msg) {
	switch in := in.(type) {
	case CloseMsg:
		return true, nil
	case tea.PasteMsg:
		q.edit(in, true)
	case tea.KeyPressMsg:
		k := in.String()
		switch k {
		case "enter":
			q.touched = true
			if q.err != nil {
				return false, nil
			}
			return true, q.answer
		case "esc":
			return true, nil
		}
		q.edit(in, in.Text != "" || k == "backspace" || k == "delete")
	}
	return false, nil
}

// edit applies a key to the text; if it writes, it replaces a proposal.
func (q *Question) edit(in tea.Msg, writes bool) {
	before := q.text.Value()
	if q.whole && writes {
		q.text.SetValue("")
	}
	q.whole = false
	q.text, _ = q.text.Update(in)
	if q.text.Value() != before {
		q.touched = true
		q.read()
	}
}

// Draw implements Dialog.
func (q *Question) Draw(th *theme.Theme, c *canvas.Canvas) {
	bad := q.err != nil && q.touched
	q.draw(th, c, q.whole, bad, func(int) string {
		if bad {
			return q.err.Error()
		}
		return q.ask.Hint
	})
}

// Filter is a dialog that filters as the user types and shows syntax errors. Esc restores the previous
// filter.
type Filter struct {
	line
	before string
	parse  func(text string) error
	note   func(text string, w int) string
	err    error
}

// NewFilter returns the dialog with the current filter. Note returns a note of at most w cells to show beside
// a valid text.
func NewFilter(text string, parse func(text string) error, note func(text string, w int) string) *Filter {
	return &Filter{line: line{"search /", newInput(text)}, before: text, parse: parse, note: note}
}

// Hints implements Dialog.
func (f *Filter) Hints() []key.Binding {
	return []key.Binding{
		bind("enter", "keep", "enter"), bind("esc", "cancel", "esc"), bind("ctrl+u", "clear", "ctrl+u"),
	}
}

// Update implements Dialog.
func (f *Filter) Update(in tea.Msg) (done bool, msg tea.Msg) {
	switch in := in.(type) {
	case CloseMsg:
		return true, nil
	case tea.KeyPressMsg:
		switch in.String() {
		case "enter":
			return f.err == nil, nil
		case "esc":
			return true, leaf.QueryMsg{Text: f.before}
		}
	case tea.PasteMsg:
	default:
		return false, nil
	}
	before := f.text.Value()
	f.text, _ = f.text.Update(in)
	text := f.text.Value()
	if text == before {
		return false, nil
	}
	if f.err = f.parse(text); f.err != nil {
		return false, nil
	}
	return false, leaf.QueryMsg{Text: text}
}

// Draw implements Dialog.
func (f *Filter) Draw(th *theme.Theme, c *canvas.Canvas) {
	f.draw(th, c, false, f.err != nil, func(w int) string {
		if f.err != nil {
			return f.err.Error()
		}
		return f.note(f.text.Value(), w)
	})
}
