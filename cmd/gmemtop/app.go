package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/progress"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces/load"
)

// How commands are made
//
// app is what all of them share: streams, environment, the flags that many have, how a report is written and
// what is said beside it. A command is a type of its own, over the app, that has its own flags as fields and
// its steps as methods, the first of them run; or only a function, where it has neither. What several have in
// common stands between: planning under compare and plan, watcher under attach, run and record.
// newRootCommand lists them all.
//
// What lives for as long as a training is watched knows neither app nor flags: capture/job and replay/crew
// below, and here the feeds that show it.

// app is one invocation: its streams, its environment and the flags that many commands share.
type app struct {
	in       *os.File
	out, err *os.File
	environ  []string
	flags    flags
	started  bool // a command's own work began; errors before it are mistakes in the command line
	files    output.Files
	onSignal atomic.Pointer[func(os.Signal)] // what a signal does instead of ending the program, nil for that
}

func newApp(in, out, err *os.File, environ []string) *app {
	return &app{in: in, out: out, err: err, environ: environ}
}

// signals hands signals to f from now on: the command ends by itself, in its own time.
func (a *app) signals(f func(os.Signal)) { a.onSignal.Store(&f) }

// env returns the value of an environment variable, "" where it is not set.
func (a *app) env(name string) string {
	for i := len(a.environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(a.environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

func isTerminal(f *os.File) bool { return term.IsTerminal(f.Fd()) }

// execute runs the command that args name, reports its error in one line, and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil || ctx.Err() == nil {
		load.Wait(cacheGrace)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Canceled // whatever failed did so because it was told to stop
	}
	if err != nil && !a.started {
		err = usageError{err}
	}
	code := exitCode(err)
	switch {
	case code == exitOK, code == exitFinding, code == exitInterrupted, errors.As(err, new(childError)):
	case code == exitUsage:
		fmt.Fprintf(a.err, "gmemtop: %s\n", parserTalk.ReplaceAllString(oneLine(err), ""))
		if !strings.Contains(err.Error(), "--help") {
			fmt.Fprintf(a.err, "see gmemtop %s--help\n", commandPath(root, args))
		}
	default:
		fmt.Fprintf(a.err, "gmemtop: %s\n", oneLine(err))
	}
	return code
}

// parserTalk is what strconv says of a flag's value before it comes to the point.
var parserTalk = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": `)

// oneLine keeps what came from a file from driving the terminal.
func oneLine(err error) string { return report.Printable(strings.TrimSpace(err.Error())) }

func commandPath(root *cobra.Command, args []string) string {
	c, _, err := root.Find(args)
	if err != nil || c == nil || c == root {
		return ""
	}
	return c.Name() + " "
}

const (
	groupLook    = "look"
	groupLive    = "live"
	groupReport  = "report"
	groupFiles   = "files"
	groupMachine = "machine"
)

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "gmemtop",
		Short: "Shows where GPU memory goes during training",
		Long: "gmemtop shows where GPU memory goes during training: when the peak was, what held it, and " +
			"what would bring it down. It watches trainings " +
			"that run, and reads PyTorch memory snapshots, torch.profiler traces and more, recognised by " +
			"content.\n\n" +
			"Without a command it shows this machine's GPUs and who uses them; where there is none, the " +
			"embedded sample.",
		Example: "  gmemtop run -- python train.py             watch a training from its first step\n" +
			"  gmemtop attach 4242                        watch one that runs already\n" +
			"  gmemtop replay snapshot.pickle             look at a trace in the terminal\n" +
			"  gmemtop stats snapshot.pickle              the answer on one screen\n" +
			"  gmemtop oom snapshot.pickle                why it ran out of memory\n" +
			"  gmemtop diff old.pickle new.pickle         what changed; with --fail-if a gate in CI\n" +
			"  gmemtop compare trace.gmt --budget 12GiB   what each memory manager would make of it\n" +
			"  gmemtop doctor                             what works on this machine, and what would fix " +
			"the rest",
		SilenceErrors: true, SilenceUsage: true,
		Args: rootArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.flags.fromEnvironment(cmd, a.env); err != nil {
				return err
			}
			if err := a.flags.check(); err != nil {
				return err
			}
			a.started = true
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return start(cmd.Context(), a) },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	wide := helpWidth(a)
	root.SetUsageTemplate(strings.ReplaceAll(usageTemplate, "WIDTH", strconv.Itoa(wide)))
	root.SetHelpTemplate(helpTemplate)
	root.AddGroup(&cobra.Group{ID: groupLook, Title: "Look"},
		&cobra.Group{ID: groupLive, Title: "Watch a training"}, &cobra.Group{ID: groupReport,
			Title: "Report"},
		&cobra.Group{ID: groupFiles, Title: "Files"}, &cobra.Group{ID: groupMachine, Title: "This program"})
	a.flags.persistent(root)
	a.flags.screen(root)
	root.AddCommand(
		newAttachCommand(a), newRunCommand(a), newRecordCommand(a), newEstimateCommand(a),
		newReplayCommand(a),
		newStatsCommand(a), newOOMCommand(a), newDiffCommand(a), newCompareCommand(a), newPlanCommand(a),
		newPackCommand(a), newDescribeCommand(a), newExportCommand(a), newRepairCommand(a),
		newDoctorCommand(a), newVersionCommand(a), newCompletionCommand(a, root), newManCommand(a, root),
	)
	for _, c := range append(root.Commands(), root) {
		c.Long = reflow(c.Long, wide)
	}
	if err := completions(root); err != nil {
		panic(err) // a flag was named twice: a mistake in this program that every run shows
	}
	return root
}

// start shows the machine where it has a GPU, the embedded sample otherwise.
func start(ctx context.Context, a *app) error {
	if a.hasScreen() {
		f, closing := feed.OpenMachine()
		defer closing()
		if f.HasDevices() {
			return (&watcher{app: a}).showMachine(ctx, f)
		}
	}
	return (&replayCommand{app: a}).run(ctx)
}

// rootArgs explains a first word that is no command; a file's name is the likeliest.
func rootArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if _, err := os.Stat(args[0]); err == nil {
		return fmt.Errorf("%q is a file, not a command: gmemtop replay %s shows it", args[0], args[0])
	}
	if _, err := strconv.ParseUint(args[0], 10, 32); err == nil {
		return fmt.Errorf("%q is a number, not a command: gmemtop attach %s watches the process of "+
			"that number", args[0], args[0])
	}
	cmd.SuggestionsMinimumDistance = 2 // letters that may be wrong
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %q: is %s meant?", args[0], strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q, and no file of that name is here", args[0])
}

// exactArgs asks for n arguments by name.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			err := fmt.Errorf("%s needs %s", cmd.Name(), strings.Join(names, " and "))
			if len(args) > 0 {
				err = fmt.Errorf("%w, and only %q came", err, args[0])
			}
			return err
		case len(args) > len(names):
			return fmt.Errorf("%s takes %s and nothing more, but %q came too", cmd.Name(),
				strings.Join(names, " and "), args[len(names)])
		}
		return nil
	}
}

// helpWidth is how wide help is: as the terminal is, and no wider than is well read.
func helpWidth(a *app) int {
	const widest = 100
	if w := a.width(); w > 0 {
		return min(w, widest)
	}
	return widest
}

// reflow breaks text into lines of at most w cells. A line of its own ends with a full stop or is empty.
func reflow(text string, w int) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if n := len(out); n > 0 && out[n-1] != "" && !strings.HasSuffix(out[n-1], ".") {
			out[n-1] += " " + line
			continue
		}
		out = append(out, line)
	}
	return ansi.Wrap(strings.Join(out, "\n"), w, " ")
}

// complain tells the user what stands in the way, however quiet they want it.
func (a *app) complain(format string, args ...any) {
	fmt.Fprintf(a.err, "gmemtop: %s\n", report.Printable(fmt.Sprintf(format, args...)))
}

// note tells the user something on standard error, unless told to be quiet.
func (a *app) note(format string, args ...any) {
	if !a.flags.quiet {
		fmt.Fprintf(a.err, "gmemtop: %s\n", report.Printable(fmt.Sprintf(format, args...)))
	}
}

// newProgress returns a line that says how far work is, where standard error is a terminal.
func (a *app) newProgress() *progress.Line {
	if a.flags.quiet || !isTerminal(a.err) || a.env("TERM") == "dumb" {
		return progress.New(nil, a.flags.report.Units)
	}
	return progress.New(a.err, a.flags.report.Units)
}

// firstError returns the first error that is not nil: a report that was printed whole still ends with its
// input's error.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}{{.UsageString}}`

const usageTemplate = `Usage
{{- if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasExample}}

Examples
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if and (eq .GroupID $group.ID) .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags
{{.LocalFlags.FlagUsagesWrapped WIDTH | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Shared flags
{{.InheritedFlags.FlagUsagesWrapped WIDTH | trimTrailingWhitespaces}}{{end}}

Each flag can be set in the environment: GMEMTOP_UNITS=si for --units si.
Exit codes: 0 fine, 1 failure, 2 usage, 3 found what was asked about, 4 input damaged,
5 not supported here, 130 interrupted.
`
