// Package planview shows one plan, or two on one clock, from the inside: what each queue does when, where
// every buffer lies at that time, and at the cursor what is held, what is away and why.
//
//   - A scene is a plan laid out on its clock, made once, off the event loop.
//   - A raster is a scene at one zoom and size, made off the event loop too: drawing costs O(cells), whatever
//     the plan's size.
//   - [View] is the part of a leaf.View that shows them; tui/managers opens it.
package planview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// Plan is a plan to look into: a result that was measured with usage and spans.
type Plan struct {
	Name   string
	Result replay.Result
}

// stretch is something that a queue does in [from, to).
type stretch struct {
	from, to int64
	op       plan.OpID
	again    bool
}

// box is the residency of a buffer: time along x, addresses along y.
type box struct {
	from, to int64
	offset   int64
	size     int64
	buffer   plan.BufferID
}

// scene is a plan on its clock. Times are nanoseconds from the iteration's start; where the recording has no
// clock they are positions of the program, one an op.
type scene struct {
	plan    Plan
	p       *plan.Problem // cut into sections where the plan is
	clock   bool
	span    int64
	compute []stretch
	out, in []stretch
	stalls  []stretch
	boxes   []box         // by from
	started []int64       // of each op, when it runs; never decreasing
	usage   []plan.Sample // memory held from a moment on
	top     int64         // the highest address, or the most memory held where places are not planned
	peakAt  int64
	// placed means that the plan chooses addresses; otherwise an online allocator does, and memory is drawn
	// as a stack of categories.
	placed bool
	gone   []plan.Absence // by Release
	madeBy []plan.OpID    // for each buffer, the first op that writes it, -1 if none does
}

// newScene lays a plan out. It takes O(steps log steps).
func newScene(ctx context.Context, p *plan.Problem, of Plan) (*scene, error) {
	pl := of.Result.Plan
	p, err := pl.Of(p)
	if err != nil {
		return nil, fmt.Errorf("lay out the plan of %s: %w", of.Name, err)
	}
	s := &scene{plan: of, p: p, placed: pl.Policy == nil, gone: slices.Clone(pl.Absences)}
	start, end := s.times()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.layOut(start, end)
	s.sum()
	s.credit()
	slices.SortStableFunc(s.gone, func(a, b plan.Absence) int { return cmp.Compare(a.Release, b.Release) })
	return s, ctx.Err()
}

// times returns when each step begins and ends, and fills the lanes.
func (s *scene) times() (start, end []int64) {
	pl, m := s.plan.Result.Plan, &s.plan.Result.Measurement
	n := len(pl.Steps)
	start, end = make([]int64, n), make([]int64, n)
	s.clock, s.span = Clock(s.p, &s.plan.Result), Span(s.p, &s.plan.Result)
	if s.clock {
		for i := range m.Spans {
			x := &m.Spans[i]
			if int(x.Step) >= n {
				continue
			}
			if x.Stall {
				s.stalls = append(s.stalls, stretch{from: x.Start, to: x.End, op: pl.Steps[x.Step].Op})
				continue
			}
			start[x.Step], end[x.Step] = x.Start, x.End
		}
	} else {
		for i := range pl.Steps {
			start[i] = min(int64(pl.Steps[i].Op), s.span-1)
			end[i] = start[i] + 1
		}
	}
	s.started = make([]int64, len(s.p.Ops))
	for i := range pl.Steps {
		st := &pl.Steps[i]
		x := stretch{from: start[i], to: end[i], op: st.Op, again: st.Kind == plan.Again}
		switch st.Kind {
		case plan.Run:
			s.started[st.Op] = start[i]
			s.compute = append(s.compute, x)
		case plan.Again:
			s.compute = append(s.compute, x)
		case plan.Out:
			s.out = append(s.out, x)
		case plan.In:
			s.in = append(s.in, x)
		}
	}
	for i := 1; i < len(s.started); i++ {
		s.started[i] = max(s.started[i], s.started[i-1])
	}
	return start, end
}

// layOut makes the boxes. As in the simulator, an instance takes its memory when its first step begins and
// frees it when its last step is done.
func (s *scene) layOut(start, end []int64) {
	pl := s.plan.Result.Plan
	n := len(pl.Instances)
	from, to := make([]int64, n), make([]int64, n)
	for i := range from {
		from[i], to[i] = -1, -1
	}
	at := make([]plan.InstanceID, len(s.p.Buffers))
	for _, i := range pl.Resident {
		at[pl.Instances[i].Buffer], from[i] = i, 0
	}
	touch := func(i plan.InstanceID, step int) {
		if from[i] < 0 {
			from[i] = start[step]
		}
		to[i] = max(to[i], end[step])
	}
	var compute int64
	born := make([]plan.OpID, n)
	for k := range pl.Steps {
		st := &pl.Steps[k]
		switch st.Kind {
		case plan.Alloc:
			at[pl.Instances[st.Instance].Buffer], born[st.Instance] = st.Instance, st.Op
		case plan.Free:
			if i := st.Instance; from[i] < 0 { // nothing is known to touch it
				from[i], to[i] = s.opStart(born[i]), s.opStart(st.Op)
			} else {
				to[i] = max(to[i], min(compute, s.span))
			}
		case plan.Out, plan.In:
			touch(st.Instance, k)
		case plan.Run, plan.Again:
			compute = max(compute, end[k])
			for _, a := range s.p.AccessesOf(st.Op) {
				touch(at[a.Buffer], k)
			}
			if w := s.p.Ops[st.Op].Workspace; w != plan.NoBuffer {
				touch(at[w], k)
			}
		}
	}
	for i := range pl.Instances {
		x := &pl.Instances[i]
		if int(x.To) == len(pl.Steps) {
			if to[i] = s.span; from[i] < 0 {
				from[i] = s.opStart(born[i])
			}
		}
		if x.Size <= 0 || from[i] < 0 || to[i] <= from[i] {
			continue
		}
		s.boxes = append(s.boxes, box{from: from[i], to: to[i], offset: max(x.Offset, 0), size: x.Size,
			buffer: x.Buffer})
		if s.placed {
			s.top = max(s.top, x.Offset+x.Size)
		}
	}
	slices.SortStableFunc(s.boxes, func(a, b box) int { return cmp.Compare(a.from, b.from) })
}

// opStart returns when an op runs, or the end for ops after the last one.
func (s *scene) opStart(op plan.OpID) int64 {
	if int(op) >= len(s.started) {
		return s.span
	}
	return s.started[op]
}

// sum computes the memory held over time: the measurement's own figures if there are any.
func (s *scene) sum() {
	if s.usage = s.plan.Result.Measurement.Usage; !s.clock || len(s.usage) == 0 ||
		s.p.Kind < traces.Accesses {
		s.usage = sumOf(s.boxes)
	}
	var peak int64
	for _, u := range s.usage {
		if u.Bytes > peak {
			peak, s.peakAt = u.Bytes, u.Time
		}
	}
	if !s.placed {
		s.top = max(peak, 1)
	}
}

// heldAt returns the memory held at a time.
func (s *scene) heldAt(t int64) int64 {
	i := sort.Search(len(s.usage), func(i int) bool { return s.usage[i].Time > t }) - 1
	if i < 0 {
		return 0
	}
	return s.usage[i].Bytes
}

// opAt returns the op that runs, or ran last, at a time.
func (s *scene) opAt(t int64) plan.OpID {
	return plan.OpID(max(sort.Search(len(s.started), func(i int) bool { return s.started[i] > t })-1, 0))
}

// moving means that a buffer which leaves or comes back still has its memory, or has it again.
type moving uint8

const (
	still moving = iota
	leaving
	arriving
)

// state is the state of a buffer at the cursor.
type state struct {
	buffer plan.BufferID
	size   int64
	away   bool
	moving moving
	how    plan.How
	// why says why it is away, or what it is kept for.
	why string
	// until is when it is needed again.
	until string
	freed int64 // when held memory is released
}

// most is how many buffers are listed at the cursor.
const most = 400

// statesAt lists what is away at a time, then what is held, each largest first. It visits every absence and
// box once.
func (s *scene) statesAt(t int64) (list []state, away, onHost int64) {
	op := s.opAt(t)
	here := map[plan.BufferID]int{} // the boxes of this moment
	var held []int
	for i := range s.boxes {
		b := &s.boxes[i]
		if b.from > t {
			break
		}
		if t < b.to {
			here[b.buffer] = i
			held = append(held, i)
		}
	}
	for i := range s.gone {
		x := &s.gone[i]
		if x.Release > op {
			break
		}
		if op >= x.Before {
			continue
		}
		st := state{buffer: x.Buffer, size: s.p.Rounded(x.Buffer), away: true, how: x.How, why: reason(x.Why),
			until: s.until(x.Before, t)}
		if _, there := here[x.Buffer]; there { // its copy is in progress, or its op
			delete(here, x.Buffer)
			if st.moving = leaving; op >= x.Fetch {
				st.moving = arriving
			}
		} else {
			away += st.size
			if x.How == plan.Swap {
				onHost += st.size
			}
		}
		list = append(list, st)
	}
	bySize := func(a, b state) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.buffer, b.buffer))
	}
	slices.SortFunc(list, bySize)
	list = list[:min(len(list), most)]
	n := len(list)
	for _, i := range held {
		b := &s.boxes[i]
		if k, there := here[b.buffer]; there && k == i {
			list = append(list, state{buffer: b.buffer, size: b.size, freed: b.to})
		}
	}
	slices.SortFunc(list[n:], bySize)
	list = list[:min(len(list), n+most)]
	for i := n; i < len(list); i++ {
		list[i].why, list[i].until = s.kept(list[i].buffer, op, t, list[i].freed)
	}
	return list, away, onHost
}

// reason says why a buffer is away, without the word for how, which is in another column.
func reason(why string) string {
	for _, how := range []string{"swapped: ", "recomputed: ", "dropped: ", "discarded: "} {
		if rest, ok := strings.CutPrefix(why, how); ok {
			return rest
		}
	}
	return why
}

// until says which op needs a buffer again, and in how long.
func (s *scene) until(op plan.OpID, t int64) string {
	if int(op) >= len(s.p.Ops) {
		return "the next iteration"
	}
	name := s.opName(op)
	if !s.clock {
		return name
	}
	return name + " in " + timeline.Duration(max(s.started[op]-t, 0))
}

// kept says what a buffer is held for.
func (s *scene) kept(b plan.BufferID, op plan.OpID, t, freed int64) (why, until string) {
	if s.p.Kind < traces.Accesses {
		switch {
		case s.p.Buffers[b].Life == plan.Persistent:
			return "persists", ""
		case freed >= s.span:
			return "alive", "the next iteration"
		case s.clock:
			return "alive", "it is freed in " + timeline.Duration(freed-t)
		}
		return "alive", "it is freed before op " + strconv.FormatInt(freed, 10)
	}
	touches := s.p.TouchesOf(b)
	i, _ := slices.BinarySearchFunc(touches, op, func(x plan.Touch, op plan.OpID) int {
		return cmp.Compare(x.Op, op)
	})
	if i < len(touches) && touches[i].Op == op {
		return "in use", s.opName(op)
	}
	persistent := s.p.Buffers[b].Life == plan.Persistent
	switch {
	case i < len(touches) && persistent:
		return "persists", s.until(touches[i].Op, t)
	case i < len(touches):
		return "kept", s.until(touches[i].Op, t)
	case persistent:
		return "persists", "the next iteration"
	case s.p.Buffers[b].Life == plan.Carried:
		return "kept", "the next iteration"
	}
	return "kept", "it is freed"
}

// opName names an op as the recording does.
func (s *scene) opName(op plan.OpID) string {
	o := &s.p.Ops[op]
	module, _, _ := strings.Cut(o.Module, "(") // drop the layer's arguments
	text := module
	switch {
	case strings.Contains(o.Name, module):
		text = o.Name
	case !strings.Contains(module, o.Name):
		text = module + " " + o.Name
	}
	if text == "" {
		text = fmt.Sprintf("op %d", op)
	}
	if o.Phase == traces.PhaseBackward && !strings.Contains(strings.ToLower(text), "backward") {
		text += " backward"
	}
	return text
}

// credit finds the op that makes each buffer.
func (s *scene) credit() {
	s.madeBy = make([]plan.OpID, len(s.p.Buffers))
	for i := range s.madeBy {
		s.madeBy[i] = -1
	}
	for i := range s.p.Ops {
		for _, x := range s.p.Accesses[s.p.Ops[i].First:s.p.Ops[i].End] {
			if x.Mode != plan.Read && s.madeBy[x.Buffer] < 0 {
				s.madeBy[x.Buffer] = plan.OpID(i)
			}
		}
	}
}

// bufferName names a buffer by the line of code that asked for it, or by its name in the recording; if that
// is only an address, by the op that makes it.
func (s *scene) bufferName(b plan.BufferID) string {
	if d, a := s.p.Source, s.p.Buffers[b].Alloc; d != nil && a != timeline.NoAlloc {
		if what := leaf.What(d, a); what != "" {
			return what
		}
	}
	if op := s.madeBy[b]; op >= 0 && s.p.Ops[op].Name != "" && s.p.Buffers[b].Life != plan.Persistent &&
		s.isAddress(b) {
		return s.opName(op)
	}
	return s.identity(b)
}

// identity is the buffer's own name, or its block's where the recording has no name for it.
func (s *scene) identity(b plan.BufferID) string {
	if s.isAddress(b) {
		return s.p.Source.BlockName(s.p.Buffers[b].Alloc)
	}
	return cmp.Or(s.p.Buffers[b].Name, fmt.Sprintf("buffer %d", b))
}

// isAddress reports whether a buffer's name is only that of its block.
func (s *scene) isAddress(b plan.BufferID) bool {
	d, x := s.p.Source, &s.p.Buffers[b]
	return d != nil && x.Alloc != timeline.NoAlloc && x.Name == d.UniqueName(x.Alloc)
}
