package nsys

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// nvtxRange is a push-pop or start-end range of the shown process.
type nvtxRange struct {
	start, end int64
	name       string
	thread     int64
	nested     bool // a push-pop range: those of one thread nest
}

// work is a kernel, a copy or a memory set.
type work struct {
	start, end int64
	name       traces.StringID
	ordinal    int64
	stream     int64
}

// The event types of NVTX ranges, by ENUM_NSYS_EVENT_TYPE. They have been the same in all versions.
const (
	nvtxPushPop  = 59
	nvtxStartEnd = 60
)

// sound reports whether start and end bound a range.
func sound(start, end int64) bool { return start >= 0 && start <= end && end < math.MaxInt64/2 }

// ours reports whether a serialized id, -1 for none, belongs to the shown process.
func (x *reader) ours(global int64) bool {
	return global < 0 || x.process < 0 || processOf(global) == x.process
}

func (x *reader) readRanges() error {
	columns := []string{"start", "end", "eventType", "text", "textId", "globalTid"}
	return x.db.each("NVTX_EVENTS", columns, 3, func(r row) {
		kind := r.int(2)
		if kind != nvtxPushPop && kind != nvtxStartEnd || r.null(1) || !x.ours(r.id(5)) {
			return
		}
		n := nvtxRange{start: r.int(0), end: r.int(1), name: r.text(3), thread: r.id(5),
			nested: kind == nvtxPushPop}
		if n.name == "" {
			n.name = x.strings[r.int(4)]
		}
		if n.name != "" && sound(n.start, n.end) {
			x.ranges = append(x.ranges, n)
		}
	})
}

func (x *reader) readKernels() error {
	columns := []string{"start", "end", "deviceId", "streamId", "globalPid", "demangledName", "shortName"}
	return x.db.each("CUPTI_ACTIVITY_KIND_KERNEL", columns, 3, func(r row) {
		name := x.strings[r.int(5)]
		if name == "" {
			name = x.named(r.int(6))
		}
		x.addActivity(r, name)
	})
}

func (x *reader) readCopies() error {
	labels := map[int64]string{}
	err := x.db.each("ENUM_CUDA_MEMCPY_OPER", []string{"id", "label"}, 2, func(r row) {
		labels[r.int(0)] = r.text(1)
	})
	if err != nil {
		return err
	}
	columns := []string{"start", "end", "deviceId", "streamId", "globalPid", "copyKind"}
	return x.db.each("CUPTI_ACTIVITY_KIND_MEMCPY", columns, 3, func(r row) {
		x.addActivity(r, strings.TrimSpace("Memcpy "+labels[r.int(5)]))
	})
}

func (x *reader) readSets() error {
	columns := []string{"start", "end", "deviceId", "streamId", "globalPid"}
	return x.db.each("CUPTI_ACTIVITY_KIND_MEMSET", columns, 3, func(r row) { x.addActivity(r, "Memset") })
}

// addActivity takes a row whose first columns are start, end, deviceId, streamId and globalPid.
func (x *reader) addActivity(r row, name string) {
	w := work{start: r.int(0), end: r.int(1), ordinal: r.int(2), stream: max(r.int(3), 0)}
	if x.ours(r.id(4)) && sound(w.start, w.end) && len(x.work) < math.MaxInt32 {
		w.name = x.b.String(name)
		x.work = append(x.work, w)
	}
}

// opName returns the name of the PyTorch op that a range stands for: emit_nvtx names its ranges
// "aten::addmm, seq = 12, sizes = ...".
func opName(name string) (string, bool) {
	if !strings.HasPrefix(name, "aten::") && !strings.HasPrefix(name, "autograd::") {
		return "", false
	}
	name, _, _ = strings.Cut(name, ",")
	return name, true
}

// addMarks makes marks of the ranges that are not ops, and of calls that found no memory.
func (x *reader) addMarks() {
	for _, r := range x.ranges {
		if _, op := opName(r.name); op {
			continue
		}
		x.b.T.Marks = append(x.b.T.Marks, traces.Mark{Start: r.start - x.zero, End: r.end - x.zero,
			Name: x.b.String(r.name), Device: x.gpu})
	}
	for _, c := range x.failed {
		x.b.T.Marks = append(x.b.T.Marks, traces.Mark{Start: c.start - x.zero, End: c.start - x.zero,
			Name: x.b.String(c.name + " found no memory"), Device: x.gpu})
	}
}

// addWork makes ops of the ranges that stand for ops and of the work on GPUs, in start order.
func (x *reader) addWork() {
	ops := make([]traces.Op, 0, len(x.work))
	for _, w := range x.work {
		op := traces.Op{Start: w.start - x.zero, Duration: w.end - w.start, Name: w.name,
			Stack:  traces.NoStack,
			Parent: traces.NoOp, Thread: -1, Device: x.deviceOf(w.ordinal)}
		if w.stream != 0 {
			op.Stream = x.b.Stream(uint64(w.stream))
		}
		ops = append(ops, op)
	}
	for _, r := range x.ranges {
		if name, is := opName(r.name); is {
			ops = append(ops, traces.Op{Start: r.start - x.zero, Duration: r.end - r.start,
				Name:  x.b.String(name),
				Stack: traces.NoStack, Parent: traces.NoOp, Thread: int32(r.thread & (1<<24 - 1)),
				Device: x.gpu})
		}
	}
	slices.SortStableFunc(ops, func(a, b traces.Op) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Duration, a.Duration))
	})
	nestOps(ops)
	x.b.T.Ops = ops
}

// nestOps sets the parents of the ops of threads, which come in start order, the longer first.
func nestOps(ops []traces.Op) {
	open := map[int32][]traces.OpID{}
	for i := range ops {
		op := &ops[i]
		if op.Thread < 0 {
			continue
		}
		stack := open[op.Thread]
		for len(stack) > 0 {
			if up := ops[stack[len(stack)-1]]; up.Start+up.Duration > op.Start {
				break
			}
			stack = stack[:len(stack)-1]
		}
		if len(stack) > 0 {
			op.Parent = stack[len(stack)-1]
		}
		open[op.Thread] = append(stack, traces.OpID(i))
	}
}

// deviceOf returns the GPU of an ordinal if it has memory events, else the primary device: a GPU without
// memory would be shown empty.
func (x *reader) deviceOf(ordinal int64) traces.DeviceID {
	for i, d := range x.b.T.Devices {
		if d.Kind == traces.DeviceGPU && int64(d.Ordinal) == ordinal {
			return traces.DeviceID(i)
		}
	}
	return x.gpu
}
