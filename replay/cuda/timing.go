package cuda

import (
	"fmt"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Timing.
//
// Problem: the recording does not hold its kernels, only how long each took and which buffers it touched. A
// stand-in that spins until a deadline would take that long whatever else runs, and so hide what we want to
// measure: that copies and compute take memory bandwidth from each other, and that two streams share the
// multiprocessors.
//
// Solution: a stand-in does an amount of work. It streams the bytes of the buffers that the op touches (each
// once, the least that any kernel would move), and spends the rest of the recorded time on dependent
// multiply-adds. What a word and a multiply-add cost is measured on the device just before, with a grid that
// fills it. If an op's bytes alone would take longer than the recorded time, fewer are streamed. Alone, the
// stand-in takes the recorded time; beside a copy it takes as long as the device needs.
//
// Assumptions, where the recording says nothing: bytes move before and after the arithmetic, not during it;
// every op's grid fills the device.
//
// Two kinds of pass: the clean one has two events an iteration, around everything, and gives the step time;
// the traced one has events around every step and gives stalls, spans and the speed of copies, but takes some
// time itself. The host issues an iteration and waits for its end, as a training loop that prints its loss
// does, and waits out the recorded gaps between ops by the clock, since the host's work has no stand-in.

// rates are the costs of a stand-in's work, in nanoseconds.
type rates struct{ launch, word, add float64 }

// measureRates times the stand-in alone on the device.
func measureRates(led *ledger, k []driver.Kernel) (rates, error) {
	var r rates
	size := min(256<<20, led.limit/8) &^ 15
	if size < 1<<12 {
		return r, fmt.Errorf("%s of the device are too few to measure anything: %w", inUnits(led.limit),
			driver.ErrOutOfMemory)
	}
	x := &execution{led: led, kernels: k, blocks: max(led.Info().Processors, 1) * 8}
	s, err := led.NewStream()
	if err != nil {
		return r, err
	}
	x.streams = []driver.Stream{s}
	p, err := led.Alloc(size)
	if err != nil {
		return r, err
	}
	half := uint64(size / 2)
	timed := func(words, adds uint64) (float64, error) {
		times, err := repeat(led, s, rateRuns, func() error {
			return x.launch(kernelWork, 0, int64(x.blocks)*threads, uint64(p), half, uint64(p)+half, half,
				words/2, words/2, adds)
		})
		return float64(stats.Median(times)), err
	}
	const adds = 1 << 14
	words := uint64(size / 8)
	if r.launch, err = timed(0, 0); err != nil {
		return r, err
	}
	moved, err := timed(words, 0)
	if err != nil {
		return r, err
	}
	added, err := timed(0, adds)
	if err != nil {
		return r, err
	}
	r.word, r.add = (moved-r.launch)/float64(words), (added-r.launch)/adds
	if r.word <= 0 || r.add <= 0 {
		return r, fmt.Errorf("the device's clock says that moving %d bytes takes %.0f ns and %d additions "+
			"%.0f, launching alone %.0f: "+
			"no work can be measured by it", size, moved, adds, added, r.launch)
	}
	return r, nil
}

const rateRuns = 7

// repeat times something on a stream n times, each time alone, after doing it twice. Times are nanoseconds.
func repeat(led *ledger, s driver.Stream, n int, do func() error) ([]int64, error) {
	from, err := led.NewEvent(true)
	if err != nil {
		return nil, err
	}
	to, err := led.NewEvent(true)
	if err != nil {
		return nil, err
	}
	times := make([]int64, 0, n)
	for i := range n + 2 {
		if err := led.Record(from, s); err != nil {
			return nil, err
		}
		if err := do(); err != nil {
			return nil, err
		}
		if err := led.Record(to, s); err != nil {
			return nil, err
		}
		if err := led.SynchronizeEvent(to); err != nil {
			return nil, err
		}
		t, err := led.Elapsed(from, to)
		if err != nil {
			return nil, err
		}
		if i >= 2 {
			times = append(times, t)
		}
	}
	if err := led.CloseEvent(from); err != nil {
		return nil, err
	}
	return times, led.CloseEvent(to)
}

// amount is the work of an op's stand-in.
type amount struct {
	reads, writes uint64 // words
	adds          uint64 // in every thread
	from, to      plan.BufferID
}

// amounts computes the work of each op's stand-in.
func (x *execution) amounts(r rates) []amount {
	all := make([]amount, len(x.p.Ops))
	for i := range x.p.Ops {
		a := &all[i]
		a.from, a.to = plan.NoBuffer, plan.NoBuffer
		op := &x.p.Ops[i]
		var read, written int64
		larger := func(b, than plan.BufferID) plan.BufferID {
			if than == plan.NoBuffer || x.p.Buffers[b].Size > x.p.Buffers[than].Size {
				return b
			}
			return than
		}
		for _, t := range x.p.AccessesOf(plan.OpID(i)) {
			if t.Mode.Reads() {
				read += x.p.Buffers[t.Buffer].Size
				a.from = larger(t.Buffer, a.from)
			}
			if t.Mode.Writes() {
				written += x.p.Buffers[t.Buffer].Size
				a.to = larger(t.Buffer, a.to)
			}
		}
		if a.to == plan.NoBuffer {
			a.to = op.Workspace
		}
		left := max(float64(x.p.DurationOf(x.pl, plan.OpID(i)))-r.launch, 0)
		share := 1.0
		if all := float64(read+written) / 8 * r.word; all > left {
			share = left / all
		}
		a.reads, a.writes = uint64(share*float64(read)/8), uint64(share*float64(written)/8)
		a.adds = uint64(max(left-float64(a.reads+a.writes)*r.word, 0) / r.add)
	}
	return all
}

// timing is a pass that measures times.
type timing struct {
	x           *execution
	amounts     []amount
	at          []plan.InstanceID
	start, stop driver.Event
	trace       *trace // nil in a clean pass
}

func newTiming(x *execution, r rates, traced bool) (*timing, error) {
	t := &timing{x: x, amounts: x.amounts(r), at: x.pl.ResidentOf(x.p)}
	for _, e := range []*driver.Event{&t.start, &t.stop} {
		var err error
		if *e, err = x.led.NewEvent(true); err != nil {
			return nil, err
		}
	}
	if traced {
		n := len(x.pl.Steps)
		t.trace = &trace{held: make([]driver.Event, n), from: make([]driver.Event, n),
			to: make([]driver.Event, n)}
	}
	return t, nil
}

func (t *timing) begin(int) error {
	if t.trace != nil {
		t.trace.last, t.trace.dry, t.trace.launches = 0, 0, 0
	}
	return t.x.led.Record(t.start, t.x.streams[0])
}

// end puts every resident back where it begins, and takes the time.
func (t *timing) end(int) error {
	for _, i := range t.x.pl.Resident {
		t.at[t.x.pl.Instances[i].Buffer] = i
	}
	return t.x.led.Record(t.stop, t.x.streams[0])
}

func (t *timing) alloc(_ int, i plan.InstanceID) error {
	t.at[t.x.pl.Instances[i].Buffer] = i
	return nil
}

func (t *timing) free(int, plan.InstanceID) error { return nil }

func (t *timing) before(s int, copies bool) error {
	if t.trace == nil || !copies {
		return nil
	}
	return t.stamp(&t.trace.held[s], s)
}

func (t *timing) after(s int) error {
	if t.trace == nil {
		return nil
	}
	if err := t.stamp(&t.trace.to[s], s); err != nil {
		return err
	}
	if t.x.prog.queue(&t.x.pl.Steps[s]) == 0 {
		t.trace.last = t.trace.to[s]
	}
	return nil
}

// look counts an op that is about to be launched on the first compute stream, and whether the stream is idle.
func (t *timing) look(queue int16) error {
	if t.trace == nil || queue != 0 {
		return nil
	}
	t.trace.launches++
	if t.trace.last == 0 {
		return nil // unknown at the iteration's start
	}
	done, err := t.x.led.Done(t.trace.last)
	if done {
		t.trace.dry++
	}
	return err
}

func (t *timing) stamp(e *driver.Event, s int) error {
	if *e == 0 {
		var err error
		if *e, err = t.x.led.NewEvent(true); err != nil {
			return err
		}
	}
	return t.x.led.Record(*e, t.x.streams[t.x.prog.queue(&t.x.pl.Steps[s])])
}

func (t *timing) from(s int) error {
	if t.trace == nil {
		return nil
	}
	return t.stamp(&t.trace.from[s], s)
}

func (t *timing) out(s int, i plan.InstanceID) error {
	if err := t.from(s); err != nil {
		return err
	}
	return t.x.copyOut(s, i)
}

func (t *timing) in(s int, i plan.InstanceID) error {
	if err := t.from(s); err != nil {
		return err
	}
	return t.x.copyIn(s, i)
}

func (t *timing) run(s int) error {
	x, st := t.x, &t.x.pl.Steps[s]
	op := &x.p.Ops[st.Op]
	for _, a := range x.p.AccessesOf(st.Op) {
		if err := x.store.touch(t.at[a.Buffer], st.Queue); err != nil {
			return err
		}
	}
	if op.Workspace != plan.NoBuffer {
		if err := x.store.touch(t.at[op.Workspace], st.Queue); err != nil {
			return err
		}
	}
	spend(op.Gap)
	if err := t.look(st.Queue); err != nil {
		return err
	}
	if err := t.from(s); err != nil {
		return err
	}
	if x.p.DurationOf(x.pl, st.Op) == 0 {
		return nil
	}
	a := &t.amounts[st.Op]
	from, fromBytes := t.words(a.from)
	to, toBytes := t.words(a.to)
	return x.launch(kernelWork, st.Queue, int64(x.blocks)*threads, from, fromBytes, to, toBytes, a.reads,
		a.writes, a.adds)
}

// words returns the part of a buffer that consists of whole words.
func (t *timing) words(b plan.BufferID) (at, bytes uint64) {
	if b == plan.NoBuffer {
		return 0, 0
	}
	p, size := t.x.store.at(t.at[b])
	skip := int64(-p & 7)
	if size < skip+8 {
		return 0, 0
	}
	return uint64(p) + uint64(skip), uint64(size-skip) &^ 7
}

// spend lets the host's time pass.
func spend(ns int64) {
	if ns <= 0 {
		return
	}
	for began := time.Now(); time.Since(began) < time.Duration(ns); {
	}
}

// measure runs iterations, each waited for, and returns the times of all but the first warm ones, in
// nanoseconds.
func (t *timing) measure(k, warm, n int) ([]int64, error) {
	times := make([]int64, 0, n)
	for i := range warm + n {
		if err := t.x.iterate(t, k+i); err != nil {
			return nil, err
		}
		if err := t.x.led.SynchronizeEvent(t.stop); err != nil {
			return nil, err
		}
		ns, err := t.x.led.Elapsed(t.start, t.stop)
		if err != nil {
			return nil, err
		}
		if i >= warm {
			times = append(times, ns/int64(t.x.p.Iterations))
		}
	}
	return times, nil
}

// trace is the events of a traced pass, by step: before a queue waited for copies, before its work and after
// it.
type trace struct {
	held, from, to []driver.Event

	// after the last work of the first compute stream in this iteration; 0 before any
	last          driver.Event
	dry, launches int64 // of that stream, in the last iteration
}

// traced is what a traced iteration shows, of all iterations that the problem holds; times are nanoseconds.
type traced struct {
	stall, again    int64
	makespan        int64
	outTime, inTime int64
	spans           []plan.Span
}

// read takes the times of the last traced iteration.
func (t *timing) read() (traced, error) {
	var r traced
	x := t.x
	origin := t.start
	var failed error
	since := func(a, b driver.Event) int64 {
		ns, err := x.led.Elapsed(a, b)
		if failed == nil {
			failed = err
		}
		return ns
	}
	r.makespan = since(origin, t.stop)
	for s := range x.pl.Steps {
		if t.trace.to[s] == 0 {
			continue
		}
		st := &x.pl.Steps[s]
		queue := x.prog.queue(st)
		from := since(origin, t.trace.from[s])
		to := from + since(t.trace.from[s], t.trace.to[s])
		if h := t.trace.held[s]; h != 0 && int(queue) < x.p.Streams {
			wait := since(h, t.trace.from[s])
			if queue == 0 {
				r.stall += wait
			}
			r.spans = append(r.spans, plan.Span{Start: from - wait, End: from, Step: int32(s), Queue: queue,
				Stall: true})
		}
		switch st.Kind {
		case plan.Again:
			r.again += to - from
		case plan.Out:
			r.outTime += to - from
		case plan.In:
			r.inTime += to - from
		}
		r.spans = append(r.spans, plan.Span{Start: from, End: to, Step: int32(s), Queue: queue})
		if failed != nil {
			return r, failed
		}
	}
	return r, failed
}
