package inject

import (
	"runtime/debug"
	"sync"
	"time"
)

// What the Go runtime does while a target is halted
//
// The garbage collector stops goroutines, and one that was stopped goes on when another thread of this
// program hands it a processor of the runtime's. Those threads run with ordinary priority, unlike the one
// that halts; on a machine that has more to do than it can that takes them milliseconds, in which the target
// is halted for nothing: beside a goroutine that allocates, one halt in ten took more than two milliseconds,
// up to a hundred, that were not the target's wait for a processor. So the collector is held off.
//
// Two remain. A goroutine that has run for ten milliseconds is asked to make way: that takes a target that
// does not come to stop for so long. And one whose system call lasts may find the runtime's processor gone;
// none here lasts, and to make them without telling the runtime was tried and changed nothing that could be
// measured.

// steadyLimit is for how long the collector is held off at most: a target that a starved machine keeps halted
// for longer shall not cost this program its memory.
const steadyLimit = time.Second

// steady counts who holds the garbage collector off.
var steady struct {
	sync.Mutex
	holders int
	percent int // what debug.SetGCPercent is to be given back
}

// steadily holds the garbage collector off until the function that it returns is called, or for steadyLimit.
// It waits for a collection that runs.
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
