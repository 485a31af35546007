package plan_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/load"
)

// recordings opens the samples and, where GMEMTOP_TRACES names them, the real recordings.
func recordings(t *testing.T, visit func(name string, d *timeline.Device)) {
	t.Helper()
	files, err := filepath.Glob("../../traces/samples/*.gmt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	if root := os.Getenv("GMEMTOP_TRACES"); root != "" {
		more, _ := filepath.Glob(root + "/*/*")
		files = append(files, more...)
	} else {
		t.Log("without GMEMTOP_TRACES only the samples are planned")
	}
	for _, f := range files {
		tr, err := load.Open(context.Background(), f, load.Options{})
		if err != nil {
			continue // the readers' own tests say why
		}
		tl, err := timeline.Build(context.Background(), tr, nil)
		if err != nil {
			t.Fatalf("%s: %v", filepath.Base(f), err)
		}
		if d := tl.Main(); d != nil {
			visit(filepath.Base(f), d)
		}
	}
}

func TestAProblemHasThePeakOfItsIterationAndKeepingEverythingIsAValidPlan(t *testing.T) {
	planned := 0
	recordings(t, func(name string, d *timeline.Device) {
		p, err := plan.FromDevice(context.Background(), d, plan.BuildOptions{Iteration: -1, Align: 1})
		if errors.As(err, new(*plan.Unavailable)) {
			return
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		pl, err := plan.Assemble(p, plan.Decisions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		res, err := place.Place(context.Background(), p, pl, place.Options{Rule: place.BestFit})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		peak, _ := p.PeakLive()
		if live, _ := pl.PeakLive(); live != peak || res.LowerBound < peak {
			t.Errorf("%s: the plan holds %d bytes at its peak, bound %d, the problem %d", name, live, res.LowerBound, peak)
		}
		// The recording's own peak: of any iteration, or of the whole where it has none.
		highest := d.Totals.PeakActive
		if peak > highest*11/10 {
			t.Errorf("%s: the problem's peak %d is far above the recording's %d", name, peak, highest)
		}
		planned++
	})
	if planned < 2 {
		t.Errorf("only %d recordings were planned", planned)
	}
}

// TestTimesCountFromTheFirstOp: what is only allocated and freed before the first op of an iteration makes it no longer, however late the recording begins.
func TestTimesCountFromTheFirstOp(t *testing.T) {
	const recorded = `{"gmemtop":"described","version":1,"torch":"2.9.0","device":"cuda:0","pid":7,"rank":0,"world_size":1,"epoch_ns":0,"steps":[[5000000,5001000]]}
{"k":"alloc","id":0,"size":512,"t":1,"category":"parameter","on":"cuda:0"}
{"k":"alloc","id":1,"size":512,"t":5000001,"category":"temporary","on":"cuda:0"}
{"k":"free","id":1,"t":5000002}
{"k":"alloc","id":2,"size":512,"t":5000010,"category":"activation","on":"cuda:0"}
{"k":"op","t":5000010,"d":100,"name":"aten::mm","phase":"forward","module":"fc","r":[0],"w":[2],"m":[],"rerun":true,"stream":0}
{"k":"op","t":5000150,"d":100,"name":"aten::mul","phase":"backward","module":"fc","r":[2],"w":[],"m":[0],"rerun":true,"stream":0}
{"k":"free","id":2,"t":5000300}
`
	path := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(path, []byte(recorded), 0o666); err != nil {
		t.Fatal(err)
	}
	tr, err := load.Open(context.Background(), path, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := timeline.Build(context.Background(), tr, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.FromDevice(context.Background(), tl.Main(), plan.BuildOptions{Iteration: -1})
	if err != nil {
		t.Fatal(err)
	}
	var all int64
	for i := range p.Ops {
		all += p.Ops[i].Duration + p.Ops[i].Gap
	}
	if all < 200 || all > 400 { // a gap counts from when the host issued the op before, not from its end
		t.Errorf("the iteration takes %d ns, and 240 were recorded", all)
	}
}
