package runs

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// The moments that a difference compares. A warm-up step holds what no later step does, such as the
// workspaces of cuDNN's benchmark, and lacks what they all hold, such as the optimizer's state. Where one
// recording peaks in a warm-up step and the other in a steady one, the highest steady step of each is
// compared instead, and Note says so.

// StepKind says where in a training a moment lies.
type StepKind uint8

// The kinds of moments.
const (
	NoSteps  StepKind = iota // the recording has no steps
	Outside                  // before, between or after the steps
	Unjudged                 // in a step, where no two steps of the recording are alike
	Warmup                   // in a step before the steady ones
	Steady                   // in a steady step, or in a later one
)

// String returns the word that reports put behind a step's name, "" if there is nothing to say.
func (k StepKind) String() string {
	return [...]string{"", "outside of the steps", "", "warm-up", "steady"}[k]
}

// Side is the moment of one recording that is compared, and the step that it lies in.
type Side struct {
	At   timeline.Moment
	Kind StepKind
	Step string // its name, "" for none
}

// sideAt returns the side of a device at a moment.
func sideAt(d *timeline.Device, m timeline.Moment) Side {
	it := steps.Of(d)
	if len(it.List) == 0 {
		return Side{At: m, Kind: NoSteps}
	}
	for i := range it.List {
		x := &it.List[i]
		if m < x.First || x.End <= m {
			continue
		}
		s := Side{At: m, Step: x.Name, Kind: Steady}
		switch {
		case it.Steady == len(it.List):
			s.Kind = Unjudged
		case i < it.Steady:
			s.Kind = Warmup
		}
		return s
	}
	return Side{At: m, Kind: Outside}
}

// steadySide returns the peak of the highest steady step; there is one if a side of the device is a warm-up
// step or a steady one.
func steadySide(d *timeline.Device) Side {
	it := steps.Of(d)
	best := -1
	for _, i := range it.SteadyEnds() {
		if best < 0 || it.List[i].PeakAllocated > it.List[best].PeakAllocated {
			best = i
		}
	}
	if best < 0 {
		return sideAt(d, d.Totals.PeakAt)
	}
	return sideAt(d, it.List[best].PeakAt)
}

// unlike reports whether one side is a warm-up step and the other a steady one.
func unlike(a, b Side) bool {
	return a.Kind == Warmup && b.Kind == Steady || a.Kind == Steady && b.Kind == Warmup
}

// StepSide returns the peak of the step with the number that reports use.
func StepSide(d *timeline.Device, number string) (Side, error) {
	it := steps.Of(d)
	i, err := it.Find(number)
	if err != nil {
		return Side{}, err
	}
	if i == len(it.List) {
		return Side{}, fmt.Errorf("the last iteration of this trace is %s",
			steps.IterationNumber(it.List[i-1].Name))
	}
	return sideAt(d, it.List[i].PeakAt), nil
}

// Where names the moment of its recording that a side stands for, "" if the recording has no steps.
func (s Side) Where(d *timeline.Device) string {
	if s.Kind == NoSteps {
		return ""
	}
	where := s.Kind.String()
	if s.Step != "" {
		where = s.Step
		if word := s.Kind.String(); word != "" {
			where += " (" + word + ")"
		}
		if p, _ := steps.PhaseAt(d, s.At); p != traces.PhaseUnknown {
			where += ", " + p.String()
		}
	}
	return where
}

// Note says what a reader has to know about the compared moments, "" for nothing: that one is in a warm-up
// step and the other in a steady one, or that this cannot be known.
func (x *Diff) Note() string {
	a, b := sideAt(x.A, x.A.Totals.PeakAt), sideAt(x.B, x.B.Totals.PeakAt)
	if x.chosen {
		a, b = x.SideA, x.SideB
	}
	switch {
	case unlike(a, b):
		first, other, warm, steady := "A", "B", a, b
		if b.Kind == Warmup {
			first, other, warm, steady = "B", "A", b, a
		}
		if x.chosen {
			return fmt.Sprintf("%s's %s is a warm-up step, and %s's %s is not.", first, warm.Step, other,
				steady.Step)
		}
		return fmt.Sprintf("%s has its peak in a warm-up step, %s, and %s in a steady one: the highest "+
			"steady step of each is compared.", first, warm.Step, other)
	case x.same():
		return ""
	case a.Kind == Unjudged && b.Kind >= Warmup:
		return unjudged("A", x.A)
	case b.Kind == Unjudged && a.Kind >= Warmup:
		return unjudged("B", x.B)
	}
	return ""
}

// unjudged says why it is not known whether a recording peaks in a warm-up step.
func unjudged(name string, d *timeline.Device) string {
	why := "no two of its steps are alike"
	if n := len(steps.Of(d).List); n < 3 {
		why = fmt.Sprintf("it has only %s, so record at least three", timeline.Counted(n, "step"))
	}
	return fmt.Sprintf("%s may have its peak in a warm-up step: %s.", name, why)
}
