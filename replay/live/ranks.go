package live

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/timeline"
)

// Rank is one process of a training with several, and the state of the plan in it.
type Rank struct {
	// Name is the display name: rank 0.
	Name string
	// News is its latest news.
	News News
	// Err says why no plan is carried out in it, nil if one is or will be. Gone says that the process has
	// ended.
	Err  error
	Gone bool
}

// Together returns what counts for a training of several ranks as a whole: the footprint of the rank that
// holds most, because it runs out of memory first, and the step time of the slowest, for which all others
// wait. A rank that trains without the plan counts with its figures without it. Ranks that have ended do not
// count.
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
		if r.Err != nil { // it trains without a plan, and nothing was predicted for that
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
			n.Stage, n.Steps, n.Timed, n.Time = x.Stage, x.Steps, x.Timed, x.Time
		case x.Stage == n.Stage:
			n.Steps = min(n.Steps, x.Steps)
			if x.Time-x.Timed > n.Time-n.Timed { // the one that takes longest
				n.Timed, n.Time = x.Timed, x.Time
			}
		case n.Stage != On && x.Stage < n.Stage, x.Stage == On:
			// If a plan is on in one, the others' own rows say how far they are.
			n.Stage, n.Steps, n.Timed, n.Time = x.Stage, x.Steps, x.Timed, x.Time
		}
		first = false
	}
	if first { // no rank is left that could
		n.Stage = Over
	}
	return n
}

// CountOn returns the number of ranks in which the plan is on.
func (n *News) CountOn() (count int) {
	for i := range n.Ranks {
		if r := &n.Ranks[i]; r.Err == nil && r.News.Stage.Carried() {
			count++
		}
	}
	return count
}

// Word returns a rank's state in a few words: on, describing, or why it is off.
func (r *Rank) Word() string {
	switch {
	case r.Gone:
		return "has ended"
	case r.Err != nil:
		return "off: " + r.Err.Error()
	}
	return r.News.Stage.String()
}

// Line returns a line about a rank's time and memory.
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

// among says in how many of several ranks the plan is on and which of them are off, to follow the sentence
// about all.
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

// Failed returns why a plan is carried out in none of some ranks: once if all give the same reason, otherwise
// each by name. It is nil if one gives none.
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

// Refused returns why a plan is not carried out in some of the ranks, each by name; nil if all carry it out.
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
