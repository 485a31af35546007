// Command gmemtop shows where GPU memory goes during training, from saved traces of PyTorch and others.
//
// This package contains only flags, wiring and exit codes. Reports come from timeline/report and
// timeline/figure, the screen from tui, the readers from traces/load.
package main

import (
	"context"
	"os"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/traces/load"
)

// graceAfterSignal is how long a command may take to stop after a signal. A command blocked reading a pipe
// cannot stop.
const graceAfterSignal = 200 * time.Millisecond

func main() {
	code := run(os.Args[1:])
	inject.Quiesce()
	os.Exit(code)
}

// run runs one command line with the process's own streams and returns the exit code.
func run(args []string) int {
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	a.program, _ = os.Executable()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer a.Listen(func() {
		cancel()
		time.Sleep(graceAfterSignal)
		a.files.RemoveUnfinished()
		load.Abandon()
		inject.Quiesce()
		estimate.Quiesce()
		os.Exit(exitInterrupted)
	})()
	return a.execute(ctx, args)
}
