package capture

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// A trigger is a condition on the steps of a run that makes a recorder keep the windows around it. It fires
// on the step where the condition begins to hold, and again only after the condition has stopped holding.
//
// A leak is a slope, and one step's figure is noisy (a garbage collector, an uneven batch). So the last
// leakSteps steps are cut into quarters, each represented by its median, and the slope is the smallest of the
// three from quarter to quarter: an outlier does not move it, and one jump (an epoch's first batch, a
// validation) raises only one of the three. It costs a sort of a few numbers a step. Rejected: least squares,
// because one spike or jump bends it; Theil and Sen's median of all slopes, because it costs the square and
// mistakes a jump for a slope.

// leakSteps is the number of steps over which a leak is measured.
const leakSteps = 64

type triggerKind uint8

const (
	onBytes triggerKind = iota
	onIteration
	onOOM
	onLeak
	onTime
)

// Trigger is a condition on steps; ParseTrigger makes one. Its zero value never fires.
type Trigger struct {
	text   string
	kind   triggerKind
	figure func(Step) maybe.Int
	limit  int64
	on     bool
	ooms   int64
	last   []int64 // figures of the last leakSteps steps
}

// String returns the trigger as the user wrote it.
func (t *Trigger) String() string { return t.text }

var figures = map[string]func(Step) maybe.Int{
	"allocated": func(s Step) maybe.Int { return s.Allocated },
	"reserved":  func(s Step) maybe.Int { return s.Reserved },
	"rss":       func(s Step) maybe.Int { return s.RSS },
	"held":      func(s Step) maybe.Int { b, _ := s.Held(); return b },
}

// ParseTrigger reads a trigger: allocated>60GiB (or reserved, rss, held), step_time>500ms, iteration=100,
// oom, leak>1MiB/step. parseBytes and parseDuration read a size and a time as the rest of the program does.
func ParseTrigger(s string, parseBytes, parseDuration func(string) (int64, error)) (*Trigger, error) {
	text := strings.ReplaceAll(s, " ", "")
	t := &Trigger{text: text}
	bad := func(why string) (*Trigger, error) {
		return nil, fmt.Errorf("trigger %q: %s; "+
			"write one such as allocated>60GiB, rss>20GiB, step_time>500ms, iteration=100, oom or "+
			"leak>1MiB/step", s, why)
	}
	if text == "oom" {
		t.kind = onOOM
		return t, nil
	}
	if n, ok := strings.CutPrefix(text, "iteration="); ok {
		k, err := strconv.ParseInt(n, 10, 64)
		if err != nil || k < 0 {
			return bad("the iteration is a whole number from 0")
		}
		t.kind, t.limit = onIteration, k
		return t, nil
	}
	name, value, ok := strings.Cut(text, ">")
	if !ok {
		return bad("it has no condition")
	}
	var err error
	switch {
	case name == "step_time":
		t.kind = onTime
		t.limit, err = parseDuration(value)
	case name == "leak":
		size, per := strings.CutSuffix(value, "/step")
		if !per {
			return bad("a leak is so many bytes a step")
		}
		t.kind = onLeak
		t.limit, err = parseBytes(size)
	case figures[name] != nil:
		t.figure = figures[name]
		t.limit, err = parseBytes(value)
	default:
		return bad(name + " is not a figure of a step")
	}
	if err != nil {
		return bad(err.Error())
	}
	return t, nil
}

// Step passes a step to the trigger and reports whether it fires, and why.
func (t *Trigger) Step(s Step) (fires bool, why string) {
	holds := false
	switch t.kind {
	case onIteration:
		holds, why = s.Index == t.limit && t.text != "", fmt.Sprintf("iteration %d", s.Index)
	case onOOM:
		ooms := s.OOMs.Or(0)
		holds, why = ooms > t.ooms, "an allocation failed"
		t.ooms = max(t.ooms, ooms)
		return holds, why
	case onTime:
		holds, why = s.End-s.Start > t.limit, fmt.Sprintf("the step took %d ms", (s.End-s.Start)/1e6)
	case onLeak:
		slope, ok := t.slope(s)
		holds, why = ok && slope > float64(t.limit), fmt.Sprintf("memory grows by %.0f bytes a step", slope)
	case onBytes:
		if t.figure == nil {
			return false, ""
		}
		v, ok := t.figure(s).Value()
		if !ok {
			return false, ""
		}
		holds, why = v > t.limit, fmt.Sprintf("%d bytes", v)
	}
	fires = holds && !t.on
	t.on = holds
	return fires, why
}

// slope returns the growth in bytes a step, if enough steps with a figure were seen.
func (t *Trigger) slope(s Step) (float64, bool) {
	v, ok := maybe.First(s.Allocated, s.RSS).Value()
	if !ok {
		return 0, false
	}
	t.last = append(t.last, v)
	if len(t.last) > leakSteps {
		t.last = t.last[1:]
	}
	if len(t.last) < leakSteps {
		return 0, false
	}
	const q = leakSteps / 4
	slope, before := math.Inf(1), stats.Median(t.last[:q])
	for i := q; i < leakSteps; i += q {
		m := stats.Median(t.last[i : i+q])
		slope, before = min(slope, float64(m-before)/q), m
	}
	return slope, true
}

// End passes the end of the run to the trigger and reports whether it fires.
func (t *Trigger) End(e End) (fires bool, why string) {
	return t.kind == onOOM && e.OutOfMemory, "the process died of a failed allocation"
}
