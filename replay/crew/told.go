package crew

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// TrainTold carries a choice out as [Crew.Train] does, until ctx is done, and reports progress. All viewers
// get it as a notice; say, if not nil, gets what matters to a user without a screen.
func (c *Crew) TrainTold(ctx context.Context, x *Choice, u timeline.Units, say func(text string)) {
	if say == nil {
		say = func(string) {}
	}
	ever, phase, ended := false, live.Waiting, ""
	err := c.Train(ctx, x, func(n live.News) {
		text := n.Sentence(x.Name, u)
		c.Tell(ctx, text)
		if n.Phase == live.On && phase != live.On {
			say(text)
		}
		if n.Ended != "" && (n.Ended != ended || phase == live.On && n.Phase != live.On) {
			say(fmt.Sprintf("%s ended and is planned again: %s", x.Name, n.Ended))
		}
		ended, phase = n.Ended, n.Phase
		ever = ever || phase == live.On
	})
	if err == nil || errors.Is(err, ErrEnded) || ctx.Err() != nil {
		if !ever { // or the user would believe that the training ran under the plan
			say(fmt.Sprintf("%s was not carried out: the training ended while gmemtop was %s", x.Name,
				c.doing(phase)))
		}
		return
	}
	rest := "the training goes on without it"
	if c.Offloads(ctx) {
		rest = "the training goes on, and what it saves waits on the host"
	}
	text := fmt.Sprintf("%s is not carried out: %s; %s", x.Name, report.Printable(err.Error()), rest)
	c.Tell(ctx, text)
	say(text)
}

// doing completes "gmemtop was ...".
func (c *Crew) doing(phase live.Phase) string {
	if phase != live.Waiting {
		return phase.Doing()
	}
	text := "waiting for steps to plan by"
	v := c.Lead.History.Snapshot()
	if why := cmp.Or(v.Said("disarmed"), v.Said("state")); why != "" {
		text += ": " + why
	}
	return text
}
