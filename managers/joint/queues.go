package joint

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// When everything happens: compute streams and the two copy engines as queues, walked once in order of time.
//
// The problem: the step time of thousands of candidates, without assembling, placing and simulating each.
//
// The approach: three walks. nominal lets compute run as if it never waited for a copy, which gives the times
// at which copies back must be done (prefetches.go). They stay the same as long as nothing is rerun.
// overlapped then issues copies out after the op that
// wrote, and copies back at their positions; it releases memory when a copy out is done, waits for one where
// the limit needs its memory, and lets ops wait for what they read. inline does the same where there are no
// engines and copies run on the first stream.
//
// Complexity: O(ops + copies) each. Rejected: the simulator (a hundred times the time, most of it for
// addresses, which an estimate does not need). Left out: copies in both directions slow each other down; the
// evaluator measures that.

// queues are the times of a schedule.
type queues struct {
	m          *model
	setting    *setting
	absences   *absences
	memory     *memory
	chains     *chains
	prefetches *prefetches

	nominal    nominal
	start, end []int64 // of each op
	evicted    []int64 // when each swap's copy out is done
	prefetched []int64
	loaded     []int64 // when each of the chains' loads is done
	wait       []int64 // how long compute waits at each position
	stall      int64   // the sum of wait
	time       int64   // when everything is done
	ready      []int64 // when each stream is free
	evictions  lists   // the swaps, by the op after which they are copied out
	leaving    lists   // those that stay for a while after the copy, by the last op during which they stay
	late       []int32 // the same as a list
	pending    []int32 // copies out whose memory is not released yet
}

// run computes the nominal times.
func (x *nominal) run(qs *queues) {
	m := qs.m
	if m.k > 1 {
		x.runStreams(qs)
		return
	}
	bare := len(qs.chains.reruns) == 0
	if bare && x.bare && x.ways == qs.setting.ways {
		return
	}
	x.bare, x.ways = bare, qs.setting.ways
	var t int64
	for i, dur := range qs.setting.dur {
		x.clock[i] = t
		t = max(t+qs.chains.rerunTime[i], m.issue[i])
		x.start[i] = t
		t += dur
	}
	x.clock[m.n] = t
}

// runStreams is run with several streams.
func (x *nominal) runStreams(qs *queues) {
	x.start = qs.start
	clear(qs.ready)
	var all int64
	for i := range qs.m.n {
		x.clock[i] = all
		qs.begin(i)
		all = max(all, qs.end[i])
	}
	x.clock[qs.m.n] = all
}

// begin sets the times of op i on its stream.
func (qs *queues) begin(i int) {
	m := qs.m
	q := m.p.Ops[i].Stream
	if qs.chains.rerunTime[i] > 0 { // the chain's ops run on their own streams; the estimate uses the op's
		qs.ready[q] += qs.chains.rerunTime[i]
	}
	t := max(qs.ready[q], m.issue[i])
	for _, d := range m.behind.of(int32(i)) {
		t = max(t, qs.end[d])
	}
	qs.start[i], qs.end[i] = t, t+qs.setting.dur[i]
	qs.ready[q] = qs.end[i]
}

// overlapped walks the iteration once with all queues. It releases a buffer when its copy out is done, or
// waits for the copy where the memory is needed.
func (qs *queues) overlapped() {
	qs.sortEvictions()
	clear(qs.ready)
	qs.pending, qs.stall = qs.pending[:0], 0
	qs.loaded = slices.Grow(qs.loaded[:0], len(qs.chains.loads))[:len(qs.chains.loads)]
	w := walk{queues: qs}
	for i := 0; i < qs.m.n; i++ {
		if qs.m.k == 1 {
			if i = w.quiet(i); i == qs.m.n {
				break
			}
		}
		w.at, w.until, w.opUntil, w.backUntil = plan.OpID(i), 0, 0, 0
		w.reruns = qs.chains.rerunTime[i] > 0
		if w.given < len(w.pending) { // most ops have nothing to do with copies
			w.giveBack()
		}
		w.fetch()
		arrived := w.due < w.issued && w.arrive()
		if w.reruns && w.arriveForRerun() {
			arrived = true
		}
		if qs.m.k == 1 {
			w.runInOrder(arrived)
		} else {
			w.run()
		}
		w.evict()
	}
	qs.time = max(w.now, w.inFree, w.outFree)
}

// sortEvictions lists the swaps by the op after which they leave, and those that stay for a while by when
// they leave.
func (qs *queues) sortEvictions() {
	m := qs.m
	qs.listEvictions()
	qs.late = qs.late[:0]
	if qs.setting.timing == nil {
		return
	}
	for _, g := range qs.prefetches.order {
		if qs.absences.leave[g] > m.gaps[g].after+1 {
			qs.late = append(qs.late, g)
		}
	}
	qs.leaving.sort(qs.late, func(g int32) plan.OpID { return qs.absences.leave[g] - 1 })
}

// listEvictions lists the copies out by the op that they follow; those of one op by when their contents were
// written, then in the order in which they return, as plan.Assemble issues them.
func (qs *queues) listEvictions() {
	m := qs.m
	qs.evictions.sort(qs.prefetches.order, func(g int32) plan.OpID { return m.gaps[g].after })
	qs.evictions.order(func(g int32) plan.OpID { return m.gaps[g].writer })
}

// walk is the progress of overlapped, op by op.
type walk struct {
	*queues
	now             int64 // when all ops before the current one are done
	outFree, inFree int64 // when the copy engines are free
	held            int64 // bytes copied out and not released yet

	given  int // how many of pending are released
	issued int // how many copies back are issued; they are in order of fetch and of due
	due    int // how many copies back have been due
	rerun  int // how many reruns are passed
	loads  int // how many loads of reruns are issued

	at     plan.OpID // the current op
	reruns bool      // ops run again before it
	// when the rerun and the op may start, when the op itself may, and when the copies back issued here may:
	// each waits for the memory that it takes
	until, opUntil, backUntil int64
}

// apart reports whether a rerun before the current op can start without waiting for all that the op waits
// for. With several streams that is not known.
func (w *walk) apart() bool { return w.reruns && w.m.k == 1 }

// quiet runs the ops on the only stream from position i on, up to the next position at which a value returns
// or a rerun comes first, and returns that. Most ops of a long iteration run here.
func (w *walk) quiet(i int) int {
	m, stop := w.m, w.next(i)
	for ; i < stop; i++ {
		t := w.now
		if w.given < len(w.pending) {
			w.at, w.until, w.reruns = plan.OpID(i), 0, false
			w.giveBack()
			t = max(t, w.until)
		}
		w.wait[i] = t - w.now
		w.stall += w.wait[i]
		t = max(t, m.issue[i])
		w.start[i], w.now = t, t+w.setting.dur[i]
		w.end[i] = w.now
		if w.evictions.first[i] >= 0 || len(w.late) > 0 {
			w.at = plan.OpID(i)
			w.evict()
		}
	}
	return i
}

// next returns the first position from i on at which a copy back is issued or due, or a rerun comes first.
func (w *walk) next(i int) int {
	stop := plan.OpID(w.m.n)
	for w.rerun < len(w.chains.reruns) && w.chains.reruns[w.rerun].at < plan.OpID(i) {
		w.rerun++
	}
	if w.rerun < len(w.chains.reruns) {
		stop = min(stop, w.chains.reruns[w.rerun].at)
	}
	if order := w.prefetches.order; w.due < len(order) {
		stop = min(stop, w.absences.due[order[w.due]])
		if w.issued < len(order) {
			stop = min(stop, w.absences.fetch[order[w.issued]])
		}
	}
	if loads := w.chains.loads; w.loads < len(loads) {
		stop = min(stop, loads[w.loads].fetch)
	}
	return max(int(stop), i)
}

// giveBack releases the memory of copies out that are done, and of those that must be waited for because the
// memory is needed. With one stream only what needs it waits: the op, the rerun before it, or the copies back
// issued here. With several streams, that made estimates too low: random problems lost up to 11 %.
func (w *walk) giveBack() {
	if loads := w.chains.loads; w.reruns || w.loads < len(loads) && loads[w.loads].fetch <= w.at {
		w.scratchFirst(w.at, w.given)
	}
	limit, load, rerunPeak := w.memory.limit[w.at], w.memory.load[w.at], w.memory.rerunPeak[w.at]
	coming := int64(-1) // bytes, not known yet
	// bytes in memory before the op, or the most while its rerun goes on
	before := max(load-w.m.born[w.at]-(w.setting.work[w.at]-w.m.work[w.at]), rerunPeak)
	for ; w.given < len(w.pending); w.given++ {
		g := w.pending[w.given]
		returns, scratch := w.absences.fetch[g] <= w.at, w.absences.evictBy[g] <= w.at
		must := returns || scratch || load+w.held > limit || rerunPeak > 0 && rerunPeak+w.held > limit
		if !must && w.evicted[g] > w.now {
			return
		}
		if must && coming < 0 {
			coming = w.coming()
		}
		switch {
		case returns: // its copy back waits for it
		case w.m.k == 1 && !scratch && max(load, rerunPeak)-coming+w.held <= limit:
			w.backUntil = max(w.backUntil, w.evicted[g]) // only what comes back here takes the memory
		case w.apart() && !scratch && rerunPeak+w.held <= limit:
			w.opUntil = max(w.opUntil, w.evicted[g])
		default:
			w.until = max(w.until, w.evicted[g])
			if w.m.k > 1 || scratch || before+w.held > limit {
				w.backUntil = w.until
			}
		}
		w.absences.release[g] = min(w.at, w.absences.fetch[g])
		w.held -= w.m.gaps[g].size
	}
}

// coming returns the bytes of the copies back for good that are issued at the current position.
func (w *walk) coming() (bytes int64) {
	order := w.prefetches.order
	for k := w.issued; k < len(order) && w.absences.fetch[order[k]] <= w.at; k++ {
		bytes += w.m.gaps[order[k]].size
	}
	return bytes
}

// arriveForRerun reports whether the rerun here loads anything. With several streams it waits for that.
func (w *walk) arriveForRerun() bool {
	r := w.current()
	for k := r.loadFrom; k < r.loadTo && w.m.k > 1; k++ {
		w.until = max(w.until, w.loaded[k])
	}
	return r.loadFrom < r.loadTo
}

// current returns the rerun before the current op.
func (w *walk) current() *rerun {
	for w.chains.reruns[w.rerun].at < w.at {
		w.rerun++
	}
	return &w.chains.reruns[w.rerun]
}

// fetch issues the copies back of this position, those for reruns alone first.
func (w *walk) fetch() {
	for loads := w.chains.loads; w.loads < len(loads) && loads[w.loads].fetch <= w.at; w.loads++ {
		if l := &loads[w.loads]; !w.absences.served(l) {
			w.copyBack(l.gap)
		}
		w.loaded[w.loads] = w.inFree
	}
	for order := w.prefetches.order; w.issued < len(order); w.issued++ {
		g := order[w.issued]
		if w.absences.fetch[g] > w.at {
			return
		}
		w.copyBack(g)
		w.prefetched[g] = w.inFree
	}
}

// copyBack issues a copy back of the value of gap g.
func (w *walk) copyBack(g int32) {
	w.inFree = max(w.inFree, w.now, w.backUntil, w.evicted[g]) + w.m.gaps[g].prefetchTime
}

// arrive waits for the copies back that are due here, and reports whether there are any.
func (w *walk) arrive() bool {
	before := w.due
	for order := w.prefetches.order; w.due < w.issued; w.due++ {
		g := order[w.due]
		if w.absences.due[g] > w.at {
			break
		}
		switch forOp := w.m.gaps[g].before == w.at; {
		case forOp && w.apart():
			w.opUntil = max(w.opUntil, w.prefetched[g])
		case forOp || w.reruns && !w.apart(): // a chain that reads a value pulled early waits for it
			w.until = max(w.until, w.prefetched[g])
		}
	}
	return w.due > before
}

// runInOrder runs the current op on the only stream, after its rerun.
func (w *walk) runInOrder(arrived bool) {
	i := int(w.at)
	rerunTime := w.chains.rerunTime[i]
	t := max(w.now, w.until)
	if w.reruns && arrived {
		t = w.rerunAt(w.current(), t)
	} else {
		t += rerunTime
	}
	t = max(t, w.opUntil)
	w.wait[i] = t - w.now - rerunTime
	w.stall += w.wait[i]
	t = max(t, w.m.issue[i])
	w.start[i], w.end[i] = t, t+w.setting.dur[i]
	w.now = w.end[i]
}

// run runs the current op on its stream.
func (w *walk) run() {
	i := int(w.at)
	w.begin(i)
	early := w.start[i]
	if w.until > early {
		w.start[i], w.end[i] = w.until, w.until+w.setting.dur[i]
		w.ready[w.m.p.Ops[i].Stream] = w.end[i]
	}
	w.wait[i] = w.start[i] - early
	w.stall += w.wait[i]
	w.now = max(w.now, w.end[i])
}

// evict issues the copies out that follow the current op.
func (w *walk) evict() {
	for g := w.evictions.first[w.at]; g >= 0; g = w.evictions.next[g] {
		w.outFree = max(w.outFree, w.written(g)) + w.m.gaps[g].evictTime
		w.evicted[g] = w.outFree
		if w.absences.leave[g] == w.at+1 {
			w.pending = append(w.pending, g)
			w.held += w.m.gaps[g].size
		}
	}
	if len(w.late) == 0 {
		return
	}
	for g := w.leaving.first[w.at]; g >= 0; g = w.leaving.next[g] {
		w.pending = append(w.pending, g)
		w.held += w.m.gaps[g].size
	}
}

// rerunAt returns when a rerun that begins at t is done: each of its ops waits for the copies back of what it
// reads.
func (qs *queues) rerunAt(r *rerun, t int64) int64 {
	m := qs.m
	for _, o := range qs.chains.ops[r.from:r.to] {
		for _, a := range m.p.AccessesOf(o) {
			if !a.Mode.Reads() {
				continue
			}
			there, g := qs.absences.present(a.Buffer, r.at)
			switch k := qs.chains.load(r, g); {
			case g < 0 || qs.absences.how[g] != swap || r.at < qs.absences.leave[g]:
			case there:
				t = max(t, qs.prefetched[g])
			case k >= 0:
				t = max(t, qs.loaded[k])
			}
		}
		t += qs.setting.dur[o] + m.p.Hardware.AgainTime
	}
	return t
}

// inline replaces overlapped if there are no copy engines. Each copy runs on the first stream, out right
// after the last op that touches the buffer and back right before the next. Only other streams wait for it,
// and the memory is free in between.
func (qs *queues) inline() {
	m := qs.m
	qs.listEvictions()
	clear(qs.ready)
	qs.stall = 0
	next, rerun := 0, 0 // copies back are in order of fetch, reruns in order of time
	var all int64
	for i := range m.n {
		qs.wait[i] = 0
		q := m.p.Ops[i].Stream
		for ; rerun < len(qs.chains.reruns) && qs.chains.reruns[rerun].at <= plan.OpID(i); rerun++ {
			r := &qs.chains.reruns[rerun]
			for _, l := range qs.chains.loads[r.loadFrom:r.loadTo] {
				qs.ready[0] += m.gaps[l.gap].prefetchTime
				qs.ready[q] = max(qs.ready[q], qs.ready[0])
			}
		}
		order := qs.prefetches.order
		for ; next < len(order) && qs.absences.fetch[order[next]] <= plan.OpID(i); next++ {
			g := order[next]
			qs.ready[0] += m.gaps[g].prefetchTime
			qs.prefetched[g] = qs.ready[0]
			qs.ready[q] = max(qs.ready[q], qs.ready[0])
		}
		qs.begin(i)
		for g := qs.evictions.first[i]; g >= 0; g = qs.evictions.next[g] {
			qs.ready[0] = max(qs.ready[0], qs.written(g)) + m.gaps[g].evictTime
			qs.evicted[g] = qs.ready[0]
		}
		all = max(all, qs.end[i], qs.ready[0])
	}
	qs.time = all
	if len(qs.chains.reruns) > 0 {
		qs.time += m.saving + m.noting
	} else if len(qs.prefetches.order) > 0 {
		qs.time += m.saving
	}
}

// written returns when the contents of gap g have been written: by the writing op, or by what brought them
// back from the buffer's previous absence.
func (qs *queues) written(g int32) int64 {
	x := &qs.m.gaps[g]
	t := qs.m.issue[x.after]
	if x.writer >= 0 {
		t = max(t, qs.end[x.writer])
	}
	if g > qs.m.first[x.buffer] {
		switch y := &qs.m.gaps[g-1]; {
		case y.before <= x.writer:
		case qs.absences.how[g-1] == swap:
			t = max(t, qs.prefetched[g-1])
		case qs.absences.how[g-1] == recompute:
			t = max(t, qs.start[qs.absences.fetch[g-1]])
		}
	}
	return t
}

// scratchFirst moves those pending copies to the front whose buffers a chain at this position recomputes as
// scratch, or which are loaded here.
func (qs *queues) scratchFirst(at plan.OpID, first int) {
	put := first
	for k := first; k < len(qs.pending); k++ {
		if g := qs.pending[k]; qs.absences.evictBy[g] <= at {
			copy(qs.pending[put+1:k+1], qs.pending[put:k])
			qs.pending[put] = g
			put++
		}
	}
}
