package tui

import (
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// question is the line at the bottom in which one types an answer: a budget, a file's name.
type question struct {
	ask leaf.AskMsg
	// answer is what the text means, nil where it means nothing: err says why.
	answer tea.Msg
	err    error
	text   input
	// whole says that all of the text is selected, as a proposal: what is typed takes its place, and a key that moves keeps it.
	whole bool
	// touched says that a key changed the text: before, what it lacks is no mistake.
	touched bool
}

func newQuestion(ask leaf.AskMsg) *question {
	q := &question{ask: ask, text: newInput(ask.Text), whole: ask.Text != ""}
	q.read()
	return q
}

func (q *question) read() { q.answer, q.err = q.ask.Answer(strings.TrimSpace(q.text.String())) }

func (q *question) hints() []key.Binding {
	return []key.Binding{bind("enter", "take it", "enter"), bind("esc", "leave it", "esc"), bind("ctrl+u", "clear", "ctrl+u")}
}

func (q *question) update(m *Model, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case closeMsg:
		return m.close()
	case tea.PasteMsg:
		q.replace()
		q.text.insert(msg.Content)
		q.touched = true
		q.read()
	case tea.KeyPressMsg:
		switch msg.String() {
		case "enter":
			if q.touched = true; q.err != nil {
				return nil
			}
			return tea.Batch(m.close(), m.send(q.answer))
		case "esc":
			return m.close()
		}
		before := q.text.String()
		if k := msg.String(); msg.Key().Text != "" || k == "backspace" || k == "delete" {
			q.replace()
		}
		q.whole = false
		q.text.update(msg)
		if q.text.String() != before {
			q.touched = true
			q.read()
		}
	}
	return nil
}

// replace takes a proposal away: something comes in its place.
func (q *question) replace() {
	if q.whole {
		q.text, q.whole = newInput(""), false
	}
}

func (q *question) draw(m *Model, c *canvas.Canvas) {
	th := m.state.Theme
	w, h := c.Size()
	c.DropZones()
	row := canvas.Rect{Y: h - 2, W: w, H: 1}
	c.Fill(row, ' ', th.Dialog)
	x := 1 + c.Text(1, row.Y, th.OnDialog(th.Accent), q.ask.Title+" ")
	start := x
	style := th.OnDialog(th.Strong)
	style.Reverse = q.whole
	x += c.Text(x, row.Y, style, q.text.String())
	at := start + canvas.Width(string(q.text.runes[:q.text.at]))
	c.Set(at, row.Y, max(c.At(at, row.Y).Rune, ' '), c.Style(canvas.Style{Reverse: true}))
	if q.err != nil && q.touched {
		c.TextMax(x+2, row.Y, w-x-3, th.OnDialog(th.Bad), q.err.Error())
		return
	}
	c.TextMax(x+2, row.Y, w-x-3, th.OnDialog(th.Dim), q.ask.Hint)
}

// pick shows what a view lets the user choose from.
func (m chooser) pick(msg leaf.PickMsg) tea.Cmd {
	var entries []entry
	for _, c := range msg.Choices {
		entries = append(entries, entry{title: c.Title, detail: c.Detail, enabled: !c.Off, run: func() tea.Cmd { return m.send(c.Msg) }})
	}
	l := newList(msg.Title, "type to search; enter takes it", entries)
	l.footer = msg.Footer
	return m.open(l)
}
