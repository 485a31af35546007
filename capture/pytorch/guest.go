package pytorch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces/gmt"
)

// guest is another viewer, and what it has been sent so far.
type guest struct {
	relay  *Relay
	conn   net.Conn
	hello  string
	told   told // what it was sent, or told it had missed
	begun  bool // told is set
	output int64
	// notices and losses are those it was sent.
	notices map[string]capture.Notice
	losses  map[string]int64
	plan    capture.Order // ID and number of its newest plan that ends when it goes, zero for none

	more    capture.Changes // there may be more to send
	mu      sync.Mutex
	refused []capture.Answer // to orders that were not passed on
	left    bool             // it said that it is leaving
}

// hear passes on the guest's orders until it leaves, and then ends its plan.
func (g *guest) hear(ctx context.Context) {
	defer g.endPlan()
	for {
		k, payload, err := readFrame(g.conn, maxOrder)
		if err != nil {
			return
		}
		switch k {
		case frameOrder:
			o, err := read[capture.Order](payload)
			if err != nil {
				return
			}
			if err := g.relay.control.Order(ctx, o); err != nil {
				g.notPassedOn(o, err)
				continue
			}
			if o.Do == capture.Carry {
				g.plan = capture.Order{}
				if o.Plan != nil && !o.Stays {
					g.plan = capture.Order{ID: o.ID, Number: o.Number}
				}
			}
		case frameDetach:
			g.mu.Lock()
			g.left = true
			g.mu.Unlock()
			g.more.Tell()
		}
	}
}

// endPlan ends the plan that the guest ordered, unless it has already ended. The agent knows only this
// viewer, so it does not notice that the guest has gone.
func (g *guest) endPlan() {
	if g.plan.ID == 0 {
		return
	}
	v := g.relay.history.Snapshot()
	a, _ := v.Answered(g.plan.ID)
	if v.Ended || a.State == capture.OrderRefused || a.State == capture.OrderEnded {
		return
	}
	// The number keeps a plan on that another viewer has just ordered instead. A job that takes no orders any
	// more carries out no plan either.
	off := capture.Order{Do: capture.Carry, Number: g.plan.Number}
	_ = g.relay.control.Order(context.Background(), off)
}

// maxRefusals is how many refusals are kept for a guest that does not read.
const maxRefusals = 16

// notPassedOn tells the guest that its order never reached the job.
func (g *guest) notPassedOn(o capture.Order, err error) {
	text := say.OrderNotPassed.Text(err)
	defer g.more.Tell()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = append(g.refused[max(len(g.refused)-maxRefusals+1, 0):],
		capture.Answer{
			Order: o.ID, State: capture.OrderRefused, Reason: capture.ReasonUnreachable, Text: text,
		})
}

// errParted ends a conversation after the last message.
var errParted = errors.New("the last message was sent")

// speak sends the guest what there is, frame by frame, until it leaves or nothing more will come.
func (g *guest) speak(ctx context.Context) {
	for sentAny := false; ; {
		version := g.more.Now()
		sent, err := g.turn(ctx)
		switch {
		case err != nil:
			return
		case sent:
			sentAny = true
			continue
		case sentAny:
			sentAny = false
			select {
			case <-ctx.Done():
				return
			case <-time.After(guestRest):
			}
		}
		if g.more.Wait(ctx, version) != nil {
			return
		}
	}
}

// turn sends the next frame or window, and reports whether there was one. It holds no view while it writes.
func (g *guest) turn(ctx context.Context) (bool, error) {
	b, w, err := g.next(g.relay.open.Err() != nil)
	switch {
	case w != nil:
		return true, g.sendWindow(ctx, w)
	case b != nil:
		if _, failed := g.conn.Write(b); failed != nil {
			return true, failed
		}
	}
	return b != nil, err
}

// next returns the next frame or window. errParted comes with the last frame.
func (g *guest) next(closing bool) ([]byte, *capture.Window, error) {
	v, all := g.relay.snapshot()
	g.mu.Lock()
	refused, left := g.refused, g.left
	g.refused = nil
	g.mu.Unlock()
	if left {
		b, err := frame(frameBye, bye{Version: protocolVersion, Reason: capture.Detached,
			Detail: say.GoesOnWatching.Text(os.Getpid())})
		return b, nil, errors.Join(err, errParted)
	}
	if !v.Began {
		if closing {
			return nil, nil, errParted
		}
		return nil, nil, nil
	}
	if !g.begun {
		g.begin(v, all)
	}
	if b, err := g.words(v, refused); b != nil || err != nil {
		return b, nil, err
	}
	if b, err := g.steps(v, all); b != nil || err != nil {
		return b, nil, err
	}
	if b, w, err := g.window(v, all); b != nil || w != nil || err != nil {
		return b, w, err
	}
	if b, err := g.answers(v, all); b != nil || err != nil { // after the windows whose orders they complete
		return b, nil, err
	}
	if b := g.printed(v); b != nil {
		return b, nil, nil
	}
	switch {
	case v.Ended:
		b, err := frame(frameBye, lastWord(v.End))
		return b, nil, errors.Join(err, errParted)
	case closing: // this viewer leaves before the job ends: the guest sees the connection end
		return nil, nil, errParted
	}
	return nil, nil, nil
}

// begin starts a guest with all steps that are kept, and the newest windows.
func (g *guest) begin(v capture.View, all told) {
	g.begun = true
	g.told = told{steps: all.steps - int64(len(v.Steps)), windows: all.windows, answers: all.answers}
	var sum int64
	for i := len(v.Windows) - 1; i >= 0; i-- {
		if sum += v.Windows[i].Bytes; sum > guestFirst && i < len(v.Windows)-1 {
			break
		}
		g.told.windows--
	}
	g.output = v.OutputCut
}

// words returns frames with the process, notices and losses, nil if the guest knows them.
func (g *guest) words(v capture.View, refused []capture.Answer) ([]byte, error) {
	t := v.Info
	h := hello{
		Version: protocolVersion, PID: t.PID, Start: t.Started, Host: t.Host, Argv: t.Argv,
		Python: t.Python, Torch: t.Torch, Device: t.Device,
		Rank: t.Rank.Or(-1), LocalRank: t.LocalRank.Or(-1), WorldSize: t.WorldSize.Or(-1),
		Axes: t.Axes, Capabilities: t.Capabilities, Depth: t.Depth, Offloads: t.Offloads, Room: t.Room.Or(0),
		Viewer: os.Getpid(),
	}
	for _, d := range t.GPUs {
		h.Devices = append(h.Devices, gpu{Ordinal: d.Ordinal, Name: d.Name, Bytes: d.TotalBytes})
	}
	for _, n := range v.Notices {
		if n.Key == say.KeyState {
			h.Waiting = n.Text
		}
	}
	var out []byte
	tell := func(k kind, x any) error {
		b, err := frame(k, x)
		out = append(out, b...)
		return err
	}
	b, err := frame(frameHello, h)
	if err != nil {
		return nil, err
	}
	if string(b) != g.hello {
		g.hello, out = string(b), append(out, b...)
	}
	kept := map[string]bool{say.KeyState: true, say.KeyBeside: true}
	for _, n := range v.Notices {
		if kept[n.Key] = true; n.Key != say.KeyState && n.Key != say.KeyBeside && g.notices[n.Key] != n {
			g.notices[n.Key] = n
			err = errors.Join(err, tell(frameNotice, notice{Key: n.Key, Text: n.Text, State: n.State}))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(g.notices)) {
		if !kept[key] {
			delete(g.notices, key)
			err = errors.Join(err, tell(frameNotice, notice{Key: key}))
		}
	}
	for _, a := range refused {
		n := notice{Key: say.KeyOrder, Text: a.Text}
		err = errors.Join(err, tell(frameNotice, n), tell(frameAnswer, a))
	}
	for _, l := range v.Losses {
		if n := l.Count - g.losses[l.Name]; n > 0 {
			g.losses[l.Name] = l.Count
			err = errors.Join(err, tell(frameLost, lost{Name: l.Name, N: n, Detail: l.Detail}))
		}
	}
	return out, err
}

// steps returns a frame of the next steps, preceded by a frame with the number of missed ones.
func (g *guest) steps(v capture.View, all told) ([]byte, error) {
	first := all.steps - int64(len(v.Steps))
	var out []byte
	if missed := first - g.told.steps; missed > 0 {
		g.told.steps = first
		b, err := frame(frameLost, lost{Name: "steps", N: missed, Detail: say.NotRead.Text()})
		if err != nil {
			return nil, err
		}
		out = b
	}
	list := v.Steps[g.told.steps-first:]
	if list = list[:min(len(list), guestRows)]; len(list) > 0 {
		b, err := frame(frameSteps, rows(list))
		if err != nil {
			return nil, err
		}
		g.told.steps += int64(len(list))
		out = append(out, b...)
	}
	return out, nil
}

// answers returns frames with the new answers to all viewers' orders, nil if there are none. An order is
// given and answered on one connection, so a guest has no use for answers from before it came.
func (g *guest) answers(v capture.View, all told) (out []byte, err error) {
	n := min(all.answers-g.told.answers, int64(len(v.Answers)))
	g.told.answers = all.answers
	for _, a := range v.Answers[int64(len(v.Answers))-n:] {
		b, err := frame(frameAnswer, a)
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return out, nil
}

// window returns the next window, or a frame with the number of missed ones.
func (g *guest) window(v capture.View, all told) ([]byte, *capture.Window, error) {
	first := all.windows - int64(len(v.Windows))
	if missed := first - g.told.windows; missed > 0 {
		g.told.windows = first
		b, err := frame(frameLost, lost{Name: "windows", N: missed, Detail: say.NotRead.Text()})
		return b, nil, err
	}
	if g.told.windows == all.windows {
		return nil, nil, nil
	}
	w := v.Windows[g.told.windows-first] // a copy, without the view
	g.told.windows++
	return nil, &w, nil
}

// printed returns a frame with the command's new output.
func (g *guest) printed(v capture.View) []byte {
	g.output = max(g.output, v.OutputCut)
	p := v.Output[g.output-v.OutputCut:]
	if p = p[:min(len(p), guestPiece)]; len(p) == 0 {
		return nil
	}
	g.output += int64(len(p))
	return plainFrame(frameOutput, p)
}

// sendWindow sends a window as a native stream. A window that cannot be encoded is a loss; an error means
// that the connection ended.
func (g *guest) sendWindow(ctx context.Context, w *capture.Window) error {
	head, err := frame(frameWindow, windowHead{First: w.First, Last: w.Last, How: w.How, Partial: w.Partial,
		Orders: w.Orders, Encoding: encodingGMT})
	if err != nil {
		return err
	}
	if _, err := g.conn.Write(head); err != nil {
		return err
	}
	p := &pieces{conn: g.conn}
	var b []byte
	if err := gmt.Write(ctx, p, w.Trace); err != nil {
		if p.failed || ctx.Err() != nil {
			return err
		}
		b, err = frame(frameLost, lost{Name: "windows", N: 1, Detail: err.Error()})
		if err != nil {
			return err
		}
	} else if b, err = frame(frameWhole, windowTail{Cost: int64(w.Cost)}); err != nil {
		return err
	}
	_, err = g.conn.Write(b)
	return err
}

// pieces writes a stream as the pieces of a window.
type pieces struct {
	conn   net.Conn
	n      int
	failed bool // the connection failed, not the window
}

func (p *pieces) Write(b []byte) (int, error) {
	if p.n += len(b); p.n > maxPacked {
		return 0, fmt.Errorf("the captured step takes more than %d MiB", maxPacked>>20)
	}
	for piece := range slices.Chunk(b, guestPiece) {
		if _, err := p.conn.Write(plainFrame(frameData, piece)); err != nil {
			p.failed = true
			return 0, err
		}
	}
	return len(b), nil
}

// lastWord is the inverse of ending.
func lastWord(e capture.End) bye {
	b := bye{Version: protocolVersion, Reason: e.Reason, Detail: e.Detail}
	switch {
	case e.Reason == capture.Exited:
		b.Code, b.OutOfMemory, b.Recovered = e.Code, e.OutOfMemory, e.Recovered
	case e.Reason == capture.Detached && e.Detail == "":
		b.Detail = say.LetGo.Text(os.Getpid())
	}
	return b
}
