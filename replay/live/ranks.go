package live

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/timeline"
)

// Rank is one process of a training of several, and what a plan comes to in it.
type Rank struct {
	// Name is what people call it: rank 0.
	Name string
	// News is what was heard of it last.
	News News
	// Err says why no plan is carried out in it, nil where one is or will be. Gone says that the process has
	// ended.
	Err  error
	Gone bool
}

// Together says of several ranks what counts for the training as a whole: the footprint of the rank that
// holds most, since that one runs out of memory first, and the step time of the slowest, for which all others
// wait. A rank that trains without the plan counts with what it takes without. Of ranks that have ended only
// their own rows speak.
func Together(ranks []Rank) News {
	n := News{Ranks: ranks}
	first := true
	for i := range ranks {
		r := &ranks[i]
		x := &r.News
		if r.Gone {
			continue
		}
		peak, predicted := x.Peak, x.Predicted
		if r.Err != nil { // it trains without, of which nothing was predicted
			peak, predicted = x.PeakBefore, 0
		}
		if peak > n.Peak || n.Peak == 0 && x.PeakBefore > n.PeakBefore {
			n.Peak, n.PeakBefore, n.Predicted, n.Highest = peak, x.PeakBefore, predicted, r.Name
		}
		n.Before = max(n.Before, x.Before)
		if n.Ended == "" && x.Ended != "" {
			n.Ended = x.Ended
			if len(ranks) > 1 {
				n.Ended = r.Name + ": " + x.Ended
			}
		}
		if r.Err != nil {
			continue
		}
		n.Pooled = n.Pooled || x.Pooled
		n.Step, n.P95, n.PredictedStep, n.Added = max(n.Step, x.Step), max(n.P95, x.P95),
			max(n.PredictedStep, x.PredictedStep), max(n.Added, x.Added)
		n.Out, n.In, n.Again = max(n.Out, x.Out), max(n.In, x.In), max(n.Again, x.Again)
		n.Missed, n.Checked, n.Differ = n.Missed+x.Missed, n.Checked+x.Checked, n.Differ+x.Differ
		n.Larger, n.Above = max(n.Larger, x.Larger), max(n.Above, x.Above)
		if n.Refused == "" {
			n.Refused = x.Refused
		}
		switch {
		case first:
			n.Phase, n.Steps = x.Phase, x.Steps
		case x.Phase == n.Phase:
			n.Steps = min(n.Steps, x.Steps)
		case n.Phase != On && x.Phase < n.Phase, x.Phase == On:
			// Where one is on, the others say for themselves how far they are.
			n.Phase, n.Steps = x.Phase, x.Steps
		}
		first = false
	}
	if first { // none is left that could
		n.Phase = Over
	}
	return n
}

// CountOn returns in how many of the ranks the plan is on.
func (n *News) CountOn() (count int) {
	for i := range n.Ranks {
		if r := &n.Ranks[i]; r.Err == nil && r.News.Phase.Carried() {
			count++
		}
	}
	return count
}

// Word says in a few words what a rank does: on, describing, or why it is off.
func (r *Rank) Word() string {
	switch {
	case r.Gone:
		return "has ended"
	case r.Err != nil:
		return "off: " + r.Err.Error()
	}
	return r.News.Phase.String()
}

// Line says of one rank what it takes.
func (r *Rank) Line(u timeline.Units) string {
	n := &r.News
	s := r.Name + " " + r.Word()
	if r.Err != nil {
		return s
	}
	if n.Peak > 0 {
		s += ", " + say.PlanPeak.Text(u.Bytes(n.Peak), u.Bytes(n.PeakBefore))
	}
	if n.Step > 0 {
		s += ", step " + timeline.Duration(n.Step)
	}
	return s
}

// among says of several ranks, behind the sentence about them all, in how many the plan is on and which of
// them are off.
func (n *News) among() string {
	var off []string
	for i := range n.Ranks {
		if r := &n.Ranks[i]; r.Err != nil {
			off = append(off, r.Name+" "+r.Word())
		}
	}
	s := "; " + say.PlanRanks.Text(n.CountOn(), len(n.Ranks))
	if len(off) > 0 {
		s += ", " + strings.Join(off, ", ")
	}
	return s
}

// Failed returns why a plan is carried out in none of some ranks: once where all say the same, and else for
// each by its name. It is nil where one says nothing.
func Failed(ranks []Rank) error {
	same := true
	for i := range ranks {
		if ranks[i].Err == nil {
			return nil
		}
		same = same && ranks[i].Err.Error() == ranks[0].Err.Error()
	}
	if len(ranks) > 0 && same {
		return ranks[0].Err
	}
	return Refused(ranks)
}

// Refused returns why a plan is not carried out in some of the ranks, for each by its name, nil where all
// carry it out.
func Refused(ranks []Rank) error {
	var list joined
	for i := range ranks {
		if r := &ranks[i]; r.Err != nil {
			list = append(list, fmt.Errorf("%s: %w", r.Name, r.Err))
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// joined is several errors on one line.
type joined []error

func (j joined) Error() string { return strings.ReplaceAll(errors.Join(j...).Error(), "\n", "; ") }

func (j joined) Unwrap() []error { return j }
