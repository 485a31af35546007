package pytorch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// An agent also writes each step into a ring in memory, before it sends the step (agent/ring.py). It passes a
// descriptor of that memory when it connects. If the process is killed, what the agent had not sent is still
// there.
//
// Rejected: a named file. Someone would have to remove it if either process is killed, and its name would
// have to be checked. On a disk, writing to mapped memory can also wait for that disk.

// What the head of a ring says, and where.
const (
	ringMagic    = "gmt-ring"
	ringVersion  = 1
	ringHead     = 64
	ringAtSlots  = 16
	ringAtBytes  = 24
	ringAtEpoch  = 32
	ringAtSent   = 40
	ringCounted  = 5 // the figures of a step that was only counted
	maxRingSlot  = 1 << 12
	leastRingRow = 3 * 8 // the number of a row twice, and how many figures are between
)

// ring is what is left of an agent's ring.
type ring struct {
	slots       [][]byte
	epoch, sent int64
}

var errNoRing = errors.New("not an agent's ring")

// ringOf finds the slots in the bytes of a ring.
func ringOf(b []byte) (r ring, err error) {
	if len(b) < ringHead || string(b[:len(ringMagic)]) != ringMagic {
		return r, errNoRing
	}
	word := func(at int) int64 { return int64(binary.NativeEndian.Uint64(b[at:])) }
	if v := word(len(ringMagic)); v != ringVersion {
		return r, fmt.Errorf("%w: version %d", errNoRing, v)
	}
	n, size := word(ringAtSlots), word(ringAtBytes)
	room := int64(len(b) - ringHead)
	if size < leastRingRow || size > maxRingSlot || size%8 != 0 || n < 1 || n > room/size {
		return r, fmt.Errorf("%w: %d slots of %d bytes in %d", errNoRing, n, size, room)
	}
	r.epoch, r.sent = word(ringAtEpoch), max(word(ringAtSent), 0)
	for i := range n {
		r.slots = append(r.slots, b[ringHead+i*size:][:size])
	}
	return r, nil
}

// row returns the row in a slot, as on the wire; nil if there is none or it was not written to its end.
func (r *ring) row(slot int) []int64 { return rowIn(r.slots[slot], r.epoch) }

// rowIn does the same for the bytes of a slot. epoch is zero of the agent's clock.
func rowIn(b []byte, epoch int64) []int64 {
	word := func(i int64) int64 { return int64(binary.NativeEndian.Uint64(b[8*i:])) }
	number, n := word(0), word(1)
	if number < 1 || n < 0 || n > int64(len(b)/8)-3 || word(2+n) != number {
		return nil
	}
	figures := make([]int64, n)
	for i := range n {
		figures[i] = word(2 + i)
	}
	switch {
	case n == ringCounted:
		begin, end, backward, optimizer := figures[0], figures[1], figures[2], figures[3]
		spent := figures[4]
		figures = make([]int64, stepColumns)
		for i := range figures {
			figures[i] = -1
		}
		copy(figures, []int64{number - 1, epoch + begin, epoch + end,
			max(end-begin-backward-optimizer, 0), backward, optimizer})
		figures[stepColumns-2], figures[stepColumns-1] = spent, 0
	case n < stepColumns || figures[0] != number-1:
		return nil
	}
	return figures
}

// empty reports whether nothing was ever written to a slot.
func (r *ring) empty(slot int) bool {
	for _, x := range r.slots[slot] {
		if x != 0 {
			return false
		}
	}
	return true
}

// all returns the rows by their step, the newest step, -1 for none, and the slot of the row after that.
func (r *ring) all() (rows map[int64][]int64, newest int64, next int) {
	rows, newest = map[int64][]int64{}, -1
	for i := range r.slots {
		row := r.row(i)
		if row == nil {
			continue
		}
		rows[row[0]] = row
		if row[0] > newest {
			newest, next = row[0], (i+1)%len(r.slots)
		}
	}
	return rows, newest, next
}

// stepsOf returns the steps from one to another that have rows, in their order. held has the parameters,
// gradients and optimizer state of the step before them.
func stepsOf(rows map[int64][]int64, from, to int64, held [3]maybe.Int) (steps []capture.Step) {
	for i := from; i <= to; i++ {
		row := rows[i]
		if row == nil {
			continue
		}
		step, err := StepOf(row)
		if err != nil {
			continue
		}
		// What the optimizers hold stays known for some steps: a row that was only counted leaves it out.
		if !step.Parameters.IsKnown() {
			step.Parameters, step.Gradients, step.OptimizerState = held[0], held[1], held[2]
		}
		held = heldBy(&step)
		steps = append(steps, step)
	}
	return steps
}

// heldBy returns the parameters, gradients and optimizer state of a step.
func heldBy(s *capture.Step) [3]maybe.Int {
	return [3]maybe.Int{s.Parameters, s.Gradients, s.OptimizerState}
}

// after returns the steps that come after the last one received, nil for none, in their order, and how many
// are missing among them. stale says that the ring ends before that step: it was given up.
func (r *ring) after(last *capture.Step) (steps []capture.Step, lost int64, stale bool) {
	from := r.sent
	var held [3]maybe.Int
	if last != nil {
		from = last.Index + 1
		held = heldBy(last)
	}
	n := int64(len(r.slots))
	rows, newest, next := r.all()
	if newest < from-1 {
		return nil, 0, true
	}
	steps = stepsOf(rows, max(from, newest-n+1), newest, held)
	lost = newest - from + 1 - int64(len(steps))
	// The next row may have been cut short.
	if r.row(next) == nil && (newest+1 >= n || !r.empty(next)) {
		lost++
	}
	return steps, lost, false
}

// between returns the steps between two others, of a process that runs. It leaves out the oldest slots, where
// the process may be writing.
func (r *ring) between(last, next int64) []capture.Step {
	n := int64(len(r.slots))
	rows, newest, _ := r.all()
	oldest := newest - n + 1 + n/32
	return stepsOf(rows, max(last+1, oldest), min(next-1, newest), [3]maybe.Int{})
}

// greeting reads the first frame of a connection, and keeps the ring that may come with it.
type greeting struct {
	net.Conn
	ring *os.File
}

func (g *greeting) Read(p []byte) (int, error) {
	u, ok := g.Conn.(*net.UnixConn)
	if !ok || len(p) == 0 || g.ring != nil {
		return g.Conn.Read(p)
	}
	n, ring, err := readWithRing(u, p)
	g.ring = ring
	return n, err
}

// drop closes a ring that nobody needs.
func (g *greeting) drop() {
	if g.ring != nil {
		_ = g.ring.Close()
	}
}
