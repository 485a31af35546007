package feed

import (
	"testing"
	"time"
)

func TestSilenceIsReported(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		since, typical time.Duration
		state          byte
		want           string
	}{
		{9 * s, s / 10, 'T', ""},
		{11 * s, s, 'T', ""},
		{11 * s, s / 10, 'R', "no step for 11.0 s"},
		{21 * s, s, 'S', "no step for 21.0 s"},
		{90 * s, s, 'T', "no step for 1m 30s: the process is stopped: kill -CONT 42 resumes it"},
		{90 * s, s, 't', "no step for 1m 30s: a debugger has stopped the process"},
		{90 * s, s, 'D', "no step for 1m 30s: the process is waiting in the kernel for a disk or a device"},
	} {
		if got := silence(c.since, c.typical, 42, func(int) byte { return c.state }); got != c.want {
			t.Errorf("%v, steps of %v, %c: %q, want %q", c.since, c.typical, c.state, got, c.want)
		}
	}
}
