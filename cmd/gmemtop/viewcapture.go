package main

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
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A viewer on the screen captures steps of ranks on other machines: the traces come through the hub, are read
// into memory, and become part of what is known of the ranks.

// errOnlyLooking means that the keys at hand allow no orders.
var errOnlyLooking = errors.New("this join file only allows looking: use the one that gmemtop hub wrote " +
	"with --join-file")

// capturing returns what captures steps of the ranks of a run. orders returns how to reach its hub as one who
// gives orders, and what to call when done.
func capturing(w *fleet.Watch, orders func(ctx context.Context) (fleet.Reach, func(),
	error)) feed.Capturer {
	return func(ctx context.Context, list []*job.Process, steps int, tell func(text string)) []job.Taken {
		taken := make([]job.Taken, len(list))
		for i, p := range list {
			taken[i].Process = p
		}
		fail := func(err error) []job.Taken {
			for i := range taken {
				taken[i].Err = err
			}
			return taken[:1] // once is enough
		}
		reach, leave, err := orders(ctx)
		if err != nil {
			return fail(err)
		}
		defer leave()
		join, err := reach.Join(ctx)
		if err != nil {
			return fail(err)
		}
		if join.Seeds[bus.Operator] == "" {
			return fail(errOnlyLooking)
		}
		dir, err := os.MkdirTemp("", "gmemtop-view-*")
		if err != nil {
			return fail(err)
		}
		defer os.RemoveAll(dir)
		conn, _, err := reach.Dial(ctx)
		if err != nil {
			return fail(err)
		}
		defer conn.Close()
		var ranks []int64
		for _, p := range list {
			if r, ok := p.Target().Rank.Value(); ok {
				ranks = append(ranks, r)
			}
		}
		done, err := fleet.Capture(ctx, conn, fleet.CaptureOptions{
			Nodes: w.Known(), Steps: steps, Tell: tell, Wait: captureWait,
			Choose: func([]int64) ([]int64, error) { return ranks, nil },
			Dir:    func(int64) string { return filepath.Join(dir, "traces") },
		})
		if err != nil {
			return fail(err)
		}
		for i, p := range list {
			rank := p.Target().Rank
			k := slices.IndexFunc(done.Ranks,
				func(r fleet.CapturedRank) bool { return maybe.Known(r.Rank) == rank })
			if k < 0 {
				taken[i].Err = errors.New("it has no rank to name it by")
				continue
			}
			taken[i].Window, taken[i].Err = windowOf(ctx, done.Ranks[k])
		}
		for _, x := range taken { // all at once: who plans for one rank finds the others
			if x.Err == nil {
				x.Process.History.Window(x.Window)
			}
		}
		return taken
	}
}

// windowOf reads what a rank has captured.
func windowOf(ctx context.Context, r fleet.CapturedRank) (capture.Window, error) {
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
