// Command results writes docs/results.md: what the papers behind the managers report, beside what our
// managers reach.
//
//	go run ./scripts/results > docs/results.md
//
// GMEMTOP_TRACES names the folder with the public recordings, which are not in the repository; without it the
// sections that need them say so. Progress goes to standard error. Nothing is kept between runs.
//
//   - main.go: flags, the order of the sections;
//   - page.go: Markdown;
//   - measure.go: one manager on one problem, and many side by side;
//   - problems.go, pipedream.go, recordings.go: what is planned;
//   - pools.go, autoswap.go, vdnn.go, delta.go, home.go, tvdnn.go, budgets.go, missing.go: a section each.
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
	"time"
)

// section is one part of the page.
type section struct {
	name  string
	write func(b *bench, ctx context.Context, p *page) error
}

// sections are the parts in the order of the page.
var sections = []section{
	{"pools", (*bench).pools},
	{"autoswap", (*bench).autoswap},
	{"vdnn", (*bench).vdnn},
	{"tvdnn", (*bench).tvdnn},
	{"delta", (*bench).delta},
	{"home", (*bench).home},
	{"joint", (*bench).joint},
	{"missing", (*bench).missing},
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
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	only := flags.String("only", "", "sections to write, separated by commas: "+strings.Join(names, ", ")+" (default all)")
	problems := flags.String("problems", "", "plan only problems whose name holds this, for development")
	times := flags.Bool("times", true, "print the one column that is wall-clock time; without it equal inputs give equal bytes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen := sections
	if *only != "" {
		chosen = nil
		for word := range strings.SplitSeq(*only, ",") {
			i := slices.Index(names, strings.TrimSpace(word))
			if i < 0 {
				return fmt.Errorf("there is no section %q; there are %s", word, strings.Join(names, ", "))
			}
			chosen = append(chosen, sections[i])
		}
	}
	b := &bench{traces: os.Getenv("GMEMTOP_TRACES"), problems: *problems, times: *times, progress: progress, began: time.Now()}
	p := &page{}
	b.opening(p)
	for _, s := range chosen {
		b.tell("section %s", s.name)
		if err := s.write(b, ctx, p); err != nil {
			return fmt.Errorf("section %s: %w", s.name, err)
		}
	}
	b.closing(p)
	b.tell("done")
	_, err := out.Write(p.text.Bytes())
	return err
}

// opening writes what applies to the whole page.
func (b *bench) opening(p *page) {
	p.heading(1, "Results")
	p.para("What the papers behind the managers report, beside what the managers here reach. This page is written by")
	p.code("GMEMTOP_TRACES=<folder of the public recordings> scripts/results.sh")
	p.para("which takes about a quarter of an hour on two quiet cores. Every figure and every \"reached\" or \"not reached\" is computed by that run; text in which " +
		"a figure of a paper is quoted says so. Nothing is fitted to a paper's figure: each manager is written from its source, and its constants are the source's or " +
		"stand in its file with the reason. Where we did not have a paper's text, we used its abstract or its authors' code; this page says which.")
	if b.traces == "" {
		p.para("**GMEMTOP_TRACES was not set for this run.** It names a folder with recordings that others made and published; they are no part of the repository. Sections " +
			"that need one name it instead of giving figures.")
	}
	p.para("How to read the tables:")
	p.item("*Ours* is simulated: each plan is validated by code that the planners do not share, then run by the simulator that `gmemtop compare` uses; the paper's are measurements " +
		"on a device. The two are not the same kind of figure, and only ratios to the same baseline are set side by side.")
	p.item("*Footprint* is the top of the arena with all addresses chosen, holes included, or for an online allocator the smallest cap in which the iteration was seen to complete (where it keeps no cache, the most that it holds). *Overhead* is step time over " +
		"the step time of keeping everything, less one.")
	p.item("Hardware is a preset: memory, peak arithmetic and bandwidth from the data sheet, link speed as published with its measurement, and the sustained share of the " +
		"peak assumed. `--hardware` of `gmemtop compare` prints each preset's origin.")
	p.item("Networks are made from layer shapes with 4-byte elements, SGD with momentum, durations from the preset. \"As made\" leaves a convolution its choice between a fast " +
		"algorithm with a large workspace (our model of tiled FFT) and implicit GEMM, which has none; \"memory-optimal\" has implicit GEMM only, so that a table is " +
		"about tensors and not about workspaces.")
	p.item("Managers search with their own default work, counted and not timed, seed 1. Except for the one column that says so, the page holds no wall-clock time.")
}

// closing lists what failed while the page was made.
func (b *bench) closing(p *page) {
	if len(b.defects) == 0 {
		return
	}
	p.heading(2, "Broken down")
	p.para("These plans were refused or never came to be, which is a defect of the program; they count as not fitting above.")
	lines := b.defects
	slices.Sort(lines)
	for _, d := range slices.Compact(lines) {
		p.item("%s", d)
	}
}
