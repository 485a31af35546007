package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/spf13/cobra"
)

// execute runs the command in args, prints its error in one line, and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(args)
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.notHelped
	}
	if err == nil || ctx.Err() == nil {
		load.Wait(cacheGrace)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Canceled // it failed because it was cancelled
	}
	if err != nil && !a.started && !errors.Is(err, fs.ErrNotExist) {
		err = exit.AsMistake(err)
	}
	code := exitCode(err)
	switch {
	case code == exitOK, code == exitFinding, code == exitInterrupted, errors.As(err, new(childError)):
	case code == exitUsage:
		a.Tell(parserTalk.ReplaceAllString(oneLine(err), ""))
		if !strings.Contains(err.Error(), "--help") {
			fmt.Fprintf(a.Err, "see gmemtop %s--help\n", commandPath(root, args))
		}
	default:
		a.Tell(oneLine(err))
	}
	return code
}

// parserTalk is the prefix of strconv's errors about a flag's value.
var parserTalk = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": `)

func commandPath(root *cobra.Command, args []string) string {
	c, _, err := root.Find(args)
	if err != nil || c == nil || c == root {
		return ""
	}
	return c.Name() + " "
}

// cacheGrace is how long a finished command waits for the decoded copy that speeds up the next one.
const cacheGrace = 2 * time.Second

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "gmemtop [FILE ...]",
		Short: "Shows where GPU memory goes during training",
		Long: "gmemtop shows where GPU memory goes during training: when the peak was, what held it, and " +
			"what would bring it down. It watches running " +
			"jobs, and reads PyTorch memory snapshots, torch.profiler traces and more, recognised by " +
			"content.\n\n" +
			"Without a command it opens the files you name, as replay does. Without a file it shows " +
			"this machine's GPUs and who uses them; without a GPU, the embedded sample.",
		Example: "  gmemtop run -- python train.py             watch a training from the start\n" +
			"  gmemtop attach 4242                        watch a running one\n" +
			"  gmemtop replay snapshot.pickle             look at a trace in the terminal\n" +
			"  gmemtop stats snapshot.pickle              the answer on one screen\n" +
			"  gmemtop oom snapshot.pickle                why it ran out of memory\n" +
			"  gmemtop diff old.pickle new.pickle         what changed; --fail-if gates CI\n" +
			"  gmemtop compare trace.gmt --budget 12GiB   what each memory manager would save\n" +
			"  gmemtop doctor                             what works here, and what to fix",
		SilenceErrors: true, SilenceUsage: true, Version: build.This().String(),
		Args: help.FileArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := help.FromEnvironment(cmd, a.Env); err != nil {
				return err
			}
			if err := a.flags.check(); err != nil {
				return err
			}
			a.started = true
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return (&replayCommand{a, args}).run(cmd.Context())
			}
			return start(cmd.Context(), a)
		},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.Flags().Bool("version", false, "print the version, as gmemtop version does")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(&cobra.Group{ID: groupLook, Title: "Look"},
		&cobra.Group{ID: groupLive, Title: "Watch a training"}, &cobra.Group{ID: groupReport,
			Title: "Report"},
		&cobra.Group{ID: groupFiles, Title: "Files"}, &cobra.Group{ID: groupMachine, Title: "This program"})
	a.flags.persistent(root)
	a.flags.screen(root)
	root.AddCommand(
		newAttachCommand(a), newRunCommand(a), newRecordCommand(a), newEstimateCommand(a),
		newHubCommand(a), newViewCommand(a), newCaptureCommand(a),
		newRelayCommand(a), newAttachNodeCommand(a), newStandByCommand(a),
		newReplayCommand(a),
		newStatsCommand(a), newOOMCommand(a), newDiffCommand(a), newCompareCommand(a), newPlanCommand(a),
		newSweepCommand(a), newWorkerCommand(a),
		newPackCommand(a), newDescribeCommand(a), newExportCommand(a), newRepairCommand(a),
		newMCPCommand(a), newDoctorCommand(a), newVersionCommand(a), newCompletionCommand(a, root),
		newManCommand(a, root),
	)
	root.SetFlagErrorFunc(help.FlagError)
	root.InitDefaultHelpCmd()
	if c, _, err := root.Find([]string{"help"}); err == nil {
		c.Args = help.TopicArgs
		c.Use = "help [COMMAND | TOPIC]"
		c.Short = "Help for a command or a topic"
		c.Long = "Prints the help for a command, or a page on a topic: gmemtop --help lists both."
		c.Example = "  gmemtop help attach\n  gmemtop help managers"
	}
	helpTexts(a, root)
	if err := help.Offer(root, flagValues); err != nil {
		panic(err) // a flag is defined twice: a bug that every run shows
	}
	return root
}

// start shows the machine if it has a GPU, otherwise the embedded sample; a file on standard input comes
// first.
func start(ctx context.Context, a *app) error {
	if a.HasScreen() && !console.IsFile(a.In) {
		f, closing := feed.OpenMachine()
		defer closing()
		if f.HasDevices() {
			return (&watcher{app: a}).showMachine(ctx, f)
		}
	}
	return (&replayCommand{app: a}).run(ctx)
}
