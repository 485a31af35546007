// Package pprof reads the device memory profiles of JAX and XLA (jax.profiler.save_device_memory_profile):
// pprof protobufs whose samples have the types allocations and space, one sample for each call site, kind and
// device. Such a profile shows one moment: the trace has no events, and a Final state with one segment for
// each device, whose blocks each stand for all live allocations of one site.
//
// The profile has no addresses and no segments. The reader makes up both, to distinguish blocks. A device's
// segment is as large as its blocks together, which says nothing about what the allocator holds from the
// driver: the timeline shows no reserve.
//
// pprof files are compressed with gzip; traces/load unpacks them, and this package reads the plain protobuf.
package pprof

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

const formatName = traces.FormatJAX

const maxBytes = 1 << 30

// Sniff reports whether head begins with the first sample type of a pprof protobuf. It may be a profile of
// anything: Read refuses one that is not of memory.
func Sniff(head []byte) bool {
	// Field 1, a message of at most 127 bytes, which begins with field 1 and continues with field 2, both
	// numbers.
	if len(head) < 6 || head[0] != 0x0a || head[1] < 4 || head[1] > 22 || head[2] != 0x08 {
		return false
	}
	i := 3
	for i < len(head) && head[i] >= 0x80 {
		i++
	}
	return i+1 < len(head) && head[i+1] == 0x10
}

// Read reads a profile. progress, if not nil, is called once with the number of bytes read.
func Read(ctx context.Context, r io.Reader, progress func(done int64)) (*traces.Trace, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxBytes {
		return nil, &traces.FormatError{Format: formatName, Offset: maxBytes,
			Reason: "the profile is larger than 1 GiB"}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if progress != nil {
		progress(int64(len(data)))
	}
	p, err := parse(data)
	if err != nil {
		return nil, &traces.FormatError{Format: formatName, Offset: -1,
			Reason: "the profile cannot be decoded", Err: err,
			Advice: "save it again with jax.profiler.save_device_memory_profile"}
	}
	count, space, err := columns(p)
	if err != nil {
		return nil, err
	}
	w := newWriter(p)
	w.number(p.Sample, space)
	for i, s := range p.Sample {
		if i%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		w.add(s, count, space)
	}
	w.place()
	w.segments()
	return w.b.Finish(), nil
}

// parse decodes the protobuf. The library expects profiles from trusted programs; parse turns a panic on a
// hostile one into an error.
func parse(data []byte) (p *profile.Profile, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("%v", r)
		}
	}()
	if p, err = profile.ParseUncompressed(data); err != nil {
		return nil, err
	}
	return p, p.CheckValid()
}

// columns finds the two values of each sample; count is -1 where the profile only has bytes.
func columns(p *profile.Profile) (count, space int, err error) {
	count, space = -1, -1
	var types []string
	for i, t := range p.SampleType {
		types = append(types, t.Type+"/"+t.Unit)
		switch {
		case t.Type == "space" && t.Unit == "bytes":
			space = i
		case t.Type == "allocations":
			count = i
		}
	}
	if space >= 0 {
		return count, space, nil
	}
	return 0, 0, fmt.Errorf("jax_memory_profile: %w: this pprof profile measures %s, not the space of "+
		"device buffers: "+
		"save one with jax.profiler.save_device_memory_profile", traces.ErrUnsupported,
		strings.Join(types, " and "))
}

// row is a sample that becomes a block.
type row struct {
	device  traces.DeviceID
	nowhere bool // the sample does not say its device
	block   traces.Block
}

type writer struct {
	b       *traces.Builder
	devices map[string]traces.DeviceID
	rows    []row
	total   int64
}

func newWriter(p *profile.Profile) *writer {
	w := &writer{b: traces.NewBuilder(), devices: map[string]traces.DeviceID{}}
	w.b.T.Source.Format, w.b.T.Source.Tool = formatName, "jax.profiler"
	w.b.T.Source.SyntheticAddresses = true
	w.b.T.Clock = traces.Clock{Epoch: max(p.TimeNanos, 0)}
	w.b.T.Final.Known = true
	for _, c := range p.Comments {
		raw, err := json.Marshal(c)
		if err == nil {
			w.b.T.Settings = append(w.b.T.Settings, traces.Setting{Key: "comment", Value: string(raw)})
		}
	}
	return w
}

func (w *writer) add(s *profile.Sample, count, space int) {
	size, n := s.Value[space], int64(1)
	if count >= 0 {
		n = s.Value[count]
	}
	if size < 0 || n < 0 || size > 1<<50-w.total {
		w.b.Lose("samples_malformed", traces.DataLoss, 1, "samples with a negative or impossible size")
		return
	}
	if size == 0 {
		w.b.Lose("samples_empty", traces.Info, 1, "samples of 0 bytes are left out")
		return
	}
	w.total += size
	b := traces.Block{Size: size, Requested: maybe.Known(size), Stack: w.stack(s),
		State: traces.BlockAllocated}
	b.Count = int32(min(max(n, 1), math.MaxInt32))
	b.Extra = w.extra(s)
	name := label(s, "device")
	r := row{nowhere: name == "", block: b}
	if !r.nowhere {
		r.device = w.device(name)
	}
	w.rows = append(w.rows, r)
}

func label(s *profile.Sample, key string) string {
	if v := s.Label[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// extra returns the labels, above all kind (buffer or executable), as a JSON object.
func (w *writer) extra(s *profile.Sample) traces.StringID {
	m := map[string]string{}
	for k, v := range s.Label {
		if k != "device" {
			m[k] = strings.Join(v, ",")
		}
	}
	if len(m) == 0 {
		return 0
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return 0
	}
	return w.b.String(string(raw))
}

// device makes a device from a label such as cuda:0, TFRT_CPU_0 or TPU_3(process=0,(1,1,0,0)), which name the
// backend: its first number is the ordinal. A second label with the same number gets the next free one.
func (w *writer) device(name string) traces.DeviceID {
	if id, ok := w.devices[name]; ok {
		return id
	}
	kind := traces.DeviceGPU
	switch lower := strings.ToLower(name); {
	case strings.Contains(lower, "cpu"):
		kind = traces.DeviceCPU
	case strings.Contains(lower, "tpu"):
		kind = traces.DeviceTPU
	}
	ordinal := firstNumber(name)
	taken := func() bool {
		return slices.ContainsFunc(w.b.T.Devices, func(d traces.Device) bool {
			return d.Kind == kind && d.Ordinal == ordinal && d.Name != ""
		})
	}
	for name != "" && taken() && ordinal < math.MaxInt32 {
		ordinal++
	}
	id := w.b.Device(kind, ordinal)
	if name != "" {
		w.b.T.Devices[id].Name = name
	}
	w.devices[name] = id
	return id
}

func firstNumber(s string) int {
	start := strings.IndexAny(s, "0123456789")
	if start < 0 {
		return 0
	}
	end := start
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(s[start:end])
	if err != nil || n > 1<<20 {
		return 0
	}
	return n
}

// stack interns a sample's frames, which pprof lists innermost first, inlined ones inside a location too.
// An executable has none, and goes under a frame that says so.
func (w *writer) stack(s *profile.Sample) traces.StackID {
	const most = 1024
	var ids []traces.FrameID
	if len(s.Location) == 0 && label(s, "kind") == "executable" {
		ids = append(ids, w.b.Frame(traces.Frame{Func: w.b.String("compiled programs")}))
	}
	for _, loc := range s.Location {
		for _, line := range loc.Line {
			if line.Function == nil || len(ids) == most {
				continue
			}
			ids = append(ids, w.b.Frame(traces.Frame{
				Func: w.b.String(line.Function.Name), File: w.b.String(line.Function.Filename),
				Line: int32(min(max(line.Line, 0), math.MaxInt32)),
			}))
		}
	}
	return w.b.Stack(ids)
}

// number gives the devices their ids in the order of their ordinals.
func (w *writer) number(samples []*profile.Sample, space int) {
	seen := map[string]bool{"": true}
	var names []string
	for _, s := range samples {
		if name := label(s, "device"); !seen[name] && s.Value[space] > 0 {
			seen[name] = true
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(firstNumber(a), firstNumber(b)), strings.Compare(a, b))
	})
	for _, name := range names {
		w.device(name)
	}
}

// place gives samples without a device, which are executables, to the accelerator of the lowest ordinal, else
// to the first device of any kind.
func (w *writer) place() {
	home := traces.DeviceID(0)
	devices := w.b.T.Devices
	for i, d := range devices {
		best := devices[home]
		if d.Kind.Accelerator() && (!best.Kind.Accelerator() || d.Ordinal < best.Ordinal) {
			home = traces.DeviceID(i)
		}
	}
	for i := range w.rows {
		if !w.rows[i].nowhere {
			continue
		}
		if len(devices) == 0 {
			home = w.b.Device(traces.DeviceGPU, 0)
			devices = w.b.T.Devices
		}
		w.rows[i].device = home
	}
}

// segments puts each device's blocks one after the other into one segment.
func (w *writer) segments() {
	slices.SortStableFunc(w.rows, func(a, b row) int { return int(a.device) - int(b.device) })
	final := &w.b.T.Final
	for i, r := range w.rows {
		if i == 0 || w.rows[i-1].device != r.device {
			final.Segments = append(final.Segments, traces.Segment{
				Address: uint64(len(final.Segments)+1) << 48, Device: r.device, Stack: traces.NoStack,
				FirstBlock: int32(i)})
		}
		s := &final.Segments[len(final.Segments)-1]
		r.block.Address = s.Address + uint64(s.TotalSize)
		s.TotalSize += r.block.Size
		s.AllocatedSize, s.ActiveSize, s.Wanted = s.TotalSize, s.TotalSize, s.TotalSize
		s.EndBlock = int32(i + 1)
		final.Blocks = append(final.Blocks, r.block)
	}
}
