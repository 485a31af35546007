package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/scripts/internal/trial"
)

// head has one blank, for the machine's rates.
const head = `# Predictions

Virtual time on a stand-in: no figure of this page is a card's. Written by

    go run ./scripts/predictions -python PYTHON -packages DIR > docs/predictions.md

Each program trains on the stand-in, and
` + "`gmemtop compare --target live:`" + ` carries plans out in it at 80,
60 and 40 %% of what a step holds at its peak without a plan. PyTorch itself carries out each plan; the
stand-in's clock, which shares nothing with the simulator, says how long that took. Nothing is computed.

*Planned* is the peak of what the plan says is allocated, *simulated* the top of its placed arena. *Counted*
is what PyTorch's own allocator says: torch.cuda.max_memory_allocated at the end of each step, reset where
the next one begins. *Timed* is the time between two events that the stand-in recorded at the ends of a step.
Both are written down in the training by scripts/predictions/counted.py, which asks gmemtop's agent for the
number of the plan and for nothing else. Under each plan three steps pass; of the next three, the largest
peak and the median time are in the table. gmemtop's own figures come from its agent: the peak from a step
described op by op, the time from the same three steps by the clock of the process. They are in parentheses
where they are more than 1 %% away. Managers state no step time of their own: it is the simulator's. A cause
is given where counted and planned footprint differ by more than 3 %%, or step times by more than 7 %%.

A plan counts the sizes of its tensors, rounded up to 512 bytes. PyTorch's allocator may hand out a larger
block whole, because what would be left of it is at most 1 MiB, and counts all of it. So counted is usually a
little above planned, and a plan that just meets its budget may take a little more: such figures are in bold.
A plan that is predicted to need more than the budget is not carried out.

The machine: the stand-in's default model, and ` + "`%s`" + `
(nanoseconds, and bytes a nanosecond). The simulator is told the link's rates and latency, as a calibration
on a card would tell it, and reads what ops take from the step that was described.

Errors that are put into the simulator on purpose show: copies at double speed, waits forgotten, a launch gap
dropped, and copies in opposite directions that do not slow each other each move its step time by more than
7 %% from the clock's, which it otherwise meets within 0.1 %%. Of single waits that are forgotten, some show
less than that. (` + "`TestErrorsOfTheSimulatorShowAsDisagreement`" + `)
`

const (
	mostFootprint = 0.03
	mostTime      = 0.07
	mostBeside    = 0.01 // between PyTorch's figure and the agent's: above it, both are shown
)

// bold marks counted figures above a budget.
const bold = "**"

// agents is the sentence in a section of an earlier page whose figures are the agent's own.
const agents = "From an earlier page. *Measured* is what gmemtop's agent said; PyTorch's counter was not " +
	"asked. Plans above the budget were carried out, too."

// page collects the text and the totals of all comparisons.
type page struct {
	text                    strings.Builder
	rows, footprints, times int
	least, most             float64             // counted above planned, as a share
	old, byAgent            []string            // comparisons of the earlier page; by the agent's figures
	missing                 map[string][]string // programs, by the budgets at which they have no results
}

func (o *options) write(w io.Writer) error {
	if _, err := fmt.Fprintf(w, head, rates()); err != nil {
		return err
	}
	earlier, err := o.earlier()
	if err != nil {
		return err
	}
	g := page{missing: map[string][]string{}}
	for _, p := range programs {
		var without []string
		for _, budget := range budgets {
			known, err := o.add(&g, p, budget, earlier)
			if err != nil {
				return err
			}
			if !known {
				without = append(without, budget)
			}
		}
		if at := strings.Join(without, ", "); at != "" {
			g.missing[at] = append(g.missing[at], p.name)
		}
	}
	fmt.Fprintf(w, "\nOf %d plans carried out, %d are more than 3 %% off in footprint and %d more than "+
		"7 %% in step time. What PyTorch counted is %+.1f to %+.1f %% from what was planned, and above the "+
		"budget under %d.\n", g.rows, g.footprints, g.times, 100*g.least, 100*g.most,
		strings.Count(g.text.String(), "| "+bold))
	for _, at := range slices.Sorted(maps.Keys(g.missing)) {
		fmt.Fprintf(w, "\nNot measured at %s %%: %s.\n", at, strings.Join(g.missing[at], ", "))
	}
	if len(g.old) > 0 {
		fmt.Fprintf(w, "\nTaken over from an earlier page: %s.\n", strings.Join(g.old, ", "))
	}
	if len(g.byAgent) > 0 {
		fmt.Fprintf(w, "\nNot measured again since PyTorch itself is asked, and not among the plans above: "+
			"%s. What an earlier page said of them follows.\n", strings.Join(g.byAgent, ", "))
	}
	_, err = io.WriteString(w, g.text.String())
	return err
}

// add adds the section of a kept comparison, or otherwise the earlier page's section. It returns whether
// there was one.
func (o *options) add(g *page, p program, budget string, earlier map[string]string) (known bool, err error) {
	title := heading(p.name, budget)
	data, err := os.ReadFile(o.path(p, budget))
	if os.IsNotExist(err) {
		before, there := earlier[title]
		if there && strings.Contains(before, "| measured |") {
			g.byAgent = append(g.byAgent, title)
			if !strings.Contains(before, agents) {
				before = strings.Replace(before, "\n\n|", "\n\n"+agents+"\n\n|", 1)
			}
			g.text.WriteString(before)
		} else if there {
			if err := g.countRows(before); err != nil {
				return false, fmt.Errorf("read %s in %s: %w", title, o.page, err)
			}
			g.old = append(g.old, title)
			g.text.WriteString(before)
		}
		return there, nil
	}
	if err != nil {
		return false, err
	}
	var c kept
	if err := json.Unmarshal(data, &c); err != nil {
		return false, fmt.Errorf("read %s: %w", o.path(p, budget), err)
	}
	section(g, p.name, budget, &c)
	return true, nil
}

func heading(name, budget string) string { return fmt.Sprintf("%s at %s %%", name, budget) }

// earlier returns the sections of an earlier page by their headings, as they stand there.
func (o *options) earlier() (map[string]string, error) {
	sections := map[string]string{}
	if o.page == "" {
		return sections, nil
	}
	page, err := os.ReadFile(o.page)
	if err != nil {
		return nil, err
	}
	for _, text := range strings.Split(string(page), "\n## ")[1:] {
		title, _, _ := strings.Cut(text, "\n")
		sections[title] = "\n## " + strings.TrimRight(text, "\n") + "\n"
	}
	return sections, nil
}

// countRows adds a section's rows to the totals.
func (g *page) countRows(text string) error {
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) != 11 || strings.HasPrefix(line, "| manager") || strings.HasPrefix(line, "|---") {
			continue
		}
		var shares [2]float64
		for i, at := range []int{5, 8} {
			share, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(cells[at]), " %"), 64)
			if err != nil {
				return err
			}
			shares[i] = share / 100
		}
		g.count(shares[0], shares[1])
	}
	return nil
}

// count adds a plan to the totals: by how much its footprint and its step time are off, as shares.
func (g *page) count(footprint, time float64) {
	if g.rows == 0 {
		g.least, g.most = footprint, footprint
	}
	g.least, g.most = min(g.least, footprint), max(g.most, footprint)
	g.rows++
	if math.Abs(footprint) > mostFootprint {
		g.footprints++
	}
	if math.Abs(time) > mostTime {
		g.times++
	}
}

// section adds the table of a comparison.
func section(g *page, name, budget string, c *kept) {
	w := &g.text
	fmt.Fprintf(w, "\n## %s\n\n", heading(name, budget))
	if c.Impossible != "" {
		fmt.Fprintf(w, "Not possible: %s.\n", c.Impossible)
		return
	}
	simulated := map[string]trial.Row{}
	var table strings.Builder
	counted := c.Counted
	for _, r := range c.Results {
		switch {
		case r.Target == "sim" && r.Executor == "torch-eager" && r.Available:
			simulated[r.Manager] = r
		case r.Target == "live" && r.Available:
			of := counted[0]
			counted = counted[1:]
			s, there := simulated[r.Manager]
			if !there {
				continue
			}
			g.count(signed(of.Peak, r.Predicted), signed(of.StepTime, s.StepTime))
			row(&table, c, &r, &s, of)
		}
	}
	if table.Len() > 0 {
		fmt.Fprintf(w, "Virtual time on a stand-in. A step without a plan: %.2f ms described, %.2f ms "+
			"timed.\n\n", ms(c.StepTime), ms(c.Without.StepTime))
		fmt.Fprint(w, "| manager | planned, MiB | simulated | counted | off | simulated, ms | timed | "+
			"off | cause |\n|---|---:|---:|---:|---:|---:|---:|---:|---|\n", table.String())
	} else {
		fmt.Fprint(w, "No plan was carried out.\n")
	}
	writeReasons(w, &c.Comparison, "Not carried out", func(r *trial.Row) bool {
		return r.Target == "live" && !r.Available
	})
	writeReasons(w, &c.Comparison, "No plan", func(r *trial.Row) bool {
		return r.Target == "sim" && !r.Available
	})
}

// row writes one line of a table: a plan that was carried out, as simulated and as PyTorch counted it.
func row(w io.Writer, c *kept, r, s *trial.Row, of stretch) {
	footprint := off(of.Peak, r.Predicted) > mostFootprint
	time := off(of.StepTime, s.StepTime) > mostTime
	cause := ""
	if footprint || time {
		causes := r.Causes
		if time && c.Without.StepTime > 0 && off(c.Without.StepTime, c.StepTime) > mostTime {
			causes = append([]string{"a step without a plan is also off from its description"}, causes...)
		}
		cause = cmp.Or(strings.Join(causes, "; "), "not found")
	}
	beside := func(theirs, ours int64, text string) string {
		if off(ours, theirs) <= mostBeside {
			return ""
		}
		return " (" + text + ")"
	}
	counted := fmt.Sprintf("%.1f", mib(of.Peak))
	if of.Peak > c.Budget {
		counted = bold + counted + bold
	}
	fmt.Fprintf(w, "| %s | %.1f | %.1f | %s%s | %+.1f %% | %.2f | %.2f%s | %+.1f %% | %s |\n",
		r.Manager, mib(r.Predicted), mib(s.Footprint),
		counted, beside(of.Peak, r.Footprint, fmt.Sprintf("%.1f", mib(r.Footprint))),
		100*signed(of.Peak, r.Predicted), ms(s.StepTime),
		ms(of.StepTime), beside(of.StepTime, r.StepTime, fmt.Sprintf("%.2f", ms(r.StepTime))),
		100*signed(of.StepTime, s.StepTime), cause)
}

// writeReasons lists the managers that meant selects, grouped by the reason given.
func writeReasons(w io.Writer, c *trial.Comparison, what string, meant func(*trial.Row) bool) {
	var reasons []string
	by := map[string][]string{}
	for i := range c.Results {
		r := &c.Results[i]
		if !meant(r) {
			continue
		}
		if by[r.Reason] == nil {
			reasons = append(reasons, r.Reason)
		}
		by[r.Reason] = append(by[r.Reason], r.Manager)
	}
	for _, reason := range reasons {
		names := strings.Join(by[reason], ", ")
		fmt.Fprintf(w, "\n%s: %s: %s.\n", what, names, strings.TrimSuffix(reason, "."))
	}
}

func signed(got, want int64) float64 {
	if want == 0 {
		return math.Inf(1)
	}
	return float64(got)/float64(want) - 1
}

func off(got, want int64) float64 { return math.Abs(signed(got, want)) }
func mib(n int64) float64         { return float64(n) / (1 << 20) }
func ms(n int64) float64          { return float64(n) / 1e6 }
