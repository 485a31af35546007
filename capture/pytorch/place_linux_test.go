package pytorch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/torchtest"
)

const nobody = 65534

// stranger is a process of another user in its own mount namespace, with a private /tmp if asked for. It
// connects to the given socket, says hello, and prints the answer.
type stranger struct {
	pid   int
	in    io.WriteCloser
	lines *bufio.Scanner
}

func aStranger(t *testing.T, ownFiles bool) stranger {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a mount namespace and a process of another user")
	}
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip("needs a Python below /usr: any user may run that")
	}
	const script = `
import os, socket, struct, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(line.strip())
        hello = sys.argv[1].encode()
        s.sendall(struct.pack("<IB", len(hello) + 1, 1) + hello)
        print("answered", s.recv(5)[4], flush=True)
    except OSError as e:
        print(e, flush=True)
`
	mount := "true"
	if ownFiles {
		mount = "mount -t tmpfs none /tmp"
	}
	cmd := exec.Command("sh", "-c", mount+` && exec "$@"`, "sh", python, "-I", "-c", script, aHello)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if ownFiles {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		cmd.Args[2] = "mount --make-rprivate / && " + cmd.Args[2]
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) {
		t.Skip("needs root: it makes a mount namespace and a process of another user")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	s := stranger{pid: cmd.Process.Pid, in: in, lines: bufio.NewScanner(out)}
	if !s.lines.Scan() || !strings.HasPrefix(s.lines.Text(), "ready ") {
		t.Fatalf("the other process says %q", s.lines.Text())
	}
	return s
}

func (s stranger) connect(path string) string {
	fmt.Fprintln(s.in, path)
	s.lines.Scan()
	return s.lines.Text()
}

func TestAgentsOfOtherUsersAndInContainersConnect(t *testing.T) {
	for _, ownFiles := range []bool{false, true} {
		t.Run(map[bool]string{false: "another user", true: "a container"}[ownFiles], func(t *testing.T) {
			folder(t)
			s := aStranger(t, ownFiles)
			at, err := placeFor(s.pid)
			if err != nil {
				t.Fatal(err)
			}
			l, err := at.listen("x.sock")
			if err != nil {
				t.Fatal(err)
			}
			if got := s.connect(filepath.Join(at.there, "x.sock")); got != "answered 64" {
				t.Errorf("a process that connects gets %q", got)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if session, err := l.Accept(ctx); err != nil || session.Info().PID != s.pid {
				t.Errorf("%v, %v", session, err)
			}
			info, err := os.Lstat(filepath.Join(at.here, "x.sock"))
			if err != nil || owner(info) != nobody || info.Mode().Perm() != 0o600 {
				t.Errorf("the socket: %v, %v", info, err)
			}
			if _, err := at.listen("x.sock"); !errors.Is(err, ErrWatched) {
				t.Errorf("a second viewer: %v", err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(rootOf(s.pid) + at.there); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is left behind: %v", err)
			}
			if ownFiles {
				if _, err := os.Lstat(at.there); err == nil {
					t.Errorf("%s was made here", at.there)
				}
			}
		})
	}
}

func TestAnotherUsersAgentCannotGainAccess(t *testing.T) {
	folder(t)
	s := aStranger(t, true)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	at, err := placeFor(s.pid)
	if err != nil {
		t.Fatal(err)
	}
	defer at.leave()
	ours := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(ours, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	stat, err := statOf(s.pid)
	if err != nil {
		t.Fatal(err)
	}
	// At the socket's path there is a file of ours, in a folder of ours or, through a link, in theirs.
	if err := os.Symlink(ours, filepath.Join(at.here, "link.sock")); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{ours, "/tmp/../" + ours, "precious",
		filepath.Join(at.there, "link.sock")} {
		b, _ := json.Marshal(marker{Version: protocolVersion, PID: s.pid, Start: stat.Started,
			Socket: socket})
		if err := asUser(nobody, nobody, func() error {
			return os.WriteFile(filepath.Join(at.here, strconv.Itoa(s.pid)+".json"), b, 0o600)
		}); err != nil {
			t.Fatal(err)
		}
		short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		_, err := Connect(short, s.pid)
		stop()
		if err == nil {
			t.Errorf("%s: connected", socket)
		}
		if _, err := os.Stat(ours); err != nil {
			t.Errorf("%s: %v", socket, err)
		}
	}
}

func TestAFolderOfTheWrongUserIsRefused(t *testing.T) {
	dir := folder(t)
	if _, err := placeAt(os.Getpid(), dir, false); err != nil {
		t.Errorf("our own: %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := placeAt(os.Getpid(), dir, false); err == nil || !strings.Contains(err.Error(), "only user") {
		t.Errorf("one that others can enter: %v", err)
	}
	if _, err := placeAt(os.Getpid(), "relative", true); err == nil {
		t.Error("one without a root")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: it gives a folder away")
	}
	if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	if _, err := placeAt(os.Getpid(), dir, true); err == nil ||
		!strings.Contains(err.Error(), "only user 0") {
		t.Errorf("one of another user: %v", err)
	}
}

func TestALockedFolderDoesNotBlockForever(t *testing.T) {
	t.Parallel()
	dir := torchtest.Folder(t)
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	listens := make(chan error, 1)
	go func() {
		l, err := Listen(filepath.Join(dir, "x.sock"))
		if err == nil {
			err = l.Close()
		}
		listens <- err
	}()
	select {
	case err := <-listens:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(torchtest.Patience(t)):
		t.Fatal("it waits for the process that locked the folder")
	}
}
