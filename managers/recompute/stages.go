package recompute

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// A coarse view of an iteration.
//
// Problem: Checkmate's program has a variable for each pair of op and stage. An iteration of a thousand ops
// would have a million, of which a thousand matter.
//
// Approach: groups of forward ops, each of which makes at least one activation; stages of backward ops, with
// a new one beginning where the backward pass first needs an activation of an earlier group; items, the
// activations of one group that are needed in the same stages. Rerunning a group makes all its items. Small
// networks have one group for each op that makes an activation, so nothing is lost. Large ones merge
// neighbours into groups of equal bytes, cut where few tensors cross.
//
// The view's simplifications (memory at the worst op of each stage, groups run whole) are corrected by
// measuring: a solution of the program is turned into decisions about ops, which rerun no more than they
// need, and their peak is computed exactly.
//
// Complexity: O(ops + accesses) for groups and stages, O(groups x stages) for dependencies.

// stages is the coarse view.
type stages struct {
	p *plan.Problem
	b *chain.Builder

	turn   plan.OpID
	acts   []activation
	starts []plan.OpID // of each forward group, its first op; ends with turn
	begins []plan.OpID // of each backward stage, its first op; ends with the iteration's end
	items  []item
	itemOf []int32 // of each activation, its item
	actOf  []int32 // of each buffer, its activation plus one; 0 for others

	time  []int64   // of each group, of running again what its items need
	extra []int64   // for each group, the most scratch that one of those ops has besides items
	reads [][]int32 // of each group, the items of earlier groups that it reads
	// for each group, the earlier groups that must run as well, because nothing of what they pass on is kept
	runs  [][]int32
	lists [][]int32 // of each group, its items

	forward, backward []moment // the worst moments of the natural run
	base              []int64  // for each stage, what is in memory besides items at its rerun
}

// item is a group of activations that are made and needed together.
type item struct {
	bytes int64
	group int32
	after plan.OpID   // the last forward op that touches one of them
	needs []int32     // the stages that need it, ascending
	ends  []plan.OpID // for each of those, its last op that touches one of them
}

// last returns the last stage that needs the item.
func (it *item) last() int { return int(it.needs[len(it.needs)-1]) }

// moment is one op of the natural run. The fixed bytes are present whatever is decided; the items natural are
// present because current ops use them.
type moment struct {
	op      plan.OpID
	stage   int32
	fixed   int64
	natural int64
}

// newStages makes the view with at most that many groups.
func newStages(p *plan.Problem, b *chain.Builder, groups int) *stages {
	s := &stages{p: p, b: b, turn: turn(p), actOf: make([]int32, len(p.Buffers))}
	s.acts = activations(p, b, pairs(p)[0])
	// A buffer may have changed and be idle across the turn once only; it is one activation.
	for i := range s.acts {
		s.actOf[s.acts[i].Buffer] = int32(i) + 1
	}
	if len(s.acts) == 0 {
		return s
	}
	s.group(groups)
	s.stage()
	s.collect()
	s.depend()
	s.moments()
	return s
}

// group cuts the forward pass.
func (s *stages) group(most int) {
	crossing := crossings(s.p, s.acts, s.turn)
	cuts := between(s.acts, crossing)
	if len(cuts) >= most {
		if few := places(s.acts, crossing); len(few) >= most-1 {
			cuts = few
		}
		cuts = choose(s.acts, cuts, most)
	}
	s.starts = append([]plan.OpID{s.acts[0].made}, cuts...)
	s.starts = append(s.starts, s.turn)
}

func (s *stages) groups() int { return max(len(s.starts)-1, 0) }

// makers returns how many ops make activations.
func (s *stages) makers() (n int) {
	for i := range s.acts {
		if i == 0 || s.acts[i].made != s.acts[i-1].made {
			n++
		}
	}
	return n
}

func (s *stages) count() int { return max(len(s.begins)-1, 0) }

func (s *stages) groupOf(i plan.OpID) int32 {
	k, at := slices.BinarySearch(s.starts, i)
	if !at {
		k--
	}
	return int32(min(max(k, 0), s.groups()-1))
}

func (s *stages) stageOf(i plan.OpID) int32 {
	k, at := slices.BinarySearch(s.begins, i)
	if !at {
		k--
	}
	return int32(k)
}

// stage cuts the backward pass.
func (s *stages) stage() {
	least := int32(s.groups())
	s.begins = append(s.begins, s.turn)
	for i := s.turn; int(i) < len(s.p.Ops); i++ {
		need := least
		for _, a := range s.p.AccessesOf(i) {
			if k := s.actOf[a.Buffer]; k != 0 && s.p.Buffers[a.Buffer].AliveAt(i) {
				need = min(need, s.groupOf(s.acts[k-1].made))
			}
		}
		if need < least {
			if i > s.turn {
				s.begins = append(s.begins, i)
			}
			least = need
		}
	}
	s.begins = append(s.begins, plan.OpID(len(s.p.Ops)))
}

// collect makes the items.
func (s *stages) collect() {
	s.itemOf = make([]int32, len(s.acts))
	s.lists = make([][]int32, s.groups())
	for i := range s.acts {
		a := &s.acts[i]
		var needs []int32
		var ends []plan.OpID
		for _, t := range s.p.TouchesOf(a.Buffer) {
			if t.Op < s.turn {
				continue
			}
			if k := s.stageOf(t.Op); len(needs) == 0 || needs[len(needs)-1] != k {
				needs, ends = append(needs, k), append(ends, t.Op)
			}
			ends[len(ends)-1] = t.Op
		}
		g := s.groupOf(a.made)
		found := int32(-1)
		for _, v := range s.lists[g] {
			if slices.Equal(s.items[v].needs, needs) && s.groupOf(s.items[v].after) == s.groupOf(a.After) {
				found = v
			}
		}
		if found < 0 {
			found = int32(len(s.items))
			s.items = append(s.items, item{group: g, needs: needs, ends: ends})
			s.lists[g] = append(s.lists[g], found)
		}
		it := &s.items[found]
		it.bytes += a.bytes
		it.after = max(it.after, a.After)
		for k := range ends {
			it.ends[k] = max(it.ends[k], ends[k])
		}
		s.itemOf[i] = found
	}
}

// depend finds what re-running a group takes: the ops that make its activations, the tensors between them
// that are gone by then, and whose activations those read.
func (s *stages) depend() {
	p := s.p
	s.time, s.reads, s.runs = make([]int64, s.groups()), make([][]int32, s.groups()),
		make([][]int32, s.groups())
	asked := make([]int32, s.turn) // of each forward op, the group that it runs for, plus one
	var stack []plan.OpID
	next := 0 // activations are in order of groups
	s.extra = make([]int64, s.groups())
	for g := range s.groups() {
		mark := int32(g) + 1
		need := func(b plan.BufferID, at plan.OpID) {
			ops, _ := p.Producer(b, at)
			for _, o := range ops {
				if o < s.turn && asked[o] != mark {
					asked[o] = mark
					stack = append(stack, o)
				}
			}
		}
		for ; next < len(s.acts) && s.groupOf(s.acts[next].made) == int32(g); next++ {
			need(s.acts[next].Buffer, s.acts[next].After+1)
		}
		for len(stack) > 0 {
			o := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if h := s.groupOf(o); int(h) != g {
				s.runs[g] = append(s.runs[g], h)
				continue
			}
			s.time[g] += s.b.OpTime(o)
			var scratch int64
			if w := p.Ops[o].Workspace; w != plan.NoBuffer {
				scratch = p.Rounded(w)
			}
			for _, a := range p.AccessesOf(o) {
				if !a.Mode.Reads() {
					if s.actOf[a.Buffer] == 0 {
						scratch += p.Rounded(a.Buffer)
					}
					continue
				}
				switch k := s.actOf[a.Buffer]; {
				case k != 0 && s.items[s.itemOf[k-1]].group != int32(g):
					s.reads[g] = append(s.reads[g], s.itemOf[k-1])
				case k == 0 && p.Buffers[a.Buffer].Life == plan.Inside && p.Buffers[a.Buffer].End <= s.turn:
					need(a.Buffer, o)
				}
			}
			s.extra[g] = max(s.extra[g], scratch)
		}
		s.reads[g], s.runs[g] = sorted(s.reads[g]), sorted(s.runs[g])
	}
}

func sorted(x []int32) []int32 {
	slices.Sort(x)
	return slices.Compact(x)
}

// moments finds the op of each group and stage at which most is in memory whatever is decided.
func (s *stages) moments() {
	p := s.p
	n := len(p.Ops)
	fixed := p.Load()
	delta := make([]int64, n+1)   // of activations while they live
	natural := make([]int64, n+1) // of activations while the current ops use them
	for i := range s.acts {
		a := &s.acts[i]
		buf := &p.Buffers[a.Buffer]
		delta[buf.Start] += a.bytes
		delta[buf.End] -= a.bytes
		natural[buf.Start] += a.bytes
		natural[a.After+1] -= a.bytes
		from, to := plan.OpID(-1), plan.OpID(-1)
		for _, t := range p.TouchesOf(a.Buffer) { // within a stage it stays
			if t.Op < s.turn {
				continue
			}
			if k := s.stageOf(t.Op); from < 0 || s.stageOf(to) != k {
				if from >= 0 {
					natural[from] += a.bytes
					natural[to+1] -= a.bytes
				}
				from = s.begins[k]
			}
			to = t.Op
		}
		if from >= 0 {
			natural[from] += a.bytes
			natural[to+1] -= a.bytes
		}
	}
	s.base = make([]int64, s.count())
	best := func(into *[]moment, stage int32, m moment) {
		if k := len(*into); k > 0 && (*into)[k-1].stage == stage {
			if l := &(*into)[k-1]; m.fixed+m.natural > l.fixed+l.natural {
				*l = m
			}
			return
		}
		*into = append(*into, m)
	}
	var all, used int64
	for i := range n {
		all += delta[i]
		used += natural[i]
		m := moment{op: plan.OpID(i), fixed: fixed[i] - all, natural: used}
		if m.op < s.turn {
			m.stage = s.groupOf(m.op)
			best(&s.forward, m.stage, m)
			continue
		}
		m.stage = s.stageOf(m.op)
		best(&s.backward, m.stage, m)
		if m.op == s.begins[m.stage] { // the rerun comes before what the op allocates
			s.base[m.stage] = m.fixed
			for _, a := range p.AccessesOf(m.op) {
				if buf := &p.Buffers[a.Buffer]; buf.Life == plan.Inside && buf.Start == m.op {
					s.base[m.stage] -= p.Rounded(a.Buffer)
				}
			}
		}
	}
}

// drops translates which items are in memory when a stage begins (kept[v][t]) into what is dropped when.
func (s *stages) drops(kept func(v int32, t int) bool) []chain.Drop {
	type part struct {
		drop  chain.Drop
		stage int32 // where it comes back
	}
	var parts []part
	at := make([]plan.OpID, s.count()) // of each stage, where what comes back in it does
	for i := range at {
		at[i] = -1
	}
	for i := range s.acts {
		v := s.itemOf[i]
		touches := s.p.TouchesOf(s.acts[i].Buffer)
		for k := 1; k < len(touches); k++ {
			x, y := touches[k-1], touches[k]
			if y.Op < s.turn || x.Op == y.Op {
				continue
			}
			from, to := int32(0), s.stageOf(y.Op) // stages at whose beginning it may be absent
			if x.Op >= s.turn {
				from = s.stageOf(x.Op) + 1
			}
			g := plan.Gap{Buffer: s.acts[i].Buffer, After: x.Op, Before: y.Op}
			if from > to || y.Mode == plan.Write {
				continue
			}
			if ok, _ := s.b.Recomputable(g); !ok {
				continue
			}
			for t := from; t <= to; t++ {
				if kept(v, int(t)) {
					continue
				}
				d := chain.Drop{Gap: g, Why: "not kept by the program"}
				if t > from {
					d.Release = max(s.begins[t], x.Op+1)
				}
				for t++; t <= to && !kept(v, int(t)); t++ {
				}
				// It is back when stage t begins, or is needed in stage to: recomputed in stage t-1.
				if t > to {
					if at[to] < 0 || y.Op < at[to] {
						at[to] = y.Op
					}
				}
				parts = append(parts, part{d, t - 1})
			}
		}
	}
	drops := make([]chain.Drop, 0, len(parts))
	for _, x := range parts {
		if x.drop.Fetch = at[x.stage]; x.drop.Fetch < 0 {
			x.drop.Fetch = s.begins[x.stage]
		}
		x.drop.Fetch = max(x.drop.Fetch, x.drop.Release, x.drop.After+1)
		drops = append(drops, x.drop)
	}
	return drops
}

// segments returns what k segments of groups keep: what crosses a cut throughout, the last segment, and what
// has been recomputed of the others.
func (s *stages) segments(k int) func(v int32, t int) bool {
	cuts := choose(s.acts, s.starts[1:s.groups()], k)
	first := make([]int32, len(cuts)+1) // of each segment, the stage of its rerun
	for i := range first {
		first[i] = int32(s.count())
	}
	inside := func(it *item) (seg int, ok bool) {
		seg = segmentOf(cuts, s.starts[it.group])
		return seg, seg < len(cuts) && segmentOf(cuts, it.after) == seg
	}
	for v := range s.items {
		if seg, ok := inside(&s.items[v]); ok {
			first[seg] = min(first[seg], s.items[v].needs[0])
		}
	}
	return func(v int32, t int) bool {
		seg, ok := inside(&s.items[v])
		return !ok || int32(t) > first[seg]
	}
}

// once returns what is in memory if only the items that begin selects are kept after the forward pass, and
// what a stage recomputes is kept from then on as long as it is needed.
func (s *stages) once(begin func(v int32) bool) func(v int32, t int) bool {
	from := make([]int32, len(s.items)) // of each item, the stage from whose beginning on it is there
	for v := range from {
		if from[v] = int32(s.count()); begin(int32(v)) {
			from[v] = 0
		}
	}
	ran := make([]int32, s.groups()) // of each group, the stage that it last ran in, plus one
	var stack []int32
	for t := range int32(s.count()) {
		run := func(g int32) {
			if ran[g] != t+1 {
				ran[g] = t + 1
				stack = append(stack, g)
			}
		}
		for v := range s.items {
			if _, wanted := slices.BinarySearch(s.items[v].needs, t); wanted && from[v] > t {
				run(s.items[v].group)
			}
		}
		for len(stack) > 0 {
			g := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, v := range s.lists[g] {
				from[v] = min(from[v], t+1)
			}
			for _, v := range s.reads[g] {
				if from[v] > t {
					run(s.items[v].group)
				}
			}
			for _, h := range s.runs[g] {
				run(h)
			}
		}
	}
	return func(v int32, t int) bool { return int32(t) >= from[v] }
}
