package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/export"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/timeline/figure"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

// exportCommand writes a trace in another format.
type exportCommand struct {
	*app
	format, what string
	redact       bool
}

func newExportCommand(a *app) *cobra.Command {
	c := exportCommand{app: a}
	var long strings.Builder
	long.WriteString("Writes a trace, or a picture of it, in a format for other tools:\n\n")
	for _, e := range export.Formats {
		fmt.Fprintf(&long, "  %-9s %s\n", e.Name, e.About)
	}
	long.WriteString("\n--redact replaces the user's paths, names, annotations and host by hashes; " +
		"structure, sizes and times stay.")
	cmd := &cobra.Command{
		Use: "export FILE --format FORMAT -o OUT", GroupID: groupFiles, Args: help.ExactArgs("FILE"),
		DisableFlagsInUseLine: true,
		Short:                 "Write a trace, or a picture of it, in a format for other tools",
		Long:                  long.String(),
		Example: "  gmemtop export snapshot.pickle -o memory.html\n" +
			"  gmemtop export snapshot.pickle --at peak -o peak.png\n" +
			"  gmemtop export snapshot.pickle --format folded | flamegraph.pl > memory.svg\n" +
			"  gmemtop export snapshot.pickle --format gmt --redact -o shareable.gmt",
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&c.format, "format", "", "a format from the list above (default by -o)")
	cmd.Flags().StringVar(&c.what, "what", "",
		"rows of csv: allocations, events or stacks (default allocations)")
	cmd.Flags().BoolVar(&c.redact, "redact", false, "hash the user's paths, names, annotations and host")
	c.flags.reading(cmd)
	c.flags.window(cmd)
	cmd.Flags().StringVar(&c.flags.at, "at", "",
		"svg, png and folded: show one moment: peak, end, a time (1.5s), the start of an iteration (it3) "+
			"or an event index")
	c.flags.listing(cmd)
	c.flags.writing(cmd, insteadOfStdout)
	return cmd
}

func (c *exportCommand) run(ctx context.Context, path string) error {
	e, err := export.Choose(c.format, c.flags.output, c.what)
	if err != nil {
		return exit.AsMistake(err)
	}
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	if e.Binary && c.flags.output == "" && console.IsTerminal(c.Out) {
		return errTerminal
	}
	if err := e.Check(&c.flags.report); err != nil {
		return err
	}
	tr, readErr := c.reader().Trace(ctx, path)
	if tr == nil {
		return readErr
	}
	if c.redact {
		tr = traces.Redact(tr, nil)
	}
	if e.LeavesOut(tr) {
		c.notef("PyTorch's snapshots cannot hold ops, accesses and counters: those of %s are left out",
			load.Name(path))
	}
	if e.Trace != nil {
		return cmp.Or(c.writeAs(&e, func(w io.Writer) error { return e.Trace(ctx, w, tr) }), readErr)
	}
	t, readErr := c.reader().Build(ctx, tr, readErr)
	if t == nil {
		return readErr
	}
	o := figure.Options{Options: c.flags.report}
	chosen, note, err := e.Of(t, o.Devices)
	switch {
	case err != nil:
		return selection(err)
	case len(chosen.Devices) == 0:
		return cmp.Or[error](readErr,
			&traces.UnsupportedError{Reason: load.Name(path) + " has no memory data for any device"})
	case note != "":
		c.note(note)
	}
	return cmp.Or(c.writeAs(&e, func(w io.Writer) error { return e.Write(ctx, w, chosen, chosen.Main(), o) }),
		readErr)
}

// writeAs writes the output in a format.
func (c *exportCommand) writeAs(e *export.Format, body func(w io.Writer) error) error {
	if e.Binary {
		return c.writeBinary(c.flags.output, body)
	}
	return c.write(body)
}
