package report

import (
	"regexp"
	"strings"

	"github.com/gmemtop/gmemtop/timeline/frames"
)

// tracebackFrame is a frame's line in Python's traceback, with what a launcher puts before it ("[rank0]:").
var tracebackFrame = regexp.MustCompile(`^(.*?)\s*File "([^"]+)", line ([0-9]+), in (\S+)\s*$`)

// tracebackHead begins a traceback.
const tracebackHead = "Traceback (most recent call last)"

// traceback follows Python's traceback through the lines of a log, up to the message that ends it. Of its
// frames it keeps the last that is not a library's: where the job's own code ran out of memory.
type traceback struct {
	from  string // what the launcher puts before each line: another rank's lines begin anew
	place string // "forward model.py:41", "" before the first frame
	code  string // the frame's line of code, "" if the log does not show it
	next  bool   // the next line is that code
}

// line takes the next line of the log.
func (t *traceback) line(text string) {
	if from, _, ok := strings.Cut(text, tracebackHead); ok {
		*t = traceback{from: strings.TrimSpace(from)}
		return
	}
	f := tracebackFrame.FindStringSubmatch(text)
	if f == nil {
		if code, ok := strings.CutPrefix(strings.TrimSpace(text), t.from); t.next && ok {
			t.code = strings.TrimSpace(code)
		}
		t.next = false
		return
	}
	t.next = f[1] == t.from && frames.Own(f[2])
	if t.next {
		t.place, t.code = f[4]+" "+frames.PathEnd(f[2], 1)+":"+f[3], ""
	}
}
