//go:build cgo && linux

// Package nvmltest stands in for the driver in tests: the vendor's mock of a machine with eight GPUs.
package nvmltest

import (
	"fmt"
	"math"
	"testing"

	vendor "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/gmemtop/gmemtop/capture/nvml"
)

// Holder is the number of a process and the bytes that it holds of a device.
type Holder [2]uint64

// NotTold as a holder's bytes means that the driver does not tell.
const NotTold = math.MaxUint64

// Mocked opens the vendor's mock of eight equal devices, each with 12 GiB used and these processes.
func Mocked(t *testing.T, of map[int][]Holder) *nvml.Library {
	t.Helper()
	s := dgxa100.New()
	s.SystemGetProcessNameFunc = func(pid int) (string, vendor.Return) {
		return fmt.Sprintf("/opt/program%d", pid), vendor.SUCCESS
	}
	refused := vendor.ERROR_NOT_SUPPORTED
	for i, dev := range s.Devices {
		d := dev.(*dgxa100.Device)
		d.GetMemoryInfo_v2Func = func() (vendor.Memory_v2, vendor.Return) {
			return vendor.Memory_v2{Total: 40 << 30, Reserved: 1 << 29, Used: 12 << 30}, vendor.SUCCESS
		}
		d.GetComputeRunningProcessesFunc = func() (list []vendor.ProcessInfo, _ vendor.Return) {
			for _, h := range of[i] {
				list = append(list, vendor.ProcessInfo{Pid: uint32(h[0]), UsedGpuMemory: h[1],
					GpuInstanceId: math.MaxUint32, ComputeInstanceId: math.MaxUint32})
			}
			return list, vendor.SUCCESS
		}
		d.GetGraphicsRunningProcessesFunc = func() ([]vendor.ProcessInfo, vendor.Return) {
			return nil,
				vendor.SUCCESS
		}
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

// refuseTheRest makes a device refuse every other question, since a mock panics at one that it has no answer
// to.
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
	d.GetCurrPcieLinkGenerationFunc, d.GetCurrPcieLinkWidthFunc, d.GetMaxPcieLinkGenerationFunc,
		d.GetMaxPcieLinkWidthFunc = noneInt, noneInt, noneInt, noneInt
	d.GetPcieThroughputFunc = func(vendor.PcieUtilCounter) (uint32, vendor.Return) { return 0, r }
	d.GetNvLinkStateFunc = func(int) (vendor.EnableState, vendor.Return) { return 0, r }
	d.GetFieldValuesFunc = func([]vendor.FieldValue) vendor.Return { return r }
	d.GetEccModeFunc = func() (vendor.EnableState, vendor.EnableState, vendor.Return) { return 0, 0, r }
	d.GetTotalEccErrorsFunc = func(vendor.MemoryErrorType, vendor.EccCounterType) (uint64, vendor.Return) {
		return 0, r
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, vendor.Return) { return 0, 0, false, false, r }
	d.GetProcessUtilizationFunc = func(uint64) ([]vendor.ProcessUtilizationSample, vendor.Return) {
		return nil, r
	}
}
