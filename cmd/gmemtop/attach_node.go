package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/slurm"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
)

// newAttachNodeCommand is the part of attach slurm:JOB that runs on each node. People do not type it.
func newAttachNodeCommand(a *app) *cobra.Command {
	join := ""
	cmd := &cobra.Command{
		Use: "attach-node --join-file FILE", Hidden: true, GroupID: groupLive, Args: cobra.NoArgs,
		Short: "Attach to the ranks of a Slurm job on this node",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return attachNode(cmd.Context(), a, join)
		},
	}
	cmd.Flags().StringVar(&join, "join-file", "", "the hub's `file`; once it is gone, detach")
	return cmd
}

// attachNode attaches to this node's ranks until the join file is gone or a signal arrives.
func attachNode(ctx context.Context, a *app, join string) error {
	id := a.Env("SLURM_JOB_ID")
	if id == "" || join == "" {
		return exit.Mistakef("this is a part of gmemtop attach slurm:JOB, which starts it by srun")
	}
	ctx, stop := a.UntilSignal(ctx)
	defer stop()
	return slurm.AttachNode(ctx, slurm.NodeOptions{Job: id, JoinFile: join, Identity: fleet.Identify(a.Env),
		Tell: a.note})
}
