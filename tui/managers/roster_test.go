package managers

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/traces"
)

// some are managers of which two are on; chain serves all but the last.
func some() (roster, *plan.Problem) {
	p := plantest.Chain(4, 1<<20, 1e6)
	p.Kind = traces.Accesses
	return newRoster([]Manager{
		{Info: plan.Info{Name: "caching", Family: plan.Baseline, Needs: traces.Lifetimes}, On: true},
		{Info: plan.Info{Name: "swap", Family: plan.Swapping, Needs: traces.Accesses}},
		{Info: plan.Info{Name: "swift", Family: plan.Swapping, Needs: traces.Accesses, Ours: true}, On: true},
		{Info: plan.Info{Name: "re-run", Family: plan.Recomputing, Needs: traces.Dataflow}},
	}), p
}

func called(name string) *manager { return &manager{Manager: Manager{Info: plan.Info{Name: name}}} }

func TestARosterGivesEveryManagerAToneOfItsOwn(t *testing.T) {
	r, _ := some()
	var tones []int
	for i := range r {
		tones = append(tones, r[i].series)
	}
	if want := []int{1, 2, 0, 3}; !slices.Equal(tones, want) { // ours chooses first
		t.Errorf("the tones are %v, want %v", tones, want)
	}
}

func TestARosterKnowsWhichManagersAreOn(t *testing.T) {
	r, p := some()
	for _, c := range []struct {
		do       func()
		serving  []string
		baseline int
	}{
		{func() {}, []string{"caching", "swift"}, 0},
		{func() { r[0].on = false }, []string{"swift"}, -1},
		{r.toggleAll, []string{"caching", "swap", "swift"}, 0},
		{r.toggleAll, []string{"caching", "swift"}, 0},
	} {
		c.do()
		if got := r.serving(p); !slices.Equal(got, c.serving) || r.baseline() != c.baseline {
			t.Errorf("%v serve, the baseline is %d; want %v, %d", got, r.baseline(), c.serving, c.baseline)
		}
	}
}
