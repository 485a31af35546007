package inject

import (
	"runtime/debug"
	"sync"
	"time"
)

// What the Go runtime does while a target is halted
//
// The garbage collector stops goroutines, and a stopped one continues when another thread of this program
// gives it one of the runtime's processors. Those threads run with ordinary priority, unlike the one that
// halts the target; on an overloaded machine that takes milliseconds, in which the target is halted for
// nothing: next to a goroutine that allocates, one halt in ten took more than two milliseconds, up to a
// hundred, that were not the target's wait for a processor. So we hold off the collector.
//
// Two causes remain. A goroutine that has run for ten milliseconds is preempted: that only happens if the
// target takes that long to stop. And a goroutine in a long system call may lose the runtime's processor; no
// call here is long, and making the calls without telling the runtime was tried and made no measurable
// difference.

// steadyLimit is the longest that the collector is held off: if a starved machine keeps the target halted for
// longer, this program must not run out of memory.
const steadyLimit = time.Second

// steady counts the callers that hold off the garbage collector.
var steady struct {
	sync.Mutex
	holders int
	percent int // the value to restore with debug.SetGCPercent
}

// steadily holds off the garbage collector until the function that it returns is called, or for steadyLimit.
// It waits for a running collection.
func steadily() (done func()) {
	steady.Lock()
	defer steady.Unlock()
	if steady.holders++; steady.holders == 1 {
		steady.percent = debug.SetGCPercent(-1)
	}
	over := sync.OnceFunc(func() {
		steady.Lock()
		defer steady.Unlock()
		if steady.holders--; steady.holders == 0 {
			debug.SetGCPercent(steady.percent)
		}
	})
	late := time.AfterFunc(steadyLimit, over)
	return func() {
		late.Stop()
		over()
	}
}
