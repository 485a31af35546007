package managers

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	tea "charm.land/bubbletea/v2"
)

// job is work in the background that sends news of kind T: the work adds news under a lock, and the event
// loop takes it.
type job[T any] struct {
	cancel context.CancelCauseFunc
	ended  bool // it finished, failed or was stopped; only the event loop uses it

	mu    sync.Mutex
	fresh []T
	fail  error
	fault any
	stack []byte

	wake     chan struct{} // there is news
	finished chan struct{}
}

// jobMsg says that a job has news.
type jobMsg[T any] struct {
	job   *job[T]
	done  bool
	fault any
	stack []byte
}

// more reports whether news will follow.
func (n jobMsg[T]) more() bool { return !n.done }

// Panic implements leaf.Panicked.
func (n jobMsg[T]) Panic() (value any, stack []byte) { return n.fault, n.stack }

// start starts the work and returns the command that delivers its first news.
func (j *job[T]) start(work func(ctx context.Context) error) tea.Cmd {
	ctx, cancel := context.WithCancelCause(context.Background())
	j.cancel, j.wake, j.finished = cancel, make(chan struct{}, 1), make(chan struct{})
	return func() tea.Msg {
		go j.run(ctx, work)
		return j.news()
	}
}

func (j *job[T]) run(ctx context.Context, work func(ctx context.Context) error) {
	defer close(j.finished)
	defer j.cancel(nil)
	defer func() {
		if f := recover(); f != nil {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.fail, j.fault, j.stack = fmt.Errorf("internal error: %v", f), f, debug.Stack()
		}
	}()
	err := work(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fail = err
}

// tell takes news from the work.
func (j *job[T]) tell(n T) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fresh = append(j.fresh, n)
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// take returns the news since the last call, and the error with which the work failed.
func (j *job[T]) take() ([]T, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fresh := j.fresh
	j.fresh = nil
	return fresh, j.fail
}

// news waits for news and says so. What went wrong is only to be read once all is done.
func (j *job[T]) news() tea.Msg {
	select {
	case <-j.finished:
	case <-j.wake:
	}
	select {
	case <-j.finished:
		return jobMsg[T]{job: j, done: true, fault: j.fault, stack: j.stack}
	default:
		return jobMsg[T]{job: j}
	}
}

// stop ends the work; its news stays.
func (j *job[T]) stop() {
	if !j.ended {
		j.cancel(nil)
		j.ended = true
	}
}

// halt ends the work for a reason; it then reports what it has so far.
func (j *job[T]) halt(why error) { j.cancel(why) }
