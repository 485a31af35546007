package swap

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

var update = flag.Bool("update", false, "write the tables again")

// parseProblem reads a problem, one thing a line, sizes in MiB, times in ms:
//
//	buffer NAME SIZE | persistent NAME SIZE | state NAME SIZE
//	op NAME PHASE CLASS TIME [reads A B] [writes C] [mutates D]
//	variants NAME:TIME:WORKSPACE ...        of the op above
func parseProblem(t testing.TB, text string) *plan.Problem {
	t.Helper()
	b := plantest.New()
	ids := map[string]plan.BufferID{}
	number := func(s string) int64 {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "buffer":
			ids[f[1]] = b.Buffer(f[1], number(f[2])<<20, timeline.Activation)
		case "persistent":
			ids[f[1]] = b.Persistent(f[1], number(f[2])<<20, timeline.Parameter)
		case "state":
			ids[f[1]] = b.Persistent(f[1], number(f[2])<<20, timeline.OptimizerState)
		case "op":
			touched := map[string][]plan.BufferID{}
			kind := ""
			for _, w := range f[5:] {
				if id, ok := ids[w]; ok {
					touched[kind] = append(touched[kind], id)
				} else {
					kind = w
				}
			}
			phase := map[string]traces.Phase{"forward": traces.PhaseForward,
				"backward": traces.PhaseBackward, "optimizer": traces.PhaseOptimizer}[f[2]]
			id := b.Op(f[1], phase, number(f[4])*1e6, touched["reads"], touched["writes"])
			b.P.Ops[id].Module = ""
			for _, m := range touched["mutates"] {
				b.Mutate(m)
			}
			for c := plan.ClassOther; c <= plan.ClassOptimizer; c++ {
				if c.String() == f[3] {
					b.P.Ops[id].Class = c
				}
			}
		case "variants":
			op := plan.OpID(len(b.P.Ops) - 1)
			for _, v := range f[1:] {
				x := strings.Split(v, ":")
				b.P.Ops[op].Variants = append(b.P.Ops[op].Variants,
					plan.Variant{Name: x[0], Duration: number(x[1]) * 1e6, Workspace: number(x[2]) << 20})
			}
			w := b.Buffer(b.P.Ops[op].Name+".workspace", b.P.Ops[op].Variants[0].Workspace,
				timeline.Temporary)
			b.P.Ops[op].Workspace, b.P.Ops[op].Duration = w, b.P.Ops[op].Variants[0].Duration
			b.P.Buffers[w].Start, b.P.Buffers[w].End = op, op+1
		default:
			t.Fatalf("what is %q", line)
		}
	}
	for i := range b.P.Ops {
		// End would take it for a buffer that nothing touches
		if w := b.P.Ops[i].Workspace; w != plan.NoBuffer {
			b.P.Accesses = append(b.P.Accesses, b.P.Accesses[b.P.Ops[i].First:b.P.Ops[i].End]...)
			n := b.P.Ops[i].End - b.P.Ops[i].First
			b.P.Accesses = append(b.P.Accesses, plan.Access{Buffer: w, Mode: plan.Write})
			b.P.Ops[i].First, b.P.Ops[i].End = int32(len(b.P.Accesses))-n-1, int32(len(b.P.Accesses))
		}
	}
	return b.End()
}

// table shows a plan's decisions by the names of ops and buffers.
func table(t testing.TB, p *plan.Problem, pl *plan.Plan) string {
	t.Helper()
	got, err := sim.Simulator{}.Evaluate(t.Context(), p, pl)
	if err != nil {
		t.Fatal(err)
	}
	q, err := pl.Of(p)
	if err != nil {
		t.Fatal(err)
	}
	at := func(i plan.OpID) string {
		if int(i) == len(q.Ops) {
			return "end"
		}
		return q.Ops[i].Name
	}
	var b strings.Builder
	for i := range q.Buffers {
		if x := &q.Buffers[i]; x.Life != p.Buffers[i].Life {
			fmt.Fprintf(&b, "%s: in before %s, out behind %s, waited for\n", x.Name, at(x.Start), at(x.End-1))
		}
	}
	for _, x := range pl.Absences {
		fmt.Fprintf(&b, "%s: out behind %s, free before %s, in before %s, needed by %s",
			q.Buffers[x.Buffer].Name, at(x.After), at(x.Release), at(x.Fetch), at(x.Before))
		for _, f := range []struct {
			on   bool
			word string
		}{{x.Blocking, "waited for"}, {x.Paced, "paced"}, {x.Joined > 0, "joined before " + at(x.Joined)}} {
			if f.on {
				b.WriteString(", " + f.word)
			}
		}
		b.WriteString("\n")
	}
	for i, v := range pl.Variants {
		if len(q.Ops[i].Variants) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", q.Ops[i].Name, q.Ops[i].Variants[v].Name)
		}
	}
	fmt.Fprintf(&b, "footprint %.1f MiB, step %.1f ms, stall %.1f ms\n", float64(pl.Footprint)/(1<<20),
		float64(got.StepTime)/1e6, float64(got.Stall)/1e6)
	for _, n := range pl.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

// Each file of testdata is a problem and what managers decide about it; a table's name is the manager's with
// the budget in MiB.
func TestDecisionsAreAsInTestdata(t *testing.T) {
	managers := map[string]plan.Manager{}
	for _, m := range All() {
		managers[m.Info().Name] = m
	}
	parse := func(t *testing.T, text string) *plan.Problem { return parseProblem(t, text) }
	plantest.Cases(t, *update, parse, func(t *testing.T, p *plan.Problem, question string) string {
		name, mib, limited := strings.Cut(question, " ")
		budget, err := strconv.ParseInt(mib, 10, 64)
		if limited && err != nil {
			t.Fatal(err)
		}
		m := managers[name]
		if m == nil {
			t.Fatalf("no manager %q", name)
		}
		pl, err := m.Plan(t.Context(), p, plan.Request{Budget: budget << 20, Evaluator: sim.Simulator{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Fatal(err)
		}
		return table(t, p, pl)
	})
}
