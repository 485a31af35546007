// Command results writes docs/results.md: what the papers behind the managers report, beside what our
// managers reach.
//
//	go run ./scripts/results > docs/results.md
//
// GMEMTOP_TRACES names the folder with the public recordings, which are not in the repository; without it the
// sections that need them say so. Progress goes to standard error. Nothing is kept between runs.
//
// A whole page can also be made in parts, each with some of the sections, and joined:
//
//	go run ./scripts/results -only delta,home,joint > a.md
//	go run ./scripts/results -only pools,autoswap,vdnn,tvdnn,missing > b.md
//	go run ./scripts/results -join a.md,b.md > docs/results.md
//
// To make only one section of the page again: -join docs/results.md,c.md. The files here:
//
//   - main.go: flags, the order of the sections;
//   - join.go: a page made of parts; summary.go: the lines at its beginning;
//   - page.go: Markdown;
//   - measure.go: one manager on one problem, and many side by side;
//   - problems.go, pipedream.go, recordings.go: the problems to plan for;
//   - pools.go, autoswap.go, vdnn.go, tvdnn.go, delta.go, home.go, budgets.go with joint.go, anytime.go,
//     missing.go: a section each.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// section is one part of the page.
type section struct {
	name    string
	heading string
	write   func(b *bench, ctx context.Context, p *page) error
}

// sections are the parts in the order of the page.
var sections = []section{
	{"pools", poolsHeading, (*bench).pools},
	{"autoswap", "AutoSwap", (*bench).autoswap},
	{"vdnn", "vDNN", (*bench).vdnn},
	{"tvdnn", "tvDNN", (*bench).tvdnn},
	{"delta", "DELTA", (*bench).delta},
	{"home", "HOME", (*bench).home},
	{"joint", budgetsHeading, (*bench).joint},
	{"anytime", "More work, better plans", (*bench).anytime},
	{"missing", "Not reproducible", missing},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "results:", err)
		}
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("results", flag.ContinueOnError)
	flags.SetOutput(progress)
	only := flags.String("only", "",
		"sections to write, separated by commas: "+strings.Join(sectionNames(), ", ")+" (default all)")
	join := flags.String("join", "",
		"pages made with -only, separated by commas, to join instead of making sections")
	problems := flags.String("problems", "", "plan only problems whose name holds this, for development")
	times := flags.Bool("times", true, "print the one column that is processor time; without it equal "+
		"inputs give equal bytes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := chooseSections(*only)
	if err != nil {
		return err
	}
	b := newBench(recordings{os.Getenv("GMEMTOP_TRACES")}, *problems, progress)
	b.times = *times
	p := &page{}
	if *join != "" {
		b.joined = true
		if err := joinPages(strings.Split(*join, ","), p); err != nil {
			return err
		}
		_, err := out.Write(b.opened(p).text.Bytes())
		return err
	}
	for _, s := range chosen {
		b.tell("section %s", s.name)
		p.heading(2, "%s", s.heading)
		if err := s.write(b, ctx, p); err != nil {
			return fmt.Errorf("section %s: %w", s.name, err)
		}
	}
	b.closing(p)
	b.tell("done")
	_, err = out.Write(b.opened(p).text.Bytes())
	return err
}

// opening writes what applies to the whole page, and its summary. noRecordings says that there were none.
func (p *page) opening(summary []string, noRecordings bool) {
	p.heading(1, "Results")
	if len(summary) > 0 {
		p.para("In short, from the sections below:")
		for _, s := range summary {
			p.item("%s", s)
		}
	}
	p.para("Planned, simulated and measured side by side, where PyTorch itself carries plans out: " +
		"[Predictions](predictions.md), a page of its own.")
	p.para("This page compares what the papers behind the managers report with what our managers reach. " +
		"It is written by")
	p.code("GMEMTOP_TRACES=<folder of the public recordings> scripts/results.sh")
	p.para("which takes more than half an hour of processor time. That run computes every figure " +
		"and every \"reached\" or \"not reached\"; figures quoted from a paper are marked. Nothing is " +
		"fitted to a paper's figures: each manager is written from its source, and its constants come " +
		"from the source or are explained in its file. Where we did not have a paper's text, we used its " +
		"abstract or its authors' code; this page says which.")
	if noRecordings {
		p.para("**GMEMTOP_TRACES was not set for this run.** It names a folder with recordings that " +
			"others made and published; they are not in the repository. Sections that need one name it " +
			"instead of giving figures.")
	}
	p.para("How to read the tables:")
	p.item("*Ours* is simulated: code that shares nothing with the planners validates each plan, and the " +
		"simulator of `gmemtop compare` runs it. The paper's figures are measurements on a device. The " +
		"two are different kinds of figure, so only ratios to the same baseline are compared.")
	p.item("*Footprint* is the top of the arena with all addresses chosen, holes included, or, for an " +
		"online allocator, the smallest cap in which the iteration completed (if it keeps no cache, the " +
		"most that it holds). *Overhead* is step time over the step time of keeping everything, less " +
		"one.")
	p.item("Hardware is a preset: memory, peak arithmetic and bandwidth from the data sheet, link speed " +
		"as published with its measurement, and an assumed sustained share of the peak. `--hardware` of " +
		"`gmemtop compare` prints each preset's origin.")
	p.item("Networks are built from layer shapes with 4-byte elements, SGD with momentum, and durations " +
		"from the preset. \"As made\" lets each convolution choose between a fast algorithm with a large " +
		"workspace (our model of tiled FFT) and implicit GEMM, which has none; \"memory-optimal\" has " +
		"implicit GEMM only, so that a table shows tensors rather than workspaces.")
	p.item("Managers search with their default amount of work, which is counted rather than timed, and " +
		"with seed 1. Except for the one column that says so, no figure on the page depends on how fast " +
		"the machine is.")
	p.item("How close the simulator comes to plans that PyTorch carries out, in virtual time on a stand-in " +
		"GPU, is in [predictions.md](predictions.md).")
}

// defects is the heading of what failed.
const defects = "Defects"

// closing lists what failed while the page was made.
func (j *journal) closing(p *page) {
	if len(j.defects) == 0 {
		return
	}
	p.heading(2, defects)
	p.para("These plans were invalid or could not be made, which is a defect of the program. Above they " +
		"count as not fitting.")
	lines := j.defects
	slices.Sort(lines)
	for _, d := range slices.Compact(lines) {
		p.item("%s", d)
	}
}
