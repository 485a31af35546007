package inject

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

var garbage []byte

// TestNoGarbageIsCollectedWhileATargetIsHalted holds off the collector twice at once, as attaching to two
// ranks at once does.
func TestNoGarbageIsCollectedWhileATargetIsHalted(t *testing.T) {
	before := debug.SetGCPercent(37)
	defer debug.SetGCPercent(before)
	collected := func() uint32 {
		var a, b runtime.MemStats
		runtime.ReadMemStats(&a)
		for range 64 {
			garbage = make([]byte, 1<<20)
		}
		runtime.ReadMemStats(&b)
		return b.NumGC - a.NumGC
	}
	began := time.Now()
	first, second := steadily(), steadily()
	if n := collected(); n > 0 && time.Since(began) < steadyLimit { // it is given back after that
		t.Errorf("%d collections while two processes hold them off", n)
	}
	first()
	first()
	if n := collected(); n > 0 && time.Since(began) < steadyLimit {
		t.Errorf("%d collections while one process holds them off", n)
	}
	second()
	if n := collected(); n == 0 {
		t.Error("no collection after both")
	}
	if got := debug.SetGCPercent(37); got != 37 {
		t.Errorf("the setting changed to %d", got)
	}
}
