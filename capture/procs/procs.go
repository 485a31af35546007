// Package procs lists the processes of this machine that can be watched: those that have torch loaded, and
// any whose number is given.
//
// It only reads /proc and touches no process. It cannot read what another user's process has loaded; such a
// process is listed if its command line names Python, with Torch unknown.
package procs

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Process is one process as /proc shows it.
type Process struct {
	PID int
	// Started is the kernel's start time in clock ticks since boot: PID and Started together name one process
	// for good.
	Started int64
	Parent  int
	// UID is the number of the user, User the name, or the number where it has none; unknown and "" where
	// /proc does not say.
	UID  maybe.Int
	User string
	Argv []string
	// Torch says that torch's library is mapped; Known is false if the maps cannot be read.
	Torch, Known bool
	// RSS is resident memory in bytes, Age how long the process has run.
	RSS int64
	Age time.Duration
}

// Command returns the command line as one line of text.
func (p *Process) Command() string { return strings.Join(p.Argv, " ") }

// Lister lists processes. It remembers what it found about each, so that listing again is cheap. It is not
// safe for concurrent use.
type Lister struct {
	// Root is the proc file system, "" for /proc.
	Root  string
	known map[int]*Process
	users map[int64]string
}

// ErrNotLinux is returned if there is no /proc.
var ErrNotLinux = errors.New("processes are listed from /proc, which only Linux has")

// Torch returns the processes that have torch loaded, or may have it, by number. An empty list is no error.
func (l *Lister) Torch(ctx context.Context) ([]Process, error) {
	root := cmp.Or(l.Root, "/proc")
	entries, err := os.ReadDir(root)
	if err != nil {
		if runtime.GOOS != "linux" {
			return nil, ErrNotLinux
		}
		return nil, fmt.Errorf("list processes: %w", err)
	}
	found := map[int]*Process{}
	var list []Process
	for _, e := range entries {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		p, err := l.Look(pid)
		if err != nil { // it ended, or belongs to another user
			continue
		}
		found[pid] = p
		if p.Torch || !p.Known && isPython(p.Argv) {
			list = append(list, *p)
		}
	}
	l.known = found
	slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return list, nil
}

// Look returns what is known about one process. The error wraps fs.ErrNotExist if there is no such process.
func (l *Lister) Look(pid int) (*Process, error) {
	dir := filepath.Join(cmp.Or(l.Root, "/proc"), strconv.Itoa(pid))
	s, err := ReadStat(dir)
	if err != nil {
		return nil, err
	}
	p := l.known[pid]
	if p == nil || p.Started != s.Started {
		p = &Process{PID: pid, Started: s.Started, Parent: s.Parent}
	}
	p.RSS, p.Age = s.Pages*int64(os.Getpagesize()), age(cmp.Or(l.Root, "/proc"), s.Started)
	// A process may execute another program, or load torch late: look again until torch is there.
	if !p.Torch {
		p.Argv = readArgv(dir)
		p.UID = owner(dir)
		p.User = l.name(p.UID)
		p.Torch, p.Known = mapsTorch(dir, p.Argv)
	}
	return p, nil
}

// name returns a user's name, or the number if it has none here, "" for an unknown one.
func (l *Lister) name(of maybe.Int) string {
	uid, known := of.Value()
	if !known {
		return ""
	}
	if n, ok := l.users[uid]; ok {
		return n
	}
	n := strconv.FormatInt(uid, 10)
	if u, err := user.LookupId(n); err == nil {
		n = u.Username
	}
	if l.users == nil {
		l.users = map[int64]string{}
	}
	l.users[uid] = n
	return n
}

// ticks is the kernel's USER_HZ, which is 100 on every architecture that Go runs Linux on.
const ticks = 100

func age(root string, started int64) time.Duration {
	b, err := os.ReadFile(filepath.Join(root, "uptime"))
	if err != nil {
		return 0
	}
	word, _, _ := strings.Cut(string(b), " ")
	up, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
	if err != nil {
		return 0
	}
	return max(time.Duration((up-float64(started)/ticks)*float64(time.Second)), 0)
}

func readArgv(dir string) []string {
	b, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
}

func isPython(argv []string) bool {
	return len(argv) > 0 && strings.HasPrefix(filepath.Base(argv[0]), "python")
}

// mapsTorch reports whether torch's Python library is mapped; known is false if the maps cannot be read.
// Kernel threads have no command line and are skipped.
func mapsTorch(dir string, argv []string) (torch, known bool) {
	if len(argv) == 0 {
		return false, true
	}
	f, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return false, false
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(make([]byte, 0, 4096), 1<<16)
	for in.Scan() {
		if bytes.Contains(in.Bytes(), []byte("/libtorch_python.")) {
			return true, true
		}
	}
	return false, in.Err() == nil
}

// State returns the state of a process as the kernel's letter for it, 0 if there is none.
func State(pid int) byte {
	s, _ := ReadStat(filepath.Join("/proc", strconv.Itoa(pid)))
	return s.State
}
