package cuda

import (
	"context"
	_ "embed"
	"fmt"
	"unsafe"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

//go:embed kernels.ptx
var kernels string

// kernelNames are the functions of kernels.ptx, in the order of their numbers.
var kernelNames = [...]string{"gmemtop_fill", "gmemtop_check", "gmemtop_work"}

const (
	kernelFill = iota
	kernelCheck
	kernelWork
)

// waitKind says why a queue waits. Every wait of the executor goes through execution.wait, so that tests can
// leave out any one of them and see that the device notices.
type waitKind uint8

const (
	waitPlan  waitKind = iota // the plan says so
	waitBegin                 // the iteration begins after the one before
	waitEnd                   // it ends when all queues are done
	waitSlot                  // a copy out takes pinned memory that a copy in still reads
	waitTaken                 // memory of another queue's
	waitGiven                 // memory that other queues touched goes back
	waitKinds
)

// execution runs one plan on one device.
type execution struct {
	ctx  context.Context
	p    *plan.Problem
	pl   *plan.Plan
	prog *program
	led  *ledger
	vals *values

	streams []driver.Stream // by queue
	marks   []driver.Event  // by mark of the program
	ends    []driver.Event  // by queue
	begin   driver.Event
	store   store
	slab    []byte // what is copied out
	kernels []driver.Kernel
	result  driver.Ptr // what checks write, two words
	read    []byte     // the same, pinned on the host
	blocks  int        // of a grid that fills the device

	// omit leaves out a wait: the n-th of its kind from 0. Tests alone set it; nil leaves out none.
	omit  func(kind waitKind, n int) bool
	waits [waitKinds]int
}

const threads = 256

// newExecution takes from the device everything that the plan needs.
func newExecution(ctx context.Context, led *ledger, k []driver.Kernel, p *plan.Problem, pl *plan.Plan,
	limit int64) (*execution, error) {
	prog, err := compile(p, pl)
	if err != nil {
		return nil, err
	}
	x := &execution{ctx: ctx, p: p, pl: pl, prog: prog, led: led, vals: numbered(p), kernels: k,
		blocks: max(led.Info().Processors, 1) * 8}
	if p.Queues() > 64 {
		return nil, fmt.Errorf("the problem has %d streams, and a device target enacts up to 62", p.Streams)
	}
	for range p.Queues() {
		s, err := led.NewStream()
		if err != nil {
			return nil, err
		}
		x.streams = append(x.streams, s)
		e, err := led.NewEvent(false)
		if err != nil {
			return nil, err
		}
		x.ends = append(x.ends, e)
	}
	for range prog.events {
		e, err := led.NewEvent(false)
		if err != nil {
			return nil, err
		}
		x.marks = append(x.marks, e)
	}
	if x.begin, err = led.NewEvent(false); err != nil {
		return nil, err
	}
	if x.result, err = led.Alloc(resultBytes); err != nil {
		return nil, err
	}
	if x.read, err = led.pin(resultBytes); err != nil {
		return nil, err
	}
	if prog.pinned > 0 {
		if x.slab, err = led.pin(prog.pinned); err != nil {
			return nil, err
		}
	}
	if x.store, err = x.openStore(limit); err != nil {
		return nil, err
	}
	return x, led.Synchronize() // residents may have been taken in the order of any stream
}

const resultBytes = 16

// wait makes a queue wait for an event.
func (x *execution) wait(kind waitKind, queue int16, e driver.Event) error {
	n := x.waits[kind]
	x.waits[kind]++
	if x.omit != nil && x.omit(kind, n) {
		return nil
	}
	return x.led.Wait(x.streams[queue], e)
}

// work is what a pass does at each step: [verification] fills and checks memory, [timing] moves bytes and
// computes.
type work interface {
	// begin is called when an iteration begins, with its queues ordered after the one before; end when all of
	// it has been issued and compute waits for all queues.
	begin(k int) error
	end(k int) error
	// alloc is called after an instance's allocation, free before its memory is given up.
	alloc(s int, i plan.InstanceID) error
	free(s int, i plan.InstanceID) error
	// before is called when a step's queue is about to wait, for copies last; after, when its work is queued.
	before(s int, copies bool) error
	after(s int) error
	// out and in put the copies on their queues, run the kernels of an op.
	out(s int, i plan.InstanceID) error
	in(s int, i plan.InstanceID) error
	run(s int) error
}

const checkEvery = 1 << 10

// iterate issues one iteration of the program to the device.
//
// Steps are issued in order. A queue's waits are collected until it gets work, those for copies last, so that
// a timing pass can distinguish waiting for a copy from other waiting. The iteration begins after everything
// before it and ends, on the first compute stream, when all queues are done: in training, each iteration
// needs the results of the one before.
func (x *execution) iterate(w work, k int) error {
	if err := x.led.Record(x.begin, x.streams[0]); err != nil {
		return err
	}
	for q := 1; q < len(x.streams); q++ {
		if err := x.wait(waitBegin, int16(q), x.begin); err != nil {
			return err
		}
	}
	if err := w.begin(k); err != nil {
		return err
	}
	pending := make([][]int32, len(x.streams))
	for s := range x.pl.Steps {
		if s%checkEvery == 0 && x.ctx.Err() != nil {
			return x.ctx.Err()
		}
		if err := x.step(w, s, pending); err != nil {
			return fmt.Errorf("step %d (%s): %w", s, x.pl.Steps[s].Kind, err)
		}
	}
	for q := 1; q < len(x.streams); q++ {
		if err := x.led.Record(x.ends[q], x.streams[q]); err != nil {
			return err
		}
		if err := x.wait(waitEnd, 0, x.ends[q]); err != nil {
			return err
		}
	}
	if err := w.end(k); err != nil {
		return err
	}
	x.store.turn()
	return nil
}

func (x *execution) step(w work, s int, pending [][]int32) error {
	st := &x.pl.Steps[s]
	switch st.Kind {
	case plan.Alloc:
		if err := x.store.alloc(st.Instance); err != nil {
			return err
		}
		return w.alloc(s, st.Instance)
	case plan.Free:
		if err := w.free(s, st.Instance); err != nil {
			return err
		}
		return x.store.free(st.Instance)
	case plan.Wait:
		pending[st.Queue] = append(pending[st.Queue], st.On)
		return nil
	}
	queue := x.prog.queue(st)
	if err := x.flush(w, s, queue, pending); err != nil {
		return err
	}
	var err error
	switch st.Kind {
	case plan.Out:
		if err = x.store.touch(st.Instance, queue); err == nil {
			err = w.out(s, st.Instance)
		}
	case plan.In:
		if err = x.store.touch(st.Instance, queue); err == nil {
			err = w.in(s, st.Instance)
		}
	default:
		err = w.run(s)
	}
	if err != nil {
		return err
	}
	if err := w.after(s); err != nil {
		return err
	}
	if m := x.prog.marks[s]; m >= 0 {
		return x.led.Record(x.marks[m], x.streams[queue])
	}
	return nil
}

// flush makes a queue wait for everything that step s must wait for.
func (x *execution) flush(w work, s int, queue int16, pending [][]int32) error {
	copies := false
	for pass := range 2 {
		if pass == 1 {
			if err := w.before(s, copies); err != nil {
				return err
			}
		}
		for _, on := range pending[queue] {
			kind := x.pl.Steps[on].Kind
			isCopy := kind == plan.Out || kind == plan.In
			copies = copies || isCopy
			if isCopy == (pass == 1) {
				if err := x.wait(waitPlan, queue, x.marks[x.prog.marks[on]]); err != nil {
					return err
				}
			}
		}
	}
	pending[queue] = pending[queue][:0]
	if b := x.prog.behind[s]; b >= 0 {
		return x.wait(waitSlot, queue, x.marks[x.prog.marks[b]])
	}
	return nil
}

// slot returns the host place of a step's copy.
func (x *execution) slot(s int) unsafe.Pointer { return unsafe.Pointer(&x.slab[x.prog.slots[s]]) }

func (x *execution) copyOut(s int, i plan.InstanceID) error {
	p, size := x.store.at(i)
	if size == 0 {
		return nil
	}
	return x.led.CopyOut(x.slot(s), p, size, x.streams[x.p.OutQueue()])
}

func (x *execution) copyIn(s int, i plan.InstanceID) error {
	p, size := x.store.at(i)
	if size == 0 {
		return nil
	}
	return x.led.CopyIn(p, x.slot(s), size, x.streams[x.p.InQueue()])
}

// launch queues a kernel with a grid for the given number of words.
func (x *execution) launch(kernel int, queue int16, words int64, args ...uint64) error {
	blocks := int(min(max((words+threads-1)/threads, 1), int64(x.blocks)))
	return x.led.Launch(x.kernels[kernel], blocks, threads, x.streams[queue], args...)
}
