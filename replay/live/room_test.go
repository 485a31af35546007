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
	shrunk, kept, none := 0, 0, 0
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
		ask := func(budget int64) (*plan.Plan, error) {
			budgets = append(budgets, budget)
			r := plan.Request{Budget: budget, Work: 200, Evaluator: sim.Simulator{}}
			return joint.Joint{}.Plan(t.Context(), p, r)
		}
		pl, err := inRoom(t.Context(), p, allocator.Settings{}, room, room, ask)
		switch {
		case err != nil && len(budgets) == 1:
			t.Fatal(err)
		case err != nil:
			none++
			if !strings.Contains(err.Error(), "expandable_segments:True") {
				t.Errorf("problem %d: what to do is not said: %v", seed, err)
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
	if shrunk == 0 || kept == 0 || none == 0 {
		t.Errorf("%d plans for less, %d for all, %d times none: the law was hardly tried", shrunk, kept, none)
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
