//go:build !nobus

package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A hub can hand out units of work instead of carrying the steps of a run. A unit stays in the hub until a
// worker has reported that its result is stored. A worker that dies or is cut off holds its units for
// workerWait at most, then others get them. A unit that kills its workers is given up after some tries.

const (
	// workers is the name under which the hub remembers who has which unit.
	workers = "workers"
	// workerWait is how long a worker may be silent before others get its unit.
	workerWait = 30 * time.Second
	// tries is how often a unit is handed out.
	tries = 3
	// idleWait is how long a worker that finds nothing waits for the next unit.
	idleWait = 5 * time.Second
	// workBytes bounds what waits in the hub, and resultBytes what has come back.
	workBytes   = 64 << 20
	resultBytes = 256 << 20
)

// ErrNoWork means that no unit is waiting at the moment.
var ErrNoWork = errors.New("no work is waiting")

func (n names) work() string    { return "GMT-" + n.run + "-WORK" }
func (n names) results() string { return "GMT-" + n.run + "-RESULT" }
func (n names) unit(id string) string {
	return "gmt.v1." + n.run + ".work.unit." + Token(id)
}
func (n names) result(id string) string { return "gmt.v1." + n.run + ".work.result." + Token(id) }
func (n names) aboutWork() string       { return "gmt.v1." + n.run + ".work.about" }

// workerMayPublish is what a worker may publish to: results, and what it takes to get a unit.
func (n names) workerMayPublish() []string {
	s := n.work()
	return []string{"gmt.v1." + n.run + ".work.result.*", n.aboutWork(),
		"$JS.API.CONSUMER.INFO." + s + "." + workers, "$JS.API.CONSUMER.MSG.NEXT." + s + "." + workers,
		"$JS.ACK." + s + "." + workers + ".>"}
}

// prepareWork makes the streams of a hub that hands out work.
func (c *Conn) prepareWork(ctx context.Context) error {
	_, err := c.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: c.names.work(), Subjects: []string{c.names.unit("") + "*"},
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
		MaxBytes: workBytes, MaxMsgSize: maxMessage, Duplicates: repeated,
	})
	if err == nil {
		_, err = c.js.CreateOrUpdateConsumer(ctx, c.names.work(), jetstream.ConsumerConfig{
			Durable: workers, AckPolicy: jetstream.AckExplicitPolicy, AckWait: workerWait, MaxDeliver: tries,
			MaxAckPending: 1 << 16,
		})
	}
	if err == nil {
		_, err = c.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: c.names.results(), Subjects: []string{c.names.result("") + "*"},
			MaxBytes: resultBytes, MaxMsgsPerSubject: 1, MaxMsgSize: maxMessage, Duplicates: repeated,
		})
	}
	if err != nil {
		return fmt.Errorf("prepare the work queue: %w", reason(err))
	}
	return nil
}

// Work is the end of a queue that hands out units and takes results.
type Work struct{ conn *Conn }

// Work returns the queue of a hub that was opened for work. about answers workers that ask what the work is.
// Close ends it.
func (h *Hub) Work(about []byte) (*Work, error) {
	c, err := h.dial(owner)
	if err != nil {
		return nil, err
	}
	tell := func(m *nats.Msg) { _ = m.Respond(about) }
	if _, err := c.nats.Subscribe(c.names.aboutWork(), tell); err != nil {
		c.Close()
		return nil, fmt.Errorf("answer workers: %w", err)
	}
	return &Work{c}, nil
}

// Close ends the queue.
func (w *Work) Close() { w.conn.Close() }

// Offer hands out a unit. One with an ID that was offered a moment ago is handed out once.
func (w *Work) Offer(ctx context.Context, id string, data []byte) error {
	if _, err := w.conn.js.Publish(ctx, w.conn.names.unit(id), data, jetstream.WithMsgID(id)); err != nil {
		return fmt.Errorf("offer work: %w", reason(err))
	}
	return nil
}

// Results calls take for each result, those that have arrived and those that follow, until ctx is done. Some
// may come twice.
func (w *Work) Results(ctx context.Context, take func(id string, data []byte)) error {
	c := w.conn
	consumer, err := c.js.OrderedConsumer(ctx, c.names.results(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("read results: %w", reason(err))
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read results: %w", reason(err))
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return ctx.Err()
		}
		word := m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:]
		if id, ok := Untoken(word); ok {
			take(id, m.Data())
		}
	}
}

// Left returns how many units wait for a worker, and how many workers have.
func (w *Work) Left(ctx context.Context) (waiting, underWay int, err error) {
	consumer, err := w.conn.js.Consumer(ctx, w.conn.names.work(), workers)
	if err != nil {
		return 0, 0, fmt.Errorf("look at the work queue: %w", reason(err))
	}
	i := consumer.CachedInfo()
	return int(i.NumPending), i.NumAckPending, nil
}

// AboutWork asks the hub what the work is.
func (c *Conn) AboutWork(ctx context.Context) ([]byte, error) {
	m, err := c.nats.RequestWithContext(ctx, c.names.aboutWork(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask what the work is: %w", reason(err))
	}
	return m.Data, nil
}

// Take takes one unit, does it and sends its result. The error wraps ErrNoWork if none is waiting. While do
// runs the hub knows that somebody works on the unit; ctx of do ends when it no longer does.
func (c *Conn) Take(ctx context.Context, do func(ctx context.Context, id string, data []byte) ([]byte,
	error)) error {
	consumer, err := c.js.Consumer(ctx, c.names.work(), workers)
	if err != nil {
		return fmt.Errorf("ask for work: %w", reason(err))
	}
	asking, enough := context.WithTimeout(ctx, idleWait)
	defer enough()
	batch, err := consumer.Fetch(1, jetstream.FetchContext(asking))
	if err != nil {
		return fmt.Errorf("ask for work: %w", reason(err))
	}
	var m jetstream.Msg
	for got := range batch.Messages() {
		m = got
	}
	if m == nil {
		return fmt.Errorf("%w: %w", ErrNoWork, errors.Join(batch.Error(), ctx.Err()))
	}
	id, _ := Untoken(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:])
	working, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		tick := time.NewTicker(workerWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-working.Done():
				return
			case <-tick.C:
				_ = m.InProgress() // without a connection the hub gives the unit to others
			}
		}
	}()
	result, err := do(working, id, m.Data())
	if err != nil {
		_ = m.Nak() // another one may be able to
		return err
	}
	// The result is stored before the unit is done: one that dies in between makes it come twice.
	saying, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialWait)
	defer cancel()
	if _, err := c.js.Publish(saying, c.names.result(id), result, jetstream.WithMsgID(id)); err != nil {
		return fmt.Errorf("send a result: %w", reason(err))
	}
	// The sweep has the result now, whether the hub still answers or not: the last result of all ends it.
	_ = m.DoubleAck(saying)
	return nil
}
