// Package await lets a test wait for what another goroutine or process does. It imports nothing of ours.
package await

import (
	"testing"
	"time"
)

// tooLong is far longer than anything a test waits for takes on a busy machine: only a hang takes this long.
const tooLong = 5 * time.Minute

// Until returns once holds returns true, and fails the test if it never does. what completes the sentence
// "gave up waiting until ...". It checks every millisecond at first and every 100 ms in the end.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	pause := time.Millisecond
	for late := time.Now().Add(tooLong); !holds(); time.Sleep(pause) {
		if time.Now().After(late) {
			t.Fatalf("gave up waiting until %s", what)
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}
