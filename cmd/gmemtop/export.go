package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/figure"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/perfetto"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// exporter is one format of export: of the whole trace, of one device, or of several.
type exporter struct {
	name, extension, about string
	binary                 bool
	trace                  func(ctx context.Context, w io.Writer, t *traces.Trace) error
	device                 func(ctx context.Context, w io.Writer, d *timeline.Device, o figure.Options) error
	devices                func(ctx context.Context, w io.Writer, d []*timeline.Device, o figure.Options) error
}

// exporters are the formats in the order in which help lists them.
var exporters = []exporter{
	{name: "perfetto", extension: ".pftrace", about: "for ui.perfetto.dev", binary: true, trace: perfetto.Write},
	{name: "folded", extension: ".folded", about: "stacks that hold the peak, for flame graphs", device: figure.Folded},
	{name: "csv", extension: ".csv", about: "every allocation; --what events or stacks for those", device: figure.CSV},
	{name: "parquet", extension: ".parquet", about: "every allocation, for DuckDB, pandas and polars", binary: true, device: figure.Parquet},
	{name: "json", extension: ".json", about: "the stats and every allocation", device: figure.JSON},
	{name: "snapshot", extension: ".pickle", about: "for PyTorch's memory_viz", binary: true, trace: torchsnapshot.Write},
	{name: "gmt", extension: ".gmt", about: "the native file, an Apache Arrow stream", binary: true, trace: gmt.Write},
	{name: "svg", extension: ".svg", about: "usage by category and the peak, as a drawing", device: figure.SVG},
	{name: "png", extension: ".png", about: "the same as pixels", binary: true, device: figure.PNG},
	{name: "html", extension: ".html", about: "a page that needs no network and answers the mouse", devices: figure.HTML},
	{name: "markdown", extension: ".md", about: "the report for an issue or a pull request", device: figure.Markdown},
}

func exporterNames() []string {
	var names []string
	for _, e := range exporters {
		names = append(names, e.name)
	}
	return names
}

// chosenExporter finds the format by --format, else by the output's name.
func chosenExporter(format, output, what string) (exporter, error) {
	if format == "" {
		for _, e := range exporters {
			if strings.HasSuffix(output, e.extension) {
				format = e.name
				break
			}
		}
	}
	switch format {
	case "":
		return exporter{}, usageError{fmt.Errorf("--format is needed: one of %s", strings.Join(exporterNames(), ", "))}
	case "md":
		format = "markdown"
	}
	i := slices.IndexFunc(exporters, func(e exporter) bool { return e.name == format })
	if i < 0 {
		return exporter{}, usageError{fmt.Errorf("--format %q is none of %s", format, strings.Join(exporterNames(), ", "))}
	}
	e := exporters[i]
	switch {
	case what == "":
	case e.name != "csv":
		return exporter{}, usageError{fmt.Errorf("--what chooses the rows of csv and does not apply to %s", e.name)}
	case what == "events":
		e.device = figure.CSVEvents
	case what == "stacks":
		e.device = figure.CSVStacks
	case what != "allocations":
		return exporter{}, usageError{fmt.Errorf("--what %q is none of allocations, events, stacks", what)}
	}
	return e, nil
}

// exportCommand writes a trace in another format.
type exportCommand struct {
	*app
	format, what string
	redact       bool
}

func newExportCommand(a *app) *cobra.Command {
	c := exportCommand{app: a}
	var long strings.Builder
	long.WriteString("Writes a trace, or a picture of it, in a format that others read:\n\n")
	for _, e := range exporters {
		fmt.Fprintf(&long, "  %-9s %s\n", e.name, e.about)
	}
	long.WriteString("\n--redact replaces the user's paths, names, annotations and host by hashes; structure, sizes and times stay.")
	cmd := &cobra.Command{
		Use: "export FILE --format FORMAT -o OUT", GroupID: groupFiles, Args: exactArgs("FILE"), DisableFlagsInUseLine: true,
		Short: "Write a trace, or a picture of it, in a format that others read",
		Long:  long.String(),
		Example: "  gmemtop export snapshot.pickle -o memory.html\n" +
			"  gmemtop export snapshot.pickle --format folded | flamegraph.pl > memory.svg\n" +
			"  gmemtop export snapshot.pickle --format gmt --redact -o shareable.gmt",
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&c.format, "format", "", "format; without it the name of -o decides")
	cmd.Flags().StringVar(&c.what, "what", "", "rows of csv: allocations, events or stacks (default allocations)")
	cmd.Flags().BoolVar(&c.redact, "redact", false, "hash the user's paths, names, annotations and host")
	c.flags.reading(cmd)
	c.flags.window(cmd)
	cmd.Flags().IntVar(&c.flags.top, "top", 0, "how many call sites, modules and sizes to list")
	c.flags.writing(cmd)
	return cmd
}

func (c *exportCommand) run(ctx context.Context, path string) error {
	e, err := chosenExporter(c.format, c.flags.output, c.what)
	if err != nil {
		return err
	}
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	if e.binary && c.flags.output == "" && isTerminal(c.out) {
		return errTerminal
	}
	windowed := !c.flags.report.From.IsZero() || !c.flags.report.To.IsZero()
	if e.trace != nil && windowed {
		return usageError{fmt.Errorf("--from and --to do not apply to %s, which holds the whole trace", e.name)}
	}
	tr, readErr := c.trace(ctx, path)
	if tr == nil {
		return readErr
	}
	if c.redact {
		tr = traces.Redact(tr, nil)
	}
	if e.name == "snapshot" && len(tr.Ops)+len(tr.Accesses)+len(tr.Counters) > 0 {
		c.note("PyTorch's snapshots have no room for ops, accesses and counters: those of %s are left out", load.Name(path))
	}
	if e.trace != nil {
		return firstError(c.write(e.binary, func(w io.Writer) error { return e.trace(ctx, w, tr) }), readErr)
	}
	t, readErr := c.build(ctx, tr, readErr)
	if t == nil {
		return readErr
	}
	o := figure.Options{Options: c.flags.report}
	devices, err := o.Devices.Of(t)
	if err != nil {
		return selection(err)
	}
	if len(devices) == 0 {
		return firstError(readErr, fmt.Errorf("%s holds no memory of any device: %w", load.Name(path), traces.ErrUnsupported))
	}
	if e.devices != nil {
		return firstError(c.write(e.binary, func(w io.Writer) error { return e.devices(ctx, w, devices, o) }), readErr)
	}
	chosen := timeline.Timeline{Trace: t.Trace, Devices: devices}
	main := chosen.Main()
	if len(devices) > 1 {
		c.note("%s holds one device: %s is written, --device chooses another", e.name, report.DeviceName(main.Info))
	}
	return firstError(c.write(e.binary, func(w io.Writer) error { return e.device(ctx, w, main, o) }), readErr)
}
