//go:build !nobus

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// leftBehind is a command whose gmemtop run --join-file was killed, in a session of its own, and the hub.
type leftBehind struct {
	t         *testing.T
	dir, join string
	late      time.Time
}

// until waits until something is done.
func (x *leftBehind) until(what string, done func() bool) {
	x.t.Helper()
	for !done() {
		if time.Now().After(x.late) {
			x.t.Fatalf("gave up waiting until %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// start starts a program that ends with the test.
func (x *leftBehind) start(said *words, argv ...string) *exec.Cmd {
	x.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = x.dir, said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second // one that is killed leaves its output to the one that stands by
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return cmd
}

// has reports whether a file is there.
func (x *leftBehind) has(name string) bool {
	_, err := os.Stat(filepath.Join(x.dir, name))
	return err == nil
}

// put writes an empty file.
func (x *leftBehind) put(name string) {
	x.t.Helper()
	if err := os.WriteFile(filepath.Join(x.dir, name), nil, 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// number waits for the number in a file.
func (x *leftBehind) number(name string) (n int) {
	x.t.Helper()
	x.until(name+" is written", func() bool {
		b, err := os.ReadFile(filepath.Join(x.dir, name))
		if err != nil || !strings.HasSuffix(string(b), "\n") {
			return false
		}
		n, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	return n
}

// newLeftBehind starts the hub.
func newLeftBehind(t *testing.T) *leftBehind {
	t.Helper()
	x := &leftBehind{t: t, dir: t.TempDir(), late: time.Now().Add(torchtest.Patience(t))}
	x.join = filepath.Join(x.dir, "r.join")
	x.start(new(words), "gmemtop", "hub", "--run", "r", "--join-file", x.join)
	x.until("the hub has written its keys", func() bool { return x.has("r.join") })
	return x
}

// leaveBehind starts a hub and a command, kills the gmemtop that watches the command and the one that stands
// by, and goes on with the rest of the shell script that started it.
func leaveBehind(t *testing.T, command, rest string) *leftBehind {
	t.Helper()
	x := newLeftBehind(t)
	script(t, filepath.Join(x.dir, "command"), "touch started\n"+command)
	script(t, filepath.Join(x.dir, "terminal"), "gmemtop run --headless -q --join-file r.join -- "+
		"./command &\necho $! >watching\nwait\n"+rest)
	x.start(new(words), filepath.Join(x.dir, "terminal"))
	pid := x.number("watching")
	x.until("the command runs", func() bool { return x.has("started") })
	x.until("another gmemtop stands by", func() bool {
		next := standBy(t, pid)
		return next > 0 && syscall.Kill(next, syscall.SIGKILL) == nil
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return x
}

// trainsOn trains until it is killed. With torch loaded it writes its process number to the file that its
// argument names.
const trainsOn = `
import os, sys, time, torch
with open(sys.argv[1] + ".part", "w") as f:
    print(os.getpid(), file=f)
os.rename(sys.argv[1] + ".part", sys.argv[1])
w = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
while True:
    optimizer.zero_grad()
    (w - 1).square().sum().backward()
    optimizer.step()
    time.sleep(0.02)
`

// In the terminal of a killed gmemtop, another training is started. The gmemtop that takes over, typed at
// another terminal, leaves it alone, although it attaches to the command's own training, which starts later
// and has lost gmemtop's environment as well.
func TestWhoTakesOverLeavesOtherProgramsOfTheTerminalAlone(t *testing.T) {
	python := torchtest.Python(t)
	for _, o := range inject.Check(os.Getppid()).Obstacles {
		if errors.Is(o, inject.ErrNotPermitted) {
			t.Skip("needs the permission to trace a process of one's own: ", o)
		}
	}
	file := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(file, []byte(trainsOn), 0o600); err != nil {
		t.Fatal(err)
	}
	train := fmt.Sprintf("env -i '%s' '%s' ", python, file)
	x := leaveBehind(t, "until [ -e go ]; do sleep 0.05; done\n"+train+"ours\n", train+"strangers\n")
	var said words
	stranger := x.number("strangers")
	x.start(&said, "gmemtop", "attach", "--join-file", x.join)
	x.until("it is taken over", func() bool { return strings.Contains(said.String(), "again") })
	x.put("go")
	ours := x.number("ours")
	var seen struct{ Ranks []struct{ PID int } }
	x.until("a rank is seen", func() bool {
		out, err := exec.Command("gmemtop", "view", "--json", "--join-file", x.join).Output()
		return err == nil && json.Unmarshal(out, &seen) == nil && len(seen.Ranks) > 0
	})
	if len(seen.Ranks) != 1 || seen.Ranks[0].PID != ours {
		t.Errorf("the command trains as %d, a stranger as %d, and these are ranks: %+v: %s", ours, stranger,
			seen.Ranks, &said)
	}
}

// Two commands are left behind, and somebody has put a folder in place of the socket of one: the other is
// watched until it ends, and the error says which one is not. A signal ends taking over without an error.
func TestACommandThatCannotBeTakenOverLeavesTheOthersAlone(t *testing.T) {
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("needs sleep: a command that is left behind")
	}
	base := torchtest.Folder(t) // a socket's path has to be short
	t.Setenv("XDG_RUNTIME_DIR", base)
	x := newLeftBehind(t)
	gone, stop := context.WithCancel(t.Context())
	stop()
	var commands [2]*pytorch.Job
	for i := range commands {
		j, err := pytorch.Start(pytorch.Launch{Argv: []string{"sleep", "600"},
			Note: fleet.Identity{Node: "rack:7"}.Note(x.join)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Signal(syscall.SIGKILL) })
		_ = j.Run(gone, capture.NewHistory(capture.Limits{})) // as if this gmemtop were killed
		if commands[i] = j; i > 0 {
			continue
		}
		folders, _ := filepath.Glob(filepath.Join(base, "*", "run-*"))
		if len(folders) != 1 {
			t.Fatalf("the folders of the first run: %q", folders)
		}
		if err := os.MkdirAll(filepath.Join(folders[0]+".sock", "in the way"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c := attachCommand{watcher: watcher{app: newApp(os.Stdin, os.Stdout, os.Stderr, nil)}, join: x.join}
	if err := c.attachOrphans(gone); err != nil {
		t.Errorf("a signal makes it fail: %v", err)
	}
	var said words
	attach := x.start(&said, "gmemtop", "attach", "--join-file", x.join)
	x.until("one is watched, and the other is not", func() bool {
		return strings.Contains(said.String(), fmt.Sprintf("process %d: ", commands[0].PID())) &&
			strings.Contains(said.String(), fmt.Sprintf("watching process %d again", commands[1].PID()))
	})
	if err := commands[1].Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := attach.Wait(); err == nil || attach.ProcessState.ExitCode() != 1 ||
		!strings.Contains(said.String(), "1 of 2 commands") {
		t.Errorf("it ended with %v: %s", err, &said)
	}
}
