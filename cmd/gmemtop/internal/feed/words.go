package feed

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/tui/live"
)

// Means are the ways of capturing a stretch, in words.
var Means = map[string]string{
	capture.HowOps: "op by op", capture.HowHistory: "allocator history",
	capture.HowEvents: "allocator events", capture.HowProfile: "by the profiler",
	capture.HowProbes: "by probes",
}

// depths returns by what means a job's steps can be captured, with what that cost the last time.
func depths(v capture.View) []live.Depth {
	var list []live.Depth
	for _, d := range []live.Depth{
		{How: capture.HowOps, Shows: "each op, what it reads and writes, and for how long: what swapping " +
			"and recompute are planned on"},
		{How: capture.HowHistory, Shows: "what the GPU's allocator did, segments and Python stacks with " +
			"it, of compiled code as well"},
		{How: capture.HowProfile, Shows: "what is allocated in which op, by torch's profiler, of compiled " +
			"code as well"},
	} {
		if !slices.Contains(v.Target.Capabilities, d.How) {
			continue
		}
		d.Name = Means[d.How]
		for _, w := range v.Windows {
			if w.How == d.How && w.Last >= w.First {
				d.Cost = w.Cost / time.Duration(w.Last-w.First+1)
			}
		}
		list = append(list, d)
	}
	return list
}

// Script is the name of the script in a command line, or that of its program.
func Script(argv []string) string {
	for _, w := range argv {
		if strings.HasSuffix(w, ".py") {
			return filepath.Base(w)
		}
	}
	return filepath.Base(argv[0])
}

// exitedWord is all that is known of the end of a process that nobody waited for.
const exitedWord = "it has exited"

// HowEnded completes "ended: ...".
func HowEnded(e capture.End) string {
	text := ""
	switch e.Reason {
	case capture.Exited:
		switch {
		case e.Code >= 0:
			text = fmt.Sprintf("exit code %d", e.Code)
		case e.Detail == "":
			text = exitedWord
		}
		if e.OutOfMemory {
			text = strings.TrimPrefix(text+", out of memory", ", ")
		}
	case capture.Detached:
		text = "let go; the job goes on"
	case capture.Disarmed:
		text = "watching failed and was given up; the job goes on"
	case capture.Refused:
		text = "watching did not begin"
	default:
		text = e.Reason
	}
	if e.Detail != "" {
		text += ": " + report.Printable(e.Detail)
	}
	return strings.TrimPrefix(text, ": ")
}

// silence says for how long there was no step, where that is longer than a pause between two steps that take
// typically so long, and why, where the process's state tells.
func silence(since, typical time.Duration, pid int, state func(pid int) byte) string {
	const least, steps = 10 * time.Second, 20
	if since < max(least, steps*typical) {
		return ""
	}
	text := "no step for " + timeline.Duration(int64(since.Round(time.Second)))
	switch state(pid) {
	case 'T':
		text += fmt.Sprintf(": the process is stopped, and kill -CONT %d lets it go on", pid)
	case 't':
		text += ": a debugger holds the process"
	case 'D':
		text += ": the process waits in the kernel, for a disk or a device"
	}
	return text
}

// failed reports whether a job ended in a way that somebody should look at.
func failed(e capture.End) bool {
	return e.Reason == capture.Disarmed || e.Reason == capture.Refused || e.Reason == capture.Exited &&
		(e.Code > 0 || e.Detail != "")
}

// Tail returns the last lines of a command's output, nil where the command was not started here.
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
