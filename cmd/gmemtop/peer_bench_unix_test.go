//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkStatsAgainstPickleLoad times `gmemtop stats` on a memory snapshot of a million events against the
// least that every Python tool has to do with it: pickle.load. Whole processes, in turn (ours, theirs, ours
// again from the cache), medians of pairs. It reports ratios to pickle.load: time/x and memory/x of the first
// open; and the second open in milliseconds.
//
//	go test ./cmd/gmemtop -run '^$' -bench Against -benchtime 7x
func BenchmarkStatsAgainstPickleLoad(b *testing.B) {
	python, err := exec.LookPath("python3")
	if err != nil {
		b.Skip("needs python3: the peer is a Python script")
	}
	dir := b.TempDir()
	bin, snapshot := filepath.Join(dir, "gmemtop"), filepath.Join(dir, "snapshot.pickle")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	out, err := exec.Command(python, "testdata/make_snapshot.py", "1000000", snapshot).CombinedOutput()
	if err != nil {
		b.Fatalf("make a snapshot: %v\n%s", err, out)
	}
	var times, memory, second []float64
	for i := 0; b.Loop(); i++ {
		cache := filepath.Join(dir, fmt.Sprintf("cache%d", i))
		ours := runProcess(b, cache, bin, "stats", snapshot)
		theirs := runProcess(b, cache, python, "-c",
			`import pickle,sys; pickle.load(open(sys.argv[1],"rb"))`, snapshot)
		again := runProcess(b, cache, bin, "stats", snapshot)
		times = append(times, ours.wall.Seconds()/theirs.wall.Seconds())
		memory = append(memory, float64(ours.peak)/float64(theirs.peak))
		second = append(second, float64(again.wall.Microseconds())/1e3)
	}
	b.ReportMetric(median(times), "time/x")
	b.ReportMetric(median(memory), "memory/x")
	b.ReportMetric(median(second), "second-open-ms")
}

type usage struct {
	wall time.Duration
	peak int64 // resident kilobytes
}

func runProcess(b *testing.B, cache, name string, args ...string) usage {
	b.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	u := usage{wall: time.Since(start)}
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.peak = int64(r.Maxrss)
	}
	return u
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
