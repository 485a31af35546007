package nsys

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

const memoryTable = "CUDA_GPU_MEMORY_USAGE_EVENTS"

// memory is one memory event.
type memory struct {
	time, size, address int64
	correlation         int64 // of the call that caused it, -1 if unknown
	process             int64
	pool                int64 // of the stream-ordered allocator, 0 for none
	stream              int64 // 0 if unknown
	on                  traces.Device
	device              traces.DeviceID // of on, once the process is chosen
	note                traces.StringID // the variable of static memory, else its kind, "" for plain
	free                bool
}

// memoryKinds are the kinds of memory by the names in ENUM_CUDA_MEM_KIND, without their prefix.
var memoryKinds = map[string]struct {
	device traces.DeviceKind
	note   string
}{
	"PAGEABLE":       {traces.DeviceCPU, ""},
	"PINNED":         {traces.DeviceHost, ""},
	"DEVICE":         {traces.DeviceGPU, ""},
	"ARRAY":          {traces.DeviceGPU, "array"},
	"MANAGED":        {traces.DeviceGPU, "managed"},
	"DEVICE_STATIC":  {traces.DeviceGPU, "static"},
	"MANAGED_STATIC": {traces.DeviceGPU, "managed static"},
}

// Prefixes of the names in the tables of enumerations.
const (
	kindPrefix = "CUDA_MEMOPR_MEMORY_KIND_"
	operPrefix = "CUDA_DEV_MEM_EVENT_OPR_"
)

// The enumerations as they are documented, for exports that lack their tables.
var (
	documentedKinds = map[int64]string{0: "PAGEABLE", 1: "PINNED", 2: "DEVICE", 3: "ARRAY", 4: "MANAGED",
		5: "DEVICE_STATIC", 6: "MANAGED_STATIC", 7: "UNKNOWN"}
	documentedOperations = map[int64]string{0: "ALLOCATION", 1: "DEALLOCATION"}
)

// enumeration reads a table of names; documented is what holds without it.
func (x *reader) enumeration(table, prefix string, documented map[int64]string) (map[int64]string, error) {
	if !x.db.has(table) {
		return documented, nil
	}
	names := map[int64]string{}
	err := x.db.each(table, []string{"id", "name", "label"}, 1, func(r row) {
		name := strings.TrimPrefix(r.text(1), prefix)
		if name == "" { // the label is the name in words
			name = strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(r.text(2)))
		}
		names[r.int(0)] = name
	})
	if len(names) == 0 {
		return documented, err
	}
	return names, err
}

// readMemory reads the memory events of the process that allocated most.
func (x *reader) readMemory() error {
	kinds, err := x.enumeration("ENUM_CUDA_MEM_KIND", kindPrefix, documentedKinds)
	if err != nil {
		return err
	}
	operations, err := x.enumeration("ENUM_CUDA_DEV_MEM_EVENT_OPER", operPrefix, documentedOperations)
	if err != nil {
		return err
	}
	took := map[int64]int64{}
	columns := []string{"start", "bytes", "memKind", "memoryOperationType", "address", "deviceId",
		"globalPid",
		"correlationId", "streamId", "name", "localMemoryPoolAddress"}
	err = x.db.each(memoryTable, columns, 5, func(r row) {
		m := memory{time: r.int(0), size: r.int(1), address: r.int(4), process: processOf(r.id(6)),
			correlation: r.id(7), stream: max(r.int(8), 0), pool: r.int(10)}
		kind, known := memoryKinds[kinds[r.int(2)]]
		oper := operations[r.int(3)]
		ordinal := r.int(5)
		switch {
		case m.size < 0 || m.size > 1<<50 || m.time < 0 || m.time > math.MaxInt64/2:
			x.b.Lose("events_malformed", traces.DataLoss, 1, "events without a sound time or size")
			return
		case !known || oper != "ALLOCATION" && oper != "DEALLOCATION":
			x.b.Lose("events_unknown", traces.DataLoss, 1,
				"events of a kind of memory or an operation that this version does not know")
			return
		case kind.device != traces.DeviceGPU || ordinal < 0 || ordinal > 1<<20:
			ordinal = 0
		}
		m.free = oper == "DEALLOCATION"
		m.on = traces.Device{Kind: kind.device, Ordinal: int(ordinal)}
		m.note = x.b.String(cmp.Or(r.text(9), kind.note))
		if !m.free {
			took[m.process] += m.size
		}
		x.memory = append(x.memory, m)
	})
	x.process = largest(took)
	x.keepProcess()
	x.addDevices()
	slices.SortStableFunc(x.memory, func(a, b memory) int { return cmp.Compare(a.time, b.time) })
	x.gpu = x.primary()
	return err
}

// largest returns the process that took most, -1 if there is none.
func largest(took map[int64]int64) int64 {
	best := int64(-1)
	for p, n := range took {
		if best < 0 || n > took[best] || n == took[best] && p < best {
			best = p
		}
	}
	return best
}

// keepProcess drops the events of other processes, which may use the same addresses for different memory.
func (x *reader) keepProcess() {
	x.memory = slices.DeleteFunc(x.memory, func(m memory) bool {
		if m.process == x.process {
			return false
		}
		x.b.Lose("other_processes", traces.DataLoss, 1,
			"of several processes in the export, the one that allocated most is shown; these are the others'")
		return true
	})
}

// addDevices gives the events their devices, GPUs first.
func (x *reader) addDevices() {
	var all []traces.Device
	for i := range x.memory {
		if d := x.memory[i].on; !slices.Contains(all, d) && len(all) < traces.MaxDevices {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b traces.Device) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	for _, d := range all {
		x.b.Device(d.Kind, d.Ordinal)
	}
	for i := range x.memory {
		m := &x.memory[i]
		m.device = x.b.Device(m.on.Kind, m.on.Ordinal)
	}
}

// primary is the GPU on which the shown process allocated most, or else the first device with events.
func (x *reader) primary() traces.DeviceID {
	var took [traces.MaxDevices]int64
	for _, m := range x.memory {
		if !m.free {
			took[m.device] += m.size
		}
	}
	best := traces.DeviceID(0)
	if len(x.memory) > 0 {
		best = x.memory[0].device
	}
	for i, d := range x.b.T.Devices {
		gpu, bestGPU := d.Kind == traces.DeviceGPU, x.b.T.Devices[best].Kind == traces.DeviceGPU
		if took[i] > 0 && (gpu && !bestGPU || gpu == bestGPU && took[i] > took[best]) {
			best = traces.DeviceID(i)
		}
	}
	return best
}

// blockKey names a live block.
type blockKey struct {
	device  traces.DeviceID
	address int64
}

func (x *reader) addEvents() {
	x.b.T.Events.Grow(len(x.memory))
	live := map[blockKey]int64{}
	stacks := x.stacks()
	for i := range x.memory {
		m := &x.memory[i]
		e := traces.Event{Time: m.time - x.zero, Addr: uint64(m.address), Size: m.size, Device: m.device,
			Action: traces.Alloc, Stack: traces.NoStack}
		key := blockKey{m.device, m.address}
		if m.free {
			e.Action = traces.Free
			if size, ok := live[key]; ok && m.size == 0 {
				e.Size = size
			}
			delete(live, key)
		} else {
			live[key] = m.size
		}
		if stack, ok := stacks[m.correlation]; ok {
			e.Stack = stack
		}
		if m.stream != 0 {
			e.Stream = x.b.Stream(uint64(m.stream))
		}
		d := traces.Detail{ForwardStack: traces.NoStack, UserMetadata: m.note}
		if m.pool != 0 {
			d.Pool, d.HasPool = traces.Pool{Second: m.pool}, true
		}
		if c := x.calls[m.correlation]; c != nil {
			d.Op = x.b.String(c.name)
		}
		e.Detail = x.b.Detail(d)
		x.b.Event(e)
	}
}
