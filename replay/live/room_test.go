package live

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Whatever plan is chosen, the allocator serves it in the room there is.
func TestAPlanForALiveTrainingIsServedInItsRoom(t *testing.T) {
	shrunk, kept, none, advised := 0, 0, 0, 0
	for seed := range uint64(12) {
		p := plantest.Random(seed, 40)
		for i := range p.Buffers {
			p.Buffers[i].Size *= 400 // sizes at which segments matter
		}
		p.EagerOnly = true
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
		peak, _ := p.PeakLive()
		room := (p.MustReside().Total() + 2*peak) / 3
		var budgets []int64
		var last *plan.Plan
		ask := func(budget int64) (*plan.Plan, error) {
			budgets = append(budgets, budget)
			r := plan.Request{Budget: budget, Work: 200, Evaluator: sim.Simulator{}}
			pl, err := joint.Joint{}.Plan(t.Context(), p, r)
			if err == nil {
				last = pl
			}
			return pl, err
		}
		pl, err := inRoom(t.Context(), p, allocator.Settings{}, room, room, ask)
		switch {
		case err != nil && len(budgets) == 1:
			t.Fatal(err)
		case err != nil:
			none++
			// expandable segments are advised only where they make the plan fit
			segments := allocator.Settings{ExpandableSegments: true}
			need, noNeed := sim.CachingNeeds(t.Context(), p, last, segments)
			if noNeed != nil {
				t.Fatal(noNeed)
			}
			want := "has " + timeline.IEC.Bytes(room) + ": try another manager, or train on smaller batches"
			if need <= room {
				advised++
				want = "expandable_segments:True, with which the plan is simulated to need " +
					timeline.IEC.Bytes(need)
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("problem %d: %v; not %s", seed, err, want)
			}
			continue
		case len(budgets) > 1:
			shrunk++
			if len(pl.Notes) == 0 || !strings.HasPrefix(pl.Notes[len(pl.Notes)-1], "planned for ") {
				t.Errorf("problem %d: notes %q", seed, pl.Notes)
			}
		default:
			kept++
		}
		need, err := sim.CachingNeeds(t.Context(), p, pl, allocator.Settings{})
		if err != nil || need > room {
			t.Errorf("problem %d: the allocator needs %d of %d bytes: %v", seed, need, room, err)
		}
		for i := 1; i < len(budgets); i++ {
			if budgets[i] >= budgets[i-1] {
				t.Errorf("problem %d: budgets %v do not fall", seed, budgets)
			}
		}
	}
	if shrunk == 0 || kept == 0 || advised == 0 || advised == none {
		t.Errorf("%d plans for less, %d for all, %d times none, %d of them with advice: hardly tried",
			shrunk, kept, none, advised)
	}
}

// onAllocator returns a problem of a training whose allocator has these settings.
func onAllocator(t *testing.T, kind traces.DeviceKind, settings ...traces.Setting) *plan.Problem {
	t.Helper()
	tr := &traces.Trace{Settings: settings, Devices: []traces.Device{{Kind: kind}}}
	tl, err := timeline.Build(t.Context(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &plan.Problem{Source: tl.Devices[0]}
}

func TestTheAllocatorOfATrainingIsRead(t *testing.T) {
	for _, c := range []struct {
		conf               string
		kind               traces.DeviceKind
		expandable, native bool
		known              bool
	}{
		{`""`, traces.DeviceGPU, false, true, true},
		{`"expandable_segments:True"`, traces.DeviceGPU, true, true, true},
		{`"backend:cudaMallocAsync"`, traces.DeviceGPU, false, false, true},
		{`"no:such"`, traces.DeviceGPU, false, true, false},
		{`""`, traces.DeviceCPU, false, true, false},
	} {
		conf := traces.Setting{Key: "PYTORCH_CUDA_ALLOC_CONF", Value: c.conf}
		s, known := settingsOf(onAllocator(t, c.kind, conf))
		if known != c.known || s.ExpandableSegments != c.expandable || s.Native() != c.native {
			t.Errorf("%s on %s: expandable %t, native %t, known %t", c.conf, c.kind, s.ExpandableSegments,
				s.Native(), known)
		}
	}
}

// Of an allocator that is not PyTorch's own nothing is emulated, and the plan says so.
func TestAnotherAllocatorIsNotEmulated(t *testing.T) {
	conf := traces.Setting{Key: "PYTORCH_CUDA_ALLOC_CONF", Value: `"expandable_segments:True"`}
	for backend, note := range map[string]string{
		"pluggable":       "memory is served by a pluggable allocator (RMM is one) and not by",
		"cudaMallocAsync": "memory is served by the allocator cudaMallocAsync and not by",
	} {
		said := traces.Setting{Key: allocator.BackendSetting, Value: fmt.Sprintf("%q", backend)}
		var asked []int64
		pl, err := InRoom(t.Context(), onAllocator(t, traces.DeviceGPU, conf, said), 1<<20, 1<<19,
			func(budget int64) (*plan.Plan, error) {
				asked = append(asked, budget)
				return &plan.Plan{}, nil
			})
		if err != nil || len(asked) != 1 || asked[0] != 1<<19 {
			t.Fatalf("%s: asked for %v: %v", backend, asked, err)
		}
		if len(pl.Notes) != 1 || !strings.HasPrefix(pl.Notes[0], note) {
			t.Errorf("%s: notes %q", backend, pl.Notes)
		}
	}
}

func TestWhatKeepsAManagerFromPlanningIsItsOwnError(t *testing.T) {
	no := errors.New("no")
	never := func(int64) (*plan.Plan, error) { return nil, no }
	p := plantest.Random(1, 10)
	if _, err := InRoom(t.Context(), p, 1<<30, 1<<20, never); err != no {
		t.Errorf("of an unknown allocator: %v", err)
	}
	if _, err := inRoom(t.Context(), p, allocator.Settings{}, 1<<30, 1<<20, never); err != no {
		t.Errorf("at the first budget: %v", err)
	}
}

// Who has expandable segments already is not told to turn them on.
func TestExpandableSegmentsAreAdvisedOnlyOnce(t *testing.T) {
	p := plantest.Random(1, 40)
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		settings allocator.Settings
		want     string
	}{
		{allocator.Settings{}, "expandable_segments:True"},
		{allocator.Settings{ExpandableSegments: true}, "try another manager"},
	} {
		err := tooManyHoles(t.Context(), p, pl, c.settings, 2<<40, 1<<40)
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, not %s", c.settings, err, c.want)
		}
	}
}

// Where a plan that chooses addresses ends, expandable segments are named only if a simulation says that they
// take less, on a GPU and where they are off.
func TestAPoolThatEndedNamesExpandableSegmentsWhereTheyHelp(t *testing.T) {
	conf := func(text string) traces.Setting {
		return traces.Setting{Key: "PYTORCH_CUDA_ALLOC_CONF", Value: fmt.Sprintf("%q", text)}
	}
	why := errors.New("why")
	target := NewPoolTarget(struct{ PoolCarrier }{}, "", Options{})
	helped, useless := 0, 0
	for seed := range uint64(12) {
		p := plantest.Random(seed, 40)
		for i := range p.Buffers {
			p.Buffers[i].Size *= 400 // sizes at which segments matter
		}
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		var need [2]int64
		for i, s := range []allocator.Settings{{}, {ExpandableSegments: true}} {
			if need[i], err = sim.CachingNeeds(t.Context(), p, pl, s); err != nil {
				t.Fatal(err)
			}
		}
		want := "why"
		if useless++; need[1] < need[0] {
			useless--
			helped++
			want = fmt.Sprintf("why; in a simulation of the recorded step PyTorch's allocator takes %s with "+
				"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, instead of %s",
				timeline.IEC.Bytes(need[1]), timeline.IEC.Bytes(need[0]))
		}
		p.Source = onAllocator(t, traces.DeviceGPU, conf("")).Source
		if got := target.orSegments(t.Context(), p, pl, why); got.Error() != want || !errors.Is(got, why) {
			t.Errorf("problem %d: %q, not %q", seed, got, want)
		}
		for _, source := range []*plan.Problem{onAllocator(t, traces.DeviceCPU, conf("")),
			onAllocator(t, traces.DeviceGPU, conf("expandable_segments:True"))} {
			p.Source = source.Source
			if got := target.orSegments(t.Context(), p, pl, why); got != why {
				t.Errorf("problem %d: %q", seed, got)
			}
		}
		p.Source = onAllocator(t, traces.DeviceGPU, conf("")).Source
		if got := NewTarget(nil, Options{}).orSegments(t.Context(), p, pl, why); got != why {
			t.Errorf("problem %d, of a plan that moves: %q", seed, got)
		}
	}
	if helped == 0 || useless == 0 {
		t.Errorf("they helped %d times and did not %d times", helped, useless)
	}
}
