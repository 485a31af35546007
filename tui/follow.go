package tui

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	"github.com/gmemtop/gmemtop/tui/machine"
)

// follower is the Model as what watches a running job: it brings the newest captured step to the front of all views until the user looks closer at one,
// as a pager that follows a log stops when one scrolls.
type follower struct{ *Model }

// begin starts to watch the job, or the machine.
func (m follower) begin() tea.Cmd {
	ctx, cancel := context.WithCancel(context.Background())
	m.unwatch, m.watching = cancel, ctx
	var cmds []tea.Cmd
	if m.machine != nil {
		cmds = append(cmds, machine.Await(ctx, m.opts.Machine, 0))
	}
	if m.feed != nil {
		cmds = append(cmds, live.Await(ctx, m.feed, 0))
	}
	return tea.Batch(cmds...)
}

// attachedMsg brings the feed of a process that was chosen.
type attachedMsg struct {
	pid  int
	feed live.Feed
	err  error
}

// attach watches a process of the machine instead of the one that was watched before.
func (m follower) attach(p machine.Process) tea.Cmd {
	attach := m.opts.Attach
	if attach == nil {
		return m.toast.say("processes cannot be watched here", true)
	}
	if m.leave != nil {
		m.leave()
	}
	ctx, leave := context.WithCancel(m.watching)
	m.leave = leave
	return tea.Batch(m.toast.say(fmt.Sprintf("attaching to %d: %s", p.PID, p.Command), false), func() tea.Msg {
		feed, err := attach(ctx, p.PID)
		return attachedMsg{p.PID, feed, err}
	})
}

func (m follower) onAttached(msg attachedMsg) tea.Cmd {
	if msg.err != nil {
		return m.toast.say(msg.err.Error(), true)
	}
	m.feed, m.live, m.window, m.held, m.rank = msg.feed, live.New(msg.feed), -1, false, 0
	views := []leaf.View{m.machine, m.live}
	for _, v := range m.views {
		if v.ID() != leaf.Live && v.ID() != leaf.Machine {
			views = append(views, v)
		}
	}
	m.views = views
	m.actions = keyboard(m).newActions()
	m.noWindow()
	return tea.Batch(m.setTimeline(nil), m.show(leaf.Live), live.Await(m.watching, m.feed, 0))
}

// on handles what the job and its view say.
func (m follower) on(msg tea.Msg) (tea.Cmd, bool) {
	switch msg := msg.(type) {
	case live.LookMsg:
		if msg.Feed != m.feed {
			return nil, true // of a job that is not watched any more
		}
		return m.onLook(msg.Look), true
	case machine.LookMsg:
		m.machine.Take(msg.Look)
		return tea.Batch(machine.Await(m.watching, m.opts.Machine, msg.Look.Version), m.changed()), true
	case machine.AttachMsg:
		return m.attach(msg.Process), true
	case attachedMsg:
		return m.onAttached(msg), true
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
	next := live.Await(m.watching, m.feed, l.Version)
	if l.Chosen != m.rank { // what was held, and followed, was another process's
		m.rank, m.held, m.window = l.Chosen, false, -1
		if len(l.Windows) == 0 {
			m.live.Show(-1, false)
			m.noWindow()
			return tea.Batch(next, m.setTimeline(nil))
		}
	}
	if m.held {
		return tea.Batch(next, m.changed())
	}
	return tea.Batch(next, m.newest())
}

// noWindow forgets the window that is shown.
func (m follower) noWindow() {
	s := &m.state
	s.Timelines, s.UnderPlan, s.Basis, s.BasisName = nil, false, nil, ""
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
	s := &m.state
	if w.ID == m.window && w.UnderPlan == s.UnderPlan {
		return m.changed()
	}
	m.window = w.ID
	s.UnderPlan, s.Basis, s.BasisName = w.UnderPlan, nil, ""
	if w.UnderPlan {
		l := m.live.Look()
		for i := range l.Windows {
			if x := &l.Windows[i]; !x.UnderPlan {
				s.Basis, s.BasisName = x.Timeline, l.WindowName(x)
			}
		}
	}
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
	return m.toast.say("this step is held: F follows the job again", false)
}

// toggle holds, or follows again.
func (m follower) toggle() tea.Cmd {
	if !m.held {
		m.held = true
		m.live.Show(m.window, true)
		return tea.Batch(m.toast.say("this step is held: F follows the job again", false), m.changed())
	}
	m.held = false
	return tea.Batch(m.newest(), m.toast.say("the newest captured step is shown as it comes", false))
}

// source says what is watched, for the top line.
func (m follower) source() []string {
	if m.live == nil {
		if m.machine != nil {
			return []string{m.machine.Look().Host}
		}
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
	for i := range l.Ranks {
		if l.Ranks[i].ID == l.Chosen {
			parts = append(parts, l.Ranks[i].Name()+" "+l.Among())
		}
	}
	for _, w := range l.Windows {
		if w.ID == m.window {
			name := l.WindowName(&w)
			if w.UnderPlan {
				name += " under a plan"
			}
			parts = append(parts, name)
		}
	}
	return parts
}

// hasRanks reports whether the job has several processes to choose from.
func (m follower) hasRanks() bool { return m.live != nil && len(m.live.Look().Ranks) > 1 }

// pickRank lets the user choose the process that all views show.
func (m follower) pickRank() tea.Cmd {
	m.post(leaf.PickMsg{
		Title: "Ranks of the job", Choices: m.live.Ranks(m.state.Units),
		Footer: "All views show the one that is chosen; F follows its newest captured step.",
	})
	return nil
}

// drawAlert writes at the right end of the status line what went wrong with the job while another view is in front, and returns the cells that it took. It
// stands there until the job's view was looked at.
func (m follower) drawAlert(c *canvas.Canvas) int {
	if m.live == nil || m.front == leaf.Live {
		return 0
	}
	text := m.live.Alert(m.state.Units)
	if text == "" {
		return 0
	}
	th, w := m.state.Theme, c.Width()
	st, mark := th.Dim, "■ "
	if m.live.Grave() {
		st, mark = th.Warn, "! "
	}
	key := " L looks"
	text = canvas.Truncate(mark+text, w*3/5-canvas.Width(key)-1)
	n := c.TextRight(w-1, 0, th.Accent, key)
	n += c.TextRight(w-1-n, 0, st, text)
	c.Zone(canvas.Rect{X: w - 1 - n, W: n, H: 1}, runMsg{"view L"})
	return n + 2
}

// nothingOpen says why no recording is open, and what opens one; otherwise where nothing is known of that.
func (m follower) nothingOpen(otherwise string) string {
	switch {
	case m.live != nil && m.live.Look().State == live.Ended:
		return "The job ended before a step of it was captured."
	case m.live != nil:
		return "No step of this job is captured yet: two are as soon as it is warm, and r in Live captures the next one."
	case m.machine != nil:
		return "Nothing is open yet: P lists the processes of this machine, and enter watches one of them."
	}
	return otherwise
}
