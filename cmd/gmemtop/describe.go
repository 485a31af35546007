package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/traces/described"
)

func newDescribeCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "describe -o describe.py", GroupID: groupFiles, Args: cobra.NoArgs, DisableFlagsInUseLine: true,
		Short: "Write a recorder of whole steps, for your script to import",
		Long: `Writes describe.py, a single file that needs only torch. A training script that imports it
records two steps op by op: which op reads and writes which memory, in which module and phase,
and how long it takes. Plans that swap or recompute need such a recording. The first lines of
the file say how to use it.`,
		Example: "  gmemtop describe -o describe.py\n  gmemtop compare step.jsonl --budget 12GiB",
		RunE: func(*cobra.Command, []string) error {
			err := a.write(func(w io.Writer) error {
				_, err := w.Write(described.Recorder)
				return err
			})
			if file := a.flags.output; err == nil && !isStdout(file) {
				a.notef("%s: its first lines show what to add to the training script", file)
			}
			return err
		},
	}
	a.flags.writing(c, insteadOfStdout)
	return c
}
