package plan_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// loading returns a training of six ops, and decisions that swap what its first op makes, drop what the
// second makes of it, and load the first for the second to run again.
func loading() (*plan.Problem, plan.BufferID, plan.Decisions) {
	b := plantest.New()
	var v []plan.BufferID
	for _, name := range []string{"in", "act", "top", "grad", "act.grad", "in.grad"} {
		v = append(v, b.Buffer(name, 1000, timeline.Activation))
	}
	for i, reads := range [][]plan.BufferID{nil, {v[0]}, {v[1]}, {v[2]}, {v[3], v[1]}, {v[4], v[0]}} {
		id := b.Op("op", traces.PhaseForward, 10_000, reads, v[i:i+1])
		b.P.Ops[id].Rerunnable = i == 1
	}
	return b.End(), v[0], plan.Decisions{
		Absences: []plan.Absence{
			{Buffer: v[0], After: 1, Release: 2, Fetch: 5, Before: 5},
			{Buffer: v[1], After: 2, Release: 3, Fetch: 4, Before: 4, How: plan.Recompute},
		},
		Reruns: []plan.Rerun{{Before: 4, Ops: []plan.OpID{1}, Loads: []plan.Load{{Buffer: v[0], Fetch: 3}}}},
	}
}

// TestARerunLoadsWhatItReadsForItselfAlone: the buffer is copied out once and in twice, and between the rerun
// and the end of its own absence it is not in memory.
func TestARerunLoadsWhatItReadsForItselfAlone(t *testing.T) {
	p, in, d := loading()
	pl, err := place.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(t.Context(), p, pl, place.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range pl.Steps {
		switch {
		case s.Kind == plan.Run || s.Kind == plan.Again:
			got = append(got, s.Kind.String())
		case s.Kind != plan.Wait && pl.Instances[s.Instance].Buffer == in:
			got = append(got, s.Kind.String())
		}
	}
	const want = "alloc run run out free run alloc in run again free run alloc in run free"
	if words := strings.Join(got, " "); words != want {
		t.Errorf("the program is %q, want %q", words, want)
	}
	if bytes, _ := pl.PinnedPeak(p); bytes != 1000 {
		t.Errorf("%d bytes of pinned memory, want 1000", bytes)
	}
	var file bytes.Buffer
	if err := pl.WriteJSON(&file, p); err != nil {
		t.Fatal(err)
	}
	back, err := plan.ReadJSON(&file, p)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back.Reruns, pl.Reruns) || !slices.Equal(back.Steps, pl.Steps) {
		t.Errorf("the file gives %v, want %v", back.Reruns, pl.Reruns)
	}
}

// TestWhatTheHostHasNoRoomForNeedsNoLoad: a swap that is left out leaves its buffer in memory for reruns.
func TestWhatTheHostHasNoRoomForNeedsNoLoad(t *testing.T) {
	p, _, d := loading()
	p.Hardware.PinnedBytes = 999
	pl, err := place.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(t.Context(), p, pl, place.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Error(err)
	}
	if out, in := pl.Moved(); out+in > 0 || len(d.Reruns[0].Loads) != 1 {
		t.Errorf("%d bytes are copied out and %d in; the decisions have %d loads", out, in,
			len(d.Reruns[0].Loads))
	}
}

func TestLoadsThatContradictThePlanAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(d *plan.Decisions)
	}{
		{"of no buffer", "buffer 99 of 6 is to be loaded", func(d *plan.Decisions) {
			d.Reruns[0].Loads[0].Buffer = 99
		}},
		{"of what is there", "(in) is loaded at op 3 and is already in memory", func(d *plan.Decisions) {
			d.Absences[0].Release = 4
		}},
		{"of what no op reads that runs again", "no op that runs again before op 4 can read it",
			func(d *plan.Decisions) { d.Reruns[0].Loads[0].Buffer = 2 }},
		{"behind its rerun", "run again before op 4, reads buffer 0 (in), which is not there",
			func(d *plan.Decisions) { d.Reruns[0].Loads[0].Fetch = 5 }},
		{"twice", "(in) is loaded at op 3 and is already in memory", func(d *plan.Decisions) {
			d.Reruns[0].Loads = append(d.Reruns[0].Loads, d.Reruns[0].Loads[0])
		}},
		{"of what comes back before the rerun", "(in) is fetched at op 4 and is already in memory",
			func(d *plan.Decisions) { d.Absences[0].Fetch = 4 }},
	} {
		p, _, d := loading()
		c.spoil(&d)
		_, err := plan.Assemble(p, d)
		if !errors.Is(err, plan.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a load %s: %v does not say %q", c.name, err, c.want)
		}
	}
	p, in, d := loading() // what was never copied out is not on the host
	d.Absences[0].How = plan.Recompute
	d.Reruns = append(d.Reruns, plan.Rerun{Before: 5, Ops: []plan.OpID{0}})
	p.Ops[0].Rerunnable = true
	pl, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(t.Context(), p, pl, place.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err == nil || !strings.Contains(err.Error(), "was never copied out") {
		t.Errorf("a load of buffer %d, which is not on the host: %v", in, err)
	}
}
