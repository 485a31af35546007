package job

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
)

// Process is a watched process. It is a sink for its source and takes orders for it. Its methods are safe for
// concurrent use.
type Process struct {
	// Session is what is kept of the process.
	Session *capture.Session
	// ID tells the processes of a job apart. The first has 0.
	ID int

	job   *Job // nil unless it belongs to a command
	relay *pytorch.Relay

	mu       sync.Mutex
	source   capture.Controller // nil before it is connected
	host     int
	out      capture.Sink // the relay, and with it the recorder
	recorder *capture.Recorder
	unsaved  error
	target   capture.Target
	stepped  int  // when it first stepped, counted with the ends of the job's processes; 0 where it has not
	ended    int  // when it ended, counted the same way
	left     bool // the agent left it before it ended
	wants    wants
}

// Member is a process of a training that takes orders, or says why it does not.
type Member struct {
	*Process // nil where Err is not
	PID      int
	Name     string
	Err      error
}

// ErrNotConnected answers orders that come too early.
var ErrNotConnected = errors.New("this job takes no orders yet")

// newProcess returns a process that has not connected.
func newProcess(l capture.Limits) *Process {
	p := &Process{Session: capture.NewSession(l), target: capture.Target{Rank: -1}}
	p.relay = pytorch.NewRelay(p.Session, p)
	p.out = p.relay
	return p
}

// connect sends orders to c from now on; nil drops them.
func (p *Process) connect(c capture.Controller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.source = c
}

// connected returns what takes the orders, or nil.
func (p *Process) connected() capture.Controller {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.source
}

// Order implements capture.Controller.
func (p *Process) Order(ctx context.Context, o capture.Order) error {
	c := p.connected()
	if c == nil {
		return ErrNotConnected
	}
	return c.Order(ctx, o)
}

// Detach implements capture.Controller.
func (p *Process) Detach(ctx context.Context) error {
	c := p.connected()
	if c == nil {
		return ErrNotConnected
	}
	return c.Detach(ctx)
}

// Tell shows a notice to all who watch the process. It is not recorded.
func (p *Process) Tell(n capture.Notice) { p.relay.Notice(n) }

// Record has the process written to a file from now on.
func (p *Process) Record(o capture.RecordOptions) error {
	o.Control = p
	r, err := capture.NewRecorder(o)
	if t := p.Target(); err == nil && t.PID != 0 {
		r.Begin(t)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsaved = err; err == nil {
		p.recorder, p.out = r, capture.Tee(p.relay, r)
	}
	return err
}

// Files returns the files that the process is recorded to. The error says why it is not recorded although it
// should be.
func (p *Process) Files() ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.recorder == nil {
		return nil, p.unsaved
	}
	return p.recorder.Files(), nil
}

// Recorded reports whether the process is written to a file.
func (p *Process) Recorded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recorder != nil
}

// Target returns what is known of the process.
func (p *Process) Target() capture.Target {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// When returns when the process took its first step and when it ended, counted with those of all processes of
// the job from 1; 0 is for what has not happened.
func (p *Process) When() (stepped, ended int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stepped, p.ended
}

// hasStepped reports whether the process has taken a step.
func (p *Process) hasStepped() bool {
	stepped, _ := p.When()
	return stepped > 0
}

// hasEnded reports whether it has ended.
func (p *Process) hasEnded() bool {
	_, ended := p.When()
	return ended > 0
}

// happens sets when to the job's next count, unless it is set already.
func (p *Process) happens(when *int) (already bool) {
	n := 1
	if p.job != nil {
		n = p.job.count()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if already = *when > 0; !already {
		*when = n
	}
	return already
}

// member returns the process as one that takes orders.
func (p *Process) member() Member {
	t := p.Session.Snapshot().Target
	return Member{Process: p, PID: t.PID, Name: t.Name()}
}

// close tells other viewers how it ended, hangs up on them, and ends the recording.
func (p *Process) close() error {
	p.relay.Close()
	p.mu.Lock()
	r := p.recorder
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.Close()
}

// sink returns the sink that messages of the process go to.
func (p *Process) sink() capture.Sink {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out
}

// steps notes that the process steps.
func (p *Process) steps() {
	if !p.hasStepped() && !p.happens(&p.stepped) && p.job != nil {
		p.job.admit(p)
	}
}

// Begin implements capture.Sink.
func (p *Process) Begin(t capture.Target) {
	p.mu.Lock()
	p.target = t
	p.mu.Unlock()
	p.sink().Begin(t)
}

// Step implements capture.Sink.
func (p *Process) Step(s capture.Step) {
	p.steps()
	p.sink().Step(s)
}

// Window implements capture.Sink.
func (p *Process) Window(w capture.Window) {
	p.steps()
	p.sink().Window(w)
}

// Notice implements capture.Sink.
func (p *Process) Notice(n capture.Notice) {
	if n.Unmet && p.job != nil && p.job.Unmet != nil {
		p.job.Unmet(p.Target(), n.Text)
	}
	p.sink().Notice(n)
}

// Answer implements capture.Sink.
func (p *Process) Answer(a capture.Answer) { p.sink().Answer(a) }

// Lose implements capture.Sink.
func (p *Process) Lose(name string, n int64, detail string) { p.sink().Lose(name, n, detail) }

// Output implements capture.Sink.
func (p *Process) Output(b []byte) { p.sink().Output(b) }

// End implements capture.Sink. Of several ends the first counts, unless a later one says more.
func (p *Process) End(e capture.End) {
	again := p.happens(&p.ended)
	switch {
	case !again:
		p.sink().End(e)
	case e.Detail != "" || e.Code > 0:
		p.Session.End(e)
	}
}

// wants is what a process is asked for once, for as long as it runs.
type wants struct {
	every  int  // of how many steps one is captured whole, 0 for none
	told   bool // the source knows
	depth  string
	first  int       // how many steps to ask for whole as soon as it steps, once; 0 for none
	asked  time.Time // when steps were asked for, the zero time for never
	window int64     // the newest step that was captured then
}

// Wants says what a process is asked for.
type Wants struct {
	// Every is of how many steps one is captured whole, 0 for none.
	Every int
	// Pending says that steps were asked for and have not come yet.
	Pending bool
	// Host is the process of the viewer that has the agent, 0 for this one.
	Host int
	// Connected says that the process takes orders.
	Connected bool
}

// longestWait is how long steps that were asked for count as pending.
const longestWait = time.Minute

// warm is how many steps a process takes before it gets orders.
const warm = 1

// Wants says what the process is asked for, as of a view of its session.
func (p *Process) Wants(v *capture.View) Wants {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.wants
	pending := !w.asked.IsZero() && time.Since(w.asked) < longestWait && newestWindow(v) <= w.window
	return Wants{Every: w.every, Pending: w.first > 0 || pending, Host: p.host, Connected: p.source != nil}
}

// newestWindow returns the newest step that was captured whole, -1 for none.
func newestWindow(v *capture.View) int64 {
	if n := len(v.Windows); n > 0 {
		return v.Windows[n-1].Last
	}
	return -1
}

// Capture asks for the next steps whole.
func (p *Process) Capture(ctx context.Context, steps int) error {
	v := p.Session.Snapshot()
	if err := p.Order(ctx, capture.Order{Do: capture.Describe, Steps: max(steps, 1)}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wants.asked, p.wants.window = time.Now(), newestWindow(&v)
	return nil
}

// CaptureEvery asks for one step in so many whole, 0 for none.
func (p *Process) CaptureEvery(ctx context.Context, steps int) error {
	if err := p.Order(ctx, capture.Order{Do: capture.Every, Steps: steps}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wants.every = steps
	return nil
}

// ask gives the process its orders once it steps, until all are given or ctx is done.
func (p *Process) ask(ctx context.Context) {
	_ = p.Session.Until(ctx, func(v *capture.View) (bool, error) {
		if v.Ended || len(v.Steps) < warm {
			return v.Ended, nil
		}
		return p.askNow(ctx), nil
	})
}

// askNow gives the orders and reports whether all were taken. What is not taken is ordered again, except for
// the first steps: people see why and ask again.
func (p *Process) askNow(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.wants
	order := func(o capture.Order) bool {
		p.mu.Unlock()
		defer p.mu.Lock()
		return p.Order(ctx, o) == nil
	}
	if how := w.depth; how != "" {
		w.depth = ""
		if !order(capture.Order{Do: capture.Depth, How: how}) {
			w.depth = how
		}
	}
	if w.every > 0 && !w.told {
		w.told = true
		w.told = order(capture.Order{Do: capture.Every, Steps: w.every})
	}
	if n := w.first; n > 0 {
		w.first = 0
		p.mu.Unlock()
		_ = p.Capture(ctx, n)
		p.mu.Lock()
	}
	return w.depth == "" && (w.every == 0 || w.told)
}
