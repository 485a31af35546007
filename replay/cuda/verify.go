package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Verification.
//
// Problem: a plan that puts two blocks in one place, forgets a copy or lacks a wait computes garbage at full
// speed. The times of such a plan are worthless, and the validator that should catch it has the same authors
// as the planners.
//
// Solution: before a plan is timed the device carries it out with fills and checks instead of the recorded
// kernels. An op checks the pattern of everything it reads and fills what it writes with the pattern of the
// value that the recording made there; see values.go. Checks run on the op's own stream, in its order, so
// that they see what a kernel would have seen. Only the plan orders them.
//
// There are two kinds of pass, since each finds mistakes that the other hides:
//   - racing: only the plan's waits, as when it is timed. Once for each queue, which is waited for first: on
//     a device that does work when it is waited for (the fake one) that queue then runs as far ahead of all
//     others as the waits allow, which reveals a missing wait. What an instance holds is checked at its last
//     touch, too; a check at its release would need an order that the plan does not give;
//   - settled: the host waits for the device after every step, and everything is checked when its memory
//     goes. Order does not matter here, and whatever is in a wrong place is found wherever it is.
//
// Each pass runs two iterations, because in the second an online allocator uses other memory.
//
// Rejected: copying blocks to the host and comparing there (the copies would disturb the plan's); checksums
// instead of patterns (an overlap written twice with the same bytes would pass).

// errWrong is wrapped by the error of a plan that lost or overwrote bytes on the device.
var errWrong = errors.New("the device found wrong bytes")

// verifiedIterations is how many iterations a pass of the verification runs.
const verifiedIterations = 2

// checked is one check given to the device, by its tag.
type checked struct {
	step   int32
	buffer plan.BufferID
	seed   uint64
}

// verification is one pass.
type verification struct {
	x       *execution
	settled bool
	k       int // the iteration
	checks  []checked

	at      []plan.InstanceID // by buffer: where it is, -1 if it is not in memory
	fresh   []bool            // by instance: new and not touched yet
	holds   []uint64          // by instance: the pattern that is in it; valid if known
	known   []bool
	born    []bool // by buffer: created in this iteration
	onHost  []uint64
	hostHas []bool
}

// verify runs all passes.
func (x *execution) verify() error {
	for first := range x.streams {
		if err := x.pass(&verification{x: x}, first); err != nil {
			return err
		}
	}
	return x.pass(&verification{x: x, settled: true}, 0)
}

// pass runs one, and waits for queue first before the others.
func (x *execution) pass(v *verification, first int) error {
	if err := v.prepare(); err != nil {
		return err
	}
	for k := range verifiedIterations {
		if err := x.iterate(v, k); err != nil {
			return err
		}
	}
	for q := range x.streams {
		if err := x.led.SynchronizeStream(x.streams[(first+q)%len(x.streams)]); err != nil {
			return err
		}
	}
	return v.judge()
}

// prepare gives the residents the values that they begin the first iteration with.
func (v *verification) prepare() error {
	x := v.x
	n := len(x.pl.Instances)
	v.fresh, v.holds, v.known = make([]bool, n), make([]uint64, n), make([]bool, n)
	v.onHost, v.hostHas = make([]uint64, len(x.p.Buffers)), make([]bool, len(x.p.Buffers))
	v.born, v.at = make([]bool, len(x.p.Buffers)), x.pl.ResidentOf(x.p)
	binary.NativeEndian.PutUint64(x.read, 0)
	binary.NativeEndian.PutUint64(x.read[8:], math.MaxUint64)
	if err := x.led.CopyIn(x.result, unsafe.Pointer(&x.read[0]), resultBytes, x.streams[0]); err != nil {
		return err
	}
	for _, i := range x.pl.Resident {
		b := x.pl.Instances[i].Buffer
		if err := v.fill(i, x.vals.seed(x.p, b, 0, 0), 0); err != nil {
			return err
		}
	}
	return x.led.Synchronize()
}

// fill writes a pattern into an instance, on a queue.
func (v *verification) fill(i plan.InstanceID, seed uint64, queue int16) error {
	v.fresh[i], v.known[i], v.holds[i] = false, true, seed
	p, size := v.x.store.at(i)
	if size == 0 {
		return nil
	}
	return v.x.launch(kernelFill, queue, (size+7)/8, uint64(p), uint64(size), seed)
}

// check asks the device whether an instance holds a pattern.
func (v *verification) check(s int, i plan.InstanceID, seed uint64, queue int16) error {
	p, size := v.x.store.at(i)
	if size == 0 {
		return nil
	}
	tag := len(v.checks)
	v.checks = append(v.checks, checked{int32(s), v.x.pl.Instances[i].Buffer, seed})
	return v.x.launch(kernelCheck, queue, (size+7)/8, uint64(p), uint64(size), seed, uint64(v.x.result),
		uint64(tag))
}

// first fills a new instance, which may hold anything, with a pattern of ours.
func (v *verification) first(i plan.InstanceID, queue int16) error {
	if !v.fresh[i] {
		return nil
	}
	b := v.x.pl.Instances[i].Buffer
	return v.fill(i, v.x.vals.seed(v.x.p, b, v.x.vals.birth[b], v.k), queue)
}

func (v *verification) begin(k int) error {
	v.k = k
	clear(v.born)
	clear(v.hostHas)
	return v.settle()
}

// settle waits for the device in a settled pass.
func (v *verification) settle() error {
	if !v.settled {
		return nil
	}
	return v.x.led.Synchronize()
}

func (v *verification) alloc(s int, i plan.InstanceID) error {
	b := v.x.pl.Instances[i].Buffer
	buf := &v.x.p.Buffers[b]
	v.at[b], v.known[i], v.fresh[i] = i, false, false
	if !v.born[b] && buf.Life != plan.Persistent && v.x.pl.Steps[s].Op == buf.Start {
		v.born[b], v.fresh[i] = true, true
	}
	return nil
}

func (v *verification) free(s int, i plan.InstanceID) error {
	v.at[v.x.pl.Instances[i].Buffer] = -1
	if !v.settled || !v.known[i] {
		return nil
	}
	if err := v.check(s, i, v.holds[i], v.x.prog.home(i)); err != nil {
		return err
	}
	return v.settle()
}

func (v *verification) before(int, bool) error { return nil }
func (v *verification) after(int) error        { return v.settle() }

func (v *verification) out(s int, i plan.InstanceID) error {
	b, queue := v.x.pl.Instances[i].Buffer, v.x.p.OutQueue()
	if err := v.first(i, queue); err != nil {
		return err
	}
	v.onHost[b], v.hostHas[b] = v.holds[i], v.known[i]
	if err := v.x.copyOut(s, i); err != nil || !v.known[i] {
		return err
	}
	return v.check(s, i, v.holds[i], queue)
}

func (v *verification) in(s int, i plan.InstanceID) error {
	b := v.x.pl.Instances[i].Buffer
	v.fresh[i], v.known[i], v.holds[i] = false, v.hostHas[b], v.onHost[b]
	if err := v.x.copyIn(s, i); err != nil || !v.known[i] {
		return err
	}
	return v.check(s, i, v.holds[i], v.x.p.InQueue()) // even if nothing reads it: it may be overwritten next
}

// run checks what an op reads and fills what it writes.
func (v *verification) run(s int) error {
	x, st := v.x, &v.x.pl.Steps[s]
	op := &x.p.Ops[st.Op]
	if op.Workspace != plan.NoBuffer {
		if err := x.store.touch(v.at[op.Workspace], st.Queue); err != nil {
			return err
		}
		if err := v.fill(v.at[op.Workspace], scratch(st.Op, v.k), st.Queue); err != nil {
			return err
		}
	}
	for k := op.First; k < op.End; k++ {
		a := x.p.Accesses[k]
		i := v.at[a.Buffer]
		if err := x.store.touch(i, st.Queue); err != nil {
			return err
		}
		if !a.Mode.Reads() {
			continue
		}
		if err := v.first(i, st.Queue); err != nil {
			return err
		}
		if err := v.check(s, i, x.vals.seed(x.p, a.Buffer, x.vals.before[k], v.k), st.Queue); err != nil {
			return err
		}
	}
	for k := op.First; k < op.End; k++ {
		a := x.p.Accesses[k]
		if !a.Mode.Writes() {
			continue
		}
		i := v.at[a.Buffer]
		seed := x.vals.seed(x.p, a.Buffer, x.vals.after[k], v.k)
		if err := v.fill(i, seed, st.Queue); err != nil {
			return err
		}
		if x.prog.last[i] == int32(s) {
			if err := v.check(s, i, seed, st.Queue); err != nil {
				return err
			}
		}
	}
	if op.Workspace != plan.NoBuffer {
		return v.check(s, v.at[op.Workspace], scratch(st.Op, v.k), st.Queue)
	}
	return nil
}

// end checks, after all queues, that persistent buffers hold what the next iteration expects.
func (v *verification) end(k int) error {
	x := v.x
	for _, r := range x.pl.Resident {
		b := x.pl.Instances[r].Buffer
		i := v.at[b]
		if i < 0 {
			return fmt.Errorf("%w plan: buffer %d (%s) is not there when the iteration ends", plan.ErrInvalid,
				b, x.p.Buffers[b].Name)
		}
		if err := v.first(i, 0); err != nil {
			return err
		}
		seed := x.vals.seed(x.p, b, x.vals.last[b], k)
		if err := v.check(len(x.pl.Steps), i, seed, 0); err != nil {
			return err
		}
		v.at[b], v.known[r], v.holds[r], v.fresh[r] = r, true, seed, false
	}
	return v.settle()
}

// judge reads the results of the checks.
func (v *verification) judge() error {
	x := v.x
	if err := x.led.CopyOut(unsafe.Pointer(&x.read[0]), x.result, resultBytes, x.streams[0]); err != nil {
		return err
	}
	if err := x.led.Synchronize(); err != nil {
		return err
	}
	n, tag := binary.NativeEndian.Uint64(x.read), binary.NativeEndian.Uint64(x.read[8:])
	if n == 0 {
		return nil
	}
	if tag >= uint64(len(v.checks)) {
		return fmt.Errorf("%w: %d bytes, and no check knows of them", errWrong, n)
	}
	c := v.checks[tag]
	where := "when the iteration ends"
	if int(c.step) < len(x.pl.Steps) {
		st := &x.pl.Steps[c.step]
		where = fmt.Sprintf("at step %d (%s)", c.step, st.Kind)
		if st.Kind == plan.Run || st.Kind == plan.Again {
			where = fmt.Sprintf("at step %d (%s of op %d, %s)", c.step, st.Kind, st.Op, x.p.Ops[st.Op].Name)
		}
	}
	return fmt.Errorf("%w: %d bytes in all, first in buffer %d (%s) %s", errWrong, n, c.buffer,
		x.p.Buffers[c.buffer].Name, where)
}
