//go:build cgo && linux

package nvml

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A very old driver exports next to nothing. The dynamic linker would end this process at the first call of
// anything else, so the test passes only if no such call is made.
const oldDriver = `
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int ret) { return "no"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)1; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) { m->total = 100; m->free = 60; m->used = 40; return 0; }
`

func TestALibraryThatExportsLittleDoesNotEndTheProcess(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc: the library that is loaded is built by it")
	}
	dir := t.TempDir()
	src, lib := filepath.Join(dir, "nvml.c"), filepath.Join(dir, "libnvidia-ml.so.1")
	if err := os.WriteFile(src, []byte(oldDriver), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-shared", "-fPIC", "-o", lib, src).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	l, err := Open(Options{Path: lib})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := l.Devices()
	if err != nil || len(devices) != 1 || devices[0].Total != maybe.Known(100) || devices[0].Name != "" {
		t.Errorf("devices %+v, %v", devices, err)
	}
	r, err := l.Read(0)
	if err != nil || r.Memory.Used != maybe.Known(40) || r.Memory.Reserved.IsKnown() || r.Power.IsKnown() ||
		r.ProcessesKnown {
		t.Errorf("reading %+v, %v", r, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
