// Package block draws what is known of one allocation: the panel beside the views in which a block can be
// selected.
package block

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Draw draws block a of the device in view into c; NoAlloc draws how to select one.
func Draw(s *leaf.State, c *canvas.Canvas, a timeline.AllocID) {
	w, h := c.Size()
	if w < 12 || h < 1 {
		return
	}
	d := s.Device
	if a < 0 || d == nil || int(a) >= d.Allocs.Len() {
		c.TextMax(0, 0, w, s.Theme.Dim, "select a block to see where it comes from")
		return
	}
	rows := []string{heading(s, c, a)}
	for _, fact := range Facts(s, a) {
		text := c.Gloss(s.Theme.Text).Render(canvas.Truncate(canvas.Plain(fact.Text), w-labelled))
		rows = append(rows, leaf.Labelled(c, s.Theme.Dim, fact.Label, labelled, text))
	}
	rows = rows[:min(len(rows), h)]
	c.Print(0, 0, strings.Join(rows, "\n"))
	y := len(rows)
	Stack(s, c.Sub(canvas.Rect{X: 0, Y: y, W: w, H: h - y}), d.Allocs.Stack[a])
}

// labelled is how wide the labels of the facts are.
const labelled = 9

// heading is the category, the block's size and its name in one row.
func heading(s *leaf.State, c *canvas.Canvas, a timeline.AllocID) string {
	d, cat := s.Device, s.Device.Allocs.Category[a]
	row := lipgloss.JoinHorizontal(lipgloss.Top,
		c.Gloss(s.Theme.Category(cat)).Render(s.Theme.Glyph(cat)), " ",
		c.Gloss(s.Theme.Strong).Render(s.Units.Bytes(d.Allocs.Rounded[a])), " ",
		c.Gloss(s.Theme.Dim).Render(canvas.Plain(d.BlockName(a))))
	return canvas.Truncate(row, c.Width())
}

// Fact is one labelled line about a block.
type Fact struct{ Label, Text string }

// Facts returns what is known of block a besides its size, name and stack, most useful first.
func Facts(s *leaf.State, a timeline.AllocID) []Fact {
	d := s.Device
	al := &d.Allocs
	cat := al.Category[a].String()
	if al.Inferred[a] {
		cat += " (inferred)"
	}
	facts := []Fact{{"category", cat}}
	if al.Stack[a] == traces.NoStack {
		if what := leaf.What(d, a); what != "" {
			facts = append(facts, Fact{"site", what})
		}
	}
	if m := sites.Module(d, d.Origin(a)); m != "" {
		facts = append(facts, Fact{"module", m})
	}
	facts = append(facts, Fact{"alive", Life(d, a)})
	if waste := al.Rounded[a] - al.Size[a]; waste > 0 {
		facts = append(facts, Fact{"asked", fmt.Sprintf("%s, and %s of rounding",
			s.Units.Bytes(al.Size[a]), s.Units.Bytes(waste))})
	}
	if id := int(al.Stream[a]); id > 0 {
		facts = append(facts, Fact{"stream", strconv.Itoa(id)})
	}
	if al.End[a] != al.Requested[a] && al.Requested[a] != timeline.Never {
		if text := pending(d, a); text != "" {
			facts = append(facts, Fact{"pending", text})
		}
	}
	if uses := uses(d, a); uses != "" {
		facts = append(facts, Fact{"used", uses})
	}
	return facts
}

// Life says from when to when block a was allocated and how long that is, with a mark if a bound is outside
// the recording.
func Life(d *timeline.Device, a timeline.AllocID) string {
	origin := d.Timeline().Zero()
	from, to := d.Lifetime(a)
	hasTime := d.Timeline().Trace.Clock.HasTime
	at := func(t int64) string {
		if hasTime {
			return timeline.Duration(t - origin)
		}
		return strconv.FormatInt(t, 10)
	}
	before, after := d.Allocs.Start[a] == timeline.Start, d.Allocs.Requested[a] == timeline.Never
	switch {
	case before && after && d.Len() < 2:
		return "at this moment"
	case before && after:
		return "throughout the recording"
	case before:
		return "from before the recording until " + at(to)
	case after:
		return "from " + at(from) + ", never freed"
	case hasTime:
		return at(from) + " to " + at(to) + ", " + timeline.Duration(to-from)
	}
	return "from " + at(from) + " to " + at(to) + " on the source's own clock"
}

func pending(d *timeline.Device, a timeline.AllocID) string {
	al := &d.Allocs
	if al.End[a] == timeline.Never {
		return "freed by its owner, still waiting for a stream at the end"
	}
	if !d.Timeline().Trace.Clock.HasTime && al.End[a] > al.Requested[a]+1 {
		return fmt.Sprintf("waited %d events for a stream after its free", al.End[a]-al.Requested[a])
	}
	wait := d.Time(al.End[a]) - d.Time(al.Requested[a])
	if wait <= 0 {
		return ""
	}
	return "waited " + timeline.Duration(wait) + " for a stream after its free"
}

// uses says how often block a was read and written, "" if the trace has no accesses.
func uses(d *timeline.Device, a timeline.AllocID) string {
	if len(d.Timeline().Trace.Accesses) == 0 {
		return ""
	}
	acc := d.AccessesOf(a)
	if len(acc) == 0 {
		return "never touched"
	}
	reads, writes := 0, 0
	longest := int64(0)
	for i, x := range acc {
		switch x.Mode {
		case traces.Read, traces.Use:
			reads++
		case traces.Write, traces.Mutate:
			writes++
		}
		if i > 0 {
			longest = max(longest, x.Time-acc[i-1].Time)
		}
	}
	text := timeline.Counted(reads, "read") + ", " + timeline.Counted(writes, "write")
	if longest > 0 {
		text += ", longest pause " + timeline.Duration(longest)
	}
	return text
}

// Stack draws a call stack, innermost frame first, one frame a row: the function, then its file and line. The
// user's own innermost frame is highlighted. If there are Python frames, C++ frames and PyTorch's wrappers
// are left out and counted; otherwise frames without source are.
func Stack(s *leaf.State, c *canvas.Canvas, id traces.StackID) {
	w, h := c.Size()
	if h < 1 {
		return
	}
	if id == traces.NoStack {
		lines := leaf.Wrap("recorded without a stack", w)
		if why := leaf.Lines(s); why != "" {
			lines = leaf.Wrap(why, w)
		}
		for y, line := range lines[:min(len(lines), h)] {
			c.TextMax(0, y, w, s.Theme.Dim, line)
		}
		return
	}
	frames, left := framesOf(s.Device, id)
	userFile, userLine := leaf.UserFrame(s.Device, id)
	users := func(f frame) bool { return f.file == userFile && f.line == userLine }
	if h == 1 && len(frames) > 0 { // one frame says more than how many there are
		at := max(slices.IndexFunc(frames, users), 0)
		c.Print(0, 0, frames[at].row(s, c, s.Theme.Strong))
		return
	}
	var rows []string
	links := map[int]string{} // by row
	add := func(f frame) {
		style := s.Theme.Text
		if users(f) {
			style = s.Theme.Strong
		}
		links[len(rows)] = leaf.Link(s, s.Device, f.file, f.line)
		rows = append(rows, f.row(s, c, style))
	}
	say := func(st canvas.Style, text string) {
		rows = append(rows, c.Gloss(st).Render(canvas.Truncate(text, w)))
	}
	at := slices.IndexFunc(frames, users)
	switch {
	case len(frames) > h && at >= h-1 && h > 2: // the interesting frame is further out than there is room for
		for _, f := range frames[:h-3] {
			add(f)
		}
		say(s.Theme.Dim, fmt.Sprintf("… %s between", timeline.Counted(at-(h-3), "frame")))
		add(frames[at])
		if rest := len(frames) - at - 1; rest > 0 {
			say(s.Theme.Dim, fmt.Sprintf("… %s", timeline.Counted(rest, "more caller")))
		}
	case len(frames) > h:
		for _, f := range frames[:h-1] {
			add(f)
		}
		say(s.Theme.Dim, fmt.Sprintf("… %s", timeline.Counted(len(frames)-(h-1), "more caller")))
	default:
		for _, f := range frames {
			add(f)
		}
		if left > 0 && len(frames) < h {
			say(s.Theme.Faint, timeline.Counted(left, "frame")+" of native code and wrappers left out")
		}
	}
	c.Print(0, 0, strings.Join(rows, "\n"))
	for y, link := range links {
		c.Restyle(canvas.Rect{Y: y, W: canvas.Width(rows[y]), H: 1}, func(st canvas.Style) canvas.Style {
			st.Link = link
			return st
		})
	}
}

// StackRows is how many rows a call stack takes in full.
func StackRows(s *leaf.State, id traces.StackID) int {
	if id == traces.NoStack {
		return 1
	}
	frames, left := framesOf(s.Device, id)
	return len(frames) + min(left, 1)
}

type frame struct {
	fn, file string
	line     int
}

// deepest limits the frames to read: nobody reads more, and a hostile file may have a million.
const deepest = 512

// framesOf returns the frames of a stack that are worth a row and the number left out: Python frames that are
// not wrappers, else frames with source, else all.
func framesOf(d *timeline.Device, id traces.StackID) (frames []frame, left int) {
	funcs, files, lines := leaf.Frames(d, id, deepest)
	for _, worth := range []func(fn, file string) bool{
		func(fn, file string) bool { return strings.HasSuffix(file, ".py") && !wraps(fn, file) },
		func(_, file string) bool { return file != "" && file != "??" },
		func(string, string) bool { return true },
	} {
		for i := range funcs {
			if worth(funcs[i], files[i]) {
				frames = append(frames, frame{funcs[i], files[i], lines[i]})
			}
		}
		if len(frames) > 0 {
			break
		}
	}
	return frames, len(funcs) - len(frames)
}

// wraps reports whether a frame is one of PyTorch's own that sits between any two of the user's frames and
// says nothing.
func wraps(fn, file string) bool {
	switch fn {
	case "_call_impl", "_wrapped_call_impl":
		return strings.HasSuffix(file, "torch/nn/modules/module.py")
	case "decorate_context":
		return strings.HasSuffix(file, "torch/utils/_contextlib.py")
	}
	return false
}

// row is a frame in one row: the function, then its file and line.
func (f frame) row(s *leaf.State, c *canvas.Canvas, style canvas.Style) string {
	w := c.Width()
	place := leaf.Base(f.file)
	if place == "??" {
		place = ""
	}
	if f.line > 0 {
		place += ":" + strconv.Itoa(f.line)
	}
	place = canvas.Plain(place)
	fn := canvas.Truncate(canvas.Plain(f.fn), max(w-canvas.Width(place)-1, w/3))
	row := c.Gloss(style).Render(fn)
	if room := w - canvas.Width(fn) - 1; room > 4 {
		row += " " + c.Gloss(s.Theme.Dim).Render(canvas.Truncate(place, room))
	}
	return row
}
