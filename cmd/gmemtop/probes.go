package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/usdt"
)

// Watching by probes
//
// attach and record with --probes watch a process from the kernel: nothing is loaded into it, and it need not
// be Python. Such a source has no training steps and takes no orders. Everything is captured whole, in
// windows of a second, and a row of the live view is an interval of time. Flags that concern steps (--every,
// --steps, triggers on steps) are rejected on the command line instead of being accepted and never taking
// effect.

// probeKinds are the values of --probes.
var probeKinds = map[string]usdt.Probes{"auto": 0, "pytorch": usdt.PyTorch, "driver": usdt.Driver,
	"both": usdt.PyTorch | usdt.Driver}

// probing adds --probes to a command that watches a process.
func (c *watcher) probing(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.probes, "probes", "",
		"watch the memory of any CUDA program from outside, by eBPF: auto, pytorch (blocks), driver "+
			"(segments) or both")
	cmd.Flags().Lookup("probes").NoOptDefVal = "auto"
}

// probeSource prepares to watch a process with probes. Notices say where the probes are and what they cannot
// see. It waits for a process that has not loaded CUDA yet.
func (c *watcher) probeSource(pid int) (job.Source, error) {
	kind, ok := probeKinds[c.probes]
	if !ok {
		return nil, usagef("--probes %q is not one of auto, pytorch, driver, both", c.probes)
	}
	for _, text := range c.live.triggers {
		name, _, _ := strings.Cut(strings.ReplaceAll(text, " ", ""), ">")
		if !slices.Contains([]string{"allocated", "reserved", "held", "oom"}, name) {
			return nil, usagef("trigger %q: probes see neither steps nor resident memory; "+
				"those on allocated, reserved, held and oom work with --probes", text)
		}
	}
	if err := usdt.Check(); err != nil {
		return nil, unsupportedError{err}
	}
	// Checked first, so that an obstacle is reported before a file is begun or a screen opened.
	if _, err := usdt.Plan(usdt.Options{PID: pid, Probes: kind}); err != nil &&
		!errors.Is(err, usdt.ErrNotLoaded) {
		return nil, refusedProbes(err)
	}
	return job.Whole(usdt.New(usdt.Options{PID: pid, Probes: kind, Wait: true})), nil
}

// refusedProbes gives an error its exit code: something that this machine or process does not allow is not a
// failure.
func refusedProbes(err error) error {
	if err == nil || errors.Is(err, usdt.ErrNoProcess) || errors.Is(err, usdt.ErrNotLoaded) {
		return err
	}
	return unsupportedError{err}
}

// probedProcess parses the process number, rejects flags that concern steps, and prepares to watch the
// process.
func (c *watcher) probedProcess(cmd *cobra.Command, args []string) (pid int, source job.Source, err error) {
	if cmd.ArgsLenAtDash() >= 0 {
		return 0, nil, usagef("--probes watches a running process: start the command first, " +
			"then give its number; gmemtop waits until it loads CUDA")
	}
	if len(args) != 1 {
		return 0, nil, usagef("name the process: --probes PID")
	}
	for _, name := range []string{"every", "steps"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return 0, nil, usagef("--%s: probes see no steps, and everything is captured "+
				"whole; leave it out", name)
		}
	}
	c.live.every = 0
	if pid, err = processNumber(args[0]); err != nil {
		return 0, nil, err
	}
	source, err = c.probeSource(pid)
	return pid, source, err
}

// processNumber parses the number of a process.
func processNumber(word string) (int, error) {
	pid, err := strconv.Atoi(word)
	if err != nil || pid <= 0 {
		return 0, usagef("%q is not the number of a process", word)
	}
	return pid, nil
}
