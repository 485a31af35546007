package whatif

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/gmemtop/gmemtop/replay/fidelity"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/traces"
)

// Would a change to the training have helped? Its effect on the allocations is known (autopsy.Effect), and
// the recorded process is played again with it: some allocations are left out, others are smaller or end
// earlier. The play does not stop at the request that failed. It continues as the run did the last time it
// was at this point (see period), for the rest of the step and two more. The growth from one step to the next
// shows for how many steps a lever helps that only frees some room.
//
// Parameters, optimizer state and gradients that stay for good are not allocated a second time: what frees
// gradients, or fills them again, came after the failure. If the step before left as much, such blocks are
// what grows, and each following step leaves its own.
//
// If a lever shrinks a block that exists at the start, the block is freed and requested again before the
// first step. It may then lie where the real run would not have put it.
//
// O(n log n) for each play of n steps. Rejected: subtracting the saving from the peak. That says nothing
// about the rest of the step, where the peak may be, nor about whether the freed bytes are contiguous.

// verdict is the outcome of trying a lever.
type verdict uint8

// The verdicts, worst first.
const (
	// fails: the request, or a later one of the same step, is not served.
	fails verdict = iota
	// serves: the request is served; the rest of the step is not recorded.
	serves
	// postpones: this step finishes; a later one runs out of memory.
	postpones
	// finishes: this step finishes, and the following ones need no more.
	finishes
)

// trial is the outcome of playing the run with levers. Sizes are in bytes.
type trial struct {
	Verdict verdict
	// Steps is how many more steps finish before memory runs out, if the verdict is postpones.
	Steps int64
	// Peak and PeakReserved are the peaks of allocated and reserved bytes in the play.
	Peak, PeakReserved int64
}

const (
	followingSteps = 3    // how many steps are played after the failed request
	lastingSteps   = 2000 // a lever that helps for this many steps is taken to help for good
	fewSteps       = 3    // a recording of no more steps than these shows no trend
	foreseenSteps  = 100  // for how many steps each step of such a recording speaks
	evenGrowth     = 8    // a request grows evenly if its growth in two steps differs by at most 1/evenGrowth
)

// errNotRecorded is wrapped by Try's error if the recording does not show what a lever changes.
var errNotRecorded = errors.New("the recording does not show what it changes")

// action is a step of the program and its allocation.
type action struct {
	fidelity.Step
	alloc timeline.AllocID
	at    timeline.Moment
}

// trials plays levers on one recording.
type trials struct {
	d        *timeline.Device
	r        *Result
	failed   timeline.Moment
	capacity int64
	actions  []action
	blockOf  []fidelity.BlockID // by allocation
	request  int                // index of the failed request in actions
	again    int                // index of the previous time the process was at this point, -1 for none
	period   timeline.AllocID
}

// newTrials prepares to play levers on the recording that produced r.
func newTrials(d *timeline.Device, r *Result) (*trials, error) {
	if r.Failed == timeline.Start {
		return nil, errors.New("the failed request cannot be reproduced")
	}
	t := &trials{d: d, r: r, failed: r.Failed, capacity: r.Capacity, request: -1, again: -1,
		blockOf: make([]fidelity.BlockID, d.Allocs.Len())}
	for i := range t.blockOf {
		t.blockOf[i] = -1
	}
	byBlock := make([]timeline.AllocID, r.program.Blocks)
	for i := range byBlock {
		byBlock[i] = timeline.NoAlloc
	}
	for i, a := range r.held {
		if byBlock[i] = a; a != timeline.NoAlloc {
			t.blockOf[a] = fidelity.BlockID(i)
		}
	}
	n := d.Begun(r.Failed)
	t.period = timeline.AllocID(r.period)
	now := max(r.from, 0)
	for _, s := range r.program.Steps {
		switch s.Kind {
		case fidelity.Malloc:
			byBlock[s.Block] = d.AllocOf(s.At)
			if a := byBlock[s.Block]; a != timeline.NoAlloc {
				t.blockOf[a] = s.Block
				if r.period > 0 && a == n-t.period {
					t.again = len(t.actions)
				}
			}
			now = s.At
		case fidelity.Fail:
			now = s.At
		}
		x := action{s, timeline.NoAlloc, now}
		switch s.Kind {
		case fidelity.Malloc, fidelity.Free, fidelity.FreeLater, fidelity.Complete:
			x.alloc = byBlock[s.Block]
		}
		if x.alloc != timeline.NoAlloc && (s.Kind == fidelity.Free || s.Kind == fidelity.FreeLater) {
			x.at = max(now, d.Allocs.Requested[x.alloc])
			now = min(x.at, timeline.Moment(d.Len()))
		}
		t.actions = append(t.actions, x)
		if s.Kind == fidelity.Fail && s.At == r.Failed {
			t.request = len(t.actions) - 1
			return t, nil
		}
	}
	return nil, errors.New("the replay does not reach the failed request")
}

// try plays the run with levers.
func (t *trials) try(ctx context.Context, levers ...autopsy.Effect) (trial, error) {
	e, err := t.edit(levers)
	if err != nil {
		return trial{}, err
	}
	settings, driver := t.r.Fidelity.Settings, int64(0)
	untouched := len(e.share)+len(e.moves) == 0 && !e.prompt && e.scale == 1 && e.keeps == 1
	for _, l := range levers {
		driver += l.Driver
		if l.Setting == "" {
			continue
		}
		c, err := newCandidate(t.d, settings, "", l.Setting)
		if err != nil {
			return trial{}, err
		}
		settings, untouched = c.Settings, false
	}
	if untouched && driver == 0 {
		return trial{}, errNotRecorded
	}
	w := writer{t: t, e: &e, held: map[fidelity.BlockID]bool{}}
	w.begin()
	w.recorded()
	request := len(w.steps)
	ends := w.following()
	p := player{program: &fidelity.Program{Start: t.r.program.Start, Steps: w.steps, Pools: t.r.program.Pools,
		Blocks: int(w.next)}, total: t.d.Info.TotalBytes, failed: timeline.Start}
	out, err := p.play(ctx, settings, t.capacity+driver)
	if err != nil {
		return trial{}, err
	}
	r := trial{Peak: out.stats.PeakAllocated, PeakReserved: out.stats.PeakReserved}
	played := int(out.steps) - 1
	switch {
	case !out.completes && (played < request || len(ends) > 0 && played < ends[0]):
		r.Verdict = fails
	case len(ends) == 0:
		r.Verdict = serves
	case !out.completes:
		r.Verdict = postpones
		r.Steps = int64(len(ends) - 1)
		for i, end := range ends {
			if played < end {
				r.Steps = int64(i)
				break
			}
		}
	default:
		r.Verdict = finishes
		n, asked := t.d.Begun(t.failed)-t.period, t.actions[t.request].Size
		// The request grows, too. If it replaces a block that is held until then, the peak rises by the same
		// amount.
		rises := e.asks(n, asked+t.requestSwells()) - e.asks(n, asked)
		if grows := w.grows() + rises; grows > 0 {
			r.Steps = int64(len(ends)) + max(t.capacity+driver-r.Peak, 0)/grows
			if r.Steps < t.lasts() {
				r.Verdict = postpones
			}
		}
	}
	return r, nil
}

// lasts returns for how many steps a lever must help to count as a fix. Two or three recorded steps show no
// trend: what the second adds may be allocated only once, so we do not assume that it grows for hundreds of
// steps.
func (t *trials) lasts() int64 {
	if n := int64(t.d.Begun(t.failed) / t.period); n <= fewSteps {
		return n * foreseenSteps
	}
	return lastingSteps
}

// writer writes the program of a play.
type writer struct {
	t       *trials
	e       *edit
	steps   []fidelity.Step
	held    map[fidelity.BlockID]bool
	next    fidelity.BlockID
	images  map[timeline.AllocID]fidelity.BlockID // of allocations that are not in the recording
	sizes   map[fidelity.BlockID]int64            // of held images
	lastEnd int64                                 // bytes of images held after the second to last step
	end     int64                                 // the same after the last
}

// begin changes what exists before the first step.
func (w *writer) begin() {
	w.next = fidelity.BlockID(w.t.r.program.Blocks)
	w.images, w.sizes = map[timeline.AllocID]fidelity.BlockID{}, map[fidelity.BlockID]int64{}
	if w.t.r.program.Start == nil {
		return
	}
	var changed []timeline.AllocID
	for _, a := range w.t.r.held {
		if a == timeline.NoAlloc {
			continue
		}
		changed = append(changed, a)
		if b := w.t.blockOf[a]; b >= 0 {
			w.held[b] = true
			if _, ok := w.e.share[a]; ok {
				w.free(b)
			}
		}
	}
	for _, a := range changed {
		if b := w.t.blockOf[a]; b >= 0 {
			if _, ok := w.e.share[a]; ok {
				size := w.e.size(a, w.t.d.Allocs.Size[a])
				w.malloc(fidelity.Step{Kind: fidelity.Malloc, Block: b, Size: size})
			}
		}
	}
}

func (w *writer) free(b fidelity.BlockID) {
	if w.held[b] {
		delete(w.held, b)
		delete(w.sizes, b)
		w.steps = append(w.steps, fidelity.Step{Kind: fidelity.Free, Block: b})
	}
}

func (w *writer) malloc(s fidelity.Step) {
	if s.Size > 0 && !w.held[s.Block] {
		w.held[s.Block] = true
		w.steps = append(w.steps, s)
	}
}

// recorded writes the recording up to the failed request, which is requested like the others.
func (w *writer) recorded() {
	moves, waiting := w.e.moves, map[fidelity.BlockID]bool{}
	for i := range w.t.actions[:w.t.request] {
		x := &w.t.actions[i]
		for ; len(moves) > 0 && moves[0].at <= x.at; moves = moves[1:] {
			w.move(moves[0], w.t.blockOf[moves[0].alloc])
		}
		s := x.Step
		switch s.Kind {
		case fidelity.Malloc:
			s.Size = w.e.size(x.alloc, s.Size)
			w.malloc(s)
			continue
		case fidelity.Free:
			w.free(s.Block)
			continue
		case fidelity.FreeLater:
			if !w.held[s.Block] {
				continue
			}
			if w.e.prompt {
				w.free(s.Block)
				continue
			}
			delete(w.held, s.Block)
			waiting[s.Block] = true
		case fidelity.Complete:
			if !waiting[s.Block] {
				continue
			}
			delete(waiting, s.Block)
		}
		w.steps = append(w.steps, s)
	}
	for ; len(moves) > 0 && moves[0].at <= w.t.failed; moves = moves[1:] {
		w.move(moves[0], w.t.blockOf[moves[0].alloc])
	}
	s := w.t.actions[w.t.request].Step
	n := w.t.d.Begun(w.t.failed)
	before := timeline.NoAlloc
	if w.t.again >= 0 {
		before = n - w.t.period
	}
	s.Kind, s.Size = fidelity.Malloc, w.e.asks(before, s.Size)
	w.image(n, s)
}

func (w *writer) move(m move, b fidelity.BlockID) {
	switch {
	case b < 0:
	case !m.again:
		w.free(b)
	default:
		s := fidelity.Step{Kind: fidelity.Malloc, Block: b, Size: w.t.d.Allocs.Size[m.alloc]}
		if x := w.t.actionOf(m.alloc); x != nil {
			s.Stream, s.Pool = x.Stream, x.Pool
		}
		w.malloc(s)
	}
}

// actionOf returns the request of an allocation, nil for one from before the recording.
func (t *trials) actionOf(a timeline.AllocID) *action {
	i, ok := slices.BinarySearchFunc(t.actions, t.d.Allocs.Start[a], func(x action, m timeline.Moment) int {
		return cmp.Compare(x.at, m)
	})
	for ; ok && i < len(t.actions) && t.actions[i].at == t.d.Allocs.Start[a]; i++ {
		if t.actions[i].Kind == fidelity.Malloc {
			return &t.actions[i]
		}
	}
	return nil
}

// image requests an allocation that is not in the recording.
func (w *writer) image(a timeline.AllocID, s fidelity.Step) {
	s.Block = w.next
	w.next++
	w.images[a] = s.Block
	s.At = timeline.Moment(w.t.d.Len())
	w.malloc(s)
	if s.Size > 0 {
		w.sizes[s.Block] = s.Size
	}
}

// blockAt returns the block of an allocation, recorded or not; -1 for none.
func (w *writer) blockAt(a timeline.AllocID) fidelity.BlockID {
	if b, ok := w.images[a]; ok {
		return b
	}
	if int(a) < len(w.t.blockOf) && a < w.t.d.Begun(w.t.failed) {
		return w.t.blockOf[a]
	}
	return -1
}

// following writes what the process would have done next, step by step, and returns the end of each step.
func (w *writer) following() (ends []int) {
	t, a := w.t, &w.t.d.Allocs
	if t.again < 0 {
		return nil
	}
	old, n := t.d.Begun(timeline.Start), t.d.Begun(t.failed)
	asked := t.actions[t.request].Size
	before := a.Size[n-t.period]
	from := t.actions[t.again].at
	for k := range timeline.AllocID(followingSteps) {
		shift := (k + 1) * t.period
		moves, late := w.e.moves[sortedFrom(w.e.moves, from):], w.e.late
		sameBatch := true // what follows the request has its batch size until the next batch comes
		for i := t.again + 1; i <= t.request; i++ {
			x := &t.actions[i]
			for ; len(late) > 0 && late[0].at <= x.at; late = late[1:] {
				w.free(w.blockAt(late[0].alloc + k*t.period))
			}
			for ; len(moves) > 0 && moves[0].at <= x.at; moves = moves[1:] {
				if m := moves[0]; m.alloc >= old && !m.again {
					w.free(max(w.blockAt(m.alloc+shift), -1))
				}
			}
			s := x.Step
			switch {
			case i == t.request:
				s.Kind = fidelity.Malloc
				s.Size = w.e.asks(n-t.period, asked+int64(k+1)*t.requestSwells())
				w.image(n+shift, s)
			case x.alloc == timeline.NoAlloc || x.alloc < old:
			case s.Kind == fidelity.Malloc:
				cat := a.Category[x.alloc]
				kept := cat == timeline.Parameter || cat == timeline.OptimizerState ||
					cat == timeline.Gradient
				if kept && a.Requested[x.alloc] == timeline.Never && !t.grew(x.alloc) {
					continue
				}
				sameBatch = sameBatch && cat != timeline.Input
				swells := t.swells(x.alloc, a.Stack[x.alloc], a.Size[x.alloc])
				switch {
				case swells > 0:
					s.Size += int64(k+1) * swells
				case sameBatch && !kept:
					s.Size = w.e.scaled(int64(float64(s.Size) * float64(asked) / float64(before)))
				}
				s.Size = w.e.size(x.alloc, s.Size)
				w.image(x.alloc+shift, s)
			case s.Kind == fidelity.Free, s.Kind == fidelity.Complete:
				w.free(w.blockAt(x.alloc + shift))
			}
		}
		ends = append(ends, len(w.steps))
		w.lastEnd, w.end = w.end, 0
		for _, size := range w.sizes {
			w.end += size
		}
	}
	return ends
}

// grew reports whether a permanent block of the last recorded step has a counterpart in the step before: then
// each step leaves another one.
func (t *trials) grew(id timeline.AllocID) bool {
	a, before := &t.d.Allocs, id-t.period
	return before >= t.d.Begun(timeline.Start) && a.Stack[before] == a.Stack[id] &&
		a.Size[before] == a.Size[id] && a.Requested[before] == timeline.Never
}

// requestSwells is swells for the request that failed.
func (t *trials) requestSwells() int64 {
	if t.again < 0 {
		return 0
	}
	return t.swells(t.d.Begun(t.failed), t.d.Event(t.failed).Stack, t.actions[t.request].Size)
}

// swells returns by how many bytes a request grows from step to step, or 0 if it did not grow evenly over the
// last three steps. Results that are concatenated with earlier ones grow evenly, and so does a cache that
// takes one more token per step. Such a request keeps growing, so room for one more step is not enough.
func (t *trials) swells(id timeline.AllocID, stack traces.StackID, size int64) int64 {
	a, one, two := &t.d.Allocs, id-t.period, id-2*t.period
	if two < t.d.Begun(timeline.Start) || a.Stack[one] != stack || a.Stack[two] != stack {
		return 0
	}
	last, before := size-a.Size[one], a.Size[one]-a.Size[two]
	if last <= 0 || before <= 0 || max(last-before, before-last) > last/evenGrowth {
		return 0
	}
	return last
}

func sortedFrom(moves []move, m timeline.Moment) int {
	i, _ := slices.BinarySearchFunc(moves, m, func(x move, m timeline.Moment) int {
		return cmp.Compare(x.at, m)
	})
	return i
}

// grows returns how many more bytes are held after the last step than after the one before.
func (w *writer) grows() int64 { return w.end - w.lastEnd }
