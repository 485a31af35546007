package tui

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	"github.com/gmemtop/gmemtop/tui/machine"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// follow watches a running job, or the machine to choose one from. All views show the newest captured step
// until the user looks closer at one, as a pager that follows a log stops following on a scroll.
type follow struct {
	*clock
	post     func(tea.Msg) // sends to the other components
	machines machine.Feed  // nil if the machine is not watched
	attach   func(ctx context.Context, pid int) (live.Feed, error)
	feed     live.Feed // nil while no job is watched

	machine *machine.View
	live    *live.View
	shown   *live.Window // the step of the job that the views show, nil for none
	held    bool         // the views stay on it
	rank    int          // the process of the job that they show, by its ID in the feed
	group   *runs.Group  // its processes compared, nil for a job of one
	step    int64        // how long its steps take as they are, in nanoseconds, 0 if unknown
	taken   int64        // the newest capture of several processes that was shown
	said    string       // what was said of the one on its way

	// ctx is done when nothing is watched any more; bubbletea has no context of its own to pass to commands.
	ctx   context.Context
	stop  context.CancelFunc
	leave context.CancelFunc // detaches from the chosen process
}

// stepMsg shows a captured step of the job in all views, or none if it has no timeline.
type stepMsg struct {
	timeline *timeline.Timeline
	// underPlan means that the step ran under a plan; basis is then the newest step that did not, nil for
	// none.
	underPlan bool
	basis     *timeline.Timeline
	basisName string
	// name is the step's; before is the one captured before it, nil for none.
	name       string
	before     *timeline.Timeline
	beforeName string
	// beside are this step and the same one of other processes, in the order in which they are compared; nil
	// for this step alone.
	beside []*timeline.Timeline
}

// groupMsg brings the processes of the watched job, compared.
type groupMsg struct{ group *runs.Group }

// tempoMsg brings how long a step of the watched job takes as it is, in nanoseconds.
type tempoMsg struct{ step int64 }

// jobMsg says that the watched job changed.
type jobMsg struct{}

// attachedMsg brings the feed of a chosen process.
type attachedMsg struct {
	pid  int
	feed live.Feed
	err  error
}

// betweenLooks is the least time between two looks at the job: fast enough for a person to follow, and slow
// enough that a fast job does not take all of the screen's time.
const betweenLooks = 100 * time.Millisecond

func newFollow(now *clock, opts *Options, post func(tea.Msg)) follow {
	f := follow{clock: now, post: post, machines: opts.Machine, attach: opts.Attach, feed: opts.Feed}
	if f.machines != nil {
		f.machine = machine.New()
	}
	if f.feed != nil {
		f.live = live.New(f.feed)
	}
	return f
}

// watches reports whether there is anything to watch.
func (f *follow) watches() bool { return f.feed != nil || f.machine != nil }

// begin starts to watch.
func (f *follow) begin() tea.Cmd {
	f.ctx, f.stop = context.WithCancel(context.Background())
	var cmds []tea.Cmd
	if f.machine != nil {
		cmds = append(cmds, machine.Await(f.ctx, f.machines, 0))
	}
	if f.feed != nil {
		cmds = append(cmds, live.Await(f.ctx, f.feed, 0))
	}
	return tea.Batch(cmds...)
}

// end stops watching.
func (f *follow) end() {
	if f.stop != nil {
		f.stop()
	}
}

func (f *follow) say(text string, bad bool) { f.post(leaf.ToastMsg{Text: text, Error: bad}) }

// update handles what the job, the machine and their views say; ok is false for anything else.
func (f *follow) update(msg tea.Msg) (cmd tea.Cmd, ok bool) {
	switch msg := msg.(type) {
	case live.LookMsg:
		if msg.Feed != f.feed {
			return nil, true // from a job that is no longer watched
		}
		f.look(msg.Look)
		rest := f.after(betweenLooks, func(time.Time) tea.Msg { return nil })
		return tea.Sequence(rest, live.Await(f.ctx, f.feed, msg.Look.Version)), true
	case machine.LookMsg:
		f.machine.Take(msg.Look)
		f.post(leaf.ChangedMsg{})
		return machine.Await(f.ctx, f.machines, msg.Look.Version), true
	case machine.AttachMsg:
		return f.attachTo(msg.Process), true
	case attachedMsg:
		return f.onAttached(msg), true
	case leaf.CaptureRanksMsg:
		if f.feed != nil {
			return live.CaptureSame(f.feed, msg.IDs), true
		}
	case leaf.ShowRankMsg:
		if f.feed != nil {
			l := f.live.Look()
			return live.ShowRank(f.feed, &l, msg.ID), true
		}
	case live.OpenMsg:
		f.held = true
		f.show(&msg.Window)
		f.post(leaf.ShowMsg{View: leaf.Overview})
	case live.FollowMsg:
		f.held = false
		f.newest()
	default:
		return nil, false
	}
	return nil, true
}

// attachTo watches a process of the machine instead of the previous one.
func (f *follow) attachTo(p machine.Process) tea.Cmd {
	attach := f.attach
	if attach == nil {
		f.say("processes cannot be watched here", true)
		return nil
	}
	if f.leave != nil {
		f.leave()
	}
	ctx, leave := context.WithCancel(f.ctx)
	f.leave = leave
	f.say(fmt.Sprintf("attaching to %d: %s", p.PID, p.Command), false)
	return func() tea.Msg {
		feed, err := attach(ctx, p.PID)
		return attachedMsg{p.PID, feed, err}
	}
}

func (f *follow) onAttached(msg attachedMsg) tea.Cmd {
	if msg.err != nil {
		f.say(msg.err.Error(), true)
		return nil
	}
	f.feed, f.live, f.shown, f.held, f.rank = msg.feed, live.New(msg.feed), nil, false, 0
	f.group, f.taken, f.said = nil, 0, ""
	if f.step > 0 {
		f.step = 0
		f.post(tempoMsg{})
	}
	f.post(jobMsg{})
	f.post(stepMsg{})
	f.post(leaf.ShowMsg{View: leaf.Live})
	return live.Await(f.ctx, f.feed, 0)
}

// look takes the newest look of the feed.
func (f *follow) look(l live.Look) {
	f.live.Take(l)
	if step := l.Usual(); 50*max(step-f.step, f.step-step) > f.step { // by more than 2 %
		f.step = step
		f.post(tempoMsg{step})
	}
	if l.Group != f.group {
		f.group = l.Group
		f.post(groupMsg{l.Group})
	}
	f.together(&l.Together)
	if l.Chosen != f.rank { // the held or followed step was another process's
		f.rank, f.held, f.shown = l.Chosen, false, nil
		if len(l.Windows) == 0 {
			f.live.Show(-1, false)
			f.post(stepMsg{})
			return
		}
	}
	if f.held {
		f.post(leaf.ChangedMsg{})
		return
	}
	f.newest()
}

// together tells how far a capture of several processes is, and shows it when it is done: two side by side.
func (f *follow) together(t *live.Together) {
	if t.ID == f.taken {
		return
	}
	if !t.Done {
		if t.Word != "" && t.Word != f.said {
			f.said = t.Word
			f.say(t.Word, false)
		}
		return
	}
	f.taken, f.said = t.ID, ""
	if t.Failed != "" {
		f.say(t.Failed, true)
	}
	switch n := len(t.Windows); {
	case n == 0:
	case n == 1:
		f.post(live.OpenMsg{Window: t.Windows[0]})
	default:
		f.held = true
		last := t.Windows[n-1]
		f.shown = &last
		f.live.Show(last.ID, true)
		msg := stepMsg{timeline: last.Timeline}
		for i := range t.Windows {
			msg.beside = append(msg.beside, t.Windows[i].Timeline)
		}
		f.post(msg)
		f.post(leaf.ShowMsg{View: leaf.Diff})
	}
}

// newest shows the newest step.
func (f *follow) newest() {
	list := f.live.Look().Windows
	if len(list) == 0 {
		f.post(leaf.ChangedMsg{})
		return
	}
	f.show(&list[len(list)-1])
}

func (f *follow) show(w *live.Window) {
	f.live.Show(w.ID, f.held)
	if f.shown != nil && w.ID == f.shown.ID && w.UnderPlan == f.shown.UnderPlan {
		f.post(leaf.ChangedMsg{})
		return
	}
	step := *w
	f.shown = &step
	l := f.live.Look()
	msg := stepMsg{timeline: w.Timeline, underPlan: w.UnderPlan, name: l.WindowName(w)}
	earlier := true
	for i := range l.Windows {
		x := &l.Windows[i]
		earlier = earlier && x.ID != w.ID
		switch {
		case w.UnderPlan && !x.UnderPlan:
			msg.basis, msg.basisName = x.Timeline, l.WindowName(x)
		case !w.UnderPlan && earlier:
			msg.before, msg.beforeName = x.Timeline, l.WindowName(x)
		}
	}
	f.post(msg)
}

// hold keeps the views on the step that they show, because the user looks closer at something.
func (f *follow) hold(front leaf.ID) {
	if f.live == nil || f.held || f.shown == nil || front == leaf.Live {
		return
	}
	f.held = true
	f.live.Show(f.shown.ID, true)
	f.say("the view stays on this step: F follows the job again", false)
}

// toggle holds, or follows again.
func (f *follow) toggle() {
	if !f.held {
		f.hold(0)
		f.post(leaf.ChangedMsg{})
		return
	}
	f.held = false
	f.newest()
	f.say("the newest captured step is shown as it comes", false)
}

// source says what is watched, for the top line.
func (f *follow) source() []string {
	if f.live == nil {
		if f.machine != nil {
			return []string{f.machine.Look().Host}
		}
		return nil
	}
	l := f.live.Look()
	word := "● live"
	switch {
	case l.Detached:
		word = "■ detached"
	case l.State == live.Waiting:
		word = "○ waiting"
	case l.State == live.Ended:
		word = "■ ended"
	case f.live.Leaving():
		word = "○ detaching"
	case f.held:
		word = "‖ view paused" // not the training
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
		if f.shown != nil && w.ID == f.shown.ID {
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
func (f *follow) hasRanks() bool { return f.live != nil && len(f.live.Look().Ranks) > 1 }

// pickRank lets the user choose the process that all views show.
func (f *follow) pickRank(u timeline.Units) {
	f.post(leaf.PickMsg{
		Title: "Ranks of the job", Choices: f.live.Ranks(u),
		Footer: "All views show the rank you choose; F follows its newest captured step.",
	})
}

// drawAlert writes what went wrong with the job at the right end of the status line, until the user has seen
// the job's view. It returns the cells that it took.
func (f *follow) drawAlert(th *theme.Theme, u timeline.Units, c *canvas.Canvas) int {
	if f.live == nil {
		return 0
	}
	text := f.live.Alert(u)
	if text == "" {
		return 0
	}
	w := c.Width()
	st, mark := th.Dim, "■ "
	if f.live.Grave() {
		st, mark = th.Warn, "! "
	}
	key := " L: Live"
	text = canvas.Truncate(mark+text, w*3/5-canvas.Width(key)-1)
	n := c.TextRight(w-1, 0, th.Accent, key)
	n += c.TextRight(w-1-n, 0, st, text)
	c.Zone(canvas.Rect{X: w - 1 - n, W: n, H: 1}, runMsg{"view L"})
	return n + 2
}

// nothingOpen says why no recording is open and how to open one, or returns otherwise if neither a job nor
// the machine is watched.
func (f *follow) nothingOpen(otherwise string) string {
	switch {
	case f.live != nil && f.live.Look().Detached:
		return "gmemtop detached from the job before it had captured a step."
	case f.live != nil && f.live.Look().State == live.Ended:
		return "The job ended before gmemtop had captured a step."
	case f.live != nil:
		return "No step of this job is captured yet. gmemtop captures two once it has warmed up, and r in " +
			"Live captures the next one."
	case f.machine != nil:
		return "Nothing is open yet: P lists the processes of this machine, and enter watches one of them."
	}
	return otherwise
}
