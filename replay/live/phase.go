package live

// Phase is how far carrying a plan out in a training has come. Later phases are higher.
type Phase int

// The phases, in the order in which a training goes through them.
const (
	// Waiting is before the first step has ended.
	Waiting Phase = iota
	Describing
	Planning
	MeasuringWithout
	MeasuringWith
	MeasuringPeak
	// On is the plan being carried out, with all of it measured.
	On
	// Over is the end of the training.
	Over
)

// phases has for each phase what it does, for people: in a few words, and as a step of a trial.
var phases = [...]struct{ word, doing string }{
	Waiting:          {"waiting for a step to end", "waiting for a step to end"},
	Describing:       {"describing", "describing the training's steps"},
	Planning:         {"planning", "planning"},
	MeasuringWithout: {"timing without it", "timing steps without the plan"},
	MeasuringWith:    {"timing with it", "timing steps with the plan"},
	MeasuringPeak:    {"measuring its peak", "measuring the peak of a step with the plan"},
	On:               {"on", "on"},
	Over:             {"ended", "ended"},
}

// String says the phase in a few words.
func (p Phase) String() string { return phases[p].word }

// Doing says what is done in the phase.
func (p Phase) Doing() string { return phases[p].doing }

// Trial returns which of how many phases of a trial this is, before the plan is on; ok is false where it is
// none of them.
func (p Phase) Trial() (at, of int, ok bool) {
	return int(p), int(On) - 1, Waiting < p && p < On
}

// Carried reports whether steps run under the plan.
func (p Phase) Carried() bool { return p == MeasuringPeak || p == On }
