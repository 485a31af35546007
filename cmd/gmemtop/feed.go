package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/live"
)

// sessionFeed is a capture session as the screen sees it: captured stretches become timelines, off the event loop, and steps get the one figure that is
// drawn. It implements live.Feed.
type sessionFeed struct {
	session *capture.Session
	control *lateControl
	title   string

	mu      sync.Mutex
	look    live.Look
	news    chan struct{} // closed and made anew with each change
	seen    int64         // index of the last step that is in look, -1 for none
	every   int
	told    bool      // the source was told of every
	first   int       // how many steps to ask for whole by ourselves, once; 0 for none
	asked   time.Time // when a window was asked for, the zero time where none is awaited
	windows map[*traces.Trace]live.Window
	lastID  int64
	rises   risingCounts
}

// risingCounts are counts since the process began, from which those of a step are told.
type risingCounts struct{ retries, ooms int64 }

// shownOutput is how many lines of a command's output the screen has at hand.
const shownOutput = 500

// longestWait is how long a window that was asked for is said to be on its way.
const longestWait = time.Minute

func newSessionFeed(s *capture.Session, c *lateControl, title, waiting string) *sessionFeed {
	return &sessionFeed{
		session: s, control: c, title: title, news: make(chan struct{}), seen: -1, windows: map[*traces.Trace]live.Window{},
		look: live.Look{Version: 1, Title: title, Word: waiting},
	}
}

// run follows the session until ctx is done.
func (f *sessionFeed) run(ctx context.Context) {
	for {
		v := f.session.Snapshot()
		f.take(ctx, v)
		f.askFirst(ctx, v)
		if v.Ended {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-f.session.Changed():
		}
	}
}

// askFirst asks, once the job steps, for what the command line wants captured whole, and for something to look at.
func (f *sessionFeed) askFirst(ctx context.Context, v capture.View) {
	if v.Ended || len(v.Steps) < warm {
		return
	}
	if f.every > 0 && !f.told {
		f.told = f.control.Every(ctx, f.every) == nil
	}
	if f.first == 0 {
		return
	}
	n := f.first
	f.first = 0
	_ = f.Order(ctx, live.Order{Kind: live.Describe, Steps: n}) // refused: its reason comes as a notice, and r asks again
}

// take makes a look of what the session holds. Timelines are built before the lock is taken.
func (f *sessionFeed) take(ctx context.Context, v capture.View) {
	windows, lost := f.timelines(ctx, v.Windows)
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.look
	l.Version++
	l.Windows, l.Forgotten = windows, l.Forgotten+lost
	f.addSteps(v)
	f.describe(v)
	l.Output = tail(v)
	l.Notices, l.Dropped = nil, 0
	for _, n := range v.Notices {
		if n.State {
			if !v.Ended && len(l.Steps) == 0 {
				l.Word = n.Text
			}
			continue
		}
		l.Notices = append(l.Notices, n.Text)
	}
	for _, lost := range v.Losses {
		if lost.Name == "steps" {
			l.Dropped += lost.Count
			continue
		}
		l.Notices = append(l.Notices, fmt.Sprintf("%d %s: %s", lost.Count, strings.ReplaceAll(lost.Name, "_", " "), lost.Detail))
	}
	switch {
	case v.Ended:
		l.State, l.Word = live.Ended, endWord(v.End)
	case len(l.Steps) > 0:
		l.State = live.Running
	}
	l.Capture.Connected = f.control.connected() != nil && v.Began && !v.Ended
	close(f.news)
	f.news = make(chan struct{})
}

// timelines returns the session's windows with their timelines, and how many of those that were shown before are gone.
func (f *sessionFeed) timelines(ctx context.Context, list []capture.Window) (windows []live.Window, gone int) {
	kept := map[*traces.Trace]live.Window{}
	for _, w := range list {
		known, ok := f.windows[w.Trace]
		if !ok {
			t, err := timeline.Build(ctx, w.Trace, nil)
			if err != nil {
				f.session.Lose("windows", 1, "a captured step could not be read: "+err.Error())
				continue
			}
			f.lastID++
			known = live.Window{ID: f.lastID, First: w.First, Last: w.Last, How: howCaptured(w), Timeline: t, Cost: w.Cost}
			f.mu.Lock()
			f.asked = time.Time{}
			f.mu.Unlock()
		}
		kept[w.Trace] = known
		windows = append(windows, known)
	}
	for t := range f.windows {
		if _, ok := kept[t]; !ok {
			gone++
		}
	}
	f.windows = kept
	return windows, gone
}

func howCaptured(w capture.Window) string {
	text := map[string]string{capture.HowOps: "op by op", capture.HowHistory: "allocator history", capture.HowProbes: "by probes"}[w.How]
	if w.Partial {
		text += ", cut"
	}
	return text
}

// addSteps appends the steps that are new.
func (f *sessionFeed) addSteps(v capture.View) {
	l := &f.look
	from, _ := slices.BinarySearchFunc(v.Steps, f.seen+1, func(s capture.Step, at int64) int { return int(s.Index - at) })
	for _, s := range v.Steps[from:] {
		l.Steps = append(l.Steps, f.step(s))
		f.seen = s.Index
	}
	if drop := len(l.Steps) - 2*capture.MaxSteps; drop > 0 {
		l.Steps = slices.Clone(l.Steps[len(l.Steps)-capture.MaxSteps:])
	}
	l.Figure = "resident memory"
	if n := len(v.Steps); n > 0 && v.Steps[n-1].Allocated != capture.Unknown {
		l.Figure = "allocated memory"
	}
	last := l.Steps[max(len(l.Steps)-timeline.WatchedSteps, 0):]
	held, took := make([]int64, len(last)), make([]int64, len(last))
	var cost, time int64
	for i := range last {
		held[i], took[i] = last[i].Bytes, last[i].Duration
		if last[i].Cost >= 0 && last[i].Duration > 0 {
			cost, time = cost+last[i].Cost, time+last[i].Duration
		}
	}
	l.Report = timeline.WatchSteps(held, took)
	base := len(l.Steps) - len(last)
	l.Report.From += base
	if l.Report.Top >= 0 {
		l.Report.Top += base
	}
	for _, list := range [][]int{l.Report.Spikes, l.Report.Slow} {
		for i := range list {
			list[i] += base
		}
	}
	l.Capture.Share, l.Capture.Measured = 0, time > 0
	if time > 0 {
		l.Capture.Share = float64(cost) / float64(time)
	}
}

// step reads a step as the screen shows it. What the allocator holds when a step is over says most of what can be had without disturbing the program's
// own peak marks; where there is no such allocator, resident memory has to do.
func (f *sessionFeed) step(s capture.Step) live.Step {
	x := live.Step{
		Index: s.Index, Duration: -1, Forward: s.Forward, Backward: s.Backward, Optimizer: s.Optimizer, Bytes: s.RSS, Held: s.Allocated, Cost: int64(s.Cost),
	}
	if s.Start > 0 && s.End > s.Start {
		x.Duration = s.End - s.Start
	}
	if s.Allocated != capture.Unknown {
		x.Bytes = s.Allocated
	}
	rise := func(now int64, before *int64) int64 {
		if now < 0 {
			return 0
		}
		n := max(now-*before, 0)
		*before = now
		return n
	}
	x.Retries, x.OOMs = rise(s.Retries, &f.rises.retries), rise(s.OOMs, &f.rises.ooms)
	return x
}

// describe says who is watched and what his memory consists of.
func (f *sessionFeed) describe(v capture.View) {
	l := &f.look
	if !v.Began {
		return
	}
	t := v.Target
	l.Facts = nil
	fact := func(name, value string) {
		if value != "" {
			l.Facts = append(l.Facts, live.Fact{Name: name, Value: report.Printable(value)})
		}
	}
	if t.PID > 0 {
		fact("pid", fmt.Sprint(t.PID))
	}
	fact("command", t.Command())
	fact("python", t.Python)
	fact("torch", t.Torch)
	fact("device", t.Device)
	if t.Rank >= 0 {
		fact("rank", fmt.Sprintf("%d of %d", t.Rank, t.WorldSize))
	}
	fact("host", t.Host)
	if f.title == "" && len(t.Argv) > 0 {
		l.Title = scriptOf(t.Argv)
	}
	l.Capture.Every, l.Capture.Pending = f.every, f.first > 0 || !f.asked.IsZero() && time.Since(f.asked) < longestWait
	l.Parts, l.Whole = nil, live.Part{}
	for i := len(v.Steps) - 1; i >= 0 && i >= len(v.Steps)-64; i-- { // some figures are taken less often than every step
		if s := &v.Steps[i]; s.Parameters != capture.Unknown {
			l.Parts, l.Whole = partsOf(s)
			break
		}
	}
}

// partsOf splits what the device's allocator holds, or, without one, resident memory. What is not known to be anything is shown as such.
func partsOf(s *capture.Step) ([]live.Part, live.Part) {
	parts := []live.Part{{Name: "parameters", Bytes: s.Parameters}, {Name: "gradients", Bytes: max(s.Gradients, 0)}, {Name: "optimizer state", Bytes: max(s.OptimizerState, 0)}}
	var sum int64
	for _, p := range parts {
		sum += p.Bytes
	}
	rest := func(name string, bytes int64, unexplained bool) {
		if bytes > 0 {
			parts, sum = append(parts, live.Part{Name: name, Bytes: bytes, Unexplained: unexplained}), sum+bytes
		}
	}
	whole := live.Part{Name: "Resident memory after a step", Bytes: s.RSS}
	if s.Allocated != capture.Unknown {
		whole = live.Part{Name: "Reserved after a step", Bytes: s.Reserved}
		rest("other tensors", s.Allocated-sum, false)
		rest("cached and rounding", s.Reserved-s.Allocated, false)
	} else {
		rest("Python, libraries and the rest", s.RSS-sum, true)
	}
	if whole.Bytes < sum { // figures of different moments
		whole.Bytes = sum
	}
	return parts, whole
}

// scriptOf is the name of the script in a command line, or that of its program.
func scriptOf(argv []string) string {
	for _, w := range argv {
		if strings.HasSuffix(w, ".py") {
			return name(w)
		}
	}
	return name(argv[0])
}

// endWord completes "ended: ...".
func endWord(e capture.End) string {
	text := ""
	switch e.Reason {
	case capture.Exited:
		text = "it has exited"
		if e.Code >= 0 {
			text = fmt.Sprintf("exit code %d", e.Code)
		}
		if e.OutOfMemory {
			text += ", out of memory"
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
	return text
}

// tail returns the last lines of a command's output, nil where the command was not started here.
func tail(v capture.View) []string {
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

// Look implements live.Feed.
func (f *sessionFeed) Look() live.Look {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.look
	l.Steps = slices.Clip(l.Steps)
	return l
}

// Wait implements live.Feed.
func (f *sessionFeed) Wait(ctx context.Context, version int64) error {
	for {
		f.mu.Lock()
		now, news := f.look.Version, f.news
		f.mu.Unlock()
		if now > version {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		}
	}
}

// Order implements live.Feed.
func (f *sessionFeed) Order(ctx context.Context, o live.Order) error {
	var err error
	switch o.Kind {
	case live.Describe:
		if err = f.control.Describe(ctx, max(o.Steps, 1)); err == nil {
			f.mu.Lock()
			f.asked = time.Now()
			f.mu.Unlock()
		}
	case live.Every:
		if err = f.control.Every(ctx, o.Steps); err == nil {
			f.mu.Lock()
			f.every = o.Steps
			f.mu.Unlock()
		}
	case live.Detach:
		err = f.control.Detach(ctx)
	}
	return err
}
