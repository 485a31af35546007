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

// A process that was attached to may be one rank of several. The others are looked for when a plan is to be
// carried out in all of them: they are children of the same parent and have torch loaded. The agent in each
// says whether it is a rank of the same training. If not, the agent leaves at once.
//
// Rejected: the ranks' environment (MASTER_PORT), which has nothing in those that multiprocessing starts.

// siblings are the other ranks of a process that was attached to. The zero value is ready.
type siblings struct {
	mu     sync.Mutex
	lister procs.Lister
	looked time.Time
	known  map[int]*sibling // by process
}

// sibling is another rank, or a process that might be one.
type sibling struct {
	pid   int
	watch *Watch // nil where it cannot be attached to
	stop  context.CancelFunc
	err   error
	no    bool // it is no rank of this training, and is let go of

	letGo sync.Once
	left  error // how that went
}

const (
	// siblingsEvery is the time between two looks at the processes of the machine.
	siblingsEvery = 2 * time.Second
	// siblingWait is how long one is waited for that takes the agent in.
	siblingWait = 15 * time.Second
)

// look returns the other ranks of a process's training, those that cannot be attached to with the reason.
func (k *siblings) look(ctx context.Context, of capture.Target) (list []Member) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.looked) >= siblingsEvery {
		k.find(ctx, of)
		k.looked = time.Now()
	}
	for _, s := range k.known {
		if m, ok := s.member(of); ok {
			list = append(list, m)
		}
	}
	return list
}

// find attaches to processes that are new, and waits until they have answered.
func (k *siblings) find(ctx context.Context, of capture.Target) {
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
	ctx, cancel := context.WithTimeout(ctx, siblingWait) // one that answers later is in the list then
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
		s.err = fmt.Errorf("it cannot be attached to: %w", err)
		return s
	}
	s.watch = NewWatch(Options{Unasked: true})
	run, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.watch.Connect(run, p.PID, found.Started)
	return s
}

// member returns the process as one of the training; ok is false if it is not one.
func (s *sibling) member(of capture.Target) (m Member, ok bool) {
	m = Member{PID: s.pid, Name: capture.Target{PID: s.pid, Rank: -1}.Name(), Err: s.err}
	if s.watch == nil {
		return m, true
	}
	v := s.watch.History.Snapshot()
	switch {
	case v.Ended && v.End.Reason == capture.Refused && !v.Began:
		m.Err = errors.New("it cannot be attached to: " + v.End.Detail)
		return m, true
	case !v.Began || v.Ended || s.no:
		return m, false
	case !v.Target.IsRank() && len(v.Steps) == 0: // it may not have joined the others yet
		return m, false
	case !v.Target.IsRank() || v.Target.WorldSize != of.WorldSize || v.Target.Rank == of.Rank:
		s.no = true
		go s.leave()
		return m, false
	}
	return s.watch.member(), true
}

// leave takes the agent out of the process again, once, and returns when it is out.
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

// leave detaches from all of them, and waits for those that are detaching already.
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
