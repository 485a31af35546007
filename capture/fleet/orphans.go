package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/pytorch"
)

// A gmemtop that started a command may be killed while the command trains. It has left a note beside the
// command, so that another gmemtop on the same machine can watch it again for the same hub.

// Note is what gmemtop run leaves beside a command whose steps go to a hub, in three lines: the name of the
// machine, that of the node, and the path of the join file.
func (id Identity) Note(join string) string {
	path, err := filepath.Abs(join)
	if err != nil {
		path = join
	}
	return id.Node + "\n" + id.NodeName() + "\n" + path
}

// readNote reads what Note wrote. The path is "" in the note of a command that sends to no hub.
func readNote(note string) (machine, name, path string) {
	machine, rest, _ := strings.Cut(note, "\n")
	name, path, _ = strings.Cut(rest, "\n")
	return machine, name, path
}

// Orphans returns the commands on this machine whose gmemtop was killed while it sent their steps to the hub
// of a join file. others are the join files of other hubs that have such commands here.
func Orphans(join string) (list []pytorch.Orphan, others []string, err error) {
	own, err := filepath.Abs(join)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range pytorch.Orphans() {
		switch _, _, path := readNote(o.Note); {
		case path == own:
			list = append(list, o)
		case path != "" && !slices.Contains(others, path):
			others = append(others, path)
		}
	}
	return list, others, nil
}

// TakeOverOptions say how orphans are watched again.
type TakeOverOptions struct {
	// Hub is where their steps go.
	Hub Reach
	// Node has what the nodes have in common: the identity, the join file and the credentials.
	Node NodeOptions
	// Began is called when a process is watched again, with the name of the run.
	Began func(pid int, run string)
	// Failed is called with what goes wrong with one command, which leaves the others alone.
	Failed func(err error)
}

// TakeOver watches orphans again and sends their steps under the names of their old nodes, until the
// commands end or ctx is done. It returns how many were not watched to the end.
func TakeOver(ctx context.Context, list []pytorch.Orphan, o TakeOverOptions) (failed int) {
	var work sync.WaitGroup
	var count atomic.Int64
	for _, x := range list {
		work.Go(func() {
			if err := o.takeOver(ctx, x); err != nil {
				count.Add(1)
				o.Failed(err)
			}
		})
	}
	work.Wait()
	return int(count.Load())
}

// takeOver watches one orphan.
func (o *TakeOverOptions) takeOver(ctx context.Context, x pytorch.Orphan) error {
	node, run, err := o.nodeOf(ctx, x)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", x.PID, err)
	}
	ranks := job.New(job.NewWatch(job.Options{}))
	command, err := x.Resume(pytorch.Launch{Reach: ranks.Injector(), Received: node.past.received,
		Each: func(s *pytorch.Session) capture.Sink { return ranks.Add(s.Info(), s) }})
	if err != nil {
		return errors.Join(err, ranks.Close())
	}
	o.Began(x.PID, run)
	ranks.Run(ctx, command)
	n := StartNode(ranks, node)
	_ = ranks.WaitOver(ctx) // a signal is no error
	n.Close()
	return ranks.Close()
}

// nodeOf asks the hub about an orphan's old node. It returns the options that continue it, and the run.
func (o *TakeOverOptions) nodeOf(ctx context.Context, x pytorch.Orphan) (node NodeOptions, run string,
	err error) {
	conn, join, err := o.Hub.Dial(ctx)
	if err != nil {
		return node, "", err
	}
	defer conn.Close()
	node = o.Node
	// A scheduler may have given the machine another name than this shell does.
	node.Identity.Node, node.Name, _ = readNote(x.Note)
	if node.past, err = lastHello(ctx, conn, node.Name); node.past != nil {
		node.past.recall(ctx, conn, node.Name)
	}
	return node, join.Run, err
}
