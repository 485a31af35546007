//go:build !nobus

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// BenchmarkTheFirstFrameOf1024Ranks is from the start of gmemtop view to a screen that names the rank unlike
// all others: 128 nodes have sent 256 steps of each of their eight ranks to a hub, which the viewer reaches
// over TLS. The viewer is a process of its own on a terminal of 200x56 cells; ms-cpu is the processor time
// that it has taken by then, on all processors together.
func BenchmarkTheFirstFrameOf1024Ranks(b *testing.B) {
	const nodes, each, steps = 128, 8, 256
	h, path := hubOverTLS(b)
	dir := filepath.Dir(path)
	for n := range nodes - 1 {
		defer fillNode(b, path, n, nodes, each, steps)()
	}
	untilStored(b, h, (nodes-1)*each, steps)
	// The hub hands out the newest messages last: a viewer that names this node's rank has read all others.
	defer fillNode(b, path, nodes-1, nodes, each, steps)()
	untilStored(b, h, nodes*each, steps)
	program, err := exec.LookPath("gmemtop")
	if err != nil {
		b.Fatal(err)
	}
	var cpu time.Duration
	for b.Loop() {
		cmd := exec.Command(program, "view", "--join-file", path)
		cmd.Env = append(os.Environ(), "TERM=vt220", "XDG_STATE_HOME="+dir)
		x := newTerminal(b, 200, 56, cmd)
		x.until("the rank unlike all others", func(screen string) bool {
			return strings.Contains(screen, "rank 1023 holds 60.0 GiB, the others 40.0 GiB")
		})
		b.StopTimer()
		x.close()
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		b.StartTimer()
	}
	b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "ms-cpu")
}

// fillNode sends the steps of a node's ranks to a hub, and returns what ends the node.
func fillNode(b *testing.B, join string, n, nodes, each, steps int) (end func()) {
	b.Helper()
	first := job.NewWatch(job.Options{Keep: capture.Limits{Steps: steps}})
	j := job.New(first)
	now := time.Now().Add(-time.Minute).UnixNano()
	for k := range each {
		t := capture.Info{PID: 100 + k, Started: 1, Rank: maybe.Known(int64(n*each + k)),
			WorldSize: maybe.Known(int64(nodes * each)), Host: fmt.Sprintf("n%d", n), Device: "cuda:0"}
		p := first.Process
		if k > 0 {
			p = j.Add(t, nil)
		}
		p.Begin(t)
		for i := range int64(steps) {
			at := now + i*2e8
			held := int64(40 << 30)
			if n == nodes-1 && k == each-1 {
				held = 60 << 30
			}
			p.Step(capture.Step{Index: i, Start: at - 2e8, End: at, Forward: maybe.Known(int64(6e7)),
				Allocated: maybe.Known(held), Reserved: maybe.Known(int64(70 << 30)),
				RSS: maybe.Known(int64(8 << 30)), Cost: 30_000})
		}
	}
	node := fleet.StartNode(j, fleet.NodeOptions{Identity: fleet.Identity{Node: fmt.Sprintf("n%d", n)},
		Join: join})
	return func() { node.Close(); _ = j.Close() }
}

// untilStored waits until a hub has the newest step of all ranks.
func untilStored(b *testing.B, h *bus.Hub, ranks, steps int) {
	b.Helper()
	conn, err := h.Dial(bus.Viewer)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	ctx, stop := context.WithTimeout(b.Context(), 3*time.Minute)
	defer stop()
	w := fleet.NewWatch(fleet.WatchOptions{Ranks: ranks})
	defer w.Close()
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx, conn) }()
	for there := 0; there < ranks && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		there = 0
		for _, p := range w.Job().Processes() {
			if v := p.History.Snapshot(); len(v.Steps) >= steps {
				there++
			}
		}
	}
	if ctx.Err() != nil {
		b.Error("the nodes do not send their steps")
	}
	stop()
	<-done
}

// hubOverTLS opens a hub for run r until the benchmark ends, and returns the path of its join file, which is
// in a folder of its own.
func hubOverTLS(b *testing.B) (h *bus.Hub, joinFile string) {
	b.Helper()
	keys, err := bus.NewKeys(time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	if h, err = bus.OpenHub(bus.HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: keys}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(h.Close)
	joinFile = filepath.Join(b.TempDir(), "r.join")
	if err := h.Join(h.Address()).Write(joinFile); err != nil {
		b.Fatal(err)
	}
	return h, joinFile
}
