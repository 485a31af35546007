//go:build !nobus

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// The disk of a hub fills up. The hub says so, goes on by itself when there is room, and every step is
// in its recordings or counted: those taken meanwhile waited in the node.
func TestAHubWhoseDiskWasFullGoesOnByItself(t *testing.T) {
	dir := t.TempDir()
	disk, join := filepath.Join(dir, "disk"), filepath.Join(dir, "r.join")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=24m,mode=700"); err != nil {
		t.Skipf("needs root: it mounts a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	ctx, stop := context.WithTimeout(t.Context(), torchtest.Patience(t))
	defer stop()
	hub := exec.CommandContext(ctx, "gmemtop", "hub", "--run", "r1", "--join-file", join, "--store",
		filepath.Join(disk, "store"), "-o", filepath.Join(dir, "r1"))
	stderr, err := hub.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			lines <- s.Text()
		}
	}()
	first := job.NewWatch(job.Options{})
	j := job.New(first)
	first.Process.Begin(capture.Info{PID: 7, Started: 1, Rank: maybe.Known(0), WorldSize: maybe.Known(1)})
	steps := int64(0)
	// hear waits until the hub says something, while the training goes on.
	hear := func(text string) string {
		t.Helper()
		for {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatalf("the hub ended without a word of %q", text)
				}
				if strings.Contains(line, text) {
					return line
				}
			case <-time.After(10 * time.Millisecond):
				first.Process.Step(capture.Step{Index: steps, Start: steps, End: steps + 1})
				steps++
			}
		}
	}
	hear("listening")
	n := fleet.StartNode(j, fleet.NodeOptions{Identity: fleet.Identity{Node: "n1"}, Join: join})
	filler, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4<<10))
	}
	_ = filler.Close()
	if line := hear("cannot store anything"); !strings.Contains(line, "no space left") {
		t.Errorf("the hub says %s", line)
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	again := hear("the hub is storing steps again, after ")
	taken := steps
	if counts := n.Close(); counts.Dropped > 0 || counts.Waiting > 0 {
		t.Errorf("the node: %+v", counts)
	}
	_ = hub.Process.Signal(syscall.SIGTERM)
	line := hear("recorded; gmemtop view")
	if err := hub.Wait(); err != nil {
		t.Error(err)
	}
	var recorded, lost int64
	found := regexp.MustCompile(`(\d+) steps of 1 process `).FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("the hub says %s", line)
	}
	_, _ = fmt.Sscan(found[1], &recorded)
	if found := regexp.MustCompile(`(\d+) steps never reached`).FindStringSubmatch(line); found != nil {
		_, _ = fmt.Sscan(found[1], &lost)
	}
	t.Logf("%s\n%s", again, line)
	if recorded+lost != taken || recorded == 0 || lost > 0 && !strings.Contains(again, "are lost") {
		t.Errorf("of %d steps %d were recorded and %d counted as lost", taken, recorded, lost)
	}
}
