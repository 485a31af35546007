package gmt

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
)

// finish makes a trace from what was read and counts what is missing.
func (r *reader) finish(l layout) *traces.Trace {
	t := r.t
	whole := l.complete && len(l.damaged) == 0 && len(r.failures) == 0
	r.cutEvents()
	if t.Strings == nil {
		t.Strings = []string{""}
	}
	if t.Streams == nil {
		t.Streams = []uint64{0}
	}
	if t.Details == nil {
		t.Details = []traces.Detail{{ForwardStack: traces.NoStack}}
	}
	if t.Source.Format == "" {
		t.Source.Format = formatName
	}
	r.translate()
	r.checkState(whole)
	stored := t.Losses
	t.Losses = nil
	t = r.b.Finish()
	t.Losses = mergeLosses(stored, t.Losses)
	r.countLosses(t, l)
	t.Losses = append(t.Losses, r.found...)
	return t
}

// cutEvents drops the rows that were allocated for unusable chunks, in one pass.
func (r *reader) cutEvents() {
	ev := &r.t.Events
	var bad []gap // rows as allocated
	for _, f := range r.failures {
		if f.chunk.class == classEvents && f.chunk.offset < r.stop {
			bad = append(bad, gap{first: int64(f.first), n: int64(f.chunk.rows)})
			r.lost[tabEvents] += int64(f.chunk.rows)
			r.events = append(r.events, gap{first: f.chunk.before[tabEvents], n: int64(f.chunk.rows)})
		}
	}
	slices.SortFunc(bad, func(a, b gap) int { return cmp.Compare(a.first, b.first) })
	slices.SortFunc(r.events, func(a, b gap) int { return cmp.Compare(a.first, b.first) })
	lost := int64(0)
	for i := range r.events {
		r.events[i].lostBefore = lost
		lost += r.events[i].n
	}
	ev.Time, ev.Addr, ev.Size = keep(ev.Time, bad, r.next), keep(ev.Addr, bad, r.next),
		keep(ev.Size, bad, r.next)
	ev.Stack, ev.Stream = keep(ev.Stack, bad, r.next), keep(ev.Stream, bad, r.next)
	ev.Device, ev.Action = keep(ev.Device, bad, r.next), keep(ev.Action, bad, r.next)
	if ev.Detail != nil {
		ev.Detail = keep(ev.Detail, bad, r.next)
	}
}

// keep returns the first n of s without the rows in bad, which are in order.
func keep[T any](s []T, bad []gap, n int) []T {
	s = s[:n]
	if len(bad) == 0 {
		return s
	}
	to := int(bad[0].first)
	for i, g := range bad {
		end := n
		if i+1 < len(bad) {
			end = int(bad[i+1].first)
		}
		to += copy(s[to:], s[g.first+g.n:end])
	}
	return s[:to]
}

// translate turns the recorder's numbers of events and ops into those of the trace. A row that was tied to a
// lost event goes before the next event that is left.
func (r *reader) translate() {
	t := r.t
	n, ops := int64(t.Events.Len()), int64(len(t.Ops))
	for i := range t.Accesses {
		a := &t.Accesses[i]
		now, _ := r.events.find(int64(a.Event))
		a.Event = int32(min(now, n))
		a.Op = r.op(a.Op, ops)
	}
	for i := range t.Ops {
		t.Ops[i].Parent = r.op(t.Ops[i].Parent, ops)
	}
	for i := range t.Counters {
		c := &t.Counters[i]
		if !r.tied[i] {
			continue
		}
		kept := traces.Counter{Name: c.Name, Device: c.Device, Time: c.Time[:0], Value: c.Value[:0],
			Event: c.Event[:0]}
		if kept.Event == nil {
			kept.Event = []int32{}
		}
		for j, e := range c.Event {
			if now, lost := r.events.find(int64(e)); !lost && now < n {
				kept.Time, kept.Value, kept.Event = append(kept.Time, c.Time[j]),
					append(kept.Value, c.Value[j]), append(kept.Event, int32(now))
			} else {
				r.lost[tabRecords]++
			}
		}
		*c = kept
	}
}

func (r *reader) op(id traces.OpID, n int64) traces.OpID {
	if id < 0 {
		return traces.NoOp
	}
	now, lost := r.ops.find(int64(id))
	if lost || now >= n {
		return traces.NoOp
	}
	return traces.OpID(now)
}

// checkState drops an incomplete final state: half of one would look like the truth.
func (r *reader) checkState(whole bool) {
	s := &r.t.Final
	s.Known = r.hasFinal && r.final.ref == 1
	ok := r.hasFinal && int64(len(s.Segments)) == r.final.size && int64(len(s.Blocks)) == r.final.value
	if !r.hasFinal {
		ok = len(s.Segments) == 0 && len(s.Blocks) == 0
	}
	for _, x := range s.Segments {
		ok = ok && 0 <= x.FirstBlock && x.FirstBlock <= x.EndBlock && int(x.EndBlock) <= len(s.Blocks)
	}
	if ok {
		return
	}
	*s = traces.State{}
	if whole {
		r.t.Losses = append(r.t.Losses, traces.Loss{Name: "final_state_contradictory", Severity: traces.Fault,
			Count: 1, Detail: "the allocator's final state in the file contradicts itself and is left out"})
	}
}

// mergeLosses joins the losses in the file with those that building the trace found again.
func mergeLosses(stored, found []traces.Loss) []traces.Loss {
	for _, l := range found {
		if !slices.ContainsFunc(stored, func(s traces.Loss) bool { return s.Name == l.Name }) {
			stored = append(stored, l)
		}
	}
	return stored
}

// countLosses adds to found what this reading found missing.
func (r *reader) countLosses(t *traces.Trace, l layout) {
	damaged := int64(len(r.failures))
	for _, x := range l.damaged {
		if !l.cut(x) {
			damaged++
		}
	}
	definitions := int64(0)
	for i := range tabEvents {
		definitions += r.lost[i]
	}
	missing := r.lost[tabEvents] + r.lost[tabOps] + r.lost[tabRecords] + definitions
	repaired := slices.ContainsFunc(t.Losses, func(s traces.Loss) bool { return s.Name == lossDamaged })
	if damaged == 0 && missing > 0 && l.complete && !repaired {
		damaged = 1
	}
	if damaged > 0 {
		r.found = append(r.found, traces.Loss{Name: lossDamaged, Severity: traces.DataLoss, Count: damaged,
			Detail: fmt.Sprintf(
				"damaged chunks of the file are left out: at least %d events, %d ops, %d other rows and %d "+
					"definitions are missing",
				r.lost[tabEvents], r.lost[tabOps], r.lost[tabRecords], definitions)})
	}
	if !l.complete {
		r.found = append(r.found, traces.Loss{Name: lossCut, Severity: traces.DataLoss, Count: 1,
			Detail: "the recorder was stopped before it " +
				"could end the file: what happened after the last chunk (at most about a second) is missing"})
	}
	if r.unknown > 0 {
		r.found = append(r.found, traces.Loss{Name: lossUnknown, Severity: traces.Info, Count: r.unknown,
			Detail: "the file has rows of kinds that this version does not know; a later gmemtop shows them"})
	}
}
