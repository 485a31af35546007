package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
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
		Use: "pack PROBLEM.csv", GroupID: groupFiles, Args: exactArgs("PROBLEM.csv"),
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

func (c *packCommand) run(ctx context.Context, path string) error {
	o := c.search
	if c.capacity != "" {
		n, err := timeline.ParseBytes(c.capacity)
		if err != nil || n <= 0 {
			return usagef("--capacity %q is not a size: write 1048576 or 1MiB", c.capacity)
		}
		o.Capacity = n
	}
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	t, err := c.table(ctx, path)
	if err != nil {
		return err
	}
	t.Problem.Align = c.align
	bar := c.newProgress()
	o.Progress = func(best, bound int64) { bar.Tell("packing, bound over best", bound, best) }
	limited := ctx
	if c.limit > 0 {
		var stop context.CancelFunc
		limited, stop = context.WithTimeout(ctx, c.limit)
		defer stop()
	}
	res, err := pack.Exact(limited, &t.Problem, o)
	bar.Done()
	if err != nil && (ctx.Err() != nil || len(res.Offsets) != len(t.Problem.Items)) {
		return fmt.Errorf("pack %s: %w", load.Name(path), err)
	}
	if err := pack.Validate(&t.Problem, res.Offsets); err != nil {
		return fmt.Errorf("pack %s: the packing is wrong, which is a defect of this program: %w",
			load.Name(path), err)
	}
	u := c.flags.report.Units
	say := func(w io.Writer) {
		if o.Capacity > 0 {
			fmt.Fprintf(w, "capacity     %d\n", o.Capacity)
		}
		fmt.Fprintf(w, "peak         %d  (%s)\n", res.Top, u.Bytes(res.Top))
		fmt.Fprintf(w, "lower_bound  %d  (%s)\n", res.LowerBound, u.Bytes(res.LowerBound))
		fmt.Fprintf(w, "%s\n", res.Status)
	}
	t.Offsets = res.Offsets
	for i, id := range t.IDs {
		t.IDs[i] = report.Cell(id)
	}
	rows := func(w io.Writer) error { return pack.WriteCSV(w, t) }
	if c.flags.output == "" || c.flags.output == "-" { // the verdict goes to standard error
		if err := c.write(false, rows); err != nil {
			return err
		}
		if !c.flags.quiet {
			say(c.Err)
		}
	} else {
		if err := c.write(false, rows); err != nil {
			return err
		}
		say(c.Out)
	}
	if o.Capacity > 0 && res.Top > o.Capacity {
		return errFinding
	}
	return nil
}

// table reads a problem, plain or compressed.
func (c *packCommand) table(ctx context.Context, path string) (*pack.Table, error) {
	bar := c.newProgress()
	defer bar.Done()
	var t *pack.Table
	err := load.Plain(ctx, path, c.loadOptions(bar.Tell), func(r io.Reader) error {
		var err error
		t, err = pack.ReadCSV(r)
		return err
	})
	if errors.As(err, new(*pack.ParseError)) {
		return nil, fmt.Errorf("%s: %w: %w", load.Name(path), traces.ErrFormat, err)
	}
	if err != nil {
		return nil, err
	}
	if err := t.Problem.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", load.Name(path), traces.ErrFormat, err)
	}
	return t, nil
}
