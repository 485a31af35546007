// Package books splits up the memory of a whole GPU.
//
// A process's allocator knows its tensors; NVML knows how much of the device each process uses. [Books] joins
// the two with nvml.Reconcile: the parts add up to what NVML says is used. The rest is unexplained, and may
// be negative, since the two are read at different moments.
//
// The device is normally the one on which NVML lists the process. PyTorch's cuda:0 is the first device that
// CUDA_VISIBLE_DEVICES leaves, in CUDA's own order; NVML counts by PCI bus. So the number is translated only
// if NVML lists the process on several devices or, as inside a container, on none, and only if the
// translation is certain. The figures of a wrong device would add up too, and mean nothing.
//
// A reading takes NVML tens of milliseconds, too long for a screen to wait. It starts when the parts are
// asked for and is shown once it is complete. Nothing runs in between, so there is nothing to stop.
//
// The context's bound (nvml.ContextBound) needs both figures from the same moment. A reading is used if the
// allocator held as much in the steps before and after it; a cache that is emptied and refilled within a step
// goes unnoticed.
package books

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/nvml"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// readAgain is the age of a reading at which a new one starts.
const readAgain = time.Second

// manyOthers is how many other processes are named; any more form one part.
const manyOthers = 3

// Entry is one line of the split of the memory.
type Entry struct {
	Name  string
	Bytes int64
	// Derived says that the figure is a remainder or an estimate, not a reading.
	Derived bool
	// Unexplained says that we do not know what the bytes are. They may be negative, since the sum mixes
	// figures from different moments.
	Unexplained bool
	// Tensors reports whether tensors hold all of it.
	Tensors bool
}

// Books splits up the memory of the device that a process is on. Its methods are safe for concurrent use.
type Books struct {
	info func() capture.Info
	open func() (nvml.Source, error)
	root string // of the proc file system
	now  func() time.Time

	mu       sync.Mutex
	reading  bool // one is under way
	began    time.Time
	source   nvml.Source
	failed   error
	devices  []nvml.Device
	readings map[int]*nvml.Reading // by index
	own      map[int]*account      // by process
}

// account is what we remember about a process.
type account struct {
	device   maybe.Int // its index
	bound    nvml.ContextBound
	least    maybe.Int // the bound
	reserved maybe.Int // at the last step
	since    int64     // the end of the first step that held as much, in Unix time
	observed time.Time // the last reading that bound has seen
}

// New returns the books of a session's process. NVML is opened when they are first used; without it they are
// empty.
func New(s *capture.History) *Books {
	return &Books{
		info: func() capture.Info { return s.Snapshot().Info }, root: "/proc", now: time.Now,
		readings: map[int]*nvml.Reading{}, own: map[int]*account{},
		open: func() (nvml.Source, error) {
			l, err := nvml.Open(nvml.Options{}) // for as long as this program runs
			if err != nil {
				return nil, err
			}
			return l, nil
		},
	}
}

// Parts splits up the memory of the device that a process is on, by the step's figures and NVML's last
// reading. ok is false if the step has no figures of a device's allocator, there is no NVML, or no reading
// yet.
func (b *Books) Parts(pid int, s *capture.Step) (parts []Entry, whole Entry, ok bool) {
	reserved, ok := s.Reserved.Value()
	if !ok || !s.Allocated.IsKnown() || pid <= 0 {
		return nil, Entry{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.own[pid]
	if a == nil {
		a = &account{}
		b.own[pid] = a
	}
	if s.Reserved != a.reserved { // as in the first step, before which they are unknown
		a.reserved, a.since = s.Reserved, s.End
	}
	b.refresh()
	var certain bool
	a.device, certain = b.deviceOf(pid)
	at, found := a.device.Value()
	r := b.readings[int(at)]
	if !found || r == nil {
		return nil, Entry{}, false
	}
	used, known := r.Memory.Used.Value()
	if !known || !certain && used < reserved {
		return nil, Entry{}, false
	}
	if t := r.Time.UnixNano(); r.Time.After(a.observed) && a.since <= t && t <= s.End {
		if p, listed := r.Process(pid); listed {
			a.least = a.bound.Observe(p.Used, s.Reserved)
		}
		a.observed = r.Time
	}
	told := allocatorFigures(pid, s)
	told.ContextBound = a.least
	out := nvml.Reconcile(r, told)
	return namedParts(&out, s, r.ProcessesKnown && b.lists(r, pid)),
		Entry{Name: fmt.Sprintf("Used on GPU %d, by NVML", at), Bytes: used}, true
}

// OfStep splits what the device's allocator holds or, without one, resident memory. The rest is shown as
// other.
func OfStep(s *capture.Step) ([]Entry, Entry) {
	if reserved, ok := s.Reserved.Value(); ok && s.Allocated.IsKnown() {
		out := nvml.Reconcile(&nvml.Reading{}, allocatorFigures(0, s))
		return namedParts(&out, s, true), Entry{Name: "Reserved after a step", Bytes: reserved}
	}
	whole := Entry{Name: "Resident memory after a step", Bytes: s.RSS.Or(0)}
	parts := kinds(s)
	var sum int64
	for _, p := range parts {
		sum += p.Bytes
	}
	if rest := whole.Bytes - sum; rest > 0 {
		parts = append(parts, Entry{Name: "libraries, other tensors", Bytes: rest, Unexplained: true})
	}
	whole.Bytes = max(whole.Bytes, sum) // figures from different moments
	return parts, whole
}

// kinds are the kinds of tensors that a step's totals distinguish; one that was not counted is 0.
func kinds(s *capture.Step) []Entry {
	return []Entry{{Name: "parameters", Bytes: s.Parameters.Or(0), Tensors: true},
		{Name: "gradients", Bytes: s.Gradients.Or(0), Tensors: true},
		{Name: "optimizer state", Bytes: s.OptimizerState.Or(0), Tensors: true}}
}

// allocatorFigures is what a step says about its device's allocator.
func allocatorFigures(pid int, s *capture.Step) nvml.AllocatorFigures {
	return nvml.AllocatorFigures{PID: pid, Requested: counted(s.Requested), Allocated: s.Allocated,
		Active: counted(s.Active), Reserved: s.Reserved, PrivatePools: s.PoolsFree}
}

// counted returns a finer figure of an allocator, unknown if it is 0: cudaMallocAsync counts allocated and
// reserved bytes and leaves the finer ones at 0.
func counted(f maybe.Int) maybe.Int {
	if f.Or(0) <= 0 {
		return maybe.Int{}
	}
	return f
}

// refresh starts a reading unless one is under way or recent.
func (b *Books) refresh() {
	if b.reading || b.failed != nil || b.now().Sub(b.began) < readAgain {
		return
	}
	b.reading, b.began = true, b.now()
	wanted := map[int]bool{} // the devices of all processes, or all devices while one's is unknown
	for _, a := range b.own {
		at, known := a.device.Value()
		if !known {
			wanted = nil
			break
		}
		wanted[int(at)] = true
	}
	go b.read(b.source, b.devices, wanted)
}

// read reads the wanted devices, or all.
func (b *Books) read(source nvml.Source, devices []nvml.Device, wanted map[int]bool) {
	var err error
	if source == nil {
		if source, err = b.open(); err == nil {
			devices, err = source.Devices()
		}
	}
	readings := map[int]*nvml.Reading{}
	for _, d := range devices {
		if err != nil || d.Err != nil || wanted != nil && !wanted[d.Index] {
			continue
		}
		// a device that does not answer has no reading: an old one says nothing about now
		if r, err := source.Read(d.Index); err == nil {
			readings[d.Index] = &r
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source, b.devices, b.failed, b.readings, b.reading = source, devices, err, readings, false
}

func (b *Books) lists(r *nvml.Reading, pid int) bool {
	_, ok := r.Process(pid)
	return ok
}

// deviceOf returns the index of the device that a process is on; certain says that NVML itself reports it.
func (b *Books) deviceOf(pid int) (index maybe.Int, certain bool) {
	var listed []int
	for _, d := range b.devices {
		if r := b.readings[d.Index]; r != nil && b.lists(r, pid) {
			listed = append(listed, d.Index)
		}
	}
	if len(listed) == 1 {
		return maybe.Known(int64(listed[0])), true
	}
	t := b.info()
	kind, text, _ := strings.Cut(t.Device, ":")
	ordinal, err := strconv.Atoi(text)
	if text == "" {
		ordinal, err = 0, nil
	}
	if t.PID != pid || kind != "cuda" || err != nil || ordinal < 0 {
		return maybe.Int{}, false
	}
	index = visibleDevice(b.devices, ordinal, procs.Variables(filepath.Join(b.root, strconv.Itoa(pid))))
	for _, i := range listed {
		if index == maybe.Known(int64(i)) {
			return index, true
		}
	}
	if len(listed) > 0 {
		return maybe.Int{}, false
	}
	return index, false
}

// visibleDevice returns NVML's index of the device with a CUDA number in a process with that environment,
// unknown if that is not certain.
func visibleDevice(devices []nvml.Device, ordinal int, env map[string]string) maybe.Int {
	// CUDA orders by speed, and equal devices by bus as well
	alike := env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
	if !alike {
		alike = true
		for _, d := range devices {
			alike = alike && d.Name == devices[0].Name
		}
	}
	list, limited := env["CUDA_VISIBLE_DEVICES"]
	if !limited {
		if ordinal < len(devices) && (alike || len(devices) == 1) {
			return maybe.Known(int64(devices[ordinal].Index))
		}
		return maybe.Int{}
	}
	words := strings.Split(list, ",")
	if ordinal >= len(words) {
		return maybe.Int{}
	}
	word := strings.TrimSpace(words[ordinal])
	if n, err := strconv.Atoi(word); err == nil {
		if n >= 0 && n < len(devices) && alike {
			return maybe.Known(int64(devices[n].Index))
		}
		return maybe.Int{}
	}
	for _, d := range devices { // a prefix of the UUID is enough for CUDA
		if strings.HasPrefix(word, "GPU-") && strings.HasPrefix(d.UUID, word) {
			return maybe.Known(int64(d.Index))
		}
	}
	return maybe.Int{}
}

// namedParts gives the split the words of the live view, with the known kinds of tensors as separate parts;
// listed says whether NVML lists the process.
func namedParts(r *nvml.Reconciliation, s *capture.Step, listed bool) []Entry {
	var parts []Entry
	add := func(name string, bytes int64, derived, unexplained bool) {
		if bytes != 0 {
			parts = append(parts, Entry{Name: name, Bytes: bytes, Derived: derived, Unexplained: unexplained})
		}
	}
	others := slices.DeleteFunc(slices.Clone(r.Entries),
		func(p nvml.Entry) bool { return p.Name != nvml.OtherProcesses })
	total, _ := r.Bytes(nvml.OtherProcesses)
	for _, p := range r.Entries {
		switch p.Name {
		case nvml.Tensors:
			rest, name := p.Bytes, "other tensors and rounding"
			if counted(s.Requested).IsKnown() { // then rounding is a separate part
				name = "other tensors"
			}
			for _, t := range kinds(s) {
				n := min(t.Bytes, rest) // counted at another step, they may be more than now
				add(t.Name, n, false, false)
				rest -= n
			}
			add(name, rest, true, false)
		case nvml.OtherProcesses: // the first stands for all
			if total == 0 {
				continue
			}
			shown := others
			if len(others) > manyOthers {
				shown = others[:manyOthers-1]
			}
			for _, o := range shown {
				add(otherName(o), o.Bytes, false, false)
				total -= o.Bytes
			}
			add(fmt.Sprintf("%d other processes", len(others)-len(shown)), total, false, false)
			total = 0
		case nvml.Unexplained:
			name := string(p.Name)
			if !listed {
				name = "context, other processes, unexplained"
			}
			add(name, p.Bytes, true, true)
		case nvml.OutsidePyTorch:
			add("CUDA context and libraries", p.Bytes, true, false)
		case nvml.PrivatePool:
			add(poolsName(s), p.Bytes, false, false)
		case nvml.Cached:
			name := string(p.Name)
			if !s.PoolsFree.IsKnown() {
				name += " and private pools"
			}
			add(name, p.Bytes, false, false)
		default:
			add(string(p.Name), p.Bytes, p.Derived, false)
		}
	}
	return parts
}

// poolsName labels what private pools hold, with the figure's age unless it was counted at the step's end.
func poolsName(s *capture.Step) string {
	at := s.PoolsAt.Or(s.End)
	if at >= s.Start {
		return string(nvml.PrivatePool)
	}
	return fmt.Sprintf("%s, %d s ago", nvml.PrivatePool, (s.End-at)/int64(time.Second))
}

func otherName(p nvml.Entry) string {
	if p.Process == "" {
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("%s (%d)", filepath.Base(p.Process), p.PID)
}
