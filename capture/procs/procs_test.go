package procs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// fakeProc writes a proc file system: the files of each process, by its number.
func fakeProc(t *testing.T, of map[string]map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for pid, files := range of {
		if err := os.MkdirAll(filepath.Join(root, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(root, pid, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(root, "uptime"), []byte("1000.50 3000.00\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

func stat(pid, name, started string) string {
	return pid + " (" + name + ") S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 5 0 " + started +
		" 9999 250 18446744073709551615 1 1\n"
}

const torchMap = "7f00-7f01 r-xp 0000 08:01 99 " +
	"/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so\n"

func TestOnlyProcessesWithTorchAreListed(t *testing.T) {
	root := fakeProc(t, map[string]map[string]string{
		"10": {"stat": stat("10", "python", "90000"), "cmdline": "python\x00train.py\x00", "maps": torchMap},
		"11": {"stat": stat("11", "a) S (b", "95000"), "cmdline": "python\x00tool.py\x00",
			"maps": "7f00-7f01 r-xp 0000 08:01 99 /lib/libc.so\n"},
		"12": {"stat": stat("12", "kworker", "1"), "cmdline": "", "maps": ""},
		"13": {"stat": "nonsense"},
		"99": {},
	})
	l := Lister{Root: root}
	list, err := l.Torch(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	p := list[0]
	if p.PID != 10 || p.Started != 90000 || p.Parent != 1 || p.Command() != "python train.py" ||
		p.RSS != 250*int64(os.Getpagesize()) || p.Age.Seconds() != 100.5 {
		t.Errorf("%+v, age %v", p, p.Age)
	}
	q, err := l.Look(11)
	if err != nil || q.Torch || !q.Known || q.Started != 95000 {
		t.Errorf("a name with parentheses: %+v, %v", q, err)
	}
}

func TestAProcessThatLoadsTorchLateIsFound(t *testing.T) {
	root := fakeProc(t, map[string]map[string]string{"10": {"stat": stat("10", "python", "1"),
		"cmdline": "python\x00a.py\x00", "maps": "nothing\n"}})
	l := Lister{Root: root}
	if list, _ := l.Torch(t.Context()); len(list) != 0 {
		t.Fatalf("%+v", list)
	}
	if err := os.WriteFile(filepath.Join(root, "10", "maps"), []byte(torchMap), 0o644); err != nil {
		t.Fatal(err)
	}
	if list, _ := l.Torch(t.Context()); len(list) != 1 {
		t.Errorf("%+v", list)
	}
}

func TestAReusedNumberIsAnotherProcess(t *testing.T) {
	root := fakeProc(t, map[string]map[string]string{"10": {"stat": stat("10", "python", "1"),
		"cmdline": "python\x00a.py\x00", "maps": torchMap}})
	l := Lister{Root: root}
	if list, _ := l.Torch(t.Context()); len(list) != 1 {
		t.Fatal("not found")
	}
	for name, text := range map[string]string{"stat": stat("10", "sh", "500"), "cmdline": "sh\x00",
		"maps": "nothing\n"} {
		if err := os.WriteFile(filepath.Join(root, "10", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if list, _ := l.Torch(t.Context()); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: processes are read from /proc")
	}
	// ages are in hundredths of a second, and this process may still be in its first
	time.Sleep(20 * time.Millisecond)
	var l Lister
	p, err := l.Look(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if p.UID != maybe.Known(int64(os.Getuid())) || p.Torch || !p.Known || p.Parent != os.Getppid() ||
		p.RSS < 1<<20 ||
		!strings.Contains(p.Command(), "procs") || p.Age <= 0 {
		t.Errorf("%+v", p)
	}
	if s := State(os.Getpid()); !strings.ContainsRune("RSD", rune(s)) {
		t.Errorf("its state is %q", s)
	}
	if _, err := l.Look(1 << 30); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pid that does not exist: %v", err)
	}
	if s := State(1 << 30); s != 0 {
		t.Errorf("the state of a pid that does not exist is %q", s)
	}
}
