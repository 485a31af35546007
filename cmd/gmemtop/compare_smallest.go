package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// searchTime bounds the search for a budget that fits, where --limit does not.
const searchTime = 10 * time.Second

// smallestBudget looks for the smallest budget that fits, after one that did not, and gives the command line
// for it: in the comparison's report, or as a note if the budget was refused and there is no report.
func (c *compareCommand) smallestBudget(ctx context.Context, p *plan.Problem, list []plan.Manager,
	opt replay.Options, made *replay.Comparison) error {
	within := searchTime
	if c.limit > 0 {
		within = c.limit
	}
	opt.Update = nil
	stop := c.newProgress().Clock("nothing fits: looking for the smallest budget that does")
	s, err := replay.SmallestBudget(ctx, p, list, opt, made, within)
	if stop(); err != nil || s == nil {
		return err
	}
	for x := s; x != nil; x = x.Runnable {
		x.Command = compareAt(c.paths, c.typed, x.Text)
	}
	if made != nil {
		made.Smallest = s
		return nil
	}
	refused := &replay.Comparison{Problem: p, Budget: opt.Budget}
	c.complain("%s", s.Sentence(refused, c.flags.report.Units))
	for _, command := range s.Commands() {
		fmt.Fprintf(c.Err, "  %s\n", command)
	}
	return nil
}

// compareAt returns the command line of compare with another budget.
func compareAt(paths []string, typed *pflag.FlagSet, budget string) string {
	words := append([]string{"gmemtop", "compare"}, paths...)
	typed.Visit(func(f *pflag.Flag) {
		value := strings.Trim(f.Value.String(), "[]") // lists of numbers print like this
		switch f.Name {
		case "output", "force", "quiet":
			return
		case "budget":
			value = budget
		}
		words = append(words, "--"+f.Name)
		switch {
		case f.Value.Type() != "bool":
			words = append(words, value)
		case value == "false":
			words[len(words)-1] += "=false"
		}
	})
	for i, w := range words {
		words[i] = console.ShellWord(w)
	}
	return report.Printable(strings.Join(words, " "))
}
