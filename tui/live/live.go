package live

import (
	"fmt"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// View shows a running job. It implements leaf.View.
type View struct {
	feed  Feed
	look  Look
	shown shown
	chart chart
	steps stepTable
	out   bool // show the job's output instead of the steps
	ranks ranksPane
	news  news
	keys  keys

	verdict verdict
	leaving bool // asked to detach, which has not happened yet
}

type keys struct{ describe, every, depth, output, steps, zoom, detach key.Binding }

// New returns the view of a feed.
func New(f Feed) *View {
	v := &View{feed: f, shown: shown{window: -1}, ranks: newRanksPane(), steps: newStepTable()}
	bind := func(help, desc string, k ...string) key.Binding {
		return key.NewBinding(key.WithKeys(k...), key.WithHelp(help, desc))
	}
	v.keys = keys{
		describe: bind("r", "capture a step", "r"),
		every:    bind("E", "capture every Nth", "E"),
		depth:    bind("I", "capture depth", "I"),
		output:   bind("O", "the job's output", "O"),
		steps:    bind("esc", "its steps", "esc", "O"),
		zoom:     bind("z", "all steps", "z"),
		detach:   bind("X", "detach", "X"),
	}
	return v
}

// ID implements leaf.View.
func (v *View) ID() leaf.ID { return leaf.Live }

// Name implements leaf.View.
func (v *View) Name() string { return "Live" }

// Available implements leaf.View.
func (v *View) Available(*leaf.State) (bool, string) { return true, "" }

// Timeless implements leaf.Timeless: the view's axis is the steps, not a recording's clock.
func (v *View) Timeless() bool { return true }

// Take gives the view the newest look. The selected step stays selected, unless it was the newest: then the
// new newest one is.
func (v *View) Take(l Look) {
	before := v.look
	v.verdict.take(&l)
	v.look = l
	v.ranks.take(&l, &before)
	v.news.take(l.alertsNow())
	v.steps.take(&l, &before)
}

// Show tells the view which window the other views show, and whether they stay on it.
func (v *View) Show(window int64, holds bool) { v.shown = shown{window, holds} }

// Leaving reports whether the job is about to be detached from.
func (v *View) Leaving() bool { return v.leaving && v.look.State != Ended && !v.look.Detached }

// Look returns what the view shows.
func (v *View) Look() Look { return v.look }

// Update implements leaf.View.
func (v *View) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	if m, ok := msg.(detachMsg); ok {
		v.leaving = m.all || len(v.look.Ranks) == 0
	}
	if m, ok := msg.(orderedMsg); ok && m.err != nil {
		v.leaving = false
	}
	if cmd, ok := takeOrder(v.feed, &v.look, msg); ok {
		return cmd
	}
	if id, chosen, ok := v.ranks.update(&v.look, msg); chosen {
		return choose(v.feed, &v.look, id)
	} else if ok {
		return nil
	}
	switch msg := msg.(type) {
	case leaf.ChangedMsg: // sent to the view in front: what it says is seen
		v.news.see()
		return nil
	case columnMsg:
		return v.clickColumn(msg.step)
	case tea.KeyPressMsg:
		switch {
		case key.Matches(msg, v.keys.describe) && v.look.Capture.Single:
			return CaptureSame(v.feed, []int{v.look.Chosen})
		case key.Matches(msg, v.keys.describe) && v.look.takesOrders():
			said := "the next step" + v.look.of() + " will be captured " + v.look.depth()
			return order(v.feed, Order{Kind: Describe, Steps: 1}, said)
		case key.Matches(msg, v.keys.every) && v.look.takesOrders():
			return askEvery(&v.look)
		case key.Matches(msg, v.keys.depth) && v.look.takesOrders() && len(v.look.Capture.Depths) > 1:
			return askDepth(&v.look)
		case key.Matches(msg, v.keys.detach) && v.look.Capture.Connected:
			return askDetach(&v.look)
		case key.Matches(msg, v.keys.steps) && v.out:
			v.out = false
			return nil
		case key.Matches(msg, v.keys.output) && v.look.Output != nil:
			v.out, v.ranks.focus = true, false
			return nil
		case key.Matches(msg, v.keys.zoom):
			v.chart.whole = !v.chart.whole
			return nil
		}
	}
	switch a := v.steps.Update(msg); a.Kind {
	case table.Opened:
		if st, ok := v.look.step(a.Row); ok {
			return v.inside(st)
		}
	}
	return nil
}

// clickColumn selects a step; clicking a selected, captured step opens it, as in the table.
func (v *View) clickColumn(step int64) tea.Cmd {
	if st, ok := v.look.step(v.steps.Selected()); ok && st.Index == step {
		return v.inside(st)
	}
	if v.steps.choose(&v.look, step) {
		v.out, v.ranks.focus = false, v.ranks.focus && v.ranks.listed
	}
	return nil
}

// inside makes the other views show a step's window, or says that there is none.
func (v *View) inside(st Step) tea.Cmd {
	if w, ok := v.look.windowOf(st.Index); ok {
		return leaf.Send(OpenMsg{w})
	}
	text := fmt.Sprintf("only totals were recorded for step %s", leaf.Count(st.Index))
	if v.look.takesOrders() || v.look.Capture.Single {
		text += ": r captures the next one whole"
	}
	return leaf.Send(leaf.ToastMsg{Text: text})
}

// Bindings implements leaf.View.
func (v *View) Bindings(*leaf.State) []key.Binding {
	var list, rest []key.Binding
	if len(v.look.Ranks) > 0 {
		b := v.ranks.key
		if v.ranks.focus {
			b.SetHelp("tab", "steps")
			list = append(list, b)
			list = append(list, v.ranks.table.Bindings("show it")...)
		} else {
			list = append(list, b)
		}
	}
	switch {
	case v.Leaving():
	case v.look.takesOrders():
		list = append(list, v.keys.describe, v.keys.every)
	case v.look.Capture.Single:
		list = append(list, v.keys.describe)
	}
	if len(v.look.Steps) > 0 && !v.out && !v.ranks.focus {
		open := ""
		if st, ok := v.look.step(v.steps.Selected()); ok {
			if _, ok := v.look.windowOf(st.Index); ok {
				open = "look inside"
			}
		}
		rows := v.steps.Bindings(open)
		near := 1 // first rows, then what enter does
		if open != "" {
			near = 2
		}
		list, rest = append(list, rows[:near]...), rows[near:]
		zoom := v.keys.zoom
		if v.chart.whole {
			zoom.SetHelp("z", "last steps")
		}
		rest = append([]key.Binding{zoom}, rest...)
	}
	if v.look.Output != nil && len(v.look.Steps) > 0 {
		if v.out {
			list = append(list, v.keys.steps)
		} else {
			list = append(list, v.keys.output)
		}
	}
	list = append(list, rest...)
	if v.look.takesOrders() && len(v.look.Capture.Depths) > 1 {
		list = append(list, v.keys.depth)
	}
	if v.look.Capture.Connected {
		list = append(list, v.keys.detach)
	}
	return list
}

// Lacks implements leaf.Lacking.
func (v *View) Lacks(msg tea.KeyPressMsg) string {
	l := &v.look
	switch {
	case key.Matches(msg, v.keys.output) && l.Output == nil:
		return l.silent()
	case key.Matches(msg, v.keys.output) && len(l.Steps) == 0:
		return "the job's output is on this screen until its first step; then O shows it"
	case key.Matches(msg, v.keys.describe, v.keys.every, v.keys.depth) && l.Capture.No != "":
		return "no step can be captured: " + l.Capture.No
	}
	return ""
}

// Copy implements leaf.Copier.
func (v *View) Copy(s *leaf.State) (text, what string) {
	return v.look.sentence(s.Units), "the sentence"
}

// Status implements leaf.View.
func (v *View) Status(s *leaf.State) string {
	if v.ranks.focus {
		return v.ranks.status(s.Units, &v.look)
	}
	st, ok := v.look.step(v.steps.Selected())
	if !ok {
		return ""
	}
	text := v.look.rowName() + " " + leaf.Count(st.Index)
	text += st.plan()
	if d, ok := st.Duration.Value(); ok {
		text += ": " + timeline.Duration(d)
	}
	if n, ok := st.Bytes.Value(); ok {
		text += fmt.Sprintf(", %s %s", v.look.Figure, s.Units.Bytes(n))
	}
	if w, ok := v.look.windowOf(st.Index); ok {
		text += ", captured " + w.How
	}
	return text
}
