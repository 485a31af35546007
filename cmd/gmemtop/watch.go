package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/books"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/live"
)

// watching is a job that is watched: what is kept of it, where it is written, how it is let go of.
type watching struct {
	session  *capture.Session
	control  *lateControl
	feed     *sessionFeed
	recorder *capture.Recorder // nil where nothing is written
	relay    *pytorch.Relay    // shows the session to viewers that come and go
	sink     capture.Sink

	kin siblings // the other ranks, where this is one

	every   int  // one step in so many is captured whole, 0 for none
	unasked bool // how often was not said on the command line

	source sync.WaitGroup // ends with the source
	mu     sync.Mutex
	attach *pytorch.Session // nil until a running process is connected
}

// patience is how long a job may take to answer that it was let go of.
const patience = 5 * time.Second

// firstSteps is how many steps of a process that was attached to are captured whole as soon as it has shown
// that it steps, so that there is something to look at: two, so that what is carried from one to the next is
// seen. A command that was started captures as many unasked.
const (
	firstSteps = 2
	warm       = 1
)

// lateControl hands orders on to a source that is known later than those who give them.
type lateControl struct {
	mu sync.Mutex
	to capture.Controller
}

// errNotConnected answers orders that come too early.
var errNotConnected = errors.New("this job takes no orders yet")

func (l *lateControl) connect(c capture.Controller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = c
}

func (l *lateControl) connected() capture.Controller {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to
}

// Order implements capture.Controller.
func (l *lateControl) Order(ctx context.Context, o capture.Order) error {
	c := l.connected()
	if c == nil {
		return errNotConnected
	}
	return c.Order(ctx, o)
}

// Detach implements capture.Controller.
func (l *lateControl) Detach(ctx context.Context) error {
	c := l.connected()
	if c == nil {
		return errNotConnected
	}
	return c.Detach(ctx)
}

// newWatching prepares to watch a job.
func newWatching(title, waiting string) *watching {
	w := &watching{session: capture.NewSession(capture.Limits{}), control: &lateControl{}}
	w.feed = newSessionFeed(w.session, w.control, title, waiting)
	w.feed.books = books.New(w.session) // which open NVML only for a process whose steps have figures of a device's allocator
	w.relay = pytorch.NewRelay(w.session, w.control)
	w.sink = w.relay
	return w
}

// watcher is what commands have in common that watch a training: how it is captured and written, and where
// that is said.
type watcher struct {
	*app
	live   liveFlags
	probes string // by which probes, "" for none
}

// liveFlags are the flags of commands that watch a job.
type liveFlags struct {
	every         int
	depth         string
	unasked       bool // every is our own choice
	headless      bool
	outlives      bool // the end of the terminal ends nothing
	triggers      []string
	before, after int
	maxBytes      string
	maxAge        time.Duration
	keep          int
}

// add adds those that all of them have.
func (f *liveFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.IntVar(&f.every, "every", 0, "capture one step in so many whole, op by op; 0 captures two at the beginning and then only by request")
	p.StringVar(&f.depth, "depth", "", "capture by ops (each op with what it touches), history (the GPU allocator's own record) or profile (torch's profiler) (default ops)")
	p.StringArrayVar(&f.triggers, "trigger", nil, "write only what stands around an event: oom, allocated>60GiB, leak>1MiB/step, ... (may be repeated)")
	p.IntVar(&f.before, "before", 3, "captured steps to keep from before a trigger")
	p.IntVar(&f.after, "after", 1, "captured steps to keep from after a trigger")
	p.StringVar(&f.maxBytes, "max-size", "", "begin another file at this size, such as 1GiB")
	p.DurationVar(&f.maxAge, "max-age", 0, "begin another file at this age, such as 1h")
	p.IntVar(&f.keep, "keep", 0, "files to keep when others are begun, the oldest going first (default all)")
}

// watch prepares to watch a job, written to a file where the command line asks for one.
func (c *watcher) watch(title, waiting string) (*watching, error) {
	if d := c.live.depth; d != "" && !slices.Contains([]string{capture.HowOps, capture.HowHistory, capture.HowProfile}, d) {
		return nil, usageError{fmt.Errorf("--depth %q: name ops, history or profile", d)}
	}
	w := newWatching(title, waiting)
	w.unasked, w.every, w.feed.every, w.feed.depth = c.live.unasked, c.live.every, c.live.every, c.live.depth
	if c.flags.output != "" {
		o, err := c.recordOptions(c.flags.output, c.flags.force, "", w.control, w.relay)
		if err != nil {
			return nil, err
		}
		if w.recorder, err = capture.NewRecorder(o); err != nil {
			return nil, err
		}
		w.sink = capture.Tee(w.relay, w.recorder)
	}
	return w, nil
}

// tell says something while a process is watched: on the screen where there is one, which lines on standard
// error would spoil.
func (c *watcher) tell(r *pytorch.Relay, key, text string) {
	if f := &c.live; f.headless || f.outlives || !c.hasScreen() {
		c.note("%s", text)
		return
	}
	r.Notice(capture.Notice{Key: key, Text: text})
}

// job is a source that takes orders.
type job interface {
	capture.Source
	capture.Controller
}

// run follows the source until it ends or ctx is done; the feed follows the session meanwhile.
func (w *watching) run(ctx context.Context, source job) {
	w.control.connect(source)
	if s, ok := source.(interface{ Share(r *pytorch.Relay) }); ok {
		s.Share(w.relay)
	}
	w.source.Go(func() { w.feed.run(ctx) })
	w.source.Go(func() {
		if err := source.Run(ctx, w.sink); err != nil && ctx.Err() == nil {
			w.sink.End(capture.End{Reason: capture.Refused, Code: -1, Detail: err.Error()})
		}
	})
}

// close waits for the source, and until other viewers know how it ended, and ends the recording.
func (w *watching) close() error {
	w.source.Wait()
	w.relay.Close()
	if w.recorder != nil {
		return w.recorder.Close()
	}
	return nil
}

// abandon closes the recording of a job that never began, and removes it.
func (w *watching) abandon() error {
	err := w.close()
	if w.recorder != nil {
		for _, f := range w.recorder.Files() {
			_ = os.Remove(f)
		}
	}
	return err
}

// injector brings the agent into processes, of which started is the start time where that is not 0, and says
// how it went.
func (w *watching) injector(started uint64) pytorch.Injector {
	return func(ctx context.Context, pid int, source string) error {
		r, err := inject.Inject(ctx, pid, inject.Bootstrap{Source: source, Started: started, Watch: func(p inject.Phase) {
			if p == inject.Queued {
				w.sink.Notice(capture.Notice{Key: "state", State: true, Text: "for the interpreter: its main thread is in a long call outside of Python, or asleep"})
			}
		}})
		if err == nil {
			w.sink.Notice(capture.Notice{Key: "attached", Text: attachedBy(r)})
		}
		return err
	}
}

// attachedBy says how the agent came into a process, and what that took of its time.
func attachedBy(r inject.Report) string {
	text := fmt.Sprintf("attached by %s; the job stood still for %s", r.Mechanism, timeline.Duration(int64(r.Stopped())))
	if starved := r.Starved(); starved > r.Stopped()/2 {
		text += fmt.Sprintf(", for %s of which it waited for a processor: this machine has more to do than it can", timeline.Duration(int64(starved)))
	}
	return text
}

// reach brings the agent into processes that a started command's environment does not reach. Where there is
// no screen to say it on, why that fails is printed.
func (c *runCommand) reach(w *watching, headless bool) pytorch.Injector {
	bring := w.injector(0)
	return func(ctx context.Context, pid int, source string) error {
		err := bring(ctx, pid, source)
		if err != nil && headless && ctx.Err() == nil && !errors.Is(err, inject.ErrGone) {
			c.note("the environment did not reach a program that has loaded torch, and it is not watched: %s", oneLine(err))
		}
		return err
	}
}

// connect brings the agent into a running process and follows it until ctx is done. What it comes to is told
// to the session. It returns at once.
func (w *watching) connect(ctx context.Context, pid int, started uint64) {
	w.source.Go(func() {
		waiting, connected := context.WithCancel(ctx)
		defer connected()
		following := make(chan struct{})
		go func() {
			w.feed.run(waiting)
			close(following)
		}()
		s, err := pytorch.Attach(ctx, pid, w.injector(started))
		if err != nil {
			if ctx.Err() == nil {
				w.sink.End(capture.End{Reason: capture.Refused, Code: -1, Detail: err.Error()})
			}
			<-following
			return
		}
		connected()
		<-following
		if s.Host() == 0 {
			w.feed.first = firstSteps
		}
		w.has(s)
		w.source.Go(func() { w.feed.run(ctx) })
		err = s.Run(ctx, w.sink)
		for s.Host() != 0 && errors.Is(err, pytorch.ErrLost) && ctx.Err() == nil {
			next, lost := pytorch.Connect(ctx, s.Target().PID)
			if lost != nil {
				break
			}
			if next.Host() == 0 { // or it says itself with whom it looks along
				w.sink.Notice(capture.Notice{Key: pytorch.KeyAlong, Text: fmt.Sprintf("process %d, which watched this job, is gone; this viewer has the agent now", s.Host())})
			}
			s = next
			w.has(s)
			err = s.Run(ctx, capture.Resume(w.session, w.sink))
		}
		if err != nil && ctx.Err() == nil {
			w.sink.End(capture.End{Reason: capture.Disarmed, Code: -1, Detail: err.Error()})
		}
	})
}

// has takes a session over, by which orders go to the agent from now on: its own, or one by way of another
// viewer.
func (w *watching) has(s *pytorch.Session) {
	w.feed.mu.Lock()
	w.feed.look.Capture.Along = s.Host()
	switch {
	case s.Host() == 0:
		w.feed.every, w.feed.told = cmp.Or(w.feed.every, w.every), false // an agent that has lost its viewer captures nothing by itself
	case w.unasked: // who looks along is shown what was captured already, and orders nothing by himself
		w.feed.every = 0
	}
	w.feed.mu.Unlock()
	w.mu.Lock()
	w.attach = s
	w.mu.Unlock()
	w.control.connect(s)
	s.Share(w.relay)
}

// letGo takes the agent out of a process that was attached to, and out of the other ranks. Its source must be
// running still.
func (w *watching) letGo() error { return errors.Join(w.letGoOne(), w.kin.leave()) }

func (w *watching) letGoOne() error {
	w.mu.Lock()
	s := w.attach
	w.mu.Unlock()
	if s == nil || w.session.Snapshot().Ended {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Detach(ctx); err != nil {
		return fmt.Errorf("the agent did not answer within %s and stays in process %d until it does; it costs next to nothing, and `gmemtop attach %d` finds it: %w",
			patience, w.session.Snapshot().Target.PID, w.session.Snapshot().Target.PID, err)
	}
	return nil
}

// attachable says what stands in the way of attaching to a process. Where an agent lives there already
// nothing does: it is not touched.
func attachable(pid int) (inject.Findings, error) {
	found := inject.Check(pid)
	if err := pytorch.OtherVersion(pid); err != nil {
		return found, err
	}
	if err := found.Err(); err != nil && !pytorch.Lives(pid) {
		return found, err
	}
	return found, nil
}

// attachFeed watches a process that was chosen on the screen, until ctx is done, and plans are carried out in
// it. letting is told how to wait for its end.
func (c *watcher) attachFeed(planner *livePlanner, letting *sync.WaitGroup) func(ctx context.Context, pid int) (live.Feed, error) {
	return func(ctx context.Context, pid int) (live.Feed, error) {
		found, err := attachable(pid)
		if err != nil {
			return nil, err
		}
		w, err := c.watch("", fmt.Sprintf("for process %d to take the agent in", pid))
		if err != nil {
			return nil, err
		}
		run, stop := context.WithCancel(context.Background())
		w.connect(run, pid, found.Started)
		leave := planner.watch(w.crew)
		letting.Go(func() {
			<-ctx.Done()
			leave()
			_ = w.letGo() // the screen is gone: there is nobody to tell
			stop()
			_ = w.close()
		})
		return w.feed, nil
	}
}

// childError carries the exit code of a command that was started; nothing is printed for it.
type childError struct{ code int }

func (e childError) Error() string { return fmt.Sprintf("the command ended with exit code %d", e.code) }

// recordOptions reads the flags of a recording to path, which overwrites what is there where force is set.
// What the recorder has to say while the process is watched is told with the process's name in front where
// that is not "".
func (c *watcher) recordOptions(path string, force bool, who string, control capture.Controller, relay *pytorch.Relay) (capture.RecordOptions, error) {
	f := &c.live
	if who != "" {
		who += ": "
	}
	o := capture.RecordOptions{Path: path, MaxAge: f.maxAge, Keep: f.keep, Before: f.before, After: f.after, Control: control,
		Fired: func(t *capture.Trigger, s capture.Step, why string) {
			c.tell(relay, "trigger "+t.String(), fmt.Sprintf("%s%s: %s in step %d", who, t, why, s.Index))
		},
		Failed: func(err error) {
			c.tell(relay, "recording", fmt.Sprintf("%snothing is recorded any more: %s; what was written stays readable and the job goes on: record it again to another file with -o", who, oneLine(err)))
		},
	}
	if f.maxBytes != "" {
		n, err := timeline.ParseBytes(f.maxBytes)
		if err != nil {
			return o, usageError{fmt.Errorf("--max-size: %w", err)}
		}
		o.MaxBytes = n
	}
	for _, text := range f.triggers {
		t, err := capture.ParseTrigger(text, timeline.ParseBytes, timeline.ParseDuration)
		if err != nil {
			return o, usageError{err}
		}
		o.Triggers = append(o.Triggers, t)
	}
	if force {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return o, err
		}
	}
	return o, nil
}
