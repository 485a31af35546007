package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
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
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, output.Reason(err))
	}
	if !info.Mode().IsRegular() { // opening a named pipe would wait for a writer
		return exit.Mistakef("%s is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, output.Reason(err))
	}
	defer f.Close()
	var rep gmt.Report
	err = a.writeBinary(out, func(w io.Writer) error {
		rep, err = gmt.Repair(ctx, f, info.Size(), w)
		return err
	})
	head := make([]byte, 64)
	if n, _ := f.ReadAt(head, 0); errors.Is(err, traces.ErrFormat) && !gmt.Sniff(head[:n]) {
		return fmt.Errorf("%s: %w: this is not a gmemtop recording (.gmt); files of other formats need no "+
			"repair: gmemtop replay shows the intact part",
			path, traces.ErrFormat)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	a.notef("%s: %s", out, rep)
	return nil
}
