package feed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/books"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/live"
)

// Process is a watched process as the screen sees it: captured stretches become timelines, off the event
// loop, and each step gets the one figure that is drawn. It implements live.Feed.
type Process struct {
	capture.Changes
	process *job.Process
	books   *books.Books
	ids     *atomic.Int64 // of the last window, shared by the feeds of a job
	single  bool          // a step can be captured although the process takes no orders
	poke    chan struct{} // receives when the user selects this feed

	taking  sync.Mutex // only one look is made at a time
	windows map[*traces.Trace]live.Window

	mu      sync.Mutex
	back    bool // another process of the job is shown; make no timelines
	look    live.Look
	info    capture.Info
	recent  runs.Peer
	severed string // why nothing comes from the process, "" while it is connected
	held    int    // windows that the session holds
	seen    int64  // index of the last step that is in look, -1 for none
	spans   []span // steps captured whole, including forgotten ones
	rises   risingCounts
	// allocator means that a device's allocator reports what is allocated.
	allocator bool
}

// risingCounts are totals since the process began, from which a step's counts are computed.
type risingCounts struct{ retries, ooms int64 }

// shownOutput is how many lines of a command's output the screen keeps.
const shownOutput = 500

// How long a feed rests after an update: often enough for the screen, and less often for hidden processes.
const (
	restShown = 40 * time.Millisecond
	restBack  = 800 * time.Millisecond
)

// residentNoise is how much a process's resident memory fluctuates: library caches, arenas of the C
// allocator.
const residentNoise = 16 << 20

// silenceLook is the time between two looks at a silent job.
const silenceLook = 2 * time.Second

// NewProcess returns the feed of a process; waiting says what it waits for before anything arrives. It asks
// NVML only about a process whose steps have figures from a device's allocator.
func NewProcess(p *job.Process, waiting string) *Process {
	f := &Process{
		process: p, books: books.New(p.History), ids: new(atomic.Int64), poke: make(chan struct{}, 1),
		seen:    -1,
		windows: map[*traces.Trace]live.Window{}, look: live.Look{Word: waiting},
		recent: runs.TypicalPeer(nil),
	}
	f.Tell() // show what it is waiting for
	return f
}

// countsFrom says where the count of steps begins, if not with the process: "since attach".
func (f *Process) countsFrom(since string) {
	f.mu.Lock()
	f.look.Since = since
	f.mu.Unlock()
	f.Tell()
}

// Start keeps the feed up to date until stop is called, which updates it once more.
func (f *Process) Start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run keeps the feed up to date until ctx is done, and updates it once more then, without waiting for
// captured steps.
func (f *Process) run(ctx context.Context) {
	defer func() {
		f.show(false)
		f.take(ctx)
	}()
	for ctx.Err() == nil {
		v := f.take(ctx)
		rest := restShown
		if f.isBack() {
			rest = restBack
		}
		select { // batch changes, so that a fast job does not keep the viewer busy
		case <-ctx.Done():
			return
		case <-f.poke:
		case <-time.After(rest):
		}
		patient, cancel := ctx, func() {}
		if !v.Ended { // silence is shown too
			patient, cancel = context.WithTimeout(ctx, silenceLook)
		}
		_, _ = f.process.History.Wait(patient, v.Version)
		cancel()
	}
}

// show tells the feed whether it is the one shown.
func (f *Process) show(shown bool) {
	f.mu.Lock()
	f.back = !shown
	f.mu.Unlock()
	if shown {
		select {
		case f.poke <- struct{}{}:
		default:
		}
	}
}

func (f *Process) isBack() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.back
}

// take makes a look from what the session holds. It builds timelines before taking the lock.
func (f *Process) take(ctx context.Context) capture.View {
	f.taking.Lock()
	defer f.taking.Unlock()
	v := f.process.History.Snapshot()
	back := f.isBack()
	var windows []live.Window
	var lost int
	if !back {
		windows, lost = f.timelines(ctx, v.Windows)
	}
	defer f.Tell()
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.look
	f.info, f.severed, f.held = v.Info, v.Severed, len(v.Windows)
	if !back {
		l.Windows, l.Forgotten = windows, l.Forgotten+lost
		l.Output = Tail(v)
	}
	f.addSteps(v)
	f.markPlans()
	f.describe(v)
	w := f.process.Wants(&v)
	l.Capture.Every, l.Capture.Pending, l.Capture.Along = w.Every, w.Pending, w.Host
	l.Capture.Connected = w.Connected && v.Began && !v.Ended && !f.process.IsDetached()
	l.Capture.Single = f.single && v.Began && !v.Ended
	l.Notices, l.Dropped = nil, 0
	for _, n := range v.Notices {
		if n.State {
			if !v.Ended && len(l.Steps) == 0 {
				l.Word = n.Text
			}
			continue
		}
		l.Notices = append(l.Notices, report.Printable(n.Text))
	}
	for _, lost := range v.Losses {
		if lost.Name == "steps" {
			l.Dropped += lost.Count
			continue
		}
		l.Notices = append(l.Notices, fmt.Sprintf("%d %s: %s", lost.Count,
			strings.ReplaceAll(lost.Name, "_", " "), lost.Detail))
	}
	l.Silence = ""
	if n := len(v.Steps); n > 0 && !v.Ended {
		state := procs.State
		if v.Info.Remote {
			state = func(int) byte { return 0 } // a process of that number here is another one
		}
		l.Silence = silence(time.Duration(time.Now().UnixNano()-v.Steps[n-1].End),
			time.Duration(f.recent.Duration.Or(0)), v.Info.PID, state)
	}
	switch {
	case v.Ended:
		l.State, l.Word, l.Failed = live.Ended, HowEnded(v.End), failed(v.End)
		l.Detached = v.End.Reason == capture.Detached
	default:
		if len(l.Steps) > 0 {
			l.State = live.Running
		}
		l.Detached = f.process.IsDetached() // from a command that gmemtop runs, which goes on
	}
	return v
}

// timelines returns the session's windows with their timelines, and how many of those shown before are gone.
func (f *Process) timelines(ctx context.Context, list []capture.Window) (windows []live.Window, gone int) {
	kept := map[*traces.Trace]live.Window{}
	for _, w := range list {
		known, ok := f.windows[w.Trace]
		if !ok {
			t, err := timeline.Build(ctx, w.Trace, nil)
			if err != nil {
				f.process.History.Lose("windows", 1, "a captured step could not be read: "+err.Error())
				continue
			}
			known = live.Window{ID: f.ids.Add(1), First: w.First, Last: w.Last, How: howCaptured(w),
				Timeline: t, Cost: w.Cost}
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
	text := capture.DepthName(w.How)
	if w.Partial {
		text += ", cut"
	}
	return text
}

const (
	// firstSlow is the first step whose slowness is worth an alert.
	firstSlow = 8
	// settling is how long a captured step may take to arrive.
	settling = 2 * time.Second
)

// describe says which process is watched and what its memory consists of.
func (f *Process) describe(v capture.View) {
	l := &f.look
	if !v.Began {
		return
	}
	t := v.Info
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
	switch {
	case t.Rank.IsKnown() && t.WorldSize.IsKnown():
		fact("rank", fmt.Sprintf("%v of %v", t.Rank, t.WorldSize))
	case t.Rank.IsKnown():
		fact("rank", t.Rank.String())
	}
	if slices.Contains(t.Capabilities, "steps") {
		fact("steps", strings.TrimSuffix(say.StepsCounted.Text()+", "+l.Since, ", "))
	}
	fact("host", t.Host)
	if len(v.Steps) == 0 && !v.Ended && !t.Remote { // nothing else shows that it is alive
		if age, ok := procs.Age(t.PID, t.Started); ok {
			fact("running", "for "+sinceStart(age))
		}
		if held, ok := procs.Resident(t.PID, t.Started); ok {
			l.Facts = append(l.Facts, live.Fact{Name: "in memory", Bytes: maybe.Known(held)})
		}
	}
	if len(t.Argv) > 0 {
		l.Title = Script(t.Argv)
	}
	l.Capture.Depths, l.Capture.Depth = depths(v), t.Depth
	l.Capture.Lean = ""
	if n := len(v.Steps); v.Info.Offloads {
		l.Capture.Lean = "what it saves on the host"
	} else if n > 0 && v.Steps[n-1].Carried.Plan > 0 {
		l.Capture.Lean = "a plan"
	}
	l.Parts, l.Whole = nil, live.Entry{}
	// some figures are taken less often than every step
	for i := len(v.Steps) - 1; i >= 0 && i >= len(v.Steps)-64; i-- {
		s := &v.Steps[i]
		if !s.Parameters.IsKnown() || !maybe.First(s.Allocated, s.RSS).IsKnown() {
			continue
		}
		var parts []books.Entry
		var whole books.Entry
		ok := false
		if !f.back && !t.Remote { // ask the driver only about the shown process
			parts, whole, ok = f.books.Parts(t.PID, s)
		}
		if !ok {
			parts, whole = books.OfStep(s)
		}
		for _, p := range parts {
			l.Parts = append(l.Parts, live.Entry(p))
		}
		l.Whole = live.Entry(whole)
		break
	}
}

// sinceStart prints how long a process has run, to the second.
func sinceStart(age time.Duration) string {
	if age < time.Minute {
		return fmt.Sprintf("%d s", int(age.Seconds()))
	}
	return timeline.Duration(int64(age))
}

// Look implements live.Feed.
func (f *Process) Look() live.Look {
	version := f.Now() // read first, so that a look is never newer than its version
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.look
	l.Version = version
	l.Steps = slices.Clip(l.Steps)
	return l
}

// rank returns the feed's process as a row in the list of a job's processes.
func (f *Process) rank() live.Rank {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.look
	r := live.Rank{ID: f.process.ID, Rank: f.info.Rank, PID: f.info.PID, Title: l.Title,
		Device: report.Printable(f.info.Device), State: l.State, Word: l.Word, Failed: l.Failed,
		Typical: f.recent, Captured: f.held, Lost: l.Dropped, Alerts: l.Alerts}
	if n := len(l.Steps); n > 0 {
		r.Step = maybe.Known(l.Steps[n-1].Index)
	}
	if f.info.Remote {
		r.Host, r.Silent = report.Printable(f.info.Host), report.Printable(f.severed)
	}
	if r.Word == say.Exited.Text() {
		r.Word = ""
	}
	return r
}

// Order implements live.Feed.
func (f *Process) Order(ctx context.Context, o live.Order) error {
	switch o.Kind {
	case live.Describe:
		return f.process.Capture(ctx, o.Steps)
	case live.Every:
		return f.process.CaptureEvery(ctx, o.Steps)
	case live.Deepen:
		return f.process.Order(ctx, capture.Order{Do: capture.Depth, How: o.How})
	case live.Detach:
		return f.process.Detach(ctx)
	}
	return nil
}
