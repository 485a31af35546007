package pytorch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
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
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	sink.Begin(s.info)
	s.waiting(sink)
	s.lookingAlong(sink)
	r := receiver{s: s, sink: sink}
	for {
		k, payload, err := readFrame(s.conn, maxFrame)
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

// receiver passes what a session receives on to a sink.
type receiver struct {
	s        *Session
	sink     capture.Sink
	building *assembly     // the window whose pieces come, nil between windows
	last     *capture.Step // the newest step, nil before there is one
}

// take handles one frame; io.EOF means that it was the last. Frames of unknown kinds are skipped.
func (r *receiver) take(ctx context.Context, k kind, payload []byte) error {
	switch k {
	case frameHello:
		return r.hello(payload)
	case frameSteps:
		return r.steps(payload)
	case frameWindow:
		return r.window(payload)
	case frameData:
		return r.data(payload)
	case frameWhole:
		return r.whole(ctx, payload)
	case frameNotice:
		return r.notice(payload)
	case frameAnswer:
		return r.answer(payload)
	case frameOutput:
		if r.s.host != 0 { // an agent knows of no output
			r.sink.Output(payload)
		}
	case frameLost:
		return r.lost(payload)
	case frameBye:
		return r.bye(payload)
	}
	return nil
}

// hello takes what a process says about itself. The process repeats it when something changes.
func (r *receiver) hello(payload []byte) error {
	h, err := read[hello](payload)
	if err != nil {
		return err
	}
	s := r.s
	s.mu.Lock()
	s.hello, s.info = h, info(s.conn, h)
	if s.host != 0 {
		s.info.PID = h.PID
	}
	s.mu.Unlock()
	r.sink.Begin(s.info)
	s.waiting(r.sink)
	return nil
}

func (r *receiver) steps(payload []byte) error {
	rows, err := steps(payload)
	if err != nil {
		return err
	}
	if len(rows) > 0 && r.last == nil {
		r.s.bridge(r.sink, rows[0].Index)
	}
	for _, x := range rows {
		r.sink.Step(x)
	}
	if n := len(rows); n > 0 {
		r.last = &rows[n-1]
	}
	return nil
}

// window begins a window, whose pieces follow.
func (r *receiver) window(payload []byte) error {
	h, err := read[windowHead](payload)
	if err != nil {
		return err
	}
	r.building = &assembly{head: h, devices: r.s.info.GPUs}
	return nil
}

// data takes a piece of the window.
func (r *receiver) data(payload []byte) error {
	if r.building == nil {
		return fmt.Errorf("%w: a piece of no window", errProtocol)
	}
	return r.building.add(payload)
}

// whole ends the window. One that cannot be read is a loss; the session goes on.
func (r *receiver) whole(ctx context.Context, payload []byte) error {
	tail, err := read[windowTail](payload)
	if err != nil {
		return err
	}
	if r.building == nil {
		return fmt.Errorf("%w: the end of no window", errProtocol)
	}
	w, err := r.building.finish(ctx, tail)
	r.building = nil
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		r.sink.Lose("windows", 1, err.Error())
	default:
		r.sink.Window(w)
	}
	return nil
}

func (r *receiver) notice(payload []byte) error {
	n, err := read[notice](payload)
	if err != nil {
		return err
	}
	r.sink.Notice(capture.Notice{Key: n.Key, Text: n.Says.Text(n.Text), State: n.State,
		Unmet: slices.Contains(unmetKeys, n.Key) && n.Text != "" && !n.State})
	return nil
}

func (r *receiver) answer(payload []byte) error {
	a, err := read[answer](payload)
	if err != nil {
		return err
	}
	a.Text = a.Says.Text(a.Text)
	r.sink.Answer(a.Answer)
	return nil
}

func (r *receiver) lost(payload []byte) error {
	l, err := read[lost](payload)
	if err != nil {
		return err
	}
	if l.N > 0 {
		r.sink.Lose(l.Name, l.N, l.Says.Text(l.Detail))
	}
	return nil
}

// bye ends the session.
func (r *receiver) bye(payload []byte) error {
	b, err := read[bye](payload)
	if err != nil {
		return err
	}
	r.s.once.Do(func() { close(r.s.gone) })
	r.sink.End(ending(b))
	return io.EOF
}

// unmetKeys are the keys of notices that say why steps are not captured at this depth, or why the allocator
// keeps no statistics.
var unmetKeys = []string{
	capture.HowOps, capture.HowHistory, capture.HowProfile, capture.HowEvents, "allocator",
}

func (s *Session) waiting(sink capture.Sink) {
	sink.Notice(capture.Notice{Key: say.KeyState, Text: s.hello.Says.Text(s.hello.Waiting), State: true})
}

// ending translates an agent's bye.
func ending(b bye) capture.End {
	e := capture.End{Detail: b.Says.Text(b.Detail)}
	switch b.Reason {
	case capture.Exited:
		// as another viewer knows it; an older one writes -1 for a code that it does not know
		e.Reason, e.Code, e.OutOfMemory = capture.Exited, maybe.NonNegative(b.Code.Or(-1)), b.OutOfMemory
		e.Recovered = maybe.NonNegative(b.Recovered.Or(-1))
		return e
	case capture.Detached, capture.Disarmed, capture.Refused:
		e.Reason = b.Reason
		for i := range min(len(b.Left), len(b.LeftSays)) {
			b.Left[i] = b.LeftSays[i].Text(b.Left[i])
		}
		if len(b.Left) > 0 {
			e.Detail = strings.TrimPrefix(e.Detail+"; left in place: "+strings.Join(b.Left, "; "), "; ")
		}
		return e
	}
	e.Reason = capture.Exited
	if b.Reason != "exit" {
		e.Detail = strings.TrimSuffix(b.Reason+": "+e.Detail, ": ")
		e.OutOfMemory = outOfMemory(e.Detail)
	}
	return e
}

// outOfMemory reports whether an exception, as Python prints it, is from a failed allocation.
func outOfMemory(exception string) bool {
	text := strings.ToLower(exception)
	for _, sign := range []string{"outofmemoryerror", "out of memory", "memoryerror",
		"can't allocate memory"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
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
	if r, err := s.readRing(); err == nil {
		for _, x := range r.between(last, next) {
			sink.Step(x)
		}
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
