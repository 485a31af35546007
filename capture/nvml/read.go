//go:build cgo && linux

package nvml

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Read reads a device now. An error that wraps [errLost] means that the device no longer answers; every other
// refusal is an unknown figure with its reason in the reading.
func (l *Library) Read(index int) (Reading, error) {
	l.open.RLock()
	defer l.open.RUnlock()
	if l.closed {
		return Reading{}, errClosed
	}
	if index < 0 || index >= len(l.handles) {
		return Reading{}, fmt.Errorf("read GPU %d: there are %d; Devices lists them", index, len(l.handles))
	}
	h := l.handles[index]
	if h.err != nil {
		return Reading{}, h.err
	}
	r := Reading{Index: index, Time: time.Now()}
	q := &inquiry{l: l}
	l.read(&r, q, h.device)
	r.Took = time.Since(r.Time)
	r.Absent = q.absent
	if q.lost {
		return r, fmt.Errorf("read GPU %d: %w: it fell off the bus or needs a reset; dmesg names the Xid, "+
			"nvidia-smi -r -i %d resets it", index, errLost, index)
	}
	return r, nil
}

func (l *Library) read(r *Reading, q *inquiry, dev nvml.Device) {
	r.Memory = q.memory(dev)
	if q.lost { // each further call could take its time-out
		return
	}
	q.bar1(&r.Memory, dev)
	q.ask("utilisation", "nvmlDeviceGetUtilizationRates", func() nvml.Return {
		u, ret := dev.GetUtilizationRates()
		if ret == nvml.SUCCESS {
			r.Busy, r.MemoryBusy = unsigned32(u.Gpu), unsigned32(u.Memory)
		}
		return ret
	})
	r.SMClock = q.number("SM clock", "nvmlDeviceGetClockInfo", 1, func() (uint32, nvml.Return) {
		return dev.GetClockInfo(nvml.CLOCK_SM)
	})
	r.MemoryClock = q.number("memory clock", "nvmlDeviceGetClockInfo", 1, func() (uint32, nvml.Return) {
		return dev.GetClockInfo(nvml.CLOCK_MEM)
	})
	r.Throttle = q.throttle(dev)
	r.Power = q.number("power", "nvmlDeviceGetPowerUsage", 1, dev.GetPowerUsage)
	r.Temperature = q.number("temperature", "nvmlDeviceGetTemperature", 1, func() (uint32, nvml.Return) {
		return dev.GetTemperature(nvml.TEMPERATURE_GPU)
	})
	r.PCIeGeneration = q.count("PCIe generation", "nvmlDeviceGetCurrPcieLinkGeneration",
		dev.GetCurrPcieLinkGeneration)
	r.PCIeWidth = q.count("PCIe width", "nvmlDeviceGetCurrPcieLinkWidth", dev.GetCurrPcieLinkWidth)
	const kilobyte = 1000 // NVML says "KB/s" without saying which; we take 1000
	r.PCIeSent = q.number("PCIe sent", "nvmlDeviceGetPcieThroughput", kilobyte, func() (uint32, nvml.Return) {
		return dev.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES)
	})
	r.PCIeReceived = q.number("PCIe received", "nvmlDeviceGetPcieThroughput", kilobyte,
		func() (uint32, nvml.Return) {
			return dev.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
		})
	q.nvlink(r, dev)
	q.health(r, dev)
	l.readProcesses(r, q, dev)
}

// memory asks the newer call first: the older one counts the driver's reserve as used.
func (q *inquiry) memory(dev nvml.Device) (m Memory) {
	if q.l.exports("nvmlDeviceGetMemoryInfo_v2") {
		if v, ret := dev.GetMemoryInfo_v2(); ret == nvml.SUCCESS {
			return Memory{Total: unsigned(v.Total), Reserved: unsigned(v.Reserved), Used: unsigned(v.Used),
				Free: unsigned(v.Free)}
		}
	}
	q.ask("memory", "nvmlDeviceGetMemoryInfo", func() nvml.Return {
		v, ret := dev.GetMemoryInfo()
		if ret == nvml.SUCCESS {
			m = Memory{Total: unsigned(v.Total), Used: unsigned(v.Used), Free: unsigned(v.Free)}
			q.absent = append(q.absent, Absence{"reserved memory",
				"this driver counts its reserve as used; drivers from 510 on report it separately"})
		}
		return ret
	})
	return m
}

func (q *inquiry) bar1(m *Memory, dev nvml.Device) {
	q.ask("BAR1 memory", "nvmlDeviceGetBAR1MemoryInfo", func() nvml.Return {
		v, ret := dev.GetBAR1MemoryInfo()
		if ret == nvml.SUCCESS {
			m.BAR1Total, m.BAR1Used = unsigned(v.Bar1Total), unsigned(v.Bar1Used)
		}
		return ret
	})
}

// throttle asks by the function's name in this driver: it was renamed in 535.
func (q *inquiry) throttle(dev nvml.Device) (f maybe.Int) {
	symbol, call := "nvmlDeviceGetCurrentClocksEventReasons", dev.GetCurrentClocksEventReasons
	if !q.l.exports(symbol) {
		symbol, call = "nvmlDeviceGetCurrentClocksThrottleReasons", dev.GetCurrentClocksThrottleReasons
	}
	q.ask("throttle reasons", symbol, func() nvml.Return {
		v, ret := call()
		if ret == nvml.SUCCESS {
			f = unsigned(v)
		}
		return ret
	})
	return f
}

// nvlink asks for the payload counters of all links together.
func (q *inquiry) nvlink(r *Reading, dev nvml.Device) {
	const allLinks = math.MaxUint32
	fields := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: allLinks},
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ScopeId: allLinks},
	}
	if !q.ask("NVLink traffic", "nvmlDeviceGetFieldValues", func() nvml.Return {
		return dev.GetFieldValues(fields)
	}) {
		return
	}
	const kibibyte = 1024
	counter := func(name string, f *nvml.FieldValue) maybe.Int {
		if ret := nvml.Return(f.NvmlReturn); ret != nvml.SUCCESS {
			q.absent = append(q.absent, Absence{name, ret.Error()})
			return maybe.Int{}
		}
		return q.told(name, fieldValue(f).Times(kibibyte))
	}
	r.NVLinkSent, r.NVLinkReceived = counter("NVLink sent", &fields[0]),
		counter("NVLink received", &fields[1])
}

// fieldValue returns the integer of a field, unknown for other types.
func fieldValue(f *nvml.FieldValue) maybe.Int {
	bits := binary.NativeEndian.Uint64(f.Value[:])
	switch nvml.ValueType(f.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return unsigned32(binary.NativeEndian.Uint32(f.Value[:]))
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return unsigned(bits)
	}
	return maybe.Int{}
}

func (q *inquiry) health(r *Reading, dev nvml.Device) {
	q.ask("ECC mode", "nvmlDeviceGetEccMode", func() nvml.Return {
		current, _, ret := dev.GetEccMode()
		if ret == nvml.SUCCESS {
			r.ECC = maybe.Known(int64(current))
		}
		return ret
	})
	errorsOf := func(name string, kind nvml.MemoryErrorType) (f maybe.Int) {
		q.ask(name, "nvmlDeviceGetTotalEccErrors", func() nvml.Return {
			v, ret := dev.GetTotalEccErrors(kind, nvml.VOLATILE_ECC)
			if ret == nvml.SUCCESS {
				f = unsigned(v)
			}
			return ret
		})
		return f
	}
	r.Corrected = errorsOf("corrected memory errors", nvml.MEMORY_ERROR_TYPE_CORRECTED)
	r.Uncorrected = errorsOf("uncorrected memory errors", nvml.MEMORY_ERROR_TYPE_UNCORRECTED)
	q.ask("remapped rows", "nvmlDeviceGetRemappedRows", func() nvml.Return {
		corrected, uncorrected, pending, failed, ret := dev.GetRemappedRows()
		if ret == nvml.SUCCESS {
			r.RowsCorrected = maybe.Known(int64(corrected))
			r.RowsUncorrected = maybe.Known(int64(uncorrected))
			r.RemapPending, r.RemapFailed = truth(pending), truth(failed)
		}
		return ret
	})
}

func truth(b bool) maybe.Int {
	if b {
		return maybe.Known(1)
	}
	return maybe.Known(0)
}

func (q *inquiry) mig(dev nvml.Device) bool {
	var mode int
	return q.ask("MIG mode", "nvmlDeviceGetMigMode", func() (ret nvml.Return) {
		mode, _, ret = dev.GetMigMode()
		return
	}) &&
		mode == nvml.DEVICE_MIG_ENABLE
}

// readProcesses lists the processes of the device and of its MIG instances.
func (l *Library) readProcesses(r *Reading, q *inquiry, dev nvml.Device) {
	t := tally{index: map[processKey]int{}}
	r.ProcessesKnown = q.processes(&t, dev, maybe.Int{}, maybe.Int{})
	if q.mig(dev) {
		l.readInstances(r, q, &t, dev)
	}
	l.readShares(&t, q, dev)
	for i := range t.list {
		p := &t.list[i]
		p.Start = l.proc.start(p.PID)
		p.Name = l.nameOf(p.PID)
	}
	slices.SortFunc(t.list, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Used.Or(-1), a.Used.Or(-1)), cmp.Compare(a.PID, b.PID),
			cmp.Compare(a.GPUInstance.Or(-1), b.GPUInstance.Or(-1)),
			cmp.Compare(a.ComputeInstance.Or(-1), b.ComputeInstance.Or(-1)))
	})
	r.Processes = t.list
}

// nameOf asks NVML, which refuses another user's processes, and then the system.
func (l *Library) nameOf(pid int) string {
	if l.exports("nvmlSystemGetProcessName") {
		if name, ret := l.api.SystemGetProcessName(pid); ret == nvml.SUCCESS && name != "" && name != "-" {
			return name
		}
	}
	return l.proc.name(pid)
}

type processKey struct {
	pid          int
	gpu, compute maybe.Int
}

// tally merges the lists of processes: one that computes and draws is in both with the same memory, which is
// counted once.
type tally struct {
	list  []Process
	index map[processKey]int
}

func (t *tally) add(p Process) {
	key := processKey{p.PID, p.GPUInstance, p.ComputeInstance}
	i, ok := t.index[key]
	if !ok {
		t.index[key] = len(t.list)
		t.list = append(t.list, p)
		return
	}
	have := &t.list[i]
	have.Kind |= p.Kind
	if v, known := p.Used.Value(); known {
		have.Used = maybe.Known(max(v, have.Used.Or(v)))
	}
}

// processes adds the three lists of one device or instance, and reports whether NVML gave the list of
// computing processes.
func (q *inquiry) processes(t *tally, dev nvml.Device, gpu, compute maybe.Int) (known bool) {
	for _, list := range [...]struct {
		name, symbol string
		kind         ProcessKind
		call         func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"compute processes", "nvmlDeviceGetComputeRunningProcesses", runsCompute,
			dev.GetComputeRunningProcesses},
		{"graphics processes", "nvmlDeviceGetGraphicsRunningProcesses", runsGraphics,
			dev.GetGraphicsRunningProcesses},
		{"MPS processes", "nvmlDeviceGetMPSComputeRunningProcesses", runsMPS,
			dev.GetMPSComputeRunningProcesses},
	} {
		var infos []nvml.ProcessInfo
		if !q.ask(list.name, list.symbol, func() (ret nvml.Return) { infos, ret = list.call(); return }) {
			continue
		}
		known = known || list.kind == runsCompute
		for _, info := range infos {
			p := Process{
				PID: int(info.Pid), Kind: list.kind, Used: unsigned(info.UsedGpuMemory),
				GPUInstance:     unsigned32(info.GpuInstanceId),
				ComputeInstance: unsigned32(info.ComputeInstanceId),
			}
			if gpu.IsKnown() { // asked of an instance, which need not name itself
				p.GPUInstance, p.ComputeInstance = gpu, compute
			}
			t.add(p)
		}
	}
	return known
}

func (l *Library) readInstances(r *Reading, q *inquiry, t *tally, dev nvml.Device) {
	n, ok := q.count("MIG instances", "nvmlDeviceGetMaxMigDeviceCount", dev.GetMaxMigDeviceCount).Value()
	if !ok {
		return
	}
	for i := range int(n) {
		if !l.exports("nvmlDeviceGetMigDeviceHandleByIndex") {
			return
		}
		mig, ret := dev.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS { // a place without an instance
			continue
		}
		var in Instance
		q.ask("instance's name", "nvmlDeviceGetName", func() (ret nvml.Return) {
			in.Name, ret = mig.GetName()
			return
		})
		q.ask("instance's uuid", "nvmlDeviceGetUUID", func() (ret nvml.Return) {
			in.UUID, ret = mig.GetUUID()
			return
		})
		in.GPUInstance = q.count("GPU instance", "nvmlDeviceGetGpuInstanceId", mig.GetGpuInstanceId)
		in.ComputeInstance = q.count("compute instance", "nvmlDeviceGetComputeInstanceId",
			mig.GetComputeInstanceId)
		in.Memory = q.memory(mig)
		r.Instances = append(r.Instances, in)
		if q.processes(t, mig, in.GPUInstance, in.ComputeInstance) {
			r.ProcessesKnown = true
		}
	}
}

// readShares adds each process's shares of time from the driver's samples of the last second.
func (l *Library) readShares(t *tally, q *inquiry, dev nvml.Device) {
	if len(t.list) == 0 {
		return
	}
	since := uint64(time.Now().Add(-time.Second).UnixMicro())
	var samples []nvml.ProcessUtilizationSample
	if !q.ask("processes' shares", "nvmlDeviceGetProcessUtilization", func() (ret nvml.Return) {
		// The binding slices its buffer by the count of the second of two calls; if a process appeared in
		// between, that is out of range.
		defer func() {
			if recover() != nil {
				samples, ret = nil, nvml.ERROR_INSUFFICIENT_SIZE
			}
		}()
		samples, ret = dev.GetProcessUtilization(since)
		if ret == nvml.ERROR_NOT_FOUND { // no sample in that second: idle, not refused
			ret = nvml.SUCCESS
		}
		return ret
	}) {
		return
	}
	for i := range t.list {
		newest := uint64(0)
		for _, s := range samples {
			if int(s.Pid) == t.list[i].PID && s.TimeStamp >= newest && s.SmUtil <= 100 && s.MemUtil <= 100 {
				newest = s.TimeStamp
				t.list[i].SM = maybe.Known(int64(s.SmUtil))
				t.list[i].MemoryBusy = maybe.Known(int64(s.MemUtil))
			}
		}
	}
}

// unsigned returns a figure of NVML's that is unknown if it is all ones (NVML_VALUE_NOT_AVAILABLE) or no
// int64.
func unsigned(v uint64) maybe.Int {
	if v > math.MaxInt64 {
		return maybe.Int{}
	}
	return maybe.Known(int64(v))
}

// unsigned32 is unsigned of a 32-bit figure, whose all-ones value means the same.
func unsigned32(v uint32) maybe.Int {
	if v == math.MaxUint32 {
		return maybe.Int{}
	}
	return maybe.Known(int64(v))
}
