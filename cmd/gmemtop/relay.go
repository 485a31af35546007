package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
)

// reachWait is how long a machine may take to say that a port is open.
const reachWait = 2 * time.Second

// newRelayCommand is the far end of view ssh://HOST/RUN and the like; users do not run it themselves.
func newRelayCommand(a *app) *cobra.Command {
	operator := false
	cmd := &cobra.Command{
		Use: "relay [RUN | slurm:JOB]", Hidden: true, GroupID: groupLive, Args: cobra.MaximumNArgs(1),
		Short: "Connect standard input and output with the hub of a run",
		RunE: func(cmd *cobra.Command, args []string) error {
			run, role := "", bus.Viewer
			if len(args) > 0 {
				run = args[0]
			}
			if operator {
				role = bus.Operator
			}
			return relay(cmd.Context(), a, run, role)
		},
	}
	cmd.Flags().BoolVar(&operator, "operator", false, "log in as one who gives orders")
	return cmd
}

func relay(ctx context.Context, a *app, run string, role bus.Role) error {
	job, slurm := strings.CutPrefix(run, "slurm:")
	path, err := fleet.Find(job)
	if err != nil && slurm {
		return relayOn(ctx, run, role, a.Out)
	}
	if err != nil {
		return err
	}
	join, err := bus.ReadJoin(path)
	if err != nil {
		return err
	}
	if slurm && !reachable(&join) {
		return relayOn(ctx, run, role, a.Out)
	}
	return bus.Relay(ctx, join, role, os.Stdin, a.Out)
}

// relayOn passes everything on to a node of a Slurm job.
func relayOn(ctx context.Context, place string, role bus.Role, out io.Writer) error {
	if role == bus.Operator {
		return errPlain(place)
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	w, err := (&reachFlags{far: own}).wayTo(place, role)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, w.first[0], w.first[1:]...)
	cmd.Env = append(os.Environ(), w.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
	return cmd.Run()
}
