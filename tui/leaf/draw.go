package leaf

import (
	"regexp"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// sentenceRows is how many rows the answer may take in a view h rows high.
func sentenceRows(h int) int {
	switch {
	case h < 12:
		return 1
	case h < 18:
		return 2
	case h < 20: // less than a terminal of 24 lines leaves
		return 3
	}
	return 4
}

// SentenceRows returns the rows that Sentence takes for text in a view of w by h cells.
func SentenceRows(text string, w, h int) int {
	if h < 3 || text == "" {
		return 0
	}
	rows := min(len(Wrap(text, w-2)), sentenceRows(h))
	if h > 20 {
		rows++
	}
	return rows
}

// Sentence writes the view's one-sentence answer at the top of c, in one row to four, and returns the rows it
// took (one more than the text where there is room for a blank one). The part before a colon, where there is
// one, is the answer and stands out.
func Sentence(s *State, c *canvas.Canvas, text string) int {
	w, h := c.Size()
	if h < 3 || text == "" {
		return 0
	}
	lines := fit(canvas.Plain(text), w-2, sentenceRows(h))
	strong, plain := c.Gloss(s.Theme.Strong), c.Gloss(s.Theme.Text)
	answer := true
	for i, line := range lines {
		head, rest := "", line
		if answer {
			head, rest, answer = cutAnswer(line)
		}
		lines[i] = strong.Render(head) + plain.Render(rest)
	}
	c.Print(1, 0, strings.Join(lines, "\n"))
	rows := len(lines)
	if h > 20 {
		rows++
	}
	return rows
}

// fit wraps text into at most so many rows. If it is longer, it ends after a sentence or a clause where one
// ends in the last row, since half of one says little.
func fit(text string, w, rows int) []string {
	lines := Wrap(text, w)
	if len(lines) <= rows {
		return lines
	}
	for whole := text; ; {
		end := max(strings.LastIndex(whole, ". "), strings.LastIndex(whole, "; "))
		if end < 0 {
			break
		}
		whole = whole[:end+1]
		short := Wrap(whole+" …", w)
		if len(short) == rows {
			return short
		}
		if len(short) < rows {
			break
		}
	}
	lines[rows-1] = canvas.Truncate(strings.Join(lines[rows-1:], " "), w)
	return lines[:rows]
}

// cutAnswer splits a line after the colon that ends the answer; goesOn is true if there is none.
func cutAnswer(line string) (answer, rest string, goesOn bool) {
	if at := strings.Index(line, ": "); at >= 0 {
		return line[:at+1], line[at+1:], false
	}
	return line, "", !strings.HasSuffix(line, ":")
}

// Wrap breaks text at spaces into lines of at most w cells, never within a figure, between it and its unit,
// or at a hyphen.
func Wrap(text string, w int) []string {
	if w <= 0 {
		return nil
	}
	whole := unitSpace.ReplaceAllString(unbroken.Replace(text), "$1\u00a0$2")
	return strings.Split(broken.Replace(ansi.WrapWc(whole, w, " ")), "\n")
}

// Wrap marks the places where no line may end with Unicode's unbreakable space and hyphen.
var (
	unbroken = strings.NewReplacer("≥ ", "≥\u00a0", "-", "\u2011")
	broken   = strings.NewReplacer("\u00a0", " ", "\u2011", "-")
)

// unitSpace is the space between a figure and its unit: 12.0 GiB, 68 %, 408 ms.
var unitSpace = regexp.MustCompile(`(\d) ((?:[KMGTPE]i?)?B\b|%|[nµm]?s\b)`)

// Texts for views that have nothing to show; commands are in backquotes.
const (
	NoDevice = "No device is in view: the recording has none, or none of the run's ranks is " +
		"open yet (7 shows them)."
	howToRecord = "To record events in PyTorch, call these before and after the training: " +
		"`torch.cuda.memory._record_memory_history(max_entries=1_000_000)\n" +
		dumpSnapshot + "`"
	noSegments   = "This recording does not say which segments the allocator holds"
	dumpSnapshot = "torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")"
)

// HowToRecord says how a recording with events is made of what the one in view was made of.
func HowToRecord(s *State) string {
	if s.Timeline == nil || s.Timeline.Trace.OfPyTorch() {
		return howToRecord
	}
	lacks := s.Timeline.Trace.Missing()
	if lacks == "" {
		return ""
	}
	return Title(lacks) + "."
}

// Lines says that a capture holds no line of code, and what has them; "" for a recording that has some.
func Lines(s *State) string {
	if !s.NoLines || s.Device == nil {
		return ""
	}
	path := s.Timeline.Trace.Source.Path
	switch {
	case s.Device.Info.Kind != traces.DeviceGPU:
		return "No lines of code: for a CPU's memory only torch.profiler records them (with_stack=True)."
	case path == "" || path == "-": // of a job that is watched
		return "No lines of code: I in Live captures by allocator history, which has them."
	}
	return "No lines of code: gmemtop run --depth history captures them."
}

// NoSegments says that a recording has no segments, and what has them.
func NoSegments(s *State) string {
	if s.Device != nil && s.Device.Info.Kind == traces.DeviceCPU {
		return "PyTorch keeps segments of a GPU's memory, and none of a CPU's."
	}
	switch {
	case s.Timeline == nil:
	case s.Timeline.Trace.Source.Format == traces.FormatPipeDream:
		return "A PipeDream profile has the sizes of layers, and no allocator with segments."
	case !s.Timeline.Trace.OfPyTorch():
		return noSegments + "."
	}
	return noSegments + "; a snapshot does: `" + dumpSnapshot + "`"
}

// Nothing draws a view of a name that has nothing to show, with a reason that may hold the command in
// backquotes that would fix it.
func Nothing(s *State, c *canvas.Canvas, name, why string) {
	command := ""
	if before, rest, ok := strings.Cut(why, "`"); ok {
		if inside, after, ok := strings.Cut(rest, "`"); ok {
			why, command = strings.TrimSpace(before+after), inside
		}
	}
	Empty(s, c, name+" has nothing to show", why, command)
}

// Empty draws a view that has nothing to show: what is missing, why, and the commands that record it, one a
// line ("" for none).
func Empty(s *State, c *canvas.Canvas, title, why, command string) {
	w, h := c.Size()
	room := min(w-4, 76)
	gloss := func(st canvas.Style, text string, w int) string {
		return c.Gloss(st).Render(canvas.Truncate(canvas.Plain(text), w))
	}
	text := lipgloss.JoinVertical(lipgloss.Left, gloss(s.Theme.Strong, title, room), "",
		Paragraph(c, s.Theme.Dim, why, room))
	x, y := max((w-room)/2, 0), max((h-lipgloss.Height(text)-2)/2, 0)
	c.Print(x, y, text)
	if command == "" {
		return
	}
	prompt := "$ "
	if strings.Contains(command, "torch.") {
		prompt = ">>> "
	}
	y += lipgloss.Height(text) + 1
	for i, line := range strings.Split(command, "\n") {
		row := gloss(s.Theme.Faint, prompt, room) + gloss(s.Theme.Accent, line, room-len(prompt))
		c.Print(x, y+i, row)
		c.Zone(canvas.Rect{X: x, Y: y + i, W: lipgloss.Width(row), H: 1},
			CopyMsg{Text: command, What: "the command"})
	}
}

// Paragraph returns text in a style, broken into lines of at most w cells.
func Paragraph(c *canvas.Canvas, st canvas.Style, text string, w int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = canvas.Plain(line)
	}
	return c.Gloss(st).Render(strings.Join(Wrap(strings.Join(lines, "\n"), w), "\n"))
}

// Labelled returns one or more rows of a panel: a label in wide cells, and beside it a text in the given
// style.
func Labelled(c *canvas.Canvas, st canvas.Style, label string, wide int, text string) string {
	label = canvas.Truncate(canvas.Plain(label), max(wide-1, 0))
	return lipgloss.JoinHorizontal(lipgloss.Top, c.Gloss(st).Width(wide).Render(label), text)
}

// Working draws a quiet placeholder while an answer is being computed.
func Working(s *State, c *canvas.Canvas, what string) {
	w, h := c.Size()
	c.TextCenter(0, h/2, w, s.Theme.Dim, what+" …")
}

// Rule draws a section's title followed by a thin rule to the right edge.
func Rule(s *State, c *canvas.Canvas, x, y, w int, title string) {
	n := c.TextMax(x, y, w, s.Theme.Dim, title)
	if title != "" {
		n++
	}
	if w-n > 0 {
		c.Fill(canvas.Rect{X: x + n, Y: y, W: w - n, H: 1}, '─', s.Theme.Faint)
	}
}

// Ruled returns a section's title followed by a thin rule up to w cells.
func Ruled(th *theme.Theme, c *canvas.Canvas, w int, title string) string {
	title = canvas.Truncate(canvas.Plain(title), w)
	left := max(w-lipgloss.Width(title)-1, 0)
	return c.Gloss(th.Dim).Render(title+" ") + c.Gloss(th.Faint).Render(strings.Repeat("─", left))
}

// Frames returns the lines of a stack, innermost frame first, as "func  file:line", at most limit of them.
func Frames(d *timeline.Device, id traces.StackID, limit int) (funcs, files []string, lines []int) {
	t := d.Timeline().Places()
	for _, f := range t.Stacks.At(id) {
		if len(funcs) == limit {
			break
		}
		fn, file, line := t.FrameText(f)
		funcs, files, lines = append(funcs, fn), append(files, file), append(lines, line)
	}
	return funcs, files, lines
}

// Base returns the last element of a path of either kind of slash, or what "-" means.
func Base(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path[strings.LastIndexAny(path, `/\`)+1:]
}

// Count prints a number with thousands separated: 1,234,567.
func Count(n int64) string { return timeline.Count(n) }

// UserFrame returns the most interesting place in a stack: the one that names its call site if that has a
// file, else the innermost Python frame, else the innermost frame. File is "" if the stack is unknown.
func UserFrame(d *timeline.Device, id traces.StackID) (file string, line int) {
	t := d.Timeline().Places()
	frames := t.Stacks.At(id)
	if i := sites.Frame(d, id); i >= 0 {
		if _, file, line := t.FrameText(frames[i]); file != "" {
			return file, line
		}
	}
	for _, keep := range []func(string) bool{isPython, func(string) bool { return true }} {
		for _, f := range frames {
			if _, file, line := t.FrameText(f); file != "" && keep(file) {
				return file, line
			}
		}
	}
	return "", 0
}

func isPython(file string) bool { return strings.HasSuffix(file, ".py") }
