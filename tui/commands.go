package tui

import (
	"cmp"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/leaf"
)

// onLoaded shows the result of a load.
func (m *model) onLoaded(msg loadedMsg) tea.Cmd {
	beside, ok := m.loader.take(msg, m.state.Timeline != nil)
	if !ok {
		return nil
	}
	m.open.take(msg.loaded, beside)
	if !beside {
		m.tabs.front = firstView(cmp.Or(m.loader.view, m.opts.View), &msg.loaded)
	}
	cmd := m.look()
	if !beside {
		restartTrail(m)
	}
	if msg.loaded.End > msg.loaded.First {
		cmd = tea.Batch(cmd, m.moved(m.cursor.openStretch(msg.loaded.First, msg.loaded.End)))
	}
	if msg.loaded.Notice != "" {
		cmd = tea.Batch(cmd, m.toast.sayNotice(msg.loaded.Notice))
	}
	return cmd
}

// firstView is the view to open first: the one asked for, else the ranks of a run, else the overview.
func firstView(asked leaf.ID, l *Loaded) leaf.ID {
	switch {
	case asked != 0:
		return asked
	case l.Run != nil && (len(l.Run.Ranks) > 1 || len(l.Timelines) == 0):
		return leaf.Ranks
	}
	return leaf.Overview
}

// openRank loads one rank of the run beside it, or shows it if it is loaded already.
func openRank(m *model, path string) tea.Cmd {
	if t := m.open.at(path); t != nil {
		m.post(leaf.TimelineMsg{Timeline: t})
		m.post(leaf.ShowMsg{View: leaf.Overview})
		return nil
	}
	if m.opts.Open == nil {
		return m.toast.say("ranks cannot be opened here", true)
	}
	m.show(leaf.Overview)
	return m.loader.start(m.opts.Open(path), path, true)
}
