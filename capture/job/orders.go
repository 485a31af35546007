package job

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// ErrNotConnected answers orders that come too early.
var ErrNotConnected = errors.New("this job takes no orders yet")

// orders holds the requests to a process and who handles them.
type orders struct {
	session *capture.History

	mu     sync.Mutex
	source capture.Controller // nil before it is connected
	host   int                // the process of the viewer that has the agent, 0 for this one
	every  int                // capture one step in this many whole, 0 for none
	told   bool               // the source has been told
	depth  string             // how to capture steps, "" if the source knows or may choose
	first  int                // how many steps to capture whole once it steps; 0 for none
	asked  time.Time          // when steps were asked for, the zero time for never
	window maybe.Int          // the newest step captured at that time
}

// Wants says what a process is asked for.
type Wants struct {
	// Every: one step in this many is captured whole, 0 for none.
	Every int
	// Pending says that requested steps have not arrived yet.
	Pending bool
	// Host is the process of the viewer that has the agent, 0 for this one.
	Host int
	// Connected says that the process takes orders.
	Connected bool
}

// longestWait is how long requested steps count as pending.
const longestWait = time.Minute

// warm is how many steps a process must take before it gets orders.
const warm = 1

// connect sends orders to c from now on; nil drops them.
func (o *orders) connect(c capture.Controller) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.source = c
}

// connected returns what takes the orders, or nil.
func (o *orders) connected() capture.Controller {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.source
}

// want sets what to ask for before the process has connected.
func (o *orders) want(every int, depth string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.every, o.depth = every, depth
}

// wantFirst asks for the next steps whole as soon as the process steps.
func (o *orders) wantFirst(steps int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.first = steps
}

// hosted says which viewer has the agent. An agent that has lost its viewer captures nothing by itself, so we
// order one step in every again. Another viewer shows what it captures, so we ask it only for what the user
// asked for.
func (o *orders) hosted(host, every int, unasked bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.host = host
	switch {
	case host == 0:
		o.every, o.told = cmp.Or(o.every, every), false
	case unasked:
		o.every = 0
	}
}

// Order implements capture.Controller.
func (o *orders) Order(ctx context.Context, x capture.Order) error {
	c := o.connected()
	if c == nil {
		return ErrNotConnected
	}
	return c.Order(ctx, x)
}

// Detach implements capture.Controller.
func (o *orders) Detach(ctx context.Context) error {
	c := o.connected()
	if c == nil {
		return ErrNotConnected
	}
	return c.Detach(ctx)
}

// Wants says what the process is asked for, as of a view of its session.
func (o *orders) Wants(v *capture.View) Wants {
	o.mu.Lock()
	defer o.mu.Unlock()
	pending := !o.asked.IsZero() && time.Since(o.asked) < longestWait && newestWindow(v) == o.window
	return Wants{Every: o.every, Pending: o.first > 0 || pending, Host: o.host, Connected: o.source != nil}
}

// newestWindow returns the newest step that was captured whole, unknown if none was.
func newestWindow(v *capture.View) maybe.Int {
	if n := len(v.Windows); n > 0 {
		return maybe.Known(v.Windows[n-1].Last)
	}
	return maybe.Int{}
}

// Capture asks for the next steps whole.
func (o *orders) Capture(ctx context.Context, steps int) error {
	v := o.session.Snapshot()
	if err := o.Order(ctx, capture.Order{Do: capture.Describe, Steps: max(steps, 1)}); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked, o.window = time.Now(), newestWindow(&v)
	return nil
}

// CaptureEvery asks to capture one step in this many whole, 0 for none.
func (o *orders) CaptureEvery(ctx context.Context, steps int) error {
	if err := o.Order(ctx, capture.Order{Do: capture.Every, Steps: steps}); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.every = steps
	return nil
}

// ask gives the process its orders once it steps, until it has taken all of them or ctx is done.
func (o *orders) ask(ctx context.Context) {
	_ = o.session.Until(ctx, func(v *capture.View) (bool, error) {
		if v.Ended || len(v.Steps) < warm {
			return v.Ended, nil
		}
		return o.askNow(ctx), nil
	})
}

// askNow gives the orders and reports whether the process took all of them. Those it did not take are given
// again, except for the first steps: people see why and ask again. An order is marked as given first: while
// the viewer of a process changes, two goroutines may get here, and each order must be given once.
func (o *orders) askNow(ctx context.Context) bool {
	o.mu.Lock()
	how, every := o.depth, o.every
	if o.told {
		every = 0
	}
	o.depth, o.told = "", o.told || every > 0
	o.mu.Unlock()

	tookDepth := how == "" || o.Order(ctx, capture.Order{Do: capture.Depth, How: how}) == nil
	tookEvery := every == 0 || o.Order(ctx, capture.Order{Do: capture.Every, Steps: every}) == nil

	o.mu.Lock()
	if !tookDepth {
		o.depth = how
	}
	if !tookEvery {
		o.told = false
	}
	first := o.first
	o.first = 0
	tookAll := o.depth == "" && (o.every == 0 || o.told)
	o.mu.Unlock()

	if first > 0 {
		_ = o.Capture(ctx, first)
	}
	return tookAll
}
