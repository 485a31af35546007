package networks_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Gradients in place take memory from no step that reads the old ones, and no time.
func TestGradientsInPlaceSaveMemoryAndNoTime(t *testing.T) {
	t.Parallel()
	hw, err := hardware.ByName("titan-x")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range networks.All() {
		if n.Sequence > 0 {
			continue
		}
		made, err := n.Problem(16, hw, networks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := n.Problem(16, hw, networks.Options{GradientsInPlace: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Buffers) >= len(made.Buffers) || plan.LeastResident(p) > plan.LeastResident(made) {
			t.Errorf("%s: %d of %d buffers", n.Name, len(p.Buffers), len(made.Buffers))
		}
		var is, was int64
		for i := range made.Ops {
			was += made.Ops[i].Duration
		}
		for i := range p.Ops {
			is += p.Ops[i].Duration
		}
		if is != was || len(p.Ops) < len(made.Ops) {
			t.Errorf("%s: a step takes %d ns, was %d", n.Name, is, was)
		}
	}
}
