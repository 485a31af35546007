package leaf

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
)

// When names a moment for people: the time since the recording's first event, or the event's number without a
// clock.
func When(s *State, m timeline.Moment) string {
	d := s.Device
	switch {
	case d == nil:
		return ""
	case m == timeline.Never:
		return "never"
	case d.Len() < 2:
		return "at this moment"
	case m == timeline.Start:
		return "before the first event"
	case s.Window.Axis == timeline.AxisEvents || !s.Timeline.Trace.Clock.HasTime:
		return "event " + Count(int64(m))
	}
	return timeline.Duration(d.Time(m) - d.Timeline().Zero())
}

// At is When with its preposition, for the middle of a sentence: "at 1.15 s", "at event 5", "before the first
// event".
func At(s *State, m timeline.Moment) string {
	if d := s.Device; d != nil && (m == timeline.Start || m == timeline.Never || d.Len() < 2) {
		return When(s, m)
	}
	return "at " + When(s, m)
}

// LogitsMark precedes the call site of a holder that is part of the logits: sentences call them that, and
// tables by where they were allocated.
const LogitsMark = "logits: "

// AtPeak says that the cursor is at the highest moment, or at the only one.
func AtPeak(d *timeline.Device) string {
	if d.Len() < 2 {
		return "at this moment"
	}
	return "at the peak"
}

// KindName is how people write a kind of device.
func KindName(k traces.DeviceKind) string {
	switch k {
	case traces.DeviceGPU, traces.DeviceCPU:
		return strings.ToUpper(k.String())
	}
	return k.String()
}

// Title begins a sentence with a phrase. Names of code keep their case.
func Title(phrase string) string {
	word, _, _ := strings.Cut(phrase, " ")
	if strings.ContainsAny(word, "_.(") {
		return phrase
	}
	return strings.ToUpper(phrase[:1]) + phrase[1:]
}

// CursorText is the status line of views that have no better one: what happens at the cursor and how much is
// held there. On a short line it says less.
func CursorText(s *State) string {
	d := s.Device
	if d == nil {
		return ""
	}
	text := cursorText(s)
	if s.Width > 0 && canvas.Width(text) > s.Width-2 {
		return shortCursorText(s)
	}
	return text
}

// shortCursorText is CursorText without labels, the event's number and the block's name.
func shortCursorText(s *State) string {
	d := s.Device
	text := When(s, s.Cursor) + " · " + s.Units.Bytes(d.Allocated.At(s.Cursor))
	if r := d.Reserved.At(s.Cursor); r > 0 {
		text += " of " + s.Units.Bytes(r)
	}
	if s.Cursor < 0 {
		return text
	}
	e := d.Event(s.Cursor)
	text += " · " + strings.ReplaceAll(e.Action.String(), "_", " ") + eventSize(s, s.Cursor)
	if a := d.AllocOf(s.Cursor); a != timeline.NoAlloc {
		if what := What(d, a); what != "" {
			text += " at " + what
		}
	}
	return text
}

func cursorText(s *State) string {
	d := s.Device
	var b strings.Builder
	fmt.Fprintf(&b, "%s · allocated %s", When(s, s.Cursor), s.Units.Bytes(d.Allocated.At(s.Cursor)))
	if r := d.Reserved.At(s.Cursor); r > 0 {
		fmt.Fprintf(&b, ", reserved %s", s.Units.Bytes(r))
	}
	if s.Cursor >= 0 {
		if s.Window.Axis == timeline.AxisTime && s.Timeline.Trace.Clock.HasTime {
			fmt.Fprintf(&b, " · event %s", Count(int64(s.Cursor)))
		}
		b.WriteString(" · " + eventText(s, s.Cursor))
	}
	return b.String()
}

// eventSize returns the size of an event after a space, "" if it has none. For a block it is the change of
// allocated bytes.
func eventSize(s *State, m timeline.Moment) string {
	e := s.Device.Event(m)
	if e.Size <= 0 || e.Action == traces.Snapshot {
		return ""
	}
	if a := s.Device.AllocOf(m); a != timeline.NoAlloc {
		return " " + s.Units.Bytes(s.Device.Allocs.Rounded[a])
	}
	return " " + s.Units.Bytes(e.Size)
}

// eventText says what an event does: alloc 512 MiB block 0x7f00 at site.
func eventText(s *State, m timeline.Moment) string {
	d := s.Device
	e := d.Event(m)
	text := strings.ReplaceAll(e.Action.String(), "_", " ") + eventSize(s, m)
	if a := d.AllocOf(m); a != timeline.NoAlloc {
		text += " " + d.BlockName(a)
	}
	site := sites.Name(d, e.Stack)
	if a := d.AllocOf(m); site == "" && a != timeline.NoAlloc {
		site = sites.From(d, a)
	}
	if site != "" {
		text += " at " + site
	}
	return text
}

// What says where a block comes from: its call site, else the op that made it, else its name in the
// recording; "" if unknown.
func What(d *timeline.Device, a timeline.AllocID) string {
	if a < 0 || int(a) >= d.Allocs.Len() {
		return ""
	}
	return sites.From(d, a)
}

// Percent prints a part of a whole: 68 %, <1 %, 0 %.
func Percent(part, whole int64) string {
	switch {
	case whole <= 0 || part <= 0:
		return "0 %"
	case part*200 < whole:
		return "<1 %"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}
