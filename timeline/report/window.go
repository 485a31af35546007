package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
)

// Position is a place in a recording, as in --from and --to: a time since the trace's first event ("1.5s",
// "200ms"), the beginning of an iteration by its number in reports and on screens ("it3"), or the index of an
// event of the device ("1200"). The zero value is the recording's own bound.
type Position struct {
	text string
	kind positionKind
	n    int64
}

type positionKind uint8

const (
	positionNone positionKind = iota
	positionTime
	positionIteration
	positionEvent
	positionPeak
	positionEnd
)

// ParsePosition reads a Position; the empty string is the zero value.
func ParsePosition(s string) (Position, error) {
	word := strings.ToLower(strings.TrimSpace(s))
	if word == "" {
		return Position{}, nil
	}
	if n, err := strconv.ParseInt(strings.TrimPrefix(word, "#"), 10, 64); err == nil && n >= 0 {
		return Position{text: s, kind: positionEvent, n: n}, nil
	}
	for _, prefix := range []string{"iteration", "it", "i", "step"} {
		rest, ok := strings.CutPrefix(word, prefix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimLeft(rest, ":#= "), 10, 64); err == nil && n >= 0 {
			return Position{text: s, kind: positionIteration, n: n}, nil
		}
	}
	if t, err := time.ParseDuration(word); err == nil && t >= 0 {
		return Position{text: s, kind: positionTime, n: int64(t)}, nil
	}
	return Position{}, fmt.Errorf("position %q is not a time (1.5s), an iteration (it3) "+
		"or an event index (1200)", s)
}

// ParseMoment reads one moment, as in --at: "peak", "end" or a Position. The empty string is the zero value.
func ParseMoment(s string) (Position, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "peak":
		return Position{text: s, kind: positionPeak}, nil
	case "end":
		return Position{text: s, kind: positionEnd}, nil
	}
	p, err := ParsePosition(s)
	if err != nil {
		return p, fmt.Errorf("moment %q is not peak, end, a time (1.5s), an iteration (it3) "+
			"or an event index (1200)", s)
	}
	return p, nil
}

// In returns the last event at or before the moment within a stretch of d: of an iteration its first event,
// and of "peak" the one after which most is allocated. A moment outside of the stretch is an error.
func (p Position) In(d *timeline.Device, s Span) (timeline.Moment, error) {
	peak, last := d.Totals.PeakAt, s.End-1 // before the first event if there is none
	if !s.Whole {
		peak = d.Allocated.Range(s.First, s.End).MaxAt
	}
	m, err := last, error(nil)
	switch p.kind {
	case positionNone, positionPeak:
		return peak, nil
	case positionEnd:
		return last, nil
	case positionTime:
		if !d.Timeline().Trace.Clock.HasTime {
			return 0, errNoClock(p.text)
		}
		m = d.MomentAt(d.Timeline().Zero() + p.n)
		if _, end := d.Span(); d.Timeline().Zero()+p.n >= end {
			m = last + 1
		}
	default:
		m, err = p.moment(d, 0)
	}
	if err == nil && (m < s.First && !(s.Whole && m == timeline.Start) || m > last) {
		drawn := timeline.Counted(int(s.End-s.First), "event")
		if d.Timeline().Trace.Clock.HasTime {
			drawn += " in " + timeline.Duration(d.Time(last)-d.Time(s.First))
		}
		if s.Whole {
			return m, fmt.Errorf("%s is outside of the recording, which has %s", p.text, drawn)
		}
		err = fmt.Errorf("%s is outside of --from and --to, which leave %s", p.text, drawn)
	}
	return m, err
}

func errNoClock(moment string) error {
	return fmt.Errorf("%s is a time, and this trace has no clock: give an event index or an iteration",
		moment)
}

// IsZero reports whether the position is the recording's own bound.
func (p Position) IsZero() bool { return p.kind == positionNone }

// or returns the position as the user wrote it, or the given word for the recording's own bound.
func (p Position) or(bound string) string {
	if p.IsZero() {
		return bound
	}
	return p.text
}

// moment returns the first event at or after the position.
func (p Position) moment(d *timeline.Device, whenZero timeline.Moment) (timeline.Moment, error) {
	last := timeline.Moment(d.Len())
	switch p.kind {
	case positionTime:
		if !d.Timeline().Trace.Clock.HasTime {
			return 0, errNoClock(p.text)
		}
		return d.MomentAt(d.Timeline().Zero()+p.n-1) + 1, nil
	case positionEvent:
		return timeline.Moment(min(p.n, int64(last))), nil
	case positionIteration:
		it := steps.Of(d)
		i, err := it.Find(strconv.FormatInt(p.n, 10))
		switch {
		case err != nil:
			return 0, fmt.Errorf("%s: %w", p.text, err)
		case i == len(it.List): // one past the last: the end of the last
			return it.List[i-1].End, nil
		}
		return it.List[i].First, nil
	}
	return whenZero, nil
}

// Span is a half-open stretch [First, End) of a device's events. Whole says that it is all of them; then the
// device's own totals apply, including the state before the first event.
type Span struct {
	First, End timeline.Moment
	Whole      bool
}

// Resolve returns the stretch of d's events that lies in [from, to).
func Resolve(d *timeline.Device, from, to Position) (Span, error) {
	n := timeline.Moment(d.Len())
	if from.IsZero() && to.IsZero() {
		return Span{First: 0, End: n, Whole: true}, nil
	}
	first, err := from.moment(d, 0)
	if err != nil {
		return Span{}, err
	}
	end, err := to.moment(d, n)
	if err != nil {
		return Span{}, err
	}
	if first >= end {
		return Span{}, fmt.Errorf("nothing lies between %s and %s: the trace has %s",
			from.or("the beginning"), to.or("the end"),
			timeline.Counted(int(n), "event"))
	}
	return Span{First: first, End: end}, nil
}
