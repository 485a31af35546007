//go:build cgo && linux

package nvml

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

const gib = 1 << 30

// server is a mocked machine whose eight devices answer every question that this package asks. A method that
// a mock lacks panics, so a question that is not listed here shows up.
func server() *dgxa100.Server {
	s := dgxa100.New()
	s.SystemGetProcessNameFunc = func(pid int) (string, nvml.Return) {
		if pid == 4242 {
			return "/usr/bin/python3", nvml.SUCCESS
		}
		return "", nvml.ERROR_NO_PERMISSION
	}
	for i := range s.Devices {
		answer(device(s, i))
	}
	return s
}

func device(s *dgxa100.Server, i int) *dgxa100.Device { return s.Devices[i].(*dgxa100.Device) }

func answer(d *dgxa100.Device) {
	u32 := func(v uint32) func() (uint32, nvml.Return) {
		return func() (uint32, nvml.Return) { return v, nvml.SUCCESS }
	}
	num := func(v int) func() (int, nvml.Return) {
		return func() (int, nvml.Return) {
			return v, nvml.SUCCESS
		}
	}
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 40 * gib, Reserved: gib / 2, Used: 12 * gib,
			Free: 40*gib - 12*gib - gib/2}, nvml.SUCCESS
	}
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: 40 * gib, Used: 12*gib + gib/2, Free: 40*gib - 12*gib - gib/2}, nvml.SUCCESS
	}
	d.GetBAR1MemoryInfoFunc = func() (nvml.BAR1Memory, nvml.Return) {
		return nvml.BAR1Memory{Bar1Total: 64 * gib, Bar1Used: 4 << 20}, nvml.SUCCESS
	}
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{Gpu: 97, Memory: 41}, nvml.SUCCESS
	}
	d.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) {
		return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1410, nvml.CLOCK_MEM: 1215}[c], nvml.SUCCESS
	}
	d.GetMaxClockInfoFunc = d.GetClockInfoFunc
	d.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) {
		return 0x04 | 0x01 | 0x40, nvml.SUCCESS
	}
	d.GetPowerUsageFunc, d.GetEnforcedPowerLimitFunc = u32(312_500), u32(400_000)
	// 0 degrees are known
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.SUCCESS }
	d.GetCurrPcieLinkGenerationFunc, d.GetCurrPcieLinkWidthFunc = num(4), num(16)
	d.GetMaxPcieLinkGenerationFunc, d.GetMaxPcieLinkWidthFunc = num(4), num(16)
	d.GetPcieThroughputFunc = func(c nvml.PcieUtilCounter) (uint32, nvml.Return) {
		return map[nvml.PcieUtilCounter]uint32{nvml.PCIE_UTIL_TX_BYTES: 1500,
			nvml.PCIE_UTIL_RX_BYTES: 2500}[c], nvml.SUCCESS
	}
	d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		if link >= 12 {
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetFieldValuesFunc = func(f []nvml.FieldValue) nvml.Return {
		for i := range f {
			f[i].ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG)
			binary.NativeEndian.PutUint64(f[i].Value[:], uint64(f[i].FieldId)) // tells the two apart
		}
		return nvml.SUCCESS
	}
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
		return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetTotalEccErrorsFunc = func(k nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
		return map[nvml.MemoryErrorType]uint64{nvml.MEMORY_ERROR_TYPE_CORRECTED: 3,
			nvml.MEMORY_ERROR_TYPE_UNCORRECTED: 0}[k], nvml.SUCCESS
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) {
		return 2, 1, true, false, nvml.SUCCESS
	}
	list := func(infos ...nvml.ProcessInfo) func() ([]nvml.ProcessInfo, nvml.Return) {
		return func() ([]nvml.ProcessInfo, nvml.Return) { return slices.Clone(infos), nvml.SUCCESS }
	}
	none := uint32(math.MaxUint32)
	d.GetComputeRunningProcessesFunc = list(
		nvml.ProcessInfo{Pid: 7, UsedGpuMemory: math.MaxUint64, GpuInstanceId: none, ComputeInstanceId: none},
		nvml.ProcessInfo{Pid: 4242, UsedGpuMemory: 8 * gib, GpuInstanceId: none, ComputeInstanceId: none})
	d.GetGraphicsRunningProcessesFunc = list(
		nvml.ProcessInfo{Pid: 4242, UsedGpuMemory: 8 * gib, GpuInstanceId: none, ComputeInstanceId: none})
	d.GetMPSComputeRunningProcessesFunc =
		list(nvml.ProcessInfo{Pid: 99, UsedGpuMemory: gib, GpuInstanceId: none, ComputeInstanceId: none})
	d.GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
		return []nvml.ProcessUtilizationSample{{Pid: 4242, TimeStamp: 20, SmUtil: 90, MemUtil: 30},
			{Pid: 4242, TimeStamp: 10, SmUtil: 5}}, nvml.SUCCESS
	}
}

// mustOpen opens a mocked library over a made-up process table.
func mustOpen(t *testing.T, api nvml.Interface) *Library {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"99/cmdline": "/opt/serve\x00--port\x001",
		"99/stat":    "99 (a b) c) S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 777 1 1",
		"7/cmdline":  "", "7/comm": "kworker\n", "7/stat": "7 (cut",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := open(api, processes{root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestEveryFigureIsRead(t *testing.T) {
	l := mustOpen(t, server())
	devices, err := l.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 8 || devices[3].Index != 3 {
		t.Fatalf("devices: %+v", devices)
	}
	d := devices[0]
	if d.Name != "Mock NVIDIA A100-SXM4-40GB" || !strings.HasPrefix(d.UUID, "GPU-") || d.MIG || d.Err != nil {
		t.Errorf("device: %+v", d)
	}
	if d.Total != maybe.Known(40*gib) || d.PowerLimit != maybe.Known(400_000) ||
		d.MaxSMClock != maybe.Known(1410) || d.NVLinks != maybe.Known(12) || d.PCIeWidth != maybe.Known(16) {
		t.Errorf("device: %+v", d)
	}
	if got := l.Driver(); got != (Driver{Version: "550.54.15", NVML: "12.550.54.15", CUDA: "12.4"}) {
		t.Errorf("driver: %+v", got)
	}
	r, err := l.Read(5)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Absent) > 0 {
		t.Errorf("absent: %+v", r.Absent)
	}
	if r.Memory != (Memory{Total: maybe.Known(40 * gib), Reserved: maybe.Known(gib / 2),
		Used: maybe.Known(12 * gib), Free: maybe.Known(40*gib - 12*gib - gib/2),
		BAR1Total: maybe.Known(64 * gib), BAR1Used: maybe.Known(4 << 20)}) {
		t.Errorf("memory: %+v", r.Memory)
	}
	for _, f := range []struct {
		name      string
		got, want maybe.Int
	}{
		{"busy", r.Busy, maybe.Known(97)}, {"memory busy", r.MemoryBusy, maybe.Known(41)},
		{"SM clock", r.SMClock, maybe.Known(1410)}, {"memory clock", r.MemoryClock, maybe.Known(1215)},
		{"power", r.Power, maybe.Known(312_500)}, {"temperature", r.Temperature, maybe.Known(0)},
		{"PCIe sent", r.PCIeSent, maybe.Known(1_500_000)},
		{"PCIe received", r.PCIeReceived, maybe.Known(2_500_000)}, {"NVLink sent", r.NVLinkSent,
			maybe.Known(138 * 1024)}, {"NVLink received", r.NVLinkReceived, maybe.Known(139 * 1024)},
		{"ECC", r.ECC, maybe.Known(1)}, {"corrected", r.Corrected, maybe.Known(3)},
		{"uncorrected", r.Uncorrected, maybe.Known(0)}, {"rows", r.RowsCorrected, maybe.Known(2)},
		{"rows uncorrected", r.RowsUncorrected, maybe.Known(1)}, {"pending", r.RemapPending, maybe.Known(1)},
		{"failed", r.RemapFailed, maybe.Known(0)},
	} {
		if f.got != f.want {
			t.Errorf("%s = %v, want %v", f.name, f.got, f.want)
		}
	}
	if got := r.Slowed(); !slices.Equal(got, []string{"power limit", "hardware thermal"}) {
		t.Errorf("slowed by %q", got)
	}
	want := []Process{
		{PID: 4242, Name: "/usr/bin/python3", Kind: runsCompute | runsGraphics, Used: maybe.Known(8 * gib),
			SM: maybe.Known(90), MemoryBusy: maybe.Known(30)},
		{PID: 99, Name: "/opt/serve", Start: maybe.Known(777), Kind: runsMPS, Used: maybe.Known(gib)},
		{PID: 7, Name: "kworker", Kind: runsCompute}, // memory not available: unknown and last, not 0
	}
	if !r.ProcessesKnown || !slices.Equal(r.Processes, want) {
		t.Errorf("processes:\n%+v\nwant\n%+v", r.Processes, want)
	}
	if got := want[0].Kind.String(); got != "C+G" {
		t.Errorf("kinds %q", got)
	}
}

func TestRefusedFiguresAreUnknownWithAReasonNeverZero(t *testing.T) {
	s := server()
	d := device(s, 0)
	*d = dgxa100.Device{} // a consumer's card of an older kind: it answers little
	d.GetNameFunc = func() (string, nvml.Return) { return "old", nvml.SUCCESS }
	no := nvml.ERROR_NOT_SUPPORTED
	u32 := func() (uint32, nvml.Return) { return 0, no }
	num := func() (int, nvml.Return) { return 0, no }
	d.GetUUIDFunc = func() (string, nvml.Return) { return "", no }
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, no }
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, no }
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, no }
	d.GetBAR1MemoryInfoFunc = func() (nvml.BAR1Memory, nvml.Return) { return nvml.BAR1Memory{}, no }
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, no }
	d.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 0, no }
	d.GetMaxClockInfoFunc = d.GetClockInfoFunc
	d.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return 0, no }
	// all ones: not available
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return math.MaxUint32, nvml.SUCCESS }
	d.GetEnforcedPowerLimitFunc = u32
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, no }
	d.GetCurrPcieLinkGenerationFunc, d.GetCurrPcieLinkWidthFunc, d.GetMaxPcieLinkGenerationFunc,
		d.GetMaxPcieLinkWidthFunc = num, num, num, num
	d.GetPcieThroughputFunc = func(nvml.PcieUtilCounter) (uint32, nvml.Return) { return 0, no }
	d.GetNvLinkStateFunc = func(int) (nvml.EnableState, nvml.Return) { return 0, no }
	d.GetFieldValuesFunc = func(f []nvml.FieldValue) nvml.Return {
		for i := range f {
			f[i].NvmlReturn = uint32(no)
		}
		return nvml.SUCCESS
	}
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) { return 0, 0, no }
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
		return 0, no
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, no }
	d.GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, no }
	list := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, no }
	d.GetComputeRunningProcessesFunc, d.GetGraphicsRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc =
		list, list, list

	l := mustOpen(t, s)
	devices, err := l.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if dev := devices[0]; dev.Total.IsKnown() || dev.NVLinks.IsKnown() || dev.PCIeWidth.IsKnown() ||
		dev.Name != "old" {
		t.Errorf("device: %+v", dev)
	}
	r, err := l.Read(0)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range []maybe.Int{r.Memory.Total, r.Memory.Used, r.Memory.Reserved, r.Memory.BAR1Used, r.Busy,
		r.MemoryBusy, r.SMClock, r.MemoryClock, r.Throttle,
		r.Power, r.Temperature, r.PCIeSent, r.PCIeReceived, r.PCIeGeneration, r.PCIeWidth, r.NVLinkSent,
		r.NVLinkReceived, r.ECC, r.Corrected, r.Uncorrected,
		r.RowsCorrected, r.RowsUncorrected, r.RemapPending, r.RemapFailed} {
		if f.IsKnown() {
			t.Errorf("figure %d is %v, want unknown", i, f)
		}
	}
	if r.ProcessesKnown || r.Processes != nil {
		t.Errorf("processes %+v known %v", r.Processes, r.ProcessesKnown)
	}
	for _, want := range []string{"memory", "power", "compute processes", "NVLink sent", "temperature",
		"remapped rows"} {
		if !slices.ContainsFunc(r.Absent, func(a Absence) bool { return a.Figure == want && a.Why != "" }) {
			t.Errorf("no reason for %s in %+v", want, r.Absent)
		}
	}
}

func TestAFunctionThatTheLibraryLacksIsNotCalled(t *testing.T) {
	s := server()
	s.LookupSymbolFunc = func(symbol string) error {
		if strings.Contains(symbol, "Memory") || strings.Contains(symbol, "EventReasons") ||
			strings.Contains(symbol, "RemappedRows") || strings.Contains(symbol, "Pcie") {
			return errors.New("undefined symbol")
		}
		return nil
	}
	d := device(s, 0)
	// calling one panics
	d.GetMemoryInfo_v2Func, d.GetMemoryInfoFunc, d.GetBAR1MemoryInfoFunc, d.GetRemappedRowsFunc = nil,
		nil, nil, nil
	d.GetPcieThroughputFunc, d.GetCurrPcieLinkWidthFunc, d.GetCurrentClocksEventReasonsFunc = nil, nil, nil
	// the older name
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0x20, nvml.SUCCESS }
	r, err := mustOpen(t, s).Read(0)
	if err != nil {
		t.Fatal(err)
	}
	if r.Memory != (Memory{}) || r.PCIeSent.IsKnown() || r.RowsCorrected.IsKnown() {
		t.Errorf("reading: %+v", r)
	}
	if got := r.Slowed(); !slices.Equal(got, []string{"thermal"}) {
		t.Errorf("slowed by %q", got)
	}
	if len(r.Absent) == 0 || !strings.Contains(r.Absent[0].Why, "nvmlDeviceGetMemoryInfo") {
		t.Errorf("absent: %+v", r.Absent)
	}
}

func TestTheOlderMemoryCallLeavesTheReserveUnknown(t *testing.T) {
	s := server()
	s.LookupSymbolFunc = func(symbol string) error {
		if strings.HasPrefix(symbol, "nvmlDeviceGetMemoryInfo_v2") {
			return errors.New("undefined symbol")
		}
		return nil
	}
	r, err := mustOpen(t, s).Read(0)
	if err != nil {
		t.Fatal(err)
	}
	if r.Memory.Reserved.IsKnown() || r.Memory.Used != maybe.Known(12*gib+gib/2) {
		t.Errorf("memory: %+v", r.Memory)
	}
}

func TestInstancesOfMIGHaveTheirOwnMemoryAndProcesses(t *testing.T) {
	s := server()
	d := device(s, 1)
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	list := func(infos ...nvml.ProcessInfo) func() ([]nvml.ProcessInfo, nvml.Return) {
		return func() ([]nvml.ProcessInfo, nvml.Return) { return infos, nvml.SUCCESS }
	}
	d.GetComputeRunningProcessesFunc = list(
		nvml.ProcessInfo{Pid: 99, UsedGpuMemory: 2 * gib, GpuInstanceId: 7, ComputeInstanceId: 0})
	d.GetGraphicsRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc = list(), list()
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i != 2 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		none := uint32(math.MaxUint32)
		return &mock.Device{
			GetNameFunc:              func() (string, nvml.Return) { return "MIG 1g.5gb", nvml.SUCCESS },
			GetUUIDFunc:              func() (string, nvml.Return) { return "MIG-1", nvml.SUCCESS },
			GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return 7, nvml.SUCCESS },
			GetComputeInstanceIdFunc: func() (int, nvml.Return) { return 0, nvml.SUCCESS },
			GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
				return nvml.Memory_v2{Total: 5 * gib, Used: 2 * gib}, nvml.SUCCESS
			},
			GetComputeRunningProcessesFunc: list(nvml.ProcessInfo{Pid: 99, UsedGpuMemory: 2 * gib,
				GpuInstanceId: none, ComputeInstanceId: none},
				nvml.ProcessInfo{Pid: 7, UsedGpuMemory: gib, GpuInstanceId: none, ComputeInstanceId: none}),
			GetGraphicsRunningProcessesFunc: list(), GetMPSComputeRunningProcessesFunc: list(),
		}, nvml.SUCCESS
	}
	l := mustOpen(t, s)
	r, err := l.Read(1)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Instances) != 1 || r.Instances[0].UUID != "MIG-1" ||
		r.Instances[0].Memory.Used != maybe.Known(2*gib) || r.Instances[0].GPUInstance != maybe.Known(7) {
		t.Errorf("instances: %+v", r.Instances)
	}
	if len(r.Processes) != 2 || r.Processes[0].PID != 99 || r.Processes[0].Used != maybe.Known(2*gib) ||
		r.Processes[1].GPUInstance != maybe.Known(7) {
		t.Errorf("processes, one of which is in both lists: %+v", r.Processes)
	}
	if devices, _ := l.Devices(); !devices[1].MIG || devices[0].MIG {
		t.Error("MIG mode of the devices")
	}
}

func TestALostDeviceIsAnErrorThatSaysSo(t *testing.T) {
	s := server()
	device(s, 0).GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{}, nvml.ERROR_GPU_IS_LOST
	}
	device(s, 0).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST
	}
	device(s, 0).GetUtilizationRatesFunc = nil // asking on would panic
	l := mustOpen(t, s)
	if _, err := l.Read(0); !errors.Is(err, errLost) || !strings.Contains(err.Error(), "nvidia-smi -r -i 0") {
		t.Errorf("error %v", err)
	}
	if _, err := l.Read(1); err != nil {
		t.Error(err)
	}
	if _, err := l.Read(8); err == nil {
		t.Error("a ninth device was read")
	}
}

func TestADeviceThatCannotBeOpenedDoesNotHideTheOthers(t *testing.T) {
	s := server()
	inner := s.DeviceGetHandleByIndexFunc
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 2 {
			return nil, nvml.ERROR_NO_PERMISSION
		}
		return inner(i)
	}
	devices, err := mustOpen(t, s).Devices()
	if err != nil || len(devices) != 8 || devices[2].Err == nil || devices[3].Err != nil {
		t.Errorf("devices %+v, %v", devices, err)
	}
}

func TestAPanicOfTheBindingCostsOnlyOneFigure(t *testing.T) {
	s := server()
	device(s, 0).GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
		short := make([]nvml.ProcessUtilizationSample, 1)
		n := 3
		return short[:n], nvml.ERROR_INSUFFICIENT_SIZE
	}
	r, err := mustOpen(t, s).Read(0)
	if err != nil || r.Processes[0].SM.IsKnown() || r.Processes[0].Used != maybe.Known(8*gib) {
		t.Errorf("%+v, %v", r.Processes, err)
	}
}

func TestAFailedInitialisationSaysWhatToDoAndCallsNothingElse(t *testing.T) {
	for ret, want := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND: "--gpus all", nvml.ERROR_DRIVER_NOT_LOADED: "modprobe nvidia",
		nvml.ERROR_NO_PERMISSION:           "/dev/nvidiactl",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "reboot", nvml.ERROR_UNKNOWN: "nvidia-smi",
	} {
		api := &mock.Interface{InitFunc: func() nvml.Return { return ret }} // any other call panics
		if _, err := open(api, processes{}); !errors.Is(err, ErrUnavailable) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", ret, err)
		}
	}
	_, err := Open(Options{Path: filepath.Join(t.TempDir(), "libnvidia-ml.so.1")})
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("no library: %v", err)
	}
}

func TestAClosedLibraryRefusesInsteadOfCalling(t *testing.T) {
	l := mustOpen(t, server())
	l.open.RLock() // a call that has not returned
	if err := l.Close(); err == nil {
		t.Error("the library was closed during a call")
	}
	l.open.RUnlock()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Read(0); !errors.Is(err, errClosed) {
		t.Errorf("error %v", err)
	}
	if _, err := l.Devices(); !errors.Is(err, errClosed) {
		t.Errorf("error %v", err)
	}
}

func TestAllOnesOfNVMLAreUnknown(t *testing.T) {
	if got := unsigned(1<<64 - 1); got.IsKnown() {
		t.Errorf("64 ones are %v", got)
	}
	if got := unsigned32(1<<32 - 1); got.IsKnown() {
		t.Errorf("32 ones are %v", got)
	}
	if got := unsigned(1<<32 - 1); got != maybe.Known(1<<32-1) {
		t.Errorf("32 ones of 64 are %v", got)
	}
}
