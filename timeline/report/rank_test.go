package report

import "testing"

// A setting that gets one more request through ranks after the line of code that fixes the cause, and a line
// of code that was tried in vain does not come first.
func TestALeverThatFixesTheCauseComesFirstUnlessItDoesNotHelp(t *testing.T) {
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

// For a training that is simply too large, a setting that gets one more request through ranks after levers
// that make the step need less, unless the step finishes with it.
func TestSettingsThatOnlyServeTheRequestComeLastIfTheTrainingIsTooLarge(t *testing.T) {
	for _, c := range []struct {
		cause, outcome, want string
	}{
		{"too_large", ServesRequest, "micro_batch"},
		{"too_large", Finishes, "max_split_size"},
		{"fragmentation", ServesRequest, "max_split_size"},
	} {
		setting := Lever{Name: "max_split_size", Tried: &Tried{Outcome: c.outcome}}
		setting.Effect.Setting = "max_split_size_mb:128"
		d := OOMDevice{Causes: []Cause{{Kind: c.cause, Main: true}},
			Levers: []Lever{setting, {Name: "micro_batch", Tried: &Tried{Outcome: ServesRequest}}}}
		d.Rank()
		if got := d.Levers[0].Name; got != c.want {
			t.Errorf("%s, the setting %s: %s comes first, want %s", c.cause, c.outcome, got, c.want)
		}
	}
}

// What needs another GPU ranks after what may help on this one, tried or not, and before what does not help.
func TestLeversThatNeedMoreDevicesComeAfterThoseForThisOne(t *testing.T) {
	for _, c := range []struct {
		shard, other, first string
		elsewhere           bool
	}{
		{Finishes, NotTried, "optimizer_8bit", true},
		{Finishes, NotTried, "shard_optimizer", false},
		{Finishes, DoesNotHelp, "shard_optimizer", true},
		{DoesNotHelp, NotTried, "optimizer_8bit", true},
		{DoesNotHelp, DoesNotHelp, "optimizer_8bit", true},
	} {
		d := OOMDevice{Levers: []Lever{
			{Name: "shard_optimizer", Elsewhere: c.elsewhere, Tried: &Tried{Outcome: c.shard}},
			{Name: "optimizer_8bit", Tried: &Tried{Outcome: c.other}},
		}}
		d.Rank()
		if got := d.Levers[0].Name; got != c.first {
			t.Errorf("sharding %s, 8 bits %s: %s comes first, want %s", c.shard, c.other, got, c.first)
		}
	}
}

// How the step goes on after the failed request is not recorded, so that no saving is claimed, but what comes
// free by then. A setting's saving is of the whole run, which was simulated.
func TestASavingIsOnlyClaimedIfTheStepWasTriedToItsEnd(t *testing.T) {
	for outcome, claimed := range map[string]bool{Finishes: true, Postpones: true, DoesNotHelp: true,
		ServesRequest: false} {
		d := OOMDevice{Levers: []Lever{
			{Name: "checkpoint", Saves: known(5), frees: 3, Tried: &Tried{Outcome: outcome}},
			{Name: "expandable_segments", Saves: known(4), Tried: &Tried{Outcome: outcome},
				Simulated: &SimulatedSettings{}},
		}}
		d.Rank()
		for _, l := range d.Levers {
			switch {
			case l.Simulated != nil:
				if l.Saves == nil || *l.Saves != 4 || l.Frees != nil {
					t.Errorf("a setting, %s: saves %v, frees %v", outcome, l.Saves, l.Frees)
				}
			case claimed && (l.Saves == nil || l.Frees != nil),
				!claimed && (l.Saves != nil || l.Frees == nil || *l.Frees != 3):
				t.Errorf("%s: saves %v, frees %v", outcome, l.Saves, l.Frees)
			}
		}
	}
}

// If what the run did before bounds the rest of the step, the saving is claimed all the same.
func TestASavingThatTheRestOfTheStepCannotChangeIsClaimed(t *testing.T) {
	d := OOMDevice{Levers: []Lever{
		{Name: "no_grad", Saves: known(5), frees: 7, holds: true, Tried: &Tried{Outcome: ServesRequest}}}}
	d.Rank()
	if l := d.Levers[0]; l.Saves == nil || *l.Saves != 5 || l.Frees != nil {
		t.Errorf("saves %v, frees %v", l.Saves, l.Frees)
	}
}

// A lever that is right only if the training is not what it seems comes after the lever of what it seems to
// be, though it costs less or saves more, unless it helps more.
func TestTheLeverOfTheCauseComesBeforeThatOfALookAlike(t *testing.T) {
	for _, c := range []struct{ other, first string }{
		{ServesRequest, "smaller_kv_cache"}, {Finishes, "offload_unused"},
	} {
		d := OOMDevice{Levers: []Lever{
			{Name: "offload_unused", Mends: true, alternative: true, Saves: known(8),
				Tried: &Tried{Outcome: c.other}},
			{Name: "smaller_kv_cache", Mends: true, Saves: known(4), Tried: &Tried{Outcome: ServesRequest}},
		}}
		d.Rank()
		if got := d.Levers[0].Name; got != c.first {
			t.Errorf("where the look-alike's lever %s: %s comes first, want %s", c.other, got, c.first)
		}
	}
}

// Where only a part of the fix could be tried, the trial says nothing about what the whole saves.
func TestNoSavingIsClaimedOfAFixThatWasTriedInPart(t *testing.T) {
	d := OOMDevice{Levers: []Lever{
		{Name: "del_outputs", Saves: known(1), frees: 7, partly: true, Tried: &Tried{Outcome: Postpones}}}}
	d.Rank()
	if l := d.Levers[0]; l.Saves != nil || l.Frees == nil || *l.Frees != 7 {
		t.Errorf("saves %v, frees %v", l.Saves, l.Frees)
	}
}
