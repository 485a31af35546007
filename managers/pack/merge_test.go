package pack_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/managers/pack/packtest"
)

// TestThePiecesOfARectangleFitTogetherAgain: cut from edge to edge, at places that do not coincide, they
// leave nothing to waste; greedy passes end far above.
func TestThePiecesOfARectangleFitTogetherAgain(t *testing.T) {
	for seed := range uint64(3) {
		for _, pieces := range []int{1000, 10_000} {
			cuts := packtest.Cuts{Pieces: pieces, Width: 1 << 20, Height: 1 << 30, Even: true, Seed: seed}
			p := cuts.Problem()
			res, err := pack.Exact(t.Context(), p, pack.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := pack.Validate(p, res.Offsets); err != nil || res.Status != pack.Optimal ||
				res.Top != cuts.Height {
				t.Errorf("%+v: top %d, %v, %v", cuts, res.Top, res.Status, err)
			}
			fit, err := pack.BestFit(t.Context(), p)
			if err != nil || fit.Top < cuts.Height*5/4 {
				t.Errorf("%+v: one pass comes to %d, so this tests nothing; %v", cuts, fit.Top, err)
			}
		}
	}
}

// TestPiecesThatCoincideComeWithinFivePercent: thousands of pieces are a unit wide or high, so many merges
// are wrong.
func TestPiecesThatCoincideComeWithinFivePercent(t *testing.T) {
	cuts := packtest.Cuts{Pieces: 10_000, Width: 1 << 20, Height: 1 << 30}
	p := cuts.Problem()
	res, err := pack.Exact(t.Context(), p, pack.Options{Work: 1_200_000})
	if err != nil {
		t.Fatal(err)
	}
	if err := pack.Validate(p, res.Offsets); err != nil || res.Top > cuts.Height*105/100 {
		t.Errorf("%.4f of the bound, %v", float64(res.Top)/float64(cuts.Height), err)
	}
}
