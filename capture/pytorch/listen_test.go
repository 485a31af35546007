package pytorch

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// folder gives the test a folder of its own for sockets.
func folder(t *testing.T) string {
	t.Helper()
	base := torchtest.Folder(t)
	t.Setenv("XDG_RUNTIME_DIR", base)
	dir, err := Folder()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func dial(t *testing.T, path string, frames ...[]byte) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for _, f := range frames {
		_, _ = conn.Write(f)
	}
	return conn
}

func TestAListenerDistinguishesAgentsVersionsAndViewers(t *testing.T) {
	path := filepath.Join(folder(t), "x.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode: %v %v", info.Mode(), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	dial(t, path, raw(frameHello, strings.Replace(aHello, `"version":2`, `"version":9`, 1)))
	if _, err := l.Accept(ctx); !errors.Is(err, ErrVersion) ||
		!strings.Contains(err.Error(), "speaks version 9 and this program 2") {
		t.Errorf("another version: %v", err)
	}
	dial(t, path,
		raw(frameBye, `{"pid":5,"reason":"refused","detail":"torch is not loaded in this process"}`))
	if _, err := l.Accept(ctx); !errors.Is(err, errRefused) ||
		!strings.Contains(err.Error(), "torch is not loaded") {
		t.Errorf("a refusal: %v", err)
	}
	dial(t, path, []byte("GET / HTTP/1.1\r\n\r\n"))
	if _, err := l.Accept(ctx); err == nil {
		t.Error("a browser was taken for an agent")
	}
	if _, err := Listen(path); !errors.Is(err, ErrWatched) ||
		!strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())+" since ") {
		t.Errorf("a second viewer: %v", err)
	}
	conn := dial(t, path, raw(frameHello, aHello))
	s, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if k, payload, err := readFrame(conn, maxHello); err != nil || k != frameWelcome ||
		string(payload) != `{"version":2}` {
		t.Errorf("%d %s %v", k, payload, err)
	}
	if peer(conn) > 0 && s.Info().PID != os.Getpid() {
		t.Errorf("the agent's number %d overrides the kernel's", s.Info().PID)
	}
	for want, o := range map[string]capture.Order{
		`{"id":8,"do":"describe","steps":3,"saves":true}`: {ID: 8, Do: capture.Describe, Steps: 3,
			Saves: true},
		`{"do":"every","steps":3}`:       {Do: capture.Every, Steps: 3},
		`{"do":"depth","how":"history"}`: {Do: capture.Depth, How: capture.HowHistory},
		`{"id":9,"do":"carry","number":4,"plan":{"version":1}}`: {ID: 9, Do: capture.Carry, Number: 4,
			Plan: []byte(`{"version":1}`)},
	} {
		if err := s.Order(ctx, o); err != nil {
			t.Fatal(err)
		}
		if k, payload, err := readFrame(conn, maxHello); err != nil || k != frameOrder ||
			string(payload) != want {
			t.Errorf("%d %s %v", k, payload, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("the socket is left behind")
	}
}

func TestASocketThatADeadViewerLeftIsReplaced(t *testing.T) {
	path := filepath.Join(folder(t), "x.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := Listen(filepath.Join(filepath.Dir(path), strings.Repeat("long", 40))); err == nil ||
		!strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
		t.Errorf("a path that is too long: %v", err)
	}
}

func TestAFolderThatOthersCanEnterIsRefused(t *testing.T) {
	dir := folder(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Folder(); err == nil || !strings.Contains(err.Error(), "only you can enter") {
		t.Errorf("%v", err)
	}
	_ = os.Remove(dir)
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Folder(); err == nil {
		t.Error("a symbolic link was followed")
	}
}

func TestAMarkerCountsOnlyForTheProcessThatWroteIt(t *testing.T) {
	dir := folder(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	write := func(m marker) {
		b, _ := json.Marshal(m)
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())+".json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Connect(ctx, os.Getpid()); !errors.Is(err, errNoAgent) {
		t.Errorf("no marker: %v", err)
	}
	write(marker{Version: 9, PID: os.Getpid(), Socket: "x"})
	if _, err := Connect(ctx, os.Getpid()); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v", err)
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		write(marker{Version: protocolVersion, PID: os.Getpid(), Start: 1, Socket: "x"})
		if _, err := Connect(ctx, os.Getpid()); !errors.Is(err, errReused) {
			t.Errorf("a reused pid: %v", err)
		}
	}
}
