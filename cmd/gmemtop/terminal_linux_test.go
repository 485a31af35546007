package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// terminal emulates as much of a VT220 as drawing a screen takes. A program runs on it.
type terminal struct {
	t    testing.TB
	host *os.File
	cmd  *exec.Cmd

	mu      sync.Mutex
	cells   [][]rune
	x, y    int
	insert  bool // text moves what it is written over to the right
	top     int  // lines top to bottom scroll
	bottom  int
	rest    []byte // the beginning of an unfinished sequence
	unknown string
	changed chan struct{} // closed and replaced at each change
	over    bool
}

// newTerminal starts a command on a new terminal, which becomes its controlling one. The caller closes it.
func newTerminal(t testing.TB, width, height int, cmd *exec.Cmd) *terminal {
	t.Helper()
	host, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("needs a pseudo-terminal: ", err)
	}
	fd := int(host.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ,
			&unix.Winsize{Row: uint16(height), Col: uint16(width)})
	}
	if err != nil {
		t.Fatal(err)
	}
	guest, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	x := &terminal{t: t, host: host, cmd: cmd, changed: make(chan struct{}), cells: make([][]rune, height),
		bottom: height - 1}
	for y := range x.cells {
		x.cells[y] = []rune(strings.Repeat(" ", width))
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = guest, guest, guest
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go x.read()
	return x
}

// close ends the program and closes its terminal.
func (x *terminal) close() {
	_ = x.cmd.Process.Kill()
	_ = x.cmd.Wait()
	_ = x.host.Close()
}

// quit leaves the program by its own key, and closes its terminal.
func (x *terminal) quit() {
	x.t.Helper()
	if _, err := x.host.WriteString("q"); err != nil {
		x.t.Fatal(err)
	}
	await.Until(x.t, "the program ends", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.over
	})
	x.close()
}

// read draws what the program writes, until the program closes the terminal.
func (x *terminal) read() {
	for b := make([]byte, 64<<10); ; {
		n, err := x.host.Read(b)
		x.mu.Lock()
		x.draw(append(x.rest, b[:n]...))
		x.over = x.over || err != nil
		close(x.changed)
		x.changed = make(chan struct{})
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// until waits until the screen is as wanted, and returns it and when that was.
func (x *terminal) until(what string, wanted func(screen string) bool) (string, time.Time) {
	x.t.Helper()
	for late := time.After(torchtest.Patience(x.t)); ; {
		x.mu.Lock()
		changed, screen, unknown, over := x.changed, x.screen(), x.unknown, x.over
		x.mu.Unlock()
		now := time.Now()
		switch {
		case unknown != "":
			x.t.Fatalf("the terminal does not know %q", unknown)
		case wanted(screen):
			return screen, now
		case over:
			x.t.Fatalf("the program has left the terminal before %s:\n%s", what, screen)
		}
		select {
		case <-changed:
		case <-late:
			x.t.Fatalf("there never is %s:\n%s", what, screen)
		}
	}
}

func (x *terminal) screen() string {
	var b strings.Builder
	for _, row := range x.cells {
		b.WriteString(strings.TrimRight(string(row), " ") + "\n")
	}
	return b.String()
}

// draw carries out text and control sequences (ECMA-48), and keeps an unfinished sequence for the next call.
func (x *terminal) draw(b []byte) {
	for len(b) > 0 {
		n := 1
		switch c := b[0]; {
		case c == 0x1b:
			if n = x.escape(b); n == 0 {
				x.rest = append([]byte(nil), b...)
				return
			}
		case c == '\r':
			x.x = 0
		case c == '\n':
			if x.y == x.bottom {
				x.scroll(x.top, 1)
			} else {
				x.y = min(x.y+1, len(x.cells)-1)
			}
		case c == '\b':
			x.x = max(x.x-1, 0)
		case c == '\t':
			x.x = min(x.x&^7+8, len(x.cells[0])-1)
		case c < ' ':
		case !utf8.FullRune(b):
			x.rest = append([]byte(nil), b...)
			return
		default:
			var r rune
			r, n = utf8.DecodeRune(b)
			if x.y < len(x.cells) && x.x < len(x.cells[x.y]) {
				if x.insert {
					copy(x.cells[x.y][x.x+1:], x.cells[x.y][x.x:])
				}
				x.cells[x.y][x.x] = r
			}
			x.x++
		}
		b = b[n:]
	}
	x.rest = nil
}

// scroll moves the lines from one to the bottom up by n, or down if n is negative.
func (x *terminal) scroll(from, n int) {
	if from > x.bottom {
		return
	}
	lines := x.cells[from : x.bottom+1]
	moved := make([][]rune, len(lines))
	for i := range moved {
		if k := i + n; k >= 0 && k < len(lines) {
			moved[i] = lines[k]
		} else {
			moved[i] = []rune(strings.Repeat(" ", len(lines[0])))
		}
	}
	copy(lines, moved)
}

func blank(row []rune) {
	for i := range row {
		row[i] = ' '
	}
}

// escape carries out the sequence that b begins with and returns its length, 0 if it is unfinished.
func (x *terminal) escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case ']', 'P', '_': // titles and queries
		for i := 2; i < len(b); i++ {
			if b[i] == 7 {
				return i + 1
			}
			if b[i] == 0x1b && i+1 < len(b) {
				return i + 2
			}
		}
		return 0
	case '[':
	case 'M':
		if x.y == x.top {
			x.scroll(x.top, -1)
		} else {
			x.y = max(x.y-1, 0)
		}
		return 2
	default:
		return 2 // keyboard modes
	}
	i := 2
	for i < len(b) && b[i] < 0x40 {
		i++
	}
	if i == len(b) {
		return 0
	}
	words := string(b[2:i])
	if strings.ContainsAny(words, "?<=>$ !") { // modes, and queries that a terminal may ignore
		return i + 1
	}
	var p [2]int
	for k, w := range strings.SplitN(words, ";", 3) {
		if k < len(p) {
			p[k], _ = strconv.Atoi(w)
		}
	}
	row := x.cells[min(x.y, len(x.cells)-1)]
	switch b[i] {
	case 'H':
		x.y, x.x = max(p[0]-1, 0), max(p[1]-1, 0)
	case 'A':
		x.y = max(x.y-max(p[0], 1), 0)
	case 'B':
		x.y = min(x.y+max(p[0], 1), len(x.cells)-1)
	case 'C':
		x.x = min(x.x+max(p[0], 1), len(row)-1)
	case 'D':
		x.x = max(x.x-max(p[0], 1), 0)
	case 'r':
		x.top, x.bottom = max(p[0], 1)-1, len(x.cells)-1
		if p[1] > 0 {
			x.bottom = min(p[1]-1, x.bottom)
		}
		x.x, x.y = 0, 0
	case 'S':
		x.scroll(x.top, max(p[0], 1))
	case 'T':
		x.scroll(x.top, -max(p[0], 1))
	case 'L':
		x.scroll(x.y, -max(p[0], 1))
	case 'M':
		x.scroll(x.y, max(p[0], 1))
	case 'h', 'l':
		if x.insert = p[0] == 4 && b[i] == 'h'; p[0] != 4 {
			x.unknown = string(b[:i+1])
		}
	case 'P':
		at, n := min(x.x, len(row)), max(p[0], 1)
		copy(row[at:], row[min(at+n, len(row)):])
		blank(row[max(len(row)-n, at):])
	case 'K':
		switch at := min(x.x, len(row)); p[0] {
		case 0:
			blank(row[at:])
		case 1:
			blank(row[:at])
		default:
			blank(row)
		}
	case 'J':
		if p[0] != 2 {
			blank(row[min(x.x, len(row)):])
		}
		for y := range x.cells {
			if p[0] == 2 || p[0] == 0 && y > x.y {
				blank(x.cells[y])
			}
		}
	case 'm', 'c', 'n', 't', 'u', 'q': // colours; queries
	default:
		x.unknown = string(b[:i+1])
	}
	return i + 1
}
