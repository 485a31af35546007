package joint_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

var update = flag.Bool("update", false, "write the tables again")

// a mebibyte takes this long on the link of plantest, and an op that the text gives time 1 a hundred
// nanoseconds longer
const unit = 976_662

// TestDecisionsAreAsInTestdata plans small problems, given as text, within budgets in mebibytes. A line is an
// op: its name, followed by "!" if it cannot be rerun, its time, what it reads, ">", what it writes. Sizes in
// mebibytes follow a colon at the first mention. "link 3" makes copies three times as slow.
func TestDecisionsAreAsInTestdata(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var p *plan.Problem
			for i := range a.Files {
				f := &a.Files[i]
				if f.Name == "problem" {
					p = parse(t, string(f.Data))
					continue
				}
				got := decisions(t, p, number(t, strings.TrimPrefix(f.Name, "budget ")))
				if *update {
					f.Data = []byte(got)
				} else if got != string(f.Data) {
					t.Errorf("%s gives\n%sinstead of\n%s", f.Name, got, f.Data)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func parse(t *testing.T, text string) *plan.Problem {
	b := plantest.New()
	known := map[string]plan.BufferID{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if words[0] == "link" {
			b.P.Hardware.D2H.BytesPerSecond /= number(t, words[1])
			b.P.Hardware.H2D = b.P.Hardware.D2H
			continue
		}
		var touched [2][]plan.BufferID
		side := 0
		for _, w := range words[2:] {
			if w == ">" {
				side = 1
				continue
			}
			name, size, ok := strings.Cut(w, ":")
			if ok {
				known[name] = b.Buffer(name, int64(number(t, size)*(1<<20)), timeline.Activation)
			}
			touched[side] = append(touched[side], known[name])
		}
		name, fixed := strings.CutSuffix(words[0], "!")
		id := b.Op(name, traces.PhaseForward, int64(number(t, words[1])*unit), touched[0], touched[1])
		b.P.Ops[id].Rerunnable = !fixed
	}
	return b.End()
}

func decisions(t *testing.T, p *plan.Problem, budget float64) string {
	pl, err := joint.Joint{}.Plan(context.Background(), p, request(int64(budget*(1<<20))))
	if err != nil {
		return err.Error() + "\n"
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Error(err)
	}
	var out strings.Builder
	slices.SortStableFunc(pl.Absences, func(a, b plan.Absence) int { return cmp.Compare(a.After, b.After) })
	for _, x := range pl.Absences {
		fmt.Fprintf(
			&out,
			"%-9s %s behind %s, released before %s, back before %s for %s\n",
			x.How,
			p.Buffers[x.Buffer].Name,
			p.Ops[x.After].Name,
			p.Ops[x.Release].Name,
			p.Ops[x.Fetch].Name,
			p.Ops[x.Before].Name,
		)
	}
	for _, r := range pl.Reruns {
		fmt.Fprintf(&out, "before %s again:", p.Ops[r.Before].Name)
		for _, o := range r.Ops {
			fmt.Fprintf(&out, " %s", p.Ops[o].Name)
		}
		out.WriteString("\n")
	}
	m := measure(t, p, pl)
	fmt.Fprintf(
		&out,
		"footprint %.4g MiB, step %.2f, bound %.2f, stall %.2f\n",
		float64(pl.Footprint)/(1<<20),
		float64(m.StepTime)/unit,
		float64(pl.StepBound)/unit,
		float64(m.Stall)/unit,
	)
	return out.String()
}
