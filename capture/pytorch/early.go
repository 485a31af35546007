package pytorch

import (
	"bufio"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
)

// The problem: an agent that has sent steps rests, so that sending takes a thousandth of a processor at most
// (agent/send.py). Steps that are shorter than this rest would arrive up to two seconds late. But the
// training thread has already written them into the ring, where a killed process leaves them.
//
// The way chosen: while the agent may rest and the connection is quiet, look into the ring every 50 ms, and
// pass on the rows that continue what has arrived. The agent sends the same rows when its rest ends; they are
// skipped then. The training pays nothing: it does not know that anyone reads. A look reads one slot.
//
// What is in the connection always goes first, because it is older, and because only the agent knows of steps
// that it had to drop. A row that does not continue the last one waits for the connection.
//
// Rejected: a shorter rest, which takes the same processor time from the training that it saves here; a bell
// in the ring, which would be a system call in each step; looking every 20 ms, which takes twice as much of a
// processor here, while a node waited for its next message: steps arrived no sooner.

const (
	// ringEvery is how often to look into the ring. All sessions look at the same moments, multiples of it: a
	// program wakes once for all of its ranks, and their steps go on together.
	ringEvery = 50 * time.Millisecond
	// agentRest is how long an agent rests after steps at most (LATEST in agent/send.py), and a little more.
	agentRest = 2100 * time.Millisecond
	// ringSettles is how long after its number a row is read. The number is written last, but a processor
	// may show it to this process before the rest of the row.
	ringSettles = time.Millisecond
)

// early reads the ring of a process that runs.
type early struct {
	file  *os.File
	epoch int64 // zero of the agent's clock
	size  int64 // bytes of a slot
	slots int64
	first int64 // the slot of step 0, if the ring went as far back
	slot  []byte
}

// newEarly finds out where in the ring the step is that has just arrived. It returns nil if the ring does not
// have that step.
func newEarly(file *os.File, r ring, index int64) *early {
	for i := range r.slots {
		if row := r.row(i); row != nil && row[0] == index {
			n, size := int64(len(r.slots)), len(r.slots[0])
			return &early{file: file, epoch: r.epoch, size: int64(size), slots: n,
				first: ((int64(i)-index)%n + n) % n, slot: make([]byte, size)}
		}
	}
	return nil
}

// row reads the row of a step, nil if it is not there.
func (e *early) row(index int64) []int64 {
	at := ringHead + (e.first+index)%e.slots*e.size
	if _, err := e.file.ReadAt(e.slot, at); err != nil {
		return nil
	}
	row := rowIn(e.slot, e.epoch)
	if row == nil || row[0] != index {
		return nil
	}
	return row
}

// after returns the steps that come after last without a gap, nil for none.
func (e *early) after(last *capture.Step) []capture.Step {
	newest := last.Index
	for newest < last.Index+e.slots/2 && e.row(newest+1) != nil {
		newest++
	}
	if newest == last.Index {
		return nil
	}
	time.Sleep(ringSettles)
	rows := make(map[int64][]int64, newest-last.Index)
	for i := last.Index + 1; i <= newest; i++ {
		row := e.row(i)
		if row == nil {
			newest = i - 1
			break
		}
		rows[i] = row
	}
	return stepsOf(rows, last.Index+1, newest, heldBy(last))
}

// nextLook is when to look into the ring again.
func nextLook(now time.Time) time.Time { return now.Truncate(ringEvery).Add(ringEvery) }

// inbox reads a connection that may be quiet for a while.
type inbox struct {
	*bufio.Reader
	conn net.Conn
	mu   sync.Mutex // guards over
	over bool
}

func newInbox(conn net.Conn) *inbox {
	return &inbox{Reader: bufio.NewReaderSize(conn, 64<<10), conn: conn}
}

// stop ends all reading, now and later.
func (b *inbox) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	_ = b.conn.SetReadDeadline(time.Unix(1, 0))
}

// until sets the deadline for reading, the zero time for none.
func (b *inbox) until(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.conn.SetReadDeadline(t)
	}
}

// quiet waits for something to arrive, and reports whether nothing came until then.
func (b *inbox) quiet(until time.Time) bool {
	b.until(until)
	_, err := b.Peek(1)
	b.until(time.Time{})
	return errors.Is(err, os.ErrDeadlineExceeded)
}
