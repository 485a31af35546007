package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// What the user chose to ask of the job.
type (
	everyMsg  struct{ steps int }
	depthMsg  Depth
	detachMsg struct {
		all  bool
		what string
	}
)

// takeOrder sends the order of a message to the job and reports the result; ok is false for any other
// message.
func takeOrder(feed Feed, l *Look, msg tea.Msg) (cmd tea.Cmd, ok bool) {
	switch msg := msg.(type) {
	case orderedMsg:
		if msg.err != nil {
			return leaf.Send(leaf.ToastMsg{Text: msg.err.Error(), Error: true}), true
		}
		if msg.said == "" {
			return nil, true // looks say what becomes of it
		}
		return leaf.Send(leaf.ToastMsg{Text: msg.said}), true
	case everyMsg:
		said := "one step in " + leaf.Count(int64(msg.steps)) + l.of() + " is captured whole from now on"
		if msg.steps == 0 {
			said = "steps" + l.of() + " are captured whole only on request from now on"
		}
		return order(feed, Order{Kind: Every, Steps: msg.steps}, said), true
	case depthMsg:
		said := "steps" + l.of() + " are captured " + msg.Name + " from now on"
		return order(feed, Order{Kind: Deepen, How: msg.How}, said), true
	case detachMsg:
		return order(feed, Order{Kind: Detach, All: msg.all}, "detaching from "+msg.what), true
	case chooseMsg:
		return choose(feed, l, msg.id), true
	}
	return nil, false
}

func askDepth(l *Look) tea.Cmd {
	pick := leaf.PickMsg{
		Title: "Capture steps" + l.of(), Footer: "What it costs a step is measured and shown.",
	}
	for _, d := range l.Capture.Depths {
		c := leaf.Choice{Title: d.Name, Detail: d.Shows, Msg: depthMsg(d)}
		if d.Cost > 0 {
			c.Detail = "costs " + timeline.Duration(int64(d.Cost)) + "; " + c.Detail
		}
		if d.How == l.Capture.Depth {
			c.Detail = "current; " + c.Detail
		}
		pick.Choices = append(pick.Choices, c)
	}
	return leaf.Send(pick)
}

func askDetach(l *Look) tea.Cmd {
	stays := "what was captured stays on the screen"
	pick := leaf.PickMsg{Title: "Stop watching the job?", Footer: "The job keeps running, and nothing is " +
		"left in it."}
	if lean := l.Capture.Lean; lean != "" {
		pick.Footer = "It trains with " + lean + ", which ends too: " +
			"if a step does not fit without it, the job runs out of memory."
	}
	if n := l.Capture.Along; n > 0 {
		pick = leaf.PickMsg{
			Title:  "Stop watching here?",
			Footer: fmt.Sprintf("The job goes on, and so does process %d, which watches it.", n),
		}
	}
	if r, ok := l.chosen(); ok {
		all := fmt.Sprintf("detach from all %d", len(l.Ranks))
		pick.Choices = []leaf.Choice{
			{Title: "detach from " + r.Name(), Detail: stays, Msg: detachMsg{what: r.Name()}},
			{Title: all, Detail: stays, Msg: detachMsg{true, "all of them"}},
		}
	} else {
		pick.Choices = []leaf.Choice{{Title: "detach", Detail: stays, Msg: detachMsg{what: "the job"}}}
	}
	pick.Choices = append(pick.Choices, leaf.Choice{Title: "keep watching", Msg: leaf.ChangedMsg{}})
	return leaf.Send(pick)
}

func askEvery(l *Look) tea.Cmd {
	var list []leaf.Choice
	often := []int{1, 10, 100, 1000, 0}
	if n := l.Capture.Every; !slices.Contains(often, n) {
		often = append([]int{n}, often...)
	}
	for _, n := range often {
		c := leaf.Choice{Title: "one step in " + leaf.Count(int64(n)), Msg: everyMsg{n}}
		switch n {
		case 0:
			c.Title = "only on request"
		case 1:
			c.Title, c.Detail = "every step", "its cost is measured and shown"
		}
		if n == l.Capture.Every {
			c.Detail = "current"
		}
		list = append(list, c)
	}
	return leaf.Send(leaf.PickMsg{
		Title: "Which steps to capture" + l.of(), Choices: list,
		Footer: "A step that is captured op by op takes longer; the others do not.",
	})
}

// patience is how long an order may take to reach the job.
const patience = 5 * time.Second

// order sends the job an order, and says so once it is accepted.
func order(feed Feed, o Order, said string) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return orderedMsg{said, feed.Order(ctx, o)}
	}
}

// CaptureSame asks for the same step of some processes.
func CaptureSame(feed Feed, ids []int) tea.Cmd {
	return order(feed, Order{Kind: Same, Steps: 1, IDs: ids}, "")
}

// ShowRank asks to show another process.
func ShowRank(feed Feed, l *Look, id int) tea.Cmd { return choose(feed, l, id) }

// choose asks to show another process.
func choose(feed Feed, l *Look, id int) tea.Cmd {
	if id == l.Chosen {
		return nil
	}
	for i := range l.Ranks {
		if r := &l.Ranks[i]; r.ID == id {
			return order(feed, Order{Kind: Choose, Rank: id}, "all views show "+r.Name()+" from now on")
		}
	}
	return nil
}
