package autopsy

import "testing"

// Advice and lever ask for the same if they say so, however they are worded.
func TestAnAdviceThatItsLeverRepeatsStandsOnce(t *testing.T) {
	const advice, text, reason = "take chunks of the loss", "compute the loss in 8 chunks: 2 GiB are logits",
		"2 GiB are logits"
	l := Lever{Text: text, asks: chunkLoss, reason: reason}
	for asks, want := range map[asked]string{
		chunkLoss:        advice + ": " + reason,
		"":               advice + "; " + text,
		"smaller_models": advice + "; " + text,
	} {
		if got := advised(advice, asks, &l); got != want {
			t.Errorf("asking for %q: %q, want %q", asks, got, want)
		}
	}
	plain := Lever{Text: text}
	if got, want := advised(advice, "", &plain), advice+"; "+text; got != want {
		t.Errorf("nothing in common: %q, want %q", got, want)
	}
}
