package inject

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the expected findings")

// TestFindings reads machines from testdata/check: the files of a made-up /proc, what the kernel answers, and
// the findings expected of process 42. A file's text "-> x" makes a symbolic link.
func TestFindings(t *testing.T) {
	files, err := filepath.Glob("testdata/check/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			proc := t.TempDir()
			sys := system{proc: proc, arch: "amd64",
				access: func(int, uint64) error { return nil },
				alive:  func(int) error { return syscall.ESRCH },
				memory: func(int) io.ReaderAt { return bytes.NewReader(nil) },
				gdb:    func() error { return nil },
			}
			for line := range strings.Lines(string(a.Comment)) {
				switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
				case "access":
					sys.access = func(int, uint64) error { return syscall.EPERM }
				case "hidden":
					sys.alive = func(int) error { return syscall.EPERM }
				case "arch":
					sys.arch = value
				}
			}
			want := -1
			for i, f := range a.Files {
				if f.Name == "want" {
					want = i
					continue
				}
				path := filepath.Join(proc, f.Name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if to, ok := strings.CutPrefix(string(f.Data), "-> "); ok {
					err = os.Symlink(strings.TrimSpace(to), path)
				} else {
					data := string(f.Data)
					if strings.Contains(data, `\x`) { // an ELF header
						if data, err = strconv.Unquote(`"` + strings.TrimSpace(data) + `"`); err != nil {
							t.Fatal(err)
						}
					}
					err = os.WriteFile(path, []byte(data), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			_, f := examine(sys, 42)
			got := show(f)
			if *update {
				a.Files[want].Data = []byte(got)
				if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(a.Files[want].Data) {
				t.Errorf("found\n%s\nwant\n%s", got, a.Files[want].Data)
			}
		})
	}
}

func show(f Findings) string {
	var s strings.Builder
	for _, o := range f.Obstacles {
		fmt.Fprintf(&s, "%v, refused %v\n  %v\n", o.Kind, o.Refused(), o)
	}
	for _, w := range f.Ways {
		if w.Obstacle != nil {
			fmt.Fprintf(&s, "%s: %v\n", w.Mechanism, w.Obstacle)
		} else {
			fmt.Fprintf(&s, "%s: available\n", w.Mechanism)
		}
	}
	for _, n := range f.Notes {
		fmt.Fprintf(&s, "note: %s\n", n)
	}
	return s.String()
}

func TestErrorsWrapTheirKindAndCause(t *testing.T) {
	err := error(&Error{Kind: ErrNotPermitted, PID: 7, Message: "no", Fix: "ask", Err: syscall.EPERM})
	var e *Error
	if !errors.Is(err, ErrNotPermitted) || !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrGone) ||
		!errors.As(err, &e) || !e.Refused() {
		t.Errorf("%v", err)
	}
	if err.Error() != "process 7: no: ask" {
		t.Errorf("%q", err)
	}
	if gone(7).Refused() {
		t.Error("a process that has ended counts as a refusal")
	}
}
