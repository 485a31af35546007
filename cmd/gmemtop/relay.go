package main

import (
	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/reach"
)

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
			return reach.Relay(cmd.Context(), run, role, a.Out)
		},
	}
	cmd.Flags().BoolVar(&operator, "operator", false, "log in with permission to capture")
	return cmd
}
