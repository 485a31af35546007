package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// NodeOptions say what a node sends and where to.
type NodeOptions struct {
	// Identity names the machine, and the attempt that its ranks belong to.
	Identity Identity
	// Join is the path of the join file. It need not exist yet.
	Join string
	// Credentials is the file with the key for a site's own servers, where those carry the run.
	Credentials string
	// Name is what viewers call the node, "" for Identity.NodeName.
	Name string
	past *past // what is known about the node that had this name before, nil for nothing
	// Tell is called with messages for people, once for each problem. The training goes on in any case.
	Tell func(text string)

	limits bus.RingLimits
	idle   time.Duration // idleLook, except in tests
}

// Node sends what the ranks of this machine do to the hub of their run.
type Node struct {
	options NodeOptions
	name    string
	job     *job.Job
	ring    *bus.Ring
	stop    context.CancelFunc
	work    sync.WaitGroup
	told    string
	away    bool // people were told that the hub does not answer, and not yet that it does again
	// collected is closed when the last steps are in the ring.
	collected chan struct{}
	captures  captures

	telling sync.Mutex // guards told

	// What was collected: written by one goroutine.
	sending  sync.Mutex // guards sent
	sent     map[*job.Process]*sentRank
	byID     map[int]*sentRank
	attempts map[int64]int // by rank: how many processes had it
	// inherited are the ranks of the node before this one, and newID is greater than their IDs.
	inherited []rank
	newID     int
	// world is how many ranks the run has, training how many of them train on this node.
	world, training int64
	said            []byte // the newest hello, without its counts
	saidAt          time.Time
	rolledAt        time.Time
}

type sentRank struct {
	id      int // by which viewers know the process
	attempt int
	head    head      // as its steps were sent
	first   maybe.Int // the index of the first step that was put in the ring
	next    int64     // the index of the first step that was not
	dropped int64     // how many steps did not stay in the ring
	lost    []span    // which ones
	ended   bool
	rolling capture.Span // of the steps since the last roll-up
	closed  bool         // it has ended, and its steps were summed up at once
	unsent  int64        // how many steps the process probably took with it
}

const (
	// together is how long the first step that arrives waits for those of other ranks, to share a message.
	together = 10 * time.Millisecond
	// leastRest is the least time between two collections, so that many short steps make one message. With
	// the wait for other ranks it is a little under 50 ms, the time between two looks into the ranks' rings
	// (ringEvery in capture/pytorch): what one look finds leaves before the next.
	leastRest = 35 * time.Millisecond
	// restPerNode is the least time for each node of the run: the hub gets at most some 650 messages a second
	// from all of them.
	restPerNode = 1500 * time.Microsecond
	// idleLook is how often a node collects when nothing arrives: a process may have vanished, and a hello or
	// roll-ups may be due.
	idleLook = time.Second / 2
	// helloEvery is how often a node says hello when nothing changes.
	helloEvery = 2 * time.Second
	// joinEvery is how often to look at the join file: another machine may have written it, and a network
	// file system tells nobody.
	joinEvery = time.Second
	// lastWords is how long the end of a node may wait for the hub.
	lastWords = 2 * time.Second
	// batchBytes is where a message ends and the next begins.
	batchBytes = 128 << 10
	// batchSteps is how many steps of a process go into one message: rows are at most batchBytes.
	batchSteps = 256
	// rollEvery is how often a node sums up its steps. The hub keeps these sums long after it has dropped the
	// steps.
	rollEvery = time.Minute
)

func newNode(j *job.Job, o NodeOptions) *Node {
	name := cmp.Or(o.Name, o.Identity.NodeName())
	o.idle = cmp.Or(o.idle, idleLook)
	n := &Node{options: o, name: name, job: j, ring: bus.NewRing(name, o.limits),
		collected: make(chan struct{}), sent: map[*job.Process]*sentRank{},
		byID: map[int]*sentRank{}, attempts: map[int64]int{}, rolledAt: time.Now()}
	if o.past != nil {
		n.inherit(o.past)
	}
	return n
}

// StartNode begins to send. It returns at once: the hub need not run yet.
func StartNode(j *job.Job, o NodeOptions) *Node {
	n := newNode(j, o)
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.work.Go(func() { n.collectUntil(ctx) })
	n.work.Go(func() { n.send(ctx) })
	return n
}

// Close sends the last steps and how the ranks ended, for at most two seconds, and returns what the ring did.
func (n *Node) Close() bus.Counts {
	n.stop()
	n.work.Wait()
	return n.ring.Counts()
}

func (n *Node) collectUntil(ctx context.Context) {
	for ctx.Err() == nil {
		heard := n.job.Heard.Now()
		n.collect(time.Now())
		pause(ctx, n.rest())
		idle, stop := context.WithTimeout(ctx, n.options.idle)
		if n.job.Heard.Wait(idle, heard) == nil {
			pause(ctx, together)
		}
		stop()
	}
	n.collect(time.Now())
	n.rollUp(true)
	close(n.collected)
}

// rest returns the least time between two collections.
func (n *Node) rest() time.Duration {
	nodes := int64(1)
	if n.training > 0 {
		nodes = min(n.world/n.training, int64(idleLook/restPerNode))
	}
	return max(leastRest, time.Duration(nodes)*restPerNode)
}

// pause waits for some time, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-ctx.Done():
	case <-wait.C:
	}
}

// collect puts the steps that are new in the ring, and a hello if one is due.
func (n *Node) collect(now time.Time) {
	var message []byte
	flush := func() {
		if len(message) > 0 {
			n.put(bus.Step, message)
			message = nil
		}
	}
	h := hello{Version: wireVersion, Host: n.options.Identity.Node}
	var own []rank
	n.world, n.training = 0, 0
	for _, p := range n.job.Processes() {
		v := p.History.Snapshot()
		v.Info = p.Info() // known before the process has reported it itself
		s := n.of(p, &v)
		if v.Ended && !s.ended {
			s.ended, s.unsent = true, unsent(&v, now)
		}
		fresh := newer(v.Steps, s.next)
		if len(fresh) > 0 && !s.first.IsKnown() {
			s.first = maybe.Known(fresh[0].Index)
		}
		for len(fresh) > 0 {
			k := min(len(fresh), batchSteps)
			s.head = head{s.id, s.attempt, v.Info.PID, v.Info.Rank, v.Info.WorldSize}
			message = appendBatch(message, batch{s.head, fresh[:k]})
			for i := range fresh[:k] {
				p := capture.SpanOf(&fresh[i])
				s.rolling.Merge(&p)
			}
			s.next, fresh = fresh[k-1].Index+1, fresh[k:]
			if len(message) >= batchBytes {
				flush()
			}
		}
		own = append(own, rankOf(s, &v))
		if !v.Ended {
			n.world, n.training = max(n.world, v.Info.WorldSize.Or(1)), n.training+1
		}
	}
	flush()
	due := now.Sub(n.rolledAt) >= rollEvery
	if due {
		n.rolledAt = now
	}
	n.rollUp(due)
	for i := range own { // the last message may have pushed out some more
		s := n.byID[own[i].ID]
		own[i].Dropped, own[i].Lost = s.dropped, slices.Clone(s.lost)
	}
	h.Ranks = append(n.unheard(), own...)
	if e, over := n.job.Over(); over {
		h.Over, h.Code = true, e.Code
	}
	h.Ranks = h.Ranks[max(len(h.Ranks)-maxRanks, 0):]
	// A step in between two hellos is no news.
	news := h
	news.Ranks = append([]rank(nil), h.Ranks...)
	for i := range news.Ranks {
		if news.Ranks[i].End == nil {
			news.Ranks[i].Step = 0
		}
	}
	text, err := json.Marshal(news)
	if err != nil || string(text) == string(n.said) && now.Sub(n.saidAt) < helloEvery {
		return
	}
	n.said, n.saidAt = text, now
	h.Counts = n.counts()
	if text, err = json.Marshal(h); err == nil {
		n.put(bus.Hello, text)
	}
}

// rollUp puts a span of each rank's steps since the last time in the ring: for all ranks, or only for those
// that have ended.
func (n *Node) rollUp(all bool) {
	var message []byte
	if all {
		for _, x := range n.options.past.orphaned() {
			message = appendRolled(message, x)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(n.byID)) {
		s := n.byID[id]
		if s.rolling.Steps == 0 || !all && (!s.ended || s.closed) {
			continue
		}
		s.closed = s.ended
		message = appendRolled(message, rolled{s.head, s.rolling})
		s.rolling = capture.Span{}
		if len(message) >= batchBytes {
			n.put(bus.Roll, message)
			message = nil
		}
	}
	if len(message) > 0 {
		n.put(bus.Roll, message)
	}
}

// put puts a message in the ring and notes whose steps made room for it.
func (n *Node) put(k bus.Kind, message []byte) {
	for _, m := range n.ring.Put(k, message) {
		if m.Kind != bus.Step {
			continue // a newer hello waits, or follows
		}
		// The message is our own, so it can be read.
		_ = readBatches(m.Data, func(b batch) {
			s := n.byID[b.id]
			for _, x := range b.steps {
				s.dropped, s.lost = s.dropped+1, addStep(s.lost, x.Index)
			}
		})
	}
}

// of returns what was sent about a process.
func (n *Node) of(p *job.Process, v *capture.View) *sentRank {
	n.sending.Lock()
	defer n.sending.Unlock()
	s := n.sent[p]
	if s == nil {
		s = n.begins(v.Info, p.ID)
		n.sent[p], n.byID[s.id] = s, s
	}
	return s
}

// known returns the number by which viewers know a process, and which attempt of its rank it is. ok is false
// until something of it was collected.
func (n *Node) known(p *job.Process) (id, attempt int, ok bool) {
	n.sending.Lock()
	defer n.sending.Unlock()
	s := n.sent[p]
	if s == nil {
		return 0, 0, false
	}
	return s.id, s.attempt, true
}

// newer returns the steps from index next on.
func newer(steps []capture.Step, next int64) []capture.Step {
	i := len(steps)
	for i > 0 && steps[i-1].Index >= next {
		i--
	}
	return steps[i:]
}

// send connects to the hub and sends until ctx is done, and for a moment after that. A hub that was started
// again has new keys and therefore a new join file.
func (n *Node) send(ctx context.Context) {
	for again := true; again; {
		c, join := n.connect(ctx)
		if c == nil {
			return
		}
		again = n.sendTo(ctx, c, join)
	}
}

// sendTo sends to one hub. again reports that another one took its place.
func (n *Node) sendTo(ctx context.Context, c *bus.Conn, join bus.Join) (again bool) {
	defer c.Close()
	sending, stop := context.WithCancel(context.Background())
	defer stop()
	var work sync.WaitGroup
	work.Go(func() { n.ring.Send(sending, c) })
	if err := n.obey(sending, c); err != nil {
		n.tell("this node takes no orders: %v", err)
	}
	defer work.Wait()
	defer stop()
	if n.watch(ctx, c, join) {
		return true
	}
	<-n.collected
	late, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if err := n.ring.Flush(late); err != nil {
		n.tell("the hub did not take the last %d messages of this node", n.ring.Counts().Waiting)
	}
	return false
}

// watch tells people when the hub is lost, until ctx is done or the join file is of another hub.
func (n *Node) watch(ctx context.Context, c *bus.Conn, join bus.Join) (replaced bool) {
	tick := time.NewTicker(joinEvery)
	defer tick.Stop()
	var silent int
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		if c.Connected() {
			silent = 0
			if n.away {
				n.away = false
				n.tell("the hub answers again and gets the steps that waited")
			}
			// A site's servers stay when the hub is started again, with new keys for orders.
			if join.URL != "" {
				if j, err := bus.ReadJoin(n.options.Join); err == nil && j.Orders != join.Orders {
					return true
				}
			}
			continue
		}
		if j, err := bus.ReadJoin(n.options.Join); err == nil && j.Certificate != join.Certificate {
			return true
		}
		if silent++; silent == 5 {
			n.away = true
			why := ""
			if err := c.Err(); !errors.Is(err, bus.ErrNoHub) {
				why = fmt.Sprintf(" (%v)", err)
			}
			n.tell("the hub does not answer%s; the training goes on, and the newest steps are sent when it "+
				"is back", why)
		}
	}
}

// connect waits for the join file and returns a connection that may not have reached the hub yet; nil when
// ctx is done before.
func (n *Node) connect(ctx context.Context) (*bus.Conn, bus.Join) {
	for waited := 1; ; waited++ {
		join, err := bus.ReadJoin(n.options.Join)
		if err == nil {
			var c *bus.Conn
			c, err = bus.Dial(ctx, bus.Access{Join: join, Role: bus.Agent, Name: n.name, Patient: true,
				Credentials: n.options.Credentials})
			if err == nil {
				return c, join
			}
		}
		// A hub that starts together with the training writes its file a moment later.
		if ctx.Err() == nil && (!errors.Is(err, fs.ErrNotExist) || waited == 5) {
			n.away = true
			n.tell("cannot reach the hub: %v; the training goes on, and gmemtop keeps trying", err)
		}
		select {
		case <-ctx.Done():
			return nil, join
		case <-time.After(joinEvery):
		}
	}
}

// tell tells people something, unless it is what they were told last.
func (n *Node) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	n.telling.Lock()
	defer n.telling.Unlock()
	if n.options.Tell != nil && text != n.told {
		n.told = text
		n.options.Tell(text)
	}
}
