//go:build cuda && linux && cgo

package driver_test

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/control"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

// TestThisProgramStartsWithoutTheDriver looks at itself: it calls gorgonia.org/cu, runs, and asks the system
// for no libcuda.
func TestThisProgramStartsWithoutTheDriver(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(libs, func(l string) bool { return strings.Contains(l, "cuda") }) {
		t.Errorf("it needs %v", libs)
	}
}

func TestWithoutADriverThereIsASentence(t *testing.T) {
	if _, err := driver.Open(filepath.Join(t.TempDir(), "libcuda.so.1")); !errors.Is(err,
		driver.ErrNoDriver) || !strings.Contains(err.Error(), "install") {
		t.Errorf("%v", err)
	}
	empty := filepath.Join(t.TempDir(), "libcuda.so.1")
	compile(t, empty, "int nothing;")
	if _, err := driver.Open(empty); !errors.Is(err, driver.ErrNoDriver) {
		t.Errorf("a library that is not a driver: %v", err)
	}
}

func compile(t *testing.T, path, source string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("needs cc: drivers for tests are compiled")
	}
	src := path + ".c"
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", path, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestADriverThatLacksFunctionsIsTooOldAndNothingCrashes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	compile(t, path, "int cuInit(unsigned f) { return 0; }\nint cuDriverGetVersion(int *v) { *v = 12000; "+
		"return 0; }\n")
	d, err := driver.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Devices(); !errors.Is(err, driver.ErrTooOld) {
		t.Errorf("%v", err)
	}
	if _, err := driver.Open("another"); err == nil {
		t.Error("two drivers are open at once")
	}
}

func TestMachinesOfEveryKindAreRecognised(t *testing.T) {
	m := standin.Machine{Model: "plain", Memory: "1GiB", Context: "0"}
	lib, err := control.Open(standintest.Driver(t), m)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range []struct {
		what                   string
		version, devices, mode int
		want                   error
	}{
		{"no GPU", 12040, -1, 0, driver.ErrNoDevice}, {"an old driver", 11010, 1, 0, driver.ErrTooOld},
		{"exclusive mode", 12040, 1, 3, driver.ErrBusy},
		{"prohibited mode", 12040, 1, 2, driver.ErrBusy}, {"a newer one", 13000, 2, 0, nil},
	} {
		m := standin.Machine{Model: "plain", Memory: "1GiB", Context: "0", Others: []string{"1MiB"},
			Driver: c.version, Devices: c.devices, Mode: c.mode}
		lib.Reset(m)
		d, err := driver.Open(lib.Path())
		var dev driver.Device
		if err == nil {
			if dev, err = d.Open(0); err == nil {
				free, total, e := dev.MemInfo()
				i := dev.Info()
				want := driver.Info{Name: "Stand-in GPU", UUID: i.UUID, CUDA: c.version, Total: 1 << 30,
					Processors: 8, Major: 9, Pools: true, Virtual: true}
				if e != nil || free != 1<<30-1<<20 || total != 1<<30 || i != want || i.UUID == "" {
					t.Errorf("%s: %d of %d bytes are free, %+v, %v", c.what, free, total, i, e)
				}
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			}
			d.Close()
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	lib.Reset(m)
	d, err := driver.Open(lib.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Open(7); !errors.Is(err, driver.ErrNoDevice) {
		t.Errorf("GPU 7 of 1: %v", err)
	}
}

// TestARealDriverWithoutAGPUSaysSo opens NVIDIA's own library on a machine without a GPU: Debian's libcuda1
// unpacked anywhere will do.
func TestARealDriverWithoutAGPUSaysSo(t *testing.T) {
	path := os.Getenv("GMEMTOP_LIBCUDA")
	if path == "" {
		t.Skip("needs GMEMTOP_LIBCUDA: the path of a real libcuda.so.1, such as that of Debian's libcuda1")
	}
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("needs a machine without a GPU")
	}
	d, err := driver.Open(path)
	if !errors.Is(err, driver.ErrNoDevice) {
		t.Errorf("%v", err)
	}
	if err == nil {
		d.Close()
	}
}
