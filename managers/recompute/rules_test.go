package recompute

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

var update = flag.Bool("update", false, "write what the managers decide into the txtar files")

// TestRules runs the cases in testdata: a problem as text, a manager with its budget, and what it decides as
// a table. A line of a problem is an op:
//
//	name duration [!] [read...] -> [written:bytes...] [~changed...]
//
// "backward" begins the backward pass, "!" marks an op that cannot run again.
func TestRules(t *testing.T) {
	plantest.Cases(t, *update, parse, func(t *testing.T, p *plan.Problem, question string) string {
		name, bytes, _ := strings.Cut(question, " ")
		budget, err := strconv.ParseInt(bytes, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return table(t, p, name, budget)
	})
}

func parse(t *testing.T, text string) *plan.Problem {
	t.Helper()
	b := plantest.New()
	phase := traces.PhaseForward
	ids := map[string]plan.BufferID{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if words[0] == "backward" && len(words) == 1 {
			phase = traces.PhaseBackward
			continue
		}
		duration, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		var reads, writes, changed []plan.BufferID
		fixed, behind := false, false
		for _, w := range words[2:] {
			switch name, size, sized := strings.Cut(w, ":"); {
			case w == "!":
				fixed = true
			case w == "->":
				behind = true
			case strings.HasPrefix(w, "~"):
				changed = append(changed, ids[w[1:]])
			case behind && sized:
				n, err := strconv.ParseInt(size, 10, 64)
				if err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				c := timeline.Activation
				if phase == traces.PhaseBackward {
					c = timeline.AutogradDetail
				}
				ids[name] = b.Buffer(name, n, c)
				writes = append(writes, ids[name])
			default:
				reads = append(reads, ids[name])
			}
		}
		id := b.Op(words[0], phase, duration, reads, writes)
		for _, x := range changed {
			b.Mutate(x)
		}
		if fixed {
			b.P.Ops[id].Rerunnable = false
		}
	}
	return b.End()
}

// table writes what a manager decides.
func table(t *testing.T, p *plan.Problem, name string, budget int64) string {
	t.Helper()
	for _, m := range All() {
		if m.Info().Name != name {
			continue
		}
		pl, err := m.Plan(context.Background(), p, plan.Request{Budget: budget})
		if err != nil {
			return err.Error() + "\n"
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Error(err)
		}
		var s strings.Builder
		peak, _ := p.PeakLive()
		fmt.Fprintf(&s, "peak %d, footprint %d\n", peak, pl.Footprint)
		for _, x := range pl.Absences {
			fmt.Fprintf(&s, "%s %s behind %s, back at %s\n", x.How, p.Buffers[x.Buffer].Name,
				p.Ops[x.Release-1].Name, p.Ops[x.Fetch].Name)
		}
		for _, r := range pl.Reruns {
			fmt.Fprintf(&s, "before %s run", p.Ops[r.Before].Name)
			for _, o := range r.Ops {
				fmt.Fprintf(&s, " %s", p.Ops[o].Name)
			}
			s.WriteString("\n")
		}
		return s.String()
	}
	t.Fatalf("no manager %q", name)
	return ""
}
