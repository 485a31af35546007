package fleet

import (
	"context"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
)

// The hub keeps the sums of minutes much longer than single steps. A viewer reads them for steps that it
// cannot get any more: those before the first one that the hub has, and those that are missing in the middle
// when the viewer was away for long, or when a node had no room for them while the hub was.

const (
	// sumWait is how long the hub may take to begin with its roll-ups. A gmemtop from before there were any
	// has none.
	sumWait = 10 * time.Second
	// maxHoles is how many gaps in a rank's steps are remembered, the newest ones.
	maxHoles = 64
)

// hole is a gap in the steps of a process: those to the index to are missing, and those before next are
// summed up.
type hole struct{ next, to int64 }

// sums reads roll-ups until ctx is done: at first those of the steps that the hub no longer has, and later,
// at most once in a while, those of steps that are missing in between.
func (w *Watch) sums(ctx context.Context, c *bus.Conn) {
	w.sum(ctx, c)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.holed:
		}
		w.readRolled(ctx, c)
		w.bridge()
		pause(ctx, w.options.resum)
	}
}

// sum reads the roll-ups of the steps that the hub no longer has. It knows which these are once it has read
// all steps that the hub has.
func (w *Watch) sum(ctx context.Context, c *bus.Conn) {
	select {
	case <-w.summed: // by a hub before this one
		return
	default:
	}
	select {
	case <-w.caught:
	case <-ctx.Done():
		return
	}
	select {
	case <-w.holed: // this reading fills these holes
	default:
	}
	if all := w.readRolled(ctx, c); ctx.Err() == nil || all {
		w.precede()
		w.bridge()
		close(w.summed)
	}
}

// readRolled reads the roll-ups that the hub has. all is false if it did not send them.
func (w *Watch) readRolled(ctx context.Context, c *bus.Conn) (all bool) {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	late := time.AfterFunc(sumWait, stop)
	defer late.Stop()
	c.Read(reading, func(m bus.Message) { late.Reset(sumWait); w.take(m) },
		func(bus.Kind) { all = true; stop() }, bus.Roll)
	return all
}

// precede adds the spans that were read before the steps that the hub still had.
func (w *Watch) precede() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.preceded = true
	for _, n := range w.nodes {
		for _, m := range n.ranks {
			if len(m.early.List) > 0 {
				m.process.Precede(m.early.List)
			}
		}
	}
}

// roll takes a span of a process's steps, if it ends before the first step that is here, or lies in a gap.
func (w *Watch) roll(n *node, x rolled) {
	m := w.member(n, &rank{ID: x.id, Attempt: x.attempt, PID: x.pid, Rank: x.rank, WorldSize: x.worldSize})
	if m.fill(&x.span) || w.preceded {
		return
	}
	k := len(m.early.List)
	if m.taken > 0 && x.span.Last >= m.first || k > 0 && x.span.First <= m.early.List[k-1].Last {
		return
	}
	m.early.Add(&x.span)
	m.summed += x.span.Steps
}

// misses notes that steps are missing between others. A recording has no sums of them.
func (w *Watch) misses(m *member, h hole) {
	if w.options.Record != nil {
		return
	}
	m.holes = append(m.holes[max(len(m.holes)-maxHoles+1, 0):], h)
	select {
	case w.holed <- struct{}{}:
	default:
	}
}

// fill takes a span of steps that lies in a gap. One that does not lie there as a whole also sums up steps
// that are here, and is of no use. fill reports whether it took the span.
func (m *member) fill(p *capture.Span) bool {
	for i := range m.holes {
		if h := &m.holes[i]; h.next <= p.First && p.Last <= h.to {
			h.next = p.Last + 1
			m.bridges = append(m.bridges, *p)
			m.lose(-p.Steps)
			return true
		}
	}
	return false
}

// bridge adds the spans that fill gaps.
func (w *Watch) bridge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		for _, m := range n.ranks {
			m.process.History.Bridge(m.bridges)
			m.bridges = nil
		}
	}
}
