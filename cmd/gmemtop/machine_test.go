package main

import (
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/tui/machine"
)

func reading(used int64) nvml.Reading {
	return nvml.Reading{Memory: nvml.Memory{Total: nvml.Known(80 << 30), Used: nvml.Known(used)}, Power: nvml.Known(512_400), Uncorrected: nvml.Known(2), RemapPending: nvml.Known(1)}
}

func TestWhatTheDriverCountsBecomesTheMachine(t *testing.T) {
	last := reading(71 << 30)
	h := nvml.DeviceHistory{
		Device: nvml.Device{Index: 3, Name: "H100", Total: nvml.Known(80 << 30), PowerLimit: nvml.Known(700_000)}, Last: &last, Readings: []nvml.Reading{reading(1 << 30), last},
		Processes: []nvml.ProcessHistory{
			{Key: nvml.ProcessKey{PID: 1 << 30}, Process: nvml.Process{PID: 1 << 30, Name: "python", Used: nvml.Known(61 << 30)}},
			{Key: nvml.ProcessKey{PID: 1<<30 + 1}, Process: nvml.Process{PID: 1<<30 + 1, Name: "gone"}, Gone: time.Now()},
		},
	}
	f := &machineFeed{news: make(chan struct{}), checked: map[checkedProcess]string{}}
	f.take(nvml.View{Devices: []nvml.DeviceHistory{h}}, nil)
	l := f.Look()
	if l.Version != 1 || len(l.Devices) != 1 || len(l.Processes) != 1 {
		t.Fatalf("%+v", l)
	}
	d, p := l.Devices[0], l.Processes[0]
	if d.Index != 3 || d.Used != 71<<30 || d.Watts != 512 || d.Limit != 700 || d.Busy != machine.Unknown || len(d.History) != 2 || d.History[0] != 1<<30 {
		t.Errorf("%+v", d)
	}
	if !strings.Contains(d.Alarm, "2 uncorrected") || !strings.Contains(d.Alarm, "waits for a reset") {
		t.Errorf("alarm %q", d.Alarm)
	}
	// The process is the host's and is not visible from here: that is said, and it cannot be chosen.
	if p.Bytes != 61<<30 || p.Command != "python" || !strings.Contains(p.No, "not visible from here") || len(p.Devices) != 1 {
		t.Errorf("%+v", p)
	}
}

func TestAMachineWithoutAGPUListsWhatHasTorch(t *testing.T) {
	f := &machineFeed{news: make(chan struct{}), checked: map[checkedProcess]string{}, without: "no library"}
	f.take(nvml.View{}, []procs.Process{{PID: 1 << 30, Torch: true, Known: true}})
	if l := f.Look(); len(l.Devices) != 0 || l.NoDevices != "no library" || len(l.Processes) != 1 || l.Processes[0].Bytes != machine.Unknown {
		t.Errorf("%+v", l)
	}
}
