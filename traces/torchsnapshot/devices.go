package torchsnapshot

import (
	"slices"

	"github.com/gmemtop/gmemtop/traces"
)

// run is the rows [first, end) of one device.
type run struct {
	device     traces.Device
	first, end uint32
}

// runs returns the traces that have events, with their devices.
func (f *fold) runs() []run {
	var out []run
	var ordinals [2]int
	for i, l := range f.traces {
		end := f.events.n
		if i+1 < len(f.traces) {
			end = f.traces[i+1].first
		}
		end = min(end, f.events.n)
		if f.taken.traces[l.host] && end > l.first {
			out = append(out, run{device(l.host, ordinals[l.host]), l.first, end})
		}
		ordinals[l.host]++
	}
	return out
}

func device(host uint32, ordinal int) traces.Device {
	if host != 0 {
		return traces.Device{Kind: traces.DeviceHost, Ordinal: ordinal}
	}
	return traces.Device{Kind: traces.DeviceGPU, Ordinal: ordinal}
}

// devices numbers every device that has segments, events or marks: accelerators first, each kind by ordinal.
func (t *segmentTable) devices(b *traces.Builder, runs []run,
	marks []pending) map[traces.Device]traces.DeviceID {
	ids := map[traces.Device]traces.DeviceID{}
	for _, r := range runs {
		ids[r.device] = 0
	}
	for _, m := range t.segmentOf {
		ids[device(uint32(m.host), int(m.device))] = 0
	}
	for _, m := range marks {
		ids[device(0, int(m.device))] = 0
	}
	all := make([]traces.Device, 0, len(ids))
	for d := range ids {
		all = append(all, d)
	}
	slices.SortFunc(all, compareDevices)
	for _, d := range all {
		ids[d] = b.Device(d.Kind, d.Ordinal)
	}
	slices.SortStableFunc(runs, func(a, b run) int { return compareDevices(a.device, b.device) })
	return ids
}

func compareDevices(a, b traces.Device) int {
	if a.Kind != b.Kind {
		return int(a.Kind) - int(b.Kind)
	}
	return a.Ordinal - b.Ordinal
}
