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
	// On: the plan is carried out, and everything is measured.
	On
	// Over is the end of the training.
	Over
)

// phases has a short sentence for each phase, and a long one for a step of a trial.
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

// String returns the phase in a few words.
func (p Phase) String() string { return phases[p].short.Text() }

// Doing returns a longer description of what happens in the phase.
func (p Phase) Doing() string { return phases[p].long.Text() }

// Trial returns the position of this phase among those that a training goes through before the plan is on,
// and their number; ok is false for other phases.
func (p Phase) Trial() (at, of int, ok bool) {
	return int(p), int(On) - 1, Waiting < p && p < On
}

// Carried reports whether steps run under the plan.
func (p Phase) Carried() bool { return p == MeasuringPeak || p == On }
