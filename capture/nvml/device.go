package nvml

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// ErrUnavailable is wrapped by every error of [Open]: NVML cannot be used here; the error says why and what
// to do.
var ErrUnavailable = errors.New("NVML is not available")

// errLost is wrapped by the error of a reading whose device no longer answers; a restart of the process or a
// reset of the device by its administrator brings it back.
var errLost = errors.New("the device is lost")

// Source is what a [Sampler] polls: a [Library], or a stand-in in tests.
type Source interface {
	// Devices returns the devices in NVML's order. The slice is the caller's.
	Devices() ([]Device, error)
	// Read reads the device of that index now; it may take tens of milliseconds and is safe for concurrent
	// use.
	Read(index int) (Reading, error)
}

// Driver describes the installed driver.
type Driver struct {
	Version string // such as 570.86.15; "" where NVML refuses
	NVML    string
	// CUDA is the highest CUDA version that the driver supports, such as 12.8; "" if NVML refuses.
	CUDA string
}

// Device is what does not change while a device is in use.
type Device struct {
	// Index is NVML's, in order of PCI bus; it equals CUDA's only under CUDA_DEVICE_ORDER=PCI_BUS_ID.
	Index int
	Name  string
	UUID  string
	// Bus is the PCI address, such as 00000000:3B:00.0.
	Bus string
	// Total is the memory of the device in bytes.
	Total maybe.Int
	// PowerLimit is the enforced limit in milliwatts.
	PowerLimit maybe.Int
	// MaxSMClock and MaxMemoryClock are in MHz.
	MaxSMClock, MaxMemoryClock maybe.Int
	// PCIeGeneration and PCIeWidth are the most that device and slot can do together; NVLinks counts the
	// active links.
	PCIeGeneration, PCIeWidth, NVLinks maybe.Int
	// MIG says whether multi-instance mode is on; its memory and processes are then those of instances.
	MIG bool
	// Err is why the device could not be opened, nil if it was.
	Err error
}

// String returns the device's index and name.
func (d Device) String() string { return fmt.Sprintf("GPU %d %s", d.Index, d.Name) }

// Memory is the state of a device's memory in bytes.
//
// Total = Reserved + Used + Free if Reserved is known (drivers since 510). Otherwise the driver's older call
// counts it in Used.
type Memory struct {
	Total, Reserved, Used, Free maybe.Int
	// BAR1Total and BAR1Used are the window through which the CPU and other devices reach the memory.
	BAR1Total, BAR1Used maybe.Int
}

// ProcessKind is a set of ways in which a process uses a device.
type ProcessKind uint8

// The ways in which a process uses a device.
const (
	runsCompute ProcessKind = 1 << iota
	runsGraphics
	runsMPS
)

// String returns the kinds in nvidia-smi's letters, such as C+G; M stands for a client of the
// multi-process service.
func (k ProcessKind) String() string {
	var s []string
	for i, name := range [...]string{"C", "G", "M"} {
		if k&(1<<i) != 0 {
			s = append(s, name)
		}
	}
	return strings.Join(s, "+")
}

// Process is one process on a device or on one MIG instance of it.
type Process struct {
	// PID is the process's number in the host's PID namespace; inside a container there may be no such
	// process.
	PID int
	// Name is the program's path or name, "" if neither NVML nor the system tells.
	Name string
	// Start is when the process started, in clock ticks since boot: it distinguishes a process from a later
	// one with the same number. Unknown if the system does not show the process.
	Start maybe.Int
	Kind  ProcessKind
	// Used is the process's memory in bytes, its context included; many drivers refuse it inside containers.
	Used maybe.Int
	// GPUInstance and ComputeInstance are the MIG instance, unknown outside of one.
	GPUInstance, ComputeInstance maybe.Int
	// SM and MemoryBusy are shares of time in %, of the driver's last sample.
	SM, MemoryBusy maybe.Int
}

// Instance is one MIG instance.
type Instance struct {
	Name, UUID                   string
	GPUInstance, ComputeInstance maybe.Int
	Memory                       Memory
}

// Absence says why a figure is unknown.
type Absence struct {
	// Figure is the figure's name, such as "power"; Why is the driver's answer.
	Figure, Why string
}

// Reading is the state of a device at one moment. It does not change once it is returned.
type Reading struct {
	Index int
	Time  time.Time
	// Took is how long the reading took.
	Took   time.Duration
	Memory Memory
	// Busy and MemoryBusy are the shares of time in %, over the driver's last sample period, in which a
	// kernel ran and in which device memory was read or written.
	Busy, MemoryBusy maybe.Int
	// SMClock and MemoryClock are in MHz.
	SMClock, MemoryClock maybe.Int
	// Throttle is NVML's set of reasons why clocks are lower than asked for (NVML_CLOCKS_EVENT_REASON_*); see
	// [Reading.Slowed].
	Throttle maybe.Int
	// Power is in milliwatts, Temperature in degrees Celsius.
	Power, Temperature maybe.Int
	// PCIeSent and PCIeReceived are in bytes a second over 20 ms, seen from the device; the link is
	// PCIeGeneration × PCIeWidth now.
	PCIeSent, PCIeReceived    maybe.Int
	PCIeGeneration, PCIeWidth maybe.Int
	// NVLinkSent and NVLinkReceived are payload bytes since the driver started counting, all links together:
	// see [Reading.NVLinkRate].
	NVLinkSent, NVLinkReceived maybe.Int
	// Corrected and Uncorrected are memory errors since the driver was loaded; ECC is 1 if it is on.
	ECC, Corrected, Uncorrected maybe.Int
	// RowsCorrected and RowsUncorrected are rows of memory remapped for errors of the kind. RemapPending is 1
	// if a reset is needed for a remapping to take effect. RemapFailed is 1 if a remapping was impossible:
	// the device should then be replaced.
	RowsCorrected, RowsUncorrected, RemapPending, RemapFailed maybe.Int
	// Processes are ordered by memory, most first, and then by number. ProcessesKnown is false if NVML
	// refused the list, so that "none" differs from "unknown".
	Processes      []Process
	ProcessesKnown bool
	Instances      []Instance
	// Absent says why figures are unknown, in the order in which they were asked for.
	Absent []Absence
}

// Process returns the entry of pid: the first if it has several (one for each MIG instance).
func (r *Reading) Process(pid int) (Process, bool) {
	for _, p := range r.Processes {
		if p.PID == pid {
			return p, true
		}
	}
	return Process{}, false
}

// NVLinkRate returns the bytes a second between an earlier reading of the same device and this one; unknown
// if a counter is, or if it went backwards because the driver was reloaded.
func (r *Reading) NVLinkRate(earlier *Reading) (sent, received maybe.Int) {
	d := r.Time.Sub(earlier.Time)
	if d <= 0 {
		return maybe.Int{}, maybe.Int{}
	}
	rate := func(now, then maybe.Int) maybe.Int {
		v, ok := now.Minus(then).Value()
		if !ok || v < 0 {
			return maybe.Int{}
		}
		return maybe.Known(int64(float64(v) / d.Seconds()))
	}
	return rate(r.NVLinkSent, earlier.NVLinkSent), rate(r.NVLinkReceived, earlier.NVLinkReceived)
}

// NVML's reasons for clocks that are lower than the user wants, with their names on screen.
var slowed = [...]struct {
	bit  int64
	name string
}{
	{0x04, "power limit"}, {0x08, "hardware slowdown"}, {0x10, "sync boost"}, {0x20, "thermal"},
	{0x40, "hardware thermal"},
	{0x80, "power brake"},
}

// Slowed names what keeps the clocks lower than the user wants: power and heat, not idleness or requested
// clocks.
func (r *Reading) Slowed() []string {
	var names []string
	for _, s := range slowed {
		if r.Throttle.Or(0)&s.bit != 0 {
			names = append(names, s.name)
		}
	}
	return names
}
