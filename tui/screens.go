package tui

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// drawLoading says what is being opened, how far it is and how long it takes.
func (m painter) drawLoading(c *canvas.Canvas) {
	th := m.state.Theme
	w, h := c.Size()
	stage, done, total := m.loading.latest()
	room := min(w-8, 60)
	x, y := (w-room)/2, max(h/2-3, 0)
	c.Text(x, y, th.Accent.Strong(), "gmemtop")
	c.TextMax(x+9, y, room-9, th.Text, canvas.TruncateLeft(m.loading.title, room-9))
	if stage == "" {
		stage = "opening"
	}
	right := ""
	if total > 0 {
		right = fmt.Sprintf("%.0f %%", 100*float64(min(done, total))/float64(total))
	} else if done > 0 {
		right = leaf.Count(done)
	}
	c.Fill(canvas.Rect{X: x, Y: y + 2, W: room, H: 1}, '─', th.Faint)
	if total > 0 {
		n := int(float64(min(done, total)) / float64(total) * float64(room))
		c.Fill(canvas.Rect{X: x, Y: y + 2, W: n, H: 1}, '━', th.Accent)
	}
	c.TextMax(x, y+3, room-10, th.Dim, stage)
	c.TextRight(x+room, y+3, th.Dim, right)
	if took := m.now().Sub(m.loading.since); took >= 2*time.Second {
		c.Text(x, y+5, th.Dim, timeline.Duration(int64(took.Round(time.Second)))+"; q stops it")
	}
}

// drawFailure says in one sentence what is wrong, where, and what to do about it.
func (m painter) drawFailure(c *canvas.Canvas) {
	th := m.state.Theme
	w, h := c.Size()
	what, advice := explain(m.failure)
	room := min(w-6, 84)
	lines, hints := leaf.Wrap(what, room), leaf.Wrap(advice, room)
	x, y := (w-room)/2, max((h-len(lines)-len(hints)-4)/2, 0)
	c.TextMax(x, y, room, th.Bad.Strong(), "This cannot be shown")
	y += 2
	for _, l := range lines {
		c.Text(x, y, th.Text, l)
		y++
	}
	y++
	for _, l := range hints {
		c.Text(x, y, th.Accent, l)
		y++
	}
}

// explain splits an error into what is wrong and what to do.
func explain(err error) (what, advice string) {
	var f *traces.FormatError
	switch {
	case errors.As(err, &f):
		clone := *f
		clone.Advice = ""
		if f.Advice == "" {
			return clone.Error(), "Check that the file is whole; `gmemtop doctor` lists the formats that can be read."
		}
		return clone.Error(), f.Advice
	case errors.Is(err, fs.ErrNotExist):
		return err.Error(), "Check the path; a folder of traces can be named too."
	case errors.Is(err, fs.ErrPermission):
		return err.Error(), "The file cannot be read by this user: copy it, or change its mode with chmod."
	case errors.Is(err, traces.ErrUnsupported):
		return err.Error(), "`gmemtop doctor` lists what can be read here."
	}
	return err.Error(), "Press q to leave."
}
