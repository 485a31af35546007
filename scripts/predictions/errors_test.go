package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// twin is one plan that the simulator and the stand-in carry out independently. The stand-in gets the plan as
// calls of CUDA's runtime; its clock knows neither the problem nor the simulator.
type twin struct {
	p  *plan.Problem
	pl *plan.Plan
}

// swapped returns a training with this many layers, in which each activation that can leave the device does,
// and is fetched at its place. Sizes are in bytes, times in nanoseconds.
func swapped(t *testing.T, layers int, size, opTime, launch int64, together float64,
	fetch func(g plan.Gap) plan.OpID) *twin {
	t.Helper()
	p := plantest.Chain(layers, size, opTime)
	link := plan.Link{BytesPerSecond: 1e9, Latency: 2000}
	p.Hardware = plan.Hardware{Name: "test", Origin: "made up for tests", LaunchGap: launch,
		Together: together, D2H: link, H2D: link}
	var d plan.Decisions
	for _, g := range p.Gaps(1, 1) {
		if g.Dead {
			continue
		}
		d.Absences = append(d.Absences, plan.Absence{Buffer: g.Buffer, After: g.After, Before: g.Before,
			Release: g.After + 1, Fetch: max(g.After+1, fetch(g))})
	}
	pl, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(t.Context(), p, pl, place.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	return &twin{p, pl}
}

// simulated is how long the simulator says that a step takes, in nanoseconds.
func (w *twin) simulated(t *testing.T) int64 {
	t.Helper()
	m, err := sim.Run(t.Context(), w.p, w.pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.StepTime
}

// measured is how long the step takes on the stand-in, by its own clock.
func (w *twin) measured(t *testing.T) int64 {
	t.Helper()
	lib := standintest.Driver(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3: programs call the stand-in by ctypes")
	}
	dir := t.TempDir()
	var program, times strings.Builder
	queue := func(s *plan.Step) string { return string("abc"[s.Queue]) }
	known := map[int64]bool{}
	for i := range w.pl.Steps {
		switch s := &w.pl.Steps[i]; s.Kind {
		case plan.Run:
			took := w.p.DurationOf(w.pl, s.Op)
			fmt.Fprintf(&program, "op %s 0 0 test::%d\n", queue(s), took)
			if !known[took] {
				fmt.Fprintf(&times, "%d test::%d\n", took, took)
			}
			known[took] = true
		case plan.Out:
			fmt.Fprintf(&program, "out %s %d\n", queue(s), w.pl.Instances[s.Instance].Size)
		case plan.In:
			fmt.Fprintf(&program, "in %s %d\n", queue(s), w.pl.Instances[s.Instance].Size)
		case plan.Wait:
			fmt.Fprintf(&program, "await %s %d\n", queue(s), s.On)
			continue
		case plan.Alloc, plan.Free:
			continue
		default:
			t.Fatalf("a step of kind %v has no call", s.Kind)
		}
		fmt.Fprintf(&program, "record %d %s\n", i, queue(&w.pl.Steps[i]))
	}
	program.WriteString("mark compute a\nmark out b\nmark in c\n")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	script, err := filepath.Abs("../../capture/standin/testdata/clock.py")
	if err != nil {
		t.Fatal(err)
	}
	hw := &w.p.Hardware
	m := standin.Machine{Model: "plain", Clock: standin.Program, Context: "0", Order: standin.Once,
		Times: write("times", times.String()),
		Rates: fmt.Sprintf("launch=%d,event=0,kernel=1,copy=%d,out=1,in=1,memory=10,together=%g",
			hw.LaunchGap, hw.D2H.Latency, hw.Together)}
	r := standintest.Run(t, lib, m, python, script, write("program", program.String()))
	if r.Err != nil {
		t.Fatalf("%v\n%s", r.Err, r.Stderr)
	}
	var last int64
	for line := range strings.Lines(r.Stdout) {
		var name string
		var at int64
		if _, err := fmt.Sscan(line, &name, &at); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		last = max(last, at)
	}
	return last
}

// injected is the twin of a simulator with a deliberate error.
func (w *twin) injected(change func(p *plan.Problem, pl *plan.Plan)) *twin {
	p, pl := *w.p, *w.pl
	pl.Steps = slices.Clone(pl.Steps)
	change(&p, &pl)
	return &twin{&p, &pl}
}

// forget makes a simulator pass over one wait, as if the step were not there. Its place stays, since other
// waits count the steps before it.
func forget(at int) func(p *plan.Problem, pl *plan.Plan) {
	return func(p *plan.Problem, pl *plan.Plan) {
		s := &pl.Steps[at]
		*s = plan.Step{Kind: plan.Alloc, Queue: 0, Op: s.Op, Instance: nothing(pl)}
	}
}

// nothing is an instance of no bytes.
func nothing(pl *plan.Plan) plan.InstanceID {
	pl.Instances = append(slices.Clone(pl.Instances), plan.Instance{})
	return plan.InstanceID(len(pl.Instances) - 1)
}

// Without an error the simulator and the stand-in's clock agree. Each error that is put into the simulator on
// purpose moves its step time away from the clock's by more than the table of predictions lets pass without a
// cause.
func TestErrorsOfTheSimulatorShowAsDisagreement(t *testing.T) {
	const size = 1 << 20 // of an activation: 1.05 ms on the link
	far := func(got, want int64) bool { return off(got, want) > mostTime }
	late := func(g plan.Gap) plan.OpID { return g.Before - 1 }
	early := func(g plan.Gap) plan.OpID { return min(g.After+3, g.Before-1) }
	for _, c := range []struct {
		name   string
		w      *twin
		errors map[string]func(p *plan.Problem, pl *plan.Plan)
		waits  bool // one that is forgotten shows
	}{
		{"a busy link", swapped(t, 10, size, 400_000, 6000, 1, late), map[string]func(*plan.Problem,
			*plan.Plan){
			"copies at double speed": func(p *plan.Problem, _ *plan.Plan) {
				p.Hardware.D2H.BytesPerSecond *= 2
				p.Hardware.H2D.BytesPerSecond *= 2
			},
			"copies out at double speed": func(p *plan.Problem, _ *plan.Plan) {
				p.Hardware.D2H.BytesPerSecond *= 2
			},
			"copies in at double speed": func(p *plan.Problem, _ *plan.Plan) {
				p.Hardware.H2D.BytesPerSecond *= 2
			},
		}, false},
		{"a link that both directions share", swapped(t, 10, size, 400_000, 6000, 0.6, early),
			map[string]func(*plan.Problem, *plan.Plan){
				"directions that do not slow each other": func(p *plan.Problem, _ *plan.Plan) {
					p.Hardware.Together = 1
				},
			}, false},
		{"few ops, each of which waits for its copy", swapped(t, 3, size, 400_000, 6000, 1, late),
			map[string]func(*plan.Problem, *plan.Plan){
				"all waits forgotten": func(p *plan.Problem, pl *plan.Plan) {
					for i := range pl.Steps {
						if pl.Steps[i].Kind == plan.Wait {
							forget(i)(p, pl)
						}
					}
				},
			}, true},
		{"ops shorter than their launch", swapped(t, 10, 1<<10, 3000, 6000, 1, late),
			map[string]func(*plan.Problem, *plan.Plan){
				"a launch gap dropped": func(p *plan.Problem, _ *plan.Plan) { p.Hardware.LaunchGap = 0 },
			}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, right := c.w.measured(t), c.w.simulated(t)
			if off(right, clock) > 0.001 {
				t.Fatalf("without an error the simulator says %d ns and the clock %d", right, clock)
			}
			for name, change := range c.errors {
				if wrong := c.w.injected(change).simulated(t); !far(wrong, clock) {
					t.Errorf("%s: the simulator says %d ns and the clock %d, which passes for agreement",
						name, wrong, clock)
				}
			}
			if !c.waits {
				return
			}
			waits, seen, hidden := 0, 0, 0
			for i := range c.w.pl.Steps {
				if c.w.pl.Steps[i].Kind != plan.Wait {
					continue
				}
				waits++
				switch wrong := c.w.injected(forget(i)).simulated(t); {
				case far(wrong, clock):
					seen++
				case wrong != right:
					hidden++
				}
			}
			t.Logf("of %d waits, %d show above %.0f %% when they alone are forgotten, %d less, and the "+
				"others wait for nothing", waits, seen, 100*mostTime, hidden)
			if seen == 0 {
				t.Error("no wait that is forgotten shows")
			}
		})
	}
}
