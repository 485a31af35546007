package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// An operator captures the same step on several nodes with four orders:
//
//	prepare   how far are your ranks?                      every node: its ranks, their steps and step times
//	capture   these of your ranks, from this step on       the nodes that have such ranks: received
//	status    how far is the capture?                      the same nodes, asked again and again
//	fetch     the trace of this rank                       its node: on its way. It comes in parts, through
//	                                                       the hub, while the operator reads
//
// The first step is one that no rank has reached, so all begin with the same one. A rank that was faster than
// thought begins with a later one, and its trace says which.

// ready is a node's answer to prepare.
type ready struct {
	Ranks []readyRank `json:"ranks"`
}

// readyRank is how far a process is.
type readyRank struct {
	ID      int       `json:"id"`
	Attempt int       `json:"attempt,omitempty"`
	PID     int       `json:"pid"`
	Rank    maybe.Int `json:"rank,omitzero"`
	// Step is the index of its newest step, -1 for none, and Time the usual time of its last steps in
	// nanoseconds.
	Step int64 `json:"step"`
	Time int64 `json:"time"`
	// Why says why it takes no orders, "" if it does.
	Why string `json:"why,omitempty"`
}

// captureOrder asks for a capture.
type captureOrder struct {
	ID    string `json:"id"`
	First int64  `json:"first"`
	Steps int    `json:"steps"`
	How   string `json:"how,omitempty"`
	// Ranks are the processes to capture, by node.
	Ranks map[string][]int `json:"ranks"`
}

// statusOrder asks how far a capture is.
type statusOrder struct {
	ID string `json:"id"`
}

// progress is a node's answer to capture and status.
type progress struct {
	Ranks []rankProgress `json:"ranks"`
}

// rankProgress is how far the capture of a process is.
type rankProgress struct {
	ID    int    `json:"id"`
	State string `json:"state"`
	// Why says in words why it was refused.
	Why string `json:"why,omitempty"`
	// First and Last are the steps of its trace, once that is done.
	First int64 `json:"first,omitempty"`
	Last  int64 `json:"last,omitempty"`
}

// The states of a process's capture.
const (
	captureWaits   = "waits"
	captureDone    = "done"
	captureRefused = "refused"
)

// fetchOrder asks for a trace.
type fetchOrder struct {
	ID   string `json:"id"`
	Node string `json:"node"`
	Rank int    `json:"rank"` // the process's ID
}

// fetched is a node's answer to fetch.
type fetched struct {
	Sends bool   `json:"sends"`
	Why   string `json:"why,omitempty"`
}

// part is a part of a trace. Its head is followed by data.
type part struct {
	Version int    `json:"v"`
	ID      string `json:"id"`
	Rank    int    `json:"rank"`
	// Number counts the parts from 0, of Of.
	Number int `json:"n"`
	Of     int `json:"of"`
	// Sum is the SHA-256 of all parts together.
	Sum string `json:"sum"`
	// Why says why no part comes, "" if parts do.
	Why  string `json:"why,omitempty"`
	data []byte
}

const (
	// partBytes is how much data a part has at most.
	partBytes = 192 << 10
	// maxParts bounds a trace: 1.5 GiB.
	maxParts = 8192
	// maxHead bounds the head of a part.
	maxHead = 16 << 10
	// keptCaptures is how many captures a node remembers.
	keptCaptures = 8
	// maxSteps is how many steps a capture has at most; the agent has the same bound.
	maxSteps = 1000
	// handOver is how long giving an order to a process may take.
	handOver = 5 * time.Second
	// sendWait is how long the hub may take to store a part.
	sendWait = 20 * time.Second
)

func (p part) encode() ([]byte, error) {
	p.Version = wireVersion
	head, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	b := binary.AppendUvarint(nil, uint64(len(head)))
	return append(append(b, head...), p.data...), nil
}

func readPart(message []byte) (p part, err error) {
	n, size := binary.Uvarint(message)
	if size <= 0 || n > maxHead || n > uint64(len(message)-size) {
		return p, fmt.Errorf("%w: a damaged part of a trace", errWire)
	}
	head, data := message[size:size+int(n)], message[size+int(n):]
	if err := json.Unmarshal(head, &p); err != nil {
		return p, fmt.Errorf("%w: a damaged part of a trace: %w", errWire, err)
	}
	switch {
	case p.Version != wireVersion:
		return p, fmt.Errorf("%w: version %d, and this gmemtop reads version %d: use the same gmemtop on "+
			"all nodes", errWire, p.Version, wireVersion)
	case p.Why == "" && (p.Of < 1 || p.Of > maxParts || p.Number < 0 || p.Number >= p.Of):
		return p, fmt.Errorf("%w: part %d of %d", errWire, p.Number, p.Of)
	}
	p.data = data
	return p, nil
}

// captures are what a node was asked to capture.
type captures struct {
	mu   sync.Mutex
	list []*nodeCapture // oldest first
}

// nodeCapture is a capture of a node's processes.
type nodeCapture struct {
	id string

	mu    sync.Mutex
	ranks map[int]*rankCapture // by ID
}

type rankCapture struct {
	process *job.Process
	order   capture.OrderID
	refused string
}

func (c *captures) find(id string) *nodeCapture {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.list, func(x *nodeCapture) bool { return x.id == id })
	if i < 0 {
		return nil
	}
	return c.list[i]
}

func (c *captures) add(x *nodeCapture) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, x)
	c.list = slices.Clone(c.list[max(len(c.list)-keptCaptures, 0):])
}

// obey answers orders that come through c until it is closed. ctx ends what an order has begun.
func (n *Node) obey(ctx context.Context, c *bus.Conn) error {
	refused := func(err error) { n.tell("%v", err) }
	return errors.Join(
		c.Serve(bus.Prepare, func(json.RawMessage) any { return n.ready() }, refused),
		c.Serve(bus.Capture, func(data json.RawMessage) any {
			var o captureOrder
			if err := json.Unmarshal(data, &o); err != nil {
				return nil
			}
			return n.capture(ctx, o)
		}, refused),
		c.Serve(bus.Status, func(data json.RawMessage) any {
			var o statusOrder
			if err := json.Unmarshal(data, &o); err != nil {
				return nil
			}
			return n.progress(o.ID)
		}, refused),
		c.Serve(bus.Fetch, func(data json.RawMessage) any {
			var o fetchOrder
			if err := json.Unmarshal(data, &o); err != nil || o.Node != n.name {
				return nil
			}
			return n.fetch(ctx, c, o)
		}, refused))
}

// ready says how far the processes of this node are that viewers know.
func (n *Node) ready() ready {
	r := ready{Ranks: []readyRank{}}
	for _, p := range n.job.Processes() {
		id, attempt, ok := n.known(p)
		if !ok {
			continue
		}
		v := p.History.Snapshot()
		t := p.Info()
		x := readyRank{ID: id, Attempt: attempt, PID: t.PID, Rank: t.Rank, Step: -1}
		if k := len(v.Steps); k > 0 {
			x.Step = v.Steps[k-1].Index
			times := make([]int64, 0, usualSteps)
			for _, s := range v.Steps[max(k-usualSteps, 0):] {
				times = append(times, s.End-s.Start)
			}
			x.Time = stats.Median(times)
		}
		switch {
		case v.Ended:
			x.Why = "it has ended"
		case v.Severed != "":
			x.Why = cut(v.Severed, maxText)
		case !p.Wants(&v).Connected:
			x.Why = "it takes no orders"
		}
		if r.Ranks = append(r.Ranks, x); len(r.Ranks) == maxRanks {
			break
		}
	}
	return r
}

// usualSteps is how many of the last steps tell how long a step takes.
const usualSteps = 16

// capture gives the order to the processes that it names, and returns at once.
func (n *Node) capture(ctx context.Context, o captureOrder) *progress {
	ids := o.Ranks[n.name]
	if len(ids) == 0 {
		return nil
	}
	if n.captures.find(o.ID) != nil {
		return n.progress(o.ID)
	}
	x := &nodeCapture{id: o.ID, ranks: map[int]*rankCapture{}}
	list := n.job.Processes()
	for _, id := range ids {
		r := &rankCapture{order: capture.NewOrderID()}
		x.ranks[id] = r
		i := slices.IndexFunc(list, func(p *job.Process) bool {
			own, _, ok := n.known(p)
			return ok && own == id
		})
		if i < 0 {
			r.refused = "there is no such process on this node"
			continue
		}
		r.process = list[i]
		go func() {
			ctx, cancel := context.WithTimeout(ctx, handOver)
			defer cancel()
			err := r.process.Order(ctx, capture.Order{ID: r.order, Do: capture.Describe, From: o.First,
				Steps: min(max(o.Steps, 1), maxSteps), How: o.How})
			if err != nil {
				x.mu.Lock()
				r.refused = cut(err.Error(), maxText)
				x.mu.Unlock()
			}
		}()
	}
	n.captures.add(x)
	return n.progress(o.ID)
}

// progress says how far a capture is, nil if this node has no part in it.
func (n *Node) progress(id string) *progress {
	x := n.captures.find(id)
	if x == nil {
		return nil
	}
	p := &progress{}
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, r := range x.ranks {
		p.Ranks = append(p.Ranks, r.progress(id))
	}
	return p
}

func (r *rankCapture) progress(id int) rankProgress {
	p := rankProgress{ID: id, State: captureWaits}
	refuse := func(why string) rankProgress {
		p.State, p.Why = captureRefused, cut(why, maxText)
		return p
	}
	if r.refused != "" {
		return refuse(r.refused)
	}
	v := r.process.History.Snapshot()
	if w, ok := r.window(&v); ok {
		p.State, p.First, p.Last = captureDone, w.First, w.Last
		return p
	}
	a, _ := v.Answered(r.order)
	switch {
	case a.State == capture.OrderRefused:
		return refuse(a.Text)
	case a.State == capture.OrderDone:
		return refuse("its trace was captured, but there was no memory to keep it")
	case v.Ended:
		return refuse("it ended before")
	}
	return p
}

// window returns what was captured for the order.
func (r *rankCapture) window(v *capture.View) (w capture.Window, ok bool) {
	i := slices.IndexFunc(v.Windows,
		func(w capture.Window) bool { return slices.Contains(w.Orders, r.order) })
	if i < 0 {
		return w, false
	}
	return v.Windows[i], true
}

// fetch begins to send a trace.
func (n *Node) fetch(ctx context.Context, c *bus.Conn, o fetchOrder) fetched {
	x := n.captures.find(o.ID)
	if x == nil || x.ranks[o.Rank] == nil || x.ranks[o.Rank].process == nil {
		return fetched{Why: "it was not asked to capture that"}
	}
	r := x.ranks[o.Rank]
	v := r.process.History.Snapshot()
	w, ok := r.window(&v)
	if !ok {
		return fetched{Why: "it no longer has that trace"}
	}
	go n.sendTrace(ctx, c, o, w, r.process.Info())
	return fetched{Sends: true}
}

// sendTrace sends a trace in parts, or why it cannot.
func (n *Node) sendTrace(ctx context.Context, c *bus.Conn, o fetchOrder, w capture.Window, t capture.Info) {
	send := func(p part) error {
		p.ID, p.Rank = o.ID, o.Rank
		message, err := p.encode()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, sendWait)
		defer cancel()
		id := fmt.Sprintf("%s/%s/%d/%d", n.name, o.ID, o.Rank, p.Number)
		return c.Store(ctx, n.name, bus.Trace, id, message)
	}
	list, err := partsOf(ctx, w.Trace, n.options.Identity.Node, t)
	for i := 0; err == nil && i < len(list); i++ {
		err = send(list[i])
	}
	if err != nil && ctx.Err() == nil {
		n.tell("a captured trace of %s was not sent: %v", t.Name(), err)
		_ = send(part{Number: -1, Why: cut(err.Error(), maxText)})
	}
}

// partsOf encodes a trace of a process.
func partsOf(ctx context.Context, tr *traces.Trace, host string, t capture.Info) ([]part, error) {
	named := *tr // which viewers on this machine share
	named.Process.Host, named.Process.Rank, named.Process.WorldSize = host, t.Rank, t.WorldSize
	named.Process.PID = maybe.Known(int64(t.PID))
	var b bytes.Buffer
	if err := gmt.Write(ctx, &b, &named); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b.Bytes())
	var list []part
	for data := range slices.Chunk(b.Bytes(), partBytes) {
		list = append(list, part{Number: len(list), Sum: hex.EncodeToString(sum[:]), data: data})
	}
	if len(list) > maxParts {
		return nil, fmt.Errorf("the trace has %d MiB, and the hub carries %d", b.Len()>>20,
			maxParts*partBytes>>20)
	}
	for i := range list {
		list[i].Of = len(list)
	}
	return list, nil
}
