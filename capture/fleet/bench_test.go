//go:build !nobus && unix

package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// BenchmarkFleet is 1,024 ranks on 128 nodes that take five steps a second each: a hub, the sending parts of
// all nodes and one viewer in this process, over TLS. An operation is a step of all ranks. It prints the
// processor time of all of them together as a share of one core, the median and the longest time from a
// step's end to its arrival at the viewer, and the memory in use.
//
// What the machine adds stands beside it: in the operation with the longest delay, how long the threads of
// this process were ready to run and waited for a processor, all together (ms-queued-worst) and in a median
// operation (ms-queued). The processor time that it takes to count this is left out.
func BenchmarkFleet(b *testing.B) {
	const nodes, each, pace = 128, 8, 200 * time.Millisecond
	keys, err := bus.NewKeys(time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	h, err := bus.OpenHub(bus.HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: keys})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	debug.SetMemoryLimit(192 << 20)
	defer debug.SetMemoryLimit(-1)
	join := h.Join(h.Address())
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	rings := make([]*bus.Ring, nodes)
	for i := range rings {
		rings[i] = bus.NewRing(fmt.Sprintf("n%d", i), bus.RingLimits{})
		c, err := bus.Dial(ctx, bus.Access{Join: join, Role: bus.Agent, Name: fmt.Sprint(i)})
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		work.Go(func() { rings[i].Send(ctx, c) })
	}
	viewer, err := bus.Dial(ctx, bus.Access{Join: join, Role: bus.Viewer})
	if err != nil {
		b.Fatal(err)
	}
	defer viewer.Close()
	w := NewWatch(WatchOptions{Ranks: nodes * each})
	defer w.Close()
	delays := make([]time.Duration, b.N) // the longest of each operation
	got := 0
	work.Go(func() {
		viewer.Read(ctx, func(m bus.Message) {
			w.take(m)
			_ = readBatches(m.Data, func(x batch) {
				got += len(x.steps)
				i := x.steps[0].Index
				delays[i] = max(delays[i], time.Duration(time.Now().UnixNano()-x.steps[0].End))
			})
		}, nil, bus.Step)
	})
	used := func() time.Duration {
		var r syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	counting := time.Duration(0)
	queuedFor := func() time.Duration {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := threadTime()
		defer func() { counting += threadTime() - before }()
		return queuedFor(b)
	}
	b.ResetTimer()
	begun, before := time.Now(), used()
	waited := make([]time.Duration, b.N) // for a processor, in each operation
	for i := range b.N {
		queued := queuedFor()
		for n, r := range rings {
			var message []byte
			now := time.Now().UnixNano()
			for k := range each {
				rank := int64(n*each + k)
				s := capture.Step{Index: int64(i), Start: now - int64(pace), End: now,
					Forward:   maybe.Known(int64(pace / 3)),
					Allocated: maybe.Known(int64(40 << 30)), Reserved: maybe.Known(int64(60 << 30)),
					RSS: maybe.Known(int64(8 << 30)), Cost: 30_000}
				message = appendBatch(message, batch{head{id: k, pid: 1, rank: maybe.Known(rank),
					worldSize: maybe.Known(int64(nodes * each))}, []capture.Step{s}})
			}
			r.Put(bus.Step, message)
		}
		time.Sleep(time.Until(begun.Add(time.Duration(i+1) * pace))) // the pace of a step
		waited[i] = queuedFor() - queued
	}
	for _, r := range rings {
		late, cancel := context.WithTimeout(ctx, 20*time.Second)
		if err := r.Flush(late); err != nil {
			b.Error(err)
		}
		cancel()
	}
	took, cost := time.Since(begun), used()-before-counting
	time.Sleep(time.Second) // in which the readers catch up
	b.StopTimer()
	stop()
	work.Wait()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	stored := int64(0)
	for _, r := range rings {
		c := r.Counts()
		stored += c.Sent - c.Again
	}
	if want := b.N * nodes * each; got != want || stored != int64(b.N*nodes) {
		b.Errorf("%d of %d steps arrived, %d messages were stored", got, want, stored)
	}
	b.ReportMetric(100*float64(cost)/float64(took), "%core")
	slowest := 0
	for i := range delays {
		if delays[i] > delays[slowest] {
			slowest = i
		}
	}
	b.ReportMetric(float64(delays[slowest].Milliseconds()), "ms-worst")
	b.ReportMetric(float64(waited[slowest].Milliseconds()), "ms-queued-worst")
	b.ReportMetric(float64(median(delays).Milliseconds()), "ms-median")
	b.ReportMetric(float64(median(waited).Milliseconds()), "ms-queued")
	b.ReportMetric(float64(mem.Sys-mem.HeapReleased)/(1<<20), "MiB")
}

func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// threadTime returns the processor time of this thread, 0 where the kernel does not tell.
func threadTime() time.Duration {
	const thisThread = 1 // RUSAGE_THREAD of Linux
	var r syscall.Rusage
	if runtime.GOOS != "linux" || syscall.Getrusage(thisThread, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// queuedFor returns how long the threads of this process have been ready to run and waited for a processor,
// all together. Linux counts it in the second field of schedstat; 0 elsewhere.
func queuedFor(b *testing.B) (total time.Duration) {
	b.Helper()
	list, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		var ran, queued int64
		if _, err := fmt.Sscan(string(text), &ran, &queued); err != nil {
			b.Fatal(err)
		}
		total += time.Duration(queued)
	}
	return total
}

// BenchmarkReadingARunOf1024Ranks is from the connection to a hub that holds 256 steps of each rank to the
// moment when a viewer has all of them. What the screen then takes for its first frame is measured in cmd's
// feed.
func BenchmarkReadingARunOf1024Ranks(b *testing.B) {
	const nodes, each, steps = 128, 8, 256
	keys, err := bus.NewKeys(time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	h, err := bus.OpenHub(bus.HubOptions{Run: "r", Listen: "127.0.0.1:0", Keys: keys})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	node, err := h.Dial(bus.Agent)
	if err != nil {
		b.Fatal(err)
	}
	defer node.Close()
	now := time.Now().UnixNano()
	for n := range nodes {
		for from := 0; from < steps; from += 32 {
			var message []byte
			for k := range each {
				list := make([]capture.Step, 32)
				for i := range list {
					at := now + int64(from+i)*1e8
					list[i] = capture.Step{Index: int64(from + i), Start: at - 1e8, End: at,
						Forward: maybe.Known(3e7), Allocated: maybe.Known(40 << 30),
						Reserved: maybe.Known(60 << 30), RSS: maybe.Known(8 << 30), Cost: 30_000}
				}
				message = appendBatch(message, batch{head{id: k, pid: 1, rank: maybe.Known(int64(n*each + k)),
					worldSize: maybe.Known(nodes * each)}, list})
			}
			name := fmt.Sprintf("n%d", n)
			if err := node.Store(b.Context(), name, bus.Step, fmt.Sprint(n, from), message); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		viewer, err := bus.Dial(b.Context(), bus.Access{Join: h.Join(h.Address()), Role: bus.Viewer})
		if err != nil {
			b.Fatal(err)
		}
		w := NewWatch(WatchOptions{Ranks: nodes * each})
		ctx, stop := context.WithCancel(b.Context())
		var work sync.WaitGroup
		work.Go(func() { w.Run(ctx, viewer) })
		<-w.caught
		if got := len(w.Job().Processes()); got != nodes*each {
			b.Errorf("%d ranks", got)
		}
		stop()
		work.Wait()
		viewer.Close()
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
