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
	ever, stage, ended := false, live.Waiting, ""
	err := c.Train(ctx, x, func(n live.News) {
		text := n.Sentence(x.Name, u)
		c.tell(ctx, text)
		if n.Stage == live.On && stage != live.On {
			inform(text)
		}
		if n.Ended != "" && (n.Ended != ended || stage == live.On && n.Stage != live.On) {
			inform(say.PlanEnded.Text(x.Name, n.Ended))
		}
		ended, stage = n.Ended, n.Stage
		ever = ever || stage == live.On
	})
	if err == nil || errors.Is(err, errEnded) || ctx.Err() != nil {
		if !ever { // otherwise the user would believe that the training ran under the plan
			inform(say.PlanNeverOn.Text(x.Name, c.doing(stage)))
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
func (c *Crew) doing(stage live.Stage) string {
	if stage != live.Waiting {
		return stage.String()
	}
	text := say.PlanWaits.Text()
	v := c.Lead.History.Snapshot()
	if why := cmp.Or(v.Said("disarmed"), v.Said("state")); why != "" {
		text += ": " + why
	}
	return text
}
