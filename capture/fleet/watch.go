package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Watch makes a job of what the nodes of a run send. Its methods are safe for concurrent use.
type Watch struct {
	options WatchOptions

	// caught is closed when all steps that the hub had at the beginning were read, and summed when the
	// roll-ups of those before them were, too.
	caught, summed chan struct{}

	mu      sync.Mutex
	job     *job.Job
	main    *job.Watch
	begun   bool // the first process has one of ours
	nodes   map[string]*node
	behind  map[bus.Kind]bool // what the hub had is not read yet
	damaged int64

	// After that: when the newest message was read, and how long the hub had it then.
	readAt time.Time
	lag    time.Duration

	preceded bool          // the roll-ups of the steps before are read
	holed    chan struct{} // receives when steps turn out to be missing between others

	unsealed error // why not all processes are recorded
}

// WatchOptions say what is kept of a run.
type WatchOptions struct {
	// Ranks is how many ranks the run is expected to have, 0 if unknown: the more there are, the fewer steps
	// of each are kept.
	Ranks int
	// Record, unless nil, is called for each process before its first step, and may record it.
	Record func(p *job.Process, attempt int) error
	now    func() time.Time
	resum  time.Duration // the least time between two readings of roll-ups, a minute except in tests
}

// node is what is known about a node.
type node struct {
	host    string
	ranks   map[int]*member
	heard   time.Time
	silence string // why nothing comes from it, "" if something does
	missing bool   // it counts as lost
	dropped int64
	over    bool
	code    maybe.Int
}

// member is a process of a node.
type member struct {
	process *job.Process
	attempt int
	next    int64 // the index of the first step that was not seen
	first   int64 // the index of the first step that was
	taken   int64 // how many steps were
	end     *end  // how it ended, once its last step is here
	last    int64 // the index of the newest step that its node speaks of
	ended   time.Time
	early   capture.Spans // of steps that the hub no longer has
	summed  int64         // how many steps these are
	holes   []hole        // steps that are missing between others
	bridges []capture.Span

	origin  maybe.Int // the index of the first step that the node had
	dropped []span    // what the node says it dropped
	before  int64     // how many of these came before the first step that was seen
	after   int64     // how many steps at the end are counted as lost
	counted bool      // what the process had not sent is counted
}

const (
	// keptSteps is how many steps of all ranks together are kept.
	keptSteps = 1 << 18
	// keptSpans is how many spans of all ranks together sum up the steps before.
	keptSpans = 1 << 14
	// lateAfter is how long a node may be silent before it is called late, lostAfter before it is called
	// lost. Nodes say hello every two seconds.
	lateAfter = 3 * helloEvery
	lostAfter = 15 * helloEvery
	// lookEvery is how often to check which nodes are silent: no message says so.
	lookEvery = time.Second / 2
	// endGrace is how long the end of a process waits for its last steps.
	endGrace = 2 * time.Second
)

// NewWatch returns the watch of a run about which nothing is known yet.
func NewWatch(o WatchOptions) *Watch {
	if o.now == nil {
		o.now = time.Now
	}
	o.resum = cmp.Or(o.resum, rollEvery)
	keep := min(max(keptSteps/max(o.Ranks, 8), 256), 50_000)
	main := job.NewWatch(job.Options{Keep: capture.Limits{Steps: keep, WindowBytes: 64 << 20,
		Spans: max(keptSpans/max(o.Ranks, 8), 128)}})
	return &Watch{options: o, main: main, job: job.New(main), nodes: map[string]*node{},
		behind: map[bus.Kind]bool{bus.Hello: true, bus.Step: true}, caught: make(chan struct{}),
		summed: make(chan struct{}), holed: make(chan struct{}, 1)}
}

// Job is the run as a job.
func (w *Watch) Job() *job.Job { return w.job }

// catchUp is how long a hub may take to send everything it has.
const catchUp = time.Minute

// CatchUp waits until everything that the hub of a run had at the beginning was read.
func (w *Watch) CatchUp(ctx context.Context, run string) error {
	select {
	case <-w.caught:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(catchUp):
		return fmt.Errorf("the hub of run %s did not send what it has within %s: check that gmemtop hub "+
			"still runs there, then try again", run, catchUp)
	}
}

// Run reads the hub until ctx is done.
func (w *Watch) Run(ctx context.Context, c *bus.Conn) {
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.look(c.Connected())
			}
		}
	})
	work.Go(func() { w.sums(ctx, c) })
	c.Read(ctx, w.take, w.caughtUp, bus.Hello, bus.Step)
	work.Wait()
}

// Close ends the job, once Run has returned.
func (w *Watch) Close() error { return w.job.Close() }

// take takes a message.
func (w *Watch) take(m bus.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[m.Node]
	if n == nil {
		n = &node{ranks: map[int]*member{}, host: m.Node}
		w.nodes[m.Node] = n
	}
	if heard := w.options.now().Add(-m.Age); heard.After(n.heard) {
		n.heard = heard
	}
	if n.silence != "" && m.Age < lateAfter {
		w.silent(n, "", false)
	}
	if len(w.behind) == 0 && m.Kind != bus.Roll { // roll-ups are read late and old
		w.readAt, w.lag = w.options.now(), m.Age
	}
	var err error
	switch m.Kind {
	case bus.Hello:
		var h hello
		if h, err = readHello(m.Data); err == nil {
			w.greet(n, h)
		}
	case bus.Step:
		err = readBatches(m.Data, func(b batch) { w.steps(n, b) })
	case bus.Roll:
		err = readRolled(m.Data, func(x rolled) { w.roll(n, x) })
	}
	if err != nil {
		w.damaged++
		w.main.History.Notice(capture.Notice{Key: "fleet-damaged", Text: fmt.Sprintf(
			"%d messages from nodes could not be read: %v", w.damaged, err)})
	}
}

// caughtUp notes that everything of a kind was read.
func (w *Watch) caughtUp(k bus.Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.behind) == 0 {
		return // of another hub before this one
	}
	if delete(w.behind, k); len(w.behind) == 0 {
		w.lookAt(w.options.now(), true) // a node may have been silent for long when a viewer comes
		close(w.caught)
	}
}

// member returns a process of a node, which is new at its first step.
func (w *Watch) member(n *node, r *rank) *member {
	m := n.ranks[r.ID]
	if m != nil {
		return m
	}
	m = &member{attempt: r.Attempt, early: capture.NewSpans(w.main.History.Limits().Spans)}
	t := r.info(n.host)
	if !w.begun {
		w.begun = true
		m.process = w.main.Process
	} else {
		m.process = w.job.Add(t, nil)
	}
	m.process.Begin(t)
	if w.options.Record != nil {
		if err := w.options.Record(m.process, m.attempt); err != nil {
			m.process.History.Notice(capture.Notice{Key: "fleet-record", Text: err.Error()})
			w.unsealed = errors.Join(w.unsealed, err)
		}
	}
	n.ranks[r.ID] = m
	return m
}

// steps takes the steps of one process. Those that came before are skipped, and those that are missing in
// between are counted.
func (w *Watch) steps(n *node, b batch) {
	m := w.member(n, &rank{ID: b.id, Attempt: b.attempt, PID: b.pid, Rank: b.rank, WorldSize: b.worldSize})
	for _, s := range b.steps {
		if s.Index < m.next {
			continue
		}
		if m.after > 0 { // they were only late
			m.lose(-m.after)
			m.after = 0
		}
		if gap := s.Index - m.next; gap > 0 && m.taken > 0 {
			m.lose(gap)
			w.misses(m, hole{m.next, s.Index - 1})
		}
		if m.taken == 0 {
			m.first = s.Index
		}
		m.taken++
		m.next = s.Index + 1
		m.process.Step(s)
	}
	m.countFirst()
	w.finish(m)
}

func (m *member) lose(steps int64) {
	m.process.Lose("steps", steps,
		"they never reached the hub, or it no longer had them or their sums when this viewer was back")
}

// countFirst counts the steps that the node dropped before the first one here. Nothing else shows that they
// ever existed: steps older than the first one are usually those that the hub no longer has.
func (m *member) countFirst() {
	if m.taken == 0 {
		return // any of them may still come
	}
	if n := before(m.dropped, m.first); n > m.before {
		m.lose(n - m.before)
		m.before = n
	}
}

// countLast counts the steps after the newest one that is here, once none of them can come.
func (m *member) countLast() {
	n := max(m.last+1-m.next, 0)
	if m.taken == 0 {
		n = before(m.dropped, m.last+1)
	}
	if n != m.after {
		m.lose(n - m.after)
		m.after = n
	}
}

// gone is how many steps the hub no longer had, one by one or summed up.
func (m *member) gone() int64 {
	if m.taken == 0 {
		return 0
	}
	return max(m.first-m.origin.Or(0)-m.before-m.summed, 0)
}

// greet takes a hello.
func (w *Watch) greet(n *node, h hello) {
	n.host = h.Host
	for i := range h.Ranks {
		r := &h.Ranks[i]
		m := w.member(n, r)
		m.process.Begin(r.info(h.Host))
		m.origin, m.dropped, m.last = r.First, r.Lost, r.Step
		m.countFirst()
		if r.End != nil && m.end == nil {
			m.end, m.ended = r.End, w.options.now()
			w.finish(m)
		}
	}
	if h.Counts.Dropped != n.dropped {
		n.dropped = h.Counts.Dropped
		for _, m := range n.ranks {
			m.process.Notice(capture.Notice{Key: "fleet-dropped", Text: fmt.Sprintf(
				"%s dropped %d messages that the hub did not take in time", h.Host, n.dropped)})
		}
	}
	n.over, n.code = h.Over, h.Code
	w.finishRun()
}

// awaited reports whether the last steps of a process that has ended are still to come.
func (w *Watch) awaited(m *member) bool {
	late := len(w.behind) == 0 && w.options.now().Sub(m.ended) >= endGrace
	return m.end != nil && m.next <= m.last && !late
}

// finish ends a process when its last step is here.
func (w *Watch) finish(m *member) {
	if m.end == nil || w.awaited(m) {
		return
	}
	m.countLast()
	if n := m.end.Unsent; n > 0 && !m.counted {
		m.counted = true
		m.process.Lose("unsent_steps", n, "an estimate from the pace of its steps: the process "+
			"was killed before it sent them")
	}
	if n := m.end.Recovered.Or(0); n > 0 {
		m.process.Notice(capture.Say(say.FromRing, n))
	}
	m.process.End(capture.End{Reason: m.end.Reason, Code: m.end.Code, Detail: m.end.Detail,
		OutOfMemory: m.end.OutOfMemory, Recovered: m.end.Recovered})
}

// finishRun ends the job when the commands of all nodes have ended.
func (w *Watch) finishRun() {
	if _, over := w.job.Over(); over || len(w.nodes) == 0 {
		return
	}
	var code maybe.Int
	for _, n := range w.nodes {
		if !n.over {
			return
		}
		if c, known := n.code.Value(); known && (c != 0 || !code.IsKnown()) {
			code = maybe.Known(c)
		}
		for _, m := range n.ranks {
			if w.awaited(m) {
				return
			}
		}
	}
	w.job.End(capture.End{Reason: capture.Exited, Code: code})
}

// settle counts what has not come as lost: nothing more is read.
func (w *Watch) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		for _, m := range n.ranks {
			m.countLast()
		}
	}
}

// look notices what happens when nothing comes.
func (w *Watch) look(connected bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookAt(w.options.now(), connected)
}

// lagging reports whether this process reads old messages, which it does when it gets too little time on a
// busy machine. The hub may have newer ones of any node.
func (w *Watch) lagging(now time.Time) bool {
	return w.lag >= lateAfter/2 && now.Sub(w.readAt) < lateAfter
}

// lookAt is look at a moment; w.mu is held.
func (w *Watch) lookAt(now time.Time, connected bool) {
	for _, n := range w.nodes {
		for _, m := range n.ranks {
			w.finish(m)
		}
		since, why, missing := now.Sub(n.heard), "", false
		switch {
		case n.over || since < lateAfter:
		case !connected:
			why = "the hub does not answer"
		case w.lagging(now):
			why, missing = n.silence, n.missing
		case len(w.behind) > 0: // newer messages of the node may still have to be read
		case since < lostAfter:
			why = fmt.Sprintf("late: nothing from %s for %s", n.host, since.Round(time.Second))
		default:
			why = fmt.Sprintf("lost: nothing from %s for %s", n.host, since.Round(time.Second))
			missing = true
		}
		if why != n.silence {
			w.silent(n, why, missing)
		}
	}
	w.finishRun()
}

// silent says why nothing comes from a node, "" if something comes again, and whether it counts as lost.
func (w *Watch) silent(n *node, why string, missing bool) {
	n.silence, n.missing = why, missing
	for _, m := range n.ranks {
		if m.end == nil {
			m.process.History.Sever(why, missing)
		}
	}
}
