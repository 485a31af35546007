package tui

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// onLoaded shows what a load brought.
func (m *Model) onLoaded(msg loadedMsg) tea.Cmd {
	done, ok := m.loader.take(msg)
	if !ok {
		return nil
	}
	s := &m.state
	if msg.empty() {
		if done.beside && s.Timeline != nil {
			return m.toast.say(msg.err.Error(), true)
		}
		m.loader.failure = msg.err
		return nil
	}
	m.loader.partial = msg.err
	if done.beside {
		m.loaded.Timelines = append(m.loaded.Timelines, msg.loaded.Timelines...)
		s.Timelines = m.loaded.Timelines
	} else {
		m.loaded = msg.loaded
		s.Timelines, s.Run = msg.loaded.Timelines, msg.loaded.Run
		m.tabs.front = firstView(m.opts.View, &m.loaded)
	}
	var first *timeline.Timeline
	if n := len(msg.loaded.Timelines); n > 0 {
		first = msg.loaded.Timelines[0]
	}
	cmd := m.setTimeline(first)
	if d := msg.loaded.Device; d != nil {
		cmd = m.setDevice(d)
	}
	if msg.loaded.End > msg.loaded.First {
		cmd = tea.Batch(cmd, m.moved(m.cursor.openStretch(msg.loaded.First, msg.loaded.End)))
	}
	m.screen.arrange(m.banner() != "")
	if msg.loaded.Notice != "" {
		cmd = tea.Batch(cmd, m.toast.sayNotice(msg.loaded.Notice))
	}
	return cmd
}

// firstView is the view that answers what was opened: the one asked for, else the ranks of a run, else the
// overview.
func firstView(asked leaf.ID, l *Loaded) leaf.ID {
	switch {
	case asked != 0:
		return asked
	case l.Run != nil && (len(l.Run.Ranks) > 1 || len(l.Timelines) == 0):
		return leaf.Ranks
	}
	return leaf.Overview
}

// openRank loads one rank of the run beside it, or shows it where it is loaded already.
func (m *Model) openRank(path string) tea.Cmd {
	for _, t := range m.state.Timelines {
		if t.Trace.Source.Path == path {
			return tea.Batch(m.setTimeline(t), m.show(leaf.Overview))
		}
	}
	if m.opts.Open == nil {
		return m.toast.say("ranks cannot be opened here", true)
	}
	m.tabs.front = leaf.Overview
	return m.loader.start(m.opts.Open(path), path, true)
}

// analyse computes what the views want to have at hand and what takes longer than a frame.
func analyse(d *timeline.Device, u timeline.Units) tea.Cmd {
	return func() (msg tea.Msg) {
		defer func() {
			if r := recover(); r != nil {
				msg = analysedMsg{device: d, fault: r, stack: debug.Stack()}
			}
		}()
		steps.Of(d)
		steps.Phases(d)
		return analysedMsg{device: d, headline: autopsy.Headline(d, u)}
	}
}

// copyText puts text into the clipboard of the user's own machine, through the terminal (OSC 52).
func (m *Model) copyText(text, what string) tea.Cmd {
	m.yank = text
	return tea.Batch(tea.SetClipboard(text), m.toast.say("copied "+what, false))
}

// copyOf copies what a view says, else the selected block, else the sentence under the cursor.
func copyOf(v leaf.View, s *leaf.State) tea.Msg {
	if c, ok := v.(leaf.Copier); ok {
		if text, what := c.Copy(s); text != "" {
			return leaf.CopyMsg{Text: text, What: what}
		}
	}
	if s.Selected != timeline.NoAlloc && s.Device != nil {
		text := blockText(s.Device, s.Selected, s.Units)
		return leaf.CopyMsg{Text: text, What: s.Device.Name(s.Selected) + " and its stack"}
	}
	if text := v.Status(s); text != "" {
		return leaf.CopyMsg{Text: text, What: "the line under the cursor"}
	}
	return leaf.ToastMsg{Text: "nothing is selected"}
}

// blockText is a block as text: its name, size, and stack, innermost frame first.
func blockText(d *timeline.Device, a timeline.AllocID, u timeline.Units) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s (%d bytes, %d requested)  %s\n", d.Name(a), u.Bytes(d.Allocs.Rounded[a]),
		d.Allocs.Rounded[a], d.Allocs.Size[a], d.Allocs.Category[a])
	funcs, files, lines := leaf.Frames(d, d.Origin(a), 1<<10)
	for i := range funcs {
		fmt.Fprintf(&b, "  %s  %s:%d\n", funcs[i], files[i], lines[i])
	}
	return b.String()
}

// sourceOf returns the source line that o opens in a view; file is "" for none.
func sourceOf(v leaf.View, s *leaf.State) (file string, line int) {
	if src, ok := v.(leaf.Sourcer); ok {
		if file, line := src.Source(s); file != "" {
			return file, line
		}
	}
	if s.Selected == timeline.NoAlloc {
		return "", 0
	}
	return leaf.UserFrame(s.Device, s.Device.Origin(s.Selected))
}

// openSource opens a source line in the user's editor, which takes the terminal over until it is left.
func (m *Model) openSource(file string, line int) tea.Cmd {
	if _, err := os.Stat(file); err != nil {
		return tea.Batch(m.copyText(fmt.Sprintf("%s:%d", file, line), "the path"),
			m.toast.say(fmt.Sprintf("%s is not on this machine; its path was copied", leaf.Base(file)), true))
	}
	editor := m.opts.Editor
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if editor == "" {
			editor = os.Getenv(name)
		}
	}
	words := strings.Fields(editor)
	if len(words) == 0 {
		return m.toast.say("no editor is set: put one into $EDITOR", true)
	}
	cmd := exec.Command(words[0], append(words[1:], editorArgs(words[0], file, line)...)...)
	return tea.ExecProcess(cmd, func(err error) tea.Msg { return followedMsg{err} })
}

// editorArgs tells an editor the line in the way that it understands.
func editorArgs(editor, file string, line int) []string {
	switch leaf.Base(editor) {
	case "code", "codium", "cursor", "zed":
		return []string{"--goto", fmt.Sprintf("%s:%d", file, line)}
	case "subl", "hx":
		return []string{fmt.Sprintf("%s:%d", file, line)}
	}
	return []string{fmt.Sprintf("+%d", max(line, 1)), file}
}

func (m *Model) quit() tea.Cmd {
	m.stop()
	return tea.Quit
}

func (m *Model) nextUnits() tea.Cmd {
	m.state.Units = (m.state.Units + 1) % (timeline.Raw + 1)
	var again tea.Cmd
	if d := m.state.Device; d != nil {
		again = analyse(d, m.state.Units)
	}
	names := [...]string{"KiB, MiB, GiB (1024)", "kB, MB, GB (1000)", "bytes"}
	return tea.Batch(again, m.changed(), m.toast.say("sizes in "+names[m.state.Units], false))
}

func (m *Model) toggleMouse() tea.Cmd {
	m.mouse = !m.mouse
	if m.mouse {
		return m.toast.say("gmemtop has the mouse again", false)
	}
	return m.toast.say("the terminal has the mouse: select text; M takes it back", false)
}
