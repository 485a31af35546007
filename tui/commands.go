package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// opener is the Model as what loads.
type opener struct{ *Model }

// loading is a load that is under way. The Loader writes its progress from its own goroutine and the frame reads the latest.
type loading struct {
	number int
	title  string
	since  time.Time
	add    bool // the result is shown beside what is open, not instead

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

// load starts a load; an earlier one that is still under way is cancelled and its result dropped.
func (m opener) load(loader Loader, title string) tea.Cmd {
	if m.stop != nil {
		m.stop()
	}
	m.loads++
	l := &loading{number: m.loads, title: title, since: m.now()}
	m.loading, m.failure, m.partial = l, nil, nil
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	if loader == nil {
		loader = func(context.Context, func(string, int64, int64)) (Loaded, error) {
			return Loaded{}, errors.New("nothing to open: name a file, such as `gmemtop replay snapshot.pickle`")
		}
	}
	return tea.Batch(m.tick(l.number), func() tea.Msg {
		loaded, err := loader(ctx, l.report)
		return loadedMsg{l.number, loaded, err}
	})
}

func (m opener) tick(load int) tea.Cmd {
	return m.after(100*time.Millisecond, func(at time.Time) tea.Msg { return tickMsg{load, at} })
}

// onTick keeps the loading screen's figures moving; with the load it ends.
func (m opener) onTick(msg tickMsg) tea.Cmd {
	if m.loading == nil || msg.load != m.loading.number {
		return nil
	}
	return m.tick(msg.load)
}

func (m opener) onLoaded(msg loadedMsg) tea.Cmd {
	if m.loading == nil || msg.load != m.loading.number {
		return nil
	}
	add := m.loading.add
	m.loading = nil
	if msg.err != nil && len(msg.loaded.Timelines) == 0 && msg.loaded.Run == nil {
		if add && m.state.Timeline != nil {
			return m.say(msg.err.Error(), true)
		}
		m.failure = msg.err
		return nil
	}
	m.partial = msg.err
	s := &m.state
	if add {
		m.loaded.Timelines = append(m.loaded.Timelines, msg.loaded.Timelines...)
		s.Timelines = m.loaded.Timelines
	} else {
		m.loaded = msg.loaded
		s.Timelines, s.Run = msg.loaded.Timelines, msg.loaded.Run
		m.front = m.firstView()
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
		cmd = tea.Batch(cmd, walker(m).openStretch(msg.loaded.First, msg.loaded.End))
	}
	m.layout = layoutFor(m.width, m.height, painter(m).bannerText() != "")
	if msg.loaded.Notice != "" {
		cmd = tea.Batch(cmd, m.sayFor(msg.loaded.Notice, false, 20*time.Second))
		m.notice = m.toasts
	}
	return cmd
}

// firstView is the view that answers what was opened: the one asked for, else the ranks of a run, else the overview.
func (m opener) firstView() leaf.ID {
	switch {
	case m.opts.View != 0:
		return m.opts.View
	case m.loaded.Run != nil && (len(m.loaded.Run.Ranks) > 1 || len(m.loaded.Timelines) == 0):
		return leaf.Ranks
	}
	return leaf.Overview
}

// openRank loads one rank of the run beside it, or shows it where it is loaded already.
func (m opener) openRank(path string) tea.Cmd {
	for _, t := range m.state.Timelines {
		if t.Trace.Source.Path == path {
			return tea.Batch(m.setTimeline(t), m.show(leaf.Overview))
		}
	}
	if m.opts.Open == nil {
		return m.say("ranks cannot be opened here", true)
	}
	cmd := m.load(m.opts.Open(path), path)
	m.loading.add = true
	m.front = leaf.Overview
	return cmd
}

// analyse computes what the views want to have at hand and what takes longer than a frame.
func analyse(d *timeline.Device, u timeline.Units) tea.Cmd {
	return func() (msg tea.Msg) {
		defer func() {
			if r := recover(); r != nil {
				msg = analysedMsg{device: d, fault: r, stack: debug.Stack()}
			}
		}()
		d.Iterations()
		d.Phases()
		return analysedMsg{device: d, headline: d.Headline(u)}
	}
}

// find looks for the blocks of the filter, for n and N.
func (m *Model) find() tea.Cmd {
	s := &m.state
	if s.QueryText == "" || s.Device == nil {
		m.found = foundMsg{}
		return nil
	}
	q, d, text := s.Query, s.Device, s.QueryText
	q.Sort, q.Descending = timeline.SortStart, false
	return func() tea.Msg {
		blocks, err := d.Search(context.Background(), q)
		slices.Sort(blocks)
		return foundMsg{text, d, blocks, err}
	}
}

// say shows a toast for a few seconds; errors stand longer.
func (m *Model) say(text string, bad bool) tea.Cmd {
	if bad {
		return m.sayFor(text, bad, 8*time.Second)
	}
	return m.sayFor(text, bad, 4*time.Second)
}

func (m *Model) sayFor(text string, bad bool, wait time.Duration) tea.Cmd {
	m.toasts++
	n := m.toasts
	m.toast = leaf.ToastMsg{Text: text, Error: bad}
	return m.after(wait, func(time.Time) tea.Msg { return toastEndMsg{n} })
}

// dropNotice takes down what was said of what was opened: who presses a key has read it, and the line is for what is under the cursor.
func (m router) dropNotice() {
	if m.notice > 0 && m.notice == m.toasts {
		m.toast, m.notice = leaf.ToastMsg{}, 0
	}
}

// copyText puts text into the clipboard of the user's own machine, through the terminal (OSC 52).
func (m sharer) copyText(text, what string) tea.Cmd {
	m.yank = text
	return tea.Batch(tea.SetClipboard(text), m.say("copied "+what, false))
}

// copy copies what the view says, else the selected block, else the sentence under the cursor.
func (m sharer) copy() tea.Cmd {
	s := &m.state
	if c, ok := m.view().(leaf.Copier); ok {
		if text, what := c.Copy(s); text != "" {
			return m.copyText(text, what)
		}
	}
	if s.Selected != timeline.NoAlloc && s.Device != nil {
		return m.copyText(blockText(s.Device, s.Selected, s.Units), s.Device.Name(s.Selected)+" and its stack")
	}
	if text := m.view().Status(s); text != "" {
		return m.copyText(text, "the line under the cursor")
	}
	return m.say("nothing is selected", false)
}

// blockText is a block as text: its name, size, and stack, innermost frame first.
func blockText(d *timeline.Device, a timeline.AllocID, u timeline.Units) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s (%d bytes, %d requested)  %s\n", d.Name(a), u.Bytes(d.Allocs.Rounded[a]), d.Allocs.Rounded[a], d.Allocs.Size[a],
		d.Allocs.Category[a])
	funcs, files, lines := leaf.Frames(d, d.Origin(a), 1<<10)
	for i := range funcs {
		fmt.Fprintf(&b, "  %s  %s:%d\n", funcs[i], files[i], lines[i])
	}
	return b.String()
}

// source returns the source line that o would open.
func (m sharer) source() (file string, line int) {
	s := &m.state
	v := m.view()
	if v == nil || s.Device == nil {
		return "", 0
	}
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

func (m sharer) hasSource() bool {
	if !m.ready() {
		return false
	}
	file, _ := m.source()
	return file != ""
}

func (m sharer) follow() tea.Cmd {
	file, line := m.source()
	return m.followTo(file, line)
}

// followTo opens a source line in the user's editor, which takes the terminal over until it is left.
func (m sharer) followTo(file string, line int) tea.Cmd {
	if _, err := os.Stat(file); err != nil {
		return tea.Batch(m.copyText(fmt.Sprintf("%s:%d", file, line), "the place"),
			m.say(fmt.Sprintf("%s is not on this machine; its place was copied", leaf.Base(file)), true))
	}
	editor := m.opts.Editor
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if editor == "" {
			editor = os.Getenv(name)
		}
	}
	words := strings.Fields(editor)
	if len(words) == 0 {
		return m.say("no editor is set: put one into $EDITOR", true)
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
	if m.stop != nil {
		m.stop()
	}
	return tea.Quit
}

func (m *Model) hasColors() bool { return m.profile != 0 }

func (m *Model) nextUnits() tea.Cmd {
	m.state.Units = (m.state.Units + 1) % (timeline.Raw + 1)
	var again tea.Cmd
	if d := m.state.Device; d != nil {
		again = analyse(d, m.state.Units)
	}
	names := [...]string{"KiB, MiB, GiB (1024)", "kB, MB, GB (1000)", "bytes"}
	return tea.Batch(again, m.changed(), m.say("sizes in "+names[m.state.Units], false))
}

func (m *Model) toggleMouse() tea.Cmd {
	m.mouse = !m.mouse
	if m.mouse {
		return m.say("the mouse is gmemtop's again", false)
	}
	return m.say("the mouse is the terminal's: select text; M gives it back", false)
}
