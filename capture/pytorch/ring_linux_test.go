package pytorch

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// inMemoryFile returns a file without a name, as an agent makes it.
func inMemoryFile(t *testing.T, b aRing) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "ring")
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return f
}

// sendWithFile writes to a connection, and passes a descriptor of the file if there is one. It closes that.
func sendWithFile(t *testing.T, conn *net.UnixConn, b []byte, f *os.File) {
	t.Helper()
	var rights []byte
	if f != nil {
		defer f.Close()
		rights = unix.UnixRights(int(f.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix(b, rights, nil); err != nil {
		t.Fatal(err)
	}
}

// aPipe returns something that cannot be read without waiting.
func aPipe(t *testing.T, _ aRing) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return r
}

// TestOnlySmallFilesInMemoryAreRings: reading anything else could wait, or never end.
func TestOnlySmallFilesInMemoryAreRings(t *testing.T) {
	small, large := inMemoryFile(t, newRing(0)), inMemoryFile(t, nil)
	if err := large.Truncate(maxRing + 1); err != nil {
		t.Fatal(err)
	}
	other, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for f, want := range map[*os.File]bool{small: true, large: false, other: false, aPipe(t, nil): false} {
		if got := inMemory(int(f.Fd())); got != want {
			t.Errorf("%s: %t", f.Name(), got)
		}
		_ = f.Close()
	}
}

// descriptors returns how many files this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// killed returns a session with a process that passes a file with its hello and has ended, and the connection
// on which it sent more before. done closes what is left.
func killed(t *testing.T, file *os.File) (s *Session, conn net.Conn, done func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "gm")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(dir + "/x.sock")
	if err != nil {
		t.Fatal(err)
	}
	if conn, err = net.Dial("unix", l.Path()); err != nil {
		t.Fatal(err)
	}
	sendWithFile(t, conn.(*net.UnixConn), raw(frameHello, aHello), file)
	if s, err = l.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.info.PID, s.info.Started = 1<<30, 1 // no process has this number
	return s, conn, func() {
		_ = l.Close()
		_ = os.RemoveAll(dir)
	}
}

// TestWhatAKilledViewerHadReceivedIsReadFromTheRing: a process has sent steps 1 and 2 to a viewer that was
// killed before it passed them on. The next viewer, which knows that somebody has step 0, gets step 3 and
// finds the two in the ring. One that knows nothing of the kind leaves the ring alone.
func TestWhatAKilledViewerHadReceivedIsReadFromTheRing(t *testing.T) {
	for _, c := range []struct {
		what     string
		received maybe.Int
		sends    string // the step that the process sends
		want     []int64
	}{
		{"a viewer that takes over", maybe.Known(int64(0)), strings.Replace(aStep, "[[0,", "[[3,", 1),
			[]int64{1, 2, 3}},
		{"one that begins", maybe.Int{}, strings.Replace(aStep, "[[0,", "[[3,", 1), []int64{3}},
		{"the process is killed before it sends any", maybe.Known(int64(0)), "", []int64{1, 2}},
		{"the ring was written over", maybe.Known(int64(0)), strings.Replace(aStep, "[[0,", "[[9,", 1),
			[]int64{1, 2, 9}},
	} {
		b := newRing(3)
		for i := range int64(3) {
			b.count(i)
		}
		s, conn, done := killed(t, inMemoryFile(t, b))
		s.received = c.received
		if c.sends != "" {
			if _, err := conn.Write(raw(frameSteps, c.sends)); err != nil {
				t.Fatal(err)
			}
		}
		_ = conn.Close()
		seen := capture.NewHistory(capture.Limits{})
		if err := s.Run(t.Context(), seen); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		done()
		var got []int64
		for _, x := range seen.Snapshot().Steps {
			got = append(got, x.Index)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: steps %v, want %v", c.what, got, c.want)
		}
	}
}

// TestAKilledProcessLeavesItsRing sends the ring with the hello, then one step of three, and hangs up: as the
// kernel does for a process that it kills.
func TestAKilledProcessLeavesItsRing(t *testing.T) {
	for _, c := range []struct {
		what      string
		sends     func(t *testing.T, b aRing) *os.File
		steps     int
		recovered maybe.Int
		notice    string
		kept      int // files that the test itself keeps
	}{
		{"a ring", inMemoryFile, 3, maybe.Known(int64(2)), "found in memory: 2", 0},
		{"no ring", func(*testing.T, aRing) *os.File { return nil }, 1, maybe.Int{}, "", 0},
		{"a pipe", aPipe, 1, maybe.Int{}, "", 1},
		{"something that is no ring", func(t *testing.T, b aRing) *os.File { return inMemoryFile(t, b[:40]) },
			1, maybe.Int{}, "", 0},
	} {
		before := descriptors(t)
		b := newRing(0)
		b.count(0)
		b.count(1)
		b.count(2)
		file := c.sends(t, b)
		s, conn, done := killed(t, file)
		if _, err := conn.Write(raw(frameSteps, aStep)); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		seen := capture.NewHistory(capture.Limits{})
		if err := s.Run(context.Background(), seen); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		v := seen.Snapshot()
		notices := ""
		for _, n := range v.Notices {
			notices += n.Text
		}
		if len(v.Steps) != c.steps || v.End.Recovered != c.recovered || !v.Ended ||
			!strings.Contains(notices, c.notice) {
			t.Errorf("%s: %d steps, end %+v, notices %q", c.what, len(v.Steps), v.End, notices)
		}
		done()
		if n := descriptors(t); n > before+c.kept {
			t.Errorf("%s: %d files are left open", c.what, n-before)
		}
	}
}
