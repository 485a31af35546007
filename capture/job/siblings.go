package job

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/procs"
)

// A process that we attached to may be one rank of several. We look for the others when all of them are to
// carry out a plan: they are children of the same parent and have torch loaded. The agent in each says
// whether it is a rank of the same training. If not, the agent leaves at once.
//
// Rejected: the ranks' environment (MASTER_PORT), which is not set in processes that multiprocessing starts.

// siblings are the other ranks of a process that we attached to. The zero value is ready.
type siblings struct {
	mu     sync.Mutex
	lister procs.Lister
	looked time.Time
	known  map[int]*sibling // by process
}

// sibling is another rank, or a process that might be one.
type sibling struct {
	pid   int
	watch *Watch // nil if we cannot attach to it
	stop  context.CancelFunc
	err   error
	no    bool // it is not a rank of this training; the agent leaves it

	letGo sync.Once
	left  error // the result of leaving
}

const (
	// siblingsEvery is how often we look at the processes of the machine.
	siblingsEvery = 2 * time.Second
	// siblingWait is how long to wait for a sibling to load the agent.
	siblingWait = 15 * time.Second
)

// look returns the other ranks of a process's training; ranks we cannot attach to carry the reason.
func (k *siblings) look(ctx context.Context, of capture.Info) (list []Candidate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.looked) >= siblingsEvery {
		k.find(ctx, of)
		k.looked = time.Now()
	}
	for _, s := range k.known {
		if c, ok := s.candidate(of); ok {
			list = append(list, c)
		}
	}
	return list
}

// find attaches to processes that are new, and waits until they have answered.
func (k *siblings) find(ctx context.Context, of capture.Info) {
	self, err := k.lister.Look(of.PID)
	if err != nil || self.Parent <= 1 { // init adopts orphans, which are not related
		return
	}
	all, err := k.lister.Torch(ctx)
	if err != nil {
		return
	}
	var fresh []*sibling
	for i := range all {
		p := &all[i]
		if p.Parent != self.Parent || p.PID == of.PID || !p.Torch || k.known[p.PID] != nil {
			continue
		}
		s := attachSibling(p)
		if k.known == nil {
			k.known = map[int]*sibling{}
		}
		k.known[p.PID], fresh = s, append(fresh, s)
	}
	ctx, cancel := context.WithTimeout(ctx, siblingWait) // one that answers later is listed from then on
	defer cancel()
	for _, s := range fresh {
		if s.watch != nil {
			_ = s.watch.History.Until(ctx, func(v *capture.View) (bool, error) {
				return v.Began || v.Ended, nil
			})
		}
	}
}

// attachSibling begins to attach to a process.
func attachSibling(p *procs.Process) *sibling {
	s := &sibling{pid: p.PID}
	found, err := Attachable(p.PID)
	if err != nil {
		s.err = fmt.Errorf("cannot attach to it: %w", err)
		return s
	}
	s.watch = NewWatch(Options{Unasked: true})
	run, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.watch.Connect(run, p.PID, found.Started)
	return s
}

// candidate returns the process as one of the training; ok is false if it is not one.
func (s *sibling) candidate(of capture.Info) (c Candidate, ok bool) {
	c = Candidate{PID: s.pid, Name: capture.Info{PID: s.pid}.Name(), Err: s.err}
	if s.watch == nil {
		return c, true
	}
	v := s.watch.History.Snapshot()
	switch {
	case v.Ended && v.End.Reason == capture.Refused && !v.Began:
		c.Err = errors.New("cannot attach to it: " + v.End.Detail)
		return c, true
	case !v.Began || v.Ended || s.no:
		return c, false
	case !v.Info.IsRank() && len(v.Steps) == 0: // it may not have joined the others yet
		return c, false
	case !v.Info.IsRank() || v.Info.WorldSize != of.WorldSize || v.Info.Rank == of.Rank:
		s.no = true
		go s.leave()
		return c, false
	}
	return s.watch.candidate(), true
}

// leave removes the agent from the process, once, and returns when it is out.
func (s *sibling) leave() error {
	if s.watch == nil {
		return nil
	}
	s.letGo.Do(func() {
		err := s.watch.LetGo()
		s.stop()
		s.left = errors.Join(err, s.watch.Close())
	})
	return s.left
}

// leave detaches from all siblings, and waits for those already detaching.
func (k *siblings) leave() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := make([]error, 0, len(k.known))
	var work sync.WaitGroup
	for _, s := range k.known {
		errs = append(errs, nil)
		err := &errs[len(errs)-1]
		work.Go(func() { *err = s.leave() })
	}
	work.Wait()
	k.known = nil
	return errors.Join(errs...)
}
