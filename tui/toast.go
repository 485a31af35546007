package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// toastEndMsg removes a toast unless a newer one replaced it.
type toastEndMsg struct{ number int }

// toaster shows one message at a time in the status line, for a few seconds.
type toaster struct {
	*clock
	text   string
	bad    bool
	number int // of the newest toast
	notice int // of the toast that says what was opened, 0 for none
}

// say shows a toast; errors stay longer.
func (t *toaster) say(text string, bad bool) tea.Cmd {
	if bad {
		return t.sayFor(text, bad, 8*time.Second)
	}
	return t.sayFor(text, bad, 4*time.Second)
}

func (t *toaster) sayFor(text string, bad bool, wait time.Duration) tea.Cmd {
	t.number++
	n := t.number
	t.text, t.bad = text, bad
	return t.after(wait, func(time.Time) tea.Msg { return toastEndMsg{n} })
}

// sayNotice says what was opened.
func (t *toaster) sayNotice(text string) tea.Cmd {
	cmd := t.sayFor(text, false, 20*time.Second)
	t.notice = t.number
	return cmd
}

// end removes a toast unless a newer one replaced it.
func (t *toaster) end(msg toastEndMsg) {
	if msg.number == t.number {
		t.text = ""
	}
}

// dropNotice removes the message about what was opened: a user who presses a key has read it, and the line
// should show what is under the cursor.
func (t *toaster) dropNotice() {
	if t.notice > 0 && t.notice == t.number {
		t.text, t.notice = "", 0
	}
}

// leave removes the message of the view that the user is leaving. Errors stay until their time is up.
func (t *toaster) leave() {
	if !t.bad {
		t.text = ""
	}
}

// draw draws the toast and reports whether there is one.
func (t *toaster) draw(th *theme.Theme, c *canvas.Canvas) bool {
	if t.text == "" {
		return false
	}
	st := th.Accent
	if t.bad {
		st = th.Bad
	}
	c.TextMax(1, 0, c.Width()-2, st, t.text)
	return true
}
