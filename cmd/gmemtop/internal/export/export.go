// Package export lists the formats that a trace, or a picture of it, can be exported to.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/figure"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/near"
	"github.com/gmemtop/gmemtop/traces/perfetto"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
	"github.com/gmemtop/gmemtop/tui"
)

// Format is one format, of the whole trace, of one device or of several. Exactly one of the functions is set.
type Format struct {
	Name, Extension, About string
	// Title is the name that people know the format by.
	Title string
	// Binary means that the bytes are no use on a terminal.
	Binary bool
	// Moment means that the format can show what is allocated at one moment.
	Moment  bool
	Trace   func(ctx context.Context, w io.Writer, t *traces.Trace) error
	Device  func(ctx context.Context, w io.Writer, d *timeline.Device, o figure.Options) error
	Devices func(ctx context.Context, w io.Writer, d []*timeline.Device, o figure.Options) error
}

// Formats lists all formats in help's order.
var Formats = []Format{
	{Name: "perfetto", Title: "Perfetto", Extension: ".pftrace", About: "for ui.perfetto.dev", Binary: true,
		Trace: perfetto.Write},
	{Name: "folded", Title: "folded stacks", Extension: ".folded",
		About: "the peak, for flame graphs", Moment: true,
		Device: figure.Folded},
	{Name: "pprof", Title: "pprof", Extension: ".pb.gz",
		About: "the peak and all allocations, for go tool pprof", Binary: true,
		Device: figure.Pprof},
	{Name: "csv", Title: "CSV", Extension: ".csv", About: "every allocation, for spreadsheets",
		Device: figure.CSV},
	{Name: "parquet", Title: "Parquet", Extension: ".parquet",
		About:  "every allocation, for DuckDB and pandas",
		Binary: true, Device: figure.Parquet},
	{Name: "json", Title: "JSON", Extension: ".json",
		About: "the stats and every allocation", Device: figure.JSON},
	{Name: "snapshot", Title: "PyTorch snapshot", Extension: ".pickle",
		About: "for PyTorch's memory_viz", Binary: true,
		Trace: torchsnapshot.Write},
	{Name: "gmt", Title: "gmemtop recording", Extension: ".gmt",
		About: "the native file, in Apache Arrow", Binary: true,
		Trace: gmt.Write},
	{Name: "svg", Title: "SVG", Extension: ".svg",
		About: "usage by category and the peak, as a drawing", Moment: true,
		Device: figure.SVG},
	{Name: "png", Title: "PNG", Extension: ".png",
		About: "the same as pixels", Binary: true, Moment: true, Device: figure.PNG},
	{Name: "html", Title: "HTML", Extension: ".html",
		About:   "a page that needs no network",
		Devices: figure.HTML},
	{Name: "markdown", Title: "Markdown", Extension: ".md",
		About:  "the report for an issue or a pull request",
		Device: figure.Markdown},
}

// Names returns the formats' names.
func Names() []string {
	var names []string
	for _, f := range Formats {
		names = append(names, f.Name)
	}
	return names
}

// Choose returns the named format, or else the one that matches the output's extension. what chooses the rows
// of csv, "" for allocations.
func Choose(format, output, what string) (Format, error) {
	if format == "" {
		for _, f := range Formats {
			if strings.HasSuffix(output, f.Extension) {
				format = f.Name
				break
			}
		}
	}
	switch format {
	case "":
		if extension := filepath.Ext(output); extension != "" {
			return Format{}, fmt.Errorf("no format is written to %s files: choose one of %s with --format",
				extension, strings.Join(Names(), ", "))
		}
		return Format{}, fmt.Errorf("choose --format: one of %s; or -o with an ending such as .html or .svg",
			strings.Join(Names(), ", "))
	case "md":
		format = "markdown"
	}
	i := slices.IndexFunc(Formats, func(f Format) bool { return f.Name == format })
	if i < 0 {
		return Format{},
			fmt.Errorf("--format %q is not one of %s%s", format, strings.Join(Names(), ", "),
				near.Hint(format, Names()))
	}
	f := Formats[i]
	switch {
	case what == "":
	case f.Name != "csv":
		return Format{}, fmt.Errorf("--what chooses the rows of csv and does not apply to %s", f.Name)
	case what == "events":
		f.Device = figure.CSVEvents
	case what == "stacks":
		f.Device = figure.CSVStacks
	case what != "allocations":
		return Format{}, fmt.Errorf("--what %q is not one of allocations, events, stacks", what)
	}
	return f, nil
}

// Check refuses a window and a moment that the format cannot show. The error is a mistake.
func (f *Format) Check(o *report.Options) error {
	switch {
	case f.Trace != nil && (!o.From.IsZero() || !o.To.IsZero()):
		return exit.Mistakef("--from and --to do not apply to %s, which holds the whole trace", f.Name)
	case !f.Moment && !o.At.IsZero():
		return exit.Mistakef("--at draws one moment and does not apply to %s: choose svg, png or folded",
			f.Name)
	}
	return nil
}

// LeavesOut reports whether a trace has something that the format has no room for.
func (f *Format) LeavesOut(t *traces.Trace) bool {
	return f.Name == "snapshot" && len(t.Ops)+len(t.Accesses)+len(t.Counters) > 0
}

// Of returns the chosen devices of a timeline. If the format holds fewer of them, the note says which it is.
func (f *Format) Of(t *timeline.Timeline, devices report.Devices) (chosen *timeline.Timeline, note string,
	err error) {
	list, err := devices.Of(t)
	if err != nil {
		return nil, "", err
	}
	chosen = &timeline.Timeline{Trace: t.Trace, Devices: list}
	if len(list) > 1 && f.Device != nil {
		note = fmt.Sprintf("%s holds one device: writing %s; --device chooses another", f.Name,
			report.DeviceName(chosen.Main().Info))
	}
	return chosen, note, nil
}

// Write writes what the format holds of a timeline: its whole trace, all of its devices, or d alone, which is
// nil if there is no device. Errors are the writer's, or say that the format needs a device.
func (f *Format) Write(ctx context.Context, w io.Writer, t *timeline.Timeline, d *timeline.Device,
	o figure.Options) error {
	switch {
	case f.Trace != nil:
		return f.Trace(ctx, w, t.Trace)
	case d == nil:
		return errors.New("this trace has no device")
	case f.Devices != nil:
		return f.Devices(ctx, w, t.Devices, o)
	}
	return f.Device(ctx, w, d, o)
}

// ForScreen returns the formats for the screen.
func ForScreen(units timeline.Units) []tui.Exporter {
	o := figure.Options{Options: report.Options{Units: units}}
	var out []tui.Exporter
	for _, f := range Formats {
		e := tui.Exporter{Name: f.Title + ": " + f.About, Extension: f.Extension,
			Write: func(ctx context.Context, w io.Writer, t *timeline.Timeline, d *timeline.Device) error {
				return f.Write(ctx, w, t, d, o)
			}}
		if f.Moment {
			e.Moment = f.atMoment(o)
		}
		out = append(out, e)
	}
	return out
}

// atMoment returns what checks the name of a moment, as in --at, and writes it.
func (f *Format) atMoment(o figure.Options) func(*timeline.Device, string) (
	func(context.Context, io.Writer) error, error) {
	return func(d *timeline.Device, at string) (func(context.Context, io.Writer) error, error) {
		o := o // each name has its own
		var err error
		if o.At, err = report.ParseMoment(at); err != nil || o.At.IsZero() {
			return nil, errors.New("name a moment: peak, end, 1.5s, it3 or 1200")
		}
		whole, err := report.Resolve(d, report.Position{}, report.Position{})
		if err != nil {
			return nil, err
		}
		if _, err := o.At.In(d, whole); err != nil {
			return nil, err
		}
		return func(ctx context.Context, w io.Writer) error { return f.Device(ctx, w, d, o) }, nil
	}
}
