package live

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestAPlansOrderIsTheOrderOfItsCopiesBack has a plan name its swaps in the opposite order: the process
// fetches what one load brings back in the order in which values are listed.
func TestAPlansOrderIsTheOrderOfItsCopiesBack(t *testing.T) {
	p, pl := swapsAll(t, recording(t, triedCosts))
	listed := func() (saves []int) {
		words, err := Encode(p, pl, Same)
		if err != nil {
			t.Fatal(err)
		}
		var e Rules
		if err := json.Unmarshal(words, &struct {
			Values *[]Rule `json:"values"`
		}{&e.Values}); err != nil {
			t.Fatal(err)
		}
		for _, v := range e.Values {
			saves = append(saves, v.Save)
		}
		return saves
	}
	forth := listed()
	slices.Reverse(pl.Absences)
	back := listed()
	slices.Reverse(back)
	if len(forth) < 2 || !slices.Equal(forth, back) {
		t.Errorf("a plan lists saves %v, and turned round, from its end, %v", forth, back)
	}
	pl.Absences = append(pl.Absences, pl.Absences[0])
	_, err := Encode(p, pl, Same)
	if err == nil || !strings.Contains(err.Error(), "two buffers are the same saved tensor") {
		t.Errorf("one save twice: %v", err)
	}
}

// If a recording shows no forward pass without gradients, the process leaves such passes alone. If it shows
// some, or does not say, the process counts them.
func TestEvaluationsAreLeftAloneUnlessTheRecordingHasSome(t *testing.T) {
	for head, want := range map[string]bool{
		"": false, `,"evaluates":true`: false, `,"evaluates":false`: true,
	} {
		p, pl := swapsAll(t, recording(t, triedCosts+head))
		words, err := Encode(p, pl, Same)
		if err != nil {
			t.Fatal(err)
		}
		var e struct{ Trained bool }
		if err := json.Unmarshal(words, &e); err != nil || e.Trained != want {
			t.Errorf("head %q: %v, %v, want %v", head, e.Trained, err, want)
		}
	}
}
