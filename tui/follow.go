package tui

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
)

// follower is the Model as what watches a running job: it brings the newest captured step to the front of all views until the user looks closer at one,
// as a pager that follows a log stops when one scrolls.
type follower struct{ *Model }

// begin starts to watch.
func (m follower) begin() tea.Cmd {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	m.watching = ctx
	return live.Await(ctx, m.opts.Feed, 0)
}

// on handles what the job and its view say.
func (m follower) on(msg tea.Msg) (tea.Cmd, bool) {
	switch msg := msg.(type) {
	case live.LookMsg:
		return m.onLook(msg.Look), true
	case live.OpenMsg:
		m.held = true
		return tea.Batch(m.showWindow(msg.Window), m.show(leaf.Overview)), true
	case live.FollowMsg:
		m.held = false
		return m.newest(), true
	}
	return nil, false
}

func (m follower) onLook(l live.Look) tea.Cmd {
	m.live.Take(l)
	next := live.Await(m.watching, m.opts.Feed, l.Version)
	if m.held {
		return tea.Batch(next, m.changed())
	}
	return tea.Batch(next, m.newest())
}

// newest shows the newest window.
func (m follower) newest() tea.Cmd {
	list := m.live.Look().Windows
	if len(list) == 0 {
		return m.changed()
	}
	return m.showWindow(list[len(list)-1])
}

func (m follower) showWindow(w live.Window) tea.Cmd {
	m.live.Show(w.ID, m.held)
	if w.ID == m.window {
		return m.changed()
	}
	m.window = w.ID
	m.state.Timelines = []*timeline.Timeline{w.Timeline}
	cmd := m.setTimeline(w.Timeline)
	m.layout = layoutFor(m.width, m.height, painter(m).bannerText() != "")
	return cmd
}

// hold keeps the views where they are, because the user looks at something in them.
func (m follower) hold() tea.Cmd {
	if m.live == nil || m.held || m.window < 0 || m.front == leaf.Live {
		return nil
	}
	m.held = true
	m.live.Show(m.window, true)
	return m.say("this step is held: F follows the job again", false)
}

// toggle holds, or follows again.
func (m follower) toggle() tea.Cmd {
	if !m.held {
		m.held = true
		m.live.Show(m.window, true)
		return tea.Batch(m.say("this step is held: F follows the job again", false), m.changed())
	}
	m.held = false
	return tea.Batch(m.newest(), m.say("the newest captured step is shown as it comes", false))
}

// source says what is watched, for the top line.
func (m follower) source() []string {
	if m.live == nil {
		return nil
	}
	l := m.live.Look()
	word := "● live"
	switch {
	case l.State == live.Waiting:
		word = "○ waiting"
	case l.State == live.Ended:
		word = "■ ended"
	case m.held:
		word = "‖ held"
	}
	parts := []string{word}
	if l.Title != "" {
		parts = append(parts, l.Title)
	}
	for _, w := range l.Windows {
		if w.ID == m.window {
			parts = append(parts, fmt.Sprintf("step %s", leaf.Count(w.First)))
		}
	}
	return parts
}
