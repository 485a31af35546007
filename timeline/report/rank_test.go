package report

import "testing"

// A setting that gets one more request through does not come before the line of code that mends the cause,
// and a line of code that was tried in vain does not come first.
func TestWhatMendsTheCauseComesFirstUnlessItDoesNotHelp(t *testing.T) {
	for _, c := range []struct {
		outcome, other, want string
	}{
		{ServesRequest, ServesRequest, "sdpa"},
		{Postpones, Finishes, "sdpa"},
		{NotTried, ServesRequest, "sdpa"},
		{DoesNotHelp, ServesRequest, "expandable_segments"},
		{DoesNotHelp, DoesNotHelp, "expandable_segments"},
	} {
		d := OOMDevice{Levers: []Lever{
			{Name: "expandable_segments", Tried: &Tried{Outcome: c.other}},
			{Name: "sdpa", Mends: true, Tried: &Tried{Outcome: c.outcome}},
		}}
		d.Rank()
		if got := d.Levers[0].Name; got != c.want {
			t.Errorf("sdpa %s, expandable_segments %s: %s comes first, want %s",
				c.outcome, c.other, got, c.want)
		}
	}
}
