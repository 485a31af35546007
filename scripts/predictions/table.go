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

// opening and head surround the totals. head has one blank, for the machine's rates.
const (
	opening = `# Predictions

Does a plan take the memory and the time that gmemtop predicts? Here PyTorch itself carries out each plan on
the stand-in GPU, in virtual time. Nothing is computed, and no figure on this page is from a card.

`
	head = `
Written by

    go run ./scripts/predictions -python PYTHON -packages DIR -sources DIR > docs/predictions.md

Each program trains on the stand-in, and ` + "`gmemtop compare --target live:`" + ` carries plans out in
it, at 80, 60 and 40 %% of the peak of a step without a plan. The stand-in's clock, which shares no code with
the simulator, says how long a step took. milesial-unet and kuangliu-cifar are networks of public
repositories, trained as their scripts do: milesial/Pytorch-UNet 21d7850f, kuangliu/pytorch-cifar 49b7aa97.

| column | meaning |
|---|---|
| planned | the peak of what the plan allocates |
| simulated | the arena that the plan's tensors are placed in; the step time that the simulator predicts |
| counted | PyTorch's torch.cuda.max_memory_allocated over a step, the highest of three |
| timed | the time between two events at the ends of a step, the median of the same three |
| cause | why planned and counted are more than 3 %% apart, or simulated and timed more than 7 %% |

Three steps run under each plan before the three that count. Managers state no step times of their own.
scripts/predictions/counted.py, inside the training, writes down what is counted and timed. It asks gmemtop's
agent only for the number of the plan. Where the agent's own figure is more than 1 %% away, it follows in
parentheses.

A plan counts the sizes of its tensors, rounded up to 512 bytes. PyTorch may hand out a larger block and count
all of it, where less than 1 MiB would be left over. So it usually counts a little more than was planned, and
a plan that just fits may exceed its budget by that much: such figures are in bold. A plan that is predicted
to need more than the budget is not carried out.

The machine: the stand-in's default model, with ` + "`%s`" + `
(nanoseconds, and bytes per nanosecond). The simulator knows the link's rates and latency, as from a
calibration on a card, and takes the times of ops from a step that was described.

An error in the simulator would show. Copies at double speed, forgotten waits, a missing launch gap, and
copies that do not slow each other down in opposite directions each move its step time more than 7 %% away
from the clock's; without them, in the same test, it is within 0.1 %%. A single forgotten wait may move it by
less.
(` + "`TestErrorsOfTheSimulatorShowAsDisagreement`" + `)
`
)

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
	rows, footprints, times int                 // plans carried out; those further off than the limits
	causes                  []string            // of these, as "vgg16 at 80 %, sqrt: why"
	least, most             float64             // counted above planned, as a share
	old, byAgent            []string            // comparisons of the earlier page; by the agent's figures
	missing                 map[string][]string // programs, by the budgets at which they have no results
}

func (o *options) write(w io.Writer) error {
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
	fmt.Fprintf(w, opening+"Of %d plans carried out, %d are within 3 %% of the planned footprint and "+
		"%d within 7 %% of the simulated\nstep time. What PyTorch counted is %+.1f to %+.1f %% from what "+
		"was planned, and above the budget under %d.\n", g.rows, g.rows-g.footprints, g.rows-g.times,
		100*g.least, 100*g.most, strings.Count(g.text.String(), "| "+bold))
	if len(g.causes) > 0 {
		fmt.Fprintf(w, "\nThe others:\n\n- %s\n", strings.Join(g.causes, "\n- "))
	}
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
	fmt.Fprintf(w, head, rates())
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
			if err := g.countRows(title, before); err != nil {
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
func (g *page) countRows(where, text string) error {
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
		g.count(shares[0], shares[1], where+", "+strings.TrimSpace(cells[1])+": "+strings.TrimSpace(cells[9]))
	}
	return nil
}

// count adds a plan to the totals: by how much its footprint and its step time are off, as shares, and the
// line for the summary if that is too much.
func (g *page) count(footprint, time float64, line string) {
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
	if math.Abs(footprint) > mostFootprint || math.Abs(time) > mostTime {
		g.causes = append(g.causes, line)
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
			cause := row(&table, c, &r, &s, of)
			g.count(signed(of.Peak, r.Predicted), signed(of.StepTime, s.StepTime),
				heading(name, budget)+", "+r.Manager+": "+cause)
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

// row writes one line of a table: a plan that was carried out, as simulated and as PyTorch counted it. It
// returns the cause of a large difference, "" if there is none.
func row(w io.Writer, c *kept, r, s *trial.Row, of stretch) string {
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
	return cause
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
