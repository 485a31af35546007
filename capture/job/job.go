package job

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/say"
)

// A command may train in several processes: the ranks of torchrun, the children of mp.spawn, or two scripts,
// in parallel or one after the other.
//
// The source sends messages from one of them to the job's sink, and asks for a sink for each of the others.
// When that one ends, another may take its place. Job is that sink and passes every message on to the process
// that it comes from. Each process has a session and, if the job is recorded, a file from its first step on.
// One that has not stepped, such as a launcher that imports torch, is not in the list.

// Job is a command with all of its processes. It is the sink of its source.
type Job struct {
	// Changes signal a process's first step and the command's end. Any other change of a process is a change
	// of its session.
	capture.Changes
	// Heard signals a step, an end or a new description of any process, and the command's end.
	Heard capture.Changes
	// Record, unless nil, records a process other than the first to its own file.
	Record func(p *Process) error
	// Unmet, unless nil, is told why a process's steps are not captured as requested, or lack figures.
	Unmet func(t capture.Info, why string)

	main *Watch
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	roster roster

	mu    sync.Mutex
	share func(pid int, r *pytorch.Relay) // serves other viewers of a process; nil for not at all
	over  bool                            // the command has ended; end says how
	end   capture.End
}

var _ pytorch.Family = (*Job)(nil)

// Limits of what is kept about processes other than the first: there may be many.
const (
	memberSteps  = 50_000
	memberWindow = 64 << 20
)

// lookAfter is how often we check whether the current process still exists. Before Linux 5.3 only its parent
// is notified.
const lookAfter = time.Second

// New returns a job whose first process is watched by w.
func New(w *Watch) *Job {
	j := &Job{main: w}
	j.ctx, j.stop = context.WithCancel(context.Background())
	w.joins(j)
	j.roster.add(w.Process)
	j.work.Go(j.watch)
	return j
}

// Run begins to follow a command, until it ends or ctx is done.
func (j *Job) Run(ctx context.Context, command *pytorch.Job) {
	j.mu.Lock()
	j.share = command.ShareProcess
	j.mu.Unlock()
	j.main.run(ctx, command, j)
}

// Injector brings the agent into processes of the command that lack its environment.
func (j *Job) Injector() pytorch.Injector { return j.main.injector(j, 0) }

// watch marks the current process as ended when it is gone. The source does so for all others, but treats the
// end of this one as the job's: with several processes, the others may go on, or wait for it forever.
func (j *Job) watch() {
	tick := time.NewTicker(lookAfter)
	defer tick.Stop()
	var lister procs.Lister
	for {
		select {
		case <-j.ctx.Done():
			return
		case <-tick.C:
		}
		p, several := j.roster.sending(), len(j.roster.all()) > 1
		t := p.Info()
		if !several || !p.hasStepped() || p.hasEnded() || t.Started == 0 {
			continue
		}
		seen, err := lister.Look(t.PID)
		if errors.Is(err, fs.ErrNotExist) || err == nil && seen.Started != t.Started {
			p.End(capture.End{Reason: capture.Exited})
		}
	}
}

// Add adds a process other than the first, which takes orders through c.
func (j *Job) Add(t capture.Info, c capture.Controller) *Process {
	keep := j.main.options.Keep
	if keep == (capture.Limits{}) {
		keep = capture.Limits{Steps: memberSteps, WindowBytes: memberWindow}
	}
	p := newProcess(keep)
	p.joins(j)
	p.is(t)
	p.connect(c)
	p.want(j.main.options.Every, "")
	j.roster.add(p)
	return p
}

// admit begins a process's file at its first step.
func (j *Job) admit(p *Process) {
	if p.ID > 0 {
		if j.Record != nil {
			if err := j.Record(p); err != nil {
				p.fails(err)
				p.History.Notice(capture.Say(say.RecordingNotBegun, err))
			}
		}
		j.mu.Lock()
		share := j.share
		j.mu.Unlock()
		if share != nil {
			share(p.Info().PID, p.relay)
		}
		j.work.Go(func() { p.ask(j.ctx) })
	}
	j.Tell()
}

// Ended implements pytorch.Family. If there is only one process, its end is left to the job's end, which has
// an exit code.
func (j *Job) Ended(t capture.Info, e capture.End) {
	p := j.roster.sending()
	if !same(p.Info(), t) {
		return
	}
	if e.Reason != capture.Exited {
		p.leave(e.Reason)
		if len(j.Processes()) == 1 {
			p.History.Sever(e.Sentence(), false)
		}
	}
	if len(j.Processes()) > 1 {
		p.End(e)
	}
}

// Severed implements pytorch.Family.
func (j *Job) Severed(t capture.Info, err error) {
	if p := j.roster.find(t); p != nil {
		p.History.Sever(err.Error(), false)
	}
}

// Begin implements capture.Sink: what follows comes from t. Until a process has stepped, another may take its
// place.
func (j *Job) Begin(t capture.Info) {
	now := j.roster.sending()
	next := now
	if now.hasStepped() && !same(now.Info(), t) {
		if next = j.roster.find(t); next == nil {
			next = j.Add(t, j.main.connected())
		}
	}
	if next != now {
		j.passOn(now, next)
	}
	next.Begin(t)
}

// passOn makes next the current process: the previous one has ended, or its agent has left it.
func (j *Job) passOn(now, next *Process) {
	j.roster.passTo(next)
	now.connect(nil)
	now.End(now.life.end())
}

// Step implements capture.Sink.
func (j *Job) Step(s capture.Step) { j.roster.sending().Step(s) }

// Window implements capture.Sink.
func (j *Job) Window(w capture.Window) { j.roster.sending().Window(w) }

// Notice implements capture.Sink.
func (j *Job) Notice(n capture.Notice) { j.roster.sending().Notice(n) }

// Answer implements capture.Sink.
func (j *Job) Answer(a capture.Answer) { j.roster.sending().Answer(a) }

// Lose implements capture.Sink.
func (j *Job) Lose(name string, n int64, detail string) { j.roster.sending().Lose(name, n, detail) }

// Output implements capture.Sink: the job's output is kept with its first process.
func (j *Job) Output(b []byte) { j.First().Output(b) }

// End implements capture.Sink. A job of one process ends as that process does. Of several, none has the
// command's exit code, and the last message may be the launcher's.
func (j *Job) End(e capture.End) {
	list := j.Processes()
	if len(list) < 2 {
		j.roster.sending().End(e)
	}
	for _, p := range list {
		p.End(capture.End{Reason: capture.Exited})
	}
	j.mu.Lock()
	j.over, j.end = true, e
	j.mu.Unlock()
	j.Tell()
	j.Heard.Tell()
}

// First returns the process that the job's output is kept with.
func (j *Job) First() *Process { return j.main.Process }

// Processes returns the processes that have stepped, by rank if they have one.
func (j *Job) Processes() []*Process { return j.roster.training() }

// Candidates returns the processes that train together with lead: all ranks if it is one, or if whole is set.
// More may come to the whole job for as long as the command runs.
func (j *Job) Candidates(lead *Process, whole bool) (list []Candidate, more bool) {
	ranks := whole || lead.Info().IsRank()
	for _, p := range j.Processes() {
		if t := p.Info(); !p.hasEnded() && (p == lead || ranks && t.IsRank()) {
			list = append(list, Candidate{Process: p, PID: t.PID, Name: t.Name()})
		}
	}
	_, over := j.Over()
	return list, whole && !over
}

// WaitOver waits until the command has ended, or returns ctx's error when ctx is done.
func (j *Job) WaitOver(ctx context.Context) error {
	for {
		version := j.Now()
		if _, over := j.Over(); over {
			return nil
		}
		if err := j.Wait(ctx, version); err != nil {
			return err
		}
	}
}

// Over returns how the command ended; ok is false while it has not.
func (j *Job) Over() (e capture.End, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end, j.over
}

// Close waits for the source, tells other viewers how every process ended, and ends the recordings.
func (j *Job) Close() error {
	err := j.main.Close()
	j.stop()
	j.work.Wait()
	list := j.roster.all()[1:]
	errs := make([]error, len(list))
	var closing sync.WaitGroup
	for i, p := range list {
		closing.Go(func() { errs[i] = p.close() })
	}
	closing.Wait()
	return errors.Join(err, errors.Join(errs...))
}
