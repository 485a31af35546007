package crew

import (
	"cmp"
	"context"
	"errors"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
)

// TrainTold carries a choice out as [Crew.Train] does, until ctx is done, and reports progress. All viewers
// get it as a notice; inform, if not nil, gets what matters to a user without a screen.
func (c *Crew) TrainTold(ctx context.Context, x *Choice, u timeline.Units, inform func(text string)) {
	if inform == nil {
		inform = func(string) {}
	}
	ever, phase, ended := false, live.Waiting, ""
	err := c.Train(ctx, x, func(n live.News) {
		text := n.Sentence(x.Name, u)
		c.tell(ctx, text)
		if n.Phase == live.On && phase != live.On {
			inform(text)
		}
		if n.Ended != "" && (n.Ended != ended || phase == live.On && n.Phase != live.On) {
			inform(say.PlanEnded.Text(x.Name, n.Ended))
		}
		ended, phase = n.Ended, n.Phase
		ever = ever || phase == live.On
	})
	if err == nil || errors.Is(err, errEnded) || ctx.Err() != nil {
		if !ever { // otherwise the user would believe that the training ran under the plan
			inform(say.PlanNeverOn.Text(x.Name, c.doing(phase)))
		}
		return
	}
	rest := say.GoesOnWithout
	if c.offloads(ctx) {
		rest = say.GoesOnOffloaded
	}
	text := say.PlanFailed.Text(x.Name, whyGivenUp(err), rest.Text())
	c.tell(ctx, text)
	inform(text)
}

// doing completes "gmemtop was ...".
func (c *Crew) doing(phase live.Phase) string {
	if phase != live.Waiting {
		return phase.String()
	}
	text := say.PlanWaits.Text()
	v := c.Lead.History.Snapshot()
	if why := cmp.Or(v.Said("disarmed"), v.Said("state")); why != "" {
		text += ": " + why
	}
	return text
}
