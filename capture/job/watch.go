package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/capture/say"
)

// Options say how a process is watched.
type Options struct {
	// Every: one step in this many is captured whole, 0 for none. Unasked says that it is a default, which is
	// not ordered if another viewer has the agent.
	Every   int
	Unasked bool
	// Totals leaves it at each step's figures: no step is captured whole until somebody asks.
	Totals bool
	// Depth says how steps are captured, "" for the agent's choice.
	Depth string
	// Attached tells people how the agent got in; nil for nothing.
	Attached func(inject.Report) capture.Notice
	// Bring gets the agent into the process, for a process that runs the source by itself; nil for injecting
	// it.
	Bring pytorch.Injector
	// Keep limits what is kept of each process; the zero value has limits that suit one machine.
	Keep capture.Limits
}

// Watch is the process that watching begins with: one that we attached to, or the first of a command.
type Watch struct {
	*Process
	options Options
	kin     siblings

	running sync.WaitGroup // ends with the source
	agent   sync.Mutex     // guards attach
	attach  *pytorch.Session
}

// How long an agent may take to leave: at least patience, and at most patienceMost. A plan ends with a step
// of the training, and the next steps free what it served: that takes patienceSteps of the longest of them.
const (
	patience, patienceMost = 5 * time.Second, 2 * time.Minute
	patienceSteps          = 5
	recentSteps            = 8
)

// patienceFor returns how long an agent may take to leave after these steps.
func patienceFor(steps []capture.Step) time.Duration {
	var longest int64
	for _, s := range steps[max(0, len(steps)-recentSteps):] {
		longest = max(longest, s.End-s.Start)
	}
	return min(max(patience, patienceSteps*time.Duration(longest)), patienceMost)
}

// FirstSteps is how many steps of a process are captured whole as soon as it steps, so that there is
// something to look at: two, to show what carries over from one to the next.
const FirstSteps = 2

// NewWatch prepares to watch a process.
func NewWatch(o Options) *Watch {
	w := &Watch{Process: newProcess(o.Keep), options: o}
	w.want(o.Every, o.Depth)
	return w
}

// Source is a source that takes orders.
type Source interface {
	capture.Source
	capture.Controller
}

// Run begins to follow a source, until it ends or ctx is done.
func (w *Watch) Run(ctx context.Context, source Source) { w.run(ctx, source, w.Process) }

// run connects a source to a sink.
func (w *Watch) run(ctx context.Context, source Source, sink capture.Sink) {
	w.connect(source)
	if s, ok := source.(interface{ Share(r *pytorch.Relay) }); ok {
		s.Share(w.relay)
	}
	w.running.Go(func() { w.ask(ctx) })
	w.running.Go(func() {
		if err := source.Run(ctx, sink); err != nil && ctx.Err() == nil {
			sink.End(capture.End{Reason: capture.Refused, Detail: err.Error()})
		}
	})
}

// Wait waits until the source has ended.
func (w *Watch) Wait() { w.running.Wait() }

// Close waits for the source, tells other viewers how it ended, and ends the recording.
func (w *Watch) Close() error {
	w.Wait()
	return w.close()
}

// Abandon closes the recording of a job that never began, and removes it.
func (w *Watch) Abandon() error {
	err := w.Close()
	files, _ := w.Files()
	for _, f := range files {
		_ = os.Remove(f)
	}
	return err
}

// injector brings the agent into processes and tells sink how it went. A started other than 0 is the start
// time of the process.
func (w *Watch) injector(sink capture.Sink, started uint64) pytorch.Injector {
	if w.options.Bring != nil {
		return w.options.Bring
	}
	return func(ctx context.Context, pid int, source string) error {
		r, err := inject.Inject(ctx, pid, inject.Bootstrap{Source: source, Started: started,
			Watch: func(p inject.Stage) {
				if p == inject.Queued {
					sink.Notice(capture.Say(say.WaitsForInterpreter))
				}
			}})
		if err == nil && w.options.Attached != nil {
			sink.Notice(w.options.Attached(r))
		}
		return err
	}
}

// Connect returns at once. It brings the agent into a running process and follows it until ctx is done. If it
// cannot, it tells the session.
func (w *Watch) Connect(ctx context.Context, pid int, started uint64) {
	w.running.Go(func() {
		s, err := pytorch.Attach(ctx, pid, w.injector(w.Process, started))
		if err != nil {
			if ctx.Err() == nil {
				w.End(capture.End{Reason: capture.Refused, Detail: err.Error()})
			}
			return
		}
		if s.Host() == 0 && !w.options.Totals {
			w.wantFirst(FirstSteps)
		}
		w.has(ctx, s)
		err = s.Run(ctx, w.Process)
		for s.Host() != 0 && errors.Is(err, pytorch.ErrLost) && ctx.Err() == nil {
			next, lost := pytorch.Connect(ctx, s.Info().PID)
			if lost != nil {
				break
			}
			if next.Host() == 0 { // otherwise the session says which viewer has the agent
				w.Notice(capture.Say(say.TookOver, s.Host()))
			}
			s = next
			w.has(ctx, s)
			err = s.Run(ctx, capture.Resume(w.History, w.Process))
		}
		if err != nil && ctx.Err() == nil {
			w.End(capture.End{Reason: capture.Disarmed, Detail: err.Error()})
		}
	})
}

// has sends orders through a session from now on.
func (w *Watch) has(ctx context.Context, s *pytorch.Session) {
	w.hosted(s.Host(), w.options.Every, w.options.Unasked)
	w.agent.Lock()
	w.attach = s
	w.agent.Unlock()
	w.connect(s)
	s.Share(w.relay)
	w.running.Go(func() { w.ask(ctx) })
}

// LetGo removes the agent from a process that we attached to, and from the other ranks. Its source must still
// be running.
func (w *Watch) LetGo() error { return errors.Join(w.letGo(), w.kin.leave()) }

func (w *Watch) letGo() error {
	w.agent.Lock()
	s := w.attach
	w.agent.Unlock()
	v := w.History.Snapshot()
	if s == nil || v.Ended {
		return nil
	}
	limit := patienceFor(v.Steps)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.Detach(ctx); err != nil {
		return fmt.Errorf("the agent did not answer within %s and stays in process %d until it does; "+
			"it costs next to nothing, and `gmemtop attach %d` finds it: %w", limit.Round(time.Second),
			v.Info.PID, v.Info.PID, err)
	}
	return nil
}

// Candidates returns the ranks of the training, or only the process if it is not a rank. More is always
// false.
func (w *Watch) Candidates(ctx context.Context) (list []Candidate, more bool) {
	v := w.History.Snapshot()
	if !v.Ended {
		list = append(list, w.candidate())
	}
	if v.Info.IsRank() {
		list = append(list, w.kin.look(ctx, v.Info)...)
		slices.SortStableFunc(list, func(a, b Candidate) int { return cmp.Compare(a.rank(), b.rank()) })
	}
	return list, false
}

// rank is the process's rank, sorted last if unknown.
func (c *Candidate) rank() int64 {
	if c.Process == nil {
		return math.MaxInt64
	}
	return c.History.Snapshot().Info.Rank.Or(math.MaxInt64)
}

// Attachable says what prevents attaching to a process: nothing, if an agent is already there.
func Attachable(pid int) (inject.Findings, error) {
	found := inject.Check(pid)
	if err := pytorch.OtherVersion(pid); err != nil {
		return found, err
	}
	if err := found.Err(); err != nil && !pytorch.Lives(pid) {
		return found, err
	}
	return found, nil
}
