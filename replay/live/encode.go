package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/described"
)

// A plan is about buffers and positions in a recorded iteration. A training process knows neither: each step
// makes new tensors, and the host sees only its own calls. What both share is order. So the recording that a
// live plan is made from has ops for the moments at which autograd saves a tensor and needs it again; in the
// process these are calls of two hooks. A buffer becomes the number of its first save, a position becomes the
// number of saves or loads before it, and an op that runs again becomes its name and how many ops of that
// name ran before it in the iteration, with gradients or without: an evaluation, which may come before any
// step, does not move the numbers of what trains.
//
// Why a number for each name, rather than one count of all ops: the capture leaves views out, but the process
// that carries the plan out sees them. An op of one name is either always a view or never.
//
// A release after save k happens at save k, or when the outermost module ends, so that memory stays within
// the plan. A fetch at position x happens at the first load from x on: never earlier than planned, and later
// by less than the time between two loads.
//
// Complexity: O(ops log ops). Rejected: addresses and shapes as keys (neither tells one layer's tensor from
// the next one's).

// Rules is a plan in the numbers by which a process recognises tensors and ops. As JSON it is what carry.py
// reads.
type Rules struct {
	Version int    `json:"version"`
	Device  string `json:"device"`
	Slab    int64  `json:"slab"` // bytes of host memory for saved tensors
	// State is how many bytes of optimizer state wait on the host while no optimizer steps.
	State int64 `json:"state,omitempty"`
	// Saves counts the tensors that a step saves. Steps with other batches save as many.
	Saves int `json:"saves"`
	// Sizes has the bytes of each tensor in the largest step so far, -1 if unknown. The process reports
	// larger steps. If Sizes is nil, it gives the plan up after three larger steps in a row.
	Sizes []int64 `json:"sizes,omitempty"`
	// Spills has, for the first save of each storage: its number, the planned bytes, and the save at which it
	// is released if it leaves because the step is larger than planned for, -1 if it never does.
	Spills [][3]int64  `json:"spills,omitempty"`
	Values []Rule      `json:"values"`
	Groups [][]Numeral `json:"groups"`
	// Backups are ops that run again only if the program has changed, outside of modules, what they made.
	Backups [][]Numeral `json:"backups,omitempty"`
	// Copies is up to how many bytes the process copies a tensor that modules were given or returned and that
	// has no backup.
	Copies int64 `json:"copies,omitempty"`
	// Trained leaves forward passes without gradients alone: the recorded steps have none, so such a pass is
	// an evaluation, which the plan does not cover.
	Trained bool `json:"trained,omitempty"`
	// Places, if the steps of the program run different ops, tell the process what each number stands for.
	// Sizes then has the bytes that a step keeps at most, as limits returns them.
	Places *Places `json:"places,omitempty"`
	// MayDiffer keeps the plan on even if a tensor does not come back identical.
	MayDiffer bool `json:"may_differ,omitempty"`
}

// Results says what happens if a recomputed tensor is not identical to the bit. The process checks that in
// some steps: ops that add in no fixed order differ from run to run.
type Results uint8

const (
	// Same turns the plan off.
	Same Results = iota
	// Any keeps the plan on and counts such tensors.
	Any
)

// Rule says what becomes of one saved tensor.
type Rule struct {
	// Site is the line of code or the op and module that the tensor comes from.
	Site string `json:"-"`
	// Save is its number among the tensors that a step saves.
	Save  int    `json:"save"`
	Bytes int64  `json:"bytes"`
	How   string `json:"how"` // swap or drop
	// Slot is its place on the host; Release and Fetch are the numbers of the save and of the load at which
	// it leaves and returns.
	Slot    int64 `json:"slot"`
	Release int   `json:"release"`
	Fetch   int   `json:"fetch"`
	// Group is the ops that recompute it.
	Group int `json:"group"`
}

// Numeral identifies an op: the N-th of its name that runs with gradients, counted from 0. Those without have
// numbers below 0, in descending order.
type Numeral struct {
	Name string
	N    int
}

// MarshalJSON implements json.Marshaler.
func (o Numeral) MarshalJSON() ([]byte, error) { return json.Marshal([]any{o.Name, o.N}) }

// slotAlign is the alignment of slots on the host, in bytes.
const slotAlign = 512

// slot rounds a size up to the bytes that it takes on the host.
func slot(size int64) int64 { return (size + slotAlign - 1) &^ (slotAlign - 1) }

// slab returns the bytes of host memory that a plan takes in a process: a place for each swapped tensor, and
// for optimizer state that waits there.
func slab(p *plan.Problem, pl *plan.Plan) (bytes int64) {
	if pl.Parks {
		_, bytes = p.Parked()
	}
	for _, x := range pl.Absences {
		if x.How == plan.Swap {
			bytes += slot(p.Buffers[x.Buffer].Size)
		}
	}
	for i, x := range pl.Varied {
		if x != nil {
			bytes += slab(p.Varied[i], x)
		}
	}
	return bytes
}

// ErrNotLive is wrapped by every error of a plan that a process cannot carry out.
var ErrNotLive = errors.New(say.NotLive.Text())

// Encode returns the rules of a plan in the agent's format. [plan.FromDevice] must have made the problem,
// with EagerOnly, from a recording with saves; the plan must be for [plan.TorchEager]. Errors wrap
// [ErrNotLive] and say what is missing.
func Encode(p *plan.Problem, pl *plan.Plan, r Results) ([]byte, error) {
	return encodeFor(p, pl, r, false)
}

// RulesOf returns the rules of a plan that keeps results identical to the bit. It needs what [Encode] needs,
// and its errors are the same.
func RulesOf(p *plan.Problem, pl *plan.Plan) (*Rules, error) { return rulesOf(p, pl, Same, false) }

// encodeFor is Encode, and with the sizes of all saved tensors if somebody can make the plan again for larger
// ones.
func encodeFor(p *plan.Problem, pl *plan.Plan, r Results, sizes bool) ([]byte, error) {
	t, err := rulesOf(p, pl, r, sizes)
	if err != nil {
		return nil, err
	}
	return json.Marshal(t)
}

func rulesOf(p *plan.Problem, pl *plan.Plan, r Results, sizes bool) (*Rules, error) {
	switch {
	case pl.Executor != plan.TorchEager:
		return nil, fmt.Errorf("%w: %s", ErrNotLive, say.WrongExecutor.Text(pl.Executor))
	case !p.SavesKnown:
		return nil, fmt.Errorf("%w: %s", ErrNotLive, say.SavesUnknown.Text())
	case p.Iterations > 1:
		return nil, fmt.Errorf("%w: %s", ErrNotLive, say.ManyIterations.Text(p.Iterations))
	case p.Source == nil:
		return nil, fmt.Errorf("%w: %s", ErrNotLive, say.NotRecorded.Text())
	}
	q, err := pl.Of(p)
	if err != nil {
		return nil, err
	}
	var state int64
	if pl.Parks {
		_, state = p.Parked()
	}
	p = q
	e := encoder{p: p, pl: pl, out: Rules{Version: 1, State: state, Device: deviceName(p.Source.Info),
		Values: []Rule{}, Groups: [][]Numeral{}, MayDiffer: r == Any}}
	if err := e.number(); err != nil {
		return nil, err
	}
	e.out.Saves = len(e.saves)
	e.out.Trained = p.Source.Timeline().Trace.Setting(described.EvaluatesSetting) == "false"
	switch {
	case len(p.Varied) > 0:
		most, err := limits(p, pl)
		if err != nil {
			return nil, err
		}
		e.out.Sizes, e.out.Places = most[:], e.places()
	case sizes:
		e.out.Sizes = make([]int64, len(e.saves))
		for k, b := range e.saved() {
			if e.out.Sizes[k] = -1; b >= 0 {
				e.out.Sizes[k] = e.p.Buffers[b].Size
			}
		}
		if len(pl.Absences) > 0 {
			for _, s := range e.spills() {
				e.out.Spills = append(e.out.Spills, [3]int64{int64(s.save), s.bytes, int64(s.release)})
			}
		}
	}
	if err := e.groups(); err != nil {
		return nil, err
	}
	if err := e.values(); err != nil {
		return nil, err
	}
	if len(p.Varied) > 0 {
		all, err := byPlace(p, pl)
		if err == nil {
			err = e.beside(all[1:])
		}
		if err != nil {
			return nil, err
		}
	}
	return &e.out, nil
}

func deviceName(d traces.Device) string {
	if d.Kind == traces.DeviceGPU {
		return fmt.Sprintf("cuda:%d", d.Ordinal)
	}
	return "cpu"
}

type encoder struct {
	p   *plan.Problem
	pl  *plan.Plan
	out Rules
	// the indices of the recording's saves and loads, in order. Some are not positions of the problem: those
	// of an empty tensor, or of another device.
	saves, loads []int32
	nth          []int // the number of each op as in [Numeral], unseen if the process does not see it
	placed       placed
	backups      [][]plan.OpID
	group        map[plan.OpID]int // of the position before which its ops are rerun
}

// unseen is the number of an op that the process does not see.
const unseen = math.MinInt

// number counts saves, loads and the ops of each name from the iteration's beginning, as the process does:
// over everything that the modules' forward passes do, on any device.
func (e *encoder) number() error {
	tr := e.p.Source.Timeline().Trace
	e.nth = make([]int, len(e.p.Ops))
	first := -1
	position := map[int32]plan.OpID{}
	for i := range e.p.Ops {
		e.nth[i] = unseen
		if r := e.p.Ops[i].Recorded; r > 0 {
			position[r-1] = plan.OpID(i)
			if first < 0 {
				first = int(r - 1)
			}
		}
	}
	if first < 0 {
		return fmt.Errorf("%w: %s", ErrNotLive, say.NoRecordedOp.Text())
	}
	k := slices.IndexFunc(tr.Marks, func(m traces.Mark) bool {
		return m.Kind == traces.MarkIteration && m.Start <= tr.Ops[first].Start && tr.Ops[first].Start < m.End
	})
	if k < 0 {
		return fmt.Errorf("%w: %s", ErrNotLive, say.StepsUnmarked.Text())
	}
	type kind struct {
		name   traces.StringID
		noGrad bool
	}
	count := map[kind]int{}
	own := ownOps(tr, tr.Marks[k], true)
	e.placed = placesOf(tr, own)
	for _, id := range own {
		i, op := int32(id), &tr.Ops[id]
		switch tr.Text(op.Name) {
		case plan.SaveOp:
			e.saves = append(e.saves, i)
			continue
		case plan.LoadOp:
			e.loads = append(e.loads, i)
			continue
		}
		if op.Phase != traces.PhaseForward || op.Module == 0 {
			continue
		}
		of := kind{op.Name, op.NoGrad}
		if at, ok := position[i]; ok {
			if e.nth[at] = count[of]; op.NoGrad {
				e.nth[at] = -1 - count[of]
			}
		}
		count[of]++
	}
	if e.pl != nil {
		e.backups = e.backupOps()
	}
	return nil
}

// saved returns the buffer of each save, -1 if it is not a buffer of the problem.
func (e *encoder) saved() []plan.BufferID {
	of := make([]plan.BufferID, len(e.saves))
	for k := range of {
		of[k] = plan.NoBuffer
	}
	for i := range e.p.Ops {
		op := &e.p.Ops[i]
		if k, ok := slices.BinarySearch(e.saves, op.Recorded-1); ok && op.Name == plan.SaveOp {
			if x := e.p.AccessesOf(plan.OpID(i)); len(x) == 1 {
				of[k] = x[0].Buffer
			}
		}
	}
	return of
}

// groups encodes the reruns.
func (e *encoder) groups() error {
	e.group = map[plan.OpID]int{}
	for _, r := range e.pl.Reruns {
		e.group[r.Before] = len(e.out.Groups)
		ops := make([]Numeral, len(r.Ops))
		for i, o := range r.Ops {
			op := &e.p.Ops[o]
			if e.nth[o] == unseen || !op.Rerunnable {
				return fmt.Errorf("%w: %s", ErrNotLive, say.NotRerunnable.Text(op.Name))
			}
			ops[i] = Numeral{op.Name, e.nth[o]}
		}
		e.out.Groups = append(e.out.Groups, ops)
	}
	if len(e.pl.Reruns) > 0 {
		e.out.Copies = small(e.p)
	}
	for _, b := range e.backups {
		ops := make([]Numeral, len(b))
		for i, o := range b {
			ops[i] = Numeral{e.p.Ops[o].Name, e.nth[o]}
		}
		e.out.Backups = append(e.out.Backups, ops)
	}
	return nil
}

// values encodes what leaves memory.
func (e *encoder) values() error {
	for _, x := range e.pl.Absences {
		b := &e.p.Buffers[x.Buffer]
		save := -1
		for _, t := range e.p.TouchesOf(x.Buffer) {
			if e.p.Ops[t.Op].Name == plan.SaveOp {
				save = e.before(e.saves, t.Op)
				break
			}
		}
		if save < 0 {
			return fmt.Errorf("%w: %s", ErrNotLive, say.NotSaved.Text(b.Name))
		}
		v := Rule{Site: siteOf(e.p.Source, b), Save: save, Bytes: b.Size, How: "drop"}
		if x.How == plan.Swap {
			v.How, v.Slot = "swap", e.out.Slab
			v.Release, v.Fetch = e.before(e.saves, x.Release), e.before(e.loads, x.Fetch)
			e.out.Slab += slot(b.Size)
		} else {
			g, ok := e.group[x.Fetch]
			if !ok {
				return fmt.Errorf("%w: %s", ErrNotLive, say.NotMadeAgain.Text(b.Name, x.Fetch))
			}
			v.Group = g
		}
		e.out.Values = append(e.out.Values, v)
	}
	// The process fetches what one load brings back in the order of the plan.
	saves := make([]int, len(e.out.Values))
	for i := range e.out.Values {
		saves[i] = e.out.Values[i].Save
	}
	slices.Sort(saves)
	for i := 1; i < len(saves); i++ {
		if saves[i] == saves[i-1] {
			return fmt.Errorf("%w: %s", ErrNotLive, say.SavedTwice.Text(saves[i]))
		}
	}
	return nil
}

// siteOf returns where a buffer comes from, or its name if the recording does not say.
func siteOf(d *timeline.Device, b *plan.Buffer) string {
	if b.Alloc != timeline.NoAlloc {
		if s := d.Origin(b.Alloc); s != traces.NoStack {
			return sites.Name(d, s)
		}
	}
	return b.Name
}

// before returns how many of the saves or loads lie before position at.
func (e *encoder) before(clock []int32, at plan.OpID) int {
	for ; int(at) < len(e.p.Ops); at++ {
		if r := e.p.Ops[at].Recorded; r > 0 {
			k, _ := slices.BinarySearch(clock, r-1)
			return k
		}
	}
	return len(clock)
}
