package autopsy

import (
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// faultLevers returns the levers with those of the faults first, the main fault's before the others'. Where
// a lever has the name of a fault's and no remedy of its own is tried, it moves to the front.
func (c *leverCase) faultLevers(found []fault, all []Lever) []Lever {
	var out []Lever
	add := func(f *fault, r *remedy, text string, alternative bool) {
		named := func(l Lever) bool { return l.Name == r.name }
		if r.name == "" || slices.ContainsFunc(out, named) {
			return
		}
		if k := slices.IndexFunc(all, named); k >= 0 && len(r.changes) == 0 {
			all[k].Mends, all[k].Alternative = f.Main, alternative
			all[k].Text = advised(clause(text), r.asks, &all[k])
			out = append(out, all[k])
			all = slices.Delete(all, k, k+1)
			return
		}
		all = slices.DeleteFunc(all, named)
		l := Lever{Name: r.name, Command: r.command,
			Exactness: timeline.Inferred, Text: clause(text), Mends: f.Main, Unsure: r.unsure,
			Alternative: alternative, Partly: r.partly}
		if n, _ := c.saves(r.changes); n+r.request > 0 {
			l.Saves, l.Fits = maybe.Known(n+r.request), c.serves(c.f.asked-r.request, n)
		}
		l.Effect.Changes, l.Effect.Scale, l.remains, l.beside = r.changes, r.scale, r.remains, r.beside
		if r.scale == 0 { // which makes the request smaller, too
			l.Effect.Less = r.request
		}
		out = append(out, l)
	}
	for i := range found {
		add(&found[i], &found[i].lever, found[i].advice(), false)
		add(&found[i], &found[i].instead, found[i].elseFix, true)
	}
	if len(found) > 0 { // the main one's, where no fault has a remedy of the same name
		for _, w := range found[0].otherwise() {
			add(&found[0], &w.remedy, w.when, true)
		}
	}
	return append(out, all...)
}

// advised joins a cause's advice and a lever's text. If both ask for the same, only the lever's reason
// follows the advice.
func advised(advice string, asks asked, l *Lever) string {
	if asks != "" && asks == l.asks {
		return advice + ": " + l.reason
	}
	return advice + "; " + l.Text
}
