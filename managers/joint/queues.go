package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// When everything happens: compute streams and the two copy engines as queues, walked once in order of time.
//
// Problem: the step time of thousands of candidates, without assembling, placing and simulating each.
//
// Way chosen: three walks. nominal lets compute run as if no copy were waited for, and gives the times at
// which copies back must be done (prefetches.go). overlapped then issues copies out behind the op that wrote,
// copies back at their positions, gives memory back when a copy out is done, waits for one where the limit
// needs its memory, and lets ops wait for what they read. inline does the same where there are no engines and
// copies stand in the first stream.
//
// Complexity: O(ops + copies) each. Rejected: the simulator (a hundred times the time, most of it for
// addresses, which an estimate does without). Left out: that copies both ways slow each other down, which the
// evaluator measures.

// queues are the times of a schedule.
type queues struct {
	m          *model
	setting    *setting
	absences   *absences
	memory     *memory
	chains     *chains
	prefetches *prefetches

	clock      []int64 // of each position, when all ops before it are done
	start, end []int64 // of each op
	evicted    []int64 // of each swap
	prefetched []int64
	wait       []int64 // of each position, how long compute stands still there
	stall      int64   // all of wait
	time       int64   // when all is done
	ready      []int64 // of each stream, when it is free
	evictions  lists   // the swaps, by the op behind which they are copied
	leaving    lists   // those that stay for a while behind it, by the last op that they stay for
	late       []int32 // the same as a list
	pending    []int32 // copies out whose memory is not given back yet
}

// nominal works out when compute comes to each position if no copy is ever waited for.
func (qs *queues) nominal() {
	m := qs.m
	if m.k == 1 {
		var t int64
		for i := range m.n {
			qs.clock[i] = t
			t = max(t+qs.chains.rerunTime[i], m.issue[i])
			qs.start[i] = t
			t += qs.setting.dur[i]
			qs.end[i] = t
		}
		qs.clock[m.n] = t
		return
	}
	clear(qs.ready)
	var all int64
	for i := range m.n {
		qs.clock[i] = all
		qs.begin(i)
		all = max(all, qs.end[i])
	}
	qs.clock[m.n] = all
}

// begin gives op i its times on its stream.
func (qs *queues) begin(i int) {
	m := qs.m
	q := m.p.Ops[i].Stream
	if qs.chains.rerunTime[i] > 0 { // the chain runs on its ops' own streams: taken as the op's
		qs.ready[q] += qs.chains.rerunTime[i]
	}
	t := max(qs.ready[q], m.issue[i])
	for _, d := range m.behind.of(int32(i)) {
		t = max(t, qs.end[d])
	}
	qs.start[i], qs.end[i] = t, t+qs.setting.dur[i]
	qs.ready[q] = qs.end[i]
}

// overlapped walks the iteration once with all queues, and releases what has been copied out when it is done,
// or earlier where memory is needed.
func (qs *queues) overlapped() {
	m := qs.m
	// Gaps by the op behind which they leave; among equals in the order in which they return, as
	// plan.Assemble issues them.
	qs.evictions.sort(qs.prefetches.order, func(g int32) plan.OpID { return m.gaps[g].after })
	qs.late = qs.late[:0]
	if qs.setting.nest != nil {
		for _, g := range qs.prefetches.order {
			if qs.absences.leave[g] > m.gaps[g].after+1 {
				qs.late = append(qs.late, g)
			}
		}
		qs.leaving.sort(qs.late, func(g int32) plan.OpID { return qs.absences.leave[g] - 1 })
	}
	clear(qs.ready)
	qs.pending = qs.pending[:0]
	var outFree, inFree, held, all int64
	qs.stall = 0
	nextIn, nextDue := 0, 0 // ins are in order of fetch, and in order of due
	first := 0              // of pending
	var single int64
	next := 0 // of the reruns
	for i := range m.n {
		at := plan.OpID(i)
		qs.clock[i] = all
		var wait, opWait int64 // of what stands here, and of the op alone, which may be behind a rerun
		again := m.k == 1 && qs.chains.rerunTime[i] > 0
		// What is done leaves; what must leave is waited for.
		if qs.chains.rerunTime[i] > 0 {
			qs.scratchFirst(at, first)
		}
		for first < len(qs.pending) {
			g := qs.pending[first]
			x := &m.gaps[g]
			must := qs.absences.fetch[g] <= at || qs.absences.evictBy[g] <= at ||
				qs.memory.load[i]+held > qs.memory.limit[i] ||
				qs.memory.rerunPeak[i] > 0 && qs.memory.rerunPeak[i]+held > qs.memory.limit[i]
			if !must && qs.evicted[g] > all {
				break
			}
			switch {
			case qs.absences.fetch[g] <= at:
			case again && qs.absences.evictBy[g] > at && qs.memory.rerunPeak[i]+held <= qs.memory.limit[i]:
				opWait = max(opWait, qs.evicted[g])
			default:
				wait = max(wait, qs.evicted[g])
			}
			qs.absences.release[g] = min(at, qs.absences.fetch[g])
			held -= x.size
			first++
		}
		for nextIn < len(qs.prefetches.order) && qs.absences.fetch[qs.prefetches.order[nextIn]] <= at {
			g := qs.prefetches.order[nextIn]
			inFree = max(inFree, all, wait, opWait, qs.evicted[g]) + m.gaps[g].prefetchTime
			qs.prefetched[g] = inFree
			nextIn++
		}
		due := nextDue
		for ; nextDue < nextIn && qs.absences.due[qs.prefetches.order[nextDue]] <= at; nextDue++ {
			g := qs.prefetches.order[nextDue]
			// a chain that reads what was pulled waits for it
			switch {
			case m.gaps[g].before == at && again:
				opWait = max(opWait, qs.prefetched[g])
			case m.gaps[g].before == at || qs.chains.rerunTime[i] > 0 && !again:
				wait = max(wait, qs.prefetched[g])
			}
		}
		if m.k == 1 {
			t := max(single, wait)
			for next < len(qs.chains.reruns) && qs.chains.reruns[next].at < at {
				next++
			}
			if again && due < nextDue {
				t = qs.rerunAt(&qs.chains.reruns[next], t)
			} else {
				t += qs.chains.rerunTime[i]
			}
			t = max(t, opWait)
			qs.wait[i] = t - single - qs.chains.rerunTime[i]
			qs.stall += qs.wait[i]
			t = max(t, m.issue[i])
			qs.start[i] = t
			single = t + qs.setting.dur[i]
			qs.end[i], all = single, single
		} else {
			qs.begin(i)
			early := qs.start[i]
			if wait > early {
				qs.start[i], qs.end[i] = wait, wait+qs.setting.dur[i]
				qs.ready[m.p.Ops[i].Stream] = qs.end[i]
			}
			qs.wait[i] = qs.start[i] - early
			qs.stall += qs.wait[i]
			all = max(all, qs.end[i])
		}
		for g := qs.evictions.first[i]; g >= 0; g = qs.evictions.next[g] {
			outFree = max(outFree, qs.written(g)) + m.gaps[g].evictTime
			qs.evicted[g] = outFree
			if qs.absences.leave[g] == at+1 {
				qs.pending = append(qs.pending, g)
				held += m.gaps[g].size
			}
		}
		if len(qs.late) > 0 {
			for g := qs.leaving.first[i]; g >= 0; g = qs.leaving.next[g] {
				qs.pending = append(qs.pending, g)
				held += m.gaps[g].size
			}
		}
	}
	qs.clock[m.n] = all
	qs.time = max(all, inFree, outFree)
}

// rerunAt returns when a rerun that begins at t is done: each of its ops waits for the copies back that it
// reads.
func (qs *queues) rerunAt(r *rerun, t int64) int64 {
	m := qs.m
	for _, o := range qs.chains.ops[r.from:r.to] {
		for _, a := range m.p.AccessesOf(o) {
			if !a.Mode.Reads() {
				continue
			}
			there, g := qs.absences.present(a.Buffer, r.at)
			if there && g >= 0 && qs.absences.how[g] == swap && r.at >= qs.absences.leave[g] {
				t = max(t, qs.prefetched[g])
			}
		}
		t += qs.setting.dur[o] + m.p.Hardware.AgainTime
	}
	return t
}

// inline is overlapped where there are no copy engines: each copy stands in the first stream, out of memory
// right behind the last op that touches the buffer and back right before the next, so that none is waited for
// but by other streams, and its memory is free between them.
func (qs *queues) inline() {
	m := qs.m
	qs.evictions.sort(qs.prefetches.order, func(g int32) plan.OpID { return m.gaps[g].after })
	clear(qs.ready)
	qs.stall = 0
	next := 0 // ins are in order of fetch
	var all int64
	for i := range m.n {
		qs.clock[i], qs.wait[i] = all, 0
		q := m.p.Ops[i].Stream
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
	qs.clock[m.n], qs.time = all, all
	if len(qs.chains.reruns) > 0 {
		qs.time += m.saving + m.noting
	} else if len(qs.prefetches.order) > 0 {
		qs.time += m.saving
	}
}

// written returns when what gap g holds has been written: by its op, or by what brought it back from its last
// absence.
func (qs *queues) written(g int32) int64 {
	x := &qs.m.gaps[g]
	t := qs.m.issue[x.after]
	if x.ready >= 0 {
		t = max(t, qs.end[x.ready])
	}
	if g > qs.m.first[x.buffer] {
		switch y := &qs.m.gaps[g-1]; {
		case y.before <= x.ready:
		case qs.absences.how[g-1] == swap:
			t = max(t, qs.prefetched[g-1])
		case qs.absences.how[g-1] == recompute:
			t = max(t, qs.start[qs.absences.fetch[g-1]])
		}
	}
	return t
}

// scratchFirst puts those of the pending copies first whose buffers a chain at this position makes again as
// scratch.
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
