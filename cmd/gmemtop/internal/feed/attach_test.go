package feed

import (
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
)

func TestScreenSaysHowLongTheJobWasStoppedAndWhy(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		stops []inject.Stop
		want  string
	}{
		{[]inject.Stop{{Took: ms / 2}, {Took: ms / 4}},
			"attached by ptrace; the job paused for 750 µs"},
		{[]inject.Stop{{Took: 2 * ms, Starved: ms / 2}, {Took: ms}},
			"attached by ptrace; the job paused for 3.00 ms"},
		{[]inject.Stop{{Took: 8 * ms, Starved: 7 * ms}, {Took: 2 * ms, Starved: ms}},
			"attached by ptrace; the job paused for 10.0 ms, 8.00 ms of it waiting for a " +
				"processor: this machine is overloaded"},
	} {
		got := AttachedBy(inject.Report{Mechanism: inject.Ptrace, Stops: c.stops}).Text
		if got != c.want {
			t.Errorf("%v\n%q, want\n%q", c.stops, got, c.want)
		}
	}
}
