package pytorch

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// receiver passes what a session receives on to a sink.
type receiver struct {
	s        *Session
	sink     capture.Sink
	building *assembly     // the window whose pieces come, nil between windows
	last     *capture.Step // the newest step, nil before there is one
	early    *early        // reads steps before they are sent, nil where that is not possible
	rests    time.Time     // until when the agent may hold steps back, zero if there is no ring to read
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
	if err != nil || len(rows) == 0 {
		return err
	}
	if r.last == nil {
		r.s.bridge(r.sink, rows[0].Index)
		r.last = &rows[len(rows)-1]
	}
	r.pass(rows)
	if r.s.ring != nil {
		r.rests = time.Now().Add(agentRest)
	}
	return nil
}

// pass passes on the steps that the sink does not have yet.
func (r *receiver) pass(rows []capture.Step) {
	s := r.s
	for i := range rows {
		if x := &rows[i]; !s.had(x) {
			r.sink.Step(*x)
			s.passed, r.last = x, x
		}
	}
}

// had reports whether a step was passed on already. An agent that is new in its process counts from 0 again,
// so the number alone does not tell.
func (s *Session) had(x *capture.Step) bool {
	return s.passed != nil && x.Index <= s.passed.Index && x.Start <= s.passed.Start
}

// lookAhead passes on the steps that the agent has not sent yet.
func (r *receiver) lookAhead() {
	if r.early == nil {
		if ring, err := r.s.readRing(); err == nil {
			r.early = newEarly(r.s.ring, ring, r.last.Index)
		}
	}
	if r.early == nil {
		r.rests = time.Time{} // try again when more has come
		return
	}
	r.pass(r.early.after(r.last))
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
