package pytorch

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
)

// An agent talks to one viewer. That viewer may record the job for days while others come and go: over a
// connection that drops, from a second terminal, several at once. So the viewer that has the agent serves the
// others, its guests.
//
// A guest connects to the socket at which the agent's viewer listens and says which process it wants to see.
// The viewer speaks to it as an agent does, so that the same code reads both. Nothing is queued for a guest.
// The viewer keeps steps, windows and notices anyway, under limits; each guest has a goroutine that knows
// what it has sent, waits until there is more, and writes the next frame. A guest that does not read blocks
// only that goroutine, which then holds one frame and at most one window; when it reads again it gets what is
// still kept, and the count of the rest. All that the goroutine receiving the job's data does for guests is
// to increment a number: they cannot slow it down.
//
// Rejected: a queue for each guest, which is too short for a pause or holds windows that only it needs;
// passing on the agent's own bytes, since a guest that comes later needs what came before; a separate socket
// for the relay, which would have to be found, checked and cleaned up like the agent's.

// Limits of what a guest gets.
const (
	maxGuests = 32
	// guestRest is how long to pause after sending a guest everything: what a fast job sends meanwhile goes
	// into one frame.
	guestRest = 100 * time.Millisecond
	// guestRows is the number of steps in a frame.
	guestRows = 1000
	// guestFirst is how many bytes of windows captured before it came a guest gets.
	guestFirst = 64 << 20
	// guestGrace is how long guests may take to read the last message.
	guestGrace = 2 * time.Second
	guestPiece = 1 << 20
)

// Relay is a capture.Sink that adds everything to a capture.History and serves what that keeps to other
// viewers. Give it to Session.Share or Job.Share. Its methods are safe for concurrent use.
type Relay struct {
	history *capture.History
	control capture.Controller
	ctx     context.Context // of the guests' connections
	stop    context.CancelFunc
	done    sync.WaitGroup

	open context.Context // until Close
	shut context.CancelFunc

	mu     sync.Mutex
	told   told // all that the history was given
	guests int
}

var _ capture.Sink = (*Relay)(nil)

// told counts what was passed on, whether it is still kept or not.
type told struct{ steps, windows, answers int64 }

// NewRelay returns a Relay that is the only source of an empty history. Orders of guests go to control.
func NewRelay(h *capture.History, control capture.Controller) *Relay {
	r := &Relay{history: h, control: control}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.open, r.shut = context.WithCancel(r.ctx)
	return r
}

// Begin implements capture.Sink.
func (r *Relay) Begin(t capture.Info) { r.history.Begin(t) }

// Step implements capture.Sink.
func (r *Relay) Step(s capture.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told.steps++
	r.history.Step(s)
}

// Window implements capture.Sink.
func (r *Relay) Window(w capture.Window) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told.windows++
	r.history.Window(w)
}

// Notice implements capture.Sink.
func (r *Relay) Notice(n capture.Notice) { r.history.Notice(n) }

// Answer implements capture.Sink.
func (r *Relay) Answer(a capture.Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told.answers++
	r.history.Answer(a)
}

// Lose implements capture.Sink.
func (r *Relay) Lose(name string, n int64, detail string) { r.history.Lose(name, n, detail) }

// Output implements capture.Sink.
func (r *Relay) Output(p []byte) { r.history.Output(p) }

// End implements capture.Sink.
func (r *Relay) End(e capture.End) { r.history.End(e) }

// snapshot returns what is kept now and the count of all that was passed on: both end with the same item.
func (r *Relay) snapshot() (capture.View, told) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.history.Snapshot(), r.told
}

// serve takes the connection of a guest. It returns false if it is closed or has too many.
func (r *Relay) serve(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open.Err() != nil || r.guests >= maxGuests {
		return false
	}
	r.guests++
	_ = conn.SetDeadline(time.Time{})
	ctx, leave := context.WithCancel(r.ctx)
	g := &guest{relay: r, conn: conn, losses: map[string]int64{}, notices: map[string]capture.Notice{}}
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // a write that waits for a reader ends as well
	forget := context.AfterFunc(r.open, func() { g.more.Tell() })
	r.done.Go(func() {
		_ = r.history.Until(ctx, func(*capture.View) (bool, error) {
			g.more.Tell()
			return false, nil
		})
	})
	r.done.Go(func() {
		defer leave()
		g.hear(ctx)
	})
	r.done.Go(func() {
		defer leave()
		defer forget()
		g.speak(ctx)
		r.mu.Lock()
		r.guests--
		r.mu.Unlock()
	})
	return true
}

// Close tells guests how the job ended, if it did, and hangs up on them. One that does not read has two
// seconds.
func (r *Relay) Close() {
	r.mu.Lock()
	r.shut()
	r.mu.Unlock()
	stop := time.AfterFunc(guestGrace, r.stop)
	r.done.Wait()
	stop.Stop()
	r.stop()
}

// Share makes r serve other viewers that ask for this session's process.
func (s *Session) Share(r *Relay) {
	if s.listener != nil {
		s.listener.share(0, r)
	}
}
