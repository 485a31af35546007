package cuda_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/cuda"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

// A Target is one of replay's.
var _ replay.Target = (*cuda.Target)(nil)

func TestWithoutADriverRunSaysSoAndWhatToDo(t *testing.T) {
	p := plantest.Chain(3, 1<<10, 1000)
	pl, err := cuda.KeepAll(p)
	if err != nil {
		t.Fatal(err)
	}
	target := cuda.New(cuda.Options{Library: filepath.Join(t.TempDir(), "libcuda.so.1")})
	_, err = target.Run(context.Background(), p, pl, plan.RunOptions{})
	if !errors.Is(err, driver.ErrNotBuilt) && !errors.Is(err, driver.ErrNoDriver) {
		t.Errorf("%v", err)
	}
}

func TestKeepingEverythingIsAValidPlanNoLargerThanEverythingSideBySide(t *testing.T) {
	for seed := range uint64(60) {
		p := plantest.Random(seed, 10+int(seed))
		pl, err := cuda.KeepAll(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		var all int64
		for i := range pl.Instances {
			all += (pl.Instances[i].Size + 511) &^ 511
		}
		if live, _ := pl.PeakLive(); pl.Footprint < live || pl.Footprint > all {
			t.Errorf("seed %d: %d bytes, %d are alive at once, %d all together", seed, pl.Footprint, live,
				all)
		}
	}
	p := plantest.Chain(30, 1<<20, 1000)
	pl, err := cuda.KeepAll(p)
	if err != nil {
		t.Fatal(err)
	}
	if live, _ := pl.PeakLive(); pl.Footprint > live+live/8 {
		t.Errorf("a chain takes %d bytes, %d are alive at once", pl.Footprint, live)
	}
}

// TestTheKernelsCompile hands kernels.ptx to NVIDIA's assembler for the oldest and the newest architectures
// that it is meant for.
func TestTheKernelsCompile(t *testing.T) {
	ptxas := os.Getenv("GMEMTOP_PTXAS")
	if ptxas == "" {
		var err error
		if ptxas, err = exec.LookPath("ptxas"); err != nil {
			t.Skip("needs GMEMTOP_PTXAS: NVIDIA's assembler, and there is no ptxas on PATH")
		}
	}
	for _, arch := range []string{"sm_60", "sm_75", "sm_80", "sm_90"} {
		if out, err := exec.Command(ptxas, "-arch="+arch, "-o", os.DevNull,
			"kernels.ptx").CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", arch, err, out)
		}
	}
}
