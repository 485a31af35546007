package pytorch

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// following is a process that has sent its first step and now writes into its ring, and who watches it.
type following struct {
	t     *testing.T
	conn  net.Conn
	ring  aRing
	file  *os.File
	seen  *capture.History
	ended chan error
}

// follow watches such a process. received is the last step that a viewer before has, first the one it sends.
func follow(t *testing.T, received maybe.Int, first int64) *following {
	t.Helper()
	f := &following{t: t, ring: newRing(0), seen: capture.NewHistory(capture.Limits{}),
		ended: make(chan error, 1)}
	for i := range first + 1 {
		f.ring.count(i)
	}
	given := inMemoryFile(t, f.ring)
	var err error
	if f.file, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", given.Fd()), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	s, conn, done := killed(t, given)
	f.conn, s.received = conn, received
	go func() { f.ended <- s.Run(t.Context(), f.seen) }()
	t.Cleanup(func() { _ = conn.Close(); done(); _ = f.file.Close() })
	f.send(first, first)
	return f
}

// put writes steps into the ring.
func (f *following) put(steps ...int64) {
	f.t.Helper()
	for _, i := range steps {
		f.ring.count(i)
	}
	f.sync()
}

func (f *following) sync() {
	if _, err := f.file.WriteAt(f.ring, 0); err != nil {
		f.t.Fatal(err)
	}
}

// send sends the steps from one to another, as the agent would.
func (f *following) send(from, to int64) {
	f.t.Helper()
	var list []capture.Step
	for i := from; i <= to; i++ {
		list = append(list, capture.Step{Index: i, Start: testEpoch + 10*i, End: testEpoch + 10*i + 9})
	}
	payload, _ := json.Marshal(rows(list))
	if _, err := f.conn.Write(plainFrame(frameSteps, payload)); err != nil {
		f.t.Fatal(err)
	}
}

// shows waits until exactly these steps have been seen.
func (f *following) shows(want ...int64) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), torchtest.Patience(f.t))
	defer cancel()
	for v := f.seen.Snapshot(); ; {
		var got []int64
		for _, x := range v.Steps {
			got = append(got, x.Index)
		}
		if slices.Equal(got, want) {
			return
		}
		var err error
		if len(got) < len(want) {
			v, err = f.seen.Wait(ctx, v.Version)
		}
		if err != nil || len(got) >= len(want) {
			f.t.Fatalf("steps %v, want %v", got, want)
		}
	}
}

// ends says goodbye and checks what was seen in all.
func (f *following) ends(want ...int64) {
	f.t.Helper()
	if _, err := f.conn.Write(raw(frameBye, `{"reason":"exit"}`)); err != nil {
		f.t.Fatal(err)
	}
	if err := <-f.ended; err != nil {
		f.t.Fatal(err)
	}
	f.shows(want...)
}

// TestStepsThatWaitInTheProcessAreReadFromItsRing: a viewer has them before the agent sends them, each once.
func TestStepsThatWaitInTheProcessAreReadFromItsRing(t *testing.T) {
	f := follow(t, maybe.Int{}, 1)
	f.shows(1)
	f.put(2, 3)
	f.shows(1, 2, 3)
	f.send(2, 4)
	f.shows(1, 2, 3, 4)
	f.put(4, 5) // goes round
	f.shows(1, 2, 3, 4, 5)
	f.send(5, 6)
	f.ends(1, 2, 3, 4, 5, 6)
}

// TestWhatDoesNotContinueWaitsForTheAgent: of steps that have left the ring, or are only half written, the
// agent alone knows.
func TestWhatDoesNotContinueWaitsForTheAgent(t *testing.T) {
	f := follow(t, maybe.Int{}, 0)
	f.shows(0)
	time.Sleep(3 * ringEvery) // for a few looks: fewer only test less
	f.ring.count(2)
	f.ring.count(1)
	f.ring.set(f.ring.at(1, 7), 0) // the last word of its row is missing
	f.sync()
	time.Sleep(3 * ringEvery) // for a few looks: fewer only test less
	f.shows(0)
	f.put(1)
	f.shows(0, 1, 2)
	f.send(1, 2)
	f.put(4, 5)               // 3 was lost
	time.Sleep(3 * ringEvery) // for a few looks: fewer only test less
	f.shows(0, 1, 2)
	f.send(4, 4)
	f.shows(0, 1, 2, 4, 5)
	f.send(5, 6)
	f.put(11)                 // over 7, which has not come yet
	time.Sleep(3 * ringEvery) // for a few looks: fewer only test less
	f.shows(0, 1, 2, 4, 5, 6)
	f.send(7, 11)
	f.ends(0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11)
}

// TestAViewerThatTakesOverSkipsWhatTheOneBeforeHadReadEarly: the agent does not know that the ring was read.
func TestAViewerThatTakesOverSkipsWhatTheOneBeforeHadReadEarly(t *testing.T) {
	f := follow(t, maybe.Known(int64(2)), 2) // the agent begins with step 2, which somebody has
	f.send(3, 3)
	f.ends(3)
}

// TestTheViewerLooksIntoTheRingAsLongAsTheAgentMayRest: the agent's own constant says how long that is.
func TestTheViewerLooksIntoTheRingAsLongAsTheAgentMayRest(t *testing.T) {
	source, err := os.ReadFile("agent/send.py")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`LATEST = \d+, \d+, (\d+)`).FindSubmatch(source)
	if found == nil {
		t.Fatal("send.py does not say LATEST")
	}
	latest, _ := strconv.Atoi(string(found[1]))
	if rest := time.Duration(latest) * time.Millisecond; rest >= agentRest || agentRest > 2*rest {
		t.Errorf("the agent rests up to %s, and the viewer looks for %s", rest, agentRest)
	}
}
