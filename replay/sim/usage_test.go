package sim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// A resident buffer exists from the beginning, even if it is used late; another exists from its first use to
// its last; and one that no op uses exists while compute passes by. What another stream allocates exists from
// the time at which that stream reaches it. Usage ends with the step.
func TestUsageIsTheMemoryOfEachMoment(t *testing.T) {
	b := plantest.New()
	b.P.Hardware.LaunchGap = 0
	weight := b.Persistent("weight", 1<<20, timeline.Parameter)
	x, y := b.Buffer("x", 4<<10, timeline.Activation), b.Buffer("y", 2<<10, timeline.Activation)
	idle := b.Buffer("idle", 1<<10, timeline.Activation)
	beside := b.Buffer("beside", 8<<10, timeline.Activation)
	ids := func(all ...plan.BufferID) []plan.BufferID { return all }
	b.Op("make x", traces.PhaseForward, 100, nil, ids(x))
	other := b.Op("beside", traces.PhaseForward, 50, nil, ids(beside))
	b.P.Streams, b.P.Ops[other].Stream = 2, 1
	b.Op("wait", traces.PhaseForward, 1000, nil, nil)
	b.Op("x to y", traces.PhaseForward, 10, ids(x), ids(y))
	b.Op("use y", traces.PhaseBackward, 1, ids(y, weight), nil)
	p := b.End()
	p.Buffers[idle].Start, p.Buffers[idle].End = 2, 4
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(context.Background(), p, pl, place.Options{}); err != nil {
		t.Fatal(err)
	}
	m, err := sim.Run(context.Background(), p, pl, sim.Options{Usage: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range m.Usage {
		got = append(got, fmt.Sprintf("%d: %d", u.Time, u.Bytes>>10))
	}
	const want = "0: 1036, 100: 1029, 1100: 1031, 1110: 1026, 1111: 0"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("KiB in use by time are %s, not %s", s, want)
	}
}

// A buffer being copied out holds its memory until the copy is done, however far compute has come.
func TestACopyInFlightHoldsItsMemory(t *testing.T) {
	b := plantest.New()
	b.P.Hardware.LaunchGap = 0
	b.P.Hardware.D2H = plan.Link{BytesPerSecond: 4 << 10 * 1e6} // a microsecond for the buffer
	b.P.Hardware.H2D = b.P.Hardware.D2H
	x := b.Buffer("x", 4<<10, timeline.Activation)
	b.Op("make", traces.PhaseForward, 100, nil, []plan.BufferID{x})
	b.Op("short", traces.PhaseForward, 10, nil, nil)
	b.Op("long", traces.PhaseForward, 5000, nil, nil)
	b.Op("use", traces.PhaseBackward, 10, []plan.BufferID{x}, nil)
	p := b.End()
	pl, err := plan.Assemble(p, plan.Decisions{Absences: []plan.Absence{
		{Buffer: x, After: 0, Release: 1, Fetch: 3, Before: 3, How: plan.Swap}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(context.Background(), p, pl, place.Options{}); err != nil {
		t.Fatal(err)
	}
	m, err := sim.Run(context.Background(), p, pl, sim.Options{Usage: true})
	if err != nil {
		t.Fatal(err)
	}
	var during int64
	for _, u := range m.Usage {
		if u.Time <= 1000 {
			during = u.Bytes
		}
	}
	if during != 4<<10 {
		t.Errorf("the copy runs from 100 to 1100 ns: %d bytes in use at 1000 ns; usage %v", during, m.Usage)
	}
}

// A buffer that no op uses exists while the compute stream passes its place. If another stream has taken its
// bytes before that, it never exists, and usage does not fall below what is there.
func TestAnUnusedBufferWhoseBytesWereTakenEarlierNeverExists(t *testing.T) {
	b := plantest.New()
	b.P.Hardware.LaunchGap = 0
	idle := b.Buffer("idle", 1<<10, timeline.Activation)
	beside := b.Buffer("beside", 8<<10, timeline.Activation)
	b.Op("long", traces.PhaseForward, 1000, nil, nil)
	b.Op("short", traces.PhaseForward, 100, nil, nil)
	other := b.Op("beside", traces.PhaseForward, 50, nil, []plan.BufferID{beside})
	b.P.Streams, b.P.Ops[other].Stream = 2, 1
	p := b.End()
	p.Buffers[idle].Start, p.Buffers[idle].End = 1, 2
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(context.Background(), p, pl, place.Options{}); err != nil {
		t.Fatal(err)
	}
	m, err := sim.Run(context.Background(), p, pl, sim.Options{Usage: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(m.Usage); got != "[{0 8192} {1100 0}]" {
		t.Errorf("in use by time are %s", got)
	}
}
