package steps

import (
	"maps"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// stretch is an iteration whose figures are not computed yet.
type stretch struct {
	name          string
	start, finish int64
	first, end    timeline.Moment
	cut           bool // the recording ends within it
}

// fromMarks returns the steps that the source names: its own iteration marks, else annotations with the name
// of a step, else an annotation whose ranges follow each other and hold nearly all of the time between the
// first and the last.
func (f stepFinder) fromMarks() []stretch {
	marks := marks(f.Device)
	if s := f.ranges(marks, func(m traces.Mark) bool { return m.Kind == traces.MarkIteration }); len(s) > 0 {
		return s
	}
	byName := map[string]int{}
	for _, m := range marks {
		if m.Kind == traces.MarkAnnotation {
			byName[f.stepName(m)]++
		}
	}
	if name := bestStepName(byName); name != "" {
		return f.ranges(marks, f.annotated(name))
	}
	return f.fillingRanges(marks, byName)
}

// marks returns the marks of the device, or all marks if none names this device: annotations belong to the
// process.
func marks(d *timeline.Device) []traces.Mark {
	all := d.Timeline().Trace.Marks
	var own []traces.Mark
	for _, m := range all {
		if m.Device == d.ID {
			own = append(own, m)
		}
	}
	if len(own) == 0 {
		return all
	}
	return own
}

// stepName returns a mark's name without the number that counts it: "ProfilerStep#12" is one of
// "profilerstep".
func (f stepFinder) stepName(m traces.Mark) string {
	s := strings.TrimRight(strings.ToLower(f.Timeline().Trace.Text(m.Name)), "0123456789")
	return strings.TrimRight(s, " #_-:/=[](")
}

// stepNames are names that frameworks and people give to training steps, best first.
var stepNames = []string{
	"profilerstep", "train_step", "training_step", "train step", "training step", "run_training_batch",
	"train_batch", "training_batch",
	"train_iteration", "training_iteration", "iteration", "iter", "step",
}

// bestStepName returns the name among those counted that is a step's and repeats, "" for none. A name ends in
// the step's word ("[pl][profile]run_training_batch"); the optimizer's own annotations
// ("Optimizer.step#AdamW.step") are not steps.
func bestStepName(count map[string]int) string {
	names := slices.Sorted(maps.Keys(count))
	for _, want := range stepNames {
		best, most := "", 1
		for _, name := range names {
			if n := count[name]; n > most && endsInWord(name, want) &&
				!strings.Contains(name, "optimizer") && !strings.Contains(name, "scheduler") {
				best, most = name, n
			}
		}
		if best != "" {
			return best
		}
	}
	return ""
}

func endsInWord(name, word string) bool {
	if !strings.HasSuffix(name, word) {
		return false
	}
	rest := name[:len(name)-len(word)]
	return rest == "" || !(rest[len(rest)-1] >= 'a' && rest[len(rest)-1] <= 'z')
}

// compilerTimed marks the annotations in which PyTorch's compiler times its own work, such as autotuning.
const compilerTimed = "(dynamo_timed)"

// fillingRanges looks for an annotation of any name that occurs three times or more, one after another, for
// at least 80 % of the time.
func (f stepFinder) fillingRanges(marks []traces.Mark, count map[string]int) []stretch {
	names := make([]string, 0, len(count))
	for name, n := range count {
		if n >= 3 && !strings.Contains(name, "optimizer") && !strings.Contains(name, compilerTimed) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var best []stretch
	for _, name := range names {
		s := f.ranges(marks, f.annotated(name))
		if len(s) < 3 {
			continue
		}
		var inside int64
		for _, r := range s {
			inside += r.finish - r.start
		}
		if total := s[len(s)-1].finish - s[0].start; total > 0 && inside*5 >= total*4 && len(s) > len(best) {
			best = s
		}
	}
	return best
}

// ranges turns the marks that keep accepts into stretches of events. Ranges inside an earlier one are dropped
// (nested steps); a bound that the source lacks is taken from the neighbour, or from the recording.
func (f stepFinder) ranges(marks []traces.Mark, keep func(traces.Mark) bool) []stretch {
	var kept []traces.Mark
	for _, m := range marks {
		if keep(m) {
			kept = append(kept, m)
		}
	}
	from, to := f.Span()
	var out []stretch
	for i, m := range kept {
		s := stretch{name: f.Timeline().Trace.Text(m.Name), start: m.Start, finish: m.End}
		if s.start == traces.NoTime {
			s.start = from
			if len(out) > 0 {
				s.start = out[len(out)-1].finish
			}
		}
		if s.finish == traces.NoTime {
			s.finish = max(to, s.start)
			if i+1 < len(kept) && kept[i+1].Start != traces.NoTime {
				s.finish = kept[i+1].Start
			} else {
				s.cut = true
			}
		}
		if len(out) > 0 && s.start < out[len(out)-1].finish {
			continue
		}
		s.first, s.end = f.MomentAt(s.start-1)+1, f.MomentAt(s.finish-1)+1
		if f.Len() == 0 || s.finish <= from && s.end == 0 || s.start >= to {
			continue // before or after all of the device's events
		}
		out = append(out, s)
	}
	return out
}

// annotated selects the annotations that have a name as a step's name.
func (f stepFinder) annotated(name string) func(traces.Mark) bool {
	return func(m traces.Mark) bool { return m.Kind == traces.MarkAnnotation && f.stepName(m) == name }
}
