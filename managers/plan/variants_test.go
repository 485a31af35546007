package plan_test

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// TestAWorkspaceIsAsLargeAsItsVariantSays: every op of random problems runs once in each of its ways, and
// only its own workspace changes, to the variant's bytes.
func TestAWorkspaceIsAsLargeAsItsVariantSays(t *testing.T) {
	tried := 0
	for seed := range uint64(10) {
		p := plantest.Random(seed, 30)
		for i, op := range p.Ops {
			for k, v := range op.Variants {
				variants := make([]uint8, len(p.Ops))
				variants[i] = uint8(k)
				pl, err := plan.Assemble(p, plan.Decisions{Variants: variants})
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range pl.Instances {
					want := p.Rounded(x.Buffer)
					if x.Buffer == op.Workspace {
						want = (v.Workspace + p.Align - 1) / p.Align * p.Align
						tried++
					}
					if x.Size != want {
						t.Errorf("seed %d: with variant %d of op %d, buffer %d takes %d bytes, not %d",
							seed, k, i, x.Buffer, x.Size, want)
					}
				}
			}
		}
	}
	if tried == 0 {
		t.Error("no op had a workspace and variants")
	}
}

func TestANoteIsSaidOnce(t *testing.T) {
	var pl plan.Plan
	for _, n := range []int{1, 2, 1} {
		pl.Note("copy %d is late", n)
	}
	if want := []string{"copy 1 is late", "copy 2 is late"}; !slices.Equal(pl.Notes, want) {
		t.Errorf("the notes are %q", pl.Notes)
	}
}
