package feed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A viewer on the screen captures steps of ranks on other machines: the traces come through the hub, are read
// into memory, and become part of what is known of the ranks.

// errOnlyLooking is the error for a join file without the key for giving orders.
var errOnlyLooking = errors.New("this join file does not allow captures: use the one that gmemtop hub " +
	"wrote with --join-file")

// OrdersTo connects to the hub of a run with permission to give orders. leave ends the connection.
type OrdersTo func(ctx context.Context) (_ fleet.Reach, leave func(), err error)

// Capturing returns what captures steps of the ranks of a watched run.
func Capturing(w *fleet.Watch, orders OrdersTo) Capturer {
	return func(ctx context.Context, list []*job.Process, steps int, tell func(text string)) []job.Taken {
		taken := make([]job.Taken, len(list))
		for i, p := range list {
			taken[i].Process = p
		}
		dir, err := os.MkdirTemp("", "gmemtop-view-*")
		if err != nil {
			taken[0].Err = err
			return taken[:1]
		}
		defer os.RemoveAll(dir)
		done, err := captureRanks(ctx, orders, fleet.CaptureOptions{
			Nodes: w.Known(), Steps: steps, Tell: tell, Wait: fleet.CaptureWait,
			Choose: func([]int64) ([]int64, error) { return knownRanks(list), nil },
			Dir:    func(int64) string { return filepath.Join(dir, "traces") },
		})
		if err != nil { // the same for all: it is told once
			taken[0].Err = err
			return taken[:1]
		}
		for i, p := range list {
			taken[i].Window, taken[i].Err = windowOf(ctx, done, p)
		}
		for _, x := range taken { // all at once, so that a plan for one rank finds the others' steps
			if x.Err == nil {
				x.Process.History.Window(x.Window)
			}
		}
		return taken
	}
}

// captureRanks makes the nodes of a run capture steps, and waits for their traces.
func captureRanks(ctx context.Context, orders OrdersTo, o fleet.CaptureOptions) (fleet.Captured, error) {
	var none fleet.Captured
	reach, leave, err := orders(ctx)
	if err != nil {
		return none, err
	}
	defer leave()
	join, err := reach.Join(ctx)
	if err != nil {
		return none, err
	}
	if join.Seeds[bus.Operator] == "" {
		return none, errOnlyLooking
	}
	conn, _, err := reach.Dial(ctx)
	if err != nil {
		return none, err
	}
	defer conn.Close()
	return fleet.Capture(ctx, conn, o)
}

// knownRanks returns the ranks of processes, as far as they are known.
func knownRanks(list []*job.Process) (ranks []int64) {
	for _, p := range list {
		if r, ok := p.Info().Rank.Value(); ok {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// windowOf reads what a process has captured.
func windowOf(ctx context.Context, done fleet.Captured, p *job.Process) (capture.Window, error) {
	rank := p.Info().Rank
	k := slices.IndexFunc(done.Ranks, func(r fleet.CapturedRank) bool { return maybe.Known(r.Rank) == rank })
	if k < 0 {
		return capture.Window{}, errors.New("its rank is not known, and a capture needs it")
	}
	r := done.Ranks[k]
	if r.Path == "" {
		return capture.Window{}, errors.New(r.Why)
	}
	t, err := load.Open(ctx, r.Path, load.Options{NoCache: true})
	if err != nil {
		return capture.Window{}, err
	}
	t.Source.Path = "" // the file is gone in a moment
	return capture.Window{Trace: t, First: r.First, Last: r.Last, How: capture.HowOps}, nil
}
