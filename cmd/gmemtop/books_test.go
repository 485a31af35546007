//go:build cgo && linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	"github.com/gmemtop/gmemtop/tui/machine"
	"github.com/gmemtop/gmemtop/tui/theme"
)

const gib = 1 << 30

// holder is a process and what it holds of a device, notTold where the driver does not say.
type holder struct {
	pid   uint32
	bytes uint64
}

const notTold = math.MaxUint64

// mockedNVML is the vendor's mock of eight equal devices, each with 12 GiB used and these processes.
func mockedNVML(t *testing.T, of map[int][]holder) *nvml.Library {
	t.Helper()
	s := dgxa100.New()
	s.SystemGetProcessNameFunc = func(pid int) (string, vendor.Return) { return fmt.Sprintf("/opt/program%d", pid), vendor.SUCCESS }
	refused := vendor.ERROR_NOT_SUPPORTED
	for i, dev := range s.Devices {
		d := dev.(*dgxa100.Device)
		d.GetMemoryInfo_v2Func = func() (vendor.Memory_v2, vendor.Return) {
			return vendor.Memory_v2{Total: 40 * gib, Reserved: gib / 2, Used: 12 * gib}, vendor.SUCCESS
		}
		d.GetComputeRunningProcessesFunc = func() (list []vendor.ProcessInfo, _ vendor.Return) {
			for _, h := range of[i] {
				list = append(list, vendor.ProcessInfo{Pid: h.pid, UsedGpuMemory: h.bytes, GpuInstanceId: math.MaxUint32, ComputeInstanceId: math.MaxUint32})
			}
			return list, vendor.SUCCESS
		}
		d.GetGraphicsRunningProcessesFunc = func() ([]vendor.ProcessInfo, vendor.Return) { return nil, vendor.SUCCESS }
		d.GetMPSComputeRunningProcessesFunc = d.GetGraphicsRunningProcessesFunc
		refuseTheRest(d, refused)
	}
	l, err := nvml.OpenAPI(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// refuseTheRest has a device refuse what the books do not want to know: a question that a mock has no answer
// to panics.
func refuseTheRest(d *dgxa100.Device, r vendor.Return) {
	none32 := func() (uint32, vendor.Return) { return 0, r }
	noneInt := func() (int, vendor.Return) { return 0, r }
	d.GetBAR1MemoryInfoFunc = func() (vendor.BAR1Memory, vendor.Return) { return vendor.BAR1Memory{}, r }
	d.GetUtilizationRatesFunc = func() (vendor.Utilization, vendor.Return) { return vendor.Utilization{}, r }
	d.GetClockInfoFunc = func(vendor.ClockType) (uint32, vendor.Return) { return 0, r }
	d.GetMaxClockInfoFunc = d.GetClockInfoFunc
	d.GetCurrentClocksEventReasonsFunc = func() (uint64, vendor.Return) { return 0, r }
	d.GetPowerUsageFunc, d.GetEnforcedPowerLimitFunc = none32, none32
	d.GetTemperatureFunc = func(vendor.TemperatureSensors) (uint32, vendor.Return) { return 0, r }
	d.GetCurrPcieLinkGenerationFunc, d.GetCurrPcieLinkWidthFunc, d.GetMaxPcieLinkGenerationFunc, d.GetMaxPcieLinkWidthFunc = noneInt, noneInt, noneInt, noneInt
	d.GetPcieThroughputFunc = func(vendor.PcieUtilCounter) (uint32, vendor.Return) { return 0, r }
	d.GetNvLinkStateFunc = func(int) (vendor.EnableState, vendor.Return) { return 0, r }
	d.GetFieldValuesFunc = func([]vendor.FieldValue) vendor.Return { return r }
	d.GetEccModeFunc = func() (vendor.EnableState, vendor.EnableState, vendor.Return) { return 0, 0, r }
	d.GetTotalEccErrorsFunc = func(vendor.MemoryErrorType, vendor.EccCounterType) (uint64, vendor.Return) { return 0, r }
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, vendor.Return) { return 0, 0, false, false, r }
	d.GetProcessUtilizationFunc = func(uint64) ([]vendor.ProcessUtilizationSample, vendor.Return) { return nil, r }
}

// booksOf are the books of process 10 on a mocked machine, read once.
func booksOf(t *testing.T, device string, of map[int][]holder) *books {
	t.Helper()
	s := capture.NewSession(capture.Limits{})
	s.Begin(capture.Target{PID: 10, Device: device})
	b := newBooks(s)
	b.root = t.TempDir()
	library := mockedNVML(t, of)
	b.open = func() (nvml.Source, error) { return library, nil }
	b.readNow(t)
	return b
}

// readNow asks for a reading and waits until it is there.
func (b *books) readNow(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	b.began = time.Time{}
	b.mu.Unlock()
	b.parts(10, step(0, 0))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		done := !b.reading
		b.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no reading")
		}
	}
}

// step is a step that ends now with these figures of the allocator, of which 1 GiB are parameters.
func step(allocated, reserved int64) *capture.Step {
	return &capture.Step{End: time.Now().UnixNano(), Allocated: allocated, Reserved: reserved, Parameters: gib, Gradients: capture.Unknown, OptimizerState: 0}
}

func table(parts []live.Part, whole live.Part) string {
	var s strings.Builder
	for _, p := range append(parts, whole) {
		fmt.Fprintf(&s, "%s: %.3g", p.Name, float64(p.Bytes)/gib)
		if p.Derived {
			s.WriteString(" derived")
		}
		if p.Unexplained {
			s.WriteString(" unexplained")
		}
		s.WriteByte('\n')
	}
	return s.String()
}

func TestTheBooksAddUpToWhatTheDriverCounts(t *testing.T) {
	for _, c := range []struct {
		name, device        string
		of                  map[int][]holder
		allocated, reserved int64
		want                string
	}{
		{"a device of one's own", "cuda:0", map[int][]holder{0: {{10, 9 * gib}, {20, 2 * gib}}}, 5 * gib, 8 * gib, `parameters: 1
other tensors and rounding: 4 derived
cached and private pools: 3
CUDA context and libraries: 1 derived
program20 (20): 2
unexplained: 1 derived unexplained
Used on GPU 0, by NVML: 12
`},
		{"found by its process, whatever it calls its device", "cuda:0", map[int][]holder{5: {{10, 9 * gib}}, 0: {{20, gib}}}, 8 * gib, 8 * gib, `parameters: 1
other tensors and rounding: 7 derived
CUDA context and libraries: 1 derived
unexplained: 3 derived unexplained
Used on GPU 5, by NVML: 12
`},
		{"many others", "cuda:0", map[int][]holder{0: {{10, 4 * gib}, {20, 3 * gib}, {21, 2 * gib}, {22, gib}, {23, gib}}}, 4 * gib, 4 * gib, `parameters: 1
other tensors and rounding: 3 derived
program20 (20): 3
program21 (21): 2
2 other processes: 2
unexplained: 1 derived unexplained
Used on GPU 0, by NVML: 12
`},
		// Two witnesses, two moments: what is left over is less than nothing, and is shown so.
		{"freed meanwhile", "cuda:0", map[int][]holder{0: {{10, 13 * gib}}}, 13 * gib, 14 * gib, `parameters: 1
other tensors and rounding: 12 derived
cached and private pools: 1
CUDA context and libraries: -1 derived
unexplained: -1 derived unexplained
Used on GPU 0, by NVML: 12
`},
		{"inside a container: the numbers are the host's", "cuda:3", map[int][]holder{3: {{31337, 9 * gib}}}, 5 * gib, 8 * gib, `parameters: 1
other tensors and rounding: 4 derived
cached and private pools: 3
context, other processes, unexplained: 4 derived unexplained
Used on GPU 3, by NVML: 12
`},
		{"its memory is not told", "cuda:0", map[int][]holder{0: {{10, notTold}, {20, notTold}}}, 8 * gib, 8 * gib, `parameters: 1
other tensors and rounding: 7 derived
unexplained: 4 derived unexplained
Used on GPU 0, by NVML: 12
`},
		{"inside a container, and not that device", "cuda:3", map[int][]holder{3: {{31337, 9 * gib}}}, 5 * gib, 18 * gib, "nothing"},
		{"on two devices, of which it means the second", "cuda:1", map[int][]holder{0: {{10, gib}}, 1: {{10, 12 * gib}}}, 11 * gib, 11 * gib, `parameters: 1
other tensors and rounding: 10 derived
CUDA context and libraries: 1 derived
Used on GPU 1, by NVML: 12
`},
		{"a device that is none", "mps", map[int][]holder{}, gib, gib, "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := booksOf(t, c.device, c.of)
			b.own[10].since = math.MaxInt64 // no reading is of the moment: the context has no bound
			parts, whole, ok := b.parts(10, step(c.allocated, c.reserved))
			got := "nothing"
			if ok {
				got = table(parts, whole)
				sum := int64(0)
				for _, p := range parts {
					sum += p.Bytes
				}
				if sum != whole.Bytes {
					t.Errorf("the parts sum to %d of %d", sum, whole.Bytes)
				}
			}
			if got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

func TestTheBooksTellRoundingAndWhatAnotherStreamStillUses(t *testing.T) {
	b := booksOf(t, "cuda:0", map[int][]holder{0: {{10, 10 * gib}}})
	b.own[10].since = math.MaxInt64
	s := step(6*gib, 9*gib)
	s.Requested, s.Active = 5*gib, 7*gib
	parts, whole, ok := b.parts(10, s)
	const want = `parameters: 1
other tensors: 4 derived
rounding: 1
pending free: 1
cached and private pools: 2
CUDA context and libraries: 1 derived
unexplained: 2 derived unexplained
Used on GPU 0, by NVML: 12
`
	if got := table(parts, whole); !ok || got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTheBooksTellPrivatePoolsAndHowOldTheirFigureIs(t *testing.T) {
	for _, c := range []struct {
		name      string
		free, ago int64 // GiB, seconds before the step's end
		want      string
	}{
		{"counted at this step's end", 1, 0, "private pools: 1\ncached: 1\n"},
		{"counted before", 1, 12, "private pools, 12 s ago: 1\ncached: 1\n"},
		{"there are none", 0, 12, "cached: 2\n"},
		{"more than is free now", 5, 40, "private pools, 40 s ago: 2\n"},
		{"never counted", capture.Unknown, 0, "cached and private pools: 2\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := booksOf(t, "cuda:0", map[int][]holder{0: {{10, 10 * gib}}})
			b.own[10].since = math.MaxInt64
			s := step(6*gib, 9*gib)
			s.Start, s.Requested, s.Active = s.End-int64(time.Second), 5*gib, 7*gib
			s.PoolsFree, s.PoolsAt = capture.Unknown, capture.Unknown
			if c.free != capture.Unknown {
				s.PoolsFree, s.PoolsAt = c.free*gib, s.End-c.ago*int64(time.Second)
			}
			const before = "parameters: 1\nother tensors: 4 derived\nrounding: 1\npending free: 1\n"
			parts, whole, ok := b.parts(10, s)
			if got, want := table(parts, whole), before+c.want+"CUDA context and libraries: 1 derived\nunexplained: 2 derived unexplained\nUsed on GPU 0, by NVML: 12\n"; !ok || got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			// Without NVML the allocator's own parts are the same, and their whole is what it has reserved.
			if parts, whole = partsOf(s); table(parts, whole) != before+c.want+"Reserved after a step: 9\n" {
				t.Errorf("without NVML:\n%s", table(parts, whole))
			}
		})
	}
}

func TestTheContextIsBoundedByTheLeastThatWasSeenBesideTheAllocator(t *testing.T) {
	b := booksOf(t, "cuda:0", map[int][]holder{0: {{10, 9 * gib}}})
	first := step(5*gib, 8*gib)
	b.parts(10, first) // the reading is older than the first step with that much: not of one moment
	if b.own[10].least.IsKnown() {
		t.Errorf("bound %v", b.own[10].least)
	}
	b.readNow(t)
	b.parts(10, first)
	b.own[10].since = first.End // as if the steps before had held as much
	parts, whole, ok := b.parts(10, step(5*gib, 8*gib))
	if want := "CUDA context, at most: 1 derived\n"; !ok || !strings.Contains(table(parts, whole), want) {
		t.Errorf("got\n%s, want a line %q", table(parts, whole), want)
	}
}

// The machine's view, from the vendor's mocks to the screen.
func TestTheMachineOfTheMocksIsDrawnWithItsProcesses(t *testing.T) {
	library := mockedNVML(t, map[int][]holder{0: {{1 << 30, 9 * gib}, {1<<30 + 1, notTold}}, 5: {{1 << 30, 2 * gib}}})
	sampler, err := nvml.NewSampler(library, nvml.SamplerOptions{Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go sampler.Run(ctx)
	f := &machineFeed{sampler: sampler, driver: library.Driver(), checked: map[checkedProcess]string{}}
	v := machine.New()
	screen := func() string {
		c := canvas.New(120, 40, canvas.NoColor, false)
		v.Draw(&leaf.State{Theme: theme.Mono()}, c)
		return ansi.Strip(c.String())
	}
	var got string
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		f.take(sampler.View(), nil)
		v.Take(f.Look())
		got = screen()
		if strings.Contains(got, "GPU memory of 1073741824 program1073741824, the last") || time.Now().After(deadline) {
			break
		}
	}
	for _, want := range []string{
		"Fullest of 8 GPUs: 12.0 GiB of 40.0 GiB used on GPU 0, most by program1073741824 (1073741824), 11.0 GiB on 2 GPUs.",
		"0 Mock NVIDIA A100-SXM4-40GB", "12.0 of 40.0 GiB", "0,5            11.0", "1073741825", "GPU memory of 1073741824 program1073741824, the last",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if l := f.Look(); len(l.Devices) != 8 || !strings.Contains(l.Processes[1].No, "not visible from here") || l.Processes[1].Bytes != machine.Unknown {
		t.Errorf("%+v", l.Processes)
	}
}

func TestWithoutNVMLThereAreNoBooks(t *testing.T) {
	s := capture.NewSession(capture.Limits{})
	b := newBooks(s)
	asked := 0
	b.open = func() (nvml.Source, error) { asked++; return nil, errors.New("no library") }
	b.readNow(t)
	for range 3 {
		if _, _, ok := b.parts(10, step(1, 1)); ok {
			t.Error("books without a witness")
		}
	}
	if asked != 1 {
		t.Errorf("opened %d times", asked)
	}
	if _, _, ok := b.parts(10, &capture.Step{Allocated: capture.Unknown, Reserved: capture.Unknown}); ok {
		t.Error("books of a process on the CPU")
	}
}

func TestCUDAsNumberOfADeviceIsTranslatedOnlyWhereThatIsCertain(t *testing.T) {
	equal := []nvml.Device{{Index: 0, Name: "H100", UUID: "GPU-aa1"}, {Index: 1, Name: "H100", UUID: "GPU-bb2"}, {Index: 2, Name: "H100", UUID: "GPU-bb3"}}
	mixed := []nvml.Device{{Index: 0, Name: "T400", UUID: "GPU-aa1"}, {Index: 1, Name: "H100", UUID: "GPU-bb2"}}
	const unset = "-"
	for _, c := range []struct {
		devices        []nvml.Device
		visible, order string
		ordinal, want  int
	}{
		{equal, unset, unset, 1, 1}, {equal, unset, unset, 3, -1}, {equal, "2,0", unset, 0, 2}, {equal, "2, 0", unset, 1, 0}, {equal, "2", unset, 1, -1},
		{equal, "", unset, 0, -1}, {equal, "GPU-bb2", unset, 0, 1}, {equal, "GPU-cc", unset, 0, -1}, {equal, "7", unset, 0, -1}, {equal, "-1", unset, 0, -1},
		{mixed, unset, unset, 0, -1}, {mixed, unset, "FASTEST_FIRST", 0, -1}, {mixed, unset, "PCI_BUS_ID", 0, 0}, {mixed, "1", unset, 0, -1},
		{mixed, "1", "PCI_BUS_ID", 0, 1}, {mixed, "GPU-bb2", unset, 0, 1}, {mixed[:1], unset, unset, 0, 0}, {nil, unset, unset, 0, -1},
	} {
		root := t.TempDir()
		env := "HOME=/root\x00"
		if c.visible != unset {
			env += "CUDA_VISIBLE_DEVICES=" + c.visible + "\x00"
		}
		if c.order != unset {
			env += "CUDA_DEVICE_ORDER=" + c.order + "\x00"
		}
		if err := errors.Join(os.Mkdir(filepath.Join(root, "10"), 0o755), os.WriteFile(filepath.Join(root, "10", "environ"), []byte(env), 0o644)); err != nil {
			t.Fatal(err)
		}
		if got := visibleDevice(c.devices, c.ordinal, environOf(root, 10)); got != c.want {
			t.Errorf("cuda:%d of %d devices with %q in order %q is %d, want %d", c.ordinal, len(c.devices), c.visible, c.order, got, c.want)
		}
	}
}
