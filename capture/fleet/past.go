package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A gmemtop that started ranks may be killed while they train. Their agents stay, keep the newest steps, and
// number them as before. The hub still has the last hello of that node, so another gmemtop on the same
// machine can go on in its name: viewers see the same ranks send again, and no step is counted twice.

// past is a node whose gmemtop has ended without a word, as its last hello describes it.
type past struct {
	hello hello
	// sums has, by rank, the steps that the node had sent and not summed up yet.
	sums map[int]capture.Span
	mu   sync.Mutex // guards last
	// last has, by rank, the last step that the hub has of it, until that is asked for. The rank may have
	// sent more to the gmemtop that was killed.
	last map[int]int64
}

// lookWait is how long the hub may take to send the newest hello of each node.
const lookWait = 10 * time.Second

// lastHello returns what the hub knows about a node, nil if it does not know the node.
func lastHello(ctx context.Context, c *bus.Conn, node string) (was *past, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, lookWait, fmt.Errorf("the hub did not say within %s which "+
		"nodes it knows: check that gmemtop hub still runs, then try again", lookWait))
	defer stop()
	all := false
	c.Read(ctx, func(m bus.Message) {
		if h, err := readHello(m.Data); err == nil && m.Node == node {
			was = &past{hello: h}
		}
	}, func(bus.Kind) { all = true; stop() }, bus.Hello)
	if !all {
		return nil, context.Cause(ctx)
	}
	return was, nil
}

// recall sums up what the node had sent since its last roll-ups: these are lost with it, but the hub still
// has the steps. If the hub does not send them in time, no sum has them.
func (p *past) recall(ctx context.Context, c *bus.Conn, node string) {
	ctx, stop := context.WithTimeout(ctx, lookWait)
	defer stop()
	summed := map[int]int64{} // the newest step of each rank that is in a roll-up
	var since time.Time
	all := readAll(ctx, c, node, time.Time{}, bus.Roll, func(m bus.Message) error {
		since = m.Stored
		return readRolled(m.Data, func(x rolled) { summed[x.id] = max(summed[x.id], x.span.Last) })
	})
	if !since.IsZero() {
		since = since.Add(-2 * rollEvery) // the newest one may be of a rank that ended between two others
	}
	sums := map[int]capture.Span{}
	all = all && readAll(ctx, c, node, since, bus.Step, func(m bus.Message) error {
		return readBatches(m.Data, func(b batch) {
			sum := sums[b.id]
			for i := range b.steps {
				last, ok := summed[b.id]
				if s := &b.steps[i]; (!ok || s.Index > last) && (sum.Steps == 0 || s.Index > sum.Last) {
					one := capture.SpanOf(s)
					sum.Merge(&one)
				}
			}
			if sum.Steps > 0 {
				sums[b.id] = sum
			}
		})
	})
	if !all {
		return
	}
	p.sums, p.last = sums, summed
	for id, sum := range sums {
		if sum.Steps > 0 {
			p.last[id] = max(p.last[id], sum.Last)
		}
	}
}

// received returns the last step of a process that the hub has. It answers once: what comes later is this
// gmemtop's to know.
func (p *past) received(t capture.Info) maybe.Int {
	r := p.rank(t)
	if r == nil {
		return maybe.Int{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.last[r.ID]
	delete(p.last, r.ID)
	if !ok {
		return maybe.Int{}
	}
	return maybe.Known(last)
}

// readAll reads the messages of a kind that a node has sent. all is false if ctx was done before.
func readAll(ctx context.Context, c *bus.Conn, node string, since time.Time, k bus.Kind,
	take func(m bus.Message) error) (all bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.ReadNode(ctx, node, since, func(m bus.Message) {
		_ = take(m) // the viewer says so
	}, func(bus.Kind) { all = true; stop() }, k)
	return all
}

// running reports whether a process of this machine runs. A started of 0 is not compared.
func running(pid int, started int64) bool {
	s, err := procs.ReadStat(fmt.Sprintf("/proc/%d", pid))
	return err == nil && !s.Ended() && (started == 0 || s.Started == started)
}

// rank returns what was known about a process when the node ended, nil if it is not one of its ranks.
func (p *past) rank(t capture.Info) *rank {
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.hello.Ranks, func(r rank) bool {
		return r.End == nil && r.PID == t.PID && (r.Started == t.Started || r.Started == 0)
	})
	if i < 0 {
		return nil
	}
	return &p.hello.Ranks[i]
}

// inherit takes over the ranks of the node before this one.
func (n *Node) inherit(p *past) {
	for _, r := range p.hello.Ranks {
		n.newID = max(n.newID, r.ID+1)
		if number, ok := r.Rank.Value(); ok {
			n.attempts[number] = max(n.attempts[number], r.Attempt-n.options.Identity.Attempt+1)
		}
		n.inherited = append(n.inherited, r)
	}
}

// begins returns what is known about a process before this node sends its first step. own is the number of
// the process in its job.
func (n *Node) begins(t capture.Info, own int) *sentRank {
	s := &sentRank{id: n.newID + own, attempt: n.options.Identity.Attempt}
	if r := n.options.past.rank(t); r != nil {
		s.id, s.attempt, s.first, s.dropped, s.lost = r.ID, r.Attempt, r.First, r.Dropped, r.Lost
		s.rolling = n.options.past.sums[r.ID]
		delete(n.options.past.sums, r.ID)
	} else if number, ok := t.Rank.Value(); ok {
		s.attempt += n.attempts[number]
		n.attempts[number]++
	}
	return s
}

// orphaned returns the sums of ranks of the node before this one that have sent nothing to this node, once.
func (p *past) orphaned() (list []rolled) {
	if p == nil {
		return nil
	}
	for i := range p.hello.Ranks {
		r := &p.hello.Ranks[i]
		if sum, ok := p.sums[r.ID]; ok {
			list = append(list, rolled{head{r.ID, r.Attempt, r.PID, r.Rank, r.WorldSize}, sum})
			delete(p.sums, r.ID)
		}
	}
	return list
}

// unheard returns the inherited ranks that have sent nothing to this node. One that runs may still do so.
func (n *Node) unheard() []rank {
	list := slices.DeleteFunc(slices.Clone(n.inherited), func(r rank) bool { return n.byID[r.ID] != nil })
	for i := range list {
		if r := &list[i]; r.End == nil && !running(r.PID, r.Started) {
			r.End = &end{Reason: capture.Exited} // while nobody watched
		}
	}
	return list
}

// counts are those of the ring, and of the past node's.
func (n *Node) counts() bus.Counts {
	c := n.ring.Counts()
	if p := n.options.past; p != nil {
		past := p.hello.Counts
		c.Put, c.Sent = c.Put+past.Put, c.Sent+past.Sent
		c.Again, c.Dropped = c.Again+past.Again, c.Dropped+past.Dropped
	}
	return c
}
