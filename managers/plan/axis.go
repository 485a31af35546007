package plan

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// events makes a position of every tick. A step repeats, so the time before its first tick counts after its
// last one: all positions together then take as long as the step.
func (x *extractor) events(first, end int, around idle) {
	for i := first; i < end; i++ {
		t := x.ticks[i]
		op := Op{Workspace: NoBuffer, First: int32(len(x.p.Accesses))}
		if next := i + 1; next < len(x.ticks) {
			op.Duration = max(x.ticks[next].time-t.time, 0)
		}
		if i == end-1 && around != (idle{}) {
			op.Duration = around.behind + around.before
		}
		switch t.kind {
		case tickAlloc:
			op.Name = "alloc"
			x.bound(t, OpID(len(x.p.Ops)))
		case tickFree:
			op.Name = "free"
			x.bound(t, OpID(len(x.p.Ops)))
		case tickAccess:
			a := &x.tr.Accesses[t.row]
			op.Name = a.Mode.String()
			if b, ok := x.touched(t, a); ok {
				x.p.Accesses = append(x.p.Accesses, Access{Buffer: b, Mode: modeOf(a.Mode)})
			}
		}
		op.End = int32(len(x.p.Accesses))
		op.Phase = x.phase(t)
		x.p.Ops = append(x.p.Ops, op)
	}
	x.noteAccesses()
	x.settle()
}

// touched returns the buffer that an access touches; ok is false if none is known to be alive there. Views of
// one block may disagree about its size; they touch the block all the same. Both cases are counted for
// [extractor.noteAccesses].
func (x *extractor) touched(t tick, a *traces.Access) (b BufferID, ok bool) {
	if b, ok = x.buffer[t.alloc]; !ok || t.alloc == timeline.NoAlloc {
		x.lost++
		return NoBuffer, false
	}
	if a.Size > max(x.d.Allocs.Size[t.alloc], x.d.Allocs.Rounded[t.alloc]) {
		x.wider++
	}
	return b, true
}

// noteAccesses notes how accesses disagreed with the blocks that they touch.
func (x *extractor) noteAccesses() {
	if x.lost > 0 {
		x.p.Notes = append(x.p.Notes, count(x.lost,
			"access touches no block that is known to be alive, and is left out",
			"accesses touch no block that is known to be alive, and are left out"))
	}
	if x.wider > 0 {
		x.p.Notes = append(x.p.Notes, count(x.wider,
			"access names more bytes than its block has, and counts as one of the whole block",
			"accesses name more bytes than their blocks have, and count as accesses of whole blocks"))
	}
}

// count prints a number before what it counts.
func count(n int, one, many string) string {
	if n == 1 {
		return "one " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// eagerOnly marks what a training in eager PyTorch cannot rerun: ops outside of modules are not seen there.
func (x *extractor) eagerOnly() {
	for i := range x.p.Ops {
		if op := &x.p.Ops[i]; x.p.EagerOnly && (op.Module == "" || op.Phase != traces.PhaseForward) {
			op.Rerunnable = false
		}
	}
}

func (x *extractor) phase(t tick) traces.Phase {
	ph, _ := steps.PhaseAt(x.d, x.moment(t))
	return ph
}

func modeOf(m traces.AccessMode) Mode {
	switch m {
	case traces.Write:
		return Write
	case traces.Mutate:
		return Mutate
	case traces.Use:
		return Use
	}
	return Read // a view reads what its base holds
}

// opOf returns the op of an access, without its place among the others. phase is that of the access's moment,
// for ops recorded without one.
func (x *extractor) opOf(a *traces.Access, phase traces.Phase) Op {
	op := Op{Name: a.Mode.String(), Workspace: NoBuffer, Phase: phase}
	if a.Op == traces.NoOp {
		return op
	}
	r := &x.tr.Ops[a.Op]
	op.Name = x.tr.Text(r.Name)
	op.Module = x.tr.Text(r.Module)
	op.Class = classOf(op.Name)
	op.Duration = max(r.Duration, 0)
	op.Stream = x.stream[r.Stream]
	op.Rerunnable, op.Again = r.Rerunnable, r.Again
	op.Recorded = int32(a.Op) + 1
	if r.Phase != traces.PhaseUnknown {
		op.Phase = r.Phase
	}
	return op
}

// dataflow makes a position of every op.
func (x *extractor) dataflow(ticks []tick) {
	p := x.p
	allocated := false
	last := traces.NoOp
	push := func(op Op) {
		op.First, op.End = int32(len(p.Accesses)), int32(len(p.Accesses))
		p.Ops = append(p.Ops, op)
		allocated, last = false, traces.NoOp
	}
	var host, ready, begin int64
	// times count from the first recorded op, not from earlier frees
	begun := false
	for _, t := range ticks {
		switch t.kind {
		case tickAlloc:
			x.bound(t, OpID(len(p.Ops)))
			allocated = true
		case tickFree:
			if allocated {
				push(Op{Name: "free", Workspace: NoBuffer, Phase: x.phase(t)})
			}
			x.bound(t, OpID(len(p.Ops)))
			last = traces.NoOp
		case tickAccess:
			a := &x.tr.Accesses[t.row]
			b, ok := x.touched(t, a)
			if !ok {
				continue
			}
			if a.Op != traces.NoOp && x.tr.Text(x.tr.Ops[a.Op].Name) == HeldOp {
				p.Buffers[b].Held = OpID(len(p.Ops))
				continue
			}
			if a.Op == traces.NoOp || a.Op != last {
				op := x.opOf(a, x.phase(t))
				if a.Op != traces.NoOp {
					start := x.tr.Ops[a.Op].Start
					if !begun {
						begin, begun = start, true
					}
					at := start - begin
					if at > ready { // the device stood idle: the host was late
						// a CPU is its own host: reruns do not fit into the time between ops
						if x.p.EagerOnly && x.d.Info.Kind == traces.DeviceCPU {
							push(Op{Name: HostOp, Duration: at - ready, Workspace: NoBuffer, Phase: op.Phase})
						} else {
							op.Gap = max(at-host, 0)
						}
						host = max(host, at)
					}
					ready = max(ready, at+op.Duration)
				}
				push(op)
				last = a.Op
			}
			if p.Ops[len(p.Ops)-1].Name == SaveOp {
				p.SavesKnown, p.Buffers[b].Saved = true, true
			}
			p.Accesses = append(p.Accesses, Access{Buffer: b, Mode: modeOf(a.Mode)})
			p.Ops[len(p.Ops)-1].End = int32(len(p.Accesses))
		}
	}
	if allocated { // allocated at the very end
		push(Op{Name: "end", Workspace: NoBuffer})
	}
	x.noteAccesses()
	x.eagerOnly()
	x.settle()
}
