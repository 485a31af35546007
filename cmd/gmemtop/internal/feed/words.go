package feed

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/tui/live"
)

// depths returns the ways to capture a job's steps, with what each cost the last time.
func depths(v capture.View) []live.Depth {
	var list []live.Depth
	for _, x := range capture.Depths {
		if x.Shows == "" || !slices.Contains(v.Info.Capabilities, x.How) {
			continue
		}
		d := live.Depth{How: x.How, Name: x.Name, Shows: x.Shows}
		for _, w := range v.Windows {
			if w.How == d.How && w.Last >= w.First {
				d.Cost = w.Cost / time.Duration(w.Last-w.First+1)
			}
		}
		list = append(list, d)
	}
	return list
}

// Script is the name of the script in a command line, or else of its program.
func Script(argv []string) string {
	for _, w := range argv {
		if strings.HasSuffix(w, ".py") {
			return filepath.Base(w)
		}
	}
	return filepath.Base(argv[0])
}

// HowEnded says how a job ended, in printable characters. It completes "ended: ...".
func HowEnded(e capture.End) string { return report.Printable(e.Sentence()) }

// silence says how long there has been no step, if that is longer than the usual pause between steps, and
// why, if the process's state shows it.
func silence(since, typical time.Duration, pid int, state func(pid int) byte) string {
	const least, steps = 10 * time.Second, 20
	if since < max(least, steps*typical) {
		return ""
	}
	text := "no step for " + timeline.Duration(int64(since.Round(time.Second)))
	if why := capture.Stall(state(pid), pid); why != "" {
		text += ": " + why
	}
	return text
}

// failed reports whether a job ended in a way that needs attention.
func failed(e capture.End) bool {
	return e.Reason == capture.Disarmed || e.Reason == capture.Refused || e.Reason == capture.Exited &&
		(e.Code.Or(0) > 0 || e.Detail != "")
}

// Tail returns the last lines of a command's output, nil if none came here.
func Tail(v capture.View) []string {
	if v.Output == nil {
		return nil
	}
	out := v.Output
	lines := []string{}
	for len(out) > 0 && len(lines) < shownOutput {
		i := bytes.LastIndexByte(out[:len(out)-1], '\n')
		line := bytes.TrimRight(out[i+1:], "\r\n")
		if at := bytes.LastIndexByte(line, '\r'); at >= 0 { // a progress bar draws over itself
			line = line[at+1:]
		}
		lines = append(lines, report.Printable(string(line)))
		out = out[:i+1]
	}
	slices.Reverse(lines)
	return lines
}
