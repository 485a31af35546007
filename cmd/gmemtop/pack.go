package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/input"
	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces/load"
)

// packCommand solves a storage-allocation problem.
type packCommand struct {
	*app
	capacity string
	limit    time.Duration
	align    int64
	search   pack.Options
}

func newPackCommand(a *app) *cobra.Command {
	c := packCommand{app: a}
	cmd := &cobra.Command{
		Use: "pack PROBLEM.csv", GroupID: groupFiles, Args: help.ExactArgs("PROBLEM.csv"),
		Short: "Solve a storage-allocation problem: an address for every buffer",
		Long: `Finds an address for every buffer of a storage-allocation problem (MiniMalloc's CSV:
id,lower,upper,size), so that buffers that are alive together never overlap, and writes the
rows with an offset column. It looks for the smallest total, or with --capacity for any
packing within that.

Exits with 3 if the capacity cannot be met.`,
		Example: "  gmemtop pack problem.csv -o solution.csv\n  gmemtop pack problem.csv --capacity " +
			"1048576 --limit 60s",
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	p := cmd.Flags()
	p.StringVar(&c.capacity, "capacity", "", "stay within this many bytes (default: as few as possible)")
	p.DurationVar(&c.limit, "limit", 0, "stop after this long with the best found (default none)")
	p.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "timeout" { // as MiniMalloc calls it
			name = "limit"
		}
		return pflag.NormalizedName(name)
	})
	p.Int64Var(&c.align, "align", 1, "round sizes and offsets up to this many bytes")
	p.Uint64Var(&c.search.Seed, "seed", 1, "seed of the search: same seed and work, same packing")
	p.Int64Var(&c.search.Work, "work", 0, "how much to search, in counted steps (default the packer's own)")
	c.flags.writing(cmd, insteadOfStdout)
	return cmd
}

// run packs the problem in a file.
func (c *packCommand) run(ctx context.Context, path string) error {
	if c.capacity != "" {
		n, err := timeline.ParseBytes(c.capacity)
		if err != nil || n <= 0 {
			return exit.Mistakef("--capacity %q is not a size: write 1048576 or 1MiB", c.capacity)
		}
		c.search.Capacity = n
	}
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	t, err := c.reader().Packing(ctx, path)
	if err != nil {
		return err
	}
	t.Problem.Align = c.align
	bar := c.newProgress()
	c.search.Progress = func(best, bound int64) { bar.Tell("packing, bound over best", bound, best) }
	res, err := input.Pack(ctx, &t.Problem, c.search, c.limit)
	bar.Done()
	if err != nil {
		return fmt.Errorf("pack %s: %w", load.Name(path), err)
	}
	t.Offsets = res.Offsets
	for i, id := range t.IDs {
		t.IDs[i] = report.Cell(id)
	}
	if err := c.write(func(w io.Writer) error { return pack.WriteCSV(w, t) }); err != nil {
		return err
	}
	if verdict := input.Verdict(res, c.search.Capacity, c.flags.report.Units); !isStdout(c.flags.output) {
		fmt.Fprint(c.Out, verdict)
	} else if !c.flags.quiet { // standard output has the rows
		fmt.Fprint(c.Err, verdict)
	}
	if c.search.Capacity > 0 && res.Top > c.search.Capacity {
		return errFinding
	}
	return nil
}
