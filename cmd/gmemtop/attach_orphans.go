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
	"sync/atomic"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
)

// fleetNote is what gmemtop run leaves beside a command whose steps go to a hub, in three lines: the name of
// the machine, that of the node, and the path of the join file.
func fleetNote(id fleet.Identity, join string) string {
	path, err := filepath.Abs(join)
	if err != nil {
		path = join
	}
	return id.Node + "\n" + id.NodeName() + "\n" + path
}

// readFleetNote reads what fleetNote wrote. The path is "" in the note of a command that sends to no hub.
func readFleetNote(note string) (machine, name, path string) {
	machine, rest, _ := strings.Cut(note, "\n")
	name, path, _ = strings.Cut(rest, "\n")
	return machine, name, path
}

// attachOrphans watches again what gmemtop run --join-file was watching here before it was killed, and sends
// it to the hub in the name of the same nodes. It ends when the commands have ended, or on a signal; then the
// agents stay, as they did before. What goes wrong with one command leaves the others alone.
func (c *attachCommand) attachOrphans(ctx context.Context) error {
	orphans, err := c.orphans()
	if err != nil {
		return err
	}
	outliveTerminal()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.signals(func(os.Signal) { stop() })
	where := reach.Where{JoinFile: c.join, Credentials: c.creds}
	hub, leave, err := where.Open(ctx, "attach", bus.Viewer)
	if err != nil {
		return err
	}
	defer leave()
	var work sync.WaitGroup
	var failed atomic.Int64
	for _, o := range orphans {
		work.Go(func() {
			if err := c.takeOver(ctx, o, hub); err != nil {
				failed.Add(1)
				c.complain("%v", err)
			}
		})
	}
	work.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d commands were not watched to the end: to go on, type the same command",
			n, len(orphans))
	}
	return nil
}

// takeOver watches an orphan and sends its steps as the node that it was of, until the command ends or ctx is
// done.
func (c *attachCommand) takeOver(ctx context.Context, o pytorch.Orphan, reach fleet.Reach) error {
	node, run, err := c.nodeOf(ctx, o, reach)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", o.PID, err)
	}
	ranks := job.New(job.NewWatch(job.Options{}))
	command, err := o.Resume(pytorch.Launch{Reach: ranks.Injector(),
		Each: func(s *pytorch.Session) capture.Sink { return ranks.Add(s.Target(), s) }})
	if err != nil {
		return errors.Join(err, ranks.Close())
	}
	c.note("run %s: watching process %d again; Ctrl-C ends that; gmemtop view --join-file %s shows it", run,
		o.PID, console.ShellWord(c.join))
	ranks.Run(ctx, command)
	n := fleet.StartNode(ranks, node)
	_ = ranks.WaitOver(ctx) // a signal is no error
	n.Close()
	return ranks.Close()
}

// nodeOf asks the hub about the node that an orphan was of, and returns how to go on for it, and the run.
func (c *attachCommand) nodeOf(ctx context.Context, o pytorch.Orphan, reach fleet.Reach) (fleet.NodeOptions,
	string, error) {
	conn, join, err := reach.Dial(ctx)
	if err != nil {
		return fleet.NodeOptions{}, "", err
	}
	defer conn.Close()
	id := fleet.Identify(c.Env)
	var name string
	id.Node, name, _ = readFleetNote(o.Note) // a scheduler may have called it otherwise than this shell does
	past, err := fleet.LastWords(ctx, conn, name)
	return fleet.NodeOptions{Identity: id, Name: name, Past: past, Join: c.join, Credentials: c.creds,
		Tell: func(text string) { c.complain("%s", text) }}, join.Run, err
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
		if _, _, path := readFleetNote(o.Note); path == own {
			list = append(list, o)
		} else if word := console.ShellWord(path); path != "" && !slices.Contains(others, word) {
			others = append(others, word)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	host, _ := os.Hostname()
	text := fmt.Sprintf("nothing to take over on %s: no command of a killed gmemtop run --join-file %s is "+
		"left", host, console.ShellWord(c.join))
	if len(others) > 0 {
		text += "; commands are left with --join-file " + strings.Join(others, ", ")
	}
	return nil, errors.New(text)
}
