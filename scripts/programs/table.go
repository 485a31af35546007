package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/scripts/internal/trial"
)

const head = `# Programs

What plans do to programs that people run. Written by

    go run ./scripts/programs -python PYTHON -packages DIR -sources DIR > docs/programs.md

Each program is code of its library, with a model built from a configuration: no weights, real depth, narrow
layers, made-up data. It trains on a CPU, on one thread, while ` + "`gmemtop compare --target live:`" + `
carries plans out in it, one after the other. Then it trains again without gmemtop. *Same* says for how many
steps the weights after each step were compared, by a checksum of all their bits, while plans came and went.

*Before* is what a step holds at its peak without a plan. For each manager: what it holds with the plan, and
what it adds to the processor time of a step, which other programs on the machine change less than its
duration. In brackets is what was predicted. smartpool chooses addresses: its figures are what it takes from
the driver, instead of what PyTorch's caching allocator would. A footprint that is more than 3 % off its
prediction is marked (!); where batches vary in shape, or steps run different ops, the prediction is that of
the largest step, and only a step that holds more is marked. Three steps were timed with each plan, and three
before and after it, on a busy machine. Predicted times come from scripts/programs/thread.json, which was
measured in part, and in another training: they are rough.

Rows of earlier runs stay until their program is measured again: figures
that were read back from an older page are rounded.
`

// mostOff is how far a footprint may be off its prediction.
const mostOff = 0.03

// planHead is the text above the table of programs that were only planned for.
const planHead = `
## What would leave

A step of each program, described and planned for with joint; no plan was carried out (-plan-only).
Of %[2]d programs %[1]d have a plan, and %[3]d of them one that fits. Sizes are in MiB. The budget is 70 %%
of what the step holds, or where what cannot leave is nearly all of that, 5 %% more than what cannot leave:
parameters, the operands of the op that needs most, and optimizer state that cannot wait on the host.

| program | ops | holds | cannot leave | budget | joint predicts | or why not |
|---|---:|---:|---:|---:|---|---|
%[4]s`

// columns are the managers of the page, in its order.
var columns = []string{"smartpool", "autoswap", "sqrt", "joint"}

func (o *options) write(w io.Writer) error {
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	t := table{}
	for i := range programs {
		p := &programs[i]
		l, err := o.lookedAt(p)
		if err != nil {
			return err
		}
		if l != nil {
			t.plan(p, l)
		}
		data, err := os.ReadFile(o.path(p))
		if os.IsNotExist(err) {
			if l == nil {
				t.without = append(t.without, p.name)
			} else {
				t.uncarried = append(t.uncarried, p.name)
			}
			continue
		}
		if err != nil {
			return err
		}
		var r result
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("read %s: %w", o.path(p), err)
		}
		t.add(p, &r)
	}
	return t.write(w)
}

// table is the page below its head.
type table struct {
	rows, plans, sentences strings.Builder
	// without are the programs that did not run, uncarried those that were only planned for.
	without, uncarried []string

	looked, planned, toShare int // of the programs that were planned for

	programs, lower, fit, same, carried, off int
}

func (t *table) write(w io.Writer) error {
	fmt.Fprintf(w, "\nOf %d programs, %d come down under some manager that moves or recomputes, %d to the "+
		"budget. In %d the weights were bit-identical. Of %d plans carried out, %d are more than 3 %% "+
		"off in footprint.\n",
		t.programs, t.lower, t.fit, t.same, t.carried, t.off)
	if len(t.without) > 0 {
		fmt.Fprintf(w, "\nNot run: %s.\n", strings.Join(t.without, ", "))
	}
	if len(t.uncarried) > 0 {
		fmt.Fprintf(w, "\nPlanned for, and no plan carried out: %s.\n", strings.Join(t.uncarried, ", "))
	}
	fmt.Fprintf(w, "\n| program | before, MiB | budget | %s | same |\n|---|---:|---:|%s---:|\n",
		strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	if _, err := io.WriteString(w, t.rows.String()); err != nil {
		return err
	}
	if t.looked > 0 {
		fmt.Fprintf(w, planHead, t.planned, t.looked, t.toShare, t.plans.String())
	}
	_, err := io.WriteString(w, t.sentences.String())
	return err
}

// add adds the row of a program, and below the table the remarks about it.
func (t *table) add(p *program, r *result) {
	t.programs++
	fmt.Fprintf(&t.sentences, "\n## %s\n\n%s.\n", p.name, upper(p.what))
	if r.Failed != "" {
		fmt.Fprintf(&t.sentences, "\nFailed: %s.\n", flat(r.Failed))
	}
	if r.Failed != "" && len(r.Moving.Results) == 0 { // otherwise show the earlier results
		fmt.Fprintf(&t.rows, "| %s | | |%s |\n", p.name, strings.Repeat(" |", len(columns)))
		return
	}
	held := r.Moving.Problem.Peak
	if held == 0 { // no plan could be made, though allocations were recorded
		held = r.Pooling.Problem.Peak
	}
	fmt.Fprintf(&t.rows, "| %s | %s | %s |", p.name, size(held), size(r.Moving.Budget))
	lower, fit := false, false
	for _, m := range columns {
		c := &r.Moving
		if m == pooling {
			c = &r.Pooling
		}
		live, ok := find(c, m, "live", "")
		if !ok {
			t.rows.WriteString(" – |")
			continue
		}
		sim, _ := find(c, m, "sim", live.Executor)
		fmt.Fprintf(&t.rows, " %s", t.cell(c, &live, &sim))
		if caching, ok := find(c, "caching", "sim", ""); ok {
			fmt.Fprintf(&t.rows, ", instead of %s", size(caching.Footprint))
		}
		t.rows.WriteString(" |")
		if m != pooling {
			lower = lower || float64(live.Footprint) < 0.99*float64(c.Problem.Peak)
			fit = fit || live.Footprint <= c.Budget && c.Budget < c.Problem.Peak
		}
	}
	same := fmt.Sprintf("%d steps", r.Steps)
	switch {
	case r.Differs > 0:
		same = fmt.Sprintf("not from step %d", r.Differs)
	case r.Steps == 0:
		same = "not compared"
	case r.Steps < r.Ran:
		same = fmt.Sprintf("the first %d of %d steps", r.Steps, r.Ran)
	}
	t.same += one(r.Steps > 0 && r.Differs == 0)
	fmt.Fprintf(&t.rows, " %s |\n", same)
	t.lower += one(lower)
	t.fit += one(fit)
	t.said(r)
	if change := tried[p.name]; change != "" {
		fmt.Fprintf(&t.sentences, "\nTried: %s.\n", change)
	}
}

// plan adds the row of a program that was planned for.
func (t *table) plan(p *program, l *looked) {
	t.looked++
	predicted := ""
	var why []string
	for _, s := range []string{l.Refused, l.Unplanned, l.Failed} {
		if s != "" {
			why = append(why, flat(s))
		}
	}
	if l.Planned > 0 {
		t.planned++
		t.toShare += one(l.Planned <= l.Budget)
		predicted = fmt.Sprintf("%s, %+.1f %%", size(l.Planned), 100*l.Overhead)
	}
	ops := ""
	if l.Problem.Ops > 0 {
		ops = strconv.Itoa(l.Problem.Ops)
	}
	fmt.Fprintf(&t.plans, "| %s | %s | %s | %s | %s | %s | %s |\n", p.name, ops, size(l.Problem.Peak),
		size(l.Problem.Reside), size(l.Budget), predicted, strings.Join(why, "; "))
}

// cell is a manager's result for a program.
func (t *table) cell(c *trial.Comparison, live, sim *trial.Row) string {
	t.carried++
	mark := ""
	off := float64(live.Footprint)/float64(live.Predicted) - 1
	if off > mostOff || off < -mostOff && !varies(c) {
		mark = " (!)"
		t.off++
	}
	took := live.Overhead
	if live.Work != nil {
		took = *live.Work
	}
	return fmt.Sprintf("%s (%s)%s, %+.0f %% (%+.0f %%)", size(live.Footprint), size(live.Predicted), mark,
		100*took, 100*sim.Overhead)
}

// varies reports whether batches have shapes that vary, or steps run different ops: those that are smaller
// than the one that was planned for hold less.
func varies(c *trial.Comparison) bool {
	return slices.ContainsFunc(c.Problem.Notes, func(n string) bool {
		return strings.HasPrefix(n, "the batches have other shapes") ||
			strings.HasPrefix(n, "steps run different ops")
	})
}

// said adds what gmemtop said about plans that it did not carry out, each sentence once.
func (t *table) said(r *result) {
	for _, c := range []*trial.Comparison{&r.Moving, &r.Pooling} {
		if c.Impossible != "" {
			names := moving
			if c == &r.Pooling {
				names = pooling
			}
			fmt.Fprintf(&t.sentences, "\nNot carried out: %s: %s.\n", strings.ReplaceAll(names, ",", ", "),
				flat(c.Impossible))
			continue
		}
		var reasons []string
		by := map[string][]string{}
		for _, row := range c.Results {
			if row.Available || row.Target != "live" && planned(c, row.Manager) ||
				slices.Contains(by[row.Reason], row.Manager) {
				continue
			}
			if by[row.Reason] == nil {
				reasons = append(reasons, row.Reason)
			}
			by[row.Reason] = append(by[row.Reason], row.Manager)
		}
		for _, reason := range reasons {
			fmt.Fprintf(&t.sentences, "\nNot carried out: %s: %s.\n", strings.Join(by[reason], ", "),
				flat(reason))
		}
	}
	t.segments(&r.Pooling)
	t.above(&r.Moving)
	if p := r.Moving.Problem; p.Ops > 0 {
		fmt.Fprintf(&t.sentences, "\nA step of %d ops holds %s MiB at its peak, of which %s cannot "+
			"leave. %s\n",
			p.Ops, size(p.Peak), size(p.Reside), notes(p.Notes))
	}
}

// segments adds, where an earlier gmemtop advised expandable segments in place of a plan without knowing
// whether they help, what they take in a simulation of the same recording. On a CPU there are none.
func (t *table) segments(c *trial.Comparison) {
	advised := slices.ContainsFunc(c.Results, func(row trial.Row) bool {
		return row.Target == "live" && !row.Available && strings.Contains(row.Reason, "expandable_segments")
	})
	caching, known := find(c, "caching", "sim", "")
	expandable, too := find(c, "expandable", "sim", "")
	if !advised || !known || !too {
		return
	}
	if expandable.Footprint < caching.Footprint {
		fmt.Fprintf(&t.sentences, "\nSimulated on that recording, expandable_segments:True takes %s MiB, "+
			"where PyTorch's allocator takes %s.\n", size(expandable.Footprint), size(caching.Footprint))
		return
	}
	fmt.Fprintf(&t.sentences, "\nSimulated on that recording, expandable_segments:True does not help: it "+
		"takes %s MiB, and PyTorch's allocator %s.\n", size(expandable.Footprint), size(caching.Footprint))
}

// above adds which plans held more than their budget in the training.
func (t *table) above(c *trial.Comparison) {
	var names []string
	for _, row := range c.Results {
		if row.Target == "live" && row.Available && c.Budget > 0 && row.Footprint > c.Budget {
			names = append(names, row.Manager+" with "+size(row.Footprint))
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(&t.sentences, "\nAbove the budget of %s MiB: %s.\n", size(c.Budget),
			strings.Join(names, ", "))
	}
}

// planned reports whether a manager was tried live, or had a plan in a simulation. Where it had none, only
// the simulations say why.
func planned(c *trial.Comparison, manager string) bool {
	return slices.ContainsFunc(c.Results, func(r trial.Row) bool {
		return r.Manager == manager && (r.Target == "live" || r.Available)
	})
}

// notes joins what gmemtop noted about a step, but for which one it was.
func notes(all []string) string {
	var kept []string
	for _, n := range all {
		if !strings.HasPrefix(n, "step ") && !strings.HasPrefix(n, "planned for step ") &&
			!strings.HasPrefix(n, "the plan is for step ") && // as older results say it
			!strings.HasPrefix(n, "a step takes") {
			kept = append(kept, upper(flat(n))+".")
		}
	}
	return strings.Join(kept, " ")
}

// find returns the row of a manager on a target, for any executor if that is "".
func find(c *trial.Comparison, manager, target, executor string) (trial.Row, bool) {
	for _, r := range c.Results {
		if r.Manager == manager && r.Target == target && r.Available &&
			(executor == "" || r.Executor == executor) {
			return r, true
		}
	}
	return trial.Row{}, false
}

// flat is a sentence without its full stop, on one line and safe in a table.
func flat(s string) string {
	return strings.TrimRight(strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "\\|"), ".")
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func size(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", float64(n)/(1<<20))
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
