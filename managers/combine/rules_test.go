package combine

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

var update = flag.Bool("update", false, "write the tables again")

// TestDecisionsAreAsInTestdata plans small problems, given as text, and compares the decision for each
// buffer. A problem has one line per op: its name, how many times an op's time it takes, what it reads, ">"
// and what it writes; sizes in mebibytes follow a colon at the first mention; "!" after an op's name says
// that it cannot be rerun. A copy of a mebibyte takes as many op times as the line "link" says.
func TestDecisionsAreAsInTestdata(t *testing.T) {
	plantest.Cases(t, *update, parse, func(t *testing.T, p *plan.Problem, question string) string {
		name, size, _ := strings.Cut(question, " ")
		return table(t, p, name, number(t, size))
	})
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
	buffer := func(word string) plan.BufferID {
		name, size, ok := strings.Cut(word, ":")
		if ok {
			known[name] = b.Buffer(name, int64(number(t, size)*float64(mib)), timeline.Activation)
		}
		id, found := known[name]
		if !found {
			t.Fatalf("no size for %s", name)
		}
		return id
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 2 && words[0] == "link" {
			b.P.Hardware.D2H.BytesPerSecond /= number(t, words[1])
			b.P.Hardware.H2D = b.P.Hardware.D2H
			continue
		}
		name, rest := words[0], words[2:]
		var reads, writes []plan.BufferID
		k := slices.Index(rest, ">")
		for i, w := range rest {
			switch {
			case i < k || k < 0:
				reads = append(reads, buffer(w))
			case i > k:
				writes = append(writes, buffer(w))
			}
		}
		// A little more than opTime, so that a copy of one op's time is not a nanosecond too long for it.
		id := b.Op(strings.TrimSuffix(name, "!"), traces.PhaseForward,
			int64(number(t, words[1])*float64(opTime+100)), reads, writes)
		b.P.Ops[id].Rerunnable = !strings.HasSuffix(name, "!")
	}
	return b.End()
}

func table(t *testing.T, p *plan.Problem, name string, budget float64) string {
	for _, m := range All() {
		if m.Info().Name != name {
			continue
		}
		pl, err := m.Plan(context.Background(), p, plan.Request{Budget: int64(budget * float64(mib)), Seed: 1,
			Work: 40, Evaluator: evaluator})
		if err != nil {
			return err.Error() + "\n"
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Error(err)
		}
		var s strings.Builder
		op := func(i plan.OpID) string { return p.Ops[i].Name }
		absences := slices.Clone(pl.Absences)
		slices.SortStableFunc(absences, func(a, b plan.Absence) int { return int(a.After) - int(b.After) })
		for _, x := range absences {
			fmt.Fprintf(&s, "%-9s %s behind %s, released before %s, back before %s for %s: %s\n", x.How,
				p.Buffers[x.Buffer].Name, op(x.After), op(x.Release), op(x.Fetch), op(x.Before), x.Why)
		}
		for _, r := range pl.Reruns {
			fmt.Fprintf(&s, "before %s again:", op(r.Before))
			for _, o := range r.Ops {
				fmt.Fprintf(&s, " %s", op(o))
			}
			s.WriteString("\n")
		}
		m, err := evaluator.Evaluate(context.Background(), p, pl)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(&s, "footprint %.4g MiB, step %.4g ops, stall %.3g\n", float64(pl.Footprint)/float64(mib),
			float64(m.StepTime)/float64(opTime+100), float64(m.Stall)/float64(opTime+100))
		return s.String()
	}
	t.Fatalf("no manager %q", name)
	return ""
}
