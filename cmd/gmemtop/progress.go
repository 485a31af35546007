package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// progress shows on standard error how far long work is: only on a terminal, only after a while, gone when
// the work is done.
type progress struct {
	w     io.Writer // nil shows nothing
	units timeline.Units
	now   func() time.Time

	mu          sync.Mutex
	begun, last time.Time
	shown       bool
}

const (
	quietFor    = 100 * time.Millisecond
	redrawEvery = 80 * time.Millisecond
)

func (a *app) newProgress() *progress {
	p := &progress{units: a.flags.report.Units, now: time.Now, begun: time.Now()}
	if !a.flags.quiet && isTerminal(a.err) && a.env("TERM") != "dumb" {
		p.w = a.err
	}
	return p
}

// tell says that done of total bytes, or of total any other things where the stage says so, are behind.
func (p *progress) tell(stage string, done, total int64) {
	p.draw(func() string {
		stage = report.Printable(stage) // names the file
		if total > 0 {
			return fmt.Sprintf("%s %d %%", stage, min(100*done/total, 100))
		}
		return stage + " " + p.units.Bytes(done)
	})
}

// say shows a line of any text, cut to the width of a usual terminal so that it stays one line.
func (p *progress) say(text string) {
	p.draw(func() string {
		if line := []rune(text); len(line) > 79 {
			return string(line[:78]) + "…"
		}
		return text
	})
}

// draw shows a line, unless the work has only just begun or the one before stands for too short a time.
func (p *progress) draw(line func() string) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if now.Sub(p.begun) < quietFor || now.Sub(p.last) < redrawEvery {
		return
	}
	p.last, p.shown = now, true
	fmt.Fprint(p.w, "\r\x1b[K"+line())
}

// done clears the line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
