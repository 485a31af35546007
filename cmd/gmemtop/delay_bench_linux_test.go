//go:build !nobus

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// BenchmarkTheDelayOfAStep is the time from a step's end in a real training of two ranks to its arrival at a
// viewer, through the gmemtop that started the ranks and a hub, all on this machine. An operation is a step
// of both ranks; the first two seconds of steps are left out.
//
//	go test ./cmd/gmemtop -run '^$' -bench TheDelayOfAStep -benchtime 200x
func BenchmarkTheDelayOfAStep(b *testing.B) {
	python := torchtest.Python(b)
	for _, pace := range []string{"1", "0.2", "0.05", "0"} {
		b.Run("a pause of "+pace+" s", func(b *testing.B) {
			delays := delaysOf(b, python, pace, b.N)
			b.StopTimer()
			slices.Sort(delays)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
			b.ReportMetric(ms(delays[len(delays)/2]), "ms-median")
			b.ReportMetric(ms(delays[(len(delays)*9+9)/10-1]), "ms-90%")
			b.ReportMetric(ms(delays[len(delays)-1]), "ms-worst")
		})
	}
}

// delaysOf trains until so many steps of both ranks have arrived, with a pause of some seconds in each.
func delaysOf(b *testing.B, python, pace string, steps int) (delays []time.Duration) {
	b.Helper()
	h, path := hubOverTLS(b)
	dir := filepath.Dir(path)
	cmd := exec.Command("gmemtop", "run", "--headless", "-q", "--join-file", path, "--", python, "-m",
		"torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
		"--master-port", "29514", "testdata/endless.py", dir, "0")
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "PACE="+pace)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer cmd.Wait()
	defer os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600)
	conn, err := h.Dial(bus.Viewer)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	w := fleet.NewWatch(fleet.WatchOptions{})
	defer w.Close()
	ctx, stop := context.WithTimeout(b.Context(), torchtest.Patience(b)+time.Duration(steps)*2*time.Second)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() { w.Run(ctx, conn) })
	arrived := make(chan time.Duration, 1000)
	begun := map[*job.Process]bool{}
	for len(delays) < 2*steps {
		for _, p := range w.Job().Processes() {
			if !begun[p] {
				begun[p] = true
				work.Go(func() { listen(ctx, p, arrived) })
			}
		}
		select {
		case d := <-arrived:
			delays = append(delays, d)
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			b.Fatalf("%d of %d steps have arrived", len(delays), 2*steps)
		}
	}
	return delays
}

// listen sends how long after its end each step of a process arrives.
func listen(ctx context.Context, p *job.Process, arrived chan<- time.Duration) {
	next, first := int64(0), time.Now()
	for v := p.History.Snapshot(); ; {
		now := time.Now()
		for i := range v.Steps {
			s := &v.Steps[i]
			if s.Index < next {
				continue
			}
			next = s.Index + 1
			if now.Sub(first) < 2*time.Second {
				continue
			}
			select {
			case arrived <- time.Duration(now.UnixNano() - s.End):
			case <-ctx.Done():
				return
			}
		}
		var err error
		if v, err = p.History.Wait(ctx, v.Version); err != nil {
			return
		}
	}
}
