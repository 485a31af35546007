package standin_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// law is a sentence about the stand-in, and a program that checks it. The program calls the runtime and the
// driver through ctypes, without PyTorch; testdata/cuda.py is their common code.
type law struct {
	name    string
	machine standin.Machine
	orders  []string // it must hold in each; none for the machine's own
	program string
	// Expected books: a part of the only violation and of each leak, by line. "" for none.
	violation, leaks string
}

var everyOrder = []string{standin.Once, standin.Late, "2", "3", "4", "5", "6", "7"}

// interpreter returns the real Python behind python3: the one on PATH may be a script that starts others.
func interpreter(t *testing.T) string {
	t.Helper()
	path, err := python3()
	if err != nil {
		t.Skip("needs python3: programs call the stand-in by ctypes")
	}
	return path
}

var python3 = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

func (l law) run(t *testing.T, order string) standintest.Result {
	t.Helper()
	python := interpreter(t)
	lib := standintest.Driver(t)
	shared, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "law.py")
	text := "import sys; sys.path.insert(0, " + fmt.Sprintf("%q", shared) + ")\nfrom cuda import *\n" +
		l.program
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	m := l.machine
	if order != "" {
		m.Order = order
	}
	r := standintest.Run(t, lib, m, python, path)
	if r.Err != nil {
		t.Fatalf("%v\n%s%s", r.Err, r.Stdout, r.Stderr)
	}
	return r
}

func (l law) check(t *testing.T, order string) {
	t.Helper()
	r := l.run(t, order)
	var violations, leaks []string
	for _, p := range r.Reports {
		violations = append(violations, p.Violations...)
		for _, k := range p.Leaks {
			leaks = append(leaks, k.String())
		}
	}
	expect := func(what, want string, got []string) {
		var lines []string
		if want != "" {
			lines = strings.Split(want, "\n")
		}
		if len(got) != len(lines) {
			t.Errorf("%s: %q, expected %q", what, got, lines)
			return
		}
		for i, w := range lines {
			if !strings.Contains(got[i], w) {
				t.Errorf("%s: %q, expected %q", what, got[i], w)
			}
		}
	}
	expect("violations", l.violation, violations)
	expect("leaks", l.leaks, leaks)
}

func checkLaws(t *testing.T, laws []law) {
	for _, l := range laws {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			if len(l.orders) == 0 {
				l.check(t, "")
			}
			for _, o := range l.orders {
				l.check(t, o)
			}
		})
	}
}

func TestQuickStreams(t *testing.T) {
	checkLaws(t, []law{
		{name: "late: nothing runs before somebody waits", orders: []string{standin.Late}, program: `
s, d, h = stream(), memory(MiB), Pinned(4)
fill(d, 7, 4, s); copy(h.at, d, 4, s)
assert h.bytes() == bytes(4), "work was done that nobody waited for"
wait(s)
assert h.bytes() == b"\7" * 4
free(d, h); close(s)`},
		{name: "late: a wait runs only what it needs", orders: []string{standin.Late}, program: `
a, b, h, g = stream(), stream(), Pinned(4), Pinned(4)
d = memory(MiB)
fill(d, 1, 8, a); copy(h.at, d, 4, a)
copy(g.at, d, 4, b)
wait(b)
assert h.bytes() == bytes(4) and g.bytes() == bytes(4)
free(d, h, g); close(a, b)`},
		{name: "at once: all work runs immediately", orders: []string{standin.Once}, program: `
s, d, h = stream(), memory(MiB), Pinned(4)
fill(d, 7, 4, s); copy(h.at, d, 4, s)
assert h.bytes() == b"\7" * 4
free(d, h); close(s)`},
		{name: "work that waits for an event comes after it in every order", orders: everyOrder, program: `
streams, e, d = [stream() for _ in range(4)], event(), memory(MiB)
for step in range(40):
    s, before = streams[step % 4], streams[(step - 1) % 4]
    after(s, e, before)
    if step == 0: fill(d, 5, 4, s)
    else: copy(d + 64 * step, d + 64 * (step - 1), 4, s)
assert read(d + 64 * 39) == b"\5" * 4
free(d); close(*streams, events=[e])`},
		{name: "a missing wait does no harm at once", orders: []string{standin.Once}, program: `
a, b, d = stream(), stream(), memory(MiB)
fill(d, 9, 4, a); copy(d + 64, d, 4, b); wait(b)
assert read(d + 64) == b"\11" * 4
free(d); close(a, b)`},
		{name: "a missing wait gives wrong results late", orders: []string{standin.Late}, program: `
a, b, d = stream(), stream(), memory(MiB)
fill(d, 9, 4, a); copy(d + 64, d, 4, b); wait(b)
assert read(d + 64) == bytes(4)
free(d); close(a, b)`},
		{name: "the legacy stream and blocking streams wait for each other", orders: everyOrder, program: `
blocking, d = stream(0), memory(MiB)
fill(d, 3, 4, blocking); copy(d + 64, d, 4, 0); copy(d + 128, d + 64, 4, blocking); wait(blocking)
assert read(d + 128) == b"\3" * 4
free(d); close(blocking)`},
		{name: "the legacy stream does not wait for non-blocking streams", orders: []string{standin.Late},
			program: `
other, d = stream(1), memory(MiB)
fill(d, 3, 4, other); copy(d + 64, d, 4, 0); wait(0)
wait(other)
assert read(d + 64) == bytes(4) and read(d) == b"\3" * 4
free(d); close(other)`},
		{name: "late: polling an event completes it in the end", machine: standin.Machine{Polls: 10},
			orders: []string{standin.Late}, program: `
s, e, d = stream(), event(), memory(MiB)
fill(d, 1, 4, s); call("cudaEventRecord", e, s)
answers = [ask("cudaEventQuery", e) for _ in range(11)]
assert answers == [600] * 9 + [0, 0], answers
assert ask("cudaGetLastError") == 600
free(d); close(s, events=[e])`},
		{name: "pageable memory may be changed as soon as a copy from it returns", orders: everyOrder,
			program: `
s, d = stream(), memory(MiB)
buffer = ctypes.create_string_buffer(b"abcd", 4)
copy(d, buffer, 4, s)
buffer.raw = b"XXXX"
assert read(d) == b"abcd"
free(d); close(s)`},
		{name: "a copy to pageable memory is complete when it returns", orders: everyOrder, program: `
s, d = stream(), memory(MiB)
buffer = ctypes.create_string_buffer(4)
fill(d, 66, 4, s); copy(buffer, d, 4, s)
assert buffer.raw == b"BBBB"
free(d); close(s)`},
		{name: "host functions run in their stream's order", orders: everyOrder, program: `
s, d, h, seen = stream(), memory(MiB), Pinned(4), []
Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
look = Function(lambda _: seen.append(h.bytes()))
for value in (1, 2, 3):
    fill(d, value, 4, s); copy(h.at, d, 4, s); call("cudaLaunchHostFunc", s, look, 0)
wait(s)
assert seen == [bytes([v]) * 4 for v in (1, 2, 3)], seen
free(d, h); close(s)`},
		{name: "a host function that calls CUDA is reported", program: `
s = stream()
Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
wrong = Function(lambda _: ask("cudaStreamQuery", s) and None)
call("cudaLaunchHostFunc", s, wrong, 0); wait(s)
close(s)`, violation: "a host function calls cudaStreamQuery"},
		{name: "the virtual clock knows copies and the card's rates",
			machine: standin.Machine{Model: "plain", Clock: "virtual", Context: "0"},
			orders:  []string{standin.Late, standin.Once}, program: `
s, a, b, d, h = stream(), event(0), event(0), memory(2 * MiB), Pinned(MiB)
call("cudaEventRecord", a, s); copy(d, h.at, MiB, s); call("cudaEventRecord", b, s); wait(s)
ms = ctypes.c_float()
call("cudaEventElapsedTime", ctypes.byref(ms), a, b)
assert abs(ms.value * 1e6 - (MiB + 1000)) < 1600, ms.value  # a byte a nanosecond, and what giving it takes
free(d, h); close(s, events=[a, b])`},
		{name: "work in a stream that was destroyed is reported", program: `
s, d = stream(), memory(MiB)
close(s)
assert ask("cudaMemsetAsync", d, 0, 4, s) == 400
free(d)`, violation: "a stream that does not exist"},
		{name: "an event that was destroyed is reported", program: `
e = event()
close(events=[e])
assert ask("cudaEventQuery", e) == 400`, violation: "cudaEventQuery of an event that does not exist"},
	})
}

// TestQuickDrawnOrders: some random orders of a program with a race give right results and some wrong ones,
// and a seed always gives the same order.
func TestQuickDrawnOrders(t *testing.T) {
	race := law{program: `
a, b, d = stream(), stream(), memory(MiB)
for i in range(6): fill(d, i + 1, 4, a)
copy(d + 64, d, 4, b)
print(read(d + 64)[0])
free(d); close(a, b)`}
	seen := map[string]bool{}
	for seed := 2; seed < 14; seed++ {
		first := race.run(t, fmt.Sprint(seed)).Stdout
		if again := race.run(t, fmt.Sprint(seed)).Stdout; again != first {
			t.Errorf("seed %d gives first %q, then %q", seed, first, again)
		}
		seen[first] = true
	}
	if len(seen) < 3 {
		t.Errorf("12 seeds gave only %d different orders", len(seen))
	}
}

func TestQuickFaults(t *testing.T) {
	checkLaws(t, []law{
		{name: "the n-th call of a function fails and no other",
			machine: standin.Machine{Fail: []string{"cudaMalloc:3=2", "cudaEventCreateWithFlags:1=801"}},
			program: `
answers, all = [], []
for _ in range(5):
    p = ctypes.c_uint64(); answers.append(ask("cudaMalloc", ctypes.byref(p), MiB)); all.append(p.value)
assert answers == [0, 0, 2, 0, 0], answers
assert ask("cudaEventCreateWithFlags", ctypes.byref(ctypes.c_uint64()), 0) == 801
free(*(p for p in all if p))`},
		{name: "a fatal answer loses the device: every later call answers it, and questions " +
			"about the machine do not", machine: standin.Machine{Fail: []string{"cudaMemsetAsync:2=719"}},
			program: `
s, d = stream(), memory(MiB)
fill(d, 1, 4, s)
assert ask("cudaMemsetAsync", d, 1, 4, s) == 719
for f, *a in (("cudaMalloc", ctypes.byref(ctypes.c_uint64()), MiB), ("cudaDeviceSynchronize",), ("cudaFree", d), ("cudaStreamQuery", s)):
    assert ask(f, *a) == 719, f
assert out("cudaGetDeviceCount", kind=ctypes.c_int) == 1
assert ask("cudaGetLastError") == 719
call("cudaDeviceReset")
free(memory(MiB))`, leaks: "device memory\n1 x stream"},
		{name: "a missing function answers that it is not supported", program: `
assert ask("cuTexRefSetArray", 0, 0, 0) == 801`},
		{name: "a driver function looked up by name is found or reported as missing", program: `
f, status = ctypes.c_uint64(), ctypes.c_int(5)
call("cudaGetDriverEntryPointByVersion", b"cuMemAlloc", ctypes.byref(f), 12000, 0, ctypes.byref(status))
assert f.value and status.value == 0
call("cudaGetDriverEntryPointByVersion", b"cuNothing", ctypes.byref(f), 12000, 0, ctypes.byref(status))
assert not f.value and status.value == 1`},
	})
}

func TestQuickGraphs(t *testing.T) {
	checkLaws(t, []law{
		{name: "captured work runs each time the graph is launched", orders: everyOrder, program: `
s, d, h = stream(), memory(MiB), Pinned(4)
call("cudaStreamBeginCapture", s, 0)
copy(d, h.at, 4, s); copy(d + 64, d, 4, s)
g = ctypes.c_uint64()
call("cudaStreamEndCapture", s, ctypes.byref(g))
e = out("cudaGraphInstantiate", g.value, 0)
assert read(d + 64) == bytes(4)
for text in (b"once", b"more"):
    ctypes.memmove(h.at, text, 4)
    call("cudaGraphLaunch", e, s)
    assert read(d + 64) == text
call("cudaGraphExecDestroy", e); call("cudaGraphDestroy", g.value)
free(d, h); close(s)`},
		{name: "a fork that is joined keeps its order in every launch", orders: everyOrder, program: `
a, b, e, d = stream(), stream(), event(), memory(MiB)
call("cudaStreamBeginCapture", a, 0)
fill(d, 1, 4, a)
after(b, e, a)
copy(d + 64, d, 4, b); fill(d + 128, 9, 4, a)
after(a, e, b)
copy(d + 192, d + 64, 4, a)
g = ctypes.c_uint64(); call("cudaStreamEndCapture", a, ctypes.byref(g))
x = out("cudaGraphInstantiate", g.value, 0)
for _ in range(8):
    fill(d, 0, 256, a); call("cudaGraphLaunch", x, a)
    assert read(d + 192) == b"\1" * 4
call("cudaGraphExecDestroy", x); call("cudaGraphDestroy", g.value)
free(d); close(a, b, events=[e])`},
		{name: "a fork that is not joined ends the capture with an error", program: `
a, b, e, d = stream(), stream(), event(), memory(MiB)
call("cudaStreamBeginCapture", a, 0)
fill(d, 1, 4, a); after(b, e, a); fill(d, 2, 4, b)
assert ask("cudaStreamEndCapture", a, ctypes.byref(ctypes.c_uint64())) == 904
free(d); close(a, b, events=[e])`},
		{name: "waiting for a capturing stream ends the capture with an error", program: `
a, d = stream(), memory(MiB)
call("cudaStreamBeginCapture", a, 0)
fill(d, 1, 4, a)
assert ask("cudaStreamSynchronize", a) == 900
assert ask("cudaStreamEndCapture", a, ctypes.byref(ctypes.c_uint64())) == 901
free(d); close(a)`},
		{name: "allocating beside a capture is forbidden unless the thread asks for the relaxed mode",
			program: `
a, d, p = stream(), memory(MiB), ctypes.c_uint64()
call("cudaStreamBeginCapture", a, 0)
mode = ctypes.c_int(2); call("cudaThreadExchangeStreamCaptureMode", ctypes.byref(mode))
free(memory(MiB))
call("cudaThreadExchangeStreamCaptureMode", ctypes.byref(mode))
assert ask("cudaMalloc", ctypes.byref(p), MiB) == 900
assert ask("cudaStreamEndCapture", a, ctypes.byref(p)) == 901
free(d); close(a)`},
		{name: "the legacy stream is forbidden beside the capture of a blocking stream", program: `
a, d = stream(0), memory(MiB)
call("cudaStreamBeginCapture", a, 2)
assert ask("cudaMemsetAsync", d, 1, 4, 0) == 906
assert ask("cudaStreamEndCapture", a, ctypes.byref(ctypes.c_uint64())) == 901
free(d); close(a)`},
		{name: "nodes that a program adds itself are refused", program: `
assert ask("cuGraphAddKernelNode", 0, 0, 0, 0, 0) == 801`},
	})
}

func TestQuickDevices(t *testing.T) {
	two := standin.Machine{Devices: 2, Memory: "1GiB", Context: "0"}
	checkLaws(t, []law{
		{name: "copies go from device to device, and each has its own memory", machine: two,
			orders: everyOrder, program: `
call("cudaSetDevice", 0); a, s = memory(MiB), stream()
call("cudaSetDevice", 1); b = memory(MiB)
assert free_memory() == 1022 * MiB
call("cudaSetDevice", 0)
fill(a, 5, 4, s); call("cudaMemcpyPeerAsync", b, 1, a, 0, 4, s)
assert read(b) == b"\5" * 4
free(a, b); close(s)`},
		{name: "peer access is enabled once", machine: two, program: `
call("cudaDeviceEnablePeerAccess", 1, 0)
assert ask("cudaDeviceEnablePeerAccess", 1, 0) == 704
assert ask("cudaDeviceEnablePeerAccess", 0, 0) == 101
call("cudaDeviceDisablePeerAccess", 1)
assert ask("cudaDeviceDisablePeerAccess", 1) == 705`},
		{name: "an event of one device is not recorded in a stream of another", machine: two, program: `
e = event(); call("cudaSetDevice", 1); s = stream()
assert ask("cudaEventRecord", e, s) == 400
close(s, events=[e])`, violation: "the event is on device 0 and the stream on device 1"},
		{name: "a missing device is an error", machine: two, program: `
assert ask("cudaSetDevice", 2) == 101 and ask("cudaGetLastError") == 101`},
		{name: "a machine without devices says so", machine: standin.Machine{Devices: -1}, program: `
n = ctypes.c_int(5)
assert ask("cudaGetDeviceCount", ctypes.byref(n)) == 100 and n.value == 0
assert ask("cuInit", 0) == 100`},
		{name: "memory is shared with another process",
			machine: standin.Machine{Memory: "1GiB", Context: "0"},
			orders:  []string{standin.Late, standin.Once}, program: `
d = memory(MiB); s = stream()
fill(d, 65, 4, s)
h = (ctypes.c_char * 64)(); call("cudaIpcGetMemHandle", h, d)
p = child('''
class Handle(ctypes.Structure): _fields_ = [("bytes", ctypes.c_ubyte * 64)]
h = Handle.from_buffer_copy(bytes.fromhex(%r))
p = ctypes.c_uint64()
assert cuda.cudaIpcOpenMemHandle(ctypes.byref(p), h, ctypes.c_int(1)) == 0
assert read(p.value) == b"AAAA"
call("cudaMemset", p.value, 66, 4); wait_for_device()
call("cudaIpcCloseMemHandle", p.value)''' % bytes(h.raw).hex())
p.communicate()
assert p.returncode == 0 and read(d) == b"BBBB"
free(d); close(s)`},
		{name: "destroying a context frees everything in it and names what was left",
			machine: standin.Machine{Memory: "1GiB", Context: "10MiB"}, program: `
c = out("cuCtxCreate_v2", 0, 0)
call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), MiB)
call("cuStreamCreate", ctypes.byref(ctypes.c_uint64()), 1)
call("cuCtxDestroy_v2", c)
assert ask("cuCtxDestroy_v2", c) == 201
assert free_memory() == 1014 * MiB`, violation: "a context that", leaks: "device memory\n1 x stream"},
	})
}
