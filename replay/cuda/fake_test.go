//go:build cuda && linux && cgo

package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/control"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// lib is the stand-in GPU in this process, nil if there is no C++ compiler.
var lib *control.Control

func TestMain(m *testing.M) {
	built, err := standin.Build(context.Background(), "")
	if err == nil {
		lib, err = control.Open(built, machine(1<<30, 0))
	}
	if err != nil && !errors.Is(err, standin.ErrNoCompiler) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// machine is a device of capacity bytes, of which other processes hold outside. It is strict: memory is
// counted in units of 512 bytes, contexts cost nothing, host memory has to be pinned, an event that nothing
// waits for never comes, and time is virtual.
func machine(capacity, outside int64) standin.Machine {
	return standin.Machine{
		Model: "plain", Memory: fmt.Sprint(capacity), Others: []string{fmt.Sprint(outside)}, Driver: 12040,
		Context: "0", Granule: "512", Order: standin.Late, Polls: -1, Clock: "virtual", RefusePageable: true,
	}
}

// reset makes it a new device.
func reset(capacity, outside int64) { lib.Reset(machine(capacity, outside)) }

// device makes the stand-in a new device of capacity bytes and returns a target for it. When the test ends,
// nothing it took may be left, and no rule of the driver may have been broken.
func device(t *testing.T, capacity int64, change func(*Options)) *Target {
	t.Helper()
	if lib == nil {
		t.Skip("needs g++: the stand-in GPU is compiled by the test")
	}
	reset(capacity, 0)
	t.Cleanup(func() { nothingLeft(t) })
	opt := Options{Library: lib.Path(), Margin: 1 << 20, Iterations: 3, WarmUp: 1}
	if change != nil {
		change(&opt)
	}
	return New(opt)
}

func nothingLeft(t *testing.T) {
	t.Helper()
	if v := lib.Violation(); v != "" {
		t.Errorf("the stand-in GPU: %s", v)
	}
	if n, what, contexts := lib.Leaks(); n != 0 || contexts != 0 || lib.Held() != 0 {
		t.Errorf("%d things were left when the context went (%s); %d contexts and %d bytes are left", n, what,
			contexts, lib.Held())
	}
}

// placed returns a problem with a random plan for it.
func placed(t *testing.T, seed uint64, share float64) (*plan.Problem, *plan.Plan) {
	t.Helper()
	p := plantest.Random(seed, 10+int(seed%30))
	for i := range p.Buffers { // every byte is really written
		p.Buffers[i].Size = (p.Buffers[i].Size + 31) / 32
	}
	for i := range p.Ops {
		for k := range p.Ops[i].Variants {
			p.Ops[i].Variants[k].Workspace /= 32
		}
		p.Ops[i].Duration /= 10
	}
	if err := p.Finish(); err != nil {
		t.Fatal(err)
	}
	return p, planned(t, p, plantest.RandomDecisions(p, seed, share))
}

// planned assembles and places decisions so that a returning buffer never gets its old place: its old bytes
// there would be right, and a plan with a missing wait would do no harm.
func planned(t *testing.T, p *plan.Problem, d plan.Decisions) *plan.Plan {
	t.Helper()
	first, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(context.Background(), p, first, place.Options{Rule: place.BestFit}); err != nil {
		t.Fatal(err)
	}
	pl, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	const arenas = 3
	offsets := make([]int64, len(pl.Instances))
	returned := make([]int64, len(p.Buffers))
	for i := range pl.Instances {
		b := pl.Instances[i].Buffer
		offsets[i] = first.Instances[i].Offset
		if p.Buffers[b].Life == plan.Inside {
			offsets[i] += returned[b] % arenas * first.Footprint
			returned[b]++
		}
	}
	pl.Place(offsets)
	pl.Order(p)
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	return pl
}
