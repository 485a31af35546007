package live

import "github.com/gmemtop/gmemtop/capture/say"

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

// phases has the sentences about each phase: in a few words, and as a step of a trial.
var phases = [...]struct{ short, long say.Sentence }{
	Waiting:          {say.WaitsForStep, say.WaitsForStep},
	Describing:       {say.Describes, say.DescribesSteps},
	Planning:         {say.Plans, say.PlansMeanwhile},
	MeasuringWithout: {say.TimesWithout, say.TimesStepsWithout},
	MeasuringWith:    {say.TimesWith, say.TimesStepsWith},
	MeasuringPeak:    {say.MeasuresPeak, say.MeasuresAStep},
	On:               {say.IsOn, say.IsOn},
	Over:             {say.HasEnded, say.HasEnded},
}

// String says the phase in a few words.
func (p Phase) String() string { return phases[p].short.Text() }

// Doing says at more length what is done in the phase.
func (p Phase) Doing() string { return phases[p].long.Text() }

// Trial returns the number of this phase among those that a training goes through before the plan is on, and
// how many these are; ok is false for the other phases.
func (p Phase) Trial() (at, of int, ok bool) {
	return int(p), int(On) - 1, Waiting < p && p < On
}

// Carried reports whether steps run under the plan.
func (p Phase) Carried() bool { return p == MeasuringPeak || p == On }
