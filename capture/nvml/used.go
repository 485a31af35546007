package nvml

import (
	"slices"
	"strings"
)

// UsedBy returns a function that returns NVML's count of a process's memory on the GPUs with the chosen
// UUIDs, nil without NVML. The library stays open: it is used once or twice a plan.
func UsedBy(pid int, chosen func(uuid string) bool) func() (int64, bool) {
	lib, err := Open(Options{})
	if err != nil {
		return nil
	}
	devices, err := lib.Devices()
	devices = slices.DeleteFunc(devices, func(d Device) bool {
		return !chosen(strings.TrimPrefix(d.UUID, "GPU-"))
	})
	if err != nil || len(devices) == 0 {
		lib.Close()
		return nil
	}
	return func() (sum int64, known bool) {
		for _, d := range devices {
			r, err := lib.Read(d.Index)
			if err != nil {
				continue
			}
			p, found := r.Process(pid)
			if n, ok := p.Used.Value(); found && ok {
				sum, known = sum+n, true
			}
		}
		return sum, known
	}
}
