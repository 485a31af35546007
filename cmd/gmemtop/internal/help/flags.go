package help

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/timeline/report"
)

// rarely is the annotation of a rare flag.
const rarely = "gmemtop_rarely"

// Rare marks flags that few people need: only the full help prints them.
func Rare(p *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if f := p.Lookup(name); f != nil {
			f.Annotations = map[string][]string{rarely: nil}
		}
	}
}

// ShownFlags returns the flags that a command's help prints.
func ShownFlags(c *cobra.Command, all bool) []*pflag.Flag {
	var list []*pflag.Flag
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_, seldom := f.Annotations[rarely]
		if !f.Hidden && (all || !seldom) {
			list = append(list, f)
		}
	})
	return list
}

// flagTable lays flags out in two columns.
func flagTable(list []*pflag.Flag, wide int) string {
	const most = 26 // a longer flag gets a line of its own
	left, col := make([]string, len(list)), 0
	for i, f := range list {
		left[i] = "      --" + f.Name
		if f.Shorthand != "" {
			left[i] = "  -" + f.Shorthand + ", --" + f.Name
		}
		left[i] += valueOf(f)
		if len(left[i]) <= most {
			col = max(col, len(left[i]))
		}
	}
	col += 3
	var b strings.Builder
	indent := strings.Repeat(" ", col)
	for i, f := range list {
		text := strings.ReplaceAll(report.Wrap(flagUsage(f), wide-col), "\n", "\n"+indent)
		gap := "\n" + indent
		if len(left[i]) <= most {
			gap = strings.Repeat(" ", col-len(left[i]))
		}
		fmt.Fprintf(&b, "%s%s%s\n", left[i], gap, text)
	}
	return b.String()
}

// flagUsage returns what a flag does, with its default.
func flagUsage(f *pflag.Flag) string {
	text := strings.ReplaceAll(f.Usage, "`", "")
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
		return text
	}
	value := f.DefValue
	for _, zero := range []string{"m0s", "h0m"} { // of durations: 1m0s is 1m, 720h0m0s is 720h
		if strings.HasSuffix(value, zero) {
			value = value[:len(value)-2]
		}
	}
	return fmt.Sprintf("%s (default %s)", text, value)
}

// valueNames are the names of flags' values where the usage has none between backquotes.
var valueNames = map[string]string{
	"alloc-conf": "SETTINGS", "allocator": "model|real", "budget": "SIZE", "capacity": "BYTES",
	"align": "BYTES",
	"color": "WHEN", "depth": "KIND", "device": "DEVICES", "device-margin": "SIZE", "emit": "FORMAT",
	"at": "MOMENT", "format": "FORMAT", "from": "POSITION", "gpu-report": "FILE", "iteration": "N",
	"keep":    "FOLDER",
	"manager": "NAME", "managers": "NAMES", "margin": "SIZE", "most-overhead": "SHARE", "output": "FILE",
	"outside": "SIZE", "plan": "FILE", "probes": "KIND", "python": "PROGRAM", "results": "same|any",
	"target": "TARGET",
	"theme":  "NAME", "to": "POSITION", "units": "UNITS", "until-planned": "HOW", "what": "ROWS",
}

// valueOf returns what help texts put behind a flag's name for its value.
func valueOf(f *pflag.Flag) string {
	switch name := ValueName(f); {
	case name == "":
		return ""
	case f.NoOptDefVal != "":
		return "[=" + name + "]"
	default:
		return " " + name
	}
}

// ValueName returns the name that help texts give to a flag's value, "" for a flag that needs none.
func ValueName(f *pflag.Flag) string {
	if _, rest, ok := strings.Cut(f.Usage, "`"); ok {
		name, _, _ := strings.Cut(rest, "`")
		return strings.ToUpper(name)
	}
	switch kind := f.Value.Type(); kind {
	case "bool":
		return ""
	case "duration":
		return "DURATION"
	case "int", "int64", "uint64", "float64":
		return "N"
	default:
		if name, ok := valueNames[f.Name]; ok {
			return name
		}
		return kind
	}
}

// ofEnvironment annotates a flag that was not typed but set by its environment variable.
const ofEnvironment = "environment"

// FromEnvironment sets each flag that the command line left unset from its environment variable: GMEMTOP_ and
// its name in capitals.
func FromEnvironment(c *cobra.Command, env func(string) string) error {
	var first error
	c.Flags().VisitAll(func(flag *pflag.Flag) {
		name := "GMEMTOP_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		v := env(name)
		asks := strings.HasPrefix(flag.Name, "help") || flag.Name == "version"
		if v == "" || flag.Changed || asks || first != nil {
			return
		}
		if err := c.Flags().Set(flag.Name, v); err != nil {
			first = fmt.Errorf("environment variable %s=%q: %w", name, v, errors.Unwrap(err))
			if errors.Unwrap(err) == nil {
				first = fmt.Errorf("environment variable %s=%q: %w", name, v, err)
			}
			return
		}
		_ = c.Flags().SetAnnotation(flag.Name, ofEnvironment, nil) // the flag exists
	})
	return first
}

// Besides returns the first of a command's own flags that was typed and is not in the list, "" if there is
// none.
func Besides(cmd *cobra.Command, known ...string) (name string) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_, untyped := f.Annotations[ofEnvironment]
		if name == "" && f.Changed && !untyped && !slices.Contains(known, f.Name) {
			name = f.Name
		}
	})
	return name
}
