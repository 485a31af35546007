package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/export"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// flags are the values of the flags that commands share.
type flags struct {
	output, device, from, to, at, units, theme, color    string
	format                                               string // text, markdown or json, "" for text
	force, quiet, json, ascii, noMouse, noLinks, noCache bool
	verbose, helpAll                                     bool
	top                                                  int
	report                                               report.Options // the result of check on the others
}

// persistent adds the flags that every command has.
func (f *flags) persistent(c *cobra.Command) {
	p := c.PersistentFlags()
	p.SortFlags = false
	p.BoolVarP(&f.quiet, "quiet", "q", false, "print only the answer and errors")
	p.BoolVarP(&f.verbose, "verbose", "v", false, "print more about what is being done")
	p.StringVar(&f.color, "color", "auto", "colours: auto, always or never")
	p.StringVar(&f.units, "units", "iec", "sizes in iec (GiB), si (GB) or bytes")
	p.BoolVar(&f.ascii, "ascii", false, "use ASCII characters only")
}

// reading adds the flags of commands that read a trace.
func (f *flags) reading(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.device, "device", "",
		"devices to use, separated by commas: numbers (0,1), cuda, cpu or host")
	p.BoolVar(&f.noCache, "no-cache", false, "do not use or keep decoded copies of large traces")
	help.Rare(p, "no-cache")
}

// window adds --from and --to.
func (f *flags) window(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.from, "from", "", "begin at a time (1.5s), an iteration (it3) or an event index (1200)")
	p.StringVar(&f.to, "to", "", "end before a time, an iteration or an event index")
}

// reporting adds the flags of commands that print a report.
func (f *flags) reporting(c *cobra.Command) {
	p := c.Flags()
	p.BoolVar(&f.json, "json", false,
		"print JSON (schema_version 2), sizes in bytes and times in nanoseconds")
	f.listing(c)
	help.Rare(p, "top")
	f.writing(c, insteadOfStdout)
}

// listing adds --top to a command whose output has lists.
func (f *flags) listing(c *cobra.Command) {
	c.Flags().IntVar(&f.top, "top", 0, "how many call sites, modules and sizes to list")
}

// formatted adds --format to a command that prints a report.
func (f *flags) formatted(c *cobra.Command, usage string) {
	c.Flags().StringVar(&f.format, "format", "text", usage)
}

// insteadOfStdout describes -o of commands that print to standard output without it.
const insteadOfStdout = "write to this file instead of standard output"

// writing adds the flags of commands that write a file; what says what goes to it.
func (f *flags) writing(c *cobra.Command, what string) {
	c.Flags().StringVarP(&f.output, "output", "o", "", what)
	f.overwriting(c)
}

// overwriting adds --force.
func (f *flags) overwriting(c *cobra.Command) {
	c.Flags().BoolVarP(&f.force, "force", "f", false, "overwrite an existing file")
}

// screen adds the flags of commands that open the screen.
func (f *flags) screen(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.theme, "theme", "auto", "colours of the screen: auto, "+strings.Join(theme.Names, ", "))
	p.BoolVar(&f.noMouse, "no-mouse", false, "leave the mouse to the terminal")
	p.BoolVar(&f.noLinks, "no-links", false,
		"do not link source lines, for terminals that show links wrongly")
	help.Rare(p, "theme", "no-mouse", "no-links")
}

// The values of flags that name one of a few words.
var (
	unitNames = []string{"iec", "si", "bytes"}
	colors    = []string{"auto", "always", "never"}
	themes    = append([]string{"auto"}, theme.Names...)
	formats   = []string{"text", "markdown", "json"} // of a report
)

// flagValues are what the shell completes flags with.
var flagValues = map[string][]string{
	"units": unitNames, "color": colors, "theme": themes, "what": {"allocations", "events", "stacks"},
	"device": {"cuda", "cpu", "host", "0"}, "format": formats, "export format": export.Names(),
}

// check parses the flags that have their own syntax.
func (f *flags) check() error {
	o := report.Options{Top: f.top, ASCII: f.ascii}
	switch strings.ToLower(f.units) {
	case "iec":
		o.Units = timeline.IEC
	case "si":
		o.Units = timeline.SI
	case "bytes", "b":
		o.Units = timeline.Raw
	default:
		return help.OneOf("--units", f.units, unitNames)
	}
	err := cmp.Or(help.OneOf("--color", f.color, colors),
		help.OneOf("--theme", cmp.Or(f.theme, "auto"), themes), help.OneOf("--format", f.format, formats))
	if err != nil {
		return err
	}
	f.json = f.json || f.format == "json"
	if f.top < 0 {
		return fmt.Errorf("--top %d is below 0", f.top)
	}
	if o.Devices, err = report.ParseDevices(f.device); err != nil {
		return err
	}
	if o.From, err = report.ParsePosition(f.from); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if o.To, err = report.ParsePosition(f.to); err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	if f.at != "" {
		if o.At, err = report.ParseMoment(f.at); err != nil {
			return fmt.Errorf("--at: %w", err)
		}
	}
	f.report = o
	return nil
}
