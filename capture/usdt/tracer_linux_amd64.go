package usdt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/gmemtop/gmemtop/traces"
)

func supported() error { return nil }

// monotonic returns the clock that the kernel program reads.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock exists on every Linux
	}
	return ts.Nano()
}

// tryLoading loads the kernel program and its tables into the kernel and removes them again.
func tryLoading(h host) error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return h.refused("lift the limit of locked memory", err)
	}
	spec, err := loadProbe()
	if err != nil {
		return err
	}
	spec.Maps[probeMapEvents].MaxEntries = 1 << 12
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return h.refused("load the probes' program", err)
	}
	loaded.Close()
	return nil
}

// wakeupBytes is how full the ring buffer is when the reader is woken early.
const wakeupBytes = 1 << 16

// kernelTracer holds the attached probes. It keeps their links, since a garbage-collected link detaches.
type kernelTracer struct {
	maps   map[string]*ebpf.Map
	links  []link.Link
	progs  []*ebpf.Program
	reader *ringbuf.Reader
	record ringbuf.Record
	pidfd  int
	stacks *symbolizer // nil without stacks
}

// attach loads one copy of the kernel program for each site and attaches it, while the process runs on. After
// an error nothing is left.
func attach(o Options, sites []Site) (_ tracer, err error) {
	h := thisHost(o.root)
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, h.refused("lift the limit of locked memory", err)
	}
	pidfd, err := unix.PidfdOpen(o.PID, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %d (%w)", ErrNoProcess, o.PID, err)
	}
	t := &kernelTracer{pidfd: pidfd, maps: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	spec, err := loadProbe()
	if err != nil {
		return nil, err
	}
	spec.Maps[probeMapEvents].MaxEntries = uint32(o.RingBytes)
	for _, name := range []string{probeMapEvents, probeMapCalls, probeMapStacks, probeMapLost} {
		m, err := ebpf.NewMap(spec.Maps[name])
		if err != nil {
			return nil, h.refused("make a table in the kernel", err)
		}
		t.maps[name] = m
	}
	if t.reader, err = ringbuf.NewReader(t.maps[probeMapEvents]); err != nil {
		return nil, h.refused("open the ring buffer", err)
	}
	if o.Stacks {
		t.stacks = newSymbolizer(o.root, o.PID, t.maps[probeMapStacks])
	}
	// Frees first: otherwise allocations seen before the probe on frees is attached would seem to leak.
	for i := len(sites) - 1; i >= 0; i-- {
		if err := t.put(spec, o, uint32(i), &sites[i]); err != nil {
			if !t.alive() {
				return nil, fmt.Errorf("%w: %d ended while attaching the probes", ErrNoProcess, o.PID)
			}
			return nil, h.refused("put a probe on "+sites[i].Name, err)
		}
	}
	return t, nil
}

// put loads the programs of a site and attaches them: by a BPF link, which needs CAP_BPF and CAP_PERFMON, and
// on older kernels through perf, which needs CAP_SYS_ADMIN.
func (t *kernelTracer) put(shared *ebpf.CollectionSpec, o Options, id uint32, s *Site) error {
	if !o.perf && thisHost(o.root).hasLinks() {
		if err := t.putBy(shared, o, id, s, true); !errors.Is(err, ebpf.ErrNotSupported) {
			return err
		}
	}
	return t.putBy(shared, o, id, s, false)
}

func (t *kernelTracer) putBy(shared *ebpf.CollectionSpec, o Options, id uint32, s *Site, multi bool) error {
	spec := shared.Copy()
	for name, value := range map[string]any{
		probeVarSiteId: id, probeVarWakeupBytes: uint64(wakeupBytes), probeVarWantStack: o.Stacks,
		probeVarArgAddr: kernelOperand(s.addr), probeVarArgSize: kernelOperand(s.size),
		probeVarArgStream: kernelOperand(s.stream),
		probeVarArgDevice: kernelOperand(s.device), probeVarArgPitch: kernelOperand(s.pitch),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	names := []string{probeProgSite}
	if s.out {
		// the return first: an entry without it would leave its call in the map
		names = []string{probeProgLeave, probeProgEnter}
	}
	wanted := map[string]*ebpf.ProgramSpec{}
	for _, name := range names {
		wanted[name] = spec.Programs[name]
		if multi {
			wanted[name].AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	spec.Programs = wanted
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: t.maps})
	if err != nil {
		return err
	}
	defer loaded.Close()
	file, err := link.OpenExecutable(s.path)
	if err != nil {
		return err
	}
	for _, name := range names {
		l, err := attachTo(file, loaded.Programs[name], o.PID, s, name == probeProgLeave, multi)
		if err != nil {
			return err
		}
		t.links = append(t.links, l)
		t.progs = append(t.progs, loaded.DetachProgram(name))
	}
	return nil
}

func attachTo(file *link.Executable, p *ebpf.Program, pid int, s *Site, leaves,
	multi bool) (link.Link, error) {
	if multi {
		at := &link.UprobeMultiOptions{PID: uint32(pid), Addresses: []uint64{s.Offset}}
		if s.Semaphore != 0 {
			at.RefCtrOffsets = []uint64{s.Semaphore}
		}
		if leaves {
			return file.UretprobeMulti(nil, p, at)
		}
		return file.UprobeMulti(nil, p, at)
	}
	at := &link.UprobeOptions{PID: pid, Address: s.Offset, RefCtrOffset: s.Semaphore}
	if leaves {
		return file.Uretprobe("", p, at)
	}
	return file.Uprobe("", p, at)
}

func kernelOperand(o operand) probeOperand {
	k := probeOperand{Value: o.value, Kind: uint8(o.kind), Base: o.base, Index: o.index, Scale: o.scale,
		Size: o.size, Shift: o.shift}
	if o.signed {
		k.IsSigned = 1
	}
	return k
}

// eventBytes is the size of struct event.
const eventBytes = 56

func (t *kernelTracer) read(d time.Duration, take func(event) bool) error {
	t.reader.SetDeadline(time.Now().Add(d))
	for {
		err := t.reader.ReadInto(&t.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the ring buffer: %w", err)
		}
		b := t.record.RawSample
		if len(b) < eventBytes {
			return fmt.Errorf("read the ring buffer: an event of %d bytes, want %d", len(b), eventBytes)
		}
		u64, u32 := binary.LittleEndian.Uint64, binary.LittleEndian.Uint32
		e := event{time: int64(u64(b)), addr: u64(b[8:]), size: u64(b[16:]), stream: u64(b[24:]),
			thread: u32(b[32:]), stack: int32(u32(b[36:])),
			result: int32(u32(b[40:])), device: int32(u32(b[44:])), site: u32(b[48:])}
		if !take(e) {
			return nil
		}
	}
}

func (t *kernelTracer) lost() (sum [lossKinds]int64) {
	for i := range sum {
		var each []uint64
		if err := t.maps[probeMapLost].Lookup(uint32(i), &each); err != nil {
			continue // the map always has all of its entries: it is closed
		}
		for _, n := range each {
			sum[i] += int64(n)
		}
	}
	return sum
}

// alive asks the process's pidfd, which a later process with the same number does not share.
func (t *kernelTracer) alive() bool {
	fds := []unix.PollFd{{Fd: int32(t.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err != nil || n == 0
}

func (t *kernelTracer) resolver() func(*traces.Builder, int32) traces.StackID {
	if t.stacks == nil {
		return nil
	}
	return t.stacks.stack
}

func (t *kernelTracer) close() error {
	var errs []error
	// each waits until no processor can be in its probe; they cannot be closed at once
	for _, l := range t.links {
		errs = append(errs, l.Close())
	}
	for _, p := range t.progs {
		errs = append(errs, p.Close())
	}
	if t.reader != nil {
		errs = append(errs, t.reader.Close())
	}
	for _, m := range t.maps {
		errs = append(errs, m.Close())
	}
	errs = append(errs, unix.Close(t.pidfd))
	return errors.Join(errs...)
}
