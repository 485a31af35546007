package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/traces"
)

// An iteration's phases by letter: f forward, b backward, o optimizer, - unknown.
func TestPairsOfForwardAndBackwardPasses(t *testing.T) {
	for _, c := range []struct{ phases, want string }{
		{"", ""},
		{"ffff", ""},
		{"--ffo", ""},
		{"b", "0-0-1"},
		{"ffbb", "0-2-4"},
		{"-f-bbo", "0-3-6"},
		{"ffb-boffbbo", "0-2-6 6-8-11"},
		{"fbfbfb", "0-1-2 2-3-4 4-5-6"},
		{"fffbbb", "0-3-6"},
		{"fb-b-bo", "0-1-7"},
		{"fbboff", "0-1-6"},
	} {
		b := plantest.New()
		for _, letter := range c.phases {
			b.Op("op", map[rune]traces.Phase{'f': traces.PhaseForward, 'b': traces.PhaseBackward,
				'o': traces.PhaseOptimizer}[letter], 1, nil, nil)
		}
		p := b.P
		var got []string
		for _, x := range p.Pairs() {
			got = append(got, fmt.Sprintf("%d-%d-%d", x.Begin, x.Turn, x.End))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%q has the pairs %q, not %q", c.phases, got, c.want)
		}
		for i := range p.Ops {
			if pairs := p.Pairs(); len(pairs) > 0 {
				x := plan.PairAt(pairs, plan.OpID(i))
				if int(x.Begin) > i || i >= int(x.End) || x.Turn < x.Begin || x.Turn >= x.End {
					t.Errorf("%q: op %d is in the pair %+v", c.phases, i, x)
				}
			}
		}
	}
}
