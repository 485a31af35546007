package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/machine"
)

// Machine is the machine as the screen sees it: NVML's devices and processes, and the processes in /proc that
// have torch loaded. It implements machine.Feed.
type Machine struct {
	sampler *nvml.Sampler // nil without NVML
	driver  nvml.Driver
	without string // why there are no counters, "" if there are
	lister  procs.Lister
	checked map[checkedProcess]string // why a process cannot be attached to

	resident map[checkedProcess][]maybe.Int // of processes without a GPU, at every look

	capture.Changes
	mu   sync.Mutex
	look machine.Look
}

// checkedProcess identifies one process permanently.
type checkedProcess struct {
	pid     int
	started int64
}

// machineEvery is how often to look at the machine: neither processes nor counters signal changes.
const machineEvery = time.Second

// shownReadings limits the history kept for the screen: more than the widest terminal's columns.
const shownReadings = 600

// OpenMachine opens NVML if there is one. closing closes the driver again.
func OpenMachine() (f *Machine, closing func()) {
	f = &Machine{checked: map[checkedProcess]string{}, resident: map[checkedProcess][]maybe.Int{}}
	f.look.Host, _ = os.Hostname()
	lib, err := nvml.Open(nvml.Options{})
	if err != nil {
		f.without = strings.TrimPrefix(err.Error(), nvml.ErrUnavailable.Error()+": ")
		return f, func() {}
	}
	f.driver = lib.Driver()
	if f.sampler, err = nvml.NewSampler(lib, nvml.SamplerOptions{Interval: machineEvery}); err != nil {
		f.without = err.Error()
	}
	return f, func() { lib.Close() }
}

// Run watches the machine until ctx is done.
func (f *Machine) Run(ctx context.Context) {
	if f.sampler != nil {
		go f.sampler.Run(ctx)
	}
	tick := time.NewTicker(machineEvery)
	defer tick.Stop()
	for {
		var v nvml.View
		if f.sampler != nil {
			v = f.sampler.View()
		}
		list, err := f.lister.Torch(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, procs.ErrNotLinux) {
			f.without = err.Error()
		}
		f.take(v, list)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// take makes a look from NVML and /proc.
func (f *Machine) take(v nvml.View, torch []procs.Process) {
	l := machine.Look{Host: f.look.Host, Driver: f.driver.Version, NoDevices: f.without}
	byPID := map[int]*machine.Process{}
	var order []int
	add := func(pid int) *machine.Process {
		p := byPID[pid]
		if p == nil {
			p = &machine.Process{PID: pid, Every: machineEvery}
			byPID[pid], order = p, append(order, pid)
		}
		return p
	}
	for i := range v.Devices {
		d := &v.Devices[i]
		l.Devices = append(l.Devices, gpuOf(d))
		for _, h := range d.Processes {
			if !h.Gone.IsZero() {
				continue
			}
			p := add(h.Key.PID)
			p.Command = cmp.Or(p.Command, h.Process.Name)
			if !slices.Contains(p.Devices, d.Device.Index) {
				p.Devices = append(p.Devices, d.Device.Index)
			}
			p.Bytes = maybe.Sum(p.Bytes, h.Process.Used)
			p.History = addHistory(p.History, h.Points)
			p.Busy = maybe.Max(p.Busy, h.Process.SM)
		}
	}
	for i := range torch {
		add(torch[i].PID).Torch = torch[i].Torch
	}
	resident := map[checkedProcess][]maybe.Int{} // of processes that still exist
	for _, pid := range order {
		p := byPID[pid]
		if q, err := f.lister.Look(pid); err == nil {
			p.User, p.Host, p.Age, p.Torch = q.User, maybe.Known(q.RSS), q.Age, q.Torch
			p.Command = report.Printable(cmp.Or(q.Command(), p.Command))
			p.No = f.obstacle(q, len(p.Devices) > 0)
			if !p.Bytes.IsKnown() {
				p.History = f.addResident(q, resident)
			}
		} else {
			p.No = "it is not visible from here: it runs on the host or in another container"
		}
		l.Processes = append(l.Processes, *p)
	}
	f.resident = resident
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look = l
	f.look.Version = f.Tell()
}

// addResident adds a process's resident memory to its history, and keeps that in kept.
func (f *Machine) addResident(p *procs.Process, kept map[checkedProcess][]maybe.Int) []maybe.Int {
	key := checkedProcess{p.PID, p.Started}
	list := append(f.resident[key], maybe.Known(p.RSS))
	if len(list) >= 2*shownReadings { // the screen may still be reading the old one
		list = slices.Clone(list[len(list)-shownReadings:])
	}
	kept[key] = list
	return slices.Clip(list)
}

// addHistory adds the points of a process on one device to those on others; all end now.
func addHistory(sum []maybe.Int, points []nvml.ProcessPoint) []maybe.Int {
	points = points[max(len(points)-shownReadings, 0):]
	if n := len(points) - len(sum); n > 0 {
		sum = append(make([]maybe.Int, n), sum...)
	}
	at := len(sum) - len(points)
	for i, p := range points {
		sum[at+i] = maybe.Sum(sum[at+i], p.Used)
	}
	return sum
}

// obstacle says why gmemtop cannot attach to a process, "" if it can. The answer is kept as long as the
// process lives.
func (f *Machine) obstacle(p *procs.Process, gpu bool) string {
	switch {
	case p.Known && !p.Torch && gpu:
		return fmt.Sprintf("it has no torch loaded; gmemtop attach --probes %d watches its CUDA memory",
			p.PID)
	case p.Known && !p.Torch:
		return "it has no torch loaded"
	}
	key := checkedProcess{p.PID, p.Started}
	why, ok := f.checked[key]
	if !ok {
		if err := inject.Check(p.PID).Err(); err != nil {
			why = err.Error()
		}
		f.checked[key] = why
	}
	if why != "" && pytorch.Lives(p.PID) { // it has an agent already, so obstacles do not matter
		return ""
	}
	return why
}

func gpuOf(d *nvml.DeviceHistory) machine.Device {
	x := machine.Device{Index: d.Device.Index, Name: d.Device.Name, Total: d.Device.Total,
		Limit: thousandth(d.Device.PowerLimit), Every: machineEvery, MIG: d.Device.MIG}
	if d.Err != nil {
		x.Alarm = d.Err.Error()
	}
	if r := d.Last; r != nil {
		x.Used, x.Total, x.Reserved = r.Memory.Used, maybe.First(r.Memory.Total, x.Total), r.Memory.Reserved
		x.Busy, x.Celsius, x.Watts = r.Busy, r.Temperature, thousandth(r.Power)
		x.Received, x.Sent = r.PCIeReceived, r.PCIeSent
		x.Clock, x.MemoryClock, x.Slowed = r.SMClock, r.MemoryClock, strings.Join(r.Slowed(), " and ")
		x.ECC, x.Corrected = r.ECC, r.Corrected
		if n := len(d.Readings); n > 1 {
			x.LinkSent, x.LinkReceived = r.NVLinkRate(&d.Readings[n-2])
		}
		for _, part := range r.Instances {
			x.Instances = append(x.Instances, machine.Instance{Name: part.Name,
				Used: part.Memory.Used, Total: part.Memory.Total})
		}
		x.Alarm = cmp.Or(x.Alarm, alarm(r))
	}
	readings := d.Readings[max(len(d.Readings)-shownReadings, 0):]
	for i := range readings {
		x.History = append(x.History, readings[i].Memory.Used)
	}
	return x
}

// thousandth converts thousandths to whole units, rounded.
func thousandth(f maybe.Int) maybe.Int {
	if v, ok := f.Value(); ok {
		return maybe.Known((v + 500) / 1000)
	}
	return maybe.Int{}
}

// alarm says what a user should know before trusting a device.
func alarm(r *nvml.Reading) string {
	var list []string
	if n := r.Uncorrected.Or(0); n > 0 {
		list = append(list, fmt.Sprintf("%d uncorrected memory errors", n))
	}
	if r.RemapFailed.Or(0) > 0 {
		list = append(list, "a row of memory could not be remapped: the device should be replaced")
	} else if r.RemapPending.Or(0) > 0 {
		list = append(list, "a remapped row waits for a reset of the device")
	}
	return strings.Join(list, "; ")
}

// HasDevices reports whether the machine has a GPU whose counters can be read.
func (f *Machine) HasDevices() bool { return f.sampler != nil && len(f.sampler.View().Devices) > 0 }

// Look implements machine.Feed.
func (f *Machine) Look() machine.Look {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.look
}
