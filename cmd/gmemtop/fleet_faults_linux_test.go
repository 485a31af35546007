//go:build !nobus

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// The hub hangs, the link to it goes down, and it is killed. Each time the training goes on for many steps
// before the fault ends. Then all of them arrive, and nothing is lost. The training's results are
// bit-identical to those without gmemtop.
func TestATrainingDoesNotNoticeWhatBecomesOfItsHub(t *testing.T) {
	python := torchtest.Python(t)
	w := connect(t, 1)
	dir := t.TempDir()
	join, sealed := filepath.Join(dir, "r1.join"), filepath.Join(dir, "r1")
	train := func(steps int, before ...string) *exec.Cmd {
		argv := append(before, python, "-m", "torch.distributed.run", "--nproc-per-node",
			"2",
			"--master-addr", "127.0.0.1", "--master-port", "29512", "testdata/endless.py",
			dir, fmt.Sprint(steps))
		cmd := w.command(1, []string{"OMP_NUM_THREADS=1", "PACE=0.05"}, argv...)
		cmd.Stderr = os.Stderr
		return cmd
	}
	var said bytes.Buffer
	startHub := func() *exec.Cmd {
		t.Helper()
		hub := w.command(0, nil, "gmemtop", "hub", "--listen", "10.97.0.1:7422", "--run", "r1",
			"--join-file", join, "--store", filepath.Join(dir, "store"), "-o", sealed)
		said.Reset()
		hub.Stderr = &said
		if err := hub.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hub.Process.Kill() })
		return hub
	}
	progress := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "progress"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	late := time.Now().Add(4 * time.Minute)
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			if time.Now().After(late) {
				t.Fatalf("gave up waiting until %s", what)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	// arrived reports whether the viewer has a step of both ranks, and complains of what is lost.
	arrived := func(step int64) bool {
		cmd := w.command(0, nil, "gmemtop", "view", "--json", "--join-file", join)
		out, err := cmd.Output()
		var r struct {
			Ranks []struct {
				Step int64
				Lost int64 `json:"steps_lost"`
			}
		}
		if err != nil || json.Unmarshal(out, &r) != nil || len(r.Ranks) != 2 {
			return false
		}
		for _, x := range r.Ranks {
			if x.Lost > 0 {
				t.Fatalf("%d steps are lost", x.Lost)
			}
			if x.Step < step-1 {
				return false
			}
		}
		return true
	}
	hub := startHub()
	job := train(0, "gmemtop", "run", "--headless", "-q", "--join-file", join, "--")
	var learned bytes.Buffer
	job.Stdout = &learned
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- job.Wait() }()
	stop := func() { _ = os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600) }
	t.Cleanup(stop)
	until("the first steps arrive", func() bool { return progress() > 3 && arrived(3) })
	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"the hub hangs", func() { _ = hub.Process.Signal(syscall.SIGSTOP) },
			func() { _ = hub.Process.Signal(syscall.SIGCONT) }},
		{"the link is down", func() { w.ip("-n " + w.space(0) + " link set v1 down") },
			func() { w.ip("-n " + w.space(0) + " link set v1 up") }},
		{"the hub is killed", func() {
			_ = hub.Process.Kill()
			_ = hub.Wait()
		}, func() { hub = startHub() }},
	} {
		before := progress()
		fault.begin()
		until(fault.name+" and the training goes on", func() bool { return progress() >= before+40 })
		at := progress()
		fault.end()
		until("what came while "+fault.name+" arrives", func() bool { return arrived(at) })
		t.Logf("%s: steps %d to %d arrived afterwards", fault.name, before, at)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatalf("the training: %v", err)
	}
	steps := progress()
	_ = hub.Process.Signal(syscall.SIGTERM)
	if err := hub.Wait(); err != nil || !strings.Contains(said.String(),
		fmt.Sprintf("%d steps of 2 processes recorded", 2*steps)) ||
		strings.Contains(said.String(), "never reached") {
		t.Errorf("after %d steps the hub: %v: %s", steps, err, &said)
	}
	digests := func(text []byte) []string {
		list := regexp.MustCompile(`digest \d \w+ after \d+`).FindAllString(string(text), -1)
		slices.Sort(list)
		return list
	}
	alone, err := train(int(steps)).Output()
	got, want := digests(learned.Bytes()), digests(alone)
	if err != nil || len(want) != 2 || !slices.Equal(got, want) {
		t.Errorf("alone it learned %q, watched %q: %v", want, got, err)
	}
}
