package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/signals"
)

// newStandByCommand is the gmemtop that waits beside a gmemtop run --join-file, and takes its place if that
// is killed. People do not type it.
func newStandByCommand(a *app) *cobra.Command {
	var join, creds string
	cmd := &cobra.Command{
		Use: headless.StandByCommand + " --join-file FILE PID ...", Hidden: true, GroupID: groupLive,
		Short: "Take over if the gmemtop that watches a command is killed",
		RunE: func(cmd *cobra.Command, args []string) error {
			if join == "" || len(args) == 0 || console.IsTerminal(a.In) {
				return exit.Mistakef("this is a part of gmemtop run --join-file, which starts it")
			}
			pids := make([]int, len(args))
			for i, text := range args {
				var err error
				if pids[i], err = strconv.Atoi(text); err != nil {
					return exit.AsMistake(err)
				}
			}
			if killed, err := headless.AwaitDeath(a.In); err != nil || !killed {
				return err
			}
			signals.OutliveTerminal()
			ctx, stop := a.UntilSignal(cmd.Context())
			defer stop()
			return a.takeOver(join, creds).Stand(ctx, pids)
		},
	}
	cmd.Flags().StringVar(&join, "join-file", "", "the hub's `file`")
	addCredsFlag(cmd.Flags(), &creds)
	return cmd
}

// takeOver returns what takes over from a gmemtop that sent to the hub of a join file.
func (a *app) takeOver(join, creds string) *headless.TakeOver {
	return &headless.TakeOver{Where: reach.Where{JoinFile: join, Credentials: creds},
		Identity: fleet.Identify(a.Env), Note: a.note, Complain: a.complain, Stderr: a.Err,
		Program: a.program}
}
