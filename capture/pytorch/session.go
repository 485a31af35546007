package pytorch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Session is one connected agent, or one that another viewer relays. It is a capture.Source, to be run once,
// and a capture.Controller.
type Session struct {
	conn  net.Conn
	host  int        // the viewer that relays the agent's messages, 0 for a direct connection to the agent
	asked int        // the process that we asked host for
	mu    sync.Mutex // guards info
	info  capture.Info
	hello hello
	write sync.Mutex
	ended chan struct{} // closed when Run has returned
	gone  chan struct{} // closed when the agent said goodbye
	once  sync.Once
	// listener, unless nil, answers other viewers while the session runs.
	listener *Listener
	// ring has the agent's newest steps even after it was killed; nil if the agent passed none.
	ring *os.File
	// received is the last step that reached anyone before this session, unknown for what the agent says.
	received maybe.Int
	// passed is the last step that was passed on, here or by an earlier session with the same process, nil
	// for none.
	passed *capture.Step
}

var (
	_ capture.Source     = (*Session)(nil)
	_ capture.Controller = (*Session)(nil)
)

// newSession returns a session over conn with an agent that said h.
func newSession(conn net.Conn, h hello) *Session {
	return &Session{conn: conn, hello: h, info: info(conn, h), ended: make(chan struct{}),
		gone: make(chan struct{})}
}

// shake reads an agent's first frame and welcomes it.
func shake(conn net.Conn, k kind, payload []byte) (*Session, error) {
	switch k {
	case frameBye:
		b, err := read[bye](payload)
		if err != nil {
			return nil, err
		}
		reason := errRefused
		if b.Refusal == refusalLives {
			reason = errLives
		}
		return nil, fmt.Errorf("process %d: %w: %s", b.PID, reason, b.Says.Text(b.Detail))
	case frameHello:
	default:
		return nil, fmt.Errorf("%w: it begins with a frame of type %d", errProtocol, k)
	}
	h, err := read[hello](payload)
	if err != nil {
		return nil, err
	}
	if h.Version != protocolVersion {
		return nil, otherVersion(h.PID, h.Version)
	}
	s := newSession(conn, h)
	if err := s.send(frameWelcome, welcome{Version: protocolVersion}); err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return s, nil
}

// info says which process connected, by its number here: in a container the agent sees another number.
func info(conn net.Conn, h hello) capture.Info {
	pid := h.PID
	if seen := peer(conn); seen > 0 {
		pid = seen
	}
	var room maybe.Int
	if h.Room > 0 {
		room = maybe.Known(h.Room)
	}
	return capture.Info{
		PID: pid, Started: h.Start, Host: h.Host, Argv: h.Argv,
		Python: h.Python, Torch: h.Torch, Device: h.Device,
		Rank: maybe.NonNegative(h.Rank), LocalRank: maybe.NonNegative(h.LocalRank),
		WorldSize: maybe.NonNegative(h.WorldSize), Axes: traces.SoundAxes(h.Axes),
		Agent: h.Version, Capabilities: h.Capabilities, Depth: h.Depth, Offloads: h.Offloads, Room: room,
		GPUs: gpus(h.Devices),
	}
}

// Bounds of what a process says about its GPUs.
const (
	maxGPUs       = 64
	maxDeviceName = 128
)

// gpus reads what a process says about its GPUs.
func gpus(list []gpu) (out []traces.Device) {
	for _, x := range list[:min(len(list), maxGPUs)] {
		if x.Ordinal < 0 || x.Bytes < 0 || len(x.Name) > maxDeviceName {
			continue
		}
		out = append(out, traces.Device{Kind: traces.DeviceGPU, Ordinal: x.Ordinal, Name: x.Name,
			TotalBytes: x.Bytes})
	}
	return out
}

// Info returns the process that is watched.
func (s *Session) Info() capture.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// Run implements capture.Source. When ctx is done the agent stays and waits for the next viewer; Detach
// removes it.
func (s *Session) Run(ctx context.Context, sink capture.Sink) error {
	defer close(s.ended)
	defer s.Close()
	in := newInbox(s.conn)
	defer context.AfterFunc(ctx, in.stop)()
	sink.Begin(s.info)
	s.waiting(sink)
	s.lookingAlong(sink)
	r := receiver{s: s, sink: sink}
	for {
		if now := time.Now(); ctx.Err() == nil && now.Before(r.rests) && in.quiet(nextLook(now)) {
			r.lookAhead()
			continue
		}
		k, payload, err := readFrame(in, maxFrame)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return s.over(sink, r.last, err)
		}
		if err := r.take(ctx, k, payload); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func (s *Session) waiting(sink capture.Sink) {
	sink.Notice(capture.Notice{Key: say.KeyState, Text: s.hello.Says.Text(s.hello.Waiting), State: true})
}

// dying is how long a process may take to end once it has closed its sockets.
const dying = 1500 * time.Millisecond

// over ends a session whose connection ended without a bye. last is the newest step that was received.
func (s *Session) over(sink capture.Sink, last *capture.Step, err error) error {
	if errors.Is(err, errProtocol) {
		return fmt.Errorf("process %d: %w", s.info.PID, err)
	}
	if awaitEnd(s.info.PID, s.info.Started, dying) {
		recovered := s.salvage(sink, last)
		sink.End(capture.End{Reason: capture.Exited, Detail: say.Vanished.Text(), Recovered: recovered})
		return nil
	}
	if s.host != 0 {
		return fmt.Errorf("process %d: %w with process %d, which watched it and is gone; gmemtop attach %d "+
			"continues",
			s.info.PID, ErrLost, s.host, s.info.PID)
	}
	return fmt.Errorf("process %d: %w (%w); it goes on, gmemtop attach %d continues", s.info.PID, ErrLost,
		err, s.info.PID)
}

func (s *Session) send(k kind, v any) error {
	b, err := frame(k, v)
	if err != nil {
		return err
	}
	s.write.Lock()
	defer s.write.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	if _, err := s.conn.Write(b); err != nil {
		return fmt.Errorf("process %d: %w: %w", s.Info().PID, ErrLost, err)
	}
	return nil
}

// Order implements capture.Controller.
func (s *Session) Order(_ context.Context, o capture.Order) error { return s.send(frameOrder, o) }

// Detach implements capture.Controller: the agent undoes what it did, at the end of the step if it is
// captured, and says so. If another viewer has the agent, only this session ends. Run must be running, since
// it receives the answer.
func (s *Session) Detach(ctx context.Context) error {
	if err := s.send(frameDetach, struct{}{}); err != nil {
		return err
	}
	select {
	case <-s.gone:
		return nil
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close hangs up without running: the agent stays and waits for the next viewer.
func (s *Session) Close() error {
	if s.listener != nil {
		_ = s.listener.Close()
	}
	if s.ring != nil {
		_ = s.ring.Close()
	}
	return s.conn.Close()
}

// readRing reads what is in the ring now. The error says that there is none.
func (s *Session) readRing() (r ring, err error) {
	if s.ring == nil {
		return r, errNoRing
	}
	b, err := io.ReadAll(io.NewSectionReader(s.ring, 0, maxRing))
	if err != nil {
		return r, err
	}
	return ringOf(b)
}

// bridge passes on the steps before next that nobody has received: the process sent them to a viewer that was
// killed.
func (s *Session) bridge(sink capture.Sink, next int64) {
	last, ok := s.received.Value()
	if !ok {
		return
	}
	r, err := s.readRing()
	if err != nil {
		return
	}
	for _, x := range r.between(last, next) {
		sink.Step(x)
	}
	// That viewer may also have read steps that were not sent yet, and so come now.
	if had := r.between(last-1, last+1); len(had) > 0 && s.passed == nil {
		s.passed = &had[0]
	}
}

// salvage reads from the ring of a process that is gone what it had not sent. It returns how many steps these
// were, unknown if there is no ring.
func (s *Session) salvage(sink capture.Sink, last *capture.Step) maybe.Int {
	r, err := s.readRing()
	if err != nil {
		return maybe.Int{}
	}
	if i, ok := s.received.Value(); ok && last == nil {
		last = &capture.Step{Index: i}
	}
	steps, lost, stale := r.after(last)
	if stale {
		return maybe.Int{}
	}
	steps = slices.DeleteFunc(steps, func(x capture.Step) bool { return s.had(&x) })
	for _, x := range steps {
		sink.Step(x)
	}
	if lost > 0 {
		sink.Lose("steps", lost, say.NotInRing.Text())
	}
	if n := len(steps); n > 0 {
		sink.Notice(capture.Say(say.FromRing, n))
	}
	return maybe.Known(int64(len(steps)))
}

// Host returns the process of the viewer that relays the agent's messages, 0 for a direct connection to the
// agent.
func (s *Session) Host() int { return s.host }

// lookingAlong says which viewer has the agent, if it is not this one.
func (s *Session) lookingAlong(sink capture.Sink) {
	if s.host == 0 {
		return
	}
	if s.info.PID != s.asked {
		sink.Notice(capture.Say(say.BesideOther, s.host, s.info.PID, s.asked))
		return
	}
	sink.Notice(capture.Say(say.Beside, s.host))
}
