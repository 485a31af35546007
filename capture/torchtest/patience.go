package torchtest

import (
	"testing"
	"time"
)

// longest is how long a test waits for something that is on its way: importing torch, a step, a plan. Each
// takes seconds on an idle machine, and took over three minutes when two processors had forty trainings to
// run. The limit finds hangs. It measures nothing.
const longest = 15 * time.Minute

// Patience returns how long a test may wait before it calls a training hung: fifteen minutes, or less where
// go test would end the test sooner, so that the test says what it was waiting for.
func Patience(t testing.TB) time.Duration {
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, limited := d.Deadline(); limited {
			return min(longest, max(0, time.Until(end)-10*time.Second))
		}
	}
	return longest
}
