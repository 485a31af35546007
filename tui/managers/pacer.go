package managers

import (
	"time"

	tea "charm.land/bubbletea/v2"
)

// newsEvery is the least time between two pieces of news of one job: some planners have thousands a second,
// and each is a frame.
const newsEvery = 100 * time.Millisecond

// pacer spaces frames: news comes no faster than newsEvery, and while something is timed a frame comes every
// second.
type pacer struct {
	// After is tea.Tick, where tests do not hold the clock.
	After   func(time.Duration, func(time.Time) tea.Msg) tea.Cmd
	ticking bool // a second is being waited for
}

// tickMsg says that a second has passed.
type tickMsg struct{ pacer *pacer }

// pace waits newsEvery before the command next, which waits for the news after msg.
func (p *pacer) pace(msg tea.Msg, next tea.Cmd) tea.Cmd {
	if n, ok := msg.(interface{ more() bool }); !ok || !n.more() || next == nil {
		return next
	}
	return tea.Sequence(p.After(newsEvery, func(time.Time) tea.Msg { return nil }), next)
}

// ticked reports whether msg is the end of the second that tick waits for.
func (p *pacer) ticked(msg tea.Msg) bool {
	if msg != (tickMsg{p}) {
		return false
	}
	p.ticking = false
	return true
}

// tick waits for the end of a second, unless it does already or nothing is timed.
func (p *pacer) tick(timed bool) tea.Cmd {
	if p.ticking || !timed {
		return nil
	}
	cmd := p.After(time.Second, func(time.Time) tea.Msg { return tickMsg{p} })
	p.ticking = cmd != nil
	return cmd
}
