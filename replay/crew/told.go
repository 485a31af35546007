package crew

import (
	"cmp"
	"context"
	"errors"
	"strings"
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
			inform(c.never(x, &so))
		}
		return
	}
	rest := say.GoesOnWithout
	if c.offloads(ctx) {
		rest = say.GoesOnOffloaded
	}
	text := say.PlanFailed.Text(x.Name, strings.TrimPrefix(whyGivenUp(err), x.Name+": "), rest.Text())
	c.tell(ctx, text)
	inform(text)
}

// far is how far a plan has come.
type far struct {
	ever  bool       // it was on
	stage live.Stage // the last one before the training's end
	last  live.News  // of that stage
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
		f.stage, f.last = n.Stage, n
	}
	f.ever = f.ever || f.stage == live.On
	return list
}

// never says that the training ended before its plan was on, and what would have been enough for one.
func (c *Crew) never(x *Choice, so *far) string {
	v := c.Lead.History.Snapshot()
	ran := int64(0)
	if n := len(v.Steps); n > 0 {
		ran = v.Steps[n-1].Index + 1
	}
	text := say.PlanNeverOn.Text(x.Name, timeline.Counted(ran, "step"), c.doing(so.stage))
	if so.stage == live.Waiting {
		return text
	}
	rest, timing := so.last.Rest(c.Lead.onCPU() && !x.Hardware.Chosen && !x.Pools && !x.Offload)
	text += ": " + say.PlanTooLate.Text(ran+int64(max(rest, 1)))
	if timing > 0 {
		text += ", " + say.PlanUntimed.Text(timing)
	}
	return text
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
