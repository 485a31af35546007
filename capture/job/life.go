package job

import (
	"sync"

	"github.com/gmemtop/gmemtop/capture"
)

// life is a process's identity, and when it began to train and ended.
type life struct {
	count func() int // numbers the first steps and the ends of all processes of a job; nil without others

	mu      sync.Mutex
	info    capture.Info
	stepped int    // the number of its first step, 0 if it has not stepped
	ended   int    // the number of its end, 0 if it has not ended
	left    string // why the agent left it before it ended, "" while the agent is in it
}

// Info returns what is known about the process.
func (l *life) Info() capture.Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

// is says who the process is.
func (l *life) is(t capture.Info) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info = t
}

// When returns when the process took its first step and when it ended, numbered from 1 among those of all
// processes of the job; 0 if that has not happened.
func (l *life) When() (stepped, ended int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stepped, l.ended
}

// hasStepped reports whether the process has taken a step.
func (l *life) hasStepped() bool {
	stepped, _ := l.When()
	return stepped > 0
}

// hasEnded reports whether it has ended.
func (l *life) hasEnded() bool {
	_, ended := l.When()
	return ended > 0
}

// steps notes that the process took a step and reports whether it is the first.
func (l *life) steps() (first bool) { return !l.hasStepped() && l.happens(&l.stepped) }

// ends notes that the process has ended and reports whether this is the first time.
func (l *life) ends() (first bool) { return l.happens(&l.ended) }

// happens sets when to the next number, unless it is set already, and reports whether it did.
func (l *life) happens(when *int) bool {
	n := 1
	if l.count != nil {
		n = l.count()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if *when > 0 {
		return false
	}
	*when = n
	return true
}

// leave notes that the agent left the process before it ended, and why.
func (l *life) leave(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = why
}

// IsDetached reports whether the agent was asked to leave the process, which goes on.
func (l *life) IsDetached() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left == capture.Detached
}

// end is how a process ended when nothing reported its end.
func (l *life) end() capture.End {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left != "" {
		return capture.End{Reason: capture.Detached}
	}
	return capture.End{Reason: capture.Exited}
}
