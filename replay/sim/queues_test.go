package sim_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// The cost of each queue, in programs so small that the times can be computed by hand.

// ran simulates decisions.
func ran(t *testing.T, p *plan.Problem, d plan.Decisions) (*plan.Plan, plan.Measurement) {
	t.Helper()
	pl, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(context.Background(), p, pl, place.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	m, err := sim.Run(context.Background(), p, pl, sim.Options{Spans: true})
	if err != nil {
		t.Fatal(err)
	}
	return pl, m
}

// TestTheDeviceWaitsForAHostThatIssuesSlowly runs four ops of 1 µs each; the host's time per op is hidden if
// it is less.
func TestTheDeviceWaitsForAHostThatIssuesSlowly(t *testing.T) {
	for _, c := range []struct{ launch, gap, want int64 }{{0, 0, 4000}, {400, 0, 400 + 4*1000},
		{3000, 0, 4*3000 + 1000}, {0, 3000, 4*3000 + 1000}, {1000, 2000, 4*3000 + 1000}} {
		b := plantest.New()
		b.P.Hardware.LaunchGap = c.launch
		for range 4 {
			x := b.Buffer("x", 512, timeline.Temporary)
			b.P.Ops[b.Op("op", traces.PhaseForward, 1000, nil, []plan.BufferID{x})].Gap = c.gap
		}
		if _, m := ran(t, b.End(), plan.Decisions{}); m.StepTime != c.want || m.Stall != 0 {
			t.Errorf("launches of %d and gaps of %d ns: a step of %d ns with stalls of %d, want %d", c.launch,
				c.gap, m.StepTime, m.Stall, c.want)
		}
	}
}

// TestStreamsRunSideBySideUnlessOneNeedsTheOther: an op of 1 µs on one stream and one of 3 µs on another.
func TestStreamsRunSideBySideUnlessOneNeedsTheOther(t *testing.T) {
	for _, needs := range []bool{false, true} {
		b := plantest.New()
		b.P.Streams = 2
		x, y := b.Buffer("x", 512, timeline.Activation), b.Buffer("y", 512, timeline.Activation)
		b.Op("first", traces.PhaseForward, 1000, nil, []plan.BufferID{x})
		var reads []plan.BufferID
		want := int64(3000)
		if needs {
			reads, want = []plan.BufferID{x}, 4000
		}
		b.P.Ops[b.Op("second", traces.PhaseForward, 3000, reads, []plan.BufferID{y})].Stream = 1
		b.P.Buffers[y].Stream = 1
		// so that neither reuses the other's bytes
		b.Op("both", traces.PhaseForward, 0, []plan.BufferID{x, y}, nil)
		if _, m := ran(t, b.End(), plan.Decisions{}); m.StepTime != want {
			t.Errorf("needs %t: a step of %d ns, want %d", needs, m.StepTime, want)
		}
	}
}

// TestOppositeCopiesShareTheLinkAsTheHardwareSays starts one buffer's return just when
// another leaves. Both have 1 MiB, which the link alone moves one way in 1 ms.
func TestOppositeCopiesShareTheLinkAsTheHardwareSays(t *testing.T) {
	const alone = 1_000_000
	for _, c := range []struct {
		together float64
		want     int64
	}{{1, alone}, {0.5, 2 * alone}, {0.8, alone * 5 / 4}} {
		b := plantest.New()
		link := plan.Link{BytesPerSecond: (1 << 20) * 1e3}
		b.P.Hardware.D2H, b.P.Hardware.H2D, b.P.Hardware.Together = link, link, c.together
		back, leaving := b.Buffer("back", 1<<20, timeline.Activation),
			b.Buffer("leaving", 1<<20, timeline.Activation)
		op := func(reads, writes []plan.BufferID) { b.Op("op", traces.PhaseForward, 5*alone, reads, writes) }
		instant := func() { b.Op("instant", traces.PhaseForward, 0, nil, nil) }
		op(nil, []plan.BufferID{back})
		op(nil, nil)
		op(nil, []plan.BufferID{leaving})
		op(nil, nil) // both copies are under way
		instant()    // which begins and ends at one moment
		op([]plan.BufferID{back}, nil)
		op(nil, nil)
		op([]plan.BufferID{leaving}, nil)
		pl, m := ran(t, b.End(), plan.Decisions{Absences: []plan.Absence{
			{Buffer: back, After: 0, Release: 2, Fetch: 3, Before: 5, Paced: true},
			{Buffer: leaving, After: 2, Release: 5, Fetch: 6, Before: 7, Paced: true}}})
		seen := 0
		for _, s := range m.Spans {
			st := &pl.Steps[s.Step]
			if k := st.Kind; s.Stall || k != plan.In && k != plan.Out {
				continue
			}
			want := int64(alone)
			if buffer := pl.Instances[st.Instance].Buffer; buffer == back && st.Kind == plan.In ||
				buffer == leaving && st.Kind == plan.Out {
				want = c.want
				seen++
			}
			if d := s.End - s.Start - want; d < -1 || d > 1 {
				t.Errorf("together %.1f: a copy takes %d ns, want %d", c.together, s.End-s.Start, want)
			}
		}
		if seen != 2 || m.StepTime != 7*5*alone {
			t.Errorf("together %.1f: %d copies at the same time, a step of %d ns",
				c.together, seen, m.StepTime)
		}
	}
}
