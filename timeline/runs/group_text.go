package runs

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
)

// Sentence sums the ranks up in one sentence.
func (g *Group) Sentence(u timeline.Units) string {
	text := g.firstText(u)
	if text == "" {
		text = fmt.Sprintf("%d ranks: all alike", len(g.Ranks))
		if g.Over {
			text = fmt.Sprintf("%d ranks have ended: all were alike", len(g.Ranks))
		}
	}
	if out := g.outText(u); out != "" {
		text += "; " + out
	}
	if gone := g.goneText(); gone != "" {
		text += "; " + gone
	}
	return text + "."
}

// firstText says which rank to look at first, and why.
func (g *Group) firstText(u timeline.Units) string {
	if g.First < 0 {
		return ""
	}
	m, w := &g.Ranks[g.First], &g.Why
	text := m.Name()
	if m.Host != "" && g.hosts() > 1 {
		text += " on " + m.Host
	}
	among := "the others"
	if len(g.Ranks) == 2 {
		among = "the other"
	}
	if name := g.Classes[g.Class[g.First]].Name; name != "" {
		among = "the others of " + name
	}
	is, holds := "is", "holds"
	if g.Over {
		is, holds = "was", "held"
	}
	if w.Slow {
		what := "in forward and optimizer"
		if w.Figure == PeerDuration {
			what = "a step"
		}
		text += fmt.Sprintf(" %s the slowest: %s %s, %s %s", is, timeline.Duration(w.Value), what, among,
			timeline.Duration(w.Others))
	} else {
		text += fmt.Sprintf(" %s %s more than %s, %s against %s", holds, u.Bytes(w.Value-w.Others), among,
			u.Bytes(w.Value), u.Bytes(w.Others))
		if w.EntryBytes > 0 {
			text += ", in " + w.Entry.String()
		}
		if w.Site != "" {
			text += fmt.Sprintf(", of which %s at %s", u.Bytes(w.SiteBytes), w.Site)
		}
	}
	switch step, known := w.Since.Value(); {
	case known && w.Always && step == 0:
		text += ", from the first step on"
	case known && w.Always:
		text += fmt.Sprintf(", since step %s or before", timeline.Count(step))
	case known:
		text += ", since step " + timeline.Count(step)
	}
	return text
}

// outText says who runs out of memory first.
func (g *Group) outText(u timeline.Units) string {
	if g.Out.Index < 0 {
		return ""
	}
	name := g.Ranks[g.Out.Index].Name()
	if g.Out.Index == g.First {
		name = "it"
	}
	grows := u.Bytes(int64(g.Out.Growth)) + " a step"
	steps, known := g.Out.Steps.Value()
	if !known {
		return fmt.Sprintf("%s grows fastest, by %s", name, grows)
	}
	text := fmt.Sprintf("%s runs out first, in about %s steps", name, timeline.Count(steps))
	if ns, ok := g.Out.Time.Value(); ok {
		text += " (" + timeline.Duration(ns) + ")"
	}
	return text + ", since it grows by " + grows
}

// goneText counts the ranks that do not step, and the steps that were lost.
func (g *Group) goneText() string {
	var n [Failed + 1]int
	lost := int64(0)
	for i := range g.Ranks {
		n[g.Ranks[i].Is]++
		lost += g.Ranks[i].Lost
	}
	text := ""
	add := func(more string) {
		if text != "" {
			text += ", "
		}
		text += more
	}
	for _, x := range []struct {
		state RankState
		word  string
	}{{Failed, "failed"}, {Missing, "lost"}, {Late, "late"}} {
		if n[x.state] > 0 {
			add(timeline.Counted(int64(n[x.state]), "rank") + " " + x.word)
		}
	}
	if lost > 0 {
		add(timeline.Counted(lost, "step") + " never arrived")
	}
	return text
}

// hosts counts the machines, up to two.
func (g *Group) hosts() int {
	for i := range g.Ranks {
		if g.Ranks[i].Host != g.Ranks[0].Host {
			return 2
		}
	}
	return 1
}
