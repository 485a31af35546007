package feed

import (
	"context"
	"errors"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/timeline"
)

// Attached is a process that was attached to, and its feed.
type Attached struct {
	*job.Watch
	Feed *Process

	run      context.Context // until Leave
	stop     context.CancelFunc
	stopFeed func()
}

// Attach brings the agent into a running process and shows what a watch sees of it.
func Attach(w *job.Watch, pid int, started uint64) *Attached {
	a := &Attached{Watch: w, Feed: NewProcess(w.Process, say.WaitsForAgent.Text(pid))}
	a.Feed.countsFrom(say.SinceAttach.Text())
	a.stopFeed = a.Feed.Start()
	a.run, a.stop = context.WithCancel(context.Background())
	w.Connect(a.run, pid, started)
	return a
}

// Context is done once Leave begins.
func (a *Attached) Context() context.Context { return a.run }

// Leave detaches, and ends the recording.
func (a *Attached) Leave() error {
	left := a.LetGo()
	a.stop()
	err := errors.Join(left, a.Close())
	a.stopFeed()
	return err
}

// AttachedBy says how the agent was loaded into a process, and how long that stopped it.
func AttachedBy(r inject.Report) capture.Notice {
	stopped := timeline.Duration(int64(r.Stopped()))
	if starved := r.Starved(); starved > r.Stopped()/2 {
		return capture.Say(say.AttachedLate, r.Mechanism, stopped, timeline.Duration(int64(starved)))
	}
	return capture.Say(say.Attached, r.Mechanism, stopped)
}
