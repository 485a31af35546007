package progress

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/replay"
)

// Planning shows the progress of a comparison: how many managers are done, which are planning, how far each
// is and for how long. It redraws the line every second, so that even a manager that reports nothing for a
// minute is visibly at work.
type Planning struct {
	line  *Line
	total int

	mu    sync.Mutex
	done  int
	under []replay.Progress // in progress, oldest first
	on    replay.Progress   // the last news of a device, Target "" before any
	halt  bool              // planning ends early
	stop  chan struct{}
	ended sync.WaitGroup
}

// NewPlanning shows on a line the progress of planning with that many managers.
func NewPlanning(line *Line, total int) *Planning {
	b := &Planning{line: line, total: total, stop: make(chan struct{})}
	if line.w == nil {
		return b
	}
	b.ended.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.show()
			case <-b.stop:
				return
			}
		}
	})
	return b
}

// Update takes the progress of one manager.
func (b *Planning) Update(u replay.Progress) {
	b.mu.Lock()
	if u.Target != "" {
		b.on = u
		b.mu.Unlock()
		b.show()
		return
	}
	at := slices.IndexFunc(b.under, func(x replay.Progress) bool { return x.Manager == u.Manager })
	switch {
	case u.Done:
		b.done++
		if at >= 0 {
			b.under = slices.Delete(b.under, at, at+1)
		}
	case at >= 0:
		b.under[at] = u
	default:
		b.under = append(b.under, u)
	}
	b.mu.Unlock()
	b.show()
}

// Stopping says that planning ends early, with the best plans so far.
func (b *Planning) Stopping() {
	select {
	case <-b.stop: // it has ended by itself
		return
	default:
	}
	b.mu.Lock()
	b.halt = true
	b.mu.Unlock()
	b.show()
}

func (b *Planning) show() {
	b.mu.Lock()
	parts := []string{fmt.Sprintf("%d of %d planned", b.done, b.total)}
	for i := range b.under {
		parts = append(parts, underWay(&b.under[i], b.line.now()))
	}
	if b.on.Target != "" {
		parts = []string{fmt.Sprintf("%d of %d measured on %s", b.on.Finished, b.on.Total, b.on.Target),
			b.on.Manager, b.on.Doing}
	}
	if b.halt {
		parts = []string{"stopping with the best plans so far: ctrl-c again ends at once"}
	}
	b.mu.Unlock()
	b.line.Say(strings.Join(parts, " · "))
}

// underWay describes the progress of one manager: "joint 34 %, within 4 % of the bound, 12 s".
func underWay(u *replay.Progress, now time.Time) string {
	s := u.Manager
	if u.Total > 0 {
		s += fmt.Sprintf(" %d %%", min(100*u.Finished/u.Total, 99))
	}
	if u.Bounded {
		s += ", " + replay.Near(u.Gap)
	}
	if u.Began.IsZero() {
		return s
	}
	return s + elapsed(u.Began, now)
}

// End clears the line.
func (b *Planning) End() {
	close(b.stop)
	b.ended.Wait()
	b.line.Done()
}
