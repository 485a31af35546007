package live

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
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
