package procs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Stat is what the kernel says about a process in one line (proc(5), /proc/PID/stat).
type Stat struct {
	State                  byte // 'R' for running, 'Z' for a zombie, 'T' and 't' for stopped, ...
	Parent, Group, Session int
	Started                int64 // in clock ticks since boot
	Pages                  int64 // resident
}

// Ended reports whether the process has ended, reaped or not.
func (s Stat) Ended() bool { return s.State == 'Z' || s.State == 'X' }

// ReadStat reads the line of the process, or the thread, that has the folder dir of the proc file system.
func ReadStat(dir string) (Stat, error) {
	path := filepath.Join(dir, "stat")
	line, err := os.ReadFile(path)
	if err != nil {
		return Stat{}, err
	}
	s, err := parseStat(line)
	if err != nil {
		return Stat{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Resident returns the bytes of a process that are in memory. ok is false if the process has ended, even if
// another one has its number by now; started is in clock ticks since boot, 0 if unknown.
func Resident(pid int, started int64) (int64, bool) {
	s, ok := statOf(pid, started)
	return s.Pages * int64(os.Getpagesize()), ok
}

// Age returns how long a process has run, under the conditions of Resident.
func Age(pid int, started int64) (time.Duration, bool) {
	s, ok := statOf(pid, started)
	if !ok {
		return 0, false
	}
	return age("/proc", s.Started), true
}

func statOf(pid int, started int64) (Stat, bool) {
	s, err := ReadStat(filepath.Join("/proc", strconv.Itoa(pid)))
	if err != nil || s.Ended() || started != 0 && s.Started != started {
		return Stat{}, false
	}
	return s, true
}

// parseStat parses the line. Its errors wrap fs.ErrInvalid. The second field is the program's name in
// parentheses and may hold blanks and parentheses itself, so that fields count from the last parenthesis on.
func parseStat(line []byte) (Stat, error) {
	_, rest, found := bytes.Cut(line[max(0, bytes.LastIndexByte(line, ')')):], []byte(")"))
	fields := bytes.Fields(rest)
	const third = 3 // the number that proc(5) gives to fields[0]
	if !found || len(fields) <= 24-third || len(fields[0]) != 1 {
		return Stat{}, fmt.Errorf("a line of %d fields after the name: %w", len(fields), fs.ErrInvalid)
	}
	s, bad := Stat{State: fields[0][0]}, error(nil)
	number := func(field int) int64 {
		n, err := strconv.ParseInt(string(fields[field-third]), 10, 64)
		if err != nil {
			bad = fmt.Errorf("field %d: %q is not a number: %w", field, fields[field-third], fs.ErrInvalid)
		}
		return n
	}
	s.Parent, s.Group, s.Session = int(number(4)), int(number(5)), int(number(6))
	s.Started, s.Pages = number(22), number(24)
	return s, bad
}
