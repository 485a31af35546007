package live

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
)

// A graph crosses from one step into the next: what was saved in the one is loaded in the other. Saves and
// loads are written with the tensor's letter: +a -a, steps apart by |.
func TestWhatAStepLoadsOfAGraphThatCrossesIntoItIsNotItsOwn(t *testing.T) {
	for _, c := range []struct {
		what, steps, alike, numbered string
		crosses                      bool
	}{
		{"nothing crosses", "+a +b -b -a | +a +b -b -a", "+a +b -b -a | +a +b -b -a", "+a +b -b -a", false},
		{"not described before", "-x +a -a +x | -x +a -a +x", "+a -a +x | +a -a +x", "+a -a +x", true},
		{"nobody saw it saved", "+a -a +x | -x +a -a +x", "+a -a +x | +a -a +x", "+a -a +x", true},
		{"its input is saved in both", "+f -f +f | +f -f -f +f", "+f -f +f | +f -f +f", "+f -f +f", false},
		{"a graph that is kept", "+a -a -a | +a -a -a", "+a -a | +a -a", "+a -a -a", false},
	} {
		tr := &traces.Trace{Strings: []string{"", plan.SaveOp, plan.LoadOp}}
		for k, step := range strings.Split(c.steps, " | ") {
			begin := int64(k * 1000)
			mark := traces.Mark{Kind: traces.MarkIteration, Start: begin, End: begin + 1000}
			tr.Marks = append(tr.Marks, mark)
			for n, word := range strings.Fields(step) {
				name := traces.StringID(1)
				if word[0] == '-' {
					name = 2
				}
				touch := traces.Access{Op: traces.OpID(len(tr.Ops)), Addr: uint64(word[1])}
				tr.Accesses = append(tr.Accesses, touch)
				tr.Ops = append(tr.Ops, traces.Op{Name: name, Start: begin + int64(n)})
			}
		}
		own := func(m traces.Mark, rest bool) string {
			var words []string
			for _, i := range ownOps(tr, m, rest) {
				sign := map[traces.StringID]string{1: "+", 2: "-"}[tr.Ops[i].Name]
				words = append(words, fmt.Sprintf("%s%c", sign, rune(tr.Accesses[i].Addr)))
			}
			return strings.Join(words, " ")
		}
		got := own(tr.Marks[0], false) + " | " + own(tr.Marks[1], false)
		if last := own(tr.Marks[1], true); got != c.alike || last != c.numbered {
			t.Errorf("%s: compared are %s, want %s; numbered %s, want %s", c.what, got, c.alike, last,
				c.numbered)
		}
		if crosses(tr) != c.crosses {
			t.Errorf("%s: that it crosses is %v", c.what, !c.crosses)
		}
		if err := alike(tr); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// A training loop keeps a step's output until it has the next one: for a while both exist. Only the program
// knows what existed when the first step began, so the last step is planned, however many there are.
func TestWhatAStepTakesOverFromTheOneBeforeIsPlannedFor(t *testing.T) {
	for steps := 2; steps <= 3; steps++ {
		p, err := problem(t.Context(), handedOver(t, steps), Hardware{})
		if err != nil {
			t.Fatal(err)
		}
		const want = "buffer lives longer than an iteration, and is there twice for a part of it"
		last := fmt.Sprintf("planned for step %d, one of %d in the recording", steps, steps)
		notes := strings.Join(p.Notes, "\n")
		if !strings.Contains(notes, want) || !strings.Contains(notes, last) {
			t.Errorf("of the last of %d steps it says %q", steps, notes)
		}
	}
}

// handedOver is a recording of steps that each keep their output until the next one has its own.
func handedOver(t *testing.T, steps int) *traces.Trace {
	t.Helper()
	const mib = 1 << 20
	var b strings.Builder
	var marks []string
	for step := range steps {
		marks = append(marks, fmt.Sprintf("[%d,%d]", step*40_000_000, (step+1)*40_000_000))
	}
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cpu","pid":7,"rank":-1,`+
		`"world_size":-1,"epoch_ns":1,"steps":[%s]}`, strings.Join(marks, ","))
	line(`{"k":"alloc","id":1,"size":%d,"addr":%d,"t":0,"category":"parameter","on":"cpu"}`, mib, mib)
	for step := range steps {
		begin, id := step*40_000_000, 10+step
		op := func(after int, name string, r, w int) {
			line(`{"k":"op","t":%d,"d":1000000,"name":%q,"phase":"forward","module":"head","r":[%d],`+
				`"w":[%d],"m":[],"rerun":true}`, begin+after, name, r, w)
		}
		line(`{"k":"alloc","id":%d,"size":%d,"addr":%d,"t":%d,"category":"activation","on":"cpu"}`, id, mib,
			id<<21, begin+1_500_000)
		op(2_000_000, "aten::mm", 1, id)
		if step > 0 {
			line(`{"k":"free","id":%d,"t":%d}`, id-1, begin+4_000_000)
		}
		line(`{"k":"alloc","id":%d,"size":%d,"addr":%d,"t":%d,"category":"temporary","on":"cpu"}`, id+10,
			3*mib, id<<28, begin+5_500_000)
		op(6_000_000, "aten::cat", id, id+10)
		line(`{"k":"free","id":%d,"t":%d}`, id+10, begin+8_000_000)
		op(9_000_000, "aten::relu_", id, id)
	}
	tr, err := described.Read(t.Context(), strings.NewReader(b.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}
