//go:build standin && cgo && linux

package standin_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// seen is what a monitor reads from one device.
type seen struct {
	Device nvml.Device
	Total, Reserved, Used, Free,
	ECC, Uncorrected, RemapPending int64
	Known     bool
	Processes map[int]int64
	Absent    []string
}

// monitorHelper makes the test binary a monitor: for each line that it reads it prints what NVML says now.
const monitorHelper = "STANDIN_TEST_MONITOR"

func TestMain(m *testing.M) {
	path := os.Getenv(monitorHelper)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := monitor(path, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func monitor(path string, in io.Reader, out io.Writer) error {
	l, err := nvml.Open(nvml.Options{Path: path})
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		devices, err := l.Devices()
		if err != nil {
			return err
		}
		var all []seen
		for _, d := range devices {
			r, err := l.Read(d.Index)
			if err != nil {
				return err
			}
			s := seen{Device: d, Total: r.Memory.Total.Or(-1), Reserved: r.Memory.Reserved.Or(-1),
				Used: r.Memory.Used.Or(-1),
				Free: r.Memory.Free.Or(-1), ECC: r.ECC.Or(-1), Uncorrected: r.Uncorrected.Or(-1),
				RemapPending: r.RemapPending.Or(-1),
				Known:        r.ProcessesKnown, Processes: map[int]int64{}}
			for _, p := range r.Processes {
				s.Processes[p.PID] = p.Used.Or(-1)
			}
			for _, a := range r.Absent {
				s.Absent = append(s.Absent, a.Figure+": "+a.Why)
			}
			all = append(all, s)
		}
		data, err := json.Marshal(all)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", data)
	}
	return l.Close()
}

// startMonitor starts a monitor on a machine and returns a function that asks it.
func startMonitor(t *testing.T, lib *standin.Library, m standin.Machine) func() []seen {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(lib.Environ(m), monitorHelper+"="+filepath.Join(lib.Dir(), "libnvidia-ml.so.1"))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("the monitor ended: %v", err)
		}
	})
	lines := bufio.NewReader(out)
	return func() (all []seen) {
		t.Helper()
		if _, err := fmt.Fprintln(in); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &all)
		}
		if err != nil {
			t.Fatalf("the monitor answered %q: %v", line, err)
		}
		for _, s := range all {
			sum := int64(0)
			for _, used := range s.Processes {
				sum += used
			}
			if s.Total != s.Reserved+s.Used+s.Free || s.Used != sum || !s.Known {
				t.Errorf("%s: total %d, reserved %d, used %d, free %d, processes %v: "+
					"the books do not balance", s.Device, s.Total, s.Reserved, s.Used,
					s.Free, s.Processes)
			}
		}
		return all
	}
}

// holder is a process that holds as much as it is told: "DEVICE BYTES" a line, 0 bytes to end.
const holder = `
import ctypes, sys
so = ctypes.CDLL(None)
for line in sys.stdin:
    device, size = map(int, line.split())
    assert so.cudaSetDevice(device) == 0
    p = ctypes.c_void_p()
    assert so.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size)) == 0
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert so.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    print(free.value, total.value, flush=True)
import os
os._exit(0)
`

// hold starts a holder; the returned function makes it allocate, and returns cudaMemGetInfo's answer
// afterwards.
func hold(t *testing.T, lib *standin.Library, m standin.Machine) (pid int,
	allocate func(device int, bytes int64) (free, total int64), end func()) {
	t.Helper()
	c := exec.Command(standintest.Interpreter(t), "-c", holder)
	c.Env = lib.Environ(m)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	allocate = func(device int, bytes int64) (free, total int64) {
		t.Helper()
		if _, err := fmt.Fprintln(in, device, bytes); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fscan(out, &free, &total); err != nil {
			t.Fatalf("allocate %d bytes of device %d: %v", bytes, device, err)
		}
		return free, total
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			in.Close()
			c.Wait()
		}
	}
	t.Cleanup(end)
	return c.Process.Pid, allocate, end
}

// A monitor that reads NVML through our own package sees several devices, processes that come and go, and the
// same memory as CUDA: used is the sum of the processes, and free is the rest.
func TestNVMLKeepsTheBoardsBooks(t *testing.T) {
	lib := standintest.Library(t)
	const mib, gib = 1 << 20, 1 << 30
	m := standin.Machine{Model: "a100", Devices: 3, Context: "300MiB", Others: []string{"", "10GiB"},
		Board: filepath.Join(t.TempDir(), "board")}
	ask := startMonitor(t, lib, m)

	idle := ask()
	if len(idle) != 3 || idle[0].Used != 0 || len(idle[0].Processes) != 0 || idle[1].Used != 10*gib ||
		len(idle[1].Processes) != 1 {
		t.Fatalf("an idle machine with another process's 10 GiB on device 1 appears as %+v", idle)
	}
	uuids := map[string]bool{}
	for _, s := range idle {
		d := s.Device
		uuids[d.UUID+d.Bus] = true
		if d.Err != nil || d.Name != "NVIDIA A100-SXM4-80GB" || d.NVLinks.Or(0) != 12 ||
			d.PowerLimit.Or(0) != 400000 || d.PCIeGeneration.Or(0) != 4 || d.MIG {
			t.Errorf("device %+v is not an A100", d)
		}
		if len(s.Absent) > 0 {
			t.Errorf("NVML did not answer %q", s.Absent)
		}
	}
	if len(uuids) != 3 {
		t.Errorf("UUIDs and addresses %v do not distinguish three devices", uuids)
	}

	first, allocate, end := hold(t, lib, m)
	second, allocate2, _ := hold(t, lib, m)
	_, total := allocate(1, 5*gib)
	allocate2(1, 2*gib)
	allocate2(2, gib)
	free, _ := allocate(1, 4*mib)
	now := ask()
	want := map[int]int64{first: 5*gib + 4*mib + 300*mib, second: 2*gib + 300*mib}
	for pid, bytes := range want {
		if got := now[1].Processes[pid]; got != bytes {
			t.Errorf("process %d holds %d bytes of device 1, NVML says %d", pid, bytes, got)
		}
	}
	if now[1].Free != free || now[1].Total-now[1].Reserved != total {
		t.Errorf("NVML has %d of %d bytes free (%d reserved), CUDA %d of %d", now[1].Free, now[1].Total,
			now[1].Reserved, free, total)
	}
	if _, there := now[2].Processes[first]; there || now[2].Processes[second] != gib+300*mib ||
		len(now[0].Processes) != 0 {
		t.Errorf("devices 0 and 2 appear as %v and %v", now[0].Processes, now[2].Processes)
	}

	end()
	if gone := ask(); len(gone[1].Processes) != 2 || gone[1].Used != now[1].Used-want[first] {
		t.Errorf("after process %d has ended NVML says %v", first, gone[1].Processes)
	}
}

// Memory errors are reported if a machine has them.
func TestNVMLReportsMemoryErrors(t *testing.T) {
	lib := standintest.Library(t)
	for _, ecc := range []bool{false, true} {
		s := startMonitor(t, lib, standin.Machine{ECC: ecc, Board: filepath.Join(t.TempDir(), "board")})()[0]
		if s.ECC != 1 || (s.Uncorrected > 0) != ecc || (s.RemapPending == 1) != ecc {
			t.Errorf("with errors %v: ECC %d, %d uncorrected errors, remapping pending %d", ecc, s.ECC,
				s.Uncorrected, s.RemapPending)
		}
	}
}

// PyTorch's own view: mem_get_info and NVML agree, and the out-of-memory message names this process's memory
// as NVML lists it.
func TestPyTorchAndNVMLAgree(t *testing.T) {
	r := standintest.TryPython(t, standin.Machine{Memory: "2GiB", Others: []string{"256MiB"}}, `
import ctypes, os, torch
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]
class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]
so = ctypes.CDLL("libnvidia-ml.so.1")
assert so.nvmlInit_v2() == 0
h, m, n = ctypes.c_void_p(), Memory(version=ctypes.sizeof(Memory) | 2 << 24), ctypes.c_uint(8)
assert so.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(h)) == 0
x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
processes = (Process * 8)()
assert so.nvmlDeviceGetMemoryInfo_v2(h, ctypes.byref(m)) == 0
assert so.nvmlDeviceGetComputeRunningProcesses_v3(h, ctypes.byref(n), processes) == 0
free, total = torch.cuda.mem_get_info()
mine = [p.used for p in processes[:n.value] if p.pid == os.getpid()]
print(free == m.free, total == m.total - m.reserved, m.used == (256 << 20) + mine[0], mine[0] == torch.cuda.memory_reserved() + (500 << 20))
try:
    torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as e:
    print(f"this process has {mine[0] / 2**20:.2f} MiB memory in use" in str(e), e)
`)
	r.Check(t)
	if lines := strings.Split(r.Stdout, "\n"); lines[0] != "True True True True" ||
		!strings.HasPrefix(lines[1], "True") {
		t.Errorf("PyTorch and NVML differ:\n%s", r.Stdout)
	}
	if slices.ContainsFunc(r.Reports[0].Missing, func(m standin.Missing) bool {
		return strings.HasPrefix(m.Function, "nvml")
	}) {
		t.Errorf("missing %v", r.Reports[0].Missing)
	}
}
