package replay

import "testing"

func TestTheDistanceToABoundIsSaidInWholeWords(t *testing.T) {
	for gap, want := range map[float64]string{
		0: "at the bound", 3e-7: "at the bound", 0.0004: "within 0.04 % of the bound",
		0.043: "within 4.3 % of the bound", 0.996: "within 100 % of the bound",
		2.5: "within 250 % of the bound",
	} {
		if got := Near(gap); got != want {
			t.Errorf("%v is said as %q, want %q", gap, got, want)
		}
	}
}
