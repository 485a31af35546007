package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/managers"
)

// A command's help is a few paragraphs and examples that fit on one screen, then the flags. Long texts, and
// texts that several commands share, are topics of their own: gmemtop help managers.

// helpTexts gives the root command and its subcommands their topics and templates, and wraps their texts to
// the terminal.
func helpTexts(a *app, root *cobra.Command) {
	wide := helpWidth(a)
	root.SetUsageTemplate(strings.ReplaceAll(usageTemplate, "WIDTH", strconv.Itoa(wide)))
	root.SetHelpTemplate(helpTemplate)
	root.AddCommand(topics()...)
	for _, c := range append(root.Commands(), root) {
		c.Long = reflow(c.Long, wide)
	}
}

// topics returns commands that only explain; cobra lists them below the others.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "managers", Short: "The memory managers, by family", Long: managersTopic()},
		{Use: "hardware", Short: "The GPUs and networks that have names", Long: hardwareTopic()},
		{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesTopic},
	}
}

const exitCodesTopic = `Exit codes of every command but run, whose exit code is that of its command:

  0    done
  1    failure
  2    mistake in the command line
  3    found what was asked about: an out-of-memory, a condition of --fail-if, nothing that fits
  4    damaged input
  5    not supported here
  130  interrupted`

// hardwareTopic lists the GPUs and networks that have names.
func hardwareTopic() string {
	return "--hardware takes a name, the beginning of one (h100), or a file saved by calibration:\n\n  " +
		strings.Join(hardwareNames(), "\n  ") +
		"\n\n--network takes:\n\n  " + strings.Join(networkNames(), "\n  ")
}

// managersTopic lists the managers, each with what it does and where its method comes from.
func managersTopic() string {
	var b strings.Builder
	b.WriteString("--managers takes names separated by commas, with * for all that begin so, or all.\n")
	family := ""
	for _, m := range managers.All() {
		i := m.Info()
		if f := i.Family.String(); f != family {
			family = f
			fmt.Fprintf(&b, "\n  %s\n", f)
		}
		fmt.Fprintf(&b, "    %-17s %s\n", i.Name, i.Summary)
	}
	return b.String()
}

// helpWidth is the width of help texts: the terminal's, up to a width that reads well.
func helpWidth(a *app) int {
	const widest = 100
	if w := a.width(); w > 0 {
		return min(w, widest)
	}
	return widest
}

// reflow wraps paragraphs at w cells. An indented line stays a line of its own.
func reflow(text string, w int) string {
	var out []string
	var paragraph []string
	end := func() {
		if len(paragraph) > 0 {
			out, paragraph = append(out, ansi.Wrap(strings.Join(paragraph, " "), w, " ")), nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		out = append(out, hang(line, w))
	}
	end()
	return strings.Join(out, "\n")
}

// hang wraps an indented line. Continuation lines align with its last column, which follows two or more
// spaces.
func hang(line string, w int) string {
	at := len(line) - len(strings.TrimLeft(line, " "))
	if i := strings.LastIndex(line, "  "); i >= at {
		at = i + 2
	}
	room := w - at
	if len(line) <= w || room < 20 {
		return line
	}
	rest := ansi.Wrap(line[at:], room, " ")
	return line[:at] + strings.ReplaceAll(rest, "\n", "\n"+strings.Repeat(" ", at))
}

const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}{{if .Runnable}}{{.UsageString}}{{end}}`

const usageTemplate = `Usage
{{- if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasExample}}

Examples
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}

More help
{{- range $cmds}}{{if .IsAdditionalHelpTopicCommand}}
  gmemtop help {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags
{{.LocalFlags.FlagUsagesWrapped WIDTH | trimTrailingWhitespaces}}{{end}}
{{if .HasParent}}
All commands have --ascii, --color, --quiet, --units and --verbose: see gmemtop --help.
{{- else}}
Each flag can be set in the environment: GMEMTOP_UNITS=si for --units si.
{{- end}}
`
