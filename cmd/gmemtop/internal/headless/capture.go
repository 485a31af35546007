package headless

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
)

// Capture is a capture of the same steps of several ranks, as flags ask for it.
type Capture struct {
	Where reach.Where
	// Ranks, Depth, Steps and Wait are the values of the flags of their names.
	Ranks, Depth string
	Steps        int
	Wait         time.Duration
	// Dir is the new folder for the traces, "" for one that is named after the run and the first step.
	Dir string
}

// mostCaptured is how many steps can be captured; the agent has the same limit.
const mostCaptured = 1000

// Check refuses values that cannot be used. The error is a mistake.
func (c *Capture) Check() error {
	if c.Steps < 1 || c.Steps > mostCaptured {
		return exit.Mistakef("--steps %d: name 1 to %d", c.Steps, mostCaptured)
	}
	if err := CheckDepth(c.Depth); err != nil {
		return err
	}
	_, err := fleet.ParseRanks(c.Ranks)
	return exit.AsMistake(err)
}

// CheckDepth checks the value of --depth; "" is the default. The error is a mistake.
func CheckDepth(depth string) error {
	known := []string{capture.HowOps, capture.HowHistory, capture.HowProfile}
	if depth != "" && !slices.Contains(known, depth) {
		return exit.Mistakef("--depth %q: name ops, history or profile", depth)
	}
	return nil
}

// Run captures the steps and writes the traces. tell gets progress messages.
func (c *Capture) Run(ctx context.Context, tell func(text string)) (fleet.Captured, error) {
	choice, err := fleet.ParseRanks(c.Ranks)
	if err != nil {
		return fleet.Captured{}, exit.AsMistake(err)
	}
	hub, leave, err := c.Where.Open(ctx, "capture", bus.Operator)
	if err != nil {
		return fleet.Captured{}, err
	}
	defer leave()
	join, err := hub.Join(ctx)
	if err != nil {
		return fleet.Captured{}, err
	}
	if join.Seeds[bus.Operator] == "" {
		return fleet.Captured{}, exit.AsUnsupported(fmt.Errorf("%s%s does not allow captures: use the join "+
			"file that gmemtop hub wrote with --join-file", c.Where.JoinFile, c.Where.Place))
	}
	conn, join, err := hub.Dial(ctx)
	if err != nil {
		return fleet.Captured{}, err
	}
	defer conn.Close()
	nodes, outliers, err := nodesOf(ctx, conn, join.Run)
	if err != nil {
		return fleet.Captured{}, err
	}
	return fleet.Capture(ctx, conn, fleet.CaptureOptions{
		Nodes: nodes, Steps: c.Steps, How: c.Depth, Wait: c.Wait, Tell: tell,
		Choose: func(running []int64) ([]int64, error) { return choice.Of(running, outliers) },
		Dir: func(first int64) string {
			return cmp.Or(c.Dir, fmt.Sprintf("%s-step%d", bus.Token(join.Run), first))
		},
	})
}

// nodesOf returns the nodes of the run and which ranks are unlike the others.
func nodesOf(ctx context.Context, conn *bus.Conn, run string) (nodes []string,
	outliers []int64, err error) {
	w := fleet.NewWatch(fleet.WatchOptions{})
	defer w.Reading(ctx, func(ctx context.Context) { w.Run(ctx, conn) })()
	if err := w.CatchUp(ctx, run); err != nil {
		return nil, nil, err
	}
	return w.Known(), feed.Outliers(w.Job()), nil
}
