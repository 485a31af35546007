package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// From decisions to a program.
//
// A manager thinks in idle intervals: this buffer leaves after that op and is back before this one. A target
// needs a list of things to do. Assemble walks the positions of the iteration once and writes, at each, in
// this order: frees, loads for reruns, fetches, reruns, allocations, the op, and evictions. Frees come first
// so that what follows can use their memory, and loads before fetches because a rerun waits for them.
//
// Complexity: O(ops + accesses + buffers log buffers + decisions log decisions + length of all chains).
// Rejected: letting each manager write its own program: every one of them would repeat the same bookkeeping,
// and they would disagree about corner cases.

// Decisions is what a manager decides about a problem.
type Decisions struct {
	Absences []Absence
	Reruns   []Rerun
	Variants []uint8
}

// assembler is the state of one walk.
type assembler struct {
	p  *Problem
	pl *Plan

	current   []InstanceID // the current instance of each buffer, none if it is not in memory
	recompute []OpID       // for each dropped buffer, where to recompute it; noOp for others

	freeAt, allocAt [][]BufferID // by position; shared backing
	// absences by when they release memory, are fetched, joined, and leave; and the reruns
	releases, fetches, joins, leaving, reruns due
	loads                                     due // of all reruns
	ofLoad                                    []loadOf

	outStep, inStep []int32 // of each absence
	lastRun         []int32 // of each queue, the last step on it, noStep for none
	chainLast       []int32 // of each buffer that a chain touches, the last of its ops that does
	// of each buffer that a chain makes for itself alone, its number among them; noScratch for others
	scratch []int32
	loaded  []bool // of each buffer, whether it is in memory for a chain alone
	over    []BufferID
}

// What stands for nothing in the assembler's lists.
const (
	none      InstanceID = -1
	noOp      OpID       = -1
	noStep    int32      = -1
	noScratch int32      = -1
)

// due are ids in order of the positions that they are due at.
type due struct {
	ids []int32
	key func(id int32) OpID
}

// next takes an id that is due at a position; ok is false if there is none, or no more.
func (d *due) next(at OpID) (id int32, ok bool) {
	if len(d.ids) == 0 || d.key(d.ids[0]) != at {
		return 0, false
	}
	id, d.ids = d.ids[0], d.ids[1:]
	return id, true
}

// loadOf is a load with its rerun.
type loadOf struct {
	rerun *Rerun
	*Load
}

// Assemble turns decisions into a plan without places. Its error wraps [ErrInvalid] and names the decision
// that cannot be carried out.
func Assemble(p *Problem, d Decisions) (*Plan, error) {
	pl := &Plan{Absences: d.Absences, Reruns: d.Reruns, Variants: d.Variants}
	if err := checkVariants(p, d.Variants); err != nil {
		return nil, err
	}
	for i := range d.Absences {
		if err := checkAbsence(p, &d.Absences[i]); err != nil {
			return nil, err
		}
	}
	a := newAssembler(p, pl)
	for i := range len(p.Ops) + 1 {
		if err := a.position(OpID(i)); err != nil {
			return nil, err
		}
	}
	for i := range pl.Instances {
		if pl.Instances[i].To < 0 {
			pl.Instances[i].To = int32(len(pl.Steps))
		}
	}
	return pl, nil
}

// checkVariants checks that every op has the variant that is chosen for it; nil chooses the first of each.
func checkVariants(p *Problem, variants []uint8) error {
	if variants != nil && len(variants) != len(p.Ops) {
		return fmt.Errorf("%w plan: %d variants for %d ops", ErrInvalid, len(variants), len(p.Ops))
	}
	for i, v := range variants {
		if v != 0 && int(v) >= len(p.Ops[i].Variants) {
			return fmt.Errorf("%w plan: op %d has no variant %d", ErrInvalid, i, v)
		}
	}
	return nil
}

func checkAbsence(p *Problem, x *Absence) error {
	n := OpID(len(p.Ops))
	switch {
	case x.Buffer < 0 || int(x.Buffer) >= len(p.Buffers):
		return fmt.Errorf("%w plan: absence of buffer %d of %d", ErrInvalid, x.Buffer, len(p.Buffers))
	case x.After < 0 || x.Release <= x.After || x.Fetch < x.Release || x.Before < x.Fetch || x.Before >= n:
		return fmt.Errorf("%w plan: buffer %d is absent after op %d, released at %d, fetched at %d, needed "+
			"before %d: not in this order", ErrInvalid, x.Buffer, x.After, x.Release, x.Fetch, x.Before)
	case x.Joined != 0 && (x.Joined < x.Fetch || x.Joined > x.Before):
		return fmt.Errorf("%w plan: buffer %d is joined at %d, outside of [%d, %d]", ErrInvalid, x.Buffer,
			x.Joined, x.Fetch, x.Before)
	case p.Buffers[x.Buffer].Life == Persistent:
		return fmt.Errorf("%w plan: buffer %d (%s) persists and cannot be absent", ErrInvalid, x.Buffer,
			p.Buffers[x.Buffer].Name)
	case !p.Buffers[x.Buffer].AliveAt(x.After) || !p.Buffers[x.Buffer].AliveAt(x.Before):
		return fmt.Errorf("%w plan: buffer %d is absent in [%d, %d) and lives [%d, %d)", ErrInvalid, x.Buffer,
			x.After, x.Before, p.Buffers[x.Buffer].Start, p.Buffers[x.Buffer].End)
	}
	return nil
}

// goes returns when a buffer's memory is free: as the plan releases it, or when the program lets it go, if
// that is later.
func goes(p *Problem, x *Absence) OpID {
	return min(max(x.Release, p.Buffers[x.Buffer].Held), x.Fetch)
}

func newAssembler(p *Problem, pl *Plan) *assembler {
	n := len(p.Ops)
	a := &assembler{p: p, pl: pl, current: make([]InstanceID, len(p.Buffers)),
		outStep: make([]int32, len(pl.Absences)),
		inStep:  make([]int32, len(pl.Absences)), lastRun: make([]int32, p.Queues()),
		recompute: make([]OpID, len(p.Buffers)), chainLast: make([]int32, len(p.Buffers)),
		scratch: make([]int32, len(p.Buffers)), loaded: make([]bool, len(p.Buffers))}
	pl.Steps = make([]Step, 0, n+2*len(p.Buffers)+4*len(pl.Absences))
	pl.Instances = make([]Instance, 0, len(p.Buffers)+len(pl.Absences))
	for i := range a.current {
		a.current[i], a.recompute[i], a.scratch[i] = none, noOp, noScratch
	}
	for i := range a.lastRun {
		a.lastRun[i] = noStep
	}
	order := func(key func(x *Absence) OpID, keep func(x *Absence) bool) due {
		ids := make([]int32, 0, len(pl.Absences))
		for i := range pl.Absences {
			if keep(&pl.Absences[i]) {
				ids = append(ids, int32(i))
			}
		}
		return inOrder(n+1, ids, func(i int32) OpID { return key(&pl.Absences[i]) })
	}
	all := func(*Absence) bool { return true }
	swaps := func(x *Absence) bool { return x.How == Swap }
	allocated := func(x *Absence) bool { return x.How != Recompute } // a chain allocates what it makes
	joined := func(x *Absence) bool { return x.How == Swap && x.Joined != 0 }
	a.leaving = order(func(x *Absence) OpID { return x.After }, swaps)
	a.readyFirst()
	a.releases = order(func(x *Absence) OpID { return goes(p, x) }, all)
	a.fetches = order(func(x *Absence) OpID { return x.Fetch }, allocated)
	a.joins = order(func(x *Absence) OpID { return x.Joined }, joined)
	reruns := make([]int32, len(pl.Reruns))
	for i := range reruns {
		reruns[i] = int32(i)
	}
	a.reruns = inOrder(n+1, reruns, func(i int32) OpID { return pl.Reruns[i].Before })
	for i := range pl.Reruns {
		for k := range pl.Reruns[i].Loads {
			a.loads.ids = append(a.loads.ids, int32(len(a.ofLoad)))
			a.ofLoad = append(a.ofLoad, loadOf{&pl.Reruns[i], &pl.Reruns[i].Loads[k]})
		}
	}
	a.loads = inOrder(n+1, a.loads.ids, func(i int32) OpID { return a.ofLoad[i].Fetch })
	a.freeAt = byPosition(p, func(b *Buffer) (OpID, bool) { return b.End, b.Life != Persistent })
	a.allocAt = byPosition(p, func(b *Buffer) (OpID, bool) { return b.Start, b.Life != Persistent })
	for b := range p.Buffers {
		if p.Buffers[b].Life != Inside {
			pl.Resident = append(pl.Resident, a.instance(BufferID(b), -1))
		}
	}
	return a
}

// readyFirst orders the copies out that follow one op by when their contents were written: the engine runs
// them one after the other, and what was written earlier can begin while the op still runs.
func (a *assembler) readyFirst() {
	ids, of := a.leaving.ids, a.pl.Absences
	wrote := make([]OpID, len(of))
	for _, i := range ids {
		touches := a.p.TouchesOf(of[i].Buffer)
		wrote[i] = noOp
		for k := FirstTouch(touches, of[i].After+1) - 1; k >= 0 && wrote[i] == noOp; k-- {
			if touches[k].Mode.Writes() {
				wrote[i] = touches[k].Op
			}
		}
	}
	slices.SortStableFunc(ids, func(i, j int32) int {
		return cmp.Or(cmp.Compare(of[i].After, of[j].After), cmp.Compare(wrote[i], wrote[j]))
	})
}

// inOrder sorts by position and keeps the order of equals: a counting sort. Reruns have not been checked yet
// to lie within the iteration.
func inOrder(positions int, ids []int32, key func(int32) OpID) due {
	at := func(i int32) int { return min(max(int(key(i)), 0), positions) }
	count := make([]int32, positions+2)
	for _, i := range ids {
		count[at(i)+1]++
	}
	for k := range positions + 1 {
		count[k+1] += count[k]
	}
	sorted := make([]int32, len(ids))
	for _, i := range ids {
		k := at(i)
		sorted[count[k]] = i
		count[k]++
	}
	return due{sorted, key}
}

// byPosition lists buffers by a position of theirs: a counting sort into one backing array.
func byPosition(p *Problem, key func(*Buffer) (OpID, bool)) [][]BufferID {
	n := len(p.Ops) + 1
	count := make([]int32, n+1)
	for i := range p.Buffers {
		if k, ok := key(&p.Buffers[i]); ok {
			count[k+1]++
		}
	}
	for i := range n {
		count[i+1] += count[i]
	}
	all := make([]BufferID, count[n])
	lists := make([][]BufferID, n)
	for i := range n {
		lists[i] = all[count[i]:count[i]:count[i+1]]
	}
	for i := range p.Buffers {
		if k, ok := key(&p.Buffers[i]); ok {
			lists[k] = append(lists[k], BufferID(i))
		}
	}
	return lists
}

func (a *assembler) instance(b BufferID, from int32) InstanceID {
	id := InstanceID(len(a.pl.Instances))
	a.pl.Instances = append(a.pl.Instances, Instance{Buffer: b, Size: sizeOf(a.p, b, a.pl.Variants),
		Offset: -1, From: from, To: -1})
	a.current[b] = id
	return id
}

func (a *assembler) step(s Step) int32 {
	a.pl.Steps = append(a.pl.Steps, s)
	return int32(len(a.pl.Steps) - 1)
}

func (a *assembler) alloc(b BufferID, at OpID) InstanceID {
	id := a.instance(b, int32(len(a.pl.Steps)))
	a.step(Step{Kind: Alloc, Queue: a.p.Buffers[b].Stream, Op: at, Instance: id})
	return id
}

func (a *assembler) free(b BufferID, at OpID) {
	id := a.current[b]
	a.pl.Instances[id].To = int32(len(a.pl.Steps))
	a.step(Step{Kind: Free, Queue: a.p.Buffers[b].Stream, Op: at, Instance: id})
	a.current[b] = none
}

// waitAll makes every compute stream wait for a step.
func (a *assembler) waitAll(on int32, at OpID) {
	for q := range a.p.Streams {
		a.step(Step{Kind: Wait, Queue: int16(q), Op: at, On: on})
	}
}

// position writes all steps at a position, in the order that the comment at the top gives.
func (a *assembler) position(i OpID) error {
	if err := a.goAway(i); err != nil {
		return err
	}
	for k, ok := a.loads.next(i); ok; k, ok = a.loads.next(i) {
		if err := a.load(a.ofLoad[k]); err != nil {
			return err
		}
	}
	if err := a.comeBack(i); err != nil {
		return err
	}
	for k, ok := a.reruns.next(i); ok; k, ok = a.reruns.next(i) {
		if err := a.rerun(&a.pl.Reruns[k]); err != nil {
			return err
		}
	}
	if int(i) == len(a.p.Ops) {
		return nil
	}
	return a.run(i)
}

// goAway frees the buffers that end at a position, and releases those that are absent from there on.
func (a *assembler) goAway(i OpID) error {
	for _, b := range a.freeAt[i] {
		if a.current[b] == none {
			return fmt.Errorf("%w plan: buffer %d (%s) is freed at op %d and is not in memory", ErrInvalid, b,
				a.p.Buffers[b].Name, i)
		}
		a.free(b, i)
	}
	for k, ok := a.releases.next(i); ok; k, ok = a.releases.next(i) {
		x := &a.pl.Absences[k]
		if a.current[x.Buffer] == none {
			return fmt.Errorf("%w plan: buffer %d (%s) is released at op %d and is not in memory",
				ErrInvalid, x.Buffer, a.p.Buffers[x.Buffer].Name, i)
		}
		if x.How == Swap && x.Blocking {
			a.waitAll(a.outStep[k], i)
		}
		if x.How == Recompute {
			a.recompute[x.Buffer] = x.Fetch
		}
		a.free(x.Buffer, i)
	}
	return nil
}

// comeBack fetches what is due at a position, and waits for what must be back there.
func (a *assembler) comeBack(i OpID) error {
	for k, ok := a.fetches.next(i); ok; k, ok = a.fetches.next(i) {
		x := &a.pl.Absences[k]
		if a.current[x.Buffer] != none {
			return fmt.Errorf("%w plan: buffer %d (%s) is fetched at op %d and is already in memory",
				ErrInvalid, x.Buffer, a.p.Buffers[x.Buffer].Name, i)
		}
		id := a.alloc(x.Buffer, i)
		if x.How != Swap {
			continue
		}
		if x.Paced && i > 0 {
			for q := range a.p.Streams {
				if a.lastRun[q] != noStep {
					a.step(Step{Kind: Wait, Queue: a.p.InQueue(), Op: i, On: a.lastRun[q]})
				}
			}
		}
		a.inStep[k] = a.step(Step{Kind: In, Queue: a.p.InQueue(), Op: i, Instance: id})
	}
	for k, ok := a.joins.next(i); ok; k, ok = a.joins.next(i) {
		a.waitAll(a.inStep[k], i)
	}
	return nil
}

// run writes the op at a position, with the allocations that it needs and the evictions that follow it.
func (a *assembler) run(i OpID) error {
	p := a.p
	for _, b := range a.allocAt[i] {
		a.alloc(b, i)
	}
	for _, x := range p.AccessesOf(i) {
		if a.current[x.Buffer] == none {
			return fmt.Errorf("%w plan: op %d (%s) touches buffer %d (%s), which is not there",
				ErrInvalid, i, p.Ops[i].Name, x.Buffer, p.Buffers[x.Buffer].Name)
		}
	}
	a.lastRun[p.Ops[i].Stream] = a.step(Step{Kind: Run, Queue: p.Ops[i].Stream, Op: i})
	for k, ok := a.leaving.next(i); ok; k, ok = a.leaving.next(i) {
		b := a.pl.Absences[k].Buffer
		if a.current[b] == none {
			return fmt.Errorf("%w plan: buffer %d (%s) leaves after op %d and is not in memory",
				ErrInvalid, b, p.Buffers[b].Name, i)
		}
		a.outStep[k] = a.step(Step{Kind: Out, Queue: p.OutQueue(), Op: i + 1, Instance: a.current[b]})
	}
	return nil
}

// load writes the copy in of a buffer for a chain alone.
func (a *assembler) load(x loadOf) error {
	p, b := a.p, x.Buffer
	reads := func(o OpID) bool {
		return o >= 0 && int(o) < len(p.Ops) && slices.ContainsFunc(p.AccessesOf(o), func(x Access) bool {
			return x.Buffer == b && x.Mode.Reads()
		})
	}
	switch {
	case b < 0 || int(b) >= len(p.Buffers):
		return fmt.Errorf("%w plan: buffer %d of %d is to be loaded", ErrInvalid, b, len(p.Buffers))
	case x.Fetch > x.rerun.Before, !p.Buffers[b].AliveAt(x.Fetch), !p.Buffers[b].AliveAt(x.rerun.Before),
		!slices.ContainsFunc(x.rerun.Ops, reads):
		return fmt.Errorf("%w plan: buffer %d (%s) is loaded at op %d, and no op that runs again before op "+
			"%d can read it", ErrInvalid, b, p.Buffers[b].Name, x.Fetch, x.rerun.Before)
	case a.current[b] != none:
		return fmt.Errorf("%w plan: buffer %d (%s) is loaded at op %d and is already in memory", ErrInvalid,
			b, p.Buffers[b].Name, x.Fetch)
	}
	a.step(Step{Kind: In, Queue: p.InQueue(), Op: x.Fetch, Instance: a.alloc(b, x.Fetch)})
	a.loaded[b] = true
	return nil
}

// rerun writes a chain. What an absence waits for stays; whatever else the chain makes or loads is freed
// after its last use in the chain.
func (a *assembler) rerun(r *Rerun) error {
	p := a.p
	for k, o := range r.Ops {
		if o < 0 || int(o) >= len(p.Ops) {
			return fmt.Errorf("%w plan: op %d of %d is to run again", ErrInvalid, o, len(p.Ops))
		}
		for _, x := range p.AccessesOf(o) {
			a.chainLast[x.Buffer] = int32(k)
		}
	}
	made := int32(0)
	for _, x := range r.Loads {
		if a.loaded[x.Buffer] {
			a.loaded[x.Buffer], a.scratch[x.Buffer], made = false, made, made+1
		}
	}
	for k, o := range r.Ops {
		for _, x := range p.AccessesOf(o) {
			if a.current[x.Buffer] != none {
				continue
			}
			if x.Mode.Reads() {
				return fmt.Errorf("%w plan: op %d (%s), run again before op %d, reads buffer %d (%s), which "+
					"is not there", ErrInvalid, o, p.Ops[o].Name, r.Before, x.Buffer,
					p.Buffers[x.Buffer].Name)
			}
			a.alloc(x.Buffer, r.Before)
			if a.recompute[x.Buffer] == r.Before {
				a.recompute[x.Buffer] = noOp
			} else {
				a.scratch[x.Buffer], made = made, made+1
			}
		}
		w := p.Ops[o].Workspace
		if w != NoBuffer && a.current[w] == none {
			a.alloc(w, r.Before)
			a.scratch[w], made = made, made+1
			a.chainLast[w] = int32(k)
		}
		a.lastRun[p.Ops[o].Stream] = a.step(Step{Kind: Again, Queue: p.Ops[o].Stream, Op: o})
		// What the chain no longer needs was last touched by this very op, or is its workspace.
		a.over = a.over[:0]
		gone := func(b BufferID) {
			if a.scratch[b] != noScratch && int(a.chainLast[b]) <= k && !slices.Contains(a.over, b) {
				a.over = append(a.over, b)
			}
		}
		for _, x := range p.AccessesOf(o) {
			gone(x.Buffer)
		}
		if w != NoBuffer {
			gone(w)
		}
		slices.SortFunc(a.over, func(x, y BufferID) int { return cmp.Compare(a.scratch[x], a.scratch[y]) })
		for _, b := range a.over {
			a.free(b, r.Before)
			a.scratch[b] = noScratch
		}
	}
	return nil
}
