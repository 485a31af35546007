package feed

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/machine"
)

func reading(used int64) nvml.Reading {
	return nvml.Reading{Memory: nvml.Memory{Total: maybe.Known(80 << 30), Used: maybe.Known(used)},
		Power: maybe.Known(512_400), Uncorrected: maybe.Known(2), RemapPending: maybe.Known(1)}
}

func TestWhatTheDriverCountsBecomesTheMachine(t *testing.T) {
	last := reading(71 << 30)
	h := nvml.DeviceHistory{
		Device: nvml.Device{Index: 3, Name: "H100", Total: maybe.Known(80 << 30),
			PowerLimit: maybe.Known(700_000)}, Last: &last, Readings: []nvml.Reading{reading(1 << 30), last},
		Processes: []nvml.ProcessHistory{
			{Key: nvml.ProcessKey{PID: 1 << 30}, Process: nvml.Process{PID: 1 << 30, Name: "python",
				Used: maybe.Known(61 << 30)},
				Points: []nvml.ProcessPoint{{Used: maybe.Known(5)}, {}, {Used: maybe.Known(61 << 30)}}},
			{Key: nvml.ProcessKey{PID: 1<<30 + 1}, Process: nvml.Process{PID: 1<<30 + 1, Name: "gone"},
				Gone: time.Now()},
		},
	}
	f := &Machine{checked: map[checkedProcess]string{}}
	f.take(nvml.View{Devices: []nvml.DeviceHistory{h}}, nil)
	l := f.Look()
	if l.Version != 1 || len(l.Devices) != 1 || len(l.Processes) != 1 {
		t.Fatalf("%+v", l)
	}
	d, p := l.Devices[0], l.Processes[0]
	if d.Index != 3 || d.Used != maybe.Known(71<<30) || d.Watts != maybe.Known(512) ||
		d.Limit != maybe.Known(700) || d.Busy.IsKnown() ||
		len(d.History) != 2 || d.History[0] != maybe.Known(1<<30) {
		t.Errorf("%+v", d)
	}
	if !strings.Contains(d.Alarm, "2 uncorrected") || !strings.Contains(d.Alarm, "waits for a reset") {
		t.Errorf("alarm %q", d.Alarm)
	}
	// The process belongs to the host and is not visible from here: the row says so, and it cannot be chosen.
	if want := []maybe.Int{maybe.Known(5), {}, maybe.Known(61 << 30)}; !slices.Equal(p.History, want) ||
		p.Every != machineEvery {
		t.Errorf("history %v every %v, want %v", p.History, p.Every, want)
	}
	if p.Bytes != maybe.Known(61<<30) || p.Command != "python" ||
		!strings.Contains(p.No, "not visible from here") ||
		len(p.Devices) != 1 {
		t.Errorf("%+v", p)
	}
}

func TestAMachineWithoutAGPUListsWhatHasTorch(t *testing.T) {
	f := &Machine{checked: map[checkedProcess]string{}, without: "no library"}
	f.take(nvml.View{}, []procs.Process{{PID: 1 << 30, Torch: true, Known: true}})
	if l := f.Look(); len(l.Devices) != 0 || l.NoDevices != "no library" || len(l.Processes) != 1 ||
		l.Processes[0].Bytes.IsKnown() {
		t.Errorf("%+v", l)
	}
}

func TestTheHistoryOfAProcessIsTheSumOverItsDevicesAndEndsNow(t *testing.T) {
	known := func(list ...int64) (points []nvml.ProcessPoint) {
		for _, n := range list {
			points = append(points, nvml.ProcessPoint{Used: maybe.Known(n)})
		}
		return points
	}
	sum := addHistory(addHistory(nil, known(1, 2)), known(10, 20, 30))
	if !slices.Equal(sum, []maybe.Int{maybe.Known(10), maybe.Known(21), maybe.Known(32)}) {
		t.Errorf("%v", sum)
	}
	sum = addHistory(sum, known(100))
	if !slices.Equal(sum, []maybe.Int{maybe.Known(10), maybe.Known(21), maybe.Known(132)}) {
		t.Errorf("%v", sum)
	}
}

func TestProcessWithoutAGPUHasAHistoryOfResidentMemory(t *testing.T) {
	f := &Machine{checked: map[checkedProcess]string{}}
	self := []procs.Process{{PID: os.Getpid()}}
	f.take(nvml.View{}, self)
	first := f.Look().Processes[0].History
	for range 2*shownReadings + 5 {
		f.take(nvml.View{}, self)
	}
	last := f.Look().Processes[0].History
	if len(first) != 1 || first[0].Or(0) <= 0 || len(last) < shownReadings || len(last) > 2*shownReadings {
		t.Errorf("%v at first, %d in the end", first, len(last))
	}
	f.take(nvml.View{}, nil)
	if len(f.resident) != 0 {
		t.Errorf("%d processes are remembered that are not listed", len(f.resident))
	}
}

func TestFurtherDeviceFiguresAreShown(t *testing.T) {
	now := time.Now()
	before := nvml.Reading{Time: now.Add(-time.Second), NVLinkSent: maybe.Known(1 << 30),
		NVLinkReceived: maybe.Known(0)}
	last := nvml.Reading{Time: now, NVLinkSent: maybe.Known(3 << 30), NVLinkReceived: maybe.Known(1 << 30),
		SMClock: maybe.Known(1410), MemoryClock: maybe.Known(1215),
		ECC: maybe.Known(1), Corrected: maybe.Known(7), Throttle: maybe.Known(0x24),
		Instances: []nvml.Instance{{Name: "MIG 1g.5gb", Memory: nvml.Memory{Used: maybe.Known(2 << 30),
			Total: maybe.Known(5 << 30)}}}}
	d := gpuOf(&nvml.DeviceHistory{Device: nvml.Device{MIG: true}, Last: &last,
		Readings: []nvml.Reading{before, last}})
	if d.LinkSent != maybe.Known(2<<30) || d.LinkReceived != maybe.Known(1<<30) ||
		d.Clock != maybe.Known(1410) || d.MemoryClock != maybe.Known(1215) ||
		d.ECC != maybe.Known(1) || d.Corrected != maybe.Known(7) || d.Slowed != "power limit and thermal" {
		t.Errorf("%+v", d)
	}
	if !d.MIG || len(d.Instances) != 1 || d.Instances[0] != (machine.Instance{Name: "MIG 1g.5gb",
		Used: maybe.Known(2 << 30), Total: maybe.Known(5 << 30)}) {
		t.Errorf("%+v", d.Instances)
	}
	if d := gpuOf(&nvml.DeviceHistory{Last: &nvml.Reading{}}); d.LinkSent.IsKnown() ||
		d.ECC.IsKnown() || d.MemoryClock.IsKnown() || d.Corrected.IsKnown() {
		t.Errorf("figures that the reading lacks are known: %+v", d)
	}
}
