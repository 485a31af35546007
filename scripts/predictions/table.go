package main

import (
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

*Planned* is the peak of what the plan says is allocated, *simulated* the top of its placed arena, *measured*
the peak of a step that the agent described, op by op, while PyTorch carried the plan out. Managers state no
step time of their own: it is the simulator's, beside the measured one. Measured under a plan, a step is the
median of three. A cause is given where measured and planned footprint differ by more than 3 %%, or step
times by more than 7 %%.

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
)

func (o *options) write(w io.Writer) error {
	if _, err := fmt.Fprintf(w, head, rates()); err != nil {
		return err
	}
	earlier, err := o.earlier()
	if err != nil {
		return err
	}
	var old []string                 // comparisons of the earlier page
	missing := map[string][]string{} // programs, by the budgets at which nothing is kept of them
	rows, footprints, times := 0, 0, 0
	var text strings.Builder
	for _, p := range programs {
		var without []string
		for _, budget := range budgets {
			data, err := os.ReadFile(o.path(p, budget))
			if os.IsNotExist(err) {
				title := heading(p.name, budget)
				before, there := earlier[title]
				if !there {
					without = append(without, budget)
					continue
				}
				old = append(old, title)
				text.WriteString(before)
				r, f, t, err := countRows(before)
				if err != nil {
					return fmt.Errorf("read %s in %s: %w", title, o.page, err)
				}
				rows, footprints, times = rows+r, footprints+f, times+t
				continue
			}
			if err != nil {
				return err
			}
			var c trial.Comparison
			if err := json.Unmarshal(data, &c); err != nil {
				return fmt.Errorf("read %s: %w", o.path(p, budget), err)
			}
			r, f, t := section(&text, p.name, budget, &c)
			rows, footprints, times = rows+r, footprints+f, times+t
		}
		if at := strings.Join(without, ", "); at != "" {
			missing[at] = append(missing[at], p.name)
		}
	}
	fmt.Fprintf(w, "\nOf %d plans carried out, %d are more than 3 %% off in footprint and %d more than "+
		"7 %% in step time.\n", rows, footprints, times)
	for _, at := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintf(w, "\nNot measured at %s %%: %s.\n", at, strings.Join(missing[at], ", "))
	}
	if len(old) > 0 {
		fmt.Fprintf(w, "\nTaken over from an earlier page: %s.\n", strings.Join(old, ", "))
	}
	_, err = io.WriteString(w, text.String())
	return err
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

// countRows returns how many rows a section has, and how many of them are off in footprint and in time.
func countRows(text string) (rows, footprints, times int, err error) {
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) != 11 || strings.HasPrefix(line, "| manager") || strings.HasPrefix(line, "|---") {
			continue
		}
		rows++
		for _, at := range []struct {
			cell int
			most float64
			n    *int
		}{{5, mostFootprint, &footprints}, {8, mostTime, &times}} {
			share, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(cells[at.cell]), " %"), 64)
			if err != nil {
				return 0, 0, 0, err
			}
			if math.Abs(share)/100 > at.most {
				*at.n++
			}
		}
	}
	return rows, footprints, times, nil
}

// section writes a table and returns its rows, and how many are off in footprint and in time.
func section(w io.Writer, name, budget string, c *trial.Comparison) (rows, footprints, times int) {
	fmt.Fprintf(w, "\n## %s\n\n", heading(name, budget))
	if c.Impossible != "" {
		fmt.Fprintf(w, "Not possible: %s.\n", c.Impossible)
		return 0, 0, 0
	}
	simulated := map[string]trial.Row{}
	var table strings.Builder
	var without int64 // what a step takes that nobody describes
	for _, r := range c.Results {
		switch {
		case r.Target == "sim" && r.Executor == "torch-eager" && r.Available:
			simulated[r.Manager] = r
		case r.Target == "live" && r.Available:
			s, there := simulated[r.Manager]
			if !there {
				continue
			}
			rows++
			f, t := off(r.Footprint, r.Predicted), off(r.StepTime, s.StepTime)
			causes := r.Causes
			if t > mostTime && r.Before > 0 && off(r.Before, c.StepTime) > mostTime {
				causes = append([]string{"a step without a plan is also off from its description"}, causes...)
			}
			cause := strings.Join(causes, "; ")
			if f > mostFootprint {
				footprints++
			}
			if t > mostTime {
				times++
			}
			switch {
			case f <= mostFootprint && t <= mostTime:
				cause = ""
			case cause == "":
				cause = "not found"
			}
			fmt.Fprintf(&table, "| %s | %.1f | %.1f | %.1f | %+.1f %% | %.2f | %.2f | %+.1f %% | %s |\n",
				r.Manager, mib(r.Predicted), mib(s.Footprint), mib(r.Footprint),
				100*signed(r.Footprint, r.Predicted),
				ms(s.StepTime), ms(r.StepTime), 100*signed(r.StepTime, s.StepTime), cause)
			if without == 0 {
				without = r.Before
			}
		}
	}
	if rows > 0 {
		fmt.Fprintf(w, "Virtual time on a stand-in. A step without a plan: %.2f ms described, %.2f ms "+
			"measured.\n\n", ms(c.StepTime), ms(without))
		fmt.Fprint(w, "| manager | planned, MiB | simulated | measured | off | simulated, ms | measured | "+
			"off | cause |\n|---|---:|---:|---:|---:|---:|---:|---:|---|\n", table.String())
	} else {
		fmt.Fprint(w, "No plan was carried out.\n")
	}
	writeReasons(w, c, "Not carried out", func(r *trial.Row) bool {
		return r.Target == "live" && !r.Available
	})
	writeReasons(w, c, "No plan", func(r *trial.Row) bool { return r.Target == "sim" && !r.Available })
	return rows, footprints, times
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
