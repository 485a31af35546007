package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
)

// Watching by probes
//
// attach and record with --probes watch a process from the kernel: nothing is loaded into it, and it need not
// be Python. Such a source has no training steps and takes no orders. Everything is captured whole, in
// windows of a second, and a row of the live view is an interval of time. Flags that concern steps (--every,
// --steps, triggers on steps) are rejected on the command line instead of being accepted and never taking
// effect.

// probing adds --probes to a command that watches a process.
func (c *watcher) probing(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.probes, "probes", "",
		"watch the memory of any CUDA program from outside, by eBPF: auto, pytorch (blocks), driver "+
			"(segments) or both")
	cmd.Flags().Lookup("probes").NoOptDefVal = "auto"
}

// probesOf parses the process number and rejects flags that concern steps.
func (c *watcher) probesOf(cmd *cobra.Command, args []string) (*headless.Probes, error) {
	if cmd.ArgsLenAtDash() >= 0 {
		return nil, exit.Mistakef("--probes watches a running process: start the command first, " +
			"then give its number; gmemtop waits until it loads CUDA")
	}
	if len(args) != 1 {
		return nil, exit.Mistakef("name the process: --probes PID")
	}
	for _, name := range []string{"every", "steps"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return nil, exit.Mistakef("--%s: probes see no steps, and everything is captured "+
				"whole; leave it out", name)
		}
	}
	c.live.every = 0
	pid, err := processNumber(args[0])
	return &headless.Probes{PID: pid, Kind: c.probes, Triggers: c.live.Triggers}, err
}

// processNumber parses the number of a process.
func processNumber(word string) (int, error) {
	pid, err := strconv.Atoi(word)
	if err != nil || pid <= 0 {
		return 0, exit.Mistakef("%q is not the number of a process: gmemtop attach lists those that can be "+
			"watched", word)
	}
	return pid, nil
}
