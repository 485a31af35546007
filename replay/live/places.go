package live

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Programs whose steps run different ops: recurrent networks on sequences of other lengths, layers skipped at
// random, branches. Problem: the n-th tensor that autograd saves is another one in each step.
//
// Approach: a tensor or an op is known by its place, which is the module that runs, how many backward passes
// have begun in the step, and a count within both; ops with gradients and without are counted apart, since an
// evaluation may come before any step. So what runs longer in one module, or not at all, does not
// move the places of the others. The plan is made for the largest of the described steps, and the process
// translates places into that step's numbers (places.py). What has no place there stays in memory, unless a
// plan for another step has it (beside.go).
//
// A budget must hold for every step. So the plan's rules are also applied to the other described steps, and
// what they hold at their peaks is predicted too. For steps that nobody described the process compares two
// sums with those of the described ones: the bytes of all saved tensors, and of those that stay. A step that
// exceeds them may hold that much more, so the next plan leaves room for it, as memory that nothing moves.
//
// Rejected: a plan for each kind of step (the process knows which kind it was when the step is over); names
// of modules and shapes without counts (they do not tell the time steps of a recurrent network apart).

// place is where a step saves a tensor or runs an op.
type place struct {
	op     string // the op's name, "" for a saved tensor
	module string
	noGrad bool // the op ran with gradients off
	// passes is how many backward passes have begun, n the count among those of this module, pass and name.
	passes, n int
}

// placed are the places of one step.
type placed struct {
	saves []place // of each save
	loads []int   // of each load the number of its save, -1 if unknown
	ops   map[traces.OpID]place
}

// placesOf returns the places of a step with these ops, as [ownOps] lists them. It counts as places.py does.
func placesOf(tr *traces.Trace, own []traces.OpID) placed {
	touches := touchedBy(tr)
	out := placed{ops: map[traces.OpID]place{}}
	seen := map[place]int{}
	pending := map[uint64][]int{} // the saves of an address that were not loaded yet
	passes, loading := 0, false
	at := func(op *traces.Op, name string) place {
		x := place{op: name, module: tr.Text(op.Module), noGrad: name != "" && op.NoGrad, passes: passes}
		key := x
		x.n = seen[key]
		seen[key]++
		return x
	}
	for _, id := range own {
		op := &tr.Ops[id]
		switch name := tr.Text(op.Name); {
		case name == plan.SaveOp:
			loading = false
			if addr, ok := touches[id]; ok {
				pending[addr] = append(pending[addr], len(out.saves))
			}
			out.saves = append(out.saves, at(op, ""))
		case name == plan.LoadOp:
			if !loading {
				loading = true
				passes++
			}
			of := -1
			if addr, ok := touches[id]; ok && len(pending[addr]) > 0 {
				waits := pending[addr] // a backward pass needs the newest first
				of, pending[addr] = waits[len(waits)-1], waits[:len(waits)-1]
			}
			out.loads = append(out.loads, of)
		case op.Phase == traces.PhaseForward && op.Module != 0:
			out.ops[id] = at(op, name)
		}
	}
	return out
}

// savesVary reports whether the steps of some recordings save tensors at different places.
func savesVary(all ...*traces.Trace) bool {
	var first []place
	k := 0
	for _, tr := range all {
		for m := range stepMarks(tr) {
			saves := placesOf(tr, ownOps(tr, m, false)).saves
			if k++; k == 1 {
				first = saves
			} else if !slices.Equal(first, saves) {
				return true
			}
		}
	}
	return false
}

// Places are the places of what a plan numbers, as places.py reads them.
type Places struct {
	Modules []string `json:"modules"`
	// Saves has the number of the module and the backward passes of each save.
	Saves [][2]int `json:"saves"`
	// Loads has the number of the save that each load is of, -1 if unknown.
	Loads []int `json:"loads"`
	// Ops has, by the name of an op that is rerun, its number as in [Numeral], the number of its module, the
	// backward passes and its count there.
	Ops map[string][][4]int `json:"ops"`

	known map[string]int // the number of each module
}

// module returns the number of a place's module.
func (p *Places) module(x place) int {
	n, ok := p.known[x.module]
	if !ok {
		n = len(p.Modules)
		p.known[x.module], p.Modules = n, append(p.Modules, x.module)
	}
	return n
}

// places encodes the places of the saves, the loads and the ops that are rerun.
func (e *encoder) places() *Places {
	out := &Places{Modules: []string{}, Saves: [][2]int{}, Loads: slices.Clone(e.placed.loads),
		Ops: map[string][][4]int{}, known: map[string]int{}}
	if out.Loads == nil {
		out.Loads = []int{}
	}
	for _, x := range e.placed.saves {
		out.Saves = append(out.Saves, [2]int{out.module(x), x.passes})
	}
	for again := range e.noted() {
		for _, o := range again {
			name := e.p.Ops[o].Name
			x := e.placed.ops[traces.OpID(e.p.Ops[o].Recorded-1)]
			call := [4]int{e.nth[o], out.module(x), x.passes, x.n}
			if !slices.Contains(out.Ops[name], call) {
				out.Ops[name] = append(out.Ops[name], call)
			}
		}
	}
	return out
}

// kept returns the bytes of the tensors that a step saves, and of those that stay if some buffers leave: the
// highest sums of its backward passes.
func (e *encoder) kept(leaves map[plan.BufferID]bool) (stays, saved int64) {
	var sums [2]int64
	seen := map[plan.BufferID]bool{}
	passes := 0
	close := func() {
		stays, saved = max(stays, sums[0]), max(saved, sums[1])
		sums = [2]int64{}
		clear(seen)
	}
	for k, b := range e.saved() {
		if e.placed.saves[k].passes != passes {
			close()
			passes = e.placed.saves[k].passes
		}
		if b == plan.NoBuffer || seen[b] {
			continue
		}
		seen[b] = true
		sums[1] += e.p.Buffers[b].Size
		if !leaves[b] {
			sums[0] += e.p.Buffers[b].Size
		}
	}
	close()
	return stays, saved
}

// leaving returns the buffers that a plan's absences are about.
func leaving(absences []plan.Absence) map[plan.BufferID]bool {
	out := map[plan.BufferID]bool{}
	for _, x := range absences {
		out[x.Buffer] = true
	}
	return out
}

// limits returns the most bytes that a described step keeps under a plan: of tensors that stay, and of all
// that it saves. Room that was left for larger steps counts too.
func limits(p *plan.Problem, pl *plan.Plan) (out [2]int64, err error) {
	all, err := byPlace(p, pl)
	if err != nil {
		return out, err
	}
	out[0], out[1] = all[0].kept(leaving(pl.Absences))
	for _, q := range p.Varied {
		o, d, err := applied(all, q)
		if err != nil {
			return out, err
		}
		stays, saved := o.kept(leaving(d.Absences))
		out[0], out[1] = max(out[0], stays), max(out[1], saved)
	}
	room := spareRoom(p)
	return [2]int64{out[0] + room, out[1] + room}, nil
}

// fitsEach returns an [*Above] if another of the described steps is predicted to exceed a budget under a
// plan; a budget of 0 is none.
func fitsEach(p *plan.Problem, pl *plan.Plan, budget int64) error {
	if budget <= 0 {
		return nil
	}
	_, most, err := Fullest(p, pl)
	if err != nil || most <= budget {
		return err
	}
	return &Above{Takes: most, Budget: budget, Other: true}
}

// Fullest returns which of the other described steps is predicted to hold most under a plan, and how many
// bytes; -1 and 0 if there are none.
func Fullest(p *plan.Problem, pl *plan.Plan) (which int, most int64, err error) {
	if len(p.Varied) == 0 {
		return -1, 0, nil
	}
	all, err := byPlace(p, pl)
	if err != nil {
		return -1, 0, err
	}
	which = -1
	for i, q := range p.Varied {
		if x, err := pl.Of(q); err == nil { // its optimizer state leaves too
			q = x
		}
		held, err := heldIn(all, q)
		if err != nil {
			return -1, 0, err
		}
		if which < 0 || held > most {
			which, most = i, held
		}
	}
	return which, most, nil
}

// heldIn returns what another step holds at its peak under rules by place.
func heldIn(all []*encoder, q *plan.Problem) (int64, error) {
	_, d, err := applied(all, q)
	if err != nil {
		return 0, err
	}
	swaps := plan.Decisions{Absences: slices.DeleteFunc(slices.Clone(d.Absences), func(x plan.Absence) bool {
		return x.How != plan.Swap
	})}
	// if reruns cannot be assembled for that step, what they would make stays
	for _, d := range []plan.Decisions{d, swaps, {}} {
		if pl, err := plan.Assemble(q, d); err == nil {
			held, _ := pl.PeakLive()
			return held, nil
		}
	}
	return q.Held(), nil
}

// otherStep is another described step, and what it has at which place.
type otherStep struct {
	encoder
	of    []plan.BufferID // of each save
	saves map[place]int
	ops   map[place]plan.OpID
	// the first save of each buffer, with which it leaves, and the first load of each save
	first     map[plan.BufferID]int
	firstLoad map[int]int
	gap       map[plan.BufferID]plan.Gap // the longest of each buffer
}

func otherStepOf(q *plan.Problem) (*otherStep, error) {
	o := &otherStep{encoder: encoder{p: q, pl: &plan.Plan{}}, saves: map[place]int{},
		ops: map[place]plan.OpID{}, first: map[plan.BufferID]int{}, firstLoad: map[int]int{},
		gap: map[plan.BufferID]plan.Gap{}}
	if err := o.number(); err != nil {
		return nil, err
	}
	for k, x := range o.placed.saves {
		o.saves[x] = k
	}
	for i := range q.Ops {
		if r := q.Ops[i].Recorded; r > 0 {
			if x, ok := o.placed.ops[traces.OpID(r-1)]; ok {
				o.ops[x] = plan.OpID(i)
			}
		}
	}
	o.of = o.saved()
	for k, b := range slices.Backward(o.of) {
		o.first[b] = k
	}
	for x, k := range slices.Backward(o.placed.loads) {
		o.firstLoad[k] = x
	}
	for _, g := range q.Gaps(1, 1) {
		if was, ok := o.gap[g.Buffer]; !ok || g.Before-g.After > was.Before-was.After {
			o.gap[g.Buffer] = g
		}
	}
	return o, nil
}

// applied returns another step, and what rules by place decide for it.
func applied(all []*encoder, q *plan.Problem) (*otherStep, plan.Decisions, error) {
	var d plan.Decisions
	o, err := otherStepOf(q)
	if err != nil {
		return nil, d, err
	}
	for _, e := range all {
		e.decide(o, &d)
	}
	slices.SortStableFunc(d.Reruns, func(a, b plan.Rerun) int { return int(a.Before - b.Before) })
	return o, d, nil
}

// decide adds the plan's decisions for another step by place. Copies are back as early as in the process: at
// the load that the plan names or, if the step has none, when they are needed.
func (e *encoder) decide(o *otherStep, d *plan.Decisions) {
	groups := map[plan.OpID][]plan.Absence{} // by where the plan reruns
	for _, x := range e.pl.Absences {
		save := e.firstSave(x.Buffer)
		if save < 0 {
			continue
		}
		k, ok := o.saves[e.placed.saves[save]]
		if !ok || o.of[k] == plan.NoBuffer || o.first[o.of[k]] != k {
			continue
		}
		g, ok := o.gap[o.of[k]]
		if !ok {
			continue
		}
		y := plan.Absence{Buffer: g.Buffer, After: g.After, Release: g.After + 1, Fetch: g.Before,
			Before: g.Before, How: x.How}
		if x.How != plan.Swap {
			groups[x.Fetch] = append(groups[x.Fetch], y)
			continue
		}
		if load := e.before(e.loads, x.Fetch); load < len(e.placed.loads) && e.placed.loads[load] >= 0 {
			if s, ok := o.saves[e.placed.saves[e.placed.loads[load]]]; ok {
				if l, ok := o.firstLoad[s]; ok {
					y.Fetch = min(max(o.position(o.loads[l]), y.Release), g.Before)
				}
			}
		}
		d.Absences = append(d.Absences, y)
	}
	for _, r := range e.pl.Reruns {
		absences := groups[r.Before]
		if len(absences) == 0 {
			continue
		}
		again := plan.Rerun{Before: slices.MinFunc(absences, func(a, b plan.Absence) int {
			return int(a.Before - b.Before)
		}).Before}
		for _, op := range r.Ops {
			at, ok := o.ops[e.placed.ops[traces.OpID(e.p.Ops[op].Recorded-1)]]
			if !ok || !o.p.Ops[at].Rerunnable {
				again.Ops = nil
				break
			}
			again.Ops = append(again.Ops, at)
		}
		if again.Ops == nil {
			continue
		}
		slices.Sort(again.Ops)
		for _, y := range absences {
			y.Fetch = again.Before
			d.Absences = append(d.Absences, y)
		}
		d.Reruns = append(d.Reruns, again)
	}
}

// firstSave returns the number of a buffer's first save, -1 if it has none.
func (e *encoder) firstSave(b plan.BufferID) int {
	for _, t := range e.p.TouchesOf(b) {
		if e.p.Ops[t.Op].Name == plan.SaveOp {
			return e.before(e.saves, t.Op)
		}
	}
	return -1
}

// position returns the position of the problem at which an op of the recording runs, or the next one.
func (e *encoder) position(recorded int32) plan.OpID {
	for i := range e.p.Ops {
		if e.p.Ops[i].Recorded > recorded {
			return plan.OpID(i)
		}
	}
	return plan.OpID(len(e.p.Ops))
}

// spareRoom returns the bytes that a problem leaves for larger steps.
func spareRoom(p *plan.Problem) (bytes int64) {
	for i := range p.Buffers {
		if p.Buffers[i].Name == plan.RoomName {
			bytes += p.Buffers[i].Size
		}
	}
	return bytes
}

// roomier returns a problem with room for a step that keeps these bytes more than a described one.
func roomier(p *plan.Problem, more int64) (*plan.Problem, error) {
	q := *p
	q.Buffers = append(slices.Clone(p.Buffers), plan.Buffer{Name: plan.RoomName, Size: max(more, 0),
		Life: plan.Persistent, Category: timeline.Unknown, Alloc: timeline.NoAlloc})
	if err := q.Finish(); err != nil {
		return nil, err
	}
	return &q, nil
}

// exceeds returns by how many bytes what a step keeps exceeds limits.
func exceeds(keeps []int64, known [2]int64) (more int64) {
	for i := range min(len(keeps), len(known)) {
		more = max(more, keeps[i]-known[i])
	}
	return more
}

// withRoom returns the problem of a program whose steps run different ops with room for the largest step that
// was described or watched: keeps is what that keeps without a plan, nil if it was a described one.
func withRoom(p *plan.Problem, keeps []int64) (*plan.Problem, error) {
	e := encoder{p: p}
	if err := e.number(); err != nil {
		return nil, err
	}
	all, err := limits(p, &plan.Plan{})
	if err != nil {
		return nil, err
	}
	_, own := e.kept(nil)
	more := max(all[1]-own, exceeds(keeps, [2]int64{own, own}))
	if more <= 0 {
		return p, nil
	}
	return roomier(p, more)
}
