package live

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
	shown int64 // the window that the other views show, -1 for none
	holds bool  // they stay there
	steps *table.Table
	whole bool // the chart shows all steps and not the last ones
	out   bool // what the job prints stands in place of the steps
	ranks ranksPane
	news  news
	keys  keys
}

type keys struct{ describe, every, depth, output, zoom, detach, ranks key.Binding }

// Columns of the table of steps.
const (
	colStep = iota
	colWhole
	colTime
	colBytes
	colChange
	colForward
	colBackward
	colOptimizer
	colRetries
	colCost
)

// New returns the view of a feed.
func New(f Feed) *View {
	right := func(title string, width, drop int) table.Column {
		return table.Column{Title: title, Width: width, Right: true, Drop: drop}
	}
	v := &View{feed: f, shown: -1, ranks: newRanksPane(), steps: table.New(
		right("step", 7, 0), table.Column{Title: "captured", Width: 17, Drop: 1}, right("time", 8, 0), right("", 10, 0), right("change", 10, 2),
		right("forward", 9, 4), right("backward", 9, 5), right("optimizer", 9, 6), right("retries", 7, 7), right("watching", 9, 3),
	)}
	bind := func(help, desc string, k ...string) key.Binding {
		return key.NewBinding(key.WithKeys(k...), key.WithHelp(help, desc))
	}
	v.keys = keys{
		describe: bind("r", "capture a step", "r"),
		every:    bind("a", "capture one in …", "a"),
		depth:    bind("d", "how deep", "d"),
		output:   bind("o", "its output", "o"),
		zoom:     bind("z", "all steps", "z"),
		detach:   bind("X", "let go of it", "X"),
		ranks:    bind("tab", "ranks", "tab"),
	}
	return v
}

// ID implements leaf.View.
func (v *View) ID() leaf.ID { return leaf.Live }

// Name implements leaf.View.
func (v *View) Name() string { return "Live" }

// Available implements leaf.View.
func (v *View) Available(*leaf.State) (bool, string) { return true, "" }

// Timeless implements leaf.Timeless: the view's axis is the steps and not a recording's clock.
func (v *View) Timeless() bool { return true }

// Take gives the view the newest look. The selected step stays selected; while the newest one is, the newest
// one will be.
func (v *View) Take(l Look) {
	before := v.look
	newest := v.steps.Selected() <= 0 || l.Chosen != before.Chosen
	at := int64(-1)
	if s, ok := v.step(v.steps.Selected()); ok {
		at = s.Index
	}
	v.look = l
	v.takeRanks(before)
	v.news.take(v.alertsNow())
	v.steps.SetRows(len(l.Steps))
	if newest {
		v.steps.Select(0)
		return
	}
	if n := len(l.Steps); n > 0 {
		for row := v.steps.Selected(); row < n; row++ {
			if s, _ := v.step(row); s.Index <= at {
				v.steps.Select(row)
				return
			}
		}
	}
}

// Show tells the view which window the other views show, and whether they stay there.
func (v *View) Show(window int64, holds bool) { v.shown, v.holds = window, holds }

// Look returns what the view shows.
func (v *View) Look() Look { return v.look }

// step returns the step of a row: the newest one first.
func (v *View) step(row int) (Step, bool) {
	n := len(v.look.Steps)
	if row < 0 || row >= n {
		return Step{}, false
	}
	return v.look.Steps[n-1-row], true
}

// windowOf returns the window that holds a step.
func (v *View) windowOf(step int64) (Window, bool) {
	for i := len(v.look.Windows) - 1; i >= 0; i-- {
		if w := v.look.Windows[i]; w.First <= step && step <= w.Last {
			return w, true
		}
	}
	return Window{}, false
}

// Update implements leaf.View.
func (v *View) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	if cmd, ok := v.updateRanks(msg); ok {
		return cmd
	}
	switch msg := msg.(type) {
	case leaf.ChangedMsg: // sent to the view in front: what it says is seen
		v.news.see()
		return nil
	case columnMsg:
		return v.clickColumn(msg.step)
	case orderedMsg:
		if msg.err != nil {
			return leaf.Send(leaf.ToastMsg{Text: msg.err.Error(), Error: true})
		}
		return leaf.Send(leaf.ToastMsg{Text: msg.said})
	case everyMsg:
		said := fmt.Sprintf("one step in %s%s is captured whole from now on", leaf.Count(int64(msg.steps)), v.of())
		if msg.steps == 0 {
			said = "steps" + v.of() + " are captured whole only by request from now on"
		}
		return v.order(Order{Kind: Every, Steps: msg.steps}, said)
	case depthMsg:
		return v.order(Order{Kind: Deepen, How: msg.How}, "steps"+v.of()+" are captured "+msg.Name+" from now on")
	case detachMsg:
		return v.order(Order{Kind: Detach, All: msg.all}, "asked to let go of "+msg.what)
	case tea.KeyPressMsg:
		switch {
		case key.Matches(msg, v.keys.describe) && v.orders():
			return v.order(Order{Kind: Describe, Steps: 1}, "the next step"+v.of()+" will be captured "+v.depth())
		case key.Matches(msg, v.keys.every) && v.orders():
			return v.askEvery()
		case key.Matches(msg, v.keys.depth) && v.orders() && len(v.look.Capture.Depths) > 1:
			return v.askDepth()
		case key.Matches(msg, v.keys.detach) && v.look.Capture.Connected:
			return v.askDetach()
		case key.Matches(msg, v.keys.output) && v.look.Output != nil:
			v.out = !v.out
			v.ranks.focus = false
			return nil
		case key.Matches(msg, v.keys.zoom):
			v.whole = !v.whole
			return nil
		}
	}
	switch a := v.steps.Update(msg); a.Kind {
	case table.Opened:
		if st, ok := v.step(a.Row); ok {
			return v.open(st)
		}
	}
	return nil
}

type (
	everyMsg  struct{ steps int }
	depthMsg  Depth
	detachMsg struct {
		all  bool
		what string
	}
	// columnMsg is a click on a step's column of the chart.
	columnMsg struct{ step int64 }
)

// of names the process that orders go to, where there are several.
func (v *View) of() string {
	if r, ok := v.look.chosen(); ok {
		return " of " + r.Name()
	}
	return ""
}

// depth is how steps are captured, in words.
func (v *View) depth() string {
	for _, d := range v.look.Capture.Depths {
		if d.How == v.look.Capture.Depth {
			return d.Name
		}
	}
	return "whole"
}

func (v *View) askDepth() tea.Cmd {
	pick := leaf.PickMsg{Title: "Capture steps" + v.of(), Footer: "What it costs a step is shown as measured."}
	for _, d := range v.look.Capture.Depths {
		c := leaf.Choice{Title: d.Name, Detail: d.Shows, Msg: depthMsg(d)}
		if d.Cost > 0 {
			c.Detail += "; took " + timeline.Duration(int64(d.Cost)) + " longer"
		}
		if d.How == v.look.Capture.Depth {
			c.Detail = "so it is now; " + c.Detail
		}
		pick.Choices = append(pick.Choices, c)
	}
	return leaf.Send(pick)
}

func (v *View) askDetach() tea.Cmd {
	stays := "what was captured stays on the screen"
	pick := leaf.PickMsg{Title: "Let go of the job?", Footer: "The job goes on; nothing is left in it."}
	if lean := v.look.Capture.Lean; lean != "" {
		pick.Footer = "It trains with " + lean + ", which goes as well: if a step does not fit without, the job runs out of memory."
	}
	if n := v.look.Capture.Along; n > 0 {
		pick = leaf.PickMsg{Title: "Look no longer?", Footer: fmt.Sprintf("The job goes on, and so does process %d, which watches it.", n)}
	}
	if r, ok := v.look.chosen(); ok {
		pick.Choices = []leaf.Choice{
			{Title: "let go of " + r.Name(), Detail: stays, Msg: detachMsg{what: r.Name()}},
			{Title: fmt.Sprintf("let go of all %d", len(v.look.Ranks)), Detail: stays, Msg: detachMsg{true, "all of them"}},
		}
	} else {
		pick.Choices = []leaf.Choice{{Title: "let go", Detail: stays, Msg: detachMsg{what: "it"}}}
	}
	pick.Choices = append(pick.Choices, leaf.Choice{Title: "go on watching", Msg: leaf.ChangedMsg{}})
	return leaf.Send(pick)
}

// clickColumn selects a step; a captured one that is selected already is opened, as a row is.
func (v *View) clickColumn(step int64) tea.Cmd {
	if st, ok := v.step(v.steps.Selected()); ok && st.Index == step {
		return v.open(st)
	}
	n := len(v.look.Steps)
	if i, ok := slices.BinarySearchFunc(v.look.Steps, step, func(s Step, at int64) int { return cmp.Compare(s.Index, at) }); ok {
		v.steps.Select(n - 1 - i)
		v.out, v.ranks.focus = false, v.ranks.focus && v.ranks.listed
	}
	return nil
}

func (v *View) open(st Step) tea.Cmd {
	if w, ok := v.windowOf(st.Index); ok {
		return leaf.Send(OpenMsg{w})
	}
	text := fmt.Sprintf("of step %s only totals were recorded", leaf.Count(st.Index))
	if v.orders() {
		text += ": r captures the next one whole"
	}
	return leaf.Send(leaf.ToastMsg{Text: text})
}

// orders reports whether the job can be asked to capture something.
func (v *View) orders() bool {
	c := &v.look.Capture
	return c.Connected && c.No == "" && !c.All
}

// RowName is what a row is called.
func (l *Look) RowName() string { return cmp.Or(l.Row, "step") }

func (v *View) askEvery() tea.Cmd {
	var list []leaf.Choice
	often := []int{1, 10, 100, 1000, 0}
	if n := v.look.Capture.Every; !slices.Contains(often, n) {
		often = append([]int{n}, often...)
	}
	for _, n := range often {
		c := leaf.Choice{Title: "one step in " + leaf.Count(int64(n)), Msg: everyMsg{n}}
		switch n {
		case 0:
			c.Title = "none but by request"
		case 1:
			c.Title, c.Detail = "every step", "what it costs is shown as measured"
		}
		if n == v.look.Capture.Every {
			c.Detail = "so it is now"
		}
		list = append(list, c)
	}
	return leaf.Send(leaf.PickMsg{Title: "Capture whole" + v.of(), Footer: "A step that is captured op by op takes longer; the others do not.", Choices: list})
}

// patience is how long an order may take to reach the job.
const patience = 5 * time.Second

func (v *View) order(o Order, said string) tea.Cmd {
	feed := v.feed
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return orderedMsg{said, feed.Order(ctx, o)}
	}
}

// Bindings implements leaf.View.
func (v *View) Bindings(*leaf.State) []key.Binding {
	var list, rest []key.Binding
	if len(v.look.Ranks) > 0 {
		b := v.keys.ranks
		if v.ranks.focus {
			b.SetHelp("tab", "steps")
			list = append(list, b)
			list = append(list, v.ranks.table.Bindings("show it")...)
		} else {
			list = append(list, b)
		}
	}
	if v.orders() {
		list = append(list, v.keys.describe, v.keys.every)
	}
	if len(v.look.Steps) > 0 && !v.out && !v.ranks.focus {
		open := ""
		if st, ok := v.step(v.steps.Selected()); ok {
			if _, ok := v.windowOf(st.Index); ok {
				open = "look inside"
			}
		}
		rows := v.steps.Bindings(open)
		near := 1 // rows, and what enter does
		if open != "" {
			near = 2
		}
		list, rest = append(list, rows[:near]...), rows[near:]
		zoom := v.keys.zoom
		if v.whole {
			zoom.SetHelp("z", "last steps")
		}
		rest = append([]key.Binding{zoom}, rest...)
	}
	if v.look.Output != nil && len(v.look.Steps) > 0 {
		b := v.keys.output
		if v.out {
			b.SetHelp("o", "its steps")
		}
		list = append(list, b)
	}
	list = append(list, rest...)
	if v.orders() && len(v.look.Capture.Depths) > 1 {
		list = append(list, v.keys.depth)
	}
	if v.look.Capture.Connected {
		list = append(list, v.keys.detach)
	}
	return list
}

// Copy implements leaf.Copier.
func (v *View) Copy(s *leaf.State) (text, what string) { return v.sentence(s), "the sentence" }

// Status implements leaf.View.
func (v *View) Status(s *leaf.State) string {
	if v.ranks.focus {
		return v.rankStatus(s)
	}
	st, ok := v.step(v.steps.Selected())
	if !ok {
		return ""
	}
	text := v.look.RowName() + " " + leaf.Count(st.Index)
	if st.UnderPlan {
		text += " under a plan"
	}
	if st.Duration >= 0 {
		text += ": " + timeline.Duration(st.Duration)
	}
	if st.Bytes >= 0 {
		text += fmt.Sprintf(", %s %s", v.look.Figure, s.Units.Bytes(st.Bytes))
	}
	if w, ok := v.windowOf(st.Index); ok {
		text += ", captured " + w.How
	}
	return text
}

// sentence is the answer to what somebody who watches a job wants to know: is it well, how much does it take,
// does it grow.
func (v *View) sentence(s *leaf.State) string {
	l := &v.look
	n := len(l.Steps)
	name := l.Title
	if name == "" {
		name = "the job"
	}
	switch {
	case l.State == Waiting:
		return "Waiting: " + strings.TrimPrefix(l.Word, "waiting ") + "."
	case n == 0 && l.State == Ended:
		return fmt.Sprintf("%s ended: %s, before any training step was seen.", name, l.Word)
	case n == 0 && l.Row != "":
		return fmt.Sprintf("%s runs: no %s has ended yet.", name, l.Row)
	case n == 0:
		return fmt.Sprintf("%s runs: no training step has ended yet.", name)
	}
	last := l.Steps[n-1]
	verb := "runs"
	if l.State == Ended {
		verb = "ended (" + l.Word + ")"
	}
	if of, ok := l.chosen(); ok {
		verb += ", " + of.Name() + " " + l.Among()
	}
	r := &l.Report
	text := fmt.Sprintf("%s %s: %s %s", name, verb, l.RowName(), leaf.Count(last.Index))
	if l.State != Ended && l.Silence != "" {
		text = fmt.Sprintf("%s %s, but there was %s; %s %s", name, verb, l.Silence, l.RowName(), leaf.Count(last.Index))
	}
	if last.UnderPlan {
		text += " under a plan"
	}
	if r.Duration > 0 {
		text += ", " + timeline.Duration(r.Duration) + " a " + l.RowName()
	}
	if r.Top >= 0 && r.Top < n {
		top, now := l.Steps[r.Top], l.Steps[r.Top].Bytes
		for i := n - 1; i > r.Top; i-- { // the figure is not taken at every step
			if l.Steps[i].Bytes >= 0 {
				now = l.Steps[i].Bytes
				break
			}
		}
		text += fmt.Sprintf(", %s %s", l.Figure, s.Units.Bytes(now))
		if s.Units.Bytes(top.Bytes) != s.Units.Bytes(now) {
			text += fmt.Sprintf(", at most %s in %s %s", s.Units.Bytes(top.Bytes), l.RowName(), leaf.Count(top.Index))
		}
	}
	if peers := v.peersSentence(s.Units); peers != "" {
		text += "; " + peers
	}
	grave, slow := v.alerts(s)
	switch {
	case len(grave) > 0:
		text += "; " + strings.Join(grave, "; ")
	case r.Trend.Points >= 8 && len(r.Spikes) > 0:
		text += "; otherwise steady, no leak"
	case r.Trend.Points >= 8:
		text += "; steady, no leak"
	}
	if slow != "" {
		text += "; " + slow
	}
	return text + "."
}

// alerts are what is wrong with the last steps, as the sentence says it: what speaks against calling the job
// steady, and a step that was slow lately.
func (v *View) alerts(s *leaf.State) (grave []string, slow string) {
	l, r := &v.look, &v.look.Report
	for _, a := range l.Alerts {
		switch n := len(r.Spikes); {
		case a.Kind == Spike && n > 0 && r.Spikes[n-1] == r.Top: // of the top the sentence speaks anyway
		case a.Kind != Slow:
			grave = append(grave, a.Text(s.Units))
		case a.Step > l.Steps[len(l.Steps)-1].Index-lately:
			slow = a.Text(s.Units)
		}
	}
	if l.Dropped > 0 {
		grave = append(grave, leaf.Count(l.Dropped)+" steps were lost on the way here")
	}
	return grave, slow
}

// lately is for how many steps the sentence speaks of one that was slow.
const lately = 64
