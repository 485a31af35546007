package report

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline/frames"
)

// tracebackFrame is a frame's line in Python's traceback, with what a launcher puts before it ("[rank0]:").
var tracebackFrame = regexp.MustCompile(`^(.*?)\s*File "([^"]+)", line ([0-9]+), in (\S+)\s*$`)

// tracebackHead begins a traceback.
const tracebackHead = "Traceback (most recent call last)"

// mostTracebacks is how many tracebacks are followed at once: the lines of ranks are often mixed in one log.
const mostTracebacks = 64

// tracebacks follows Python's tracebacks through the lines of a log, one for each text that a launcher puts
// before the lines of a rank.
type tracebacks []*traceback

// traceback is what is kept of one: the last frame that is not a library's, where the job's own code ran out
// of memory.
type traceback struct {
	from  string // what the launcher puts before each line
	place string // "forward model.py:41", "" before the first frame
	code  string // the frame's line of code, "" if the log does not show it
	next  bool   // the next line is that code
}

// of returns the traceback that a line continues, nil for none: the one with the longest text before it.
func (l tracebacks) of(line string) *traceback {
	var of *traceback
	for _, t := range l {
		if strings.HasPrefix(line, t.from) && (of == nil || len(t.from) > len(of.from)) {
			of = t
		}
	}
	return of
}

// line takes the next line of the log.
func (l *tracebacks) line(text string) {
	text = strings.TrimSpace(text)
	if from, _, begins := strings.Cut(text, tracebackHead); begins {
		t := traceback{from: strings.TrimSpace(from)}
		*l = slices.DeleteFunc(*l, func(old *traceback) bool { return old.from == t.from })
		*l = append((*l)[max(len(*l)-mostTracebacks+1, 0):], &t)
		return
	}
	if t := l.of(text); t != nil {
		t.line(text)
	}
}

// end ends the traceback that a line with a message ends, and returns it; the zero traceback where there is
// none.
func (l *tracebacks) end(message string) (ended traceback) {
	if t := l.of(strings.TrimSpace(message)); t != nil {
		ended = *t
		*l = slices.DeleteFunc(*l, func(old *traceback) bool { return old == t })
	}
	return ended
}

func (t *traceback) line(text string) {
	f := tracebackFrame.FindStringSubmatch(text)
	if f == nil {
		if t.next {
			t.code = strings.TrimSpace(strings.TrimPrefix(text, t.from))
		}
		t.next = false
		return
	}
	t.next = f[1] == t.from && frames.Own(f[2])
	if t.next {
		t.place, t.code = f[4]+" "+frames.PathEnd(f[2], 1)+":"+f[3], ""
	}
}
