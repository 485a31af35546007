package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/input"
)

func newRepairCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "repair FILE.gmt", GroupID: groupFiles, Args: help.ExactArgs("FILE.gmt"),
		Short: "Make a truncated recording readable again",
		Long: `Copies the intact parts of a recording and says what is lost. Without -o the copy is
FILE.repaired.gmt, next to FILE, which never changes.`,
		Example: "  gmemtop repair run.gmt -o run-whole.gmt",
		RunE:    func(cmd *cobra.Command, args []string) error { return repair(cmd.Context(), a, args[0]) },
	}
	a.flags.writing(c, "write to this file (default FILE.repaired.gmt)")
	return c
}

func repair(ctx context.Context, a *app, path string) error {
	out := a.flags.output
	if out == "" {
		out = strings.TrimSuffix(path, ".gmt") + ".repaired.gmt"
	}
	if err := a.mayWrite(out); err != nil {
		return err
	}
	rep, err := input.Repair(ctx, path, func(body func(w io.Writer) error) error {
		return a.writeBinary(out, body)
	})
	if err != nil {
		return err
	}
	a.notef("%s: %s", out, rep)
	return nil
}
