// Command onstandin runs a program on the stand-in GPU:
//
//	go run ./scripts/onstandin [-model a100] [-devices 2] [-memory 24GiB] [-compute]
//		[-order late] [-clock virtual] [-report DIR] [-python PYTHON] PROGRAM ARG...
//
// PROGRAM, or PYTHON if given, is an interpreter with a torch built for CUDA; the stand-in is compiled for
// it, once. Without -compute, ops allocate what they allocate on a GPU and compute nothing. Each run has its
// own devices.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gmemtop/gmemtop/capture/standin"
)

func main() {
	switch err := run(context.Background(), os.Args[1:], os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "onstandin:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string, usage io.Writer) error {
	var m standin.Machine
	python := ""
	flags := flag.NewFlagSet("onstandin", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&m.Model, "model", "", "a card, such as a100 (default an H100)")
	flags.IntVar(&m.Devices, "devices", 0, "how many devices (default one)")
	flags.StringVar(&m.Memory, "memory", "", "memory of each device, such as 24GiB (default the card's)")
	flags.BoolVar(&m.Compute, "compute", false, "ops compute true numbers, on the CPU")
	flags.StringVar(&m.Order, "order", "", "when streams do their work: once, late or a seed (default once)")
	flags.StringVar(&m.Clock, "clock", "",
		"what events report: real or virtual; program: all that a program times (default real)")
	flags.StringVar(&m.Rates, "rates", "",
		"of the virtual clock, such as launch=5000,out=25 (default the card's)")
	flags.StringVar(&m.Hollow, "hollow", "",
		"copies of more bytes than this move none, such as 1MiB (default all move)")
	flags.StringVar(&python, "python", "", "the interpreter with torch, if the program is not one")
	flags.StringVar(&m.Report, "report", "", "a folder for reports of the processes' errors")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case python == "" && flags.NArg() < 2:
		return errors.New("name an interpreter and a script")
	case flags.NArg() < 1:
		return errors.New("name a program")
	case python == "":
		python = flags.Arg(0)
	}
	lib, err := standin.Build(ctx, python)
	if err != nil {
		return fmt.Errorf("building the stand-in: %w", err)
	}
	dir, err := os.MkdirTemp("", "onstandin-")
	if err != nil {
		return fmt.Errorf("make the folder in which processes share the devices: %w", err)
	}
	defer os.RemoveAll(dir)
	m.Board = filepath.Join(dir, "board")
	c := exec.CommandContext(ctx, flags.Arg(0), flags.Args()[1:]...)
	c.Env = lib.Environ(m)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c.Run()
}
