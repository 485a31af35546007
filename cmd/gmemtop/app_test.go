package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/capture/usdt"
	"github.com/gmemtop/gmemtop/traces"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("disk full"), 1},
		{usageError{errors.New("no such flag")}, 2},
		{fmt.Errorf("wrapped: %w", usageError{errors.New("no such flag")}), 2},
		{errFinding, 3},
		{&traces.FormatError{Format: "x", Reason: "cut"}, 4},
		{fmt.Errorf("f: %w", &traces.FormatError{Format: "x", Err: fs.ErrPermission}), 4},
		{fmt.Errorf("f: %w", traces.ErrUnsupported), 5},
		{&fs.PathError{Op: "open", Path: "f", Err: fs.ErrPermission}, 5},
		{fmt.Errorf("f: %w", context.Canceled), 130},
		{&inject.Error{Kind: inject.ErrNotPermitted}, 5},
		{fmt.Errorf("p: %w", &inject.Error{Kind: inject.ErrUnsupported}), 5},
		{&inject.Error{Kind: inject.ErrGone}, 1},
		{&inject.Error{Kind: inject.ErrNotPython}, 1},
		{&inject.Error{Kind: inject.ErrBusy}, 1},
		{&inject.Error{Kind: inject.ErrReused}, 1},
		{fmt.Errorf("p: %w", pytorch.ErrWatched), 1},
		{fmt.Errorf("p: %w", pytorch.ErrVersion), 1},
		{refusedProbes(fmt.Errorf("p: %w", usdt.ErrPermission)), 5},
		{refusedProbes(fmt.Errorf("p: %w", usdt.ErrUnsupported)), 5},
		{refusedProbes(fmt.Errorf("p: %w", usdt.ErrNoProbes)), 5},
		{refusedProbes(fmt.Errorf("p: %w", usdt.ErrNoProcess)), 1},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestACancelledCommandEndsWith130AndSaysNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	path := filepath.Join(dir, "run.json")
	run, err := newTraining([]string{"steps=30"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, run.json(), 0o666); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "streams"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, args := range [][]string{{"stats", path}, {"oom", path}, {"diff", path, path}, {"export", path, "-o",
		filepath.Join(dir, "x.html")}, {"replay", path}} {
		if code := newApp(file, file, file, nil).execute(ctx, args); code != exitInterrupted {
			t.Errorf("%s: exit code %d", args[0], code)
		}
	}
	if b, _ := os.ReadFile(file.Name()); len(b) > 0 {
		t.Errorf("printed %q", b)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".x*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestProgressComesLateAndSparselyAndGoesAway(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(0, 0)
	p := &progress{w: &b, begun: now, now: func() time.Time { return now }}
	p.tell("reading", 10, 100)
	if b.Len() > 0 {
		t.Errorf("after no time: %q", b.String())
	}
	now = now.Add(quietFor)
	p.tell("reading", 50, 100)
	p.tell("reading", 51, 100)
	now = now.Add(redrawEvery)
	p.tell("matching", 5, 0)
	p.done()
	p.done()
	if want := "\r\x1b[Kreading 50 %\r\x1b[Kmatching 5 B\r\x1b[K"; b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}

func TestAFileAppearsOnlyWhenItIsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	a := &app{}
	failed := errors.New("half way")
	err := a.writeTo(path, false, func(w io.Writer) error {
		io.WriteString(w, strings.Repeat("x", 1<<20))
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if err := a.writeTo(path, false, func(w io.Writer) error { _, err := io.WriteString(w, "whole"); return err }); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "whole" {
		t.Errorf("got %q", b)
	}
	if info, _ := os.Stat(path); info.Mode().Perm()&0o400 == 0 || info.Mode().Perm() == 0o600 && umask() == 0o22 {
		t.Errorf("mode %v is a temporary file's", info.Mode())
	}
}

func TestWhatIsNoFileIsWrittenIntoAndNotReplaced(t *testing.T) {
	dir := t.TempDir()
	whole, link := filepath.Join(dir, "whole"), filepath.Join(dir, "link")
	if err := os.WriteFile(whole, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("whole", link); err != nil {
		t.Skipf("needs symbolic links: %v", err)
	}
	a := newApp(nil, nil, nil, nil)
	a.flags.force = true
	hello := func(w io.Writer) error {
		_, err := io.WriteString(w, "hello")
		return err
	}
	if err := a.writeTo(link, false, hello); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link is now %v, %v", info, err)
	}
	if b, _ := os.ReadFile(whole); string(b) != "hello" {
		t.Errorf("the file behind the link holds %q", b)
	}
	pipe := namedPipe(t, dir)
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // both ways, so that opening waits for nobody
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := a.writeTo(pipe, false, hello); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Fatalf("the pipe is now %v, %v", info, err)
	}
	if err := reader.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, len("hello"))
	if _, err := io.ReadFull(reader, text); err != nil || string(text) != "hello" {
		t.Errorf("the pipe's reader got %q, %v", text, err)
	}
}

// namedPipe makes a named pipe with the system's own tool, which spares this test a file a system.
func namedPipe(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "pipe")
	if out, err := exec.Command("mkfifo", path).CombinedOutput(); err != nil {
		t.Skipf("needs mkfifo: %v %s", err, out)
	}
	return path
}

func TestNamesOfFilesDoNotDriveTheTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	a := newApp(file, file, file, nil)
	evil := "a\x1b[31m\nb\u202e"
	a.note("%s is written", evil)
	if code := a.execute(t.Context(), []string{"stats", evil}); code != exitFailure {
		t.Errorf("a missing file: exit code %d", code)
	}
	p := &progress{w: file, now: time.Now, begun: time.Now().Add(-time.Hour)}
	p.tell("reading "+evil, 1, 2)
	b, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(b), "\r\x1b[K", "") // the progress line's own
	if strings.ContainsAny(text, "\x1b\u202e") || strings.Count(text, "\n") != 2 || strings.Count(text, "[31m") != 3 {
		t.Errorf("printed %q", text)
	}
}

func TestEveryCommandHasHelpAndAnExampleThatNamesIt(t *testing.T) {
	root := newRootCommand(newApp(nil, nil, nil, nil))
	for _, c := range root.Commands() {
		if c.Short == "" || c.GroupID == "" && c.Name() != "help" {
			t.Errorf("%s has no short help or group", c.Name())
		}
		if c.Example != "" && !strings.Contains(c.Example, "gmemtop "+c.Name()) {
			t.Errorf("%s's example does not use it", c.Name())
		}
	}
}
