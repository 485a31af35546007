package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/pytorch"
)

// fleetNote is what gmemtop run leaves beside a command whose steps go to a hub: what the node is called, and
// where the join file is.
func fleetNote(id fleet.Identity, join string) string {
	path, err := filepath.Abs(join)
	if err != nil {
		path = join
	}
	return id.NodeName() + "\n" + path
}

// attachOrphans watches again what gmemtop run --join-file was watching here before it was killed, and sends
// it to the hub in the name of the same nodes. It ends when the commands have ended, or on a signal; then the
// agents stay, as they did before.
func (c *attachCommand) attachOrphans(ctx context.Context) error {
	orphans, err := c.orphans()
	if err != nil {
		return err
	}
	outliveTerminal()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.signals(func(os.Signal) { stop() })
	reach, leave, err := (&reachFlags{join: c.join, creds: c.creds}).to(ctx, "", "attach", bus.Viewer)
	if err != nil {
		return err
	}
	defer leave()
	conn, join, err := reach.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	nodes := make([]fleet.NodeOptions, len(orphans))
	for i, o := range orphans {
		if nodes[i], err = c.nodeOf(ctx, o, conn); err != nil {
			return err
		}
	}
	failed := make([]error, len(orphans))
	var work sync.WaitGroup
	for i, o := range orphans {
		c.note("run %s: watching process %d again; Ctrl-C ends that; gmemtop view --join-file %s shows it",
			join.Run, o.PID, shellWord(c.join))
		work.Go(func() { failed[i] = resume(ctx, o, nodes[i]) })
	}
	work.Wait()
	return errors.Join(failed...)
}

// nodeOf returns how to go on for the node that an orphan was of, as the hub knows it.
func (c *attachCommand) nodeOf(ctx context.Context, o pytorch.Orphan, conn *bus.Conn) (fleet.NodeOptions,
	error) {
	name, _, _ := strings.Cut(o.Note, "\n")
	past, err := fleet.LastWords(ctx, conn, name)
	id := fleet.Identify(c.Env)
	id.Node, _, _ = strings.Cut(name, ":") // a scheduler may have called it otherwise than this shell does
	return fleet.NodeOptions{Identity: id, Name: name, Past: past, Join: c.join, Credentials: c.creds,
		Tell: func(text string) { c.complain("%s", text) }}, err
}

// orphans returns the commands of this machine that a killed gmemtop was sending to the hub of the join file.
func (c *attachCommand) orphans() ([]pytorch.Orphan, error) {
	own, err := filepath.Abs(c.join)
	if err != nil {
		return nil, err
	}
	var list []pytorch.Orphan
	var others []string
	for _, o := range pytorch.Orphans() {
		if _, path, sends := strings.Cut(o.Note, "\n"); path == own {
			list = append(list, o)
		} else if sends && !slices.Contains(others, path) {
			others = append(others, path)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	host, _ := os.Hostname()
	text := fmt.Sprintf("no gmemtop run --join-file %s was killed on %s and left its command behind",
		shellWord(c.join), host)
	if len(others) > 0 {
		text += "; with these files it was: " + strings.Join(others, ", ")
	}
	return nil, errors.New(text)
}

// resume watches an orphan and sends its steps as a node, until the command ends or ctx is done.
func resume(ctx context.Context, o pytorch.Orphan, node fleet.NodeOptions) error {
	ranks := job.New(job.NewWatch(job.Options{}))
	command, err := o.Resume(pytorch.Launch{Reach: ranks.Injector(),
		Each: func(s *pytorch.Session) capture.Sink { return ranks.Add(s.Target(), s) }})
	if err != nil {
		return errors.Join(err, ranks.Close())
	}
	ranks.Run(ctx, command)
	n := fleet.StartNode(ranks, node)
	_ = ranks.WaitOver(ctx) // a signal is no error
	n.Close()
	return ranks.Close()
}
