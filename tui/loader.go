package tui

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// loader runs one load at a time and knows its progress, or what went wrong.
type loader struct {
	*clock
	post    func(tea.Msg)
	number  int      // of the newest load
	current *loading // nil where nothing is loaded
	stop    context.CancelFunc
	view    leaf.ID // asked for while loading, 0 for none
	failure error   // why nothing can be shown
	partial error   // what went wrong although something is shown
}

// loading is a load in progress. The Loader writes its progress from its own goroutine and the frame reads
// the latest.
type loading struct {
	number int
	title  string
	since  time.Time
	beside bool // show the result beside what is open, not instead of it

	mu          sync.Mutex
	stage       string
	done, total int64
}

func (l *loading) report(stage string, done, total int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage, l.done, l.total = stage, done, total
}

func (l *loading) latest() (stage string, done, total int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage, l.done, l.total
}

// loadedMsg ends a load, with the sound part and what went wrong.
type loadedMsg struct {
	load   int
	loaded Loaded
	err    error
}

// empty reports whether the load returned nothing to show.
func (m loadedMsg) empty() bool {
	return m.err != nil && len(m.loaded.Timelines) == 0 && m.loaded.Run == nil
}

// tickMsg redraws the loading screen until the load ends.
type tickMsg struct {
	load int
	at   time.Time
}

// start starts a load. It cancels an earlier one in progress and drops its result.
func (l *loader) start(read Loader, title string, beside bool) tea.Cmd {
	l.cancel()
	l.number++
	now := &loading{number: l.number, title: title, since: l.now(), beside: beside}
	l.current, l.view, l.failure, l.partial = now, 0, nil, nil
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	if read == nil {
		read = func(context.Context, func(string, int64, int64)) (Loaded, error) {
			return Loaded{}, errors.New("nothing to open: name a file, such as `gmemtop " +
				"replay snapshot.pickle`")
		}
	}
	return tea.Batch(l.tick(), func() tea.Msg {
		loaded, err := read(ctx, now.report)
		return loadedMsg{now.number, loaded, err}
	})
}

// cancel stops a load in progress.
func (l *loader) cancel() {
	if l.stop != nil {
		l.stop()
	}
}

func (l *loader) tick() tea.Cmd {
	load := l.number
	return l.after(100*time.Millisecond, func(at time.Time) tea.Msg { return tickMsg{load, at} })
}

// onTick updates the loading screen until the load ends.
func (l *loader) onTick(msg tickMsg) tea.Cmd {
	if l.current == nil || msg.load != l.number {
		return nil
	}
	return l.tick()
}

// take ends the load that a result belongs to, and keeps what went wrong. beside means that the result is
// shown next to what is open; ok is false if there is nothing to show: the result is an earlier load's, or
// the load failed. If something is open, a failure is only a message.
func (l *loader) take(msg loadedMsg, open bool) (beside, ok bool) {
	if l.current == nil || msg.load != l.number {
		return false, false
	}
	beside, l.current = l.current.beside, nil
	switch {
	case !msg.empty():
		l.partial = msg.err
		return beside, true
	case beside && open:
		l.post(leaf.ToastMsg{Text: msg.err.Error(), Error: true})
	default:
		l.failure = msg.err
	}
	return beside, false
}

// warning says what the last load could not read; "" for nothing.
func (l *loader) warning() string {
	if l.partial == nil {
		return ""
	}
	return "partial: " + l.partial.Error()
}

// idle reports whether nothing is loading and the last load did not fail.
func (l *loader) idle() bool { return l.current == nil && l.failure == nil }

// opening reports whether something is loading that is shown instead of what is open.
func (l *loader) opening() bool { return l.current != nil && !l.current.beside }

// draw shows the load in progress, or why it failed.
func (l *loader) draw(th *theme.Theme, c *canvas.Canvas) {
	if l.current == nil {
		drawFailure(th, c, l.failure)
		return
	}
	w, h := c.Size()
	stage, done, total := l.current.latest()
	room := min(w-8, 60)
	x, y := (w-room)/2, max(h/2-3, 0)
	c.Text(x, y, th.Accent.Strong(), "gmemtop")
	c.TextMax(x+9, y, room-9, th.Text, canvas.TruncateLeft(l.current.title, room-9))
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
	if took := l.now().Sub(l.current.since); took >= 2*time.Second {
		c.Text(x, y+5, th.Dim, timeline.Duration(int64(took.Round(time.Second)))+"; q stops it")
	}
}

// drawFailure says in one sentence what is wrong, where, and how to fix it.
func drawFailure(th *theme.Theme, c *canvas.Canvas, err error) {
	w, h := c.Size()
	what, advice := explain(err)
	room := min(w-6, 84)
	text := lipgloss.JoinVertical(lipgloss.Left,
		c.Gloss(th.Bad.Strong()).Render(canvas.Truncate("Cannot show this", room)), "",
		leaf.Paragraph(c, th.Text, what, room), "", leaf.Paragraph(c, th.Accent, advice, room))
	c.Print((w-room)/2, max((h-lipgloss.Height(text)-1)/2, 0), text)
}

// explain splits an error into what is wrong and how to fix it.
func explain(err error) (what, advice string) {
	var f *traces.FormatError
	var u *traces.UnsupportedError
	switch {
	case errors.As(err, &f):
		clone := *f
		clone.Advice = ""
		if f.Advice == "" {
			return clone.Error(), "Check that the file is whole; `gmemtop help formats` lists what can be " +
				"read."
		}
		return clone.Error(), f.Advice
	case errors.As(err, &u) && u.Advice != "":
		return strings.TrimSuffix(err.Error(), "; "+u.Advice), u.Advice
	case errors.Is(err, fs.ErrNotExist):
		return err.Error(), "Check the path; a folder of traces can be named too."
	case errors.Is(err, fs.ErrPermission):
		return err.Error(), "You may not read this file: copy it, or change its mode with chmod."
	case errors.Is(err, traces.ErrUnsupported):
		return err.Error(), "`gmemtop help formats` lists what can be read."
	}
	return err.Error(), "Press q to leave."
}
