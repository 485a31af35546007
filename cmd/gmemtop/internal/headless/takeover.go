package headless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
)

// TakeOver watches again what gmemtop run --join-file was watching on this machine before it was killed, and
// sends it to the hub in the name of the same nodes.
type TakeOver struct {
	where   reach.Where
	orphans []pytorch.Orphan
}

// NewTakeOver finds the commands that are left. The error says so if there are none.
func NewTakeOver(where reach.Where) (*TakeOver, error) {
	orphans, others, err := fleet.Orphans(where.JoinFile)
	if err != nil {
		return nil, err
	}
	if len(orphans) == 0 {
		return nil, nothingToTakeOver(where.JoinFile, others)
	}
	return &TakeOver{where: where, orphans: orphans}, nil
}

// Run watches the commands until they have ended or ctx is done; then the agents stay, as they did before.
func (t *TakeOver) Run(ctx context.Context, id fleet.Identity, note, complain func(text string)) error {
	hub, leave, err := t.where.Open(ctx, "attach", bus.Viewer)
	if err != nil {
		return err
	}
	defer leave()
	join := t.where.JoinFile
	failed := fleet.TakeOver(ctx, t.orphans, fleet.TakeOverOptions{
		Hub: hub,
		Node: fleet.NodeOptions{Identity: id, Join: join, Credentials: t.where.Credentials,
			Tell: complain},
		Began: func(pid int, run string) {
			note(fmt.Sprintf("run %s: watching process %d again; Ctrl-C ends that; gmemtop view --join-file "+
				"%s shows it", run, pid, console.ShellWord(join)))
		},
		Failed: func(err error) { complain(err.Error()) },
	})
	if failed > 0 {
		return fmt.Errorf("%d of %d commands were not watched to the end: run the same command again to "+
			"continue", failed, len(t.orphans))
	}
	return nil
}

// nothingToTakeOver says that no command is left for a join file, and for which other ones some are.
func nothingToTakeOver(join string, others []string) error {
	host, _ := os.Hostname()
	text := fmt.Sprintf("nothing to take over on %s: no command of a killed gmemtop run --join-file %s is "+
		"left", host, console.ShellWord(join))
	for i, path := range others {
		others[i] = console.ShellWord(path)
	}
	if len(others) > 0 {
		text += "; commands are left with --join-file " + strings.Join(others, ", ")
	}
	return errors.New(text)
}
