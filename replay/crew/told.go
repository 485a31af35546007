package crew

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
)

// TrainMeanwhile is TrainTold from the first step on, for a user who looks at a screen, until taken is
// called.
func (c *Crew) TrainMeanwhile(ctx context.Context, x *Choice, u timeline.Units) (taken func()) {
	ctx, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		if err := c.Lead.FirstStep(ctx); err == nil {
			c.TrainTold(ctx, x, u, nil)
		}
	})
	return func() {
		stop()
		work.Wait()
	}
}

// TrainTold carries a choice out as [Crew.Train] does, until ctx is done, and reports progress. All viewers
// get it as a notice; inform, if not nil, gets what matters to a user without a screen.
func (c *Crew) TrainTold(ctx context.Context, x *Choice, u timeline.Units, inform func(text string)) {
	if inform == nil {
		inform = func(string) {}
	}
	var so far
	err := c.Train(ctx, x, func(n live.News) {
		text := n.Sentence(x.Name, u)
		c.tell(ctx, text)
		for _, news := range so.hears(n, x.Name, text) {
			inform(news)
		}
	})
	if err == nil || errors.Is(err, errEnded) || ctx.Err() != nil {
		if !so.ever { // otherwise the user would believe that the training ran under the plan
			inform(say.PlanNeverOn.Text(x.Name, c.doing(so.stage)))
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

// far is how far a plan has come.
type far struct {
	ever  bool       // it was on
	stage live.Stage // the last one before the training's end
	ended string     // why the plan was ended last
}

// hears returns what a user without a screen should know of the news, whose whole sentence is text.
func (f *far) hears(n live.News, name, text string) (list []string) {
	if n.Stage == live.On && f.stage != live.On {
		list = append(list, text)
	}
	if n.Ended != "" && (n.Ended != f.ended || f.stage == live.On && n.Stage != live.On) {
		list = append(list, say.PlanEnded.Text(name, n.Ended))
	}
	f.ended = n.Ended
	if n.Stage != live.Over {
		f.stage = n.Stage
	}
	f.ever = f.ever || f.stage == live.On
	return list
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
