package batch_test

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// For a larger step only the sizes of what is saved for the backward pass are known. The others follow: none
// is smaller than in a step of a larger batch, and the peak is as high, up to 3 %; at another sequence
// length, too, where some parameters of these networks grow, by a ten thousandth of the total. Workspaces may
// come out larger.
func TestTheSizesOfALargerStepFollowFromWhatItSaves(t *testing.T) {
	for _, n := range networks.All() {
		small := recording(t, n.Name, 16, n.Sequence, networks.Options{}).Problem
		for _, sequence := range []int{n.Sequence, n.Sequence * 3 / 2} {
			large := recording(t, n.Name, 24, sequence, networks.Options{}).Problem
			sizesFollow(t, n.Name, small, large, sequence == n.Sequence)
		}
	}
}

func sizesFollow(t *testing.T, name string, small, large *plan.Problem, all bool) {
	t.Helper()
	known := map[plan.BufferID]int64{}
	for i := range small.Buffers {
		if small.Buffers[i].Category == timeline.Activation {
			known[plan.BufferID(i)] = large.Buffers[i].Size
		}
	}
	got, err := plan.Resized(small, known)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Buffers {
		b, want := &got.Buffers[i], &large.Buffers[i]
		if all && b.Category != timeline.Input && b.Size < want.Size {
			t.Errorf("%s: buffer %d (%s, %s) has %d bytes, want at least %d", name, i, b.Name, b.Category,
				b.Size, want.Size)
		}
	}
	works := slices.ContainsFunc(small.Ops, func(o plan.Op) bool { return o.Workspace != plan.NoBuffer })
	a, b := got.Held(), large.Held()
	if off := float64(a)/float64(b) - 1; off < -0.0005 || off > 0.03 && !works {
		t.Errorf("%s: %d bytes at the peak, and %d in the larger step (%+.1f %%)", name, a, b, 100*off)
	}
}

// Sizes that are known to be unchanged change nothing.
func TestAStepOfTheSameSizesIsTheSame(t *testing.T) {
	p := recording(t, networks.All()[0].Name, 16, networks.All()[0].Sequence, networks.Options{}).Problem
	known := map[plan.BufferID]int64{}
	for i := range p.Buffers {
		known[plan.BufferID(i)] = p.Buffers[i].Size / 2 // a smaller step changes nothing either
	}
	got, err := plan.Resized(p, known)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameSizes(got, p); err != nil {
		t.Error(err)
	}
}
