package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// The pool in the process (package capture/pytorch/pool) serves plans that choose addresses. Again, both
// sides share only the order: the table lists all allocations of the planned iterations in order, even those
// without a place. The process matches allocations by order and size. Listing those that torch serves keeps
// it from mistaking one for a planned allocation of the same size that comes later.
//
// Such a plan is made from the allocator's own events, not from ops: a workspace inside an op takes memory
// too, and an op's output is not always an allocation.
//
// Complexity: O(events log events). Rejected: matching by call site (that costs a stack trace per allocation,
// during training).

// encodedPool is what the agent reads.
type encodedPool struct {
	Version int    `json:"version"`
	Device  string `json:"device"`
	Pool    Table  `json:"pool"`
	Library string `json:"library"`
}

// Table is what the pool serves allocations from.
type Table struct {
	// Arena is how many bytes the pool takes from torch.
	Arena int64 `json:"arena"`
	// Steps is how many iterations the entries span.
	Steps   int     `json:"steps"`
	Entries []Entry `json:"entries"`
}

// Entry is an expected allocation. On the wire it is [size, offset, stream].
type Entry struct {
	Size int64
	// Offset is its place in the arena, -1 for an allocation that torch serves.
	Offset int64
	Stream uint64
}

// MarshalJSON writes the three numbers of an entry.
func (e Entry) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%d,%d]", e.Size, e.Offset, e.Stream), nil
}

// UnmarshalJSON reads the three numbers of an entry.
func (e *Entry) UnmarshalJSON(text []byte) error {
	n := [3]json.Number{}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&n); err != nil {
		return err
	}
	var err [3]error
	e.Size, err[0] = strconv.ParseInt(string(n[0]), 10, 64)
	e.Offset, err[1] = strconv.ParseInt(string(n[1]), 10, 64)
	e.Stream, err[2] = strconv.ParseUint(string(n[2]), 10, 64)
	return errors.Join(err[:]...)
}

// PlannedBytes returns how many bytes of the table's allocations have a place, and how many there are.
func (t *Table) PlannedBytes() (planned, all int64) {
	for _, e := range t.Entries {
		all += e.Size
		if e.Offset >= 0 {
			planned += e.Size
		}
	}
	return planned, all
}

// EncodePool returns a plan that chooses addresses in the agent's format. library is the path of the library
// that capture/pytorch/pool builds. [plan.FromDevice] must have made the problem from a recording of the
// allocator's events; the plan must keep everything and have a place for all of it. Errors wrap [ErrNotLive]
// and say what is missing.
func EncodePool(p *plan.Problem, pl *plan.Plan, library string) ([]byte, error) {
	t, err := PoolTable(p, pl)
	if err != nil {
		return nil, err
	}
	return json.Marshal(encodedPool{Version: 1, Device: deviceName(p.Source.Info), Pool: t, Library: library})
}

// PoolCarrier is a process whose allocator can be recorded.
type PoolCarrier interface {
	Carrier
	// DescribeEvents returns a recording of the allocations and frees of some of the next steps, cut where
	// they end. The pool's library at that path records them.
	DescribeEvents(ctx context.Context, library string) (*traces.Trace, error)
}

// NewPoolTarget returns a Target for plans that only choose addresses, see [EncodePool]. Their footprint is
// the arena that the process takes for them. What torch serves besides, in steps that differ from the
// recorded ones, is counted but not measured.
func NewPoolTarget(t PoolCarrier, library string, o Options) *Target {
	x := NewTarget(t, o)
	x.pool, x.library = t, library
	return x
}

// poolProblem records the training's allocator and returns the iteration that it runs.
func (t *Target) poolProblem(ctx context.Context, h Hardware) (*plan.Problem, error) {
	tr, err := t.pool.DescribeEvents(ctx, t.library)
	if err != nil {
		return nil, err
	}
	for _, l := range tr.Losses {
		if l.Severity >= traces.DataLoss {
			return nil, fmt.Errorf("%w: %s", ErrNotLive, say.EventsLost.Text(l.Count, l.Name, l.Detail))
		}
	}
	d, err := trainingDevice(ctx, tr)
	if err != nil {
		return nil, err
	}
	return plan.FromDevice(ctx, d, plan.BuildOptions{Iteration: plan.LastIteration, Hardware: h.on(d),
		Name: "what the running training allocates"})
}

// pays returns an error that wraps [ErrNoGain] if a pool plan's arena takes as much as PyTorch's own
// allocator needs for the same step, or more.
func pays(ctx context.Context, p *plan.Problem, pl *plan.Plan) error {
	settings, _ := settingsOf(p)
	need, err := sim.CachingNeeds(ctx, p, pl, settings)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil: // the need of PyTorch's allocator is unknown
		return nil
	case pl.Footprint < need:
		return nil
	}
	var crosses int64
	for i := range p.Buffers {
		if p.Buffers[i].Life == plan.Carried {
			crosses += p.Rounded(plan.BufferID(i))
		}
	}
	why := ""
	if pl.Manager == smartPool && crosses > 0 {
		why = ", " + say.KeptTwice.Text(timeline.IEC.Bytes(crosses))
	}
	return fmt.Errorf("%w: %s", ErrNoGain,
		say.ArenaAsLarge.Text(timeline.IEC.Bytes(pl.Footprint), timeline.IEC.Bytes(need), why))
}

// orSegments adds to the reason why a plan that chooses addresses ended what expandable segments take
// instead, if a simulation of the recorded step says that it is less. On a CPU there are no such segments.
func (t *Target) orSegments(ctx context.Context, p *plan.Problem, pl *plan.Plan, err error) error {
	if t.pool == nil || err == nil || ctx.Err() != nil || errors.Is(err, ErrTakenAway) {
		return err
	}
	settings, known := settingsOf(p)
	if !known || !settings.Native() {
		return err
	}
	without, noNeed := sim.CachingNeeds(ctx, p, pl, settings)
	with, ok := segmentsNeed(ctx, p, pl, settings)
	if noNeed != nil || !ok || with >= without {
		return err
	}
	return fmt.Errorf("%w; %s", err,
		say.SegmentsTake.Text(timeline.IEC.Bytes(with), timeline.IEC.Bytes(without)))
}

// smartPool is the manager that keeps two places for buffers that live from one step into the next.
const smartPool = "smartpool"

// PoolTable returns the table for a plan.
func PoolTable(p *plan.Problem, pl *plan.Plan) (Table, error) {
	switch {
	case p.Source == nil:
		return Table{}, fmt.Errorf("%w: %s", ErrNotLive, say.NotRecorded.Text())
	case len(pl.Absences) > 0 || len(pl.Reruns) > 0:
		return Table{}, fmt.Errorf("%w: %s", ErrNotLive, say.PoolOnlyPlaces.Text())
	case pl.Policy != nil:
		return Table{}, fmt.Errorf("%w: %s", ErrNotLive, say.AddressesOfPolicy.Text(pl.Policy.Name))
	case pl.SectionBytes != 0 || pl.Executor != plan.Ideal:
		return Table{}, fmt.Errorf("%w: %s", ErrNotLive, say.PoolServesWhole.Text(plan.Ideal))
	}
	d := p.Source
	tr := d.Timeline().Trace
	base, _ := tr.DeviceEvents(d.ID)
	offsets := make(map[int]int64, len(pl.Instances))
	for i := range pl.Instances {
		x := &pl.Instances[i]
		if x.Offset < 0 {
			return Table{}, fmt.Errorf("%w: %s", ErrNotLive, say.HasNoPlace.Text(p.Buffers[x.Buffer].Name))
		}
		if p.Buffers[x.Buffer].Alloc == timeline.NoAlloc {
			continue
		}
		if start := d.Allocs.Start[p.Buffers[x.Buffer].Alloc]; start >= 0 {
			offsets[base+int(start)] = x.Offset
		}
	}
	t, err := tabulate(tr, d.ID, offsets, p.Iterations)
	if err != nil {
		return t, fmt.Errorf("%w: %w", ErrNotLive, err)
	}
	return t, nil
}

// tabulate returns the table of a device's allocations. offsets has the places that a planner chose, by the
// allocation's row in the trace's events; iterations is how many iterations it planned as one. Of the trace's
// marked iterations, it takes those in which most of these rows lie. A row of another iteration is a block
// that existed before, and is left out.
func tabulate(
	tr *traces.Trace, device traces.DeviceID, offsets map[int]int64, iterations int,
) (Table, error) {
	iterations = max(iterations, 1)
	var marks []traces.Mark
	for m := range stepMarks(tr) {
		if m.Start != traces.NoTime && m.End != traces.NoTime {
			marks = append(marks, m)
		}
	}
	if len(marks) < iterations {
		return Table{}, errors.New(say.FewIterations.Text(len(marks), iterations))
	}
	first, end := tr.DeviceEvents(device)
	time := tr.Events.Time[first:end]
	cut := func(at int64) int {
		return first + sort.Search(len(time), func(i int) bool { return time[i] > at })
	}
	rows := make([]int, 0, len(offsets))
	for row := range offsets {
		rows = append(rows, row)
	}
	slices.Sort(rows)
	inside := func(a, b int) int {
		x, _ := slices.BinarySearch(rows, a)
		y, _ := slices.BinarySearch(rows, b)
		return y - x
	}
	from, to := 0, 0
	for i := range len(marks) - iterations + 1 {
		a, b := cut(marks[i].Start), cut(marks[i+iterations-1].End)
		if inside(a, b) > inside(from, to) {
			from, to = a, b
		}
	}
	t := Table{Steps: iterations}
	placed := false
	for row := from; row < to; row++ {
		if tr.Events.Action[row] != traces.Alloc {
			continue
		}
		e := Entry{Size: tr.Events.Size[row], Offset: -1, Stream: tr.Streams[tr.Events.Stream[row]]}
		if at, ok := offsets[row]; ok && at >= 0 {
			e.Offset, placed = at, true
			t.Arena = max(t.Arena, at+e.Size)
		}
		t.Entries = append(t.Entries, e)
	}
	if !placed {
		return Table{}, errors.New(say.NothingPlaced.Text())
	}
	return t, nil
}
