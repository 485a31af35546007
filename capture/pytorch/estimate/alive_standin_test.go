//go:build standin

package estimate_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// estimating is set if this test starts itself as a program that estimates a command until it is killed.
const estimating = "GMEMTOP_TEST_ESTIMATING"

func TestMain(m *testing.M) {
	if argv := os.Getenv(estimating); argv != "" {
		_, err := estimate.RunReal(context.Background(), estimate.RealOptions{Options: estimate.Options{
			Argv: strings.Split(argv, "\n"), Stdout: os.Stdout, Stderr: os.Stderr}})
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A launcher's children are not children of the estimating process, but they end with it too: each opens a
// named pipe for writing, and its reader notices when the last of them is gone.
func TestRealProcessesEndWithTheOneThatEstimates(t *testing.T) {
	standintest.Library(t)
	dir := t.TempDir()
	pipe, script := filepath.Join(dir, "pipe"), filepath.Join(dir, "train.py")
	text := "import os, time, torch\np = open(" + strconv.Quote(pipe) + ", 'w')\n" +
		"p.write('rank %s\\n' % os.environ['RANK']); p.flush()\n" +
		"while True: time.sleep(1)\n"
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600),
		os.WriteFile(script, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	argv := []string{standintest.Interpreter(t), "-m", "torch.distributed.run", "--standalone",
		"--nproc-per-node", "2", script}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), estimating+"="+strings.Join(argv, "\n"), "TMPDIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	lines := bufio.NewScanner(r)
	for range 2 {
		if !lines.Scan() {
			t.Fatal("a rank did not begin")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for lines.Scan() { // until nobody has the pipe open for writing
		t.Errorf("after the end: %s", lines.Text())
	}
	// The launcher may be the last to go.
	left, err := filepath.Glob(filepath.Join(dir, "gmemtop-estimate-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A slow command reports its progress: the script continues once the report has arrived.
func TestRealTellsWhereTheScriptIs(t *testing.T) {
	dir := t.TempDir()
	told := filepath.Join(dir, "told")
	var at []estimate.Place
	tell := func(_ time.Duration, now []estimate.Place) {
		if len(now) > 0 && strings.Contains(now[0].Line, "train.py") {
			at = now
			_ = os.WriteFile(told, nil, 0o600)
		}
	}
	p, said := one(t, estimate.RealOptions{Options: estimate.Options{Dir: dir, Tell: tell}}, network+`
import time
step()
while not os.path.exists("told"):
    time.sleep(0.1)
while True: step()
`)
	line := strconv.Itoa(strings.Count(network, "\n") + 5)
	if p.Steps != 3 || len(at) != 1 || at[0].Importing || at[0].Steps != 1 ||
		!strings.HasSuffix(at[0].Line, "train.py:"+line) {
		t.Errorf("%d steps, told %+v, expected line %s after one step\n%s", p.Steps, at, line, said)
	}
}
