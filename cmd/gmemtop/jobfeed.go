package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/books"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/live"
)

// A command may train in several processes: the ranks of torchrun, what mp.spawn starts, two scripts beside
// each other or one after the other.
//
// The source sends what one of them says to one sink, that of the job, and asks for a sink for every other;
// when the one ends another may take its place in the job's sink. Here each process has a session, a feed
// and, where the job is recorded, a file of its own from its first step on; what has not stepped, a launcher
// that imports torch, is not in the list. jobFeed is the job's sink and hands every message to the session of
// the process that it comes from, and it is the screen's feed: the feed of the process that is chosen with
// the list of all of them.
//
// Feeds of hidden processes make no timelines and rest longer: 64 ranks cost the viewer about what two do.

// jobFeed is a command with all of its processes. It implements capture.Sink for the source and live.Feed for
// the screen.
type jobFeed struct {
	news
	main   *watching
	every  int                             // of how many steps of every process one is captured whole
	share  func(pid int, r *pytorch.Relay) // serves other viewers of a process; nil for not at all
	record func(t capture.Target, c capture.Controller, r *pytorch.Relay) (*capture.Recorder, error)
	notice func(t capture.Target, n capture.Notice) // hears what processes have to say; nil for nobody
	ctx    context.Context                          // of the feeds
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	members []*member // the first is the one that the job's session is of
	current *member   // whose messages come to the job's sink
	shown   *member   // on the screen
	wanted  *member   // to be shown as soon as its feed is up to date
	picked  bool      // by the user
	over    bool      // the command has ended, as end says
	end     capture.End
	ends    int // processes that have ended
}

// member is a process of a job, and the sink of what it sends.
type member struct {
	job     *jobFeed
	id      int
	session *capture.Session
	control *lateControl
	feed    *sessionFeed
	relay   *pytorch.Relay

	// guarded by job.mu
	out      capture.Sink // of the session and of the file
	target   capture.Target
	stepped  bool
	ended    bool
	order    int    // in which it ended
	left     string // how the agent left, where the process went on without
	recorder *capture.Recorder
	unsaved  error // why nothing of it is written
}

// Limits of what is kept of a process that is not the first: there may be many.
const (
	memberSteps  = 50_000
	memberWindow = 64 << 20
)

// lookAfter is how often it is looked whether the process of the job's sink is there still, which the source
// does not say.
const lookAfter = time.Second

// newJobFeed returns the feed of a job whose first process is watched by w.
func newJobFeed(w *watching) *jobFeed {
	f := &jobFeed{main: w, every: w.feed.every}
	f.ctx, f.stop = context.WithCancel(context.Background())
	m := &member{job: f, session: w.session, control: w.control, feed: w.feed, relay: w.relay, out: w.sink, recorder: w.recorder, target: capture.Target{Rank: -1}}
	f.members, f.current, f.shown, f.wanted = []*member{m}, m, m, m
	f.follow(m)
	f.work.Go(f.watch)
	return f
}

// follow has the job's version grow with a member's.
func (f *jobFeed) follow(m *member) {
	f.work.Go(func() {
		for version := int64(0); m.feed.Wait(f.ctx, version) == nil; f.tell() {
			version = m.feed.now()
		}
	})
}

// watch says of a process that is gone that it has ended. The source says so of all processes but the one of
// the job's sink, whose end it takes for the job's; of several, the others may go on, or wait for it for
// ever.
func (f *jobFeed) watch() {
	tick := time.NewTicker(lookAfter)
	defer tick.Stop()
	var lister procs.Lister
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-tick.C:
		}
		f.mu.Lock()
		m, several := f.current, len(f.members) > 1
		t, stepped, ended := m.target, m.stepped, m.ended
		f.mu.Unlock()
		if !several || !stepped || ended || t.Started == 0 {
			continue
		}
		p, err := lister.Look(t.PID)
		if errors.Is(err, fs.ErrNotExist) || err == nil && p.Started != t.Started {
			m.End(capture.End{Reason: capture.Exited, Code: -1})
		}
	}
}

// add makes a member of a process that comes second or later.
func (f *jobFeed) add(t capture.Target, c capture.Controller) *member {
	m := &member{job: f, session: capture.NewSession(capture.Limits{Steps: memberSteps, WindowBytes: memberWindow}), control: &lateControl{}, target: t}
	m.control.connect(c)
	m.feed = newSessionFeed(m.session, m.control, "", "for the first training step")
	m.feed.ids, m.feed.every, m.feed.back, m.feed.books = f.main.feed.ids, f.every, true, books.New(m.session)
	m.relay = pytorch.NewRelay(m.session, m.control)
	m.out = m.relay
	f.mu.Lock()
	defer f.mu.Unlock()
	m.id = len(f.members)
	f.members = append(f.members, m)
	return m
}

// admit begins a member's file and feed, with its first step.
func (m *member) admit() {
	f := m.job
	f.mu.Lock()
	known, first, t := m.stepped, m.id == 0, m.target
	m.stepped = true
	f.mu.Unlock()
	if known || first {
		return
	}
	if f.record != nil {
		r, err := f.record(t, m.control, m.relay)
		f.mu.Lock()
		m.recorder, m.unsaved = r, err
		f.mu.Unlock()
		if err != nil {
			m.session.Notice(capture.Notice{Key: "recording", Text: err.Error()})
		} else {
			r.Begin(t)
			f.mu.Lock()
			m.out = capture.Tee(m.relay, r)
			f.mu.Unlock()
		}
	}
	if f.share != nil {
		f.share(t.PID, m.relay)
	}
	f.follow(m)
	f.work.Go(func() { m.feed.run(f.ctx) })
	f.mu.Lock()
	next := !f.picked && f.shown.ended // one that follows another, as scripts in a row do, is shown in its place
	f.mu.Unlock()
	if next {
		f.work.Go(func() { f.show(m) })
	}
}

// show has a member shown once its feed is up to date; the last one asked for is.
func (f *jobFeed) show(m *member) {
	f.mu.Lock()
	f.wanted = m
	f.mu.Unlock()
	m.feed.show(true)
	m.feed.take(f.ctx, m.session.Snapshot())
	f.mu.Lock()
	old := f.shown
	if f.wanted == m {
		f.shown = m
	}
	now := f.shown
	f.mu.Unlock()
	for _, x := range []*member{old, m} {
		if x != now {
			x.feed.show(false)
		}
	}
	f.tell()
}

// sink returns where what comes of the process goes.
func (m *member) sink() capture.Sink {
	m.job.mu.Lock()
	defer m.job.mu.Unlock()
	return m.out
}

// Begin implements capture.Sink.
func (m *member) Begin(t capture.Target) {
	m.job.mu.Lock()
	m.target = t
	m.job.mu.Unlock()
	m.sink().Begin(t)
}

// Step implements capture.Sink.
func (m *member) Step(s capture.Step) {
	m.admit()
	m.sink().Step(s)
}

// Window implements capture.Sink.
func (m *member) Window(w capture.Window) {
	m.admit()
	m.sink().Window(w)
}

// Notice implements capture.Sink.
func (m *member) Notice(n capture.Notice) {
	if n.Key == "agent" {
		m.job.mu.Lock()
		m.left = n.Text
		m.job.mu.Unlock()
	}
	if m.job.notice != nil {
		m.job.mu.Lock()
		t := m.target
		m.job.mu.Unlock()
		m.job.notice(t, n)
	}
	m.sink().Notice(n)
}

// Answer implements capture.Sink.
func (m *member) Answer(a capture.Answer) { m.sink().Answer(a) }

// Lose implements capture.Sink.
func (m *member) Lose(name string, n int64, detail string) { m.sink().Lose(name, n, detail) }

// Output implements capture.Sink.
func (m *member) Output(p []byte) { m.sink().Output(p) }

// End implements capture.Sink. Of several ends the first counts, unless a later one says more.
func (m *member) End(e capture.End) {
	m.job.mu.Lock()
	again := m.ended
	if !again {
		m.job.ends++
		m.ended, m.order = true, m.job.ends
	}
	m.job.mu.Unlock()
	switch {
	case !again:
		m.sink().End(e)
	case e.Detail != "" || e.Code > 0:
		m.session.End(e)
		m.feed.take(m.job.ctx, m.session.Snapshot()) // its feed rests since the first end
	}
}

// same reports whether two targets are one process.
func same(a, b capture.Target) bool {
	return a.PID == b.PID && (a.Started == b.Started || a.Started == 0 || b.Started == 0)
}

// sending returns the process whose messages come to the job's sink.
func (f *jobFeed) sending() *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// Begin implements capture.Sink: what comes from now on is of that process. Until one has stepped it is not
// settled which it will be.
func (f *jobFeed) Begin(t capture.Target) {
	f.mu.Lock()
	now := f.current
	next := now
	if now.stepped && !same(now.target, t) {
		next = nil
		for _, m := range f.members {
			if same(m.target, t) {
				next = m
			}
		}
	}
	f.mu.Unlock()
	if next == nil {
		next = f.add(t, f.main.control.connected())
	}
	if next != now {
		f.passOn(now, next)
	}
	next.Begin(t)
}

// passOn makes next the process that the job's sink is of: the one before has ended, or its agent has left
// it.
func (f *jobFeed) passOn(now, next *member) {
	f.mu.Lock()
	f.current = next
	e := capture.End{Reason: capture.Exited, Code: -1}
	if now.left != "" {
		e = capture.End{Reason: capture.Detached, Code: -1}
	}
	f.mu.Unlock()
	now.control.connect(nil)
	now.End(e)
}

// Step implements capture.Sink.
func (f *jobFeed) Step(s capture.Step) { f.sending().Step(s) }

// Window implements capture.Sink.
func (f *jobFeed) Window(w capture.Window) { f.sending().Window(w) }

// Notice implements capture.Sink.
func (f *jobFeed) Notice(n capture.Notice) { f.sending().Notice(n) }

// Answer implements capture.Sink.
func (f *jobFeed) Answer(a capture.Answer) { f.sending().Answer(a) }

// Lose implements capture.Sink.
func (f *jobFeed) Lose(name string, n int64, detail string) { f.sending().Lose(name, n, detail) }

// Output implements capture.Sink: what is printed is the job's, and kept with its first process.
func (f *jobFeed) Output(p []byte) {
	f.mu.Lock()
	first := f.members[0]
	ended := first.ended
	f.mu.Unlock()
	first.Output(p)
	if ended {
		f.tell()
	}
}

// Ended implements pytorch.EndOfOne: of several processes the others may go on. The end of the only one is
// the job's, which has an exit code.
func (f *jobFeed) Ended(t capture.Target, e capture.End) {
	if m := f.sending(); same(m.target, t) && len(f.stepping()) > 1 {
		m.End(e)
	}
}

// End implements capture.Sink. A job of one ends as its process does; of several, the exit code is the
// command's, and what the last of them said, which may be the launcher, is not of any one in the list.
func (f *jobFeed) End(e capture.End) {
	list := f.stepping()
	if len(list) < 2 {
		f.sending().End(e)
	}
	for _, m := range list {
		m.End(capture.End{Reason: capture.Exited, Code: -1})
	}
	f.mu.Lock()
	f.over, f.end = true, e
	f.mu.Unlock()
	f.tell()
}

// stepping returns the processes that have stepped, by rank as far as they have one.
func (f *jobFeed) stepping() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*member
	rank := map[*member]int{}
	for _, m := range f.members {
		if !m.stepped {
			continue
		}
		list = append(list, m)
		if rank[m] = m.target.Rank; m.target.Rank < 0 {
			rank[m] = math.MaxInt
		}
	}
	slices.SortStableFunc(list, func(a, b *member) int { return cmp.Compare(rank[a], rank[b]) })
	return list
}

// Look implements live.Feed.
func (f *jobFeed) Look() live.Look {
	version := f.now()
	f.mu.Lock()
	shown, over, end := f.shown, f.over, f.end
	f.mu.Unlock()
	l := shown.feed.Look()
	l.Version = version
	list := f.stepping()
	if len(list) < 2 {
		return l
	}
	peers := make([]timeline.Peer, len(list))
	for i, m := range list {
		r := m.feed.rank()
		r.ID = m.id
		l.Ranks = append(l.Ranks, r)
		if peers[i] = r.Typical; r.State == live.Ended {
			peers[i] = timeline.TypicalPeer(nil)
		}
	}
	l.Peers, l.Chosen = timeline.ComparePeers(peers), shown.id
	if out := tail(f.main.session.Snapshot()); out != nil {
		l.Output = out
	}
	if !over {
		return l
	}
	// How a job of several ended is the command's exit code and what the first of them said that failed: the
	// others went because of it.
	first := -1
	f.mu.Lock()
	for i, m := range list {
		if l.Ranks[i].Failed && (first < 0 || m.order < list[first].order) {
			first = i
		}
	}
	f.mu.Unlock()
	word := endWord(end)
	if first >= 0 {
		word = endWord(capture.End{Reason: end.Reason, Code: end.Code}) + "; " + l.Ranks[first].Name() + ": " + l.Ranks[first].Word
	}
	l.State, l.Word, l.Failed = live.Ended, word, end.Code > 0
	return l
}

// Order implements live.Feed.
func (f *jobFeed) Order(ctx context.Context, o live.Order) error {
	f.mu.Lock()
	shown := f.shown
	members := slices.Clone(f.members)
	f.mu.Unlock()
	switch {
	case o.Kind == live.Choose:
		for _, m := range members {
			if m.id == o.Rank {
				f.mu.Lock()
				f.picked = true
				f.mu.Unlock()
				f.show(m)
				return nil
			}
		}
		return fmt.Errorf("there is no process %d in this job", o.Rank)
	case o.All:
		var errs []error
		for _, m := range members {
			if m.feed.Look().State == live.Running {
				errs = append(errs, m.feed.Order(ctx, o))
			}
		}
		return errors.Join(errs...)
	}
	return shown.feed.Order(ctx, o)
}

// isOver reports whether the command has ended.
func (f *jobFeed) isOver() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// close ends what belongs to the processes but the first, once the source has ended.
func (f *jobFeed) close() error {
	f.stop()
	f.work.Wait()
	f.mu.Lock()
	list := slices.Clone(f.members[1:])
	f.mu.Unlock()
	errs := make([]error, len(list))
	var closing sync.WaitGroup
	for i, m := range list {
		closing.Go(func() {
			m.relay.Close() // which waits for other viewers to read the last word
			if m.recorder != nil {
				errs[i] = m.recorder.Close()
			}
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}
