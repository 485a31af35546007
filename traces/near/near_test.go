package near

import (
	"math/rand/v2"
	"testing"
)

func TestAMisspelledWordIsFound(t *testing.T) {
	words := []string{"joint", "vdnn-all", "vdnn-conv", "auto", "A100-SXM4-40GB", "dtr", "y"}
	for typed, want := range map[string]string{
		"jont":           "joint",
		"JIONT":          "joint",
		"joints":         "joint",
		"vdnn-al":        "vdnn-all",
		"vdnnall":        "vdnn-all",
		"a100-smx4-40gb": "A100-SXM4-40GB",
		"dt":             "dtr",
		"point":          "joint",
		"swap":           "",
		"x":              "",
		"dot":            "",
		"":               "",
	} {
		if got := Word(typed, words); got != want {
			t.Errorf("Word(%q) is %q, want %q", typed, got, want)
		}
	}
	if got, want := Hint("jont", words), ": did you mean joint?"; got != want {
		t.Errorf("the hint is %q, want %q", got, want)
	}
	if got := Hint("swap", words); got != "" {
		t.Errorf("the hint for a word like none is %q", got)
	}
}

// The distance within its band is that of the whole table.
func TestDistanceCountsWrongLetters(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		b := make([]byte, r.IntN(9))
		for i := range b {
			b[i] = "abc"[r.IntN(3)]
		}
		return string(b)
	}
	for range 5000 {
		a, b, most := word(), word(), 1+r.IntN(Wrong)
		want := whole(a, b)
		if want > most {
			want = Wrong + 1
		}
		if got := Distance(a, b, most); got != want {
			t.Fatalf("Distance(%q, %q, %d) is %d, want %d", a, b, most, got, want)
		}
	}
}

func whole(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	if a[0] == b[0] {
		return whole(a[1:], b[1:])
	}
	least := min(whole(a[1:], b[1:]), whole(a[1:], b), whole(a, b[1:]))
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		least = min(least, whole(a[2:], b[2:]))
	}
	return 1 + least
}
