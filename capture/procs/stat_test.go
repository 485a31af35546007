package procs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

func TestTheLineOfAProcess(t *testing.T) {
	want := Stat{State: 'S', Parent: 1, Group: 40, Session: 41, Started: 777, Pages: 250}
	line := "42 (py) thon) S 1 40 41 0 -1 4194304 100 0 0 0 5 1 0 0 20 0 1 0 777 1000 250 1\n"
	if s, err := parseStat([]byte(line)); s != want || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "42", "42 (py", "42 (py)", "42 (py) S 1 40 41 0 -1",
		")" + strings.Repeat(" no", 30), strings.Replace(line, "777", "soon", 1),
		strings.Replace(line, " S ", " SS ", 1)} {
		if s, err := parseStat([]byte(bad)); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q was parsed as %+v, %v", bad, s, err)
		}
	}
}

func TestOurOwnLine(t *testing.T) {
	s, err := ReadStat("/proc/self")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("needs /proc: processes are read from it")
	}
	if err != nil || s.Parent != os.Getppid() || s.Started <= 0 || s.Pages <= 0 || s.Ended() {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestResidentMemoryIsOfTheProcessThatWasMeant(t *testing.T) {
	s, err := ReadStat("/proc/self")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("needs /proc: processes are read from it")
	}
	for _, c := range []struct {
		started int64
		known   bool
	}{{0, true}, {s.Started, true}, {s.Started + 1, false}} {
		if n, ok := Resident(os.Getpid(), c.started); ok != c.known || ok != (n > 0) {
			t.Errorf("started %d: %d, %v", c.started, n, ok)
		}
		if old, ok := Age(os.Getpid(), c.started); ok != c.known || ok != (old > 0) {
			t.Errorf("started %d: %s old, %v", c.started, old, ok)
		}
	}
	if n, ok := Resident(1<<30, 0); ok {
		t.Errorf("a process that is not there holds %d bytes, %v", n, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (py) thon) S 1 42 42 0 -1 4194304 100 0 0 0 5 1 0 0 20 0 1 0 777 1000 1\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if s, err := parseStat(line); err == nil && s.State == 0 {
			t.Errorf("%q has no state", line)
		}
	})
}
