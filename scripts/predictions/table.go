package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/gmemtop/gmemtop/scripts/internal/trial"
)

const head = `# Predictions

Virtual time on a stand-in: no figure of this page is a card's. Written by

    go run ./scripts/predictions -python PYTHON -packages DIR > docs/predictions.md

Each program trains on the stand-in, and
` + "`gmemtop compare --target live:`" + ` carries plans out in it at 80,
60 and 40 % of what a step holds at its peak without a plan. PyTorch itself carries out each plan; the
stand-in's clock, which shares nothing with the simulator, says how long that took. Nothing is computed.

*Planned* is the peak of what the plan says is allocated, *simulated* the top of its placed arena,
*measured* the peak that PyTorch allocated. Managers state no step time of their own: it is the simulator's,
beside the measured one. Measured under a plan, a step is the median of three. A cause is given where measured
and planned footprint differ by more than 3 %, or step times by more than 7 %.

The machine: the stand-in's default model, and ` + "`" + rates + "`" + `
(nanoseconds, and bytes a nanosecond). The simulator has a built-in preset, whose shares, link and
latencies differ from these.
`

const (
	mostFootprint = 0.03
	mostTime      = 0.07
)

func (o *options) write(w io.Writer) error {
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	var without []string
	rows, footprints, times := 0, 0, 0
	var text strings.Builder
	for _, p := range programs {
		for _, budget := range budgets {
			data, err := os.ReadFile(o.path(p, budget))
			if os.IsNotExist(err) {
				without = append(without, p.name+" at "+budget+" %")
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
	}
	fmt.Fprintf(w, "\nOf %d plans carried out, %d are more than 3 %% off in footprint and %d more than "+
		"7 %% in step time.\n", rows, footprints, times)
	if len(without) > 0 {
		fmt.Fprintf(w, "\nNot measured: %s.\n", strings.Join(without, ", "))
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// section writes a table and returns its rows, and how many are off in footprint and in time.
func section(w io.Writer, name, budget string, c *trial.Comparison) (rows, footprints, times int) {
	fmt.Fprintf(w, "\n## %s at %s %%\n\n", name, budget)
	if c.Impossible != "" {
		fmt.Fprintf(w, "Not possible: %s.\n", c.Impossible)
		return 0, 0, 0
	}
	simulated := map[string]trial.Row{}
	refused := map[string][]string{}
	var table strings.Builder
	for _, r := range c.Results {
		switch {
		case r.Target == "sim" && r.Executor == "torch-eager" && r.Available:
			simulated[r.Manager] = r
		case r.Target == "live" && !r.Available:
			refused[r.Reason] = append(refused[r.Reason], r.Manager)
		case r.Target == "live":
			s, there := simulated[r.Manager]
			if !there {
				continue
			}
			rows++
			f, t := off(r.Footprint, r.Predicted), off(r.StepTime, s.StepTime)
			cause := strings.Join(r.Causes, "; ")
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
			if r.Before > 0 && simulated[""].StepTime == 0 {
				simulated[""] = trial.Row{StepTime: r.Before}
			}
		}
	}
	if rows > 0 {
		fmt.Fprintf(w, "Virtual time on a stand-in. A step without a plan: %.2f ms described, %.2f ms "+
			"measured.\n\n", ms(c.StepTime), ms(simulated[""].StepTime))
		fmt.Fprint(w, "| manager | planned, MiB | simulated | measured | off | simulated, ms | measured | "+
			"off | cause |\n|---|---:|---:|---:|---:|---:|---:|---:|---|\n", table.String())
	} else {
		fmt.Fprint(w, "No plan was carried out.\n")
	}
	for _, r := range c.Results {
		if list := refused[r.Reason]; r.Target == "live" && !r.Available && list != nil {
			fmt.Fprintf(w, "\nNot carried out: %s: %s.\n", strings.Join(list, ", "), r.Reason)
			delete(refused, r.Reason)
		}
	}
	return rows, footprints, times
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
