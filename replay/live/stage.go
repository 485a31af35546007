package live

import "github.com/gmemtop/gmemtop/capture/say"

// Stage is how far carrying a plan out in a training has come. Later stages are higher.
type Stage int

// The stages, in the order in which a training goes through them.
const (
	// Waiting is before the first step has ended.
	Waiting Stage = iota
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

// stages has a short sentence for each stage, and a long one for a step of a trial.
var stages = [...]struct{ short, long say.Sentence }{
	Waiting:          {say.WaitsForStep, say.WaitsForStep},
	Describing:       {say.Describes, say.DescribesSteps},
	Planning:         {say.Plans, say.PlansMeanwhile},
	MeasuringWithout: {say.TimesWithout, say.TimesStepsWithout},
	MeasuringWith:    {say.TimesWith, say.TimesStepsWith},
	MeasuringPeak:    {say.MeasuresPeak, say.MeasuresAStep},
	On:               {say.IsOn, say.IsOn},
	Over:             {say.HasEnded, say.HasEnded},
}

// String returns the stage in a few words.
func (s Stage) String() string { return stages[s].short.Text() }

// Doing returns a longer description of what happens in the stage.
func (s Stage) Doing() string { return stages[s].long.Text() }

// Trial returns the position of this stage among those that a training goes through before the plan is on,
// and their number; ok is false for other stages.
func (s Stage) Trial() (at, of int, ok bool) {
	return int(s), int(On) - 1, Waiting < s && s < On
}

// Carried reports whether steps run under the plan.
func (s Stage) Carried() bool { return s == MeasuringPeak || s == On }
