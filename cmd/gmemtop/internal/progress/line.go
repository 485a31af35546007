// Package progress shows the progress of long work: on one line of a terminal, or now and then in a log.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// Line is a line that appears late, is redrawn rarely and disappears when the work is done. In a log it is
// written anew every few seconds, and stays.
type Line struct {
	w     io.Writer // nil shows nothing
	units timeline.Units
	now   func() time.Time
	log   bool // lines are not redrawn

	mu          sync.Mutex
	begun, last time.Time
	shown       bool
}

const (
	quietFor    = 100 * time.Millisecond
	redrawEvery = 80 * time.Millisecond
	logAfter    = 2 * time.Second
	logEvery    = 5 * time.Second
)

// New returns a line on w. If w is nil it shows nothing.
func New(w io.Writer, units timeline.Units) *Line {
	return &Line{w: w, units: units, now: time.Now, begun: time.Now()}
}

// NewLog returns a line in a log on w, which is no terminal: work that takes longer than two seconds says how
// far it is, every five seconds.
func NewLog(w io.Writer, units timeline.Units) *Line {
	l := New(w, units)
	l.log = true
	return l
}

// Tell shows how much of total a stage has done: a percentage, or bytes if total is 0.
func (l *Line) Tell(stage string, done, total int64) {
	l.draw(func() string {
		if total > 0 {
			return fmt.Sprintf("%s %d %%", stage, min(100*done/total, 100))
		}
		return stage + " " + l.units.Bytes(done)
	})
}

// Say shows any text, cut to the width of a usual terminal so that it stays on one line.
func (l *Line) Say(text string) {
	l.draw(func() string {
		if line := []rune(text); len(line) > 79 {
			return string(line[:78]) + "…"
		}
		return text
	})
}

// Clock says what is being done and for how many seconds, redrawn every second until stop is called.
func (l *Line) Clock(text string) (stop func()) {
	if l.w == nil {
		return func() {}
	}
	began, ended := l.now(), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.Say(text + elapsed(began, l.now()))
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		work.Wait()
		l.Done()
	}
}

// elapsed returns how long something has taken, "" for less than a second.
func elapsed(began, now time.Time) string {
	if d := now.Sub(began); d >= time.Second {
		return fmt.Sprintf(", %d s", int(d.Seconds()))
	}
	return ""
}

// draw draws the line, unless the work or the last redraw has only just begun.
func (l *Line) draw(line func() string) {
	if l.w == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, after, every := l.now(), quietFor, redrawEvery
	if l.log {
		after, every = logAfter, logEvery
	}
	if now.Sub(l.begun) < after || now.Sub(l.last) < every {
		return
	}
	l.last = now
	if l.log {
		fmt.Fprintln(l.w, "gmemtop: "+report.Printable(line()))
		return
	}
	l.shown = true
	fmt.Fprint(l.w, "\r\x1b[K"+report.Printable(line())) // it may name a file
}

// Done clears the line.
func (l *Line) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.shown = false
	}
}
