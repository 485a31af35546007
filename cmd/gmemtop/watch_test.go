package main

import (
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
)

func TestHowLongAJobStoodStillIsSaidWithWhatItWaitedFor(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		stops []inject.Stop
		want  string
	}{
		{[]inject.Stop{{Took: ms / 2}, {Took: ms / 4}}, "attached by ptrace; the job stood still for 750 µs"},
		{[]inject.Stop{{Took: 2 * ms, Starved: ms / 2}, {Took: ms}}, "attached by ptrace; the job stood still for 3.00 ms"},
		{[]inject.Stop{{Took: 8 * ms, Starved: 7 * ms}, {Took: 2 * ms, Starved: ms}},
			"attached by ptrace; the job stood still for 10.0 ms, for 8.00 ms of which it waited for a processor: this machine has more to do than it can"},
	} {
		if got := attachedBy(inject.Report{Mechanism: inject.Ptrace, Stops: c.stops}); got != c.want {
			t.Errorf("%v\n%q, want\n%q", c.stops, got, c.want)
		}
	}
}

func TestAJobFromWhichNothingComesIsNotSaidToRunWell(t *testing.T) {
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
		{90 * s, s, 'T', "no step for 1m 30s: the process is stopped, and kill -CONT 42 lets it go on"},
		{90 * s, s, 't', "no step for 1m 30s: a debugger holds the process"},
		{90 * s, s, 'D', "no step for 1m 30s: the process waits in the kernel, for a disk or a device"},
	} {
		if got := silence(c.since, c.typical, 42, func(int) byte { return c.state }); got != c.want {
			t.Errorf("%v, steps of %v, %c: %q, want %q", c.since, c.typical, c.state, got, c.want)
		}
	}
}
