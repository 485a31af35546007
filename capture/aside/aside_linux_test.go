//go:build amd64 || arm64

package aside

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guarded runs a shell script in a folder with files that are there already. It returns what the folder holds
// afterwards, the script's output, and the notes.
func guarded(t *testing.T, script string) (files map[string]string, out string, notes []string) {
	t.Helper()
	dir, scratch := t.TempDir(), t.TempDir()
	for _, name := range []string{"a", "b", "c", "d", "sub/e", "sub/e2"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("old "+name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(20 * time.Millisecond) // the file system's clock ticks every few milliseconds
	began := filepath.Join(scratch, "began")
	if err := os.WriteFile(began, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(began)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	g, err := Start(cmd, Options{Scratch: scratch, Began: info.ModTime(),
		Free: []string{filepath.Join(dir, "cache")}})
	if err != nil {
		t.Fatal(err)
	}
	if errors.Is(g.off, unix.ENOSYS) || errors.Is(g.off, unix.EPERM) || errors.Is(g.off, unix.EBUSY) {
		_ = cmd.Wait()
		t.Skip("needs seccomp's user notification: this kernel or container refuses it: ", g.off)
	}
	if g.off != nil {
		t.Error(g.off)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the script: %v", err)
	}
	removed, folders := g.End()
	fmt.Fprintf(&said, "%d files and %d folders removed", removed, folders)
	files = map[string]string{}
	err = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, said.String(), g.Notes()
}

func needPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3: the command is written in it")
	}
}

// What was there stays as it was, though the command sees nothing of that; what it makes goes.
func TestFilesStayAsTheyWere(t *testing.T) {
	files, out, notes := guarded(t, `
		set -e
		echo new > a; echo more >> b; rm c; mv d d2; chmod 777 a; rm -rf sub; mkdir sub; echo f > sub/f
		echo made > made; mkdir -p x/y; echo z > x/y/z; mv x x2; ln -s a link; rm link; ln -s a link
		mkdir cache; echo kept > cache/k
		echo over > made2; mv made2 a
		cat made x2/y/z`)
	want := map[string]string{"a": "old a", "b": "old b", "c": "old c", "d": "old d", "sub/e": "old sub/e",
		"sub/e2": "old sub/e2", "cache/k": "kept\n"}
	if !maps.Equal(files, want) {
		t.Errorf("%v, expected %v", files, want)
	}
	if out != "made\nz\n4 files and 2 folders removed" {
		t.Errorf("it said %q", out)
	}
	const thrown = "libraries or programs wrote to existing files, and what they wrote was thrown away: a, b"
	const left = "libraries or programs tried to remove or rename existing files, which stay as they " +
		"are: c, d, "
	if len(notes) != 2 || notes[0] != thrown || !strings.HasPrefix(notes[1], left) {
		t.Errorf("notes:\n%s", strings.Join(notes, "\n"))
	}
}

// What is written to a file that was there can be read back by the same command, through one copy.
func TestACopyIsWrittenInItsPlace(t *testing.T) {
	needPython(t)
	files, out, _ := guarded(t, `python3 -c "
import sqlite3
for _ in range(2):
    c = sqlite3.connect('d1')
    c.execute('create table if not exists t(a)'); c.execute('insert into t values(1)'); c.commit()
    print(c.execute('select count(*) from t').fetchone())
with open('a', 'r+') as f: print(f.read()); f.write('more'); f.seek(0); print(f.read())
"`)
	if want := "(1,)\n(2,)\nold a\nold amore\n"; !strings.HasPrefix(out, want) {
		t.Errorf("it said %q, expected %q", out, want)
	}
	if files["a"] != "old a" {
		t.Errorf("a holds %q", files["a"])
	}
}

// The command reaches no other machine, and no server that was here already, but its own processes.
func TestConnectionsAreRefused(t *testing.T) {
	needPython(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	_, out, notes := guarded(t, fmt.Sprintf(`python3 -c "
import socket
for a in ('192.0.2.1', 80), ('127.0.0.1', %d):
    try: socket.create_connection(a, 2)
    except OSError as e: print(e.strerror)
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
socket.create_connection(s.getsockname(), 2); print('its own')
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: u.sendto(b'x', ('192.0.2.1', 9))
except OSError as e: print(e.strerror)
try: print(u.sendmsg([b'x'], (), 0, ('198.51.100.2', 9)))
except OSError as e: print(e.strerror)
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
class Message(ctypes.Structure):
    _fields_ = [('name', ctypes.c_void_p), ('length', ctypes.c_uint32), ('parts', ctypes.c_void_p),
        ('n', ctypes.c_size_t), ('control', ctypes.c_void_p), ('m', ctypes.c_size_t), ('flags', ctypes.c_int),
        ('sent', ctypes.c_uint64)]
to = struct.pack('=HH', 2, socket.htons(9)) + bytes((198, 51, 100, 3)) + bytes(8)
to = ctypes.create_string_buffer(to)
two = (Message * 2)(Message(), Message(ctypes.addressof(to), 16))
u.connect(s.getsockname())
print(libc.sendmmsg(u.fileno(), two, 2, 0), os.strerror(ctypes.get_errno()))
print(libc.syscall(425, 8, ctypes.create_string_buffer(120)), os.strerror(ctypes.get_errno()))
u.sendmsg([b'x'], (), 0, s.getsockname()); print('to its own')
"`, server.Addr().(*net.TCPAddr).Port))
	want := "Network is unreachable\nConnection refused\nits own\nNetwork is unreachable\n" +
		"Network is unreachable\n-1 Network is unreachable\n-1 Function not implemented\nto its own\n"
	if !strings.HasPrefix(out, want) {
		t.Errorf("it said %q, expected %q", out, want)
	}
	if want := []string{"connections were refused, since an estimate uses no network: 192.0.2.1, " +
		server.Addr().String() + ", 198.51.100.2, 198.51.100.3"}; !slices.Equal(notes, want) {
		t.Errorf("notes: %q", notes)
	}
}
