package feed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/tui/live"
)

// Job is a command as the screen sees it: the feed of the chosen process, with a list of all of them. It
// implements live.Feed.
//
// Feeds of hidden processes make no timelines and update less often, so 64 ranks cost the viewer about as
// much as two.
type Job struct {
	capture.Changes
	job    *job.Job
	prints bool
	// First is the feed of its first process.
	First *Process
	ranks ranks
	same  together
	ctx   context.Context // for the feeds
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu     sync.Mutex
	feeds  map[*job.Process]*Process
	shown  *Process // on the screen
	wanted *Process // shown once it is up to date
	picked bool     // the user chose
}

// JobOptions say what a feed of a job does other than usual.
type JobOptions struct {
	// Capture, unless nil, captures steps instead of orders to the processes, which are on other machines.
	Capture Capturer
	// Prints means that what the command prints comes here.
	Prints bool
}

// NewJob returns the feed of a job, and that of its first process.
func NewJob(j *job.Job, waiting string, o JobOptions) *Job {
	first := NewProcess(j.First(), waiting)
	f := &Job{job: j, prints: o.Prints, First: first, shown: first, wanted: first,
		feeds: map[*job.Process]*Process{}}
	if f.same.capture, first.single = o.Capture, o.Capture != nil; o.Capture == nil {
		f.same.capture = j.Together
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.follow(j.First(), first)
	f.work.Go(f.watch)
	f.work.Go(f.compare)
	return f
}

// follow advances the job's version with that of a process's feed, which stays up to date from now on.
func (f *Job) follow(p *job.Process, m *Process) {
	f.feeds[p] = m
	f.work.Go(func() { m.run(f.ctx) })
	f.work.Go(func() {
		for version := int64(0); m.Wait(f.ctx, version) == nil; f.Tell() {
			version = m.Now()
		}
	})
}

// watch starts the feeds of processes that appear later. A process that replaces another, as when scripts run
// in a row, is shown in its place.
func (f *Job) watch() {
	seen := map[*job.Process]bool{f.job.First(): true}
	for version := int64(0); f.job.Wait(f.ctx, version) == nil; f.Tell() {
		version = f.job.Now()
		for _, p := range f.job.Processes() {
			if seen[p] {
				continue
			}
			seen[p] = true
			m := f.of(p)
			f.mu.Lock()
			shown, picked := f.shown.process, f.picked
			f.mu.Unlock()
			began, _ := p.When()
			if _, over := shown.When(); !picked && over > 0 && over < began {
				f.show(m)
			}
		}
	}
}

// of returns the feed of a process, a new one if it has none.
func (f *Job) of(p *job.Process) *Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m, known := f.feeds[p]; known {
		return m
	}
	m := NewProcess(p, "for the first training step")
	m.ids, m.back, m.single = f.First.ids, true, f.First.single
	f.follow(p, m)
	return m
}

// show shows a process once its feed is up to date. The latest request wins.
func (f *Job) show(m *Process) {
	f.mu.Lock()
	f.wanted = m
	f.mu.Unlock()
	m.show(true)
	m.take(f.ctx)
	f.mu.Lock()
	old := f.shown
	if f.wanted == m {
		f.shown = m
	}
	now := f.shown
	f.mu.Unlock()
	for _, x := range []*Process{old, m} {
		if x != now {
			x.show(false)
		}
	}
	f.Tell()
}

// Look implements live.Feed.
func (f *Job) Look() live.Look {
	version := f.Now()
	f.mu.Lock()
	shown := f.shown
	f.mu.Unlock()
	l := shown.Look()
	l.Version, l.Prints = version, f.prints
	l.Together = f.same.now()
	list := f.job.Processes()
	if len(list) < 2 {
		return l
	}
	peers := make([]runs.Peer, len(list))
	for i, p := range list {
		m := f.of(p)
		r := m.rank()
		l.Ranks = append(l.Ranks, r)
		if peers[i] = r.Typical; r.State == live.Ended {
			peers[i] = runs.TypicalPeer(nil)
		}
	}
	l.Peers, l.Chosen = runs.ComparePeers(peers), shown.process.ID
	if t := shown.process.Info(); t.IsRank() {
		l.World = t.WorldSize
	}
	l.Group = f.ranks.now()
	if out := Tail(f.job.First().History.Snapshot()); out != nil {
		l.Output = out
	}
	end, over := f.job.Over()
	if !over {
		return l
	}
	// A job of several processes ended with the command's exit code and the message of the first process that
	// failed: the others ended because of it.
	first, since := -1, math.MaxInt
	for i, p := range list {
		if _, ended := p.When(); l.Ranks[i].Failed && ended < since {
			first, since = i, ended
		}
	}
	word := HowEnded(end)
	if first >= 0 {
		word = HowEnded(capture.End{Reason: end.Reason, Code: end.Code}) + "; " + l.Ranks[first].Name() +
			": " + l.Ranks[first].Word
	}
	l.State, l.Word, l.Failed = live.Ended, word, end.Code.Or(0) > 0
	l.Detached = end.Reason == capture.Detached
	return l
}

// Order implements live.Feed.
func (f *Job) Order(ctx context.Context, o live.Order) error {
	list := f.job.Processes()
	switch {
	case o.Kind == live.Choose:
		i := slices.IndexFunc(list, func(p *job.Process) bool { return p.ID == o.Rank })
		if i < 0 {
			return fmt.Errorf("there is no process %d in this job", o.Rank)
		}
		f.mu.Lock()
		f.picked = true
		f.mu.Unlock()
		f.show(f.of(list[i]))
		return nil
	case o.Kind == live.Same:
		return f.captureSame(list, o)
	case o.All:
		var errs []error
		for _, p := range list {
			if m := f.of(p); m.Look().State == live.Running {
				errs = append(errs, m.Order(ctx, o))
			}
		}
		return errors.Join(errs...)
	}
	f.mu.Lock()
	shown := f.shown
	f.mu.Unlock()
	return shown.Order(ctx, o)
}

// Lead returns the process that is shown.
func (f *Job) Lead() *job.Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shown.process
}

// Close ends the feeds, once the source has ended.
func (f *Job) Close() {
	f.stop()
	f.work.Wait()
}
