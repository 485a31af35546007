package report

import "testing"

func TestIterationsOfADiffAreOneNumberOrTwo(t *testing.T) {
	for text, want := range map[string][2]string{
		"": {}, "2": {"2", "2"}, "it2": {"2", "2"}, "1,3": {"1", "3"}, " it1 , it3": {"1", "3"},
	} {
		if got, err := ParseIterations(text); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"x", "-1", "1,", "1,2,3", "1.5"} {
		if got, err := ParseIterations(text); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}
