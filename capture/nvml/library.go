//go:build cgo && linux

package nvml

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Library is NVML, loaded and initialised. Its methods are safe for concurrent use.
type Library struct {
	api    nvml.Interface
	proc   processes
	driver Driver

	// open is held for reading during every call, so that Close never unloads the library under one.
	open   sync.RWMutex
	closed bool

	handles []handle
	symbols sync.Map // name -> bool: whether the loaded library exports it
}

type handle struct {
	device nvml.Device
	err    error
}

// Options are the choices of [Open].
type Options struct {
	// Path is the library's file, "" for libnvidia-ml.so.1 as the dynamic linker finds it.
	Path string
}

// Open loads and initialises NVML. An error wraps [ErrUnavailable] and says what to do; only NVML's
// initialisation has been called then.
func Open(o Options) (*Library, error) {
	var opts []nvml.LibraryOption
	if o.Path != "" {
		opts = append(opts, nvml.WithLibraryPath(o.Path))
	}
	return open(nvml.New(opts...), processes{root: "/proc"})
}

// OpenAPI is Open on a given implementation of NVML, such as the vendor's mocks.
func OpenAPI(api nvml.Interface) (*Library, error) { return open(api, processes{root: "/proc"}) }

func open(api nvml.Interface, proc processes) (*Library, error) {
	if ret := api.Init(); ret != nvml.SUCCESS {
		return nil, unavailable(ret)
	}
	l := &Library{api: api, proc: proc}
	var count int
	q := &inquiry{l: l}
	if !q.ask("devices", "nvmlDeviceGetCount", func() (ret nvml.Return) {
		count, ret = api.DeviceGetCount()
		return
	}) {
		err := fmt.Errorf("%w: count devices: %s; run nvidia-smi, which should fail too and say more",
			ErrUnavailable, q.absent[0].Why)
		return nil, errors.Join(err, l.Close())
	}
	q.ask("driver version", "nvmlSystemGetDriverVersion", func() (ret nvml.Return) {
		l.driver.Version, ret = api.SystemGetDriverVersion()
		return
	})
	q.ask("NVML version", "nvmlSystemGetNVMLVersion", func() (ret nvml.Return) {
		l.driver.NVML, ret = api.SystemGetNVMLVersion()
		return
	})
	q.ask("CUDA version", "nvmlSystemGetCudaDriverVersion", func() nvml.Return {
		v, ret := api.SystemGetCudaDriverVersion()
		if ret == nvml.SUCCESS {
			l.driver.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
		}
		return ret
	})
	for i := range count {
		var h handle
		q := &inquiry{l: l}
		if !q.ask("device", "nvmlDeviceGetHandleByIndex", func() (ret nvml.Return) {
			h.device, ret = api.DeviceGetHandleByIndex(i)
			return
		}) {
			h = handle{err: fmt.Errorf("open GPU %d: %s; nvidia-smi -i %d shows whether it needs a reset "+
				"or rights", i, q.absent[0].Why, i)}
		}
		l.handles = append(l.handles, h)
	}
	return l, nil
}

// unavailable says what to do about a failed initialisation.
func unavailable(ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%w: libnvidia-ml.so.1 is not found; install the NVIDIA driver, or start the "+
			"container with --gpus all", ErrUnavailable)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("%w: the driver's kernel module is not loaded; run modprobe nvidia as root, and "+
			"read dmesg if that fails", ErrUnavailable)
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%w: no permission to talk to the driver; the user needs read and write access "+
			"to /dev/nvidiactl and /dev/nvidia0", ErrUnavailable)
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("%w: the driver was updated and the old kernel module still runs; reboot, or "+
			"unload and load the module", ErrUnavailable)
	}
	return fmt.Errorf("%w: initialisation failed (code %d); run nvidia-smi, which should fail too and say "+
		"more", ErrUnavailable, int32(ret))
}

// Close shuts NVML down. A device that hangs in a call makes that impossible: Close then leaves the library
// open and says so.
func (l *Library) Close() error {
	if !l.open.TryLock() {
		return errors.New("close NVML: a device has not answered yet; stop what reads it and close again, " +
			"or let the process end")
	}
	defer l.open.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if ret := l.api.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("close NVML: %w", ret)
	}
	return nil
}

var errClosed = errors.New("NVML is closed: open it again")

// Driver returns the installed driver.
func (l *Library) Driver() Driver { return l.driver }

// exports reports, without a call, whether the loaded library has a function in any of its versions; go-nvml
// calls the newest.
func (l *Library) exports(symbol string) bool {
	if v, ok := l.symbols.Load(symbol); ok {
		return v.(bool)
	}
	ok := slices.ContainsFunc([]string{"", "_v2", "_v3"}, func(version string) bool {
		return l.api.Extensions().LookupSymbol(symbol+version) == nil
	})
	l.symbols.Store(symbol, ok)
	return ok
}

// inquiry asks one device, or the library, for several figures and notes why some are unknown.
type inquiry struct {
	l      *Library
	absent []Absence
	lost   bool
}

// ask calls a function of NVML and reports whether it answered. symbol is the function that the call ends in,
// without its version; it is looked up first, since a call of an absent one would end the process.
func (q *inquiry) ask(figure, symbol string, call func() nvml.Return) bool {
	if !q.l.exports(symbol) {
		q.absent = append(q.absent, Absence{figure, "this driver is too old: its library has no " + symbol})
		return false
	}
	ret := call()
	switch ret {
	case nvml.SUCCESS:
		return true
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
		q.lost = true
	}
	q.absent = append(q.absent, Absence{figure, ret.Error()})
	return false
}

// number asks for one 32-bit figure in the given unit.
func (q *inquiry) number(figure, symbol string, unit int64, call func() (uint32, nvml.Return)) maybe.Int {
	var v uint32
	if !q.ask(figure, symbol, func() (ret nvml.Return) { v, ret = call(); return }) {
		return maybe.Int{}
	}
	return q.told(figure, unsigned32(v).Times(unit))
}

// count asks for one figure that go-nvml gives as an int; the all-ones value of 32 bits is unknown.
func (q *inquiry) count(figure, symbol string, call func() (int, nvml.Return)) maybe.Int {
	return q.number(figure, symbol, 1, func() (uint32, nvml.Return) {
		v, ret := call()
		return uint32(v), ret
	})
}

// told returns f and notes it as absent if NVML answered "not available".
func (q *inquiry) told(figure string, f maybe.Int) maybe.Int {
	if !f.IsKnown() {
		q.absent = append(q.absent, Absence{figure, "the driver answers that it is not available"})
	}
	return f
}

// Devices describes the devices in NVML's order. A device that cannot be opened is listed with its error.
func (l *Library) Devices() ([]Device, error) {
	l.open.RLock()
	defer l.open.RUnlock()
	if l.closed {
		return nil, errClosed
	}
	devices := make([]Device, len(l.handles))
	for i, h := range l.handles {
		devices[i] = Device{Index: i, Err: h.err}
		if h.err == nil {
			l.describe(&devices[i], h.device)
		}
	}
	return devices, nil
}

func (l *Library) describe(d *Device, dev nvml.Device) {
	q := &inquiry{l: l}
	q.ask("name", "nvmlDeviceGetName", func() (ret nvml.Return) { d.Name, ret = dev.GetName(); return })
	q.ask("uuid", "nvmlDeviceGetUUID", func() (ret nvml.Return) { d.UUID, ret = dev.GetUUID(); return })
	q.ask("bus", "nvmlDeviceGetPciInfo", func() nvml.Return {
		pci, ret := dev.GetPciInfo()
		if ret == nvml.SUCCESS {
			d.Bus = text(pci.BusId[:])
		}
		return ret
	})
	d.Total = q.memory(dev).Total
	d.PowerLimit = q.number("power limit", "nvmlDeviceGetEnforcedPowerLimit", 1, dev.GetEnforcedPowerLimit)
	d.MaxSMClock = q.number("highest SM clock", "nvmlDeviceGetMaxClockInfo", 1, func() (uint32, nvml.Return) {
		return dev.GetMaxClockInfo(nvml.CLOCK_SM)
	})
	d.MaxMemoryClock = q.number("highest memory clock", "nvmlDeviceGetMaxClockInfo", 1,
		func() (uint32, nvml.Return) {
			return dev.GetMaxClockInfo(nvml.CLOCK_MEM)
		})
	d.PCIeGeneration = q.count("highest PCIe generation", "nvmlDeviceGetMaxPcieLinkGeneration",
		dev.GetMaxPcieLinkGeneration)
	d.PCIeWidth = q.count("highest PCIe width", "nvmlDeviceGetMaxPcieLinkWidth", dev.GetMaxPcieLinkWidth)
	d.MIG = q.mig(dev)
	links := int64(0)
	for link := range nvml.NVLINK_MAX_LINKS {
		var state nvml.EnableState
		if !q.ask("NVLink", "nvmlDeviceGetNvLinkState", func() (ret nvml.Return) {
			state, ret = dev.GetNvLinkState(link)
			return
		}) {
			break // links are numbered without gaps; a device without any refuses the first
		}
		if state == nvml.FEATURE_ENABLED {
			links++
		}
		d.NVLinks = maybe.Known(links)
	}
}

// text returns the characters of a C string in a fixed field, whose element type differs between platforms.
func text[T ~int8 | ~uint8](field []T) string {
	b := make([]byte, 0, len(field))
	for _, c := range field {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}
