package headless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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
	Where    reach.Where
	Identity fleet.Identity
	// Note and Complain say what happens. Stderr is where a stand-by says it.
	Note, Complain func(text string)
	Stderr         *os.File
	// Program is the path of gmemtop, for the stand-by; without it there is none.
	Program string

	orphans  []pytorch.Orphan
	standsBy bool // it takes over by itself, as a StandBy
}

// Find finds the commands that are left, of those with the given process numbers if there are any. The error
// says so if there are none.
func (t *TakeOver) Find(pids ...int) error {
	orphans, others, err := fleet.Orphans(t.Where.JoinFile)
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		orphans = slices.DeleteFunc(orphans, func(o pytorch.Orphan) bool {
			return !slices.Contains(pids, o.PID)
		})
	}
	if len(orphans) == 0 {
		return nothingToTakeOver(t.Where.JoinFile, others)
	}
	t.orphans = orphans
	return nil
}

// Run watches the commands until they have ended or ctx is done; then the agents stay, as they did before.
func (t *TakeOver) Run(ctx context.Context) error {
	failed, err := t.run(ctx)
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d commands were not watched to the end: run the same command again to "+
			"continue", failed, len(t.orphans))
	}
	return err
}

// run does as Run, and returns how many commands were not watched to the end.
func (t *TakeOver) run(ctx context.Context) (failed int, err error) {
	hub, leave, err := t.Where.Open(ctx, "attach", bus.Viewer)
	if err != nil {
		return 0, err
	}
	defer leave()
	pids := make([]int, len(t.orphans))
	for i, o := range t.orphans {
		pids[i] = o.PID
	}
	defer BeginStandBy(t.Program, t.Where, pids, t.Stderr, t.Complain)()
	return fleet.TakeOver(ctx, t.orphans, fleet.TakeOverOptions{
		Hub: hub,
		Node: fleet.NodeOptions{Identity: t.Identity, Join: t.Where.JoinFile,
			Credentials: t.Where.Credentials, Tell: t.Complain},
		Began:  t.began,
		Failed: func(err error) { t.Complain(err.Error()) },
	}), nil
}

// began says that a command is watched again.
func (t *TakeOver) began(pid int, run string) {
	again := fmt.Sprintf("watching process %d again; Ctrl-C ends that", pid)
	if t.standsBy {
		again = fmt.Sprintf("the gmemtop that watched process %d was killed; watching it again", pid)
	}
	t.Note(fmt.Sprintf("run %s: %s; gmemtop view --join-file %s shows it", run, again,
		console.ShellWord(t.Where.JoinFile)))
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
