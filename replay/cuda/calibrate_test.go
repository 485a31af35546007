//go:build cuda && linux && cgo

package cuda

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

// TestCalibrationFindsTheFakeDevicesFigures: the fake device copies a byte per nanosecond each way after a
// microsecond, and streams ten.
func TestCalibrationFindsTheFakeDevicesFigures(t *testing.T) {
	target := device(t, 16<<20, nil)
	base, err := hardware.ByName("h200")
	if err != nil {
		t.Fatal(err)
	}
	h, err := target.Calibrate(context.Background(), base)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 0.02*want {
			t.Errorf("%s: got %g, want %g", what, got, want)
		}
	}
	near("out", h.D2H.BytesPerSecond, 1e9)
	near("in", h.H2D.BytesPerSecond, 1e9)
	near("out latency", float64(h.D2H.Latency), 1500) // half a microsecond is what issuing it takes
	near("memory", h.BytesPerSecond, 10e9)
	near("together", h.Together, 1)
	if h.MemoryBytes != 16<<20 || h.LaunchGap <= 0 || h.MallocTime <= 0 || h.FreeTime <= 0 ||
		h.MapTime <= 0 || h.FlopsPerSecond != base.FlopsPerSecond {
		t.Errorf("%+v", h)
	}
	if !strings.Contains(h.Origin, "measured on Stand-in GPU") || !strings.Contains(h.Origin, base.Name) {
		t.Errorf("its origin is %q", h.Origin)
	}
	path, err := CalibrationPath(driver.Info{UUID: "1-2"})
	if err != nil || !strings.HasSuffix(path, "gmemtop/hardware/1-2.json") {
		t.Errorf("%s, %v", path, err)
	}
	file := t.TempDir() + "/h.json"
	if err := hardware.Save(file, h); err != nil {
		t.Fatal(err)
	}
	if again, err := hardware.Load(file); err != nil || again != h {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestCalibrationOfADeviceThatFailsSaysSoAndLeavesNothing(t *testing.T) {
	target := device(t, 16<<20, nil)
	if _, err := target.Calibrate(context.Background(), plan.Hardware{}); err != nil {
		t.Fatal(err)
	}
	calls := lib.Calls("*")
	for n := 2; n <= calls; n += 1 + calls/25 {
		reset(16<<20, 0)
		lib.Fail("*", n, 719)
		if _, err := target.Calibrate(context.Background(), plan.Hardware{}); !errors.Is(err,
			driver.ErrLost) {
			t.Fatalf("call %d of %d: %v", n, calls, err)
		}
	}
	reset(16<<20, 0)
}
